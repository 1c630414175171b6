"""Measurements beside the matrix of storages, jobs and peers."""

import os
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from .peers import Failed, summary, timed

STARTS = 20  # Runs of `true`.


def start_cost(elbow, memory):
    """Seconds that `elbow run -- true` takes over `true`, medians of 20 in turn."""
    place = memory / "start"
    place.mkdir()
    plain, inside = [], []
    for _ in range(STARTS):
        plain.append(timed(["true"], cwd=place)[0])
        inside.append(timed([elbow, "run", "--on", place, "--", "true"], cwd=place)[0])
    place.rmdir()
    return {"true": statistics.median(plain), "elbow": statistics.median(inside),
            "over": statistics.median(inside) - statistics.median(plain)}


def native_extraction(linux, memory, repeat):
    """Seconds of tar on tmpfs, natively: what acknowledging an extraction is compared with."""
    seconds = []
    for _ in range(repeat):
        place = memory / "native"
        place.mkdir()
        seconds.append(timed(["tar", "-xf", linux.tar], cwd=place)[0])
        shutil.rmtree(place)
    return statistics.median(seconds)


def memory_peak(elbow, storage, mebibytes, limit_mebibytes):
    """Peak resident bytes of elbow's processes while a stream of `mebibytes` is extracted with `--mem`."""
    storage.fresh()
    command = [elbow, "run", "--on", storage.mount, "--mem", f"{limit_mebibytes}M", "--json", "--", "tar", "-xf", "-"]
    started = time.perf_counter()
    job = subprocess.Popen([str(word) for word in command], cwd=storage.mount, stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=False)
    watch = PeakWatch(job.pid, Path(elbow).resolve())
    watch.start()
    errors = []
    reader = threading.Thread(target=lambda: errors.append(job.stderr.read()))
    reader.start()
    _feed(job.stdin, mebibytes)
    code = job.wait()
    reader.join()
    watch.stop()
    seconds = time.perf_counter() - started
    said = errors[0].decode(errors="replace")
    if code != 0:
        raise Failed(f"exit code {code}: {said[-2000:]}")
    summary(said)
    if not watch.peak:
        raise Failed(f"no process of {elbow} was seen: its memory is not known")
    _check_extracted(storage.backing, mebibytes)
    storage.unmount()
    return {"peak_bytes": watch.peak, "mebibytes": mebibytes, "mem_mebibytes": limit_mebibytes, "seconds": seconds}


PIECE = 8 << 20  # The size of each file in the stream.


def _feed(pipe, mebibytes):
    """Writes a tar stream of files of 8 MiB, each of another byte, so that nothing can be shared."""
    import tarfile

    count = (mebibytes << 20) // PIECE
    try:
        with tarfile.open(fileobj=pipe, mode="w|") as archive:
            for number in range(count):
                member = tarfile.TarInfo(f"file-{number}")
                member.size, member.mode = PIECE, 0o644
                archive.addfile(member, _Repeated(number % 251 + 1))
        pipe.close()
    except BrokenPipeError:
        pass  # The exit code says what happened.


class _Repeated:
    def __init__(self, byte):
        self.piece = bytes([byte]) * (1 << 20)

    def read(self, size):
        return self.piece[:size]


def _check_extracted(backing, mebibytes):
    for number in range((mebibytes << 20) // PIECE):
        path = backing / f"file-{number}"
        expected = bytes([number % 251 + 1]) * (1 << 20)
        with open(path, "rb") as file:
            pieces = iter(lambda: file.read(1 << 20), b"")
            if path.stat().st_size != PIECE or any(piece != expected for piece in pieces):
                raise Failed(f"{path.name} is wrong on the storage")


class PeakWatch(threading.Thread):
    """Follows VmHWM, summed over the processes below `pid` that run `program`; the kernel keeps the peak of each."""

    INTERVAL = 0.05

    def __init__(self, pid, program):
        super().__init__(daemon=True)
        self.pid, self.program, self.peaks, self.ended = pid, program, {}, threading.Event()

    def run(self):
        while not self.ended.wait(self.INTERVAL):
            for pid in self._family():
                self.peaks[pid] = max(self.peaks.get(pid, 0), _high_water(pid))

    def stop(self):
        self.ended.set()
        self.join()

    @property
    def peak(self):
        return sum(self.peaks.values())

    def _family(self):
        waiting, family = [self.pid], []
        while waiting:
            pid = waiting.pop()
            try:
                if Path(os.readlink(f"/proc/{pid}/exe")) == self.program:
                    family.append(pid)
                for task in os.listdir(f"/proc/{pid}/task"):
                    waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
            except OSError:
                continue  # It has just ended.
        return family


def _high_water(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
