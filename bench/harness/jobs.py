"""The jobs: what is on the storage before, the command, and what must be there afterwards."""

import random
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from . import inputs, trees

# Written by configure and make with times, process numbers or the current directory in them; config.h says whether
# O_NOATIME works, which on slow storage depends on whether an attribute was still cached.
BUILD_NOISE = {"hello/config.log", "hello/config.status", "hello/config.h", "hello/po/stamp-po"}


@dataclass
class Job:
    """A command that is run in `directory` of the storage."""

    name: str
    command: list
    directory: str = "."
    populate: Optional[Callable] = None  # Fills the server's side before.
    aspects: tuple = trees.ALL
    ignored: Callable = lambda path: False
    expected: Optional[dict] = None  # The tree afterwards; None: as after the first direct run.
    source: Optional[Path] = None  # What the staging peers copy, where the command makes nothing.
    input: object = None
    stageable: bool = True
    there: Optional[str] = None  # A shell command that says in the directory on the server what the command says here.
    check: Callable = field(default=lambda backing: [])  # Further sentences about what is wrong on the server's side.


def make_jobs(names, linux, hello, scratch):
    """The jobs of these names, with their references made natively in `scratch`; and why the others cannot be had."""
    makers = {"tar": _tar, "unzip": _unzip, "rm": _rm, "cp": _cp, "make": _make, "read": _read, "find": _find,
              "git": _git, "append": _append, "patch": _patch, "mv": _mv, "scatter": _scatter}
    made, skipped = [], []
    for name in names:
        try:
            made.append(makers[name](hello if name == "make" else linux, scratch))
        except inputs.Unavailable as error:
            skipped.append(f"{name}: {error}")
    return made, skipped


def _tar(linux, scratch):
    archive = shutil.copy(linux.tar, scratch)  # In memory, so that reading it costs every peer the same.
    return _with_reference(Job("tar", ["tar", "-xf", archive], input=linux), scratch)


def _unzip(linux, scratch):
    archive = shutil.copy(inputs.zip_of(linux), scratch)  # In memory, as the tar is.
    return _with_reference(Job("unzip", ["unzip", "-q", archive], input=linux), scratch)


def _rm(linux, scratch):
    del scratch
    return Job("rm", ["rm", "-rf", "linux"], populate=_copied(linux.tree), expected={}, input=linux, stageable=False)


def _cp(linux, scratch):
    source = scratch / "cp-source"
    source.mkdir()
    _copied(linux.tree)(source)
    job = Job("cp", ["cp", "-r", str(source / "linux"), "."], aspects=trees.NEW, source=source, input=linux)
    return _with_reference(job, scratch)


def _make(find_hello, scratch):
    del scratch
    hello = find_hello()
    command = ["sh", "-c", "./configure -q >configure.out 2>&1 && make -s >make.out 2>&1"]
    return Job("make", command, directory="hello", populate=_copied(hello.tree), aspects=trees.NEW, input=hello,
               ignored=lambda path: path in BUILD_NOISE, stageable=False, check=_built)


OLD_FILES, BIG_BYTES = 20_000, 1 << 30  # In the old trees and the old file that are only read.


def _is_small(linux):
    """Whether the inputs are those of a tiny run."""
    return linux.files < 300


def _reading(name, command, make, scratch, settle="true"):
    """A shell command that only reads what `make` makes, once, in a directory; `settle` is run in each copy of that."""
    source = scratch / f"{name}-source"
    source.mkdir()
    make(source)

    def populate(target):
        subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
        subprocess.run(["sh", "-c", settle], cwd=target, check=True, stdout=subprocess.DEVNULL)

    return Job(name, ["sh", "-c", f"{command} > /dev/null"], populate=populate, aspects=trees.NAMES, expected=trees.snapshot(source), stageable=False,
               there=command)


