#!/usr/bin/env python3
"""Measures what a journal on a write-ahead region gains: `make bench-bark`. Needs root.

TPC-B on SQLite and PostgreSQL, and appends, on a real ext4 whose journal lies on a device of its own: the emulated disk as it is ("plain"), a region on such a
disk, its places chosen by a profile that is measured here ("Bark"), or memory ("null"). The data lie on a second emulated disk or in memory. Beside that, short entries, each made
durable: appended to a file on an ext4 that lies on an emulated disk all of it, to a log (`elbow_disk::region::Log`) on one such disk, and to one on two.

    bench/bark.py                                             everything, five rounds
    bench/bark.py --data memory --modes ordered --programs sqlite-rollback,append
    bench/bark.py --profile model                             places by the model's own times, without measuring
    bench/bark.py --tiny                                      a minute, to see that the bench itself works

A round goes through all settings in an order by the seed; in each, its three journals (or files) one after the other, in such an order. Each is made anew, and then attached again. An emulated disk
says how late its answers were: where that was too much on any of the three, all three are rejected, and counted. Ratios are of the three of one round; what is
told are medians of those.
"""

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import bark_report, block_trace, build, disks, emulated, inputs, peers, postgres, report, tpcb
from harness.bark_report import BARK, DATA, ENTRIES, FILE, JOURNALS, LOGS, NULL, PLAIN, PROGRAMS, TWO_DISKS

MODES = ["ordered", "journal"]
CACHES = ["cached", "uncached"]
ROUNDS = 5
SEED = 1
WARM_UP_SHARE = 0.1
LATE_P99_US = 1000.0  # An eighth of a turn.
FAILURES = (peers.Failed, subprocess.SubprocessError, OSError, ValueError, KeyError)
SQLITE_MODES = {"sqlite-rollback": "DELETE", "sqlite-wal": "WAL"}
DATABASE = "bank.sqlite"
ENTRY_BYTES = 200


@dataclass(frozen=True)
class Setting:
    """All but the journal's device."""

    data: str
    mode: str
    program: str
    cache: str

    peers = JOURNALS

    @property
    def storage(self):
        return f"{DATA[self.data]}, data={self.mode}"

    @property
    def job(self):
        return f"{PROGRAMS[self.program]}, {self.cache}" if self.program in SQLITE_MODES else PROGRAMS[self.program]


class Entries:
    """Short entries, on emulated disks alone."""

    peers, storage, job, program = LOGS, ENTRIES, f"{ENTRY_BYTES} bytes", "log"


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, Bench.end)
    results = report.Results()
    results.host = {**build.describe_host(options.disk), "rounds": options.repeat, "transactions": options.transactions, "seed": options.seed, "profile": options.profile,
                    "rejected where an emulated disk's answers were later than": f"{options.late_us:.0f} us (p99)"}
    try:
        disks.need_root()
        emulated.in_own_namespace()
        for example in ("model_profile", "log_appends"):
            options.elbow, programs = build.programs(options.elbow, "elbow-disk", example)
        options.programs_built = programs / "examples"
        measure(options, results)
    except inputs.Unavailable as error:
        print(f"SKIPPED: {error}")
        sys.exit(1 if build.IN_CI else 0)
    results.exit()


def parse():
    parser = build.Parser(__doc__)
    parser.add_choice("--data", DATA)
    parser.add_choice("--modes", MODES)
    parser.add_choice("--programs", [*PROGRAMS, Entries.program])
    parser.add_choice("--caches", CACHES, more=", of SQLite")
    parser.add_argument("--transactions", type=int, help="of each measurement (default: 200)")
    parser.add_argument("--accounts", type=int, help="rows of the database, of 100 bytes (default: 50000)")
    parser.add_argument("--journal", type=build.size, help="bytes of the journal; the region has four times as many (default: 16M)")
    parser.add_argument("--late-us", type=float, default=LATE_P99_US, help="p99 of an emulated disk's lateness from which on a measurement is rejected (default: 1000)")
    parser.add_argument("--seed", type=int, default=SEED, help="of orders and transactions (default: 1)")
    parser.add_argument("--profile", choices=["measured", "model"], help="where the region's profile comes from (default: measured; with --tiny model)")
    parser.add_common(out="bark", disk="what the emulated disks hold", tiny="five settings, few transactions, one round", repeat=", here 5")
    options = parser.parse_args()
    options.settings = settings(options)
    options.transactions = options.transactions or (12 if options.tiny else 200)
    options.accounts = options.accounts or (2000 if options.tiny else 50_000)
    options.journal = options.journal or ((8 << 20) if options.tiny else (16 << 20))
    options.profile = options.profile or ("model" if options.tiny else "measured")
    options.repeat = options.repeat or (1 if options.tiny else ROUNDS)
    return options


