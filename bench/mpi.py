#!/usr/bin/env python3
"""Measures atomic MPI-IO by list, extent and file locks beside no locks and the MPI library's own: `make bench-mpi`.

One interleaved run: each repetition goes through all MPIs, delays, workloads and modes in turn (the modes start at another
one each time). Every rank writes its part by one MPI_File_write_at; the workloads are elbow_study::access_patterns': interleaved
pieces of 4 KiB and of 200 bytes (small), the 3-D block of Aarestad et al., FLASH I/O and tiles (written, and read). All modes but the last three make the same requests in the same
order: one per piece, data sieving off. That is checked from below, and after each round the file is: each byte, and that no
two accesses are torn. Where a library does not do what it says that is printed, and it is not counted as correct.

    bench/mpi.py                                            MPICH and Open MPI of Debian, three repetitions
    bench/mpi.py --mpi mpich --only interleaved-8 --delays 100 --peers none,list,native --repeat 5
    bench/mpi.py --only block-27,block-64                   27 and 64 ranks: for machines with more than two processors
    bench/mpi.py --tiny                                     seconds, to see that the bench itself works

Modes: none (nonatomic), list, extent, file: through `elbow lock mpi` and an `elbow lockd` that is started here. native: the MPI
library alone. Open MPI's OMPIO does nothing in atomic mode; its ROMIO (native, ROMIO) does. Beside these, by whatever requests the
library likes: native, sieving (reads all between its pieces and writes it back, what ROMIO does by default), and collective
accesses without locks and with list locks.

The delay is a library that is preloaded under every mode alike (bench/mpi/storage.c) and sleeps before each read and write of the
file, which lies in memory. The testkit's slow file system would be more real, and locks work on it; but the kernel's FUSE lets
only one process at a time write a file through its cache (8 writers at 100 us each took as long as one after another), so no
mode could be faster than any other, and each request costs it more processor than the delay that is to be measured. Locks cost no
delay, in no mode: a real parallel file system's fcntl takes a round trip too.
"""

import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, inputs, mpi_report, mpis, peers, report, storage

JOBS = ["interleaved-8", "small-4", "block-8", "flash-8", "tile-6-exclusive", "tile-6-shared"]
MANY_RANKS = ["block-27", "block-64"]
DELAYS_US = ["0", "100", "1000"]
PIECES, TINY_PIECES = 256, 32
TINY_MODES = ["none", "list", "extent", "native", "native, sieving", "list, as it likes"]
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, RuntimeError, OSError, ValueError)


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Through the finally below.
    options.elbow, programs = build.programs(options.elbow, "elbow-mpi")
    _, examples = build.programs(options.elbow, "elbow-study", example="workloads")
    results = report.Results()
    with tempfile.TemporaryDirectory(prefix="elbow-bench-mpi-", dir=storage.place_for_servers() or options.disk) as work:
        host = build.describe_host(work)
        host["file on"] = host.pop("images on")
        results.host = {**host, "repetitions": options.repeat, "seconds of rounds in each": options.seconds}
        run = mpis.Programs(options.elbow, programs / "libelbow_mpi.so", examples / "examples" / "workloads", Path(work))
        bench = Bench(options, run, results)
        try:
            run.start(TINY_PIECES if options.tiny else PIECES)
            bench.run()
        finally:
            run.stop()
            print(mpi_report.write(results, options.out))
    results.exit(build.IN_CI and len(bench.mpis) < len(options.mpi))


def parse():
    parser = build.Parser(__doc__)
    parser.add_choice("--mpi", mpis.MPIS, default=list(mpis.MPIS))
    parser.add_choice("--only", [*JOBS, *MANY_RANKS], more=" but the last two; with --tiny the first and tiles")
    parser.add_choice("--delays", DELAYS_US, more=", in microseconds; with --tiny 100")
    # Names of modes have commas in them.
    parser.add_argument("--peers", type=lambda text: modes(parser, text), help="of " + ";".join(mpis.BY_NAME) + f" (default: all; with --tiny {';'.join(TINY_MODES)})")
    parser.add_argument("--seconds", type=float, help="of rounds in each run, one at least (default: 2)")
    parser.add_common(out="mpi", disk="the file, where /dev/shm has no 4 GiB free", tiny="few small pieces, one delay, once")
    options = parser.parse_args()
    options.only = options.only or (["interleaved-8", "small-4", "tile-6-exclusive"] if options.tiny else JOBS)
    options.delays = options.delays or (["100"] if options.tiny else DELAYS_US)
    options.peers = options.peers or ([mpis.BY_NAME[name] for name in TINY_MODES] if options.tiny else mpis.MODES)
    options.seconds = options.seconds or (0.1 if options.tiny else 2)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    return options


