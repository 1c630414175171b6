#!/bin/sh
# Uses the packages in dist as their users do, on a machine where nothing of Elbowroom was built: `make try-packages` runs it in bare roots of Debian.
# As root, or with sudo, it installs the Debian package; else it unpacks the archive. The first command that fails ends it.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/dist"
sha256sum --quiet --check SHA256SUMS

say() { printf 'try: %s\n' "$*"; }

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
if [ -z "$as_root" ] || command -v sudo >/dev/null; then
    say 'apt install ./elbow_*.deb'
    $as_root apt-get -qq update
    $as_root apt-get -qq -y -o Dpkg::Use-Pty=0 install ./elbow_*.deb python3-venv gcc libc6-dev pkg-config >/dev/null
    elbow=/usr
else
    say 'tar xf elbow-*-linux-gnu.tar.gz'
    mkdir -p "$HOME/opt"
    tar -xf elbow-*-linux-gnu.tar.gz -C "$HOME/opt"
    elbow=$(echo "$HOME"/opt/elbow-*)
    PATH=$elbow/bin:$PATH
    export PATH
fi
elbow --version

say 'elbow doctor'
work=$(mktemp -d)
cd "$work"
mkdir data
elbow doctor data || true # What a container lacks is said by the next lines.

say 'a job that is stored, and one that is rolled back'
if elbow doctor --json data | grep -q '"check":"job","state":"ok"'; then
    elbow run --on data -- sh -c 'cd data && mkdir made && echo kept > made/file'
    ! elbow run --quiet --on data -- sh -c 'cd data && rm -r made && false'
    [ "$(cat data/made/file)" = kept ]
else
    say 'NO JOB CAN BE RUN HERE: see the line before'
    [ "$(id -u)" != 0 ]
fi

say 'sort, holes, locks, the simulated disk'
seq 1000 | shuf | elbow sort -n | sort -nc
truncate -s 1M holes && elbow holes holes >/dev/null
elbow lockd serve --listen "unix:$work/locks" --first >served 2>&1 &
service=$!
trap 'kill "$service"; wait "$service" || true; cd /; rm -rf "$work"' EXIT
until grep -q listening served; do sleep 0.1; done
ELBOW_LOCKS=unix:$work/locks elbow lock hold file -- true
ELBOW_LOCKS=unix:$work/locks elbow lock exec --prefix "$work" -- flock file true
elbow disk simulate --disk hp-c2247a --requests 1000 >/dev/null

say 'manual pages, completions and settings'
[ -n "$(find "$elbow/share/man/man1" -name 'elbow-run.1*')" ]
[ -e "$elbow/share/bash-completion/completions/elbow" ]
elbow config show --origin >/dev/null

if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    say 'a program in C'
    PKG_CONFIG_PATH=$elbow/lib/pkgconfig
    export PKG_CONFIG_PATH
    printf '#include <ba.h>\n#include <elbow_lock.h>\nint main(void) { return 0; }\n' >program.c
    # shellcheck disable=SC2046 # words of options
    cc program.c -o program $(pkg-config --cflags --libs ba elbow_lock)
    LD_LIBRARY_PATH=$elbow/lib ./program
fi

if python3 -c 'import ensurepip' 2>/dev/null; then
    say 'pip install elbowroom-*.whl'
    python3 -m venv python
    python/bin/pip install --quiet --no-index "$root"/dist/elbowroom-*.whl
    python/bin/python -c 'import elbowroom; print("elbowroom", elbowroom.__version__)'
fi
say 'all of it works'
