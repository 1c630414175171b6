#!/usr/bin/env python3
"""Repeats Figures 1 to 4 of Vengroff & Kotz, *A Holesome File System*, on today's file systems: `make figures-holes`.

1. freeing a whole file: `zero` against ftruncate(2)         (crates/elbow-file/examples/hole_timing.rs)
2. freeing the middle of a file: `zero` against writing zeros
3. NAS EP, pairs kept and freed as they are read              (elbow bench ep, with and without --consume)
4. s24, records kept and freed, up to what no longer fits     (elbow bench s24, the same)

Each on ext4, xfs and btrfs on loop devices of their own and on tmpfs, made anew for each run of 3 and 4; kept and freed
take turns. Room is what the file system says is taken, sampled. Writes CSV, SVG and a Markdown with the claims of *A Holesome File System*
beside what was measured here. Needs root.

    bench/figures_holes.py                            everything
    bench/figures_holes.py --figures 1,2 --storage ext4
    bench/figures_holes.py --tiny                     seconds, to see that it works
"""

import csv
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, disks, holes_report, inputs, peers
from harness.watched import watched

STORAGE = ["ext4", "xfs", "btrfs", "tmpfs"]
FIGURES = ["1", "2", "3", "4"]
CLASSES = {"S": 1 << 24, "W": 1 << 25, "A": 1 << 28}  # Pairs.
PAIR_BYTES, RECORD_BYTES = 16, 24
ROOM_OF_EP = 2  # Kept it takes 1.785 times the pairs.
SPARE_BYTES = 384 << 20
# Of the disk; what is kept fits up to one half.
SHARES = [0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9]
TINY_SHARES = [0.2, 0.6]
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, OSError, ValueError)


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    try:
        disks.need_root()
    except inputs.Unavailable as error:
        print(f"SKIPPED: bench/figures_holes.py: {error}")
        sys.exit(1 if build.IN_CI else 0)
    options.elbow, programs = build.programs(options.elbow, "elbow-file", "hole_timing")
    with tempfile.TemporaryDirectory(prefix="elbow-figures-", dir=options.disk) as work:
        figures = Figures(options, programs / "examples" / "hole_timing", Path(work))
        try:
            for kind in options.storage:
                figures.measure(kind)
        finally:
            host = {**build.describe_host(options.disk), "repetitions": options.repeat,
                    "disk of figure 4": f"{options.disk_size / 2**20:g} MiB", "memory of EP and s24": f"{options.memory / 2**20:g} MiB"}
            print(holes_report.write(figures.rows, figures.skipped, host, options.out))
    sys.exit(1 if figures.failed or not figures.rows else 0)


def parse():
    parser = build.Parser(__doc__)
    parser.add_choice("--figures", FIGURES, default=FIGURES)
    parser.add_choice("--storage", STORAGE, default=STORAGE)
    parser.add_choice("--classes", CLASSES, more="; of NAS EP")
    parser.add_argument("--largest", type=int, help="MiB that figures 1 and 2 free at most (default: 256)")
    parser.add_argument("--disk-size", type=build.size, help="of the file system of figure 4 (default: 2G)")
    parser.add_argument("--memory", type=build.size, help="of EP and s24 (default: 64M)")
    parser.add_common(out="holes", disk="the images", tiny="little, once", repeat="; 9 for figures 1 and 2")
    options = parser.parse_args()
    tiny = options.tiny
    options.classes = options.classes or (["S"] if tiny else list(CLASSES))
    options.largest = options.largest or (4 if tiny else 256)
    options.disk_size = options.disk_size or (384 << 20 if tiny else 2 << 30)
    options.memory = options.memory or ((16 if tiny else 64) << 20)
    options.short_repeat = options.repeat or (1 if tiny else 9)
    options.repeat = options.repeat or (1 if tiny else 3)
    options.shares = TINY_SHARES if tiny else SHARES
    return options


