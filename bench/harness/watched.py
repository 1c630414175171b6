"""A command, watched from outside: time, CPU, memory, transfers of the device and the room that it takes.

Nothing here believes what a command says of itself. CPU is what wait4(2) says of the command and of what it waited for; memory is
the larger of the sampled sum over its processes and the kernel's peak of the largest one; transfers are the block device's
counters, up to when all is synced; room is what the file system says is taken, sampled. The page cache is as large as the machine lets
it be: what a command writes through it and removes soon may never reach the device.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from .peers import Failed

ROOM_INTERVAL = 0.01  # Seconds between looks at the file system.
MEMORY_EVERY = 3  # Of these looks, one looks at the processes too.
PAGE = os.sysconf("SC_PAGE_SIZE")
TIMEOUT = 4 * 3600


@dataclass
class Watched:
    """What a command took."""

    seconds: float  # Until it returned.
    synced_seconds: float  # Until all was on the device.
    cpu_seconds: float
    peak_rss_bytes: int
    read_bytes: int
    written_bytes: int
    peak_disk_bytes: int  # With what was there before, without what an empty file system takes.
    stdout: str = ""
    stderr: str = ""

    def numbers(self):
        found = asdict(self)
        return {key: found[key] for key in found if key not in ("stdout", "stderr")}


def watched(command, disk, empty_bytes, environment=None):
    """Runs a command on a disk; `empty_bytes` is what the disk had taken when it was empty. Raises Failed."""
    read, written = disk.transferred()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        job = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                               cwd=disk.mount, env={**os.environ, **(environment or {})}, start_new_session=True)
        look = Look(job.pid, disk)
        look.start()
        alarm = threading.Timer(TIMEOUT, job.kill)
        alarm.start()
        try:
            _, status, usage = os.wait4(job.pid, 0)
            seconds = time.perf_counter() - began
        except BaseException:  # Ctrl-C comes to us alone.
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            raise
        finally:
            alarm.cancel()
        job.returncode = os.waitstatus_to_exitcode(status)
        disk.sync()
        synced = time.perf_counter() - began
        look.stop()
        for stream in (out, errors):
            stream.seek(0)
        said, complaint = out.read(), errors.read()
    if job.returncode != 0:
        raise Failed.ended(job.returncode, said, complaint)
    read_after, written_after = disk.transferred()
    rss = max(look.rss, usage.ru_maxrss * 1024)
    return Watched(seconds, synced, usage.ru_utime + usage.ru_stime, rss, read_after - read, written_after - written,
                   max(0, look.room - empty_bytes), said, complaint)


class Look(threading.Thread):
    """Samples the room taken on a disk and the resident memory of a process and its descendants."""

    def __init__(self, pid, disk):
        super().__init__(daemon=True)
        self.pid, self.disk, self.rss, self.room, self.ended = pid, disk, 0, disk.used_bytes(), threading.Event()

    def run(self):
        count = 0
        while not self.ended.wait(ROOM_INTERVAL):
            self.room = max(self.room, self.disk.used_bytes())
            if count % MEMORY_EVERY == 0:
                self.rss = max(self.rss, sum(map(_resident, _family(self.pid))))
            count += 1

    def stop(self):
        self.ended.set()
        self.join()
        self.room = max(self.room, self.disk.used_bytes())


def _family(pid):
    waiting, family = [pid], []
    while waiting:
        pid = waiting.pop()
        family.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            continue  # It has just ended.
    return family


def _resident(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0
