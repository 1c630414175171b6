"""A simulated rotating disk: what requests cost there, and why.

    from elbowroom.disk import Drive

    drive = Drive("hp-c2247a")
    run = drive.simulate("sptf", depth=16, mechanical=True)
    print(run.mean_ms, run.rotation_ms)
    run.table["response_ms"].max()          # a column for each part of each request

All times are milliseconds, all sizes sectors of 512 bytes; cylinders, heads, tracks and sectors are counted from 0. Columns are NumPy
arrays, or memoryviews of the same type where NumPy is not installed.
"""

from __future__ import annotations

import array
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ._errors import DiskError
from ._native import Drive as _Drive
from ._native import replay_files, replay_trace, simulate_disk

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

__all__ = [
    "BUILT_IN",
    "Allocated",
    "DiskError",
    "Drive",
    "Figures",
    "FileReplay",
    "Group",
    "Kind",
    "Percentiles",
    "Place",
    "Replay",
    "Simulation",
    "Table",
    "Zone",
]

#: Names of the drives that need no file.
BUILT_IN: tuple[str, ...] = tuple(_Drive.built_in())

_INTEGER_MAX = 2**32 - 1
_COUNT_MAX = 2**53
_SEED_MAX = 2**64 - 1
_Code = Literal["q", "d", "?"]
_DTYPES = {"q": "int64", "d": "float64", "?": "bool"}


class Table(Mapping[str, Any]):
    """Columns of equal length, by name. `dict(table)` is what pandas.DataFrame takes; polars takes the table itself, by Arrow."""

    def __init__(self, columns: Sequence[tuple[str, _Code, bytearray]]):
        self._raw = {name: (code, data) for name, code, data in columns}
        self._columns = {name: _column(code, data) for name, code, data in columns}

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The length of each column."""
        return min((len(column) for column in self._columns.values()), default=0)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table` of the same memory (flags, which Arrow packs into bits, are copied). Needs pyarrow."""
        import pyarrow

        types = {"q": pyarrow.int64(), "d": pyarrow.float64(), "?": pyarrow.uint8()}
        columns = {}
        for name, (code, data) in self._raw.items():
            values = pyarrow.Array.from_buffers(types[code], self.rows, [None, pyarrow.py_buffer(data)])
            columns[name] = values.cast(pyarrow.bool_()) if code == "?" else values
        return pyarrow.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table of {self.rows} rows: {', '.join(self)}"


def _column(code: _Code, data: bytearray) -> Any:
    if numpy is None:
        return memoryview(data).cast(code)
    return numpy.frombuffer(data, _DTYPES[code])


class Place(NamedTuple):
    """Where a sector lies; each an int or an array."""

    cylinder: Any
    head: Any
    #: On its track.
    sector: Any
    #: When in a turn it passes the head, in milliseconds.
    angle_ms: Any


class Zone(NamedTuple):
    """Cylinders whose tracks have as many sectors."""

    #: The first and the last that hold data.
    cylinders: tuple[int, int]
    sectors_per_track: int
    #: Tracks that hold data.
    tracks: int
    first_lbn: int
    sectors: int
    #: What passes a head, in 10^6 bytes per second.
    megabytes_per_second: float


@dataclass(frozen=True)
class Simulation:
    """What came of a load: means over the measured requests in milliseconds, each with half of its 95 % confidence
    interval (None for fewer than 30 requests). `mean_ms` is from the pick of a request to its completion, the sum of `seek_ms`,
    `rotation_ms`, `transfer_ms` and `overhead_ms`; `response_ms` is from its arrival."""

    requests: int
    reads: int
    mean_ms: float
    mean_ci95_ms: float | None
    seek_ms: float
    seek_ci95_ms: float | None
    rotation_ms: float
    rotation_ci95_ms: float | None
    transfer_ms: float
    transfer_ci95_ms: float | None
    overhead_ms: float
    overhead_ci95_ms: float | None
    response_ms: float
    response_ci95_ms: float | None
    #: Of response times.
    response_percentiles_ms: Percentiles
    #: Service times that the scheduler estimated, per decision.
    estimations_per_request: float
    #: How long the drive took for the measured requests, in its own time.
    simulated_seconds: float
    #: Requests per second of the drive's own time.
    simulated_requests_per_second: float
    #: A row for each measured request, in the order in which they were served: `number` (in the order of arrival), `write`, `lbn`,
    #: `sectors`, `arrival_ms`, `start_ms`, `end_ms`, `waiting` (others, when it was picked), `seek_ms`, `rotation_ms`,
    #: `transfer_ms`, `overhead_ms`, `service_ms`, `response_ms`. None if it was not wanted.
    table: Table | Any  # "| Any": type checkers need not be told that it was wanted


