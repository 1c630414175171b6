"""dask.Lock as dask uses it, from threads and from processes."""

import concurrent.futures
import multiprocessing
import pickle
import threading

import dask
import dask.array
import elbowroom
import pytest
from elbowroom.dask import Lock
from test_zarr import BLOCK, new_array, values_of


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_store_under_a_lock(client, directory, scheduler):
    pool = {
        "threads": lambda: concurrent.futures.ThreadPoolExecutor(4),
        "processes": lambda: concurrent.futures.ProcessPoolExecutor(4, multiprocessing.get_context("spawn")),
    }[scheduler]()
    with pool, dask.config.set(pool=pool, num_workers=4):
        for run in range(5):
            array = new_array(str(directory / f"z{run}"))
            blocks = dask.array.from_array(values_of(run), chunks=(BLOCK, BLOCK))
            dask.array.store(blocks, array, lock=Lock(locks=client), scheduler=scheduler)
            assert (array[:] == values_of(run)).all()


def test_the_protocol(client):
    lock = Lock("l", client)
    assert not lock.locked()
    with lock as entered:
        assert entered is lock and lock.locked()
    assert lock.acquire() and lock.locked()
    other = pickle.loads(pickle.dumps(lock))
    answers = []

    def elsewhere():
        answers.append(other.acquire(blocking=False))
        answers.append(other.acquire(timeout=0.2))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers == [False, False]
    lock.release()
    assert not lock.locked() and other.acquire(timeout=-1)
    other.release()
    with pytest.raises(RuntimeError):
        lock.release()
    with lock, pytest.raises(elbowroom.Deadlock):
        lock.acquire()


def test_locks_without_a_name_are_different(client):
    first, second = Lock(locks=client), Lock(locks=client)
    with first, second:
        assert first.name != second.name
    assert dask.base.tokenize(first) == dask.base.tokenize(pickle.loads(pickle.dumps(first))) != dask.base.tokenize(second)
