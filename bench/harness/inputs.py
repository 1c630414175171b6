"""The inputs, made once and kept in a cache: a part of the Linux sources as tree, tar and zip, and GNU hello.

Both come from Debian's archive by name, through apt-get; nothing of the system is changed by it.
"""

import glob
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Taken in this order until there are enough files: programs, symbolic links, deep and shallow directories.
# The first FEW of them have all that a bench takes unless it is told otherwise; the rest is a gigabyte.
FEW = 4
PARTS = ["scripts", "kernel", "mm", "fs", "net", "lib", "block", "crypto", "security", "sound", "drivers"]


@dataclass(frozen=True)
class Input:
    """A tree (below a directory `linux` or `hello`), its archives and its size."""

    name: str
    tree: Path
    tar: Path
    zip: Path
    files: int
    bytes: int


class Unavailable(Exception):
    """Something that a measurement needs and that cannot be had here; the message says what and why."""


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "elbowroom-bench")


def need_programs(*programs):
    """Raises Unavailable unless all are installed; `name:package` where the Debian package has another name."""
    missing = [pair.split(":")[-1] for pair in programs if not find_program(pair.split(":")[0])]
    if missing:
        raise Unavailable(f"not installed: {' '.join(missing)} (apt-get install {' '.join(missing)})")


def find_program(name):
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return shutil.which(name, path=path)


def linux(cache, files, links=True):
    """The first `files` files of the parts of the Linux sources above.

    Without `links`, symbolic links are left out: sshfs sets the times and owners of what they point to, so that a
    direct `tar` of dangling ones fails there, and peers could not be compared.
    """
    name = f"linux-{files}" if links else f"linux-{files}-plain"
    place = cache / name
    if not (place / "complete").exists():
        need_programs("tar", "xz:xz-utils", "dpkg-deb:dpkg", "apt-get:apt")
        _make_linux(*_linux_names(cache, files, links), place)
    return _read_input(name, place)


def hello(cache):
    """GNU hello as its authors ship it: configure, sources, translations and tests."""
    need_programs("tar", "cc:build-essential", "make")
    place = cache / "hello"
    if not (place / "complete").exists():
        archive = _hello_archive(cache)
        with _made_whole(place) as partial:
            (partial / "tree" / "hello").mkdir(parents=True)
            _run("tar", "-xf", archive, "-C", partial / "tree" / "hello", "--strip-components=1")
            _pack(partial)
    return _read_input("hello", place)


def zip_of(found):
    """The zip archive of an input, made when it is first asked for."""
    need_programs("unzip")
    if not found.zip.exists():
        need_programs("zip")
        _run("zip", "-qry", found.zip, *sorted(os.listdir(found.tree)), cwd=found.tree)
    return found.zip


def _read_input(name, place):
    files = [Path(directory, file) for directory, _, names in os.walk(place / "tree") for file in names]
    size = sum(file.lstat().st_size for file in files)
    return Input(name, place / "tree", place / "tree.tar", place / "tree.zip", len(files), size)


def _linux_names(cache, files, with_links):
    """The unpacked sources, and the first names in them."""
    for parts in (PARTS[:FEW], PARTS):
        sources = _linux_sources(cache, parts)
        names = _names(sources, parts, with_links)
        if len(names) >= files:
            return sources, names[:files]
    raise Unavailable(f"the Linux sources have only {len(names)} files in {' '.join(PARTS)}")


def _names(sources, parts, with_links):
    names = []
    for part in parts:
        for directory, subdirectories, found in os.walk(sources / part):
            subdirectories.sort()
            here = os.path.relpath(directory, sources)
            links = [name for name in subdirectories if os.path.islink(os.path.join(directory, name))]
            names += [os.path.join(here, name) for name in sorted(found + links)]
    return names if with_links else [name for name in names if not os.path.islink(sources / name)]


def _linux_sources(cache, parts):
    """The unpacked parts of the kernel's sources."""
    place = cache / f"linux-source-{len(parts)}"
    if (place / "complete").exists():
        return place / "linux"
    with _made_whole(place) as partial:
        apt = _apt_that_knows_linux(partial)
        package = _newest_linux(apt)
        print(f"bench: apt-get download {package}", flush=True)
        _check([*apt("apt-get"), "-qq", "download", package], partial)
        deb = next(partial.glob("*.deb"))
        _run("dpkg-deb", "-x", deb, partial)
        deb.unlink()
        archive = next((partial / "usr/src").glob("linux-source-*.tar.xz"))
        top = archive.name.removesuffix(".tar.xz")
        (partial / "linux").mkdir()
        _run("tar", "-xf", archive, "-C", partial / "linux", "--strip-components=1", *[f"{top}/{part}" for part in parts])
        for leftover in ("usr", "sources", "lists"):
            shutil.rmtree(partial / leftover, ignore_errors=True)
    return place / "linux"