def _read(linux, scratch):
    size = BIG_BYTES // 1024 if _is_small(linux) else BIG_BYTES
    noise = lambda place: subprocess.run(["sh", "-c", f"head -c {size} /dev/urandom > big"], cwd=place, check=True)
    return _reading("read", "cat big", noise, scratch)


def _old_tree(linux):
    copies = 1 if _is_small(linux) else -(-OLD_FILES // linux.files)

    def make(place):
        for number in range(copies):
            (place / f"tree-{number}").mkdir()
            _copied(linux.tree)(place / f"tree-{number}")

    return make


def _find(linux, scratch):
    return _reading("find", "find . -printf '%p %s %T@\\n'", _old_tree(linux), scratch)


def _git(linux, scratch):
    if not inputs.find_program("git"):
        raise inputs.Unavailable("git is not installed")
    user = "git -c user.name=bench -c user.email=bench@localhost"

    def make(place):
        _old_tree(linux)(place)
        subprocess.run(f"git init -q . && git add -A && {user} commit -qm all", shell=True, cwd=place, check=True)

    # The index is that of this copy, as it is where people work: git looks at every file and reads none.
    return _reading("git", "git status", make, scratch, settle="sleep 1; git status")


# What is done to each old file, in one process: no program is started for each.
EACH = "import os\nfor path in (os.path.join(at, name) for at, _, names in sorted(os.walk('linux')) for name in sorted(names)):\n    "
SCATTER_BYTES, PIECES = 64 << 20, 2_000


def _changing(name, script, populate, scratch):
    """A program that changes what is there."""
    command = ["python3", "-c", script]
    job = Job(name, command, populate=populate, aspects=trees.NEW, stageable=False, there=shlex.join(command))
    return _with_reference(job, scratch)


def _append(linux, scratch):
    """A line more in each, as in logs."""
    return _changing("append", EACH + "open(path, 'a').write('/* one line more */\\n')", _copied(linux.tree), scratch)


def _patch(linux, scratch):
    """Some bytes in each, as who sets a version or a flag."""
    return _changing("patch", EACH + "with open(path, 'r+b') as file: file.seek(1); file.write(b'PATCHED')", _copied(linux.tree), scratch)


def _mv(linux, scratch):
    """Another name for each."""
    return _changing("mv", EACH + "os.rename(path, path + '.old')", _copied(linux.tree), scratch)


def _scatter(linux, scratch):
    """Records here and there in one file, as databases change theirs."""
    scale = 40 if _is_small(linux) else 1
    size, pieces = SCATTER_BYTES // scale, PIECES // scale
    content = random.Random(1).randbytes(size)
    script = ("import os,random\nr = random.Random(2); f = os.open('old', os.O_WRONLY)\n"
              f"for _ in range({pieces}): os.pwrite(f, b'x' * 100, r.randrange({size} - 100))")
    return _changing("scatter", script, lambda target: (target / "old").write_bytes(content), scratch)


def _built(backing):
    """hello runs, and make finds nothing left to do: the times on the server are those that the job saw."""
    place = backing / "hello"
    said = subprocess.run(["./hello"], cwd=place, capture_output=True, text=True)
    lines = [] if said.stdout == "Hello, world!\n" else [f"./hello says {said.stdout!r}, {said.stderr!r}"]
    return lines + [f"{name} is newer than hello" for name in _newer(place)]


def _newer(place):
    built = (place / "hello").stat().st_mtime_ns
    return [path.name for path in (place / "src").glob("*.o") if path.stat().st_mtime_ns > built]


def _copied(tree):
    return lambda target: subprocess.run(["cp", "-a", f"{tree}/.", target], check=True)


def _with_reference(job, scratch):
    native = scratch / f"native-{job.name}"
    native.mkdir()
    if job.populate:
        job.populate(native)
    subprocess.run(job.command, cwd=native, check=True)
    job.expected = trees.snapshot(native)
    shutil.rmtree(native)
    return job
