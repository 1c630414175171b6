"""What pip knows of the installed package, and what a type checker makes of it and of the guides."""

import pathlib
import re
import subprocess
import sys
from importlib import metadata

import elbowroom
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDES = ["lock-python.md", "disk-python.md"]
#: What the guides import, and the requirement that brings it.
BROUGHT_BY = {"dask": "dask", "zarr": "zarr", "numpy": "numpy", "matplotlib": "matplotlib", "pyarrow": "pyarrow"}


def text_of(guide):
    return (ROOT / "docs/src/guide" / guide).read_text()


def blocks(guide, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(guide), re.MULTILINE | re.DOTALL)


def test_the_version_is_the_same_everywhere():
    of_cargo = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert of_cargo and elbowroom.__version__ == metadata.version("elbowroom") == of_cargo[1]


def test_the_licences_are_named_and_there():
    found = metadata.metadata("elbowroom")
    assert found["License-Expression"] == "MIT OR Apache-2.0"
    assert sorted(found.get_all("License-File")) == ["LICENSE-APACHE", "LICENSE-MIT"]
    installed = {file.name: file for file in metadata.files("elbowroom") if "licenses" in file.parts}
    for name in ["LICENSE-APACHE", "LICENSE-MIT"]:
        assert installed[name].read_text() == (ROOT / name).read_text(), name


def requirements(extras, found=None):
    """Names of the distributions that some extras bring."""
    found = set() if found is None else found
    for line in metadata.requires("elbowroom"):
        name, chosen, extra = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?[^;]*(?:; *extra *== *['\"](\w+)['\"])?", line).groups()
        if extra not in extras:
            continue
        if name == "elbowroom":
            requirements(chosen.split(","), found)
        else:
            found |= {name, "numpy"} if (name, chosen) == ("dask", "array") or name == "zarr" else {name}
    return found


@pytest.mark.parametrize("guide", GUIDES)
def test_what_a_guide_installs_brings_what_it_imports(guide):
    """The guides said `pip install ./clients/python`, and then imported zarr and dask."""
    (extras,) = re.findall(r"^pip install '?\./clients/python(?:\[([\w,]+)\])?'?$", text_of(guide), re.MULTILINE)
    imported = set()
    for block in blocks(guide):
        imported |= set(re.findall(r"^\s*(?:import|from) (\w+)", block, re.MULTILINE))
    imported -= {"elbowroom", *sys.stdlib_module_names}
    assert imported and {BROUGHT_BY[name] for name in imported} <= requirements(extras.split(",")), extras


def test_all_extras_are_in_all():
    extras = set(metadata.metadata("elbowroom").get_all("Provides-Extra")) - {"all"}
    assert extras == {"zarr", "dask", "disk", "plot"}
    assert requirements(["all"]) == requirements(extras)


def check_types(directory, *arguments):
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--cache-dir", str(directory / "cache"), *arguments]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("guide", GUIDES)
def test_a_type_checker_has_nothing_to_say_of_the_guide(guide, tmp_path):
    programs = blocks(guide)
    if not re.match(r"# \w+\.py\b", programs[0]):
        programs = ["\n".join(programs)]  # pieces of one notebook
    for number, program in enumerate(programs):
        (tmp_path / f"program_{number}.py").write_text(program)
        check_types(tmp_path, "--ignore-missing-imports", "--check-untyped-defs", f"program_{number}.py")


def test_the_package_is_typed_strictly(tmp_path):
    """What others see of it: nothing untyped, and no import of a private name."""
    program = """
import asyncio

import elbowroom
from elbowroom import Hold, LockClient, Strided
from elbowroom.dask import Lock
from elbowroom.disk import Drive, Simulation

version: str = elbowroom.__version__
locks: LockClient = LockClient("unix:/run/locks", ttl=10)
with locks.hold("/data/grid", [(0, 4096), Strided(0, [(2, 8)], 4)], timeout=1) as hold:
    held: Hold = hold
    token: int = held.token

async def write() -> None:
    async with locks.hold_async("/data/grid", slice(0, 10), shared=True) as hold:
        hold.check()

asyncio.run(write())
with Lock("target", locks) as lock:
    print(lock.locked())
run: Simulation = Drive("hp-c2247a").simulate("sptf", depth=16)
mean: float = run.mean_ms
"""
    (tmp_path / "program.py").write_text(program)
    check_types(tmp_path, "--strict", "--ignore-missing-imports", "program.py")
    check_types(tmp_path, "--strict", "--ignore-missing-imports", "-p", "elbowroom")