def _apt_that_knows_linux(place):
    """How to call apt: with the system's lists where they know the package, else with fresh private ones."""
    system = lambda program: [program, "-o", "APT::Sandbox::User=root"]
    if _newest_linux(system):
        return system
    private = _private_apt(place, "deb")
    if not _newest_linux(private):
        raise Unavailable("apt knows no package linux-source-*: is this Debian or a relative of it?")
    return private


def _newest_linux(apt):
    listed = subprocess.run([*apt("apt-cache"), "pkgnames", "linux-source-"], capture_output=True, text=True)
    versions = [re.fullmatch(r"linux-source-(\d+)\.(\d+)", name) for name in listed.stdout.split()]
    known = sorted((int(found[1]), int(found[2])) for found in versions if found)
    return "linux-source-%d.%d" % known[-1] if known else None


def _make_linux(sources, names, place):
    """A tree of these names, and its archive. The files are those of the sources under a second name: nobody writes to them."""
    with _made_whole(place) as partial:
        for name in names:
            target = partial / "tree" / "linux" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(sources / name, target, follow_symlinks=False)
        for directory, _, _ in os.walk(partial / "tree" / "linux", topdown=False):
            source = sources / os.path.relpath(directory, partial / "tree" / "linux")
            shutil.copystat(source, directory)
        _pack(partial)


def _pack(place):
    names = sorted(os.listdir(place / "tree"))
    _run("tar", "--sort=name", "--owner=root:0", "--group=root:0", "-cf", place / "tree.tar", "-C", place / "tree", *names)


def _hello_archive(cache):
    """The original archive of Debian's source package, through private copies of the system's package lists."""
    known = glob.glob(os.path.join(os.environ.get("ELBOW_FIXTURES", "target/fixtures"), "hello_*.orig.tar.gz"))
    if known:
        return known[0]
    need_programs("apt-get:apt", "dpkg-source:dpkg-dev")
    place = cache / "hello-source"
    if not (place / "complete").exists():
        with _made_whole(place) as partial:
            print("bench: apt-get source hello", flush=True)
            apt = _private_apt(partial, "deb-src")
            _check([*apt("apt-get"), "-qq", "source", "--download-only", "--tar-only", "hello"], partial)
    return next(place.glob("hello_*.orig.tar.gz"))


def _private_apt(place, kind):
    """How to call apt with lists of its own in `place`: Debian's entries of the system's, for packages of this kind
    (`deb` or `deb-src`)."""
    parts = place / "sources"
    parts.mkdir()
    for path in map(Path, glob.glob("/etc/apt/sources.list.d/*.sources")):
        text = re.sub(r"(?m)^Types:.*", f"Types: {kind}", path.read_text())
        (parts / path.name).write_text("\n\n".join(entry for entry in text.split("\n\n") if "debian" in entry) + "\n")
    for path in map(Path, ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*.list")]):
        lines = path.read_text().splitlines() if path.exists() else []
        text = "\n".join(kind + line[3:] for line in lines if line.startswith("deb ") and "debian" in line)
        (parts / path.name).write_text(text + "\n")
    (place / "lists/partial").mkdir(parents=True)
    settings = ["APT::Sandbox::User=root", "Dir::Etc::SourceList=/dev/null", f"Dir::Etc::SourceParts={parts}",
                f"Dir::State::Lists={place}/lists", f"Dir::Cache={place}/lists"]
    apt = lambda program: [program, *[word for setting in settings for word in ("-o", setting)]]
    _check([*apt("apt-get"), "-qq", "update"], place)
    return apt


def _check(command, place):
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    if done.returncode != 0:
        words = [word for word in command if "=" not in word and word not in ("-o", "-qq")]
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")


class _made_whole:
    """A directory that appears under its name only when it is complete."""

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self.partial = Path(tempfile.mkdtemp(prefix=f".{self.place.name}-", dir=self.place.parent))
        return self.partial

    def __exit__(self, kind, *_):
        if kind is None:
            (self.partial / "complete").touch()
            shutil.rmtree(self.place, ignore_errors=True)
            self.partial.chmod(0o755)
            self.partial.rename(self.place)
        else:
            shutil.rmtree(self.partial, ignore_errors=True)


def _run(*command, cwd=None):
    subprocess.run([str(word) for word in command], check=True, cwd=cwd)
