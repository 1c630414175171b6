"""The sorts that are compared: for each a command, and where its result is.

| peer | command |
|---|---|
| elbow in place | `elbow sort --record 24 --key 0:4:u32le` (or `--gensort`) `-S MEMORY --in-place IN` |
| elbow to another | the same with `-T TMP -o OUT`; lines: `elbow sort -k1.1,1.10 -S MEMORY -T TMP -o OUT IN` |
| elbow over the input | lines: `-o IN` |
| streams kept / freed | `elbow bench s24 --records N -S MEMORY -T TMP` without / with `--consume`; makes and checks its records itself, all timed |
| GNU to another / over the input | `LC_ALL=C sort --parallel=CPUS -S MEMORY -T TMP -k1.1,1.10 -o OUT` / `-o IN` |
| TPIE, STXXL | `$TPIE_SORT`, `$STXXL_SORT`: `PROGRAM s24` or `r100`, then `IN OUT MEMORY_BYTES TMP` |
| DuckDB, Polars | `tables.py` with twice the memory (with less they fail) |
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import venv
from .peers import Failed

TABLES = Path(__file__).with_name("tables.py")
SMALL = "text-150M"  # Lines that memory could hold several times, in little of it.
BYTES = {"s24": 24, "r100": 100, "text": 99, SMALL: 99}
KEY = {"s24": ["--record", "24", "--key", "0:4:u32le"], "r100": ["--gensort"], "text": ["-k1.1,1.10"], SMALL: ["-k1.1,1.10"]}
MORE_MEMORY = 2  # What DuckDB and Polars get of the memory of the others.

IN_PLACE, OTHER, OVER = "elbow in place", "elbow to another", "elbow over the input"
KEPT, FREED = "streams kept", "streams freed"  # A comma would part them in a list.
GNU_OTHER, GNU_OVER = "GNU to another", "GNU over the input"


@dataclass
class Place:
    """Where a run takes place."""

    mount: Path
    memory_bytes: int
    input_bytes: int

    def __post_init__(self):
        self.input, self.output, self.scratch = self.mount / "in", self.mount / "out", self.mount / "tmp"


class Sorter:
    """A way to sort; subclasses give the command, a `name` and the `workloads` that they sort."""

    rival = False  # A failure of a rival is reported, not fatal.
    environment = {}
    checks_itself = False

    def prepare(self, workload, place, raw):
        """Brings the input to the disk, from a file elsewhere."""
        subprocess.run(["cp", raw, place.input], check=True)

    def command(self, workload, place):
        raise NotImplementedError

    def result(self, workload, place, work):
        """The sorted records, raw."""
        del workload, work
        return place.output


@dataclass
class Elbow(Sorter):
    """`elbow sort`."""

    program: Path
    name: str
    workloads: tuple

    def command(self, workload, place):
        command = [self.program, "sort", *KEY[workload], "-S", f"{place.memory_bytes}b"]
        if self.name == IN_PLACE:
            return [*command, "--quiet", "--in-place", place.input]
        return [*command, "-T", place.scratch, "-o", self.result(workload, place, None), place.input]

    def result(self, workload, place, work):
        return place.output if self.name == OTHER else place.input


@dataclass
class Streams(Sorter):
    """`elbow bench s24`: makes, sorts and checks records in streams."""

    program: Path
    name: str
    workloads = ("s24",)
    checks_itself = True

    def prepare(self, workload, place, raw):
        pass

    def command(self, workload, place):
        records = place.input_bytes // BYTES[workload]
        command = [self.program, "bench", "s24", "--records", records, "-S", place.memory_bytes, "-T", place.scratch]
        return command + (["--consume"] if self.name == FREED else [])


@dataclass
class Gnu(Sorter):
    """sort(1) of coreutils."""

    name: str
    workloads = ("text", SMALL)
    rival = True
    environment = {"LC_ALL": "C"}

    def command(self, workload, place):
        processors = len(os.sched_getaffinity(0))
        return ["sort", f"--parallel={processors}", "-S", f"{place.memory_bytes}b", "-T", place.scratch, *KEY[workload],
                "-o", self.result(workload, place, None), place.input]

    def result(self, workload, place, work):
        return place.output if self.name == GNU_OTHER else place.input


@dataclass
class Given(Sorter):
    """A program that the caller has built."""

    name: str
    program: str
    workloads = ("s24", "r100")
    rival = True

    def command(self, workload, place):
        return [self.program, workload, place.input, place.output, place.memory_bytes, place.scratch]


@dataclass
class Table(Sorter):
    """DuckDB or Polars, on Parquet."""

    name: str
    python: Path
    workloads = ("s24", "r100")
    rival = True

    def prepare(self, workload, place, raw):
        tables = raw.with_name(f"{raw.name}.tables")
        if not tables.exists():
            self._call("load", workload, raw, tables)
        subprocess.run(["cp", "-r", tables, place.input], check=True)

    def command(self, workload, place):
        mebibytes = max(1, place.memory_bytes * MORE_MEMORY >> 20)
        return [self.python, TABLES, self.name.lower(), workload, place.input, place.output, mebibytes, place.scratch]

    def result(self, workload, place, work):
        raw = work / "unloaded"
        self._call("unload", workload, place.output, raw)
        return raw

    def _call(self, *words):
        done = subprocess.run([str(word) for word in (self.python, TABLES, *words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{words[0]}: {done.stderr.strip()[-500:]}")


def known(elbow, cache, wanted, skip):
    """All sorters that can be had here; `skip` is told the others. `wanted`: names, or None for all."""
    found = [Elbow(elbow, IN_PLACE, ("s24", "r100")), Elbow(elbow, OTHER, ("s24", "r100", "text", SMALL)),
             Elbow(elbow, OVER, ("text", SMALL)), Streams(elbow, KEPT), Streams(elbow, FREED), Gnu(GNU_OTHER), Gnu(GNU_OVER)]
    for name in ("TPIE", "STXXL"):
        program = os.environ.get(f"{name}_SORT")
        if program:
            found.append(Given(name, program))
        else:
            skip(f"{name}: set {name}_SORT to its program (called as PROGRAM s24|r100 IN OUT MEMORY_BYTES TMP)")
    tables = [name for name in ("DuckDB", "Polars") if wanted is None or name in wanted]
    try:
        found += [Table(name, venv.python(cache)) for name in tables]
    except venv.Unavailable as error:
        skip(f"{', '.join(tables)}: {error}")
    return [sorter for sorter in found if wanted is None or sorter.name in wanted]
