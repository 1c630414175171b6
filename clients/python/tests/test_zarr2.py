"""zarr 2, in an environment of its own: the import of its synchronizer failed, and so nobody could write to an array from several machines."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import elbowroom
import numpy
import pytest
import zarr
from elbowroom.zarr import Synchronized
from test_zarr_nodes import COUNT, WRITERS, lost_of, new_array, write_at_once

# The last of each for the Python of Debian 12.
REQUIREMENTS = ["zarr==2.18.7", "numcodecs==0.15.2"]


@pytest.fixture(scope="session")
def zarr2():
    """A Python with zarr 2 and no zarr 3, and the environment in which it finds our elbowroom."""
    words = " ".join([sys.version, *REQUIREMENTS])
    place = pathlib.Path(sys.prefix) / f"zarr2-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", place], check=False)
        pip = [place / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *REQUIREMENTS]
        if made.returncode != 0 or subprocess.run(pip, check=False).returncode != 0:
            pytest.skip(f"pip cannot install {' '.join(REQUIREMENTS)} here")
        (place / "complete").touch()
    ours = place / "ours"
    shutil.rmtree(ours, ignore_errors=True)
    ours.mkdir()
    package = pathlib.Path(elbowroom.__file__).parent
    for each in [package, *package.parent.glob("elbowroom-*.dist-info")]:
        (ours / each.name).symlink_to(each)
    return str(place / "bin/python"), {**os.environ, "PYTHONPATH": str(ours)}


def run(zarr2, program, *arguments):
    python, environment = zarr2
    done = subprocess.run([python, "-c", program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_module_says_what_each_zarr_has(zarr2):
    code, out, error = run(zarr2, "import zarr; print(zarr.__version__); from elbowroom.zarr import Synchronizer")
    assert (code, out) == (0, "2.18.7\n"), error
    code, _, error = run(zarr2, "from elbowroom.zarr import Synchronized")
    assert code != 0 and "needs zarr 3" in error
    with pytest.raises(ImportError, match="Synchronized, a store"):
        from elbowroom.zarr import Synchronizer  # noqa: F401


@pytest.mark.parametrize("what", ["append", "attributes", "cells"])
def test_processes_write_to_one_array(service, directory, zarr2, what):
    python, environment = zarr2
    count = COUNT if what == "append" else 4 * COUNT
    lost = []
    for url in ["-", service.url]:
        path = str(directory / f"{what}{url == '-'}")
        new_array(path, what, zarr_format=2)
        write_at_once(what, path, url, python, environment, count)
        lost.append(lost_of(what, zarr.open_array(path), count))
    print(f"\nzarr 2, {what}: without locks {lost[0]} lost, with them {lost[1]}")
    assert lost[0] > 0 or what == "cells", "the test shows nothing: without locks nothing was lost"
    assert lost[1] == 0


def test_zarr_2_and_zarr_3_share_the_locks_of_one_array(service, client, directory, zarr2):
    path = str(directory / "z")
    new_array(path, "append", zarr_format=2)
    python, environment = zarr2
    command = [python, pathlib.Path(__file__).with_name("zarr_writers.py"), "append", path, service.url, "0", str(COUNT)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert other.stdout.readline() == "ready\n"
    array = zarr.open_array(Synchronized(path, client), mode="r+")
    other.stdin.write("go\n")
    other.stdin.flush()
    for value in range(1, COUNT + 1):
        array.append([1000 + value])
    other.communicate()
    assert other.returncode == 0
    found = numpy.sort(zarr.open_array(path)[:]).tolist()
    assert found == [*range(1, COUNT + 1), *range(1001, 1001 + COUNT)], f"{WRITERS} writers"


def test_a_synchronizer_can_be_pickled_and_names_its_store(service, directory, zarr2):
    program = """
import pickle, sys
from elbowroom import LockClient, Name
from elbowroom.zarr import Synchronizer
path, url = sys.argv[1:]
one = pickle.loads(pickle.dumps(Synchronizer(path + "/x/../z/", LockClient(url))))
assert one.name == path + "/z", one.name
assert Synchronizer(Name("grid"), url).name == "grid"
with one["0.0"]:
    assert LockClient(url).is_locked(path + "/z/0.0")
    with one["0.1"]:
        pass
assert not LockClient(url).is_locked(path + "/z/0.0")
"""
    (directory / "z").mkdir()
    code, _, error = run(zarr2, program, os.path.realpath(directory), service.url)
    assert code == 0, error