class Figures:
    """All rows: dicts of figure, storage, way, bytes, repetition and what was measured."""

    def __init__(self, options, hole_timing, work):
        self.options, self.hole_timing, self.work = options, hole_timing, work
        self.rows, self.skipped, self.failed = [], [], False

    def measure(self, kind):
        options = self.options
        if {"1", "2"} & set(options.figures):
            self._on(kind, "1 and 2", 6 * (options.largest << 20) + SPARE_BYTES, self._timings)
        if "3" in options.figures:
            largest = max(CLASSES[name] for name in options.classes) * PAIR_BYTES
            self._on(kind, "3", ROOM_OF_EP * largest + SPARE_BYTES, self._ep)
        if "4" in options.figures:
            self._on(kind, "4", options.disk_size, self._s24)

    def _on(self, kind, figures, size_bytes, work):
        disk = disks.Disk(kind, size_bytes, self.work)
        try:
            _need_memory(kind, size_bytes)
            disk.start(written=not self.options.tiny)
            disk.fresh()
            work(disk)
        except inputs.Unavailable as error:
            self.failed |= build.IN_CI
            self._skip(f"figures {figures} on {kind}: {error}")
        except FAILURES as error:
            self.failed = True
            self._skip(f"FAILED: figures {figures} on {kind}: {getattr(error, 'stderr', None) or error}")
        finally:
            disk.stop()

    def _timings(self, disk):
        command = [self.hole_timing, disk.mount, str(self.options.largest), str(self.options.short_repeat)]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        for row in csv.DictReader(io.StringIO(said.stdout)):
            if row["figure"] in self.options.figures:
                self._add(figure=row["figure"], storage=disk.kind, way=row["way"], bytes=int(row["bytes"]),
                          repetition=int(row["repetition"]), seconds=float(row["seconds"]),
                          synced_seconds=float(row["synced_seconds"]), peak_disk_bytes=None)

    def _ep(self, disk):
        for repetition in range(self.options.repeat):
            for name in self.options.classes:
                for way in _turn(["kept", "freed"], repetition):
                    self._run(disk, "3", way, CLASSES[name] * PAIR_BYTES, repetition, ["ep", "--class", name])

    def _s24(self, disk):
        for repetition in range(self.options.repeat):
            for share in self.options.shares:
                records = int(disk.size_bytes * share) // RECORD_BYTES
                for way in _turn(["kept", "freed"], repetition):
                    self._run(disk, "4", way, records * RECORD_BYTES, repetition, ["s24", "--records", records])

    def _run(self, disk, figure, way, size_bytes, repetition, what):
        disk.fresh()
        empty = disk.used_bytes()
        command = [self.options.elbow, "bench", *what, "-S", self.options.memory, "-T", disk.mount, "--json"]
        row = dict(figure=figure, storage=disk.kind, way=way, bytes=size_bytes, repetition=repetition)
        try:
            took = watched(command + (["--consume"] if way == "freed" else []), disk, empty)
        except peers.Failed as error:
            if figure != "4" or not holes_report.is_full(str(error)):
                raise
            self._add(**row, seconds=None, synced_seconds=None, peak_disk_bytes=None)
            return
        if not json.loads(took.stdout)["verified"]:
            raise peers.Failed(f"{' '.join(map(str, what))} {way}: not verified")
        self._add(**row, seconds=took.seconds, synced_seconds=took.synced_seconds, peak_disk_bytes=took.peak_disk_bytes)

    def _add(self, **row):
        self.rows.append(row)
        if row["figure"] in ("3", "4"):
            took = "does not fit" if row["seconds"] is None else (
                f"{row['seconds']:.2f} s, room {row['peak_disk_bytes'] / row['bytes']:.3f}x")
            print(f"figure {row['figure']} {row['storage']:5} {row['bytes'] / 2**20:7.0f} MiB {row['way']:5} "
                  f"#{row['repetition']} {took}")

    def _skip(self, text):
        print(f"figures: skipped {text}")
        self.skipped.append(text)


def _turn(ways, repetition):
    return ways[repetition % 2:] + ways[:repetition % 2]


def _need_memory(kind, size_bytes):
    if kind != "tmpfs":
        return
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    if available < size_bytes * 1.2:
        raise inputs.Unavailable(f"{size_bytes / 2**30:.1f} GiB of tmpfs, and {available / 2**30:.1f} GiB of memory available")


if __name__ == "__main__":
    main()
