"""LockClient in asyncio: waits that do not stop the loop, and cancellations that leave no lock behind."""

import asyncio
import json
import os
import random
import signal
import threading
import time

import elbowroom
import pytest
from test_client import held_by_another_thread, in_child, is_free


def test_tasks_wait_for_each_other_and_the_loop_runs_on(client, directory):
    async def main():
        inside, ticks = [], []

        async def tick():
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.005)

        async def work(number):
            for _ in range(5):
                async with client.hold_async(directory / "f") as hold:
                    hold.check()
                    inside.append(number)
                    assert inside == [number]
                    await asyncio.sleep(0.01)
                    inside.remove(number)

        clock = asyncio.ensure_future(tick())
        await asyncio.gather(*[work(number) for number in range(8)])
        clock.cancel()
        return ticks

    ticks = asyncio.run(main())
    assert len(ticks) > 20


def test_a_cancelled_wait_leaves_no_lock_behind(client, directory):
    async def main():
        async def wait():
            async with client.hold_async(directory / "f"):
                raise AssertionError("it was held")

        async with client.hold_async(directory / "f"):
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with client.hold_async(directory / "f", timeout=5):
            pass

    asyncio.run(main())
    assert is_free(client, directory / "f")


def test_cancellations_at_any_moment_leave_no_lock_behind(client, directory):
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    met = {"wait": 0, "hold": 0}

    async def main():
        async def work():
            stage = "wait"
            try:
                async with client.hold_async(directory / "f"):
                    stage = "hold"
                    await asyncio.sleep(chance.random() * longest)
                    stage = "end"
            except asyncio.CancelledError:
                met[stage] = met.get(stage, 0) + 1
                raise

        longest = 0.001  # Adapts to the machine: about half of the cancellations come while the task waits.
        for _ in range(300):
            task = asyncio.ensure_future(work())
            waits = met["wait"]
            await asyncio.sleep(chance.random() * longest)
            task.cancel()
            await asyncio.wait([task])
            longest *= 1.1 if met["wait"] > waits else 0.9

    asyncio.run(main())
    assert met["wait"] > 10 and met["hold"] > 10, met
    with client.hold(directory / "f", timeout=10):
        pass


async def until_one_waits(client):
    while sum(file["waiting"] for file in json.loads(client.status())["busiest"]) < 1:
        await asyncio.sleep(0.001)


def test_a_cancelled_wait_stands_in_nobodys_way(client, directory):
    async def main():
        async with client.hold_async(directory / "f", shared=True):
            for _ in range(20):
                writer = asyncio.ensure_future(client.hold_async(directory / "f").__aenter__())
                await until_one_waits(client)
                writer.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await writer
                # A new reader waits behind a writer that waits.
                async with client.hold_async(directory / "f", shared=True, timeout=0):
                    pass

    asyncio.run(main())


def test_a_long_wait_keeps_its_place(client, directory):
    order = []

    async def wait():
        async with client.hold_async(directory / "f"):
            order.append("first")

    def wait_in_a_thread():
        with client.hold(directory / "f"):
            order.append("second")

    async def main():
        later = threading.Thread(target=wait_in_a_thread)
        with held_by_another_thread(client, directory / "f"):
            first = asyncio.ensure_future(wait())
            await until_one_waits(client)
            later.start()
            await asyncio.sleep(1)
        await first
        await asyncio.to_thread(later.join)

    asyncio.run(main())
    assert order == ["first", "second"]


def test_errors_and_timeouts(client, directory):
    async def main():
        with held_by_another_thread(client, directory / "f"):
            with pytest.raises(elbowroom.WouldBlock):
                async with client.hold_async(directory / "f", timeout=0):
                    pass
            with pytest.raises(elbowroom.TimedOut):
                async with client.hold_async(directory / "f", timeout=0.2):
                    pass

    asyncio.run(main())


def test_a_task_that_waits_for_itself_is_told(client, directory):
    async def main():
        async with client.hold_async(directory / "f"):
            with pytest.raises(elbowroom.Deadlock):
                async with client.hold_async(directory / "f", timeout=5):
                    pass

    asyncio.run(main())


def test_a_lock_that_was_lost_is_said_when_the_block_ends(service, client, directory):
    async def main():
        with pytest.raises(elbowroom.Lost):
            async with client.hold_async(directory / "f"):
                service.kill()

    asyncio.run(main())
    service.start()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_amid_waiting_tasks_do_not_hang(client, directory):
    stop = threading.Event()

    async def hold(name):
        async with client.hold_async(directory / name):
            pass

    async def work():
        while not stop.is_set():
            await asyncio.gather(*[hold("f") for _ in range(8)])

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()

    def child():
        signal.alarm(20)
        asyncio.run(hold("g"))
        elbowroom._native.shut_down()
        return True

    try:
        for _ in range(20):
            assert in_child(child)
    finally:
        stop.set()
        thread.join()
