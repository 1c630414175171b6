"""Zarr arrays under Synchronized: what is lost without it, that nothing is lost with it, and that disjoint shards go on together.

Each test of what it is for is shown to fail without it: the same writes on the same store, bare, lose data.
"""

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import threading
import time

import dask
import dask.array
import elbowroom
import numpy
import pytest
import zarr
from elbowroom.zarr import LockingPipeline, NotSynchronized, Synchronized
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, LoggingStore, MemoryStore, WrapperStore

#: The acceptance of Elbowroom asks for 50 runs of each.
RUNS = int(os.environ.get("ROUNDS", "50"))
SIDE, SHARD, CHUNK, BLOCK = 32, 16, 8, 8  # 4 shards of 4 chunks, one for each task of dask


def values_of(run):
    """Different in every cell and run, and nowhere the fill value."""
    return (numpy.arange(SIDE * SIDE, dtype="int32") + 1).reshape(SIDE, SIDE) * (run + 1)


def new_array(store, shards=(SHARD, SHARD), chunks=(CHUNK, CHUNK), **options):
    return zarr.create_array(
        store, shape=(SIDE, SIDE), chunks=chunks, shards=shards, dtype="int32", fill_value=0, overwrite=True, **options
    )


def lost_cells(store, scheduler, run, pool, **layout):
    """Writes blocks of parts of shards with dask, and counts the cells that are not what was written."""
    array, values = new_array(store, **layout), values_of(run)
    blocks = dask.array.from_array(values, chunks=(BLOCK, BLOCK))
    with dask.config.set(pool=pool, num_workers=4):
        dask.array.store(blocks, array, lock=False, scheduler=scheduler)
    return int((array[:] != values).sum())


def corrupted_runs(stores, scheduler, runs, **layout):
    pools = {
        "threads": lambda: concurrent.futures.ThreadPoolExecutor(4),
        "processes": lambda: concurrent.futures.ProcessPoolExecutor(4, multiprocessing.get_context("spawn")),
    }
    with pools[scheduler]() as pool:
        return sum(lost_cells(stores(run), scheduler, run, pool, **layout) > 0 for run in range(runs))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_writes_parts_of_shards(client, directory, scheduler):
    bare = corrupted_runs(lambda run: LocalStore(directory / f"bare{run}"), scheduler, 20, shards=(SIDE, SHARD))
    start = time.monotonic()
    locked = corrupted_runs(lambda run: Synchronized(directory / f"locked{run}", client), scheduler, RUNS)
    print(
        f"\n{scheduler}: without locks {bare} of 20 runs corrupted, with them {locked} of {RUNS} in {time.monotonic() - start:.1f} s"
    )
    assert bare > 0, "the test shows nothing: without locks no run was corrupted"
    assert locked == 0


@pytest.mark.parametrize(
    "layout", [{"shards": None, "chunks": (SHARD, SHARD)}, {"shards": None, "chunks": (SHARD, SHARD), "zarr_format": 2}]
)
def test_dask_writes_parts_of_chunks(client, directory, layout):
    assert corrupted_runs(lambda run: LocalStore(directory / f"bare{run}"), "threads", 10, **layout) > 0
    assert corrupted_runs(lambda run: Synchronized(directory / f"locked{run}", client), "threads", 10, **layout) == 0


def test_batches_of_several_shards_do_not_wait_in_a_circle(client, directory):
    with zarr.config.set({"codec_pipeline.batch_size": 4}):
        assert corrupted_runs(lambda run: Synchronized(directory / f"locked{run}", client), "threads", 5) == 0
        array = new_array(Synchronized(directory / "whole", client))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(write_rows(array), range(8)))
    assert (array[:] == numpy.arange(1, SIDE + 1)[:, None] % 8).all()


def write_rows(array):
    def write(number):
        for row in range(number, SIDE, 8):
            array[row] = (row + 1) % 8

    return write


class Meeting(WrapperStore):
    """A store whose writers of chunks wait for each other before each write, for a while."""

    together = 0
    meeting = None
    patience = None

    async def set(self, key, value):
        if not key.endswith("zarr.json") and type(self).meeting is not None:
            await asyncio.to_thread(type(self).meet)
        await super().set(key, value)

    @classmethod
    def meet(cls):
        try:
            cls.meeting.wait(cls.patience)
            cls.together += 1
        except threading.BrokenBarrierError:
            pass


