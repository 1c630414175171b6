#!/bin/sh
# Makes what is given to people who do not build: `make packages`. All of it lies in dist afterwards:
#
#     elbow_VERSION_ARCH.deb              Debian and Ubuntu: the command, man pages, completions, libraries, units of systemd
#     elbow-VERSION-ARCH-linux-gnu.tar.gz the same below one directory, for machines where nobody is root
#     elbowroom-VERSION-*.whl, .tar.gz    Python, for any from 3.9 on; and its sources
#     sbom.json                           every crate that is in them, with version, licence and checksum
#     SHA256SUMS
#
# Files have the time of the commit (SOURCE_DATE_EPOCH), an order and no owner, so that the same sources, compiler and machine make the same
# bytes. It needs what `make build` needs, and dpkg-dev; the wheel is built by maturin, which is fetched from PyPI into the target directory.
# `.deb` and archive hold programs for the C library of this machine and newer ones: build on the oldest system that they are for.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
stage=$target/packages
dist=$root/dist
maturin='maturin==1.16.0'
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

say() { printf 'packages: %s\n' "$*" >&2; }

# A tree as `make install` makes it, with licences and an example of settings.
installed() { # DIRECTORY PREFIX LIBDIR
    make --no-print-directory install DESTDIR="$1" PREFIX="$2" LIBDIR="$3" >/dev/null
    docs=$1$2/share/doc/elbow
    install -D -m 644 -t "$docs" README.md SEMANTICS.md SECURITY.md LICENSE-MIT LICENSE-APACHE
    install -D -m 644 -t "$docs/examples" packaging/config.toml
}

# In the order of their names, with the time of the commit, and nobody's.
archive() { # DIRECTORY NAME FILE
    tar --create --directory "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u+rw,go+r,go-w "$2" | gzip --no-name --best >"$3"
}

# What the programs need of the system, as dpkg-shlibdeps finds it.
depends() { # TREE
    mkdir -p "$stage/shlibdeps/debian"
    printf 'Source: elbow\nPackage: elbow\nArchitecture: any\n' >"$stage/shlibdeps/debian/control"
    find "$1" -type f \( -path '*/bin/*' -o -name '*.so*' \) -print0 |
        (cd "$stage/shlibdeps" && xargs -0 dpkg-shlibdeps -O --ignore-missing-info 2>/dev/null) |
        sed -n 's/^shlibs:Depends=//p'
}

debian_package() {
    tree=$stage/deb
    architecture=$(dpkg --print-architecture)
    installed "$tree" /usr "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
    install -D -m 644 -t "$tree/usr/lib/systemd/system" packaging/elbow-lockd.service packaging/elbow-lockd-proxy.service
    mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
    find "$tree/usr/share/man" -type f -exec gzip --no-name --best {} +
    gzip --no-name --best --stdout CHANGELOG.md >"$tree/usr/share/doc/elbow/changelog.gz"
    packaging/copyright.sh >"$tree/usr/share/doc/elbow/copyright"
    needs=$(depends "$tree")
    mkdir -p "$tree/DEBIAN"
    cat >"$tree/DEBIAN/control" <<CONTROL
Package: elbow
Version: $version
Architecture: $architecture
Maintainer: The Elbowroom developers <elbowroom@localhost>
Installed-Size: $(du -k --summarize "$tree" | cut -f 1)
Depends: $needs
Recommends: fuse3, uidmap
Suggests: openssh-client, sshfs
Section: utils
Priority: optional
Description: run any command as one transaction on slow or shared storage
 File operations of a command are answered from memory and carried out in the
 background, many at a time. When the command succeeds, all its changes appear;
 when it fails, none does.
 .
 Besides: sort a file within its own disk space, free parts of files, lock lists
 of byte ranges across machines (fcntl, MPI-IO, C), simulate a disk.
CONTROL
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$tree" "$dist/elbow_${version}_$architecture.deb" >/dev/null
}

plain_archive() {
    name=elbow-$version-$(uname -m)-linux-gnu
    installed "$stage/plain/$name" "" /lib
    # Wherever it is unpacked.
    sed -i -e 's|^prefix=.*|prefix=${pcfiledir}/../..|' -e 's|^libdir=.*|libdir=${prefix}/lib|' "$stage/plain/$name"/lib/pkgconfig/*.pc
    archive "$stage/plain" "$name" "$dist/$name.tar.gz"
}

python_packages() {
    [ -x "$stage/python/bin/maturin" ] || {
        python3 -m venv "$stage/python"
        "$stage/python/bin/pip" install --quiet "$maturin"
    }
    # Not one from the other: the sources leave out most of the workspace, and the lock file names all of it.
    "$stage/python/bin/maturin" sdist --out "$dist" --manifest-path clients/python/Cargo.toml 2>"$stage/sdist.log" || {
        cat "$stage/sdist.log" >&2
        exit 1
    }
    "$stage/python/bin/maturin" build --quiet --release --locked --out "$dist" --manifest-path clients/python/Cargo.toml
}

say "version $version of $(git rev-parse --short HEAD), time $SOURCE_DATE_EPOCH"
rm -rf "$stage/deb" "$stage/plain" "$stage/shlibdeps" "$dist"
mkdir -p "$stage" "$dist"
say 'the Debian package'
debian_package
say 'the archive'
plain_archive
say 'the Python package'
python_packages
packaging/sbom.py >"$dist/sbom.json"
(cd "$dist" && sha256sum -- * >SHA256SUMS)
(cd "$dist" && ls -l -- * >&2)
