#!/usr/bin/env python3
"""Measures how fast `elbow disk` simulates, beside DiskSim where that is given: `make bench-disk`.

One interleaved run: each repetition goes through all loads in turn (it starts at another one each time). Each is a process of its own. Its rate is
requests over wall-clock time inside `elbow disk simulate`, without starting and reading the drive's description; the processor time is that of the whole
process. Memory is the kernel's peak of a process that serves few requests, and of one that serves a hundred times as many.

    bench/disk.py                                             everything, three repetitions
    bench/disk.py --depths 16 --requests 5000000 --repeat 5
    DISKSIM=/opt/disksim-4.0 bench/disk.py                    its `src/disksim`, with the parameters in `valid` for the HP C2247A
    DISKSIM=/opt/disksim DISKSIM_PARV=/opt/my.parv bench/disk.py
    bench/disk.py --tiny                                      seconds, to see that the bench itself works

DiskSim's queue of a depth needs a driver of one's own, so the two are compared on what both can read: an ASCII trace of random 4 KiB writes
that come one at a time, replayed with all overheads. There the time is that of the whole process, reading included.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, disk_report, disksim, inputs, peers, report
from harness.disk_report import ANYWHERE, DISK, GROUP, MEMORY, REPLAY

SPAN = ["--mechanical", "--span", "group:0"]
RANGES = ["--scheduler", "hrs", "--range-sectors"]
# Name: options, and how many times fewer requests are enough, where each takes so much longer.
LOADS = {
    DISK: (["--mechanical"], 1),
    "SPTF, whole disk, with commands and bus": ([], 1),
    GROUP: (SPAN, 1),
    ANYWHERE: ([*SPAN, *RANGES, "32768"], 1),
    "HRS, a track of the group": ([*SPAN, *RANGES, "track"], 2),
    "HRS, 16 MB from a random place of the disk": (["--mechanical", *RANGES, "32768"], 20),
    "HRS, 64 targets of 104 sectors in the group": ([*SPAN, *RANGES, "104", "--targets", "64"], 20),
}
DEPTHS = [1, 16, 64]
SECTORS = 2_054_864  # Of the HP C2247A.
APART_MS = 60  # Longer than any request takes.
TIMEOUT = 1800
LOOK_SECONDS = 0.002
MEMORY_REQUESTS_MIN = 20_000  # Fewer are over before one can look.
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, RuntimeError, OSError, ValueError, KeyError)


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.elbow = (options.elbow or build.programs(None, "elbow")[0]).resolve()
    results = report.Results()
    results.host = {**build.describe_host(options.disk), "repetitions": options.repeat, "requests of a load": options.requests}
    with tempfile.TemporaryDirectory(prefix="elbow-bench-disk-", dir=options.disk) as work:
        try:
            Bench(options, Path(work), results).run()
        finally:
            print(disk_report.write(results, options.out))
    results.exit()


def parse():
    parser = build.Parser(__doc__)
    parser.add_argument("--depths", type=lambda text: [int(word) for word in text.split(",")], help="of the queue (default: 1,16,64; with --tiny 1,16)")
    parser.add_argument("--requests", type=int, help="of a load; a twentieth where they take long (default: 1000000)")
    parser.add_common(out="disk", disk="a trace", tiny="few requests, once")
    options = parser.parse_args()
    options.depths = options.depths or (DEPTHS[:2] if options.tiny else DEPTHS)
    options.requests = options.requests or (2000 if options.tiny else 1_000_000)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    return options


class Bench:
    """Loads, depths and peers, in turn."""

    def __init__(self, options, work, results):
        self.options, self.work, self.results = options, work, results
        self.trace_requests = max(options.requests // 5, 100)
        self.disksim = None
        try:
            self.disksim = disksim.given()
        except inputs.Unavailable as error:
            results.skipped.append(f"DiskSim: {error}")
            print(f"SKIPPED: DiskSim: {error}")

    def run(self):
        trace = self.work / "trace"
        write_trace(trace, self.trace_requests)
        turn = [self._load(name, depth) for depth in self.options.depths for name in LOADS]
        turn += [self._memory(times) for times in (1, 100)] + [(REPLAY, "", "elbow", lambda: self._replay(trace))]
        if self.disksim:
            turn.append((REPLAY, "", "DiskSim", lambda: self._replay_by_disksim(trace)))
        for repetition in range(self.options.repeat):
            first = repetition % len(turn)
            for storage, job, peer, measure in turn[first:] + turn[:first]:
                self._once(storage, job, peer, repetition, measure)

    def _load(self, name, depth):
        words, fewer = LOADS[name]
        requests = max(self.options.requests // fewer, 100)
        return f"Q = {depth}", name, "elbow", lambda: self._simulate(requests, ["--depth", depth, *words])

    def _memory(self, times):
        requests = max(self.options.requests // 10, MEMORY_REQUESTS_MIN) * times
        return MEMORY, f"{requests} requests", "elbow", lambda: self._simulate(requests, ["--depth", 16, "--mechanical"])

    def _simulate(self, requests, words):
        spent = self._elbow("simulate", "--requests", requests, "--warm-up", 0, *words)
        said = json.loads(spent.pop("stdout"))
        if said["requests"] != requests:
            raise peers.Failed(f"{said['requests']} requests instead of {requests}")
        return {**spent, "requests_per_s": said["requests_per_second"], "requests_per_cpu_s": requests / spent["cpu_s"],
                "mean_ms": said["mean_ms"], "estimates": said["estimations_per_request"]}

    def _replay(self, trace):
        spent = self._elbow("replay", "--format", "disksim", trace)
        said = json.loads(spent.pop("stdout"))
        return self._replayed(spent, said["requests"], said["mean_simulated_ms"])

    def _replay_by_disksim(self, trace):
        spent, mean_ms = self.disksim.replay(trace, self.work / "outv", taken)
        return self._replayed(spent, self.trace_requests, mean_ms)

    def _replayed(self, spent, requests, mean_ms):
        if requests != self.trace_requests:
            raise peers.Failed(f"{requests} requests instead of {self.trace_requests}")
        return {**spent, "requests_per_s": requests / spent["seconds"], "requests_per_cpu_s": requests / spent["cpu_s"], "mean_ms": mean_ms}

    def _elbow(self, *words):
        return taken([self.options.elbow, "disk", *words, "--json"])

    def _once(self, storage, job, peer, repetition, measure):
        outcome = dict(storage=storage, says="", job=job, peer=peer, repetition=repetition, rival=peer == "DiskSim", seconds=None,
                       details={}, wrong=[], failed=None)
        try:
            outcome["details"] = measure()
            outcome["seconds"] = outcome["details"].pop("seconds")
        except FAILURES as error:
            outcome["failed"] = (getattr(error, "stderr", None) or str(error)).strip()[-300:]
        self.results.add(**outcome)
        found = outcome["details"]
        print(f"{storage:24} {job:46} {peer:8} #{repetition} " + (f"FAILED {outcome['failed']}" if outcome["failed"] else
              f"{found['requests_per_s']:12.0f} requests/s  {(found['peak_rss_bytes'] or 0) / 2**20:6.1f} MiB"))


def taken(command, directory=None):
    """What a command printed, and its time, processor time and peak memory, as the kernel says. Raises Failed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=directory)
        look, alarm = Look(child.pid), threading.Timer(TIMEOUT, child.kill)
        look.start()
        alarm.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            raise
        finally:
            seconds = time.perf_counter() - began
            alarm.cancel()
            look.stop()
        child.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, errors):
            stream.seek(0)
        if child.returncode != 0:
            raise peers.Failed.ended(child.returncode, out.read(), errors.read())
        return {"stdout": out.read(), "seconds": seconds, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_rss_bytes": look.peak or None}


class Look(threading.Thread):
    """The kernel's peak of a process's resident memory, as long as it runs. What wait4(2) says of it is at least what we had when it was forked."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status, self.peak, self.ended = Path(f"/proc/{pid}/status"), 0, threading.Event()

    def run(self):
        over = False
        while not over:
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self.status.read_text())
            except OSError:
                return
            self.peak = int(found[1]) * 1024 if found else self.peak
            over = self.ended.wait(LOOK_SECONDS)

    def stop(self):
        self.ended.set()
        self.join()


def write_trace(path, requests):
    """Random writes of 4 KiB, one at a time, as DiskSim's ASCII format has them: arrival in ms, device, LBN, sectors, flags."""
    chosen = random.Random(1)
    with open(path, "w") as file:
        for number in range(requests):
            file.write(f"{number * APART_MS:.1f} 0 {chosen.randrange(SECTORS // 8) * 8} 8 0\n")


if __name__ == "__main__":
    main()