def patience(together, in_vain):
    """How long somebody waits at the meeting: as long as a busy machine may take where two must meet, `in_vain` where they may not."""
    return 60 if together else in_vain


@pytest.mark.parametrize("rows, together", [([0, SHARD], 2), ([0, CHUNK], 0)], ids=["of two shards", "of one shard"])
def test_threads_write_parts(client, directory, rows, together):
    Meeting.together, Meeting.meeting, Meeting.patience = 0, threading.Barrier(2), patience(together, 1.5)
    array = new_array(Synchronized(Meeting(LocalStore(directory / "z")), client))

    def write(row):
        array[row : row + CHUNK, 0:CHUNK] = 7

    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(write, rows))
        # Who is alone at the meeting gives up; two of one shard must never meet, two of two shards always do.
        assert Meeting.together == together
    finally:
        Meeting.meeting = None
    assert (array[:] == 7).sum() == 2 * CHUNK * CHUNK


def write_in_process(array, row, start, barrier, seconds, meetings):
    original = LocalStore.set

    async def set_together(self, key, value):
        if not key.endswith("zarr.json"):
            try:
                await asyncio.to_thread(barrier.wait, seconds)
                with meetings.get_lock():
                    meetings.value += 1
            except threading.BrokenBarrierError:
                pass
        await original(self, key, value)

    LocalStore.set = set_together
    start.wait(120)  # Until the other process has imported all this, too.
    array[row : row + CHUNK, 0:CHUNK] = 7


@pytest.mark.parametrize("rows, together", [([0, SHARD], 2), ([0, CHUNK], 0)], ids=["of two shards", "of one shard"])
def test_processes_write_parts(client, directory, rows, together):
    context = multiprocessing.get_context("spawn")
    start, barrier, meetings = context.Barrier(2), context.Barrier(2), context.Value("i", 0)
    array = new_array(Synchronized(directory / "z", client))
    arguments = (start, barrier, patience(together, 3), meetings)
    workers = [context.Process(target=write_in_process, args=(array, row, *arguments)) for row in rows]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert meetings.value == together
    assert (array[:] == 7).sum() == 2 * CHUNK * CHUNK


def torn_reads(array, seconds):
    """Reads one chunk of a shard while another chunk of it grows and shrinks, which moves the first one about."""
    stop, torn, reads = threading.Event(), [], 0
    array[:] = 1
    random = numpy.random.default_rng(1)

    def write():
        while not stop.is_set():
            array[0:CHUNK, 0:CHUNK] = random.integers(1, 2**30, (CHUNK, CHUNK)) if random.integers(2) else 5

    writer = threading.Thread(target=write)
    writer.start()
    begin = time.monotonic()
    # Longer where a busy machine has not let it read often enough by then.
    while not torn and time.monotonic() - begin < (seconds if reads > 10 else 60):
        reads += 1
        try:
            if not (array[CHUNK : 2 * CHUNK, CHUNK : 2 * CHUNK] == 1).all():
                torn.append("other values")
        except Exception as error:  # noqa: BLE001 - whatever a codec says of bytes that are not its own
            torn.append(repr(error))
    stop.set()
    writer.join()
    assert reads > 10 or torn
    return torn


def test_who_reads_a_part_of_a_shard_sees_it_before_or_after_a_write(client, directory):
    assert torn_reads(new_array(LocalStore(directory / "bare")), 20), "the test shows nothing: no bare read was torn"
    assert torn_reads(new_array(Synchronized(directory / "locked", client)), 3) == []


def test_a_process_with_another_pipeline_is_refused_and_loses_nothing(client, directory):
    store = Synchronized(directory / "z", client)
    array = new_array(store)
    array[:] = 1
    default = f"{BatchedCodecPipeline.__module__}.{BatchedCodecPipeline.__qualname__}"
    with zarr.config.set({"codec_pipeline.path": default}):
        unlocked = zarr.open_array(store)
        with pytest.raises(NotSynchronized, match="without its lock"):
            unlocked[0:3, 0:3] = 2
    assert (array[:] == 1).all()
    with zarr.config.set({"codec_pipeline.path": f"{__name__}.Other"}):
        zarr.registry.register_pipeline(Other)
        with pytest.raises(NotSynchronized, match="takes no locks"):
            Synchronized(directory / "z", client)


