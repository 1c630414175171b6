"""PostgreSQL with its log (`pg_wal`) on the file system that is measured and all else in memory, under pgbench's own TPC-B.

The programs are Debian's (package `postgresql`), run as its user: as root they refuse.
"""

import glob
import os
import shutil
import subprocess
from pathlib import Path

from .peers import Failed

USER = "postgres"
MISSING = "not installed (apt-get install postgresql)"
ACCOUNTS_PER_SCALE = 100_000  # As pgbench(1) has it.
SETTINGS = {"listen_addresses": "''", "max_wal_size": "16MB", "min_wal_size": "4MB", "autovacuum": "off", "checkpoint_timeout": "1h"}
SEGMENT_MB = 1  # Of the log: the smallest, as the file system is small.


def is_there():
    return _programs() is not None


def _programs():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    return Path(found[-1]).parent if found else None


class PgBench:
    """One client of a server that is started for it, on a copy of a cluster that is made once."""

    def __init__(self, mount, memory, accounts, seed):
        self.memory, self.seed, self.done = memory, seed, 0
        self.template, self.cluster, self.log = memory / "postgres-template", memory / "postgres", mount / "pg_wal"
        if not self.template.exists():
            self._make(max(1, accounts // ACCOUNTS_PER_SCALE))
        shutil.rmtree(self.cluster, ignore_errors=True)
        _run("cp", "-a", self.template, self.cluster)
        shutil.copytree(self.template / "pg_wal", self.log)
        _run("chown", "-R", USER, self.log)
        shutil.rmtree(self.cluster / "pg_wal")
        _as_user("ln", "-s", self.log, self.cluster / "pg_wal")
        self._start(self.cluster)

    def _make(self, scale):
        place = self.memory / "postgres-new"
        place.mkdir()
        _run("chown", USER, place)
        _as_user(_programs() / "initdb", "-D", place, "-A", "trust", "-U", USER, "--no-sync", f"--wal-segsize={SEGMENT_MB}")
        self._start(place)
        try:
            self._ask("pgbench", "-i", "-q", "-s", scale)
        finally:
            _stop(place, "fast")
        place.rename(self.template)

    def _start(self, place):
        words = [f"-c {name}={value}" for name, value in {**SETTINGS, "unix_socket_directories": str(place)}.items()]
        self.place = place
        _as_user(_programs() / "pg_ctl", "-D", place, "-w", "-t", "120", "-l", place / "server.log", "-o", " ".join(words), "start")

    def _ask(self, program, *words):
        return _as_user(_programs() / program, "-h", self.place, "-U", USER, *words, directory=self.place)

    def transactions(self, count):
        """The ms of each."""
        for old in self.cluster.glob("times.*"):
            old.unlink()
        self._ask("pgbench", "-n", "-c", 1, "-M", "prepared", "-t", count, "--log", "--log-prefix", self.cluster / "times",
                  "--random-seed", self.seed + self.done)
        self.done += count
        lines = next(self.cluster.glob("times.*")).read_text().splitlines()
        return [int(line.split()[2]) / 1000 for line in lines]

    def wrong(self):
        """What does not add up."""
        tables = {"accounts": "abalance", "tellers": "tbalance", "branches": "bbalance", "history": "delta"}
        sums = ", ".join(f"(select coalesce(sum({column}), 0) from pgbench_{table})" for table, column in tables.items())
        said = self._ask("psql", "-At", "-F", " ", "-c", f"select {sums}, (select count(*) from pgbench_history)", "postgres").split()
        found = [] if len(set(said[:4])) == 1 else [f"the sums differ: {said[:4]}"]
        return found + ([] if int(said[4]) == self.done else [f"{said[4]} rows of history for {self.done} transactions"])

    def close(self):
        _stop(self.cluster, "fast")


def _stop(place, mode):
    _as_user(_programs() / "pg_ctl", "-D", place, "-w", "-m", mode, "stop")


def _as_user(*command, directory="/"):
    return _run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *command, directory=directory)


def _run(*command, directory="/"):
    # A server that is started keeps what it was given as its output: so no pipes, or we would wait for it.
    words = [str(word) for word in command]
    is_server = "start" in words
    output = subprocess.DEVNULL if is_server else subprocess.PIPE
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True, cwd=directory, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise Failed(f"{' '.join(words[:7])}: exit code {done.returncode}: {(done.stderr or '').strip()[-300:]}")
    return done.stdout
