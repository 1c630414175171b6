#!/usr/bin/env python3
"""Measures `elbow run` against its rivals on slow storage: `make bench-run`.

One interleaved run: each repetition goes through all storages, jobs and peers in turn (the peers start at another one
each time), so that a noisy machine is noisy for all of them. Each run begins with fresh storage and ends with a
comparison of the server's side with what must be there, at the instant the peer said that it was done.

    bench/run.py                                        everything that can be had here
    bench/run.py --storage slowfs2 --jobs tar,rm        a part of it
    bench/run.py --tiny                                 seconds, to see that the bench itself works

Storages: slowfs2 (2 ms per operation), ssh0.5 and ssh5 (sshfs, ms one way), far0.5 far5 far50
(the same without a mount, for what needs none), far5-100m (over 100 Mbit/s), nfs3-2 nfs4-2 nfs3-10 nfs4-10 (kernel NFS,
ms round trip, inside user-mode-linux), local (a local disk, what the mount costs where nothing is slow).
CANNYFS names a CannyFS binary to measure too (CANNYFS_OPTIONS: more options for it).
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import inputs, jobs, nfs, peers, report, rows, storage, trees
from harness.build import BUILT, PROFILE, ROOT, Parser

STORAGES = ["slowfs2", "ssh0.5", "ssh5", "far0.5", "far5", "far50", "far5-100m", "nfs3-2", "nfs4-2", "nfs3-10", "nfs4-10", "local"]
JOBS = ["tar", "unzip", "rm", "cp", "make", "append", "patch", "mv", "scatter", "read", "find", "git"]
READING_JOBS = ["read", "find", "git"]  # On storages without a mount; of an old file of 1 GiB and old trees of 20,000.
PEERS = ["direct", "elbow", "elbow --via", "elbow over SFTP", "tmpfs+rsync", "tmpfs+copy32", "ssh tar", "CannyFS"]
LOCAL_JOBS = ["tar", "make"]  # What the mount costs on a fast disk.
FILES, TINY_FILES = 2335, 60
# Where every operation takes long, the whole input takes the peers that do one after another hours.
FEWER_FILES = {"ssh5": 500, "nfs3-2": 300, "nfs4-2": 300, "nfs3-10": 300, "nfs4-10": 300}
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, RuntimeError, OSError)
MEMORY_MIB, TINY_MEMORY_MIB, MEM_LIMIT_MIB = 2048, 128, 64


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    programs = build(options)
    results = report.Results()
    with tempfile.TemporaryDirectory(prefix="elbow-bench-", dir=options.work or storage.place_for_servers()) as memory:
        with tempfile.TemporaryDirectory(prefix="elbow-bench-", dir=options.disk) as disk:
            bench = Bench(options, programs, Path(memory), Path(disk), results)
            try:
                bench.run()
            finally:
                bench.stop()
                print(report.write(results, options.out))
    results.exit()


def parse():
    parser = Parser(__doc__)
    parser.add_choice("--storage", STORAGES)
    parser.add_choice("--jobs", JOBS)
    parser.add_choice("--peers", PEERS)
    parser.add_common(out="", disk="for the local storage", tiny="a small input, slowfs only, once")
    parser.add_cache("inputs are")
    parser.add_argument("--files", type=int, help=f"how many files of the Linux sources (default: {FILES}, on "
                        + ", ".join(f"{name} {files}" for name, files in FEWER_FILES.items()) + ")")
    parser.add_argument("--no-rows", action="store_true", help="only the matrix: no start-up, memory and tmpfs rows")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # In the NFS guest.
    parser.add_argument("--programs", type=Path, help="where the testkit's programs are (default: build them)")
    parser.add_argument("--work", type=Path, help="where the servers' directories are (default: /dev/shm with 4 GiB free)")
    options = parser.parse_args()
    options.storage = options.storage or (["slowfs2", "local"] if options.tiny else STORAGES)
    options.jobs = options.jobs or ([job for job in JOBS if job != "make"] if options.tiny else JOBS)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    options.files = options.files or (TINY_FILES if options.tiny else None)
    return options


def build(options):
    """The directory with the testkit's programs; options.elbow is set."""
    packages = [package for package, given in (("elbow", options.elbow), ("elbow-testkit", options.programs)) if not given]
    if packages:
        words = [word for package in packages for word in ("-p", package)]
        subprocess.run(["cargo", "build", "--profile", PROFILE, "--quiet", *words], cwd=ROOT, check=True)
    options.elbow = (options.elbow or BUILT / "elbow").resolve()
    return (options.programs or BUILT).resolve()