def settings(options):
    """All that were asked for. Of tiny ones each part is in one."""
    if options.tiny:
        found = [Setting("disk", "ordered", "sqlite-rollback", "uncached"), Setting("memory", "journal", "sqlite-wal", "cached"),
                 Setting("memory", "ordered", "append", "cached"), Entries()]
        return found + ([Setting("memory", "ordered", "pgbench", "cached")] if postgres.is_there() else [])
    wanted = options.programs or [*PROGRAMS, Entries.program]
    every = [Setting(data, mode, program, cache) for data in options.data or DATA for mode in options.modes or MODES
             for program in PROGRAMS if program in wanted for cache in options.caches or CACHES]
    every += [Entries()] if Entries.program in wanted else []
    return list({(setting.storage, setting.job): setting for setting in every}.values())


def measure(options, results):
    """All rounds; the results are written whatever happens."""
    if options.tiny and not postgres.is_there():
        results.skipped.append("PostgreSQL, pgbench: it is not installed")
        print(f"SKIPPED: {results.skipped[-1]}")
    with tempfile.TemporaryDirectory(prefix="elbow-bench-bark-", dir=options.disk) as work, \
            tempfile.TemporaryDirectory(prefix="elbow-bench-bark-", dir="/dev/shm") as memory:
        for place in (work, memory):
            os.chmod(place, 0o711)  # PostgreSQL's user goes through.
        bench = Bench(options, Path(work), Path(memory), results)
        try:
            bench.start()
            bench.run()
        finally:
            bench.stop()
            print(bark_report.write(results, options.out))


