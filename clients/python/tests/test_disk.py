"""The simulated disk: the same numbers as the command `elbow disk`, as arrays."""

import dataclasses
import json
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy
import pyarrow
import pytest
from conftest import ELBOW
from elbowroom.disk import BUILT_IN, DiskError, Drive

TINY = """name = 'tiny'
heads = 2
rotation_ms = 8
seek = { head_switch_ms = 0.5, write_settle_ms = 0.25, points_ms = [[1, 1], [9, 2]] }
zone = [{ cylinders = [0, 9], sectors_per_track = 10, track_skew = 3 }]
"""
TRACE = b"0.5 0 1000 8 0\n30.25 0 2000 16 1\n60 0 2016 8 1\n"


@pytest.fixture(scope="module")
def drive():
    return Drive("hp-c2247a")


def said(*words):
    run = subprocess.run([ELBOW, "disk", *words, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found.pop("schema") == 1
    return found


def plain(value):
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def test_a_drive_has_the_figures_that_describe_prints(drive):
    described = said("describe", "hp-c2247a")
    assert described.pop("bytes") == drive.size_bytes == drive.sectors * 512
    for zone, is_so in zip(described.pop("zones"), drive.zones):
        assert {**is_so._asdict(), "cylinders": list(is_so.cylinders)} == zone
    assert {key: getattr(drive, key) for key in described} == described
    assert len(drive.zones) == 8 and drive.toml == subprocess.check_output(
        [ELBOW, "disk", "describe", "hp-c2247a", "--toml"], text=True
    )
    listed = subprocess.check_output([ELBOW, "disk", "describe"], text=True).splitlines()
    assert list(BUILT_IN) == [line.split()[0] for line in listed] and len(BUILT_IN) == 13
    assert BUILT_IN[:2] == ("hp-c2247a", "generic-7200") and "hp" in repr(drive).lower()


def test_sectors_are_located_one_by_one_and_many_at_once(drive):
    lbns = numpy.random.default_rng(7).integers(0, drive.sectors, 1000)
    places = drive.locate(lbns)
    assert [column.dtype for column in places] == ["int64", "int64", "int64", "float64"]
    for lbn, *place in zip(lbns, *places):
        assert drive.locate(int(lbn)) == drive.locate(lbn) == tuple(place)
        assert drive.lbn_at(*map(int, place[:3])) == lbn
    assert drive.locate(0)[:3] == (1, 4, 0) and drive.lbn_at(0, 0, 0) is None and drive.lbn_at(-1, 0, 0) is None
    assert drive.locate([]).sector.size == 0
    for wrong in (drive.sectors, -1, [0, drive.sectors], 2**63 - 1):
        with pytest.raises(ValueError, match="is not on HP C2247A"):
            drive.locate(wrong)
    with pytest.raises(TypeError):
        drive.locate([1.5])


def test_tracks_are_all_tracks(drive):
    tracks = drive.tracks()
    first, sectors = tracks["first_lbn"], tracks["sectors"]
    assert tracks.rows == 25749 and sectors.sum() == drive.sectors
    assert (first[1:] == first[:-1] + sectors[:-1]).all()
    places = drive.locate(first)
    for name in ("cylinder", "head", "angle_ms"):
        assert (getattr(places, name) == tracks[name]).all()
    assert not places.sector.any()


def test_seek_times_by_distance(drive):
    reads, writes = drive.seek_table(), drive.seek_table(write=True)
    assert len(reads) == drive.cylinders and reads[0] == writes[0] == 0
    assert reads[1:11].round(2).tolist() == [2.89, 3.68, 3.81, 3.98, 4.27, 4.65, 4.52, 4.65, 4.82, 4.99]
    numpy.testing.assert_allclose(writes[1:], reads[1:] + drive.write_settle_ms)


LOADS = {
    "nothing special": {},
    "sptf": dict(scheduler="sptf", depth=16, mechanical=True, seed=3),
    "hrs": dict(scheduler="hrs", depth=4, span="group:0", targets=64, range_sectors=104, overhead_ms=1.07),
    "tracks": dict(scheduler="ecs:4", span="sectors:96-192", range_sectors="track", reads=0.25),
    "open": dict(scheduler="fcfs", arrivals_per_second=30.0, sectors=16, align_sectors=2),
    "after": dict(depth=2, pick="after", warm_up=0),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_load_is_that_of_the_command(drive, load):
    words = []
    for name, value in load.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    expected = said("simulate", "--requests", "3000", *words)
    del expected["requests_per_second"]
    run = drive.simulate(requests=3000, **load)
    assert {name: plain(getattr(run, name)) for name in expected} == expected

    table = run.table
    assert table.rows == run.requests == 3000 and run.reads == (~table["write"]).sum()
    for column, mean in (("service_ms", run.mean_ms), ("seek_ms", run.seek_ms), ("response_ms", run.response_ms)):
        assert table[column].mean() == pytest.approx(mean)
    parts = sum(table[f"{part}_ms"] for part in ("seek", "rotation", "transfer", "overhead"))
    numpy.testing.assert_allclose(parts, table["service_ms"], atol=1e-6)
    numpy.testing.assert_allclose(table["end_ms"] - table["start_ms"], table["service_ms"], atol=1e-6)
    assert (table["lbn"] % load.get("align_sectors", 8) == 0).all()
    types = {name: str(table[name].dtype) for name in table}
    assert set(types.values()) == {"int64", "float64", "bool"} and types["lbn"] == "int64" and types["write"] == "bool"


def test_a_span_may_be_a_pair_and_a_table_left_out(drive):
    pair = drive.simulate("sptf", span=(96, 192), requests=100, per_request=False)
    assert pair.table is None and pair == drive.simulate(span="sectors:96-192", requests=100, per_request=False)


def test_columns_are_arrow(drive):
    table = drive.simulate(requests=50, reads=0.5).table
    arrow = table.to_arrow()
    assert arrow.schema.field("lbn").type == pyarrow.int64() and arrow.schema.field("write").type == pyarrow.bool_()
    assert arrow.column_names == list(table) and arrow.num_rows == 50
    for name in table:
        assert arrow[name].to_pylist() == table[name].tolist()
    # As whoever speaks Arrow's C stream takes it.
    assert pyarrow.RecordBatchReader.from_stream(table).read_all() == arrow


def test_a_drive_of_ones_own(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    tiny = Drive.from_file(file)
    assert (tiny.name, tiny.sectors, tiny.heads, tiny.rotation_ms) == ("tiny", 200, 2, 8)
    again = pickle.loads(pickle.dumps(tiny))
    assert again.tracks()["angle_ms"].tolist() == tiny.tracks()["angle_ms"].tolist()
    assert Drive.from_toml(TINY.replace("heads = 2", "heads = 3")).sectors == 300


def test_what_is_wrong_with_a_description_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"^mine\.toml:2: key `heds`: unknown field") as caught:
        Drive.from_toml(TINY.replace("heads", "heds"), "mine.toml")
    error = caught.value
    assert (type(error), error.file, error.line, error.key) == (DiskError, "mine.toml", 2, "heds")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    file = tmp_path / "mine.toml"
    file.write_bytes(b"name = 'x'\nheads = \xff\n")
    with pytest.raises(DiskError, match=r"mine\.toml:2: not UTF-8"):
        Drive.from_file(file)
    file.write_text(TINY + "nonsense")
    with pytest.raises(DiskError) as caught:
        Drive.from_file(file)
    assert (caught.value.file, caught.value.line) == (str(file), 6)
    with pytest.raises(FileNotFoundError):
        Drive.from_file(tmp_path / "absent")
    with pytest.raises(ValueError, match="take hp-c2247a, generic-7200"):
        Drive("hp")


WRONG = [
    (dict(scheduler="best"), "no scheduler is called"),
    (dict(span="group:9999"), "there is no group 9999"),
    (dict(span="here"), "write disk, group:N"),
    (dict(span=(5, 5)), "sectors 5 to 5"),
    (dict(range_sectors="half"), "write a number of sectors, or track"),
    (dict(depth=0), "the depth is 0"),
    (dict(depth=-1), "depth is -1"),
    (dict(targets=2**40), "targets is 1099511627776"),
    (dict(requests=0), "the number of requests"),
    (dict(requests=2**60), "requests is"),
    (dict(reads=float("nan")), "the share of reads"),
    (dict(overhead_ms=-1.0), "overhead_ms is -1"),
    (dict(overhead_ms=float("inf")), "overhead_ms is inf"),
    (dict(overhead_ms=1.0, mechanical=True), "goes without it"),
    (dict(pick="now"), "pick is"),
    (dict(arrivals_per_second=0.0), "arrivals per second"),
    (dict(arrivals_per_second=1e4), "cannot keep up"),
    (dict(arrivals_per_second=1.0, depth=4), "not both"),
    (dict(requests=10**13), "a table of 10000000000000 requests is too large"),
    (dict(requests=10**13, per_request=False), "the clock ends after 53"),
    (dict(warm_up=10**13, per_request=False), "the clock ends after 53"),
    (dict(requests=2_000_000, overhead_ms=10_000), r"231.6 simulated days"),
    (dict(arrivals_per_second=1e-8), "the clock ends after 53"),
    (dict(requests=2**24 + 1), "16777216 rows are the most; per_request=False is without"),
    (dict(sectors=512, align_sectors=65536, span="sectors:8-520"), "none of the ranges holds 512 sectors"),
]


@pytest.mark.parametrize(("load", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_a_load_that_makes_no_sense_is_refused(drive, load, reason):
    with pytest.raises(ValueError, match=reason):
        drive.simulate(**{"requests": 30_000, **load})


def test_a_trace_is_replayed_as_the_command_does(drive, tmp_path):
    file = tmp_path / "trace"
    file.write_bytes(TRACE)
    expected = said("replay", "--format", "disksim", str(file))
    run = drive.replay(file, "disksim")
    for kind in ("reads", "hits", "writes"):
        assert plain(getattr(run, kind)) == expected.pop(kind)
    assert {name: plain(getattr(run, name)) for name in expected} == expected
    table = run.table
    assert table["line"].tolist() == [1, 2, 3] and table["write"].tolist() == [True, False, False]
    assert table["response_ms"].mean() == pytest.approx(run.mean_simulated_ms) and numpy.isnan(table["measured_ms"]).all()
    assert run.hits_simulated == table["hit"].sum() == 1
    by_content = drive.replay(TRACE, "disksim", per_request=False)
    assert by_content.mean_simulated_ms == run.mean_simulated_ms and by_content.table is None
    assert drive.replay(b"", "disksim").table.to_arrow().schema == table.to_arrow().schema


def test_a_trace_may_wait_in_the_queue_of_the_drive(drive, tmp_path):
    burst = b"".join(b"0 0 %d 8 1\n" % (at * 7_919_003 % 2_000_000) for at in range(20))
    plain_run = drive.replay(burst)
    assert plain_run.mean_simulated_ms == drive.replay(burst, "disksim", scheduler="sptf").mean_simulated_ms
    queued = drive.replay(burst, scheduler="sptf", depth=20)
    assert queued.mean_simulated_ms < plain_run.mean_simulated_ms * 0.8
    assert queued.percentiles_simulated_ms.max == pytest.approx(queued.table["response_ms"].max())
    file = tmp_path / "trace"
    file.write_bytes(burst)
    assert queued.mean_simulated_ms == said("replay", "--scheduler", "sptf", "--depth", "20", str(file))["mean_simulated_ms"]
    assert drive.replay(b"8,0 1 1 0.1 7 Q D 9 + 8 [x]\n").notes == [
        "the trace has no requests",
        "1 discards are left out: a disk has none",
    ]
    with pytest.raises(ValueError, match="depth is 0"):
        drive.replay(burst, depth=0)
    with pytest.raises(DiskError, match="begins no trace of a known format") as error:
        drive.replay(b"#\nMZ\n")
    assert error.value.line == 2


def test_what_is_wrong_with_a_trace_is_said(drive, tmp_path):
    file = tmp_path / "trace"
    file.write_bytes(TRACE + b"90 0 99999999 8 1\n")
    with pytest.raises(ValueError, match=r"trace:4: sectors 99999999 to 100000006 are not on the drive") as caught:
        drive.replay(file, "disksim")
    assert (caught.value.file, caught.value.line, caught.value.key) == (str(file), 4, None)
    with pytest.raises(DiskError, match="^<trace>:1: "):
        drive.replay(b"nonsense\n", "validate")
    with pytest.raises(ValueError, match="take disksim, validate"):
        drive.replay(b"", "tar")
    with pytest.raises(FileNotFoundError, match="absent"):
        drive.replay(tmp_path / "absent", "csv")


def test_others_go_on_while_it_simulates(drive):
    counted, ended = [0], threading.Event()

    def count():
        while not ended.wait(0.001):
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    drive.simulate(requests=1_000_000, per_request=False)
    during = counted[0] - before
    ended.set()
    thread.join()
    assert during >= 5, "with the interpreter's lock held it would not have counted at all"


ENDLESS = {
    "simulate": "drive.simulate(requests=10**8, per_request=False)",
    "while it warms up": "drive.simulate(requests=1, warm_up=10**8)",
    "replay": "drive.replay('/dev/stdin', 'disksim', per_request=False)",
}


@pytest.mark.parametrize("call", ENDLESS.values(), ids=ENDLESS)
def test_control_c_ends_it(call):
    program = f"""
from elbowroom.disk import Drive
drive = Drive("hp-c2247a")
print("running", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"running\n"
    feeding = threading.Thread(target=feed, args=(child.stdin,))
    feeding.start()
    time.sleep(0.5)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    patience = threading.Timer(60, child.kill)
    patience.start()
    try:
        assert child.stdout.read() == b"interrupted\n"
        assert child.wait(timeout=60) == 0
    finally:
        patience.cancel()
        child.kill()
        child.wait()
        feeding.join()


def feed(pipe):
    """Requests at one moment for ever: the clock passes its end only after many years of them."""
    try:
        while True:
            pipe.write(b"0 0 1000 8 1\n" * 1000)
    except OSError:
        pass


SMALL = b"0 mkdir /d\n" + b"".join(
    b"%d create /d/%d\n%d write /d/%d 0 4096\n" % (n % 16, n, n % 16, n) for n in range(200)
)
AT_ONCE = dict(dirty_bytes=256 << 10, age_s=0.0, interval_s=0.1, merge="none")
AT_ONCE_SAID = ["--dirty", "256K", "--age-s", "0", "--interval-s", "0.1", "--merge", "none"]


def plain_files(replayed):
    found = dataclasses.asdict(replayed)
    found["requests"] = {name: kind._asdict() for name, kind in replayed.requests.items()}
    found["allocated"]["groups"] = [group._asdict() for group in replayed.allocated.groups]
    return found


@pytest.mark.parametrize(
    "how, words",
    [
        ({}, []),
        (AT_ONCE, AT_ONCE_SAID),
        (AT_ONCE | dict(allocation="ranges", region="group"), [*AT_ONCE_SAID, "--allocation", "ranges", "--region", "group"]),
        (
            dict(partition_bytes=200 << 20, full_percent=70.0, full_run_blocks=4, memory_bytes=64 << 20, seed=3),
            ["--partition", "200M", "--full", "70", "--full-run-blocks", "4", "--memory", "64M", "--seed", "3"],
        ),
        (
            dict(scheduler="fcfs", depth=2, overhead_ms=1.5, concurrent=True),
            ["--scheduler", "fcfs", "--depth", "2", "--overhead-ms", "1.5", "--concurrent"],
        ),
    ],
)
def test_file_operations_take_what_the_command_says(drive, tmp_path, how, words):
    file = tmp_path / "small.trace"
    file.write_bytes(SMALL)
    replayed = drive.replay_files(file, **how)
    assert plain_files(replayed) == said("files", str(file), *words)
    assert replayed == drive.replay_files(SMALL, **how)
    assert replayed.allocated.files == 200 and replayed.seconds >= replayed.busy_seconds > 0


def test_range_writes_help_a_cache_that_writes_at_once(drive):
    classic, ranges = (drive.replay_files(SMALL, allocation=name, **AT_ONCE) for name in ("classic", "ranges"))
    assert ranges.seconds < 0.8 * classic.seconds
    assert ranges.range_writes == 200 and classic.range_writes == 0


def test_calls_and_listings_are_replayed(drive):
    calls = b'7 openat(AT_FDCWD, "/t/a", O_CREAT) = 3\n7 link("/t/a", "/t/b") = 0\n'
    replayed = drive.replay_files(calls, "strace", below="/t")
    assert replayed.operations == 1 and replayed.notes == ["1 calls of link are left out: they have no counterpart here"]
    assert drive.replay_files(b"18693\tCOPYING\n", "listing").bytes_written == 18693


def test_wrong_file_operations_are_refused(drive):
    with pytest.raises(DiskError, match="<trace>:2: 1 read /b 0 5: /b: not found") as told:
        drive.replay_files(b"1 create /a\n1 read /b 0 5\n")
    assert (told.value.file, told.value.line) == ("<trace>", 2)
    with pytest.raises(DiskError, match='<trace>:1: "chmod" is no operation') as told:
        drive.replay_files(b"1 chmod /a\n")
    assert told.value.line == 1
    with pytest.raises(OSError):
        drive.replay_files("/no/such/trace")
    for how in (
        dict(format="csv"),
        dict(allocation="best"),
        dict(merge="all"),
        dict(partition_bytes=1 << 40),
        dict(interval_s=0.0),
        dict(full_percent=float("nan")),
        dict(overhead_ms=-1.0),
        dict(depth=0),
        dict(seed=-1),
    ):
        with pytest.raises(ValueError):
            drive.replay_files(b"", **how)


def test_numpy_is_not_needed():
    program = """
import sys
sys.modules["numpy"] = None
from elbowroom.disk import Drive
drive = Drive("hp-c2247a")
table = drive.simulate(requests=10).table
assert type(table["lbn"]) is memoryview and len(table["lbn"]) == 10 and table["write"].tolist() == [True] * 10
assert drive.locate(123456) == tuple(column[1] for column in drive.locate([0, 123456]))
assert len(drive.seek_table()) == drive.cylinders
"""
    subprocess.run([sys.executable, "-c", program], check=True)