@dataclass(frozen=True)
class Percentiles:
    """How times are spread, in milliseconds; but for `max` right to a thousandth."""

    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


@dataclass(frozen=True)
class Figures:
    """Requests of one kind. The rms demerit is the distance of the distributions of measured and simulated response times."""

    requests: int
    #: None where the trace has no measured times.
    mean_measured_ms: float | None
    mean_simulated_ms: float
    rms_demerit_ms: float | None
    #: None where the trace has no measured times.
    percentiles_measured_ms: Percentiles | None
    percentiles_simulated_ms: Percentiles


@dataclass(frozen=True)
class Replay:
    """What came of a trace. Response times of all requests, and of `reads` of the medium, `hits` in the cache and `writes`; means of the
    parts of a request."""

    requests: int
    mean_measured_ms: float | None
    mean_simulated_ms: float
    rms_demerit_ms: float | None
    percentiles_measured_ms: Percentiles | None
    percentiles_simulated_ms: Percentiles
    reads: Figures
    hits: Figures
    writes: Figures
    #: Reads whose first sector was in the simulated cache.
    hits_simulated: int
    seek_ms: float
    rotation_ms: float
    transfer_ms: float
    overhead_ms: float
    #: From time 0 to the last end.
    simulated_s: float
    #: Lines that were left out: discards, and others without sectors (flushes).
    discards: int
    others: int
    #: Requests before the one on the line above, with which they arrive; reads of a kind that is not known.
    late: int
    unknown_kinds: int
    #: What one has to know of these figures, in sentences.
    notes: list[str]
    #: A row for each request: `line` of the trace, `arrival_ms`, `lbn`, `sectors`, `write`, `hit`, `measured_ms` (NaN where the trace does
    #: not say), `response_ms`, `seek_ms`, `rotation_ms`, `transfer_ms`, `overhead_ms`. None if it was not wanted.
    table: Table | Any  # "| Any": type checkers need not be told that it was wanted


class Kind(NamedTuple):
    """Requests of one kind, and what they took together, from pick to completion."""

    requests: int
    #: Of 4 KiB.
    blocks: int
    #: The sum of the parts that follow.
    time_ms: float
    seek_ms: float
    rotation_ms: float
    transfer_ms: float
    overhead_ms: float


class Group(NamedTuple):
    """What was written to a group of 128 MiB, blocks that were freed again included."""

    group: int
    data_blocks: int
    metadata_blocks: int


@dataclass(frozen=True)
class Allocated:
    """What lies where in the end."""

    #: Files of the trace that are there in the end, their blocks, and the runs of neighbouring blocks that those are.
    files: int
    blocks: int
    extents: int
    #: Groups of which something was written.
    groups: list[Group]


@dataclass(frozen=True)
class FileReplay:
    """What came of a trace of file operations. Times are those of the model."""

    operations: int
    #: What the operations wrote, and asked to read.
    bytes_written: int
    bytes_read: int
    #: Until all was on the disk, and until the last operation had ended.
    seconds: float
    processes_seconds: float
    #: What the drive spent on requests.
    busy_seconds: float
    #: By what they hold: all, reads, data, directories, inodes, indirect, bitmaps, superblocks. One of merged neighbours counts as what
    #: its first block is.
    requests: dict[str, Kind]
    #: Writes of data that named a range; those that had to wait for one; writes that continued a file where it ended.
    range_writes: int
    range_waits: int
    continued: int
    allocated: Allocated
    #: What the trace left out, in sentences.
    notes: list[str]


