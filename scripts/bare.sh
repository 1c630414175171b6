#!/usr/bin/env bash
# Runs a command as on the first day: in a fresh clone of this checkout (what is committed), on a bare Debian.
#
#     scripts/bare.sh SUITE USER COMMAND...          scripts/bare.sh trixie sudo make demo
#
# SUITE   bookworm, trixie
# USER    root; sudo: an ordinary user whom sudo asks no password; user: one without sudo, for whom root does what the
#         command says is missing, and who starts it again then; alone: one without sudo and without such a friend
#
# The root is mmdebstrap's smallest, with git, make, curl, gcc (and no headers), python3, certificates and this machine's Rust
# toolchain; the clone lies below a home that only its owner enters. Package sources, proxies, certificates and the settings of
# pip and cargo are this machine's. All mounts and processes are in namespaces of their own and end with the script; output
# also goes to a log file. At the end it says how long it took and how much of the disk.
#
#     BARE_PLACE=DIR    where roots, their archives and logs are (/var/tmp/elbowroom-bare); archives and logs are kept
#     BARE_TARGET=DIR   a target directory to begin with (a copy), so that less has to be built
#     BARE_DIST=DIR     packages, which the clone finds in its dist
#     BARE_KEEP=1       keep the root
#
# Needs root, mmdebstrap and /dev/fuse.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
place=${BARE_PLACE:-/var/tmp/elbowroom-bare}
include=git,make,curl,gcc,python3,ca-certificates
handed_on='http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_DEFAULT_TIMEOUT'

die() { printf 'bare: %s\n' "$*" >&2; exit 1; }

# This machine's package sources, those of Debian, for another suite.
sources_of() {
    . /etc/os-release
    local list
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] && awk -v RS= '/\/debian/ { print $0 "\n" }' "$list"
    done | grep -v '^#' | sed "s/\b$VERSION_CODENAME/$1/g"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$list" ] && grep '^deb .*/debian' "$list" | sed "s/\b$VERSION_CODENAME/$1/g"
    done
    return 0
}

# The archive of the bare root of a suite, made once.
make_archive() {
    [ ! -e "$place/$1.tar" ] || return 0
    mkdir -p "$place"
    say "mmdebstrap $1"
    sources_of "$1" >"$place/$1.sources"
    [ -s "$place/$1.sources" ] || die "no Debian package sources found in /etc/apt"
    mmdebstrap --quiet --variant=minbase --include="$include" "$1" "$place/$1.part.tar" "$place/$1.sources"
    mv "$place/$1.part.tar" "$place/$1.tar"
}

say() { printf 'bare: %s\n' "$*"; }

# What this machine needs to reach its package registries.
copy_settings() {
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    apt-config dump | grep -iE '^Acquire::[a-z]+::proxy|^Acquire::Check' >"$root/etc/apt/apt.conf.d/99machine" || true
    if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
        cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
        chroot "$root" update-ca-certificates >/dev/null 2>&1
    fi
    local settings
    for settings in /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
        [ -e "$settings" ] && cat "$settings" >>"$root/etc/pip.conf"
    done
    mkdir -p "$root$home/.cargo"
    for settings in "${CARGO_HOME:-$HOME/.cargo}"/config.toml "${CARGO_HOME:-$HOME/.cargo}"/config; do
        [ -e "$settings" ] && cp "$settings" "$root$home/.cargo/"
    done
    return 0
}

make_user() {
    [ "$user" != root ] || return 0
    chroot "$root" useradd --create-home --shell /bin/bash "$name"
    [ "$user" = sudo ] || return 0
    chroot "$root" sh -ec 'apt-get -qq update; apt-get -qq -y install sudo' </dev/null >/dev/null
    echo "$name ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$name"
}