def test_a_pipeline_that_writes_without_waiting_is_refused(client, directory):
    fused = "zarr.core.codec_pipeline.FusedCodecPipeline"
    if not hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline"):
        pytest.skip("this zarr has none")
    store = Synchronized(directory / "z", client)
    new_array(store)[:] = 1
    with zarr.config.set({"codec_pipeline.path": fused}), pytest.raises(NotSynchronized):
        zarr.open_array(store)[0:3, 0:3] = 2
    with pytest.raises(NotSynchronized):
        store.set_sync("c/0/0", None)
    with pytest.raises(NotSynchronized):
        store.delete_sync("c/0/0")
    assert (zarr.open_array(directory / "z")[:] == 1).all()


class Other(BatchedCodecPipeline):
    """Somebody else's."""


def test_stores_below_and_above_are_found(client, directory):
    array = new_array(LoggingStore(Synchronized(LoggingStore(LocalStore(directory / "z")), client), log_level="ERROR"))
    array[3:5] = 2
    assert (array[:] == 2).sum() == 2 * SIDE
    with pytest.raises(NotSynchronized):
        asyncio.run(
            Synchronized(directory / "z", client).set(
                "c/0/0", zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"x")
            )
        )


def test_other_stores_are_as_ever_and_pay_nothing(service, client, directory):
    Synchronized(directory / "z", client)
    service.kill()
    array = new_array(LocalStore(directory / "other"))
    array[3:5] = 2
    assert (array[3:5] == 2).all()
    service.start()


def test_empty_chunks_resizing_groups_and_attributes(client, directory):
    group = zarr.create_group(Synchronized(directory / "z", client))
    array = group.create_array(
        "a", shape=(SIDE, SIDE), chunks=(CHUNK, CHUNK), shards=(SHARD, SHARD), dtype="int32", fill_value=0
    )
    array[:] = 3
    array[0:SHARD, 0:SHARD] = 0  # A shard of nothing but the fill value is deleted.
    assert not (directory / "z/a/c/0/0").exists() and (array[:] == 3).sum() == 3 * SHARD * SHARD
    array.resize((SHARD, SIDE))
    assert not (directory / "z/a/c/1/0").exists()
    array.append(numpy.full((4, SIDE), 9, "int32"))
    array.attrs["x"] = 1
    again = zarr.open_group(Synchronized(directory / "z", client).with_read_only(True), mode="r")["a"]
    assert again.shape == (SHARD + 4, SIDE) and (again[SHARD:] == 9).all() and again.attrs["x"] == 1


def test_names(client, directory):
    (directory / "link").symlink_to(directory)
    assert Synchronized(directory / "link/z", client).name == os.path.realpath(directory / "z")
    assert (
        Synchronized(LoggingStore(LocalStore(directory / "z")), client).lock_name("c/0")
        == f"{os.path.realpath(directory)}/z/c/0"
    )
    assert Synchronized(directory / "z", client, name="grid").lock_name("c/0") == "grid/c/0"
    memory = MemoryStore()
    assert Synchronized(memory, client).name == Synchronized(memory, client).name != Synchronized(MemoryStore(), client).name
    fsspec = zarr.storage.FsspecStore.from_url(f"memory://{directory}/z")
    assert Synchronized(fsspec, client).name == f"memory://{directory}/z"
    with pytest.raises(ValueError, match="give it a name"):
        Synchronized(zarr.storage.ZipStore(directory / "z.zip", mode="w"), client)
    copy = pickle.loads(pickle.dumps(Synchronized(directory / "z", client, name="grid")))
    assert copy.name == "grid" and copy == Synchronized(directory / "z", client, name="grid")


def test_a_lost_lock_ends_the_write_before_it_writes(service, client, directory):
    class Dies(WrapperStore):
        async def get(self, *arguments, **options):
            value = await super().get(*arguments, **options)
            if service.process.poll() is None and arguments[0].startswith("c/"):
                service.kill()
            return value

    array = new_array(Synchronized(LocalStore(directory / "z"), client))
    array[:] = 1
    before = (directory / "z/c/0/0").read_bytes()
    doomed = zarr.open_array(Synchronized(Dies(LocalStore(directory / "z")), client))
    with pytest.raises(elbowroom.Lost):
        doomed[0:3, 0:3] = 2
    assert (directory / "z/c/0/0").read_bytes() == before
    service.start()


def test_the_pipeline_is_found_by_its_name():
    assert zarr.registry.get_pipeline_class() is LockingPipeline