class Drive:
    """A rotating drive. It never changes, and many threads may use it at once."""

    #: What it is called.
    name: str
    sectors: int
    size_bytes: int
    #: With those that hold no data.
    cylinders: int
    heads: int
    #: One turn.
    rotation_ms: float
    #: Seeks of reads: to the next cylinder, on average, over all.
    seek_next_ms: float
    seek_mean_ms: float
    seek_full_ms: float
    head_switch_ms: float
    #: More for a write, after any movement.
    write_settle_ms: float
    #: Segments of the cache that keep what was read, sectors of each, and sectors read ahead.
    read_segments: int
    segment_sectors: int
    read_ahead_sectors: int
    #: From the outermost.
    zones: tuple[Zone, ...]

    def __init__(self, name: str):
        """A built-in drive: one of `BUILT_IN`."""
        text = _Drive.description(name)
        if text is None:
            raise ValueError(f"no drive called {name!r} is built in: take {', '.join(BUILT_IN)}, or Drive.from_file")
        self._set(_Drive(f"{name}.toml", text))

    @classmethod
    def from_toml(cls, text: str, file: str = "<toml>") -> Drive:
        """The drive that `text` describes; `file` is what errors call it.

        Raises `DiskError`, a `ValueError` with `file`, `line` and `key`."""
        drive = cls.__new__(cls)
        drive._set(_Drive(file, text))
        return drive

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Drive:
        """The drive that a file describes. Raises as `from_toml`, and `OSError`."""
        name = os.fspath(path)
        with open(name, "rb") as file:
            data = file.read()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise DiskError(f"{name}:{line}: not UTF-8 text", name, line) from None
        return cls.from_toml(text, name)

    def _set(self, native: _Drive) -> None:
        self._native = native
        figures = json.loads(native.summary())
        zones, self.size_bytes = figures.pop("zones"), figures.pop("bytes")
        self.__dict__.update(figures)
        self.zones = tuple(Zone(**{**zone, "cylinders": tuple(zone["cylinders"])}) for zone in zones)

    def __repr__(self) -> str:
        return f"<Drive {self.name!r}, {self.sectors} sectors>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Drive.from_toml, (self.toml,)

    @property
    def toml(self) -> str:
        """Its description: a beginning for that of another drive."""
        return self._native.toml

    def locate(self, lbn: Any) -> Place:
        """Where a sector lies, or, for an array of them, arrays. Raises `ValueError` for one that is not on the drive."""
        if hasattr(lbn, "__index__") and not getattr(lbn, "ndim", 0):
            place = self._native.locate(_packed([lbn.__index__()]))
            return Place(*(memoryview(data).cast(code)[0] for _, code, data in place))
        return Place(*(_column(code, data) for _, code, data in self._native.locate(_packed(lbn))))

    def lbn_at(self, cylinder: int, head: int, sector: int) -> int | None:
        """The sector at a place, if it holds data: the reverse of `locate`."""
        if not all(0 <= number <= _INTEGER_MAX for number in (cylinder, head, sector)):
            return None
        return self._native.lbn_at(cylinder, head, sector)

    def tracks(self) -> Table:
        """All tracks that hold data, in the order of LBNs: `first_lbn`, `sectors`, `cylinder`, `head`, and `angle_ms`, when in a
        turn the first sector passes the head."""
        return Table(self._native.tracks())

    def seek_table(self, write: bool = False) -> Any:
        """Milliseconds by distance in cylinders, from 0; of a write with its settling."""
        ((_, code, data),) = self._native.seek_table(write)
        return _column(code, data)

    def simulate(
        self,
        scheduler: str = "sptf",
        *,
        depth: int = 1,
        pick: Literal["before", "after"] = "before",
        arrivals_per_second: float | None = None,
        span: str | tuple[int, int] = "disk",
        sectors: int = 8,
        align_sectors: int = 8,
        range_sectors: int | Literal["track"] | None = None,
        targets: int = 1,
        reads: float = 0.0,
        mechanical: bool = False,
        overhead_ms: float | None = None,
        requests: int = 30_000,
        warm_up: int = 1000,
        seed: int = 1,
        per_request: bool = True,
    ) -> Simulation:
        """Serves random requests. The same arguments give the same requests and times. Ctrl-C ends it; other threads go on meanwhile.

        scheduler: fcfs, sstf, sptf, asptf, asptf:W, scan, c-look, ecs, ecs:K, hrs or hrs:whole.
        depth: requests in the system: when one is done, another comes.
        pick: whether the scheduler picks before or after the next request has come.
        arrivals_per_second: requests come at random moments, so many per second on average, instead of `depth` at a time.
        span: where requests go: "disk", "group:N" (the N-th 16 MB) or (first sector, one past the last).
        sectors, align_sectors: size of a request, and what its first sector is a multiple of.
        targets, range_sectors: a write may land on any aligned place in so many random ranges of so many sectors, or in whole
            tracks; one place where there is no `range_sectors`.
        reads: share of reads, from 0 to 1.
        mechanical: no commands, bus and completion. overhead_ms: so much before each request instead of the drive's own.
        requests, warm_up: how many are measured, and how many served before.
        per_request: False for no table, which takes 105 bytes for each request; it has 2^24 rows at most.

        Raises `ValueError` for what makes no sense on this drive, or is more than it can do."""
        if arrivals_per_second is not None and (depth, pick) != (1, "before"):
            raise ValueError("requests come at arrivals_per_second, or depth at a time: not both")
        if mechanical and overhead_ms is not None:
            raise ValueError("mechanical is without overhead: overhead_ms goes without it")
        load = {
            "scheduler": scheduler,
            "depth": _integer("depth", depth),
            "pick": pick,
            "arrivals_per_second": arrivals_per_second,
            "span": span if isinstance(span, str) else "sectors:{}-{}".format(*span),
            "sectors": _integer("sectors", sectors),
            "align_sectors": _integer("align_sectors", align_sectors),
            "range_sectors": "" if range_sectors is None else str(range_sectors),
            "targets": _integer("targets", targets),
            "reads": reads,
            "mechanical": mechanical,
            "overhead_ms": overhead_ms,
            "requests": _integer("requests", requests, _COUNT_MAX),
            "warm_up": _integer("warm_up", warm_up, _COUNT_MAX),
            "seed": _integer("seed", seed, _SEED_MAX),
        }
        summary, columns = simulate_disk(self._native, load, per_request)
        found = json.loads(summary)
        found["response_percentiles_ms"] = Percentiles(**found["response_percentiles_ms"])
        return Simulation(table=Table(columns) if per_request else None, **found)

    def replay(
        self,
        trace: str | os.PathLike[str] | bytes,
        format: Literal["disksim", "validate", "blktrace", "fio", "msr", "spc", "csv"] | None = None,
        *,
        scheduler: str = "fcfs",
        depth: int = 1,
        mechanical: bool = False,
        per_request: bool = True,
    ) -> Replay:
        """Serves the requests of a trace, first come first served, one at a time, or as `scheduler` picks among `depth`. Ctrl-C ends it.

        trace: a file's path, or its content as bytes; what begins as gzip is unpacked.
        format: as `elbow disk replay --format`: disksim, validate, blktrace, fio, msr, spc or csv; by its first line, if it is left out.
        scheduler: fcfs, sstf, sptf, asptf, asptf:W, scan or c-look, among the `depth` requests that the drive knows, with the one that it
            serves. A trace whose requests come so long after the end of another is as if `depth` hosts shared it.
        mechanical: no commands, bus and cache.
        per_request: False for no table.

        Raises `DiskError`, a `ValueError` with `file` and `line`, for a trace that is none, or is not for this drive; and `OSError`."""
        file, text = ("<trace>", trace) if isinstance(trace, bytes) else (os.fspath(trace), None)
        options: dict[str, object] = {
            "format": format,
            "scheduler": scheduler,
            "depth": _integer("depth", depth),
            "mechanical": mechanical,
        }
        report, columns = replay_trace(self._native, file, text, options, per_request)
        found = json.loads(report)
        for kind in ("reads", "hits", "writes"):
            found[kind] = Figures(**_with_percentiles(found[kind]))
        _with_percentiles(found)
        return Replay(table=Table(columns) if per_request else None, **found)

    def replay_files(
        self,
        trace: str | os.PathLike[str] | bytes,
        format: Literal["operations", "strace", "listing"] = "operations",
        *,
        below: str = "/",
        allocation: Literal["classic", "ranges"] = "classic",
        region: Literal["mini-group", "group"] = "mini-group",
        partition_bytes: int | None = None,
        full_percent: float = 0.0,
        full_run_blocks: int = 8,
        memory_bytes: int = 512 << 20,
        dirty_bytes: int | None = None,
        age_s: float = 30.0,
        interval_s: float = 5.0,
        merge: Literal["none", "neighbours"] = "neighbours",
        scheduler: str = "hrs",
        depth: int = 16,
        overhead_ms: float | None = None,
        concurrent: bool = False,
        seed: int = 1,
    ) -> FileReplay:
        """Does the file operations of a trace on a model of ext2 above this drive. Ctrl-C ends it; other threads go on meanwhile.

        trace: a file's path, or its content as bytes; what begins as gzip is unpacked.
        format: as `elbow disk files --format`: lines of `pid operation path offset bytes`, what strace writes of what lies `below` a
            directory, or lines of size TAB path, which are unpacked.
        allocation: classic finds places when a process writes; ranges has the disk choose within the mini-group of the process, or
            within its whole group (`region`), when the cache is written back.
        partition_bytes: size of the file system; the drive's, and at most 16 GiB, without it.
        full_percent, full_run_blocks: how much of each group is in use before, in runs of how many blocks at random places.
        memory_bytes: file data that is kept in memory. dirty_bytes: with more that is not yet written processes wait; two fifths of the
            memory without it. A quarter of that is written whatever its age.
        age_s: data is written when it is so old; 0: at once. interval_s: so often the cache is looked through.
        merge: what becomes of requests that wait beside each other.
        scheduler, depth, overhead_ms: who picks among how many requests, and what each costs instead of the drive's own commands.
        concurrent: each process goes on by itself.

        Raises `DiskError`, a `ValueError` with `file` and `line`, for a trace that is none, or an operation that cannot be done; `ValueError`
        for what makes no sense on this drive; and `OSError`."""
        file, text = ("<trace>", trace) if isinstance(trace, bytes) else (os.fspath(trace), None)
        options: dict[str, object] = {
            "format": format,
            "below": below,
            "allocation": allocation,
            "region": region,
            "partition_bytes": partition_bytes and _integer("partition_bytes", partition_bytes, _COUNT_MAX),
            "full_percent": full_percent,
            "full_run_blocks": _integer("full_run_blocks", full_run_blocks),
            "memory_bytes": _integer("memory_bytes", memory_bytes, _COUNT_MAX),
            "dirty_bytes": dirty_bytes and _integer("dirty_bytes", dirty_bytes, _COUNT_MAX),
            "age_s": age_s,
            "interval_s": interval_s,
            "merge": merge,
            "scheduler": scheduler,
            "depth": _integer("depth", depth),
            "overhead_ms": overhead_ms,
            "concurrent": concurrent,
            "seed": _integer("seed", seed, _SEED_MAX),
        }
        found = json.loads(replay_files(self._native, file, text, options))
        found["requests"] = {name: Kind(**kind) for name, kind in found["requests"].items()}
        there = found["allocated"]
        there["groups"] = [Group(**group) for group in there["groups"]]
        found["allocated"] = Allocated(**there)
        return FileReplay(**found)


def _with_percentiles(figures: dict[str, Any]) -> dict[str, Any]:
    for name in ("percentiles_measured_ms", "percentiles_simulated_ms"):
        found = figures[name]
        figures[name] = Percentiles(**found) if found else None
    return figures


def _packed(lbns: Any) -> bytes:
    """LBNs as 64-bit integers."""
    if numpy is None:
        return array.array("q", lbns).tobytes()
    numbers = numpy.asarray(lbns)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(f"LBNs are integers, not {numbers.dtype}")
    if numbers.ndim > 1:
        raise ValueError("LBNs come in one dimension")
    return numbers.astype("int64").tobytes()


def _integer(name: str, value: int, most: int = _INTEGER_MAX) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {value}: it has to be from 0 to {most}")
    return value