make_root() {
    mkdir -p "$place"
    root=$(mktemp -d "$place/$suite-$user.XXXXXX")
    chmod 755 "$root"
    tar -xf "$place/$suite.tar" -C "$root"
    make_user
    copy_settings
    git clone --quiet --no-local "$checkout" "$root$home/elbowroom"
    [ -z "${BARE_TARGET:-}" ] || cp -a "$BARE_TARGET" "$root$home/elbowroom/target"
    [ -z "${BARE_DIST:-}" ] || cp -a "$BARE_DIST" "$root$home/elbowroom/dist"
    mkdir -p "$root/opt/rust"
    chroot "$root" chown -R "$name:" "$home"
    chmod 700 "$root$home"
}

# In namespaces of its own: everything that the root needs of this machine, and the root in the place of this machine's.
# (Not chroot: the kernel gives user namespaces to no process in one.)
enter() {
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    mknod -m 666 "$root/run/fuse" c 10 229 # Open to all, as udev makes it.
    mount --bind "$root/run/fuse" "$root/dev/fuse"
    mount --bind "$rust" "$root/opt/rust"
    mount -o remount,bind,ro "$root/opt/rust"
    cd "$root"
    pivot_root . mnt
    umount --lazy /mnt
    local code=0
    run "$@" || code=$?
    if [ "$code" != 0 ] && [ "$user" = user ]; then
        do_as_told
        code=0
        run "$@" || code=$?
    fi
    return "$code"
}

# The command, as the user, with what a login gives and nothing else of this machine's environment.
run() {
    local word words=()
    for word in $handed_on; do
        [ -z "${!word:-}" ] || words+=("$word=${!word}")
    done
    local path=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin:/usr/games
    [ "$user" != root ] || path=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    (cd "$home/elbowroom" && exec setpriv --reuid="$name" --regid="$name" --init-groups \
        env -i HOME="$home" USER="$name" LOGNAME="$name" SHELL=/bin/bash PATH="$path" "${words[@]}" "$@" </dev/null 2>&1) | tee /tmp/said
}

# What the command said is for root to do, done by root.
do_as_told() {
    local told
    told=$(sed -n 's/^setup: .*as root: //p' /tmp/said | tail -n 1)
    [ -n "$told" ] || die "it failed and did not say what root has to do"
    say "as root: $told"
    sh -c "$told" </dev/null
}

megabytes() { du -sxm "$@" 2>/dev/null | tail -n 1 | cut -f 1; }

report() {
    local checkout_size=0
    [ ! -d "$root$home/elbowroom/target" ] || checkout_size=$(megabytes "$root$home/elbowroom/target")
    say "exit code $1 after $((SECONDS / 60)) min $((SECONDS % 60)) s: $suite, $user: $command"
    say "disk: $(($(megabytes "$root") - empty)) MB more than before, $checkout_size MB of it in target; log: $log"
}

if [ "${1:-}" = --inside ]; then
    shift
    enter "$@"
    exit
fi

[ $# -ge 3 ] || die "usage: scripts/bare.sh SUITE root|sudo|user|alone COMMAND..."
suite=$1 user=$2
shift 2
command=$*
case $user in
root) name=root home=/root ;;
sudo | user | alone) name=tester home=/home/tester ;;
*) die "no such user: $user (root, sudo, user, alone)" ;;
esac
[ "$(id -u)" = 0 ] || die "only root can make a root file system"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
rust=$(rustc --print sysroot)
make_archive "$suite"
log=$place/$suite-$user-$(date +%Y%m%d-%H%M%S).log
root=
trap '[ -n "${BARE_KEEP:-}" ] || rm -rf --one-file-system "$root"' EXIT
make_root
empty=$(megabytes "$root")
say "$suite, $user: $command" | tee "$log"
SECONDS=0
code=0
export root user name home rust
unshare --mount --pid --fork --kill-child "$0" --inside "$@" > >(tee -a "$log") 2>&1 &
inside=$!
trap 'kill -KILL "$inside"' INT TERM HUP # It ignores the others while it waits.
wait "$inside" || code=$?
trap '' INT TERM HUP
report "$code" | tee -a "$log"
exit "$code"
