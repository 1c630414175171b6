"""What zarr reads when it opens an array, changes later and writes whole: its shape and its attributes. Of processes that appended to one array at once
40 of 200 values were lost, under Synchronized too.
"""

import concurrent.futures
import pathlib
import subprocess
import sys
import threading
import types
import warnings

import elbowroom
import numpy
import pytest
import zarr
from elbowroom import _zarr3
from elbowroom.zarr import Synchronized, TensorStoreWarning

WRITERS, COUNT = 4, 50
SCRIPT = pathlib.Path(__file__).with_name("zarr_writers.py")


def write_at_once(what, path, url, python=sys.executable, environment=None, count=COUNT):
    """Lets some processes write to an array at one time."""
    command = [python, SCRIPT, what, path, url]
    writers = [
        subprocess.Popen(
            [*command, str(number), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0


def lost_of(what, array, count=COUNT):
    """How much of what the processes wrote is not there."""
    if what == "append":
        expected = {number * 1000 + value for number in range(WRITERS) for value in range(1, count + 1)}
        return len(expected - set(numpy.asarray(array[:]).tolist()))
    if what == "attributes":
        return len({f"{number}-{value}" for number in range(WRITERS) for value in range(1, count + 1)} - set(array.attrs))
    return int((numpy.asarray(array[:WRITERS]) != count).sum())


def new_array(path, what, zarr_format=3):
    shape = 0 if what == "append" else 10
    zarr.create_array(path, shape=(shape,), chunks=(10,), dtype="int64", fill_value=0, zarr_format=zarr_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("what", ["append", "attributes"])
def test_processes_append_and_set_attributes(service, directory, what, zarr_format):
    lost = []
    for url in ["-", service.url]:
        path = str(directory / f"{what}{url == '-'}")
        new_array(path, what, zarr_format)
        write_at_once(what, path, url)
        lost.append(lost_of(what, zarr.open_array(path)))
    print(f"\n{what}, format {zarr_format}: without locks {lost[0]} of {WRITERS * COUNT} lost, with them {lost[1]}")
    assert lost[0] > 0, "the test shows nothing: without locks nothing was lost"
    assert lost[1] == 0
    if what == "append":
        assert zarr.open_array(path).shape == (WRITERS * COUNT,)


def test_threads_append_by_one_array(client, directory):
    new_array(str(directory / "z"), "append")
    array = zarr.open_array(Synchronized(directory / "z", client))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda value: array.append([value]), range(1, 81)))
    assert sorted(array[:].tolist()) == list(range(1, 81))
    assert array.shape == (80,)


def test_an_attribute_does_not_take_an_append_back(client, directory):
    """Shape and attributes are in one document: who opened the array before an append and set an attribute after it took it back."""
    new_array(str(directory / "z"), "append")
    store = Synchronized(directory / "z", client)
    early, late = zarr.open_array(store), zarr.open_array(Synchronized(directory / "z", client))
    late.append([1, 2, 3])
    early.attrs["x"] = 1
    late.attrs["y"] = 2
    early.resize((2,))
    late.update_attributes({"z": 3})
    again = zarr.open_array(store)
    assert again.shape == (2,) and dict(again.attrs) == {"x": 1, "y": 2, "z": 3}
    del early.attrs["y"]
    assert dict(zarr.open_array(store).attrs) == {"x": 1, "z": 3}
    with pytest.raises(KeyError):
        del late.attrs["y"]
    late.attrs.put({"w": 4})
    early.attrs.update(v=5)
    assert dict(zarr.open_array(store).attrs) == {"w": 4, "v": 5} == dict(early.attrs)


def test_attributes_of_groups(client, directory):
    group = zarr.create_group(Synchronized(directory / "z", client))
    other = zarr.open_group(Synchronized(directory / "z", client))
    group.attrs["x"] = 1
    other.attrs["y"] = 2
    group.update_attributes({"z": 3})
    other.attrs.update(w=4)
    assert dict(zarr.open_group(directory / "z").attrs) == {"x": 1, "y": 2, "z": 3, "w": 4}
    inner = group.create_array("a", shape=(0,), chunks=(10,), dtype="int64")
    inner.append([7])
    assert zarr.open_group(directory / "z")["a"][:].tolist() == [7]


def test_an_append_waits_for_who_holds_the_metadata(client, directory):
    new_array(str(directory / "z"), "append")
    store = Synchronized(directory / "z", client)
    array = zarr.open_array(store)
    with client.hold(elbowroom.Name(store.lock_name("zarr.json"))):
        thread = threading.Thread(target=lambda: array.append([1]))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and zarr.open_array(directory / "z").shape == (0,)
    thread.join(30)
    assert zarr.open_array(directory / "z").shape == (1,)


def test_other_stores_keep_zarrs_own_methods(service, client, directory):
    Synchronized(directory / "z", client)
    new_array(str(directory / "other"), "append")
    service.kill()
    array = zarr.open_array(str(directory / "other"))
    array.append([1])
    array.attrs["x"] = 1
    array.attrs.put({"y": 2})
    array.resize((3,))
    assert array.shape == (3,) and dict(zarr.open_array(str(directory / "other")).attrs) == {"y": 2}
    service.start()


def test_tensorstore_in_the_process_is_warned_of_once(client, directory, monkeypatch):
    new_array(str(directory / "z"), "cells")
    array = zarr.open_array(Synchronized(directory / "z", client))
    monkeypatch.setattr(_zarr3, "_has_warned", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array[0] = 1
    monkeypatch.setitem(sys.modules, "tensorstore", types.ModuleType("tensorstore"))
    with pytest.warns(TensorStoreWarning, match="takes no locks"):
        array[0] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array[0] = 3
        Synchronized(directory / "z", client)