def files_on(options, storage_name):
    """How many files the input of the jobs on this storage has."""
    return options.files or FEWER_FILES.get(storage_name, FILES)


class Bench:
    """The matrix, in turn."""

    def __init__(self, options, programs, memory, disk, results):
        self.options, self.programs, self.memory, self.disk, self.results = options, programs, memory, disk, results
        self.storages, self.references = [], {}
        self.jobs, self.inputs = {}, {}  # By number of files.

    def run(self):
        results, options = self.results, self.options
        results.host = describe_host(options, self.memory, self.disk)
        guests = [name for name in options.storage if name.startswith("nfs") and not options.inside]
        self._start_storages([name for name in options.storage if name not in guests])
        for repetition in range(options.repeat):
            for place in self.storages:
                for job in self._jobs_on(place):
                    self._round(place, job, repetition)
        self._rows()
        if guests:
            self._run_guests(guests)

    def stop(self):
        for place in self.storages:
            place.stop()

    def _make_jobs(self, files):
        linux = self.inputs[files] = inputs.linux(self.options.cache, files, links=False)
        scratch = self.memory / f"scratch-{files}"
        scratch.mkdir()
        find_hello = lambda: inputs.hello(self.options.cache)
        made, skipped = jobs.make_jobs(self.options.jobs, linux, find_hello, scratch)
        for text in skipped:
            self._skip(text)
        return made

    def _start_storages(self, names):
        for name in names:
            try:
                place = self._make_storage(name)
                place.start()
                self.storages.append(place)
                files = files_on(self.options, name)
                if files not in self.jobs:
                    self.jobs[files] = self._make_jobs(files)
                linux = self.inputs[files]
                place.says += f"; {linux.files} files, {linux.bytes / 1e6:.0f} MB"
            except inputs.Unavailable as error:
                self._skip(f"{name}: {error}")

    def _make_storage(self, name):
        if name.startswith("slowfs"):
            return storage.SlowFs(name, f"{name.removeprefix('slowfs')}ms", self.memory, self.programs)
        if name.startswith("ssh"):
            return storage.Ssh(name, f"{name.removeprefix('ssh')}ms", self.memory, self.programs)
        if name.startswith("far"):
            one_way, _, rate = name.removeprefix("far").partition("-")
            megabits = int(rate.removesuffix("m")) if rate else None
            return storage.Far(name, f"{one_way}ms", self.memory, self.programs, megabits)
        if name.startswith("nfs"):
            return nfs.Nfs(name, self.memory)
        return storage.Local(name, self.disk)

    def _run_guests(self, names):
        try:
            found = nfs.run_in_guest(names, {files_on(self.options, name) for name in names}, self.options, self.programs)
            self.results.runs += found["runs"]
            for text in found["skipped"]:
                self._skip(f"in the NFS guest: {text}")
        except inputs.Unavailable as error:
            self._skip(f"{', '.join(names)}: {error}")

    def _jobs_on(self, place):
        local = isinstance(place, storage.Local)
        made = self.jobs[files_on(self.options, place.name)]
        if not isinstance(place, storage.Far) and not self.options.tiny:
            made = [job for job in made if job.name not in READING_JOBS]
        return [job for job in made if not local or job.name in LOCAL_JOBS]

    def _peers_on(self, place, job):
        stage = self.memory
        known = [peers.Direct(), peers.Elbow(self.options.elbow)]
        if isinstance(place, storage.Far):
            known = [peers.ElbowVia(self.options.elbow), peers.ElbowSftp(self.options.elbow), peers.SshTar(stage)]
        elif not isinstance(place, storage.Local):
            known += [peers.ElbowVia(self.options.elbow), peers.ElbowSftp(self.options.elbow)]
            known += [peers.Rsync(stage), peers.ParallelCopy(stage, self.programs), peers.SshTar(stage)]
            known += self._cannyfs()
        wanted = self.options.peers
        return [peer for peer in known if (not wanted or peer.name in wanted) and peer.can(job, place)]

    def _cannyfs(self):
        program = os.environ.get("CANNYFS")
        return [peers.CannyFs(program, self.memory)] if program else []

    def _round(self, place, job, repetition):
        """All peers in turn; the one that begins is another one each time, but a reference is made first."""
        turn = self._peers_on(place, job)
        first = repetition % len(turn) if turn and self._reference(place, job) is not None else 0
        for peer in turn[first:] + turn[:first]:
            self._once(place, job, peer, repetition)

    def _once(self, place, job, peer, repetition):
        outcome = dict(storage=place.name, says=place.says, job=job.name, peer=peer.name, repetition=repetition,
                       rival=peer.rival, seconds=None, details={}, wrong=[], failed=None, server=None)
        try:
            place.fresh(job.populate)
            run = peer.run(job, place)
            names = trees.count(place.backing)  # At this instant.
            outcome.update(seconds=run.seconds, details=run.details, server=place.stats())
            wrong = self._verify(place, job, names)
            outcome["wrong"] = [line for line in wrong if peer.keeps_directory_times or not _of_directory_time(job, line)]
        except FAILURES as error:
            outcome["failed"] = str(error)
        self.results.add(**outcome)
        problem = outcome["failed"] or "; ".join(outcome["wrong"][:3])
        took = f"{outcome['seconds']:8.2f} s" if outcome["seconds"] is not None else " " * 10
        print(f"{place.name:8} {job.name:6} {peer.name:13} #{repetition} {took} {'WRONG: ' + problem if problem else ''}")
        place.unmount()

    def _reference(self, place, job):
        return job.expected if job.expected is not None else self.references.get((place.name, job.name))

    def _verify(self, place, job, names):
        found, expected = trees.snapshot(place.backing), self._reference(place, job)
        if expected is None:
            expected = self.references.setdefault((place.name, job.name), found)
        late = [] if names == len(found) else [f"{names} names on the server when it returned, {len(found)} later"]
        return late + trees.difference(found, expected, job.aspects, job.ignored) + job.check(place.backing)

    def _rows(self):
        if self.options.no_rows:
            return
        elbow = self.options.elbow
        self._row("native_extraction", self._native_extractions)
        self._row("start", lambda: rows.start_cost(elbow, self.memory))
        slow = next((place for place in self.storages if isinstance(place, storage.SlowFs)), None)
        if slow:
            mebibytes = TINY_MEMORY_MIB if self.options.tiny else MEMORY_MIB
            self._row("memory", lambda: rows.memory_peak(elbow, slow, mebibytes, MEM_LIMIT_MIB))

    def _native_extractions(self):
        """Seconds of tar on tmpfs for the input of each storage."""
        repeat = max(self.options.repeat, report.ALWAYS_WANTED_REPEAT)
        seconds = {files: rows.native_extraction(linux, self.memory, repeat) for files, linux in self.inputs.items()}
        return {place.name: seconds[files_on(self.options, place.name)] for place in self.storages}

    def _row(self, name, measure):
        try:
            self.results.rows[name] = measure()
            print(f"{name}: {self.results.rows[name]}")
        except FAILURES as error:
            self.results.add(storage="-", says="", job=name, peer="elbow", repetition=0, rival=False, seconds=None,
                             details={}, wrong=[], failed=str(error), server=None)

    def _skip(self, text):
        print(f"bench: skipped {text}")
        self.results.skipped.append(text)


def _of_directory_time(job, line):
    path, _, difference = line.partition(": ")
    return difference.startswith("mtime is") and (job.expected or {}).get(path, {}).get("kind") == "directory"


def current_commit():
    git = inputs.find_program("git")
    if not git:
        return "unknown"
    said = subprocess.run([git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def describe_host(options, memory, disk):
    return {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "host": platform.node(), "commit": current_commit(),
            "kernel": platform.release(), "processors": len(os.sched_getaffinity(0)),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
            "user": "root" if os.geteuid() == 0 else "ordinary",
            "servers' directories on": storage.file_system(memory), "local disk": storage.file_system(disk),
            "repetitions": options.repeat}


if __name__ == "__main__":
    main()
