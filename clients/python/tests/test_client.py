"""LockClient against a real service: what conflicts, how waits end, what a fork and a pickle carry."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import elbowroom
import numpy
import pytest
from elbowroom import LockClient, Name, Strided


def is_free(client, path, ranges=None, shared=False):
    """Whether somebody else (another thread, so another owner) could have it now."""
    answers = []

    def ask():
        try:
            with client.hold(path, ranges, shared, timeout=0):
                answers.append(True)
        except elbowroom.WouldBlock:
            answers.append(False)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers[0]


@contextlib.contextmanager
def held_by_another_thread(client, path, seconds=3600):
    """Held until the block ends, or for so long."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold():
        with client.hold(path):
            is_held.set()
            is_over.wait(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_hold_covers_what_was_asked_for_and_nothing_else(client, directory):
    path = directory / "grid"
    forms = [
        [(0, 10), (100, 10)],
        iter([(100, 10), (0, 10)]),
        numpy.array([[0, 10], [100, 10]]),
        numpy.array([[0, 10], [100, 10]], dtype="uint8"),
        numpy.array([[0, 1, 10], [100, 1, 10]])[:, ::2],
        Strided(0, [(2, 100)], 10),
        [Strided(0, [], 10), (100, 10)],
    ]
    for ranges in forms:
        with client.hold(path, ranges):
            assert not is_free(client, path, [(9, 1)])
            assert not is_free(client, path, [(109, 1)])
            assert is_free(client, path, [(10, 90)]), ranges
            assert is_free(client, path, slice(110, None))
        assert is_free(client, path)


def test_the_whole_file_and_slices(client, directory):
    with client.hold(directory / "f"):
        assert not is_free(client, directory / "f", slice(2**63, 2**63 + 1))
    with client.hold(directory / "f", slice(10, 20)):
        assert is_free(client, directory / "f", slice(10))
        assert not is_free(client, directory / "f", slice(19, 20))


def test_shared_holds_share_and_exclude_a_writer(client, directory):
    with client.hold(directory / "f", shared=True):
        assert is_free(client, directory / "f", shared=True)
        assert not is_free(client, directory / "f")


def test_bad_ranges_are_refused_before_anything_is_asked(client, directory):
    bad = [
        [],
        [(0, 0)],
        [(-1, 5)],
        [(2**64 - 1, 5)],
        numpy.array([[-1, 5]]),
        numpy.array([[0.5, 5.0]]),
        numpy.array([0, 5]),
        slice(5, 5),
        slice(0, 10, 2),
        Strided(0, [(0, 5)], 1),
    ]
    for ranges in bad:
        with pytest.raises((ValueError, OverflowError)):
            client.hold(directory / "f", ranges)
    with pytest.raises(ValueError):
        client.hold(directory / "f", timeout=-1)


def test_a_selection_is_the_bytes_that_memmap_touches():
    shape, itemsize, offset = (4, 6, 5), 8, 128
    positions = offset + itemsize * numpy.arange(4 * 6 * 5).reshape(shape)
    for index in [(slice(1, 3), slice(None, None, 2), slice(2, 5)), (2, slice(1, 2)), (slice(-2, None), -1, 0), ()]:
        start, dims, length = Strided.selection(shape, itemsize, index, offset)
        starts = numpy.array([start])
        for count, stride in dims:
            starts = (starts[:, None] + stride * numpy.arange(count)).ravel()
        assert length == itemsize
        assert sorted(starts) == sorted(positions[index].ravel())
    with pytest.raises(ValueError):
        Strided.selection(shape, itemsize, (slice(3, 3),))


def test_every_path_to_a_file_is_one_lock_and_names_are_taken_as_they_are(client, directory):
    (directory / "data").mkdir()
    (directory / "link").symlink_to(directory / "data")
    with client.hold(directory / "data/f"), client.hold("s3://bucket/f"), client.hold(Name("f")):
        assert not is_free(client, directory / "link/../link/f")
        assert not is_free(client, Name("s3://bucket/f"))
        assert not is_free(client, Name("f"))
        assert is_free(client, directory / "f")
    with pytest.raises(elbowroom.LockError, match="cannot find"):
        client.hold(directory / "no/f")


def test_tokens_grow(client, directory):
    tokens = []
    for _ in range(3):
        with client.hold(directory / "f") as hold:
            tokens.append(hold.token)
    assert tokens == sorted(set(tokens))


def test_a_timeout_ends_the_wait(client, directory):
    with held_by_another_thread(client, directory / "f"):
        start = time.monotonic()
        with pytest.raises(TimeoutError) as raised, client.hold(directory / "f", timeout=0.3):
            pass
        assert isinstance(raised.value, elbowroom.TimedOut)
        assert 0.3 <= time.monotonic() - start < 60
    with client.hold(directory / "f", timeout=0.3):
        pass


def test_a_wait_longer_than_its_first_steps_is_granted_in_the_end(client, directory):
    start = time.monotonic()
    with held_by_another_thread(client, directory / "f", 1.2), client.hold(directory / "f"):
        assert time.monotonic() - start > 1.1


def test_threads_wait_for_each_other(client, directory):
    state = {"inside": 0, "rounds": 0}

    def work():
        for _ in range(25):
            with client.hold(directory / "f") as hold:
                hold.check()
                state["inside"] += 1
                assert state["inside"] == 1
                time.sleep(0.0005)
                state["rounds"] += 1
                state["inside"] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert state["rounds"] == 8 * 25


def test_the_interpreter_runs_while_a_thread_waits(client, directory):
    with client.hold(directory / "f"):
        thread = threading.Thread(target=lambda: client.hold(directory / "f").__enter__().release())
        thread.start()
        counted, until = 0, time.monotonic() + 20
        while json.loads(client.status())["totals"]["queued"] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        while counted <= 1000 and time.monotonic() < until:
            time.sleep(0)  # Who waits could take the interpreter now, and would keep it for a while.
            counted += 1
        assert counted > 1000
    thread.join(10)
    assert not thread.is_alive()


def test_two_who_wait_for_each_other_are_told(client, directory):
    first_has_a, second_has_b, failures = threading.Event(), threading.Event(), []

    def second():
        with client.hold(directory / "b"):
            second_has_b.set()
            first_has_a.wait()
            try:
                with client.hold(directory / "a"):
                    pass
            except elbowroom.Deadlock as error:
                failures.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    with client.hold(directory / "a"):
        first_has_a.set()
        second_has_b.wait()
        try:
            with client.hold(directory / "b"):
                pass
        except elbowroom.Deadlock as error:
            failures.append(error)
    thread.join(10)
    assert not thread.is_alive()
    assert len(failures) == 1 and "deadlock" in str(failures[0])


def test_a_thread_that_waits_for_itself_is_told(client, directory):
    with client.hold(directory / "f"), pytest.raises(elbowroom.Deadlock), client.hold(directory / "f"):
        pass


def test_an_error_in_the_block_releases_and_passes(client, directory):
    with pytest.raises(KeyError), client.hold(directory / "f"):
        raise KeyError
    assert is_free(client, directory / "f")


def test_a_hold_that_nobody_has_any_more_is_released(client, directory):
    holding = client.hold(directory / "f")
    holding.__enter__()
    assert not is_free(client, directory / "f")
    del holding
    assert is_free(client, directory / "f")


def test_a_released_hold_is_good_for_nothing(client, directory):
    with client.hold(directory / "f") as hold:
        hold.release()
        hold.release()
        with pytest.raises(elbowroom.Lost):
            hold.check()


def test_status_and_is_locked(client, directory):
    assert not client.is_locked(directory / "f")
    with client.hold(directory / "f", [(3, 4)], shared=True):
        assert client.is_locked(directory / "f")
        assert str(directory / "f") in json.dumps(json.loads(client.status()))
    assert not client.is_locked(directory / "f")


def test_the_address_comes_from_the_environment(service, monkeypatch):
    monkeypatch.setenv("ELBOW_LOCKS", service.url)
    with LockClient().hold(Name("x")):
        pass
    monkeypatch.delenv("ELBOW_LOCKS")
    with pytest.raises(ValueError, match="ELBOW_LOCKS"):
        LockClient()


def test_nobody_there_and_no_address(directory):
    with pytest.raises(elbowroom.Unreachable) as raised, LockClient(f"unix:{directory}/nobody").hold(Name("x")):
        pass
    assert isinstance(raised.value, ConnectionError)
    with pytest.raises(ValueError, match="unix:PATH"), LockClient("locks:1").hold(Name("x")):
        pass


def test_ctrl_c_ends_a_wait_and_what_was_waited_for_is_not_held(client, directory):
    with held_by_another_thread(client, directory / "f"):
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
            with client.hold(directory / "f"):
                pass
        assert 0.3 < time.monotonic() - start < 60
    until = time.monotonic() + 20  # Whatever still stood in the queue is dropped.
    while not is_free(client, directory / "f"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_killed_holder_leaves_its_lock_to_the_next(service, client, directory):
    program = "import sys, time, elbowroom; holding = elbowroom.LockClient(sys.argv[1]).hold(sys.argv[2]); holding.__enter__(); print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", program, service.url, str(directory / "f")], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    assert not is_free(client, directory / "f")
    holder.kill()
    with client.hold(directory / "f", timeout=5):
        pass
    holder.wait()
    holder.stdout.close()


def test_a_stopped_holder_with_a_lease_loses_it_before_anybody_else_gets_it(service, client, directory):
    program = """if True:
        import sys, elbowroom
        client = elbowroom.LockClient(sys.argv[1], ttl=1)
        with client.hold(sys.argv[2]) as hold:
            print('held', flush=True)
            sys.stdin.readline()
            try:
                hold.check()
                print('still ours')
            except elbowroom.Lost:
                print('lost')
            hold.release()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", program, service.url, str(directory / "f")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGSTOP)
    with client.hold(directory / "f", timeout=10):
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate("go\n", timeout=30)
    assert said == "lost\n"


def test_a_killed_service_is_said_when_the_block_ends(service, client, directory):
    with pytest.raises(elbowroom.Lost), client.hold(directory / "f") as hold:
        service.kill()
        with pytest.raises(elbowroom.Lost):
            hold.check()
    service.start()


def test_a_pickled_client_reconnects(client, directory):
    copy = pickle.loads(pickle.dumps(client))
    assert copy == client and copy._connected() is client._connected()
    program = "import pickle, sys; client = pickle.loads(bytes.fromhex(sys.argv[1]))\nwith client.hold(sys.argv[2]): print(client.url)"
    run = subprocess.run(
        [sys.executable, "-c", program, pickle.dumps(client).hex(), str(directory / "f")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == client.url, run.stderr


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(elbowroom.TimedOut("too long")))
    assert isinstance(error, elbowroom.TimedOut) and str(error) == "too long"


def in_child(work):
    """What `work` returns in a forked child, as JSON."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_session_of_its_own(client, directory):
    with client.hold(directory / "f") as hold:

        def child():
            answers = [is_free(client, directory / "f"), is_free(client, directory / "g")]
            try:
                hold.check()
            except elbowroom.Lost:
                answers.append("lost")
            hold.release()
            with client.hold(directory / "g") as mine:
                mine.check()
            return answers

        assert in_child(child) == [False, True, "lost"]
        hold.check()
        assert not is_free(client, directory / "f")
    assert is_free(client, directory / "f")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_that_lives_on_does_not_keep_its_dead_parents_locks(service, client, directory):
    program = """if True:
        import os, sys, time, elbowroom
        client = elbowroom.LockClient(sys.argv[1])
        holding = client.hold(sys.argv[2]); holding.__enter__()
        if os.fork() == 0:
            del holding
            with client.hold(elbowroom.Name('another')):
                os.write(1, b'%d\\n' % os.getpid())
                time.sleep(60)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", program, service.url, str(directory / "f")], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    assert not is_free(client, directory / "f")
    parent.kill()
    parent.wait()
    try:
        with client.hold(directory / "f", timeout=5):
            assert not is_free(client, Name("another"))
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_amid_waiting_threads_do_not_hang(client, directory):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            with client.hold(directory / "f"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]

    def child():
        signal.alarm(20)
        with client.hold(directory / "g"):
            return True

    try:
        for _ in range(20):
            assert in_child(child)
    finally:
        stop.set()
        [thread.join() for thread in threads]


def test_the_interpreter_ends_while_locks_are_waited_for(service, client, directory):
    program = """if True:
        import asyncio, sys, threading, elbowroom
        client = elbowroom.LockClient(sys.argv[1])
        threading.Thread(target=lambda: client.hold(sys.argv[2]).__enter__(), daemon=True).start()
        async def main():
            task = asyncio.ensure_future(client.hold_async(sys.argv[2]).__aenter__())
            await asyncio.sleep(0.1)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    """
    with client.hold(directory / "f"):
        run = subprocess.run(
            [sys.executable, "-c", program, service.url, str(directory / "f")], timeout=30, capture_output=True, check=False
        )
    assert run.returncode == 0, run.stderr
