#!/usr/bin/env python3
"""Measures `elbow sort` beside GNU sort, TPIE, STXXL, DuckDB and Polars: `make bench-sort`.

One interleaved run: each repetition goes through all file systems, inputs and sorters in turn (they start at another one
each time). Each sort gets a new file system on a loop device of its own, with its input on it, nothing of it in memory; what
it takes is measured from outside (harness/watched.py), and its result is checked: sorted, and a permutation of the input.

    bench/sort.py                                   2 GiB in 256 MiB, everything that can be had here
    bench/sort.py --size 512M --memory 64M --only s24,r100
    bench/sort.py --only text --peers "elbow to another,GNU to another"
    bench/sort.py --tiny                            seconds, to see that the bench itself works

Inputs: s24 (24 bytes, key u32le), r100 (100 bytes, key of ten), text (lines of 99 bytes, key -k1.1,1.10), text-150M (150 MB of them
in 32 MiB, whatever --size and --memory say). File systems: ext4 for all, xfs for the sorts in place. Needs root. TPIE_SORT and STXXL_SORT name programs that are measured too: they are called as
`PROGRAM s24|r100 IN OUT MEMORY_BYTES TMP`. DuckDB and Polars come from PyPI into an environment in the cache.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, disks, inputs, peers, report, sort_report, sorters
from harness.watched import watched

WORKLOADS = ["s24", "r100", "text", sorters.SMALL]
SMALL_BYTES, SMALL_MEMORY_BYTES = 150_000_000, 32 << 20
PEERS = [sorters.IN_PLACE, sorters.OTHER, sorters.OVER, sorters.KEPT, sorters.FREED, sorters.GNU_OTHER, sorters.GNU_OVER,
         "TPIE", "STXXL", "DuckDB", "Polars"]
FROM_PYPI = ["DuckDB", "Polars"]
# Room for the input and all that a sorter may want beside it, in inputs; more than any was seen to take.
ROOM = {"ext4": 6, "xfs": 2}
SPARE_BYTES = 512 << 20
TINY_BYTES, TINY_MEMORY_BYTES = 24 << 20, 16 << 20
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, RuntimeError, OSError, ValueError)


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    try:
        disks.need_root()
    except inputs.Unavailable as error:
        print(f"SKIPPED: bench/sort.py: {error}")
        sys.exit(1 if build.IN_CI else 0)
    options.elbow, programs = build.programs(options.elbow, "elbow-testkit")
    results = report.Results()
    with tempfile.TemporaryDirectory(prefix="elbow-bench-sort-", dir=options.disk) as work:
        bench = Bench(options, programs / "sortable", Path(work), results)
        try:
            bench.run()
        finally:
            bench.stop()
            print(sort_report.write(results, options.out))
    results.exit(build.IN_CI and len(bench.disks) < len(options.storage))


def parse():
    parser = build.Parser(__doc__)
    parser.add_choice("--only", WORKLOADS, default=WORKLOADS)
    parser.add_choice("--peers", PEERS, more="; with --tiny none from PyPI")
    parser.add_choice("--storage", ROOM, default=list(ROOM))
    parser.add_argument("--size", type=build.size, help="of each input (default: 2G)")
    parser.add_argument("--memory", type=build.size, help="what each sort may use (default: 256M)")
    parser.add_common(out="sort")
    parser.add_cache("the Python environment is")
    options = parser.parse_args()
    options.size = options.size or (TINY_BYTES if options.tiny else 2 << 30)
    options.memory = options.memory or (TINY_MEMORY_BYTES if options.tiny else 256 << 20)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    if options.tiny and options.peers is None:
        options.peers = [name for name in PEERS if name not in FROM_PYPI]
    return options


class Bench:
    """File systems, inputs and sorters, in turn."""

    def __init__(self, options, sortable, work, results):
        self.options, self.sortable, self.work, self.results = options, sortable, work, results
        self.disks, self.sorters, self.made = [], [], {}

    def run(self):
        options, results = self.options, self.results
        results.host = {**build.describe_host(options.disk), "input": f"{options.size / 2**20:g} MiB",
                        "memory of a sort": f"{options.memory / 2**20:g} MiB", "repetitions": options.repeat}
        self.sorters = sorters.known(options.elbow, options.cache, options.peers, self._skip)
        self._start_disks()
        for workload in options.only:
            self._make(workload)
        for repetition in range(options.repeat):
            for disk in self.disks:
                for workload in options.only:
                    self._round(disk, workload, repetition)

    def stop(self):
        for disk in self.disks:
            disk.stop()

    def _start_disks(self):
        for kind in self.options.storage:
            disk = disks.Disk(kind, ROOM[kind] * self.options.size + SPARE_BYTES, self.work)
            try:
                disk.start(written=not self.options.tiny)
                self.disks.append(disk)
                disk.fresh()
            except inputs.Unavailable as error:
                self._skip(f"{kind}: {error}")

    def _size(self, workload):
        return SMALL_BYTES if workload == sorters.SMALL and not self.options.tiny else self.options.size

    def _memory(self, workload):
        return SMALL_MEMORY_BYTES if workload == sorters.SMALL and not self.options.tiny else self.options.memory

    def _make(self, workload):
        raw = self.work / workload
        said = subprocess.run([self.sortable, "make", form(workload), str(self._size(workload)), raw], check=True, capture_output=True)
        self.made[workload] = json.loads(said.stdout)
        self.results.rows[workload] = {**self.made[workload], "bytes": raw.stat().st_size}

    def _round(self, disk, workload, repetition):
        turn = [sorter for sorter in self.sorters if workload in sorter.workloads]
        if disk.kind != "ext4":
            turn = [sorter for sorter in turn if sorter.name == sorters.IN_PLACE]
        first = repetition % len(turn) if turn else 0
        for sorter in turn[first:] + turn[:first]:
            self._once(disk, workload, sorter, repetition)

    def _once(self, disk, workload, sorter, repetition):
        raw = self.work / workload
        place = sorters.Place(disk.mount, self._memory(workload), raw.stat().st_size)
        outcome = dict(storage=disk.kind, says=disk.kind, job=workload, peer=sorter.name, repetition=repetition,
                       rival=sorter.rival, seconds=None, details={}, wrong=[], failed=None)
        try:
            disk.fresh()
            empty = disk.used_bytes()
            sorter.prepare(workload, place, raw)
            place.scratch.mkdir()
            inode = place.input.stat().st_ino if place.input.exists() else None
            disk.mount_again()
            took = watched(sorter.command(workload, place), disk, empty, sorter.environment)
            outcome["details"] = {**took.numbers(), "input_bytes": place.input_bytes, "memory_bytes": place.memory_bytes}
            outcome["seconds"] = took.seconds
            if not sorter.checks_itself:
                outcome["wrong"] = self._verify(workload, sorter, place, inode)
        except FAILURES as error:
            outcome["failed"] = str(error)
        self.results.add(**outcome)
        _say(outcome)

    def _verify(self, workload, sorter, place, inode):
        result = sorter.result(workload, place, self.work)
        said = subprocess.run([self.sortable, "check", form(workload), result], check=False, capture_output=True, text=True)
        if result.parent == self.work:
            result.unlink()
        if said.returncode != 0:
            return [said.stderr.strip()]
        found, made = json.loads(said.stdout), self.made[workload]
        wrong = [] if found["is_sorted"] else ["it is not sorted"]
        wrong += [f"{key} is {found[key]}, was {made[key]}" for key in ("records", "checksum") if found[key] != made[key]]
        if sorter.name == sorters.IN_PLACE and place.input.stat().st_ino != inode:
            wrong.append("it is another inode")
        return wrong

    def _skip(self, text):
        print(f"bench: skipped {text}")
        self.results.skipped.append(text)


def form(workload):
    """What the lines or records of a workload are."""
    return "text" if workload == sorters.SMALL else workload


def _say(outcome):
    numbers, problem = outcome["details"], outcome["failed"] or "; ".join(outcome["wrong"])
    text = f"{outcome['storage']:5} {outcome['job']:5} {outcome['peer']:20} #{outcome['repetition']}"
    if numbers:
        text += (f" {numbers['seconds']:7.2f} s, CPU {numbers['cpu_seconds']:6.1f} s, {numbers['peak_rss_bytes'] / 1e6:6.0f} MB, "
                 f"read {numbers['read_bytes'] / 1e9:5.2f} wrote {numbers['written_bytes'] / 1e9:5.2f} GB, "
                 f"room {numbers['peak_disk_bytes'] / numbers['input_bytes']:.3f}x")
    print(f"{text} {'WRONG: ' + problem if problem else ''}")


if __name__ == "__main__":
    main()
