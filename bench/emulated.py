#!/usr/bin/env python3
"""Measures how faithful an emulated drive is in real time, beside the simulation of the same drive: `make bench-emulated`. Needs root.

A drive is attached as a block device (`elbow disk attach --log`), and used with O_DIRECT by as many threads as are outstanding. Each row has the mean that a program saw, that of the drive
by its model, that of `elbow disk simulate` for such a load, and how late the answers were; all that was asked is replayed afterwards (`elbow disk replay`), request by request.

    bench/emulated.py                          everything, some minutes
    bench/emulated.py --trace FILE             the requests of a measured trace (DiskSim's validate format) as well, with its pauses
    bench/emulated.py --tiny                   seconds, to see that the bench itself works
"""

import csv
import gzip
import json
import mmap
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, emulated, report
from harness.report import up

MODELS = ["generic-7200", "hp-c2247a"]
LOADS = [(1, 0.0), (1, 1.0), (8, 0.5)]  # Outstanding, and the share of reads.
BLOCK = 4096
SECTOR = 512
SCHEDULER, DEPTH = "asptf", 32
TRACE_MODEL = "hp-c2247a"
SPIN_S = 0.0005
SAME_MS = 1e-6
SAME_LEAST = 0.98  # Who is put to sleep between taking the time of a request and sending it comes too late for a pick, and shifts others.
GOALS = {"apart": 3.0, "mean_late_us": 100.0, "p99_late_us": 500.0}


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0:
        print("SKIPPED: emulated block devices need root")
        sys.exit(1 if build.IN_CI else 0)
    emulated.in_own_namespace()
    elbow = emulated.Elbow((options.elbow or build.programs(None, "elbow")[0]).resolve())
    rows = []
    with tempfile.TemporaryDirectory(prefix="elbow-bench-emulated-", dir=options.disk) as work:
        bench = Bench(elbow, Path(work), options)
        for _ in range(options.repeat):
            for model in options.models:
                for outstanding, reads in LOADS:
                    rows.append(bench.load(model, outstanding, reads))
        if options.trace:
            rows.append(bench.trace(options.trace))
    text = markdown(rows, options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.md").write_text(text)
    with open(options.out / "results.csv", "w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    print(text)
    sys.exit(0 if all(row["same"] >= SAME_LEAST * row["requests"] for row in rows) else 1)


def parse():
    parser = build.Parser(__doc__)
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS, help="drives (default: %(default)s)")
    parser.add_argument("--requests", type=int, help="of a load (default: 3000)")
    parser.add_argument("--trace", type=Path, help="a measured trace of the HP C2247A, perhaps packed by gzip")
    parser.add_common(out="emulated", disk="what the emulated disks hold", tiny="few requests")
    options = parser.parse_args()
    options.requests = options.requests or (60 if options.tiny else 3000)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    return options


class Bench:
    def __init__(self, elbow, work, options):
        self.elbow, self.work, self.options = elbow, work, options

    def load(self, model, outstanding, reads):
        """Random requests, `outstanding` at a time."""
        draw = random.Random(f"{model} {outstanding} {reads}")
        requests = [(draw.random() < reads, draw.random()) for _ in range(self.options.requests)]

        def use(device, size):
            shares = [requests[number::outstanding] for number in range(outstanding)]
            seen = [[] for _ in shares]
            threads = [threading.Thread(target=run, args=(device, size, share, into)) for share, into in zip(shares, seen)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            answered = [ms for some in seen for ms in some]
            if len(answered) != len(requests):
                sys.exit(f"bench: {len(answered)} of {len(requests)} requests were answered")  # Its thread has said why.
            return answered

        simulated = json.loads(self.elbow.says("disk", "simulate", "--disk", model, "--scheduler", SCHEDULER, "--depth", outstanding, "--reads", reads, "--json"))
        return self._measured(model, f"{outstanding} at a time, {reads:.0%} reads", use, simulated["response_ms"])

    def trace(self, path):
        """The requests of a trace, each after the pause that it has."""
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        with opened as file:
            requests = [line.split() for line in file if line.strip()]
        if self.options.tiny:
            requests = requests[:self.options.requests]
        simulated = json.loads(self.elbow.says("disk", "replay", "--disk", TRACE_MODEL, "--format", "validate", path, "--json"))
        return self._measured(TRACE_MODEL, f"{path.name}, with its pauses", lambda device, _size: replay(device, requests), simulated["mean_simulated_ms"])

    def _measured(self, model, load, use, simulated_ms):
        backing, log = self.work / f"{model}.image", self.work / "asked.csv"
        device = self.elbow.says("disk", "attach", "--model", model, "--backing", backing, "--log", log, "--scheduler", SCHEDULER, "--depth", DEPTH)
        try:
            size = int(Path("/sys/block", Path(device).name, "size").read_text()) * SECTOR
            before = os.getloadavg()[0]
            seen = use(device, size)
        finally:
            said = self.elbow.detach("disk", device)
        backing.unlink()
        with open(log, newline="") as file:
            asked = list(csv.DictReader(file))
        late_us = [float(row["late_us"]) for row in asked]
        return {"drive": model, "load": load, "requests": len(asked), "same": self._same(model, log, asked), "seen_ms": statistics.mean(seen),
                "model_ms": statistics.mean(float(row["response_ms"]) for row in asked), "simulated_ms": simulated_ms,
                "mean_late_us": statistics.mean(late_us), "p99_late_us": said["lateness_us"]["p99"], "max_late_us": max(late_us), "load_average": before}

    def _same(self, model, log, asked):
        """How many take as long when they are replayed."""
        replayed = self.work / "replayed.csv"
        self.elbow.says("disk", "replay", "--disk", model, "--format", "csv", log, "--scheduler", SCHEDULER, "--depth", DEPTH, "--per-request", replayed, "--json")
        with open(replayed, newline="") as file:
            simulated = sorted((float(row["arrival_ms"]), float(row["response_ms"])) for row in csv.DictReader(file))
        measured = [(float(row["arrival_ms"]), float(row["response_ms"])) for row in asked]
        return sum(abs(one[1] - other[1]) < SAME_MS for one, other in zip(sorted(measured), simulated))


def run(device, size, requests, seen):
    """One request after the other; how long each took, in ms."""
    block = mmap.mmap(-1, BLOCK)  # O_DIRECT wants pages.
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    try:
        for is_read, place in requests:
            at = int(place * (size // BLOCK)) * BLOCK
            begin = time.perf_counter()
            os.preadv(file, [block], at) if is_read else os.pwritev(file, [block], at)
            seen.append((time.perf_counter() - begin) * 1e3)
    finally:
        os.close(file)


def replay(device, requests):
    """The same of a trace; its last column is the pause behind a request in us."""
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    seen, block = [], mmap.mmap(-1, 1 << 20)
    try:
        for op, _kind, lbn, sectors, _response, think_us in requests:
            view = memoryview(block)[:int(sectors) * SECTOR]
            begin = time.perf_counter()
            os.preadv(file, [view], int(lbn) * SECTOR) if op == "R" else os.pwritev(file, [view], int(lbn) * SECTOR)
            end = time.perf_counter()
            seen.append((end - begin) * 1e3)
            until = end + float(think_us) / 1e6
            time.sleep(max(0, until - time.perf_counter() - SPIN_S))
            while time.perf_counter() < until:
                pass
    finally:
        os.close(file)
    return seen


def markdown(rows, options):
    host = build.describe_host(options.disk)
    parts = ["# An emulated drive in real time, beside its simulation", "", *(f"- {name}: {value}" for name, value in host.items()), "",
             "Means in ms: as a program saw them through the block device, as the drive's model had them, and as the simulation has such a load. *Same* is how many of the requests took exactly as long when they were",
             "replayed. Lateness is in us.", "",
             "| drive | load | requests | same | seen | model | simulated | seen / simulated | late, mean | p99 | largest | load average |", "|---" * 12 + "|"]
    for row in rows:
        parts.append(f"| {row['drive']} | {row['load']} | {row['requests']} | {row['same']} | {row['seen_ms']:.3f} | {row['model_ms']:.3f} | {row['simulated_ms']:.3f} | {percent(row):+.2f} % "
                     f"| {up(row['mean_late_us'], 1)} | {up(row['p99_late_us'], 1)} | {up(row['max_late_us'], 0):.0f} | {row['load_average']:.2f} |")
    parts += ["", "| goal | measured | |", "|---|---|---|"]
    random_loads = [row for row in rows if "at a time" in row["load"]]
    worst = max(abs(percent(row)) for row in random_loads)
    parts.append(goal("random loads: the mean that a program sees within 3 % of the simulation's", worst, GOALS["apart"], " %"))
    parts.append(goal("mean lateness <= 100 us, in each row", max(row["mean_late_us"] for row in rows), GOALS["mean_late_us"], " us"))
    parts.append(goal("p99 of lateness <= 500 us, in each row", max(row["p99_late_us"] for row in rows), GOALS["p99_late_us"], " us"))
    lost = sum(row["requests"] - row["same"] for row in rows)
    parts.append(f"| each request as long as in its replay | {lost} are not | {'met' if lost == 0 else 'MISSED'} |")
    return "\n".join(parts) + "\n"


def percent(row):
    return (row["seen_ms"] / row["simulated_ms"] - 1) * 100


def goal(text, measured, most, unit):
    return f"| {text} | {up(measured)}{unit} | {'met' if measured <= most else 'MISSED'} |"


if __name__ == "__main__":
    main()