class Bench:
    """Settings and journals, in turn."""

    is_ended = False

    @classmethod
    def end(cls, *_):
        """At a signal. What fails on the way out must not take its place."""
        cls.is_ended = True
        sys.exit(143)

    def __init__(self, options, work, memory, results):
        self.options, self.work, self.memory, self.results = options, work, memory, results
        elbow = emulated.Elbow(options.elbow)
        self.region = emulated.Region(elbow, work, "bark", options.journal)
        self.journals = {PLAIN: emulated.Drive(elbow, work, "plain", options.journal), BARK: self.region,
                         NULL: emulated.Memory(memory, "null", options.journal)}
        size = max(64 << 20, 4 * tpcb.bytes_of(options.accounts))
        self.data = {"disk": emulated.Drive(elbow, work, "data", size), "memory": emulated.Memory(memory, "data", size)}
        self.logs = [emulated.Drive(elbow, work, name, self.region.drive.size_bytes, is_file=True) for name in ("first", "second")]
        self.ext4, self.trace = emulated.Ext4(work), None

    def start(self):
        if self.options.profile == "model":
            self.region.take_from_model(self.options.programs_built / "model_profile")
        else:
            print(f"the profile of the journal's disk is being measured, in a minute or two ({emulated.MODEL}) ...")
            self.results.rows["profile"] = self.region.measure()
        bark_report.keep_profile(self.region.profile, self.options.out)
        try:
            self.trace = block_trace.BlockTrace()
        except inputs.Unavailable as error:
            self._skip(error)
        if any(setting.program == "pgbench" for setting in self.options.settings) and not postgres.is_there():
            self._skip(f"PostgreSQL: {postgres.MISSING}")
            self.options.settings = [setting for setting in self.options.settings if setting.program != "pgbench"]

    def _skip(self, text):
        self.results.skipped.append(str(text))
        print(f"SKIPPED: {text}")

    def run(self):
        for round in range(self.options.repeat):
            order = random.Random(self.options.seed + round)
            for setting in order.sample(self.options.settings, len(self.options.settings)):
                runs = [self._once(setting, journal, round) for journal in order.sample(setting.peers, len(setting.peers))]
                self._judge(setting, runs)

    def _judge(self, setting, runs):
        """All three are of no use where one of them was late."""
        late = [value for run in runs for name, value in run["details"].items() if name.endswith("_late_p99_us")]
        is_rejected = any(value > self.options.late_us for value in late)
        for run in runs:
            run["details"]["rejected"] = is_rejected
        if is_rejected:
            print(f"rejected: {setting.storage}, {setting.job}: answers came {max(late):.0f} us late (p99)")

    def stop(self):
        if self.trace:
            self.trace.close()
        for part in [*self.journals.values(), *self.data.values(), *self.logs]:
            with contextlib.suppress(peers.Failed):
                part.detach()

    def _once(self, setting, peer, round):
        outcome = dict(storage=setting.storage, says="", job=setting.job, peer=peer, repetition=round, rival=False, seconds=None,
                       details={"load_average": os.getloadavg()[0]}, wrong=[], failed=None)
        try:
            if isinstance(setting, Entries):
                self._measure_entries(peer, outcome)
            else:
                self._measure(setting, peer, round, outcome)
        except FAILURES as error:
            if self.is_ended:
                raise SystemExit(143) from error
            outcome["failed"] = (getattr(error, "stderr", None) or str(error)).strip()[-300:]
        self.results.add(**outcome)
        found = outcome["details"]
        print(f"{setting.storage:30} {setting.job:33} {peer:18} #{round} " + (f"FAILED {outcome['failed']}" if outcome["failed"] else
              f"{found['mean_ms']:8.2f} ms, p50 {found['p50_ms']:8.2f}, p99 {found['p99_ms']:8.2f}, load {found['load_average']:.1f}"))
        return self.results.runs[-1]

    def _measure(self, setting, journal, round, outcome):
        def transactions(devices):
            self._on_ext4(*devices, setting.mode, lambda: self._transactions(setting, devices[1], round, outcome))
            outcome["wrong"] += self.ext4.check(*devices)
        parts = [self.data[setting.data], self.journals[journal]]
        self._made(parts, setting.mode, lambda: self._prepare(setting))
        self._attached(parts, transactions, outcome["details"])

    def _measure_entries(self, peer, outcome):
        if peer == FILE:
            disk = [self.data["disk"]]
            appended = lambda devices: self._on_ext4(*devices, None, "ordered", lambda: self._append_entries(outcome))
            self._made(disk, "ordered", lambda: None)
            self._attached(disk, appended, outcome["details"])
        else:
            drives = self.logs if peer == TWO_DISKS else self.logs[:1]
            self._attached(drives, lambda devices: self._log_entries(devices, outcome), outcome["details"])

    def _made(self, parts, mode, prepare):
        """An ext4 on them, with what is there before. Apart from what is measured: how late answers to a mkfs are is of no interest."""
        def make(devices):
            both = (*devices, None)[:2]
            self.ext4.make(*both)
            self._on_ext4(*both, mode, prepare)
        self._attached(parts, make, {})

    def _attached(self, parts, measure, details):
        """With their devices; what they say of themselves at their end goes to the details."""
        with contextlib.ExitStack() as ends:
            for part in parts:
                ends.callback(lambda part=part: details.update(part.detach()))
            measure([part.attach() for part in parts])

    def _on_ext4(self, data, journal, mode, measure):
        self.ext4.mount(data, journal, mode)
        try:
            measure()
        finally:
            self.ext4.unmount()

    def _prepare(self, setting):
        if setting.program in SQLITE_MODES:
            tpcb.load(self.ext4.place / DATABASE, self.options.accounts)

    def _append_entries(self, outcome):
        client = tpcb.Appends(self.ext4.place / "appended", ENTRY_BYTES)
        try:
            with woken_first():
                ms = client.transactions(self.options.transactions)
            self._note(ms, outcome)
            outcome["wrong"] += client.wrong()
        finally:
            client.close()

    def _log_entries(self, devices, outcome):
        words = [word for device in devices for word in (device, self.region.profile)]
        with woken_first():
            said = emulated.run(self.options.programs_built / "log_appends", self.options.transactions, ENTRY_BYTES, *words)
        self._note([float(line) for line in said.split()], outcome)

    def _note(self, ms, outcome):
        outcome["seconds"] = sum(ms) / 1000
        outcome["details"].update(mean_ms=statistics.fmean(ms), p50_ms=bark_report.percentile(ms, 50), p99_ms=bark_report.percentile(ms, 99))

    def _transactions(self, setting, device, round, outcome):
        client, count = self._client(setting, round), self.options.transactions
        try:
            client.transactions(max(1, int(count * WARM_UP_SHARE)))
            if self.trace:
                self.trace.start(device)
            with woken_first():
                ms = client.transactions(count)
            writes = self.trace.stop() if self.trace else None
            outcome["wrong"] += client.wrong()
        finally:
            client.close()
        self._note(ms, outcome)
        if writes:
            outcome["details"].update(journal_writes=len(writes), journal_write_p50_ms=bark_report.percentile(writes, 50), journal_writes_ms=bark_report.spread(writes))

    def _client(self, setting, round):
        place, seed = self.ext4.place, self.options.seed + round
        if setting.program == "append":
            return tpcb.Appends(place / "appended")
        if setting.program == "pgbench":
            return postgres.PgBench(place, self.memory, self.options.accounts, seed)
        return tpcb.TpcB(place / DATABASE, self.options.accounts, SQLITE_MODES[setting.program], setting.cache == "cached", seed)


@contextlib.contextmanager
def woken_first():
    """The client, and what it starts, before all that is not real-time, as the emulated disks are: what else the machine does is not to be measured. Where it is not allowed, it is."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


if __name__ == "__main__":
    main()