def modes(parser, text):
    separator = ";" if ";" in text or text in mpis.BY_NAME else ","
    unknown = [word for word in text.split(separator) if word not in mpis.BY_NAME]
    if unknown:
        parser.error(f"unknown: {'; '.join(unknown)} (known: {'; '.join(mpis.BY_NAME)})")
    return [mpis.BY_NAME[word] for word in text.split(separator)]


class Bench:
    """MPIs, delays, workloads and modes, in turn."""

    def __init__(self, options, programs, results):
        self.options, self.programs, self.results = options, programs, results
        self.mpis, self.orders = [], {}

    def run(self):
        for name in self.options.mpi:
            self._compile(mpis.MPIS[name])
        self.results.rows["workloads"] = {name: self._described(name) for name in [*JOBS, *MANY_RANKS]}
        for repetition in range(self.options.repeat):
            for mpi in self.mpis:
                for delay in self.options.delays:
                    for job in self.options.only:
                        self._round(mpi, int(delay), self.programs.workloads[job], repetition)

    def _compile(self, mpi):
        try:
            self.programs.compile(mpi)
            self.mpis.append(mpi)
        except inputs.Unavailable as error:
            self.results.skipped.append(f"{mpi.name}: {error}")
            print(f"SKIPPED: {mpi.name}: {error}")

    def _described(self, name):
        workload = self.programs.workloads[name]
        return {**{key: workload[key] for key in ("exclusive", "disjoint", "modes")}, "ranks": len(workload["ranks"]),
                "locks": sorted({mpis.pieces(patterns) for patterns in workload["ranks"]}, reverse=True),
                "bytes": mpis.total_bytes(workload)}

    def _round(self, mpi, delay_us, workload, repetition):
        turn = [mode for mode in self.options.peers if mpi.name in mode.on and (mode.exact or workload["disjoint"])]
        first = repetition % len(turn) if turn else 0
        for mode in turn[first:] + turn[:first]:
            self._once(mpi, delay_us, workload, mode, repetition)

    def _once(self, mpi, delay_us, workload, mode, repetition):
        place = mpi_report.place(mpi.name, delay_us)
        outcome = dict(storage=place, says=place, job=workload["name"], peer=mode.name, repetition=repetition,
                       rival=not mode.shim, seconds=None, details={}, wrong=[], failed=None)
        try:
            found = self.programs.run(mpi, mode, workload, delay_us, self.options.seconds)
            seconds = statistics.median(found["seconds"])
            outcome["seconds"] = seconds
            outcome["details"] = {**found, "mb_per_s": mpis.total_bytes(workload) / seconds / 1e6, "rounds": len(found["seconds"])}
            outcome["wrong"] = self._wrong(mpi, workload, mode, found)
        except FAILURES as error:
            outcome["failed"] = str(error)
        self.results.add(**outcome)
        _say(outcome)

    def _wrong(self, mpi, workload, mode, found):
        """What it promised and did not do, and what it did otherwise than the others."""
        wrong = []
        if found["torn"] and mpi.name in mode.promises:
            wrong.append(f"torn in {found['torn']} of {len(found['seconds'])} rounds")
        if mode.exact:
            expected = {"calls": sum(map(mpis.pieces, workload["ranks"])), "bytes": mpis.total_bytes(workload),
                        "order": self.orders.setdefault((mpi.name, workload["name"]), found["order"])}
            wrong += [f"{key} of its requests are {found[key]}, not {value}" for key, value in expected.items() if found[key] != value]
        most = workload["modes"][mode.locks]["at_once"] if mode.locks and mode.exact else len(workload["ranks"])
        if found["at_once"] > most:
            wrong.append(f"{found['at_once']} ranks at once, of {most} that may be")
        return wrong


def _say(outcome):
    details, problem = outcome["details"], outcome["failed"] or "; ".join(outcome["wrong"])
    text = f"{outcome['storage']:20} {outcome['job']:17} {outcome['peer']:17} #{outcome['repetition']}"
    if details:
        torn = f", torn {details['torn']} of {details['rounds']} rounds" if details["torn"] else ""
        text += f" {details['mb_per_s']:9.1f} MB/s, {details['calls']:6} requests, {details['at_once']:5.2f} at once{torn}"
    print(f"{text} {'WRONG: ' + problem if problem else ''}")


if __name__ == "__main__":
    main()
