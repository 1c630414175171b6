"""TPC-B on SQLite, and appends of a file: the transactions of Table 3, timed one by one.

A transaction adds an amount to an account, a teller and a branch and writes that into the history (TPC Benchmark B, clause 1.2), in one commit that is on the storage when it
returns (`synchronous=FULL`). Not here: what it scales the tables by; the database is as large as is said.
"""

import os
import random
import sqlite3
import time

BRANCHES, TELLERS = 1, 10
FILLER = "x" * 80  # A row takes about 100 bytes, as the benchmark demands.
PAGE_BYTES = 4096
SMALL_CACHE_PAGES = 16  # What every transaction needs: the tables' upper pages, branch, teller, the end of the history.
APPEND_BYTES = 4096


def load(path, accounts):
    """Writes a database of so many accounts, all of them empty; durable when this returns."""
    memory = sqlite3.connect(":memory:")
    memory.executescript(f"""PRAGMA page_size={PAGE_BYTES};
        CREATE TABLE branches (id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT);
        CREATE TABLE tellers (id INTEGER PRIMARY KEY, branch INTEGER, balance INTEGER, filler TEXT);
        CREATE TABLE accounts (id INTEGER PRIMARY KEY, branch INTEGER, balance INTEGER, filler TEXT);
        CREATE TABLE history (teller INTEGER, branch INTEGER, account INTEGER, delta INTEGER, at REAL, filler TEXT);""")
    with memory:
        memory.executemany("INSERT INTO branches VALUES (?, 0, ?)", ((id, FILLER) for id in range(BRANCHES)))
        memory.executemany("INSERT INTO tellers VALUES (?, 0, 0, ?)", ((id, FILLER) for id in range(TELLERS)))
        memory.executemany("INSERT INTO accounts VALUES (?, 0, 0, ?)", ((id, FILLER) for id in range(accounts)))
    content = memory.serialize()
    memory.close()
    with open(path, "wb") as file:
        file.write(content)
        os.fsync(file.fileno())


class TpcB:
    """One client of a database. `is_cached`: all of it is in memory; else each transaction reads its account from the disk."""

    def __init__(self, path, accounts, mode, is_cached, seed):
        self.path, self.accounts, self.is_cached, self.random = path, accounts, is_cached, random.Random(seed)
        self.done, self.file = 0, os.open(path, os.O_RDONLY)  # Closed last: closing it would drop SQLite's locks.
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute(f"PRAGMA journal_mode={mode}")
        self.database.execute("PRAGMA synchronous=FULL")
        if is_cached:
            self.database.execute("SELECT sum(balance) FROM accounts").fetchall()
        else:
            self.database.execute(f"PRAGMA cache_size={SMALL_CACHE_PAGES}")

    def transactions(self, count):
        """The ms of each."""
        return [self._transaction() for _ in range(count)]

    def _transaction(self):
        account, teller, delta = self.random.randrange(self.accounts), self.random.randrange(TELLERS), self.random.randrange(-99999, 100000)
        if not self.is_cached:  # Pages that are not stored yet stay.
            os.posix_fadvise(self.file, PAGE_BYTES, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        execute = self.database.execute
        execute("BEGIN IMMEDIATE")
        execute("UPDATE accounts SET balance = balance + ? WHERE id = ?", (delta, account))
        execute("SELECT balance FROM accounts WHERE id = ?", (account,)).fetchone()
        execute("UPDATE tellers SET balance = balance + ? WHERE id = ?", (delta, teller))
        execute("UPDATE branches SET balance = balance + ? WHERE id = 0", (delta,))
        execute("INSERT INTO history VALUES (?, 0, ?, ?, ?, ?)", (teller, account, delta, time.time(), FILLER[:22]))
        execute("COMMIT")
        self.done += 1
        return (time.perf_counter() - began) * 1000

    def wrong(self):
        """What does not add up (clause 3.1: the sums of all balances and of the history are equal)."""
        ask = lambda text: self.database.execute(text).fetchone()[0]
        sums = {ask(f"SELECT coalesce(sum(balance), 0) FROM {table}") for table in ("branches", "tellers", "accounts")}
        sums.add(ask("SELECT coalesce(sum(delta), 0) FROM history"))
        rows, checked = ask("SELECT count(*) FROM history"), ask("PRAGMA integrity_check")
        found = [] if len(sums) == 1 else [f"the sums differ: {sorted(sums)}"]
        found += [] if rows == self.done else [f"{rows} rows of history for {self.done} transactions"]
        return found + ([] if checked == "ok" else [f"integrity_check: {checked}"])

    def close(self):
        self.database.close()
        os.close(self.file)


class Appends:
    """Appends to a file, each with an fsync(2)."""

    def __init__(self, path, entry_bytes=APPEND_BYTES):
        self.done, self.entry, self.file = 0, b"x" * entry_bytes, os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def transactions(self, count):
        """The ms of each."""
        return [self._append() for _ in range(count)]

    def _append(self):
        began = time.perf_counter()
        os.write(self.file, self.entry)
        os.fsync(self.file)
        self.done += 1
        return (time.perf_counter() - began) * 1000

    def wrong(self):
        size = os.fstat(self.file).st_size
        return [] if size == self.done * len(self.entry) else [f"{size} bytes after {self.done} appends"]

    def close(self):
        os.close(self.file)


def bytes_of(accounts):
    """What a database of so many takes, about."""
    return 120 * accounts
