"""The client: sessions shared within a process, holds for threads and for asyncio.

A `LockClient` is only a description (address, key file, lease). The session behind it is made when it is needed, is the same
for all equal descriptions in a process, and is never taken along by a fork or a pickle.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import math
import os
import re
import threading
import weakref
from typing import Any, Optional

from . import _native
from ._ranges import Ranges, footprint

ADDRESS_VARIABLE = "ELBOW_LOCKS"
#: Longest wait that the service knows, ms; longer is for ever.
TIMEOUT_MS_MAX = 2**32 - 1

_Description = tuple[str, Optional[str], Optional[int]]


class Name(str):
    """The name of something to lock that is no path: it is taken as it is, and means the same on every machine."""


class LockClient:
    """A client of a lock service.

    `url`: `unix:PATH` or `tcp:HOST:PORT`; without it what ELBOW_LOCKS names. `key_file`: what a service on TCP and we
    know each other by, a file with a shared key or a directory with certificates; without it what ELBOW_LOCKS_KEY names. `ttl`: for how many seconds our locks outlive our last message;
    without it 10 over TCP, and over a Unix socket as long as the process has it.

    It may be used from many threads and tasks, and pickled; after a fork the child has a session of its own. It connects
    when it is first used.
    """

    def __init__(
        self, url: str | None = None, key_file: str | os.PathLike[str] | None = None, ttl: float | None = None
    ) -> None:
        url = url or os.environ.get(ADDRESS_VARIABLE)
        if not url:
            raise ValueError(f"which lock service? Give its address, or set {ADDRESS_VARIABLE}")
        self._description: _Description = (
            url,
            None if key_file is None else os.path.abspath(key_file),
            None if ttl is None else _milliseconds(ttl),
        )
        self._session: _native.Session | None = None
        self._process = 0

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._description[0]

    def hold(
        self,
        path: str | os.PathLike[str] | Name,
        ranges: Ranges = None,
        shared: bool = False,
        timeout: float | None = None,
    ) -> Holding:
        """A lock on some bytes of a file, for a `with` block.

        `path`: of a file, which need not exist; or a `Name`, or a text with a scheme (`s3://bucket/key`), which are
        taken as they are. `ranges`: None for the whole file; `(offset, length)` pairs; a NumPy array of shape (n, 2); a
        `slice`; a `Strided` or several. All of it is granted at once. `shared`: others may hold it shared too.
        `timeout`: seconds; None waits as long as it takes, 0 not at all.

        The block ends with `Lost` if the lock was not ours until then. To enter it raises `WouldBlock`, `TimedOut`,
        `Deadlock`, `Unreachable` or another `LockError`.
        """
        return Holding(self, _name(path), footprint(ranges), shared, _timeout_ms(timeout))

    def hold_async(
        self,
        path: str | os.PathLike[str] | Name,
        ranges: Ranges = None,
        shared: bool = False,
        timeout: float | None = None,
    ) -> AsyncHolding:
        """As `hold`, for an `async with` block. A task that is cancelled while it waits gets no lock."""
        return AsyncHolding(self, _name(path), footprint(ranges), shared, _timeout_ms(timeout))

    def is_locked(self, path: str | os.PathLike[str] | Name) -> bool:
        """Whether anybody holds any part of a file, shared or not, at this moment."""
        return self._connected().is_locked(_name(path))

    def status(self) -> str:
        """What the service holds and who waits: a JSON object."""
        return self._connected().status()

    def _connected(self) -> _native.Session:
        session = self._session
        if session is None or self._process != os.getpid():
            session = _session(self._description)
            self._session, self._process = session, os.getpid()
        return session

    def __reduce__(self) -> tuple[Any, ...]:
        url, key_file, ttl_ms = self._description
        return (LockClient, (url, key_file, None if ttl_ms is None else ttl_ms / 1000))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LockClient) and self._description == other._description

    def __hash__(self) -> int:
        return hash(self._description)

    def __repr__(self) -> str:
        return f"LockClient({self.url!r})"


class Holding:
    """What `LockClient.hold` returns: a lock for each time that it is entered, one after another."""

    def __init__(
        self, client: LockClient, name: bytes, covered: _native.Footprint, shared: bool, timeout_ms: int | None
    ) -> None:
        self._client, self._what = client, (name, covered, shared, timeout_ms)
        self._hold: _native.Hold | None = None

    def __enter__(self) -> _native.Hold:
        if self._hold is not None:
            raise RuntimeError("this lock is held already")
        session = self._client._connected()
        owner = _thread_owner()
        if threading.current_thread() is threading.main_thread():
            # Python handles signals here, so another thread waits.
            hold = session.lock_later(*self._what, owner, None).wait()
            # It was granted to that thread; this one may have been stopped for longer than the lease since.
            while not hold.current:
                hold.release()
                hold = session.lock_later(*self._what, owner, None).wait()
        else:
            hold = session.lock(*self._what, owner)
        self._hold = hold
        return hold

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            raise RuntimeError("this lock is not held")
        if kind is None:
            hold.finish()
        else:
            hold.release()


class AsyncHolding:
    """What `LockClient.hold_async` returns: a lock for each time that it is entered, one after another."""

    def __init__(
        self, client: LockClient, name: bytes, covered: _native.Footprint, shared: bool, timeout_ms: int | None
    ) -> None:
        self._client, self._what = client, (name, covered, shared, timeout_ms)
        self._hold: _native.Hold | None = None

    async def __aenter__(self) -> _native.Hold:
        if self._hold is not None:
            raise RuntimeError("this lock is held already")
        session = self._client._connected()
        owner = _task_owner()
        hold: _native.Hold = await answered(lambda then: session.lock_later(*self._what, owner, then))
        # The event loop may come to it when the lease is over.
        while not hold.current:
            hold.release()
            hold = await answered(lambda then: session.lock_later(*self._what, owner, then))
        self._hold = hold
        return hold

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            raise RuntimeError("this lock is not held")
        if kind is None:
            await answered(hold.finish_later)
        else:
            hold.release()


async def answered(start: Any) -> Any:
    """Awaits a call that another thread makes: `start(then)` has `then` called when it is done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def then() -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            pass  # The loop is closed, and nobody waits.

    call = start(then)
    try:
        await done
    except BaseException:
        call.abandon()
        raise
    return call.take()


# Sessions of this process, one for each description, as long as somebody has it.
_sessions: weakref.WeakValueDictionary[_Description, _native.Session] = weakref.WeakValueDictionary()
_connecting = threading.Lock()


def _session(description: _Description) -> _native.Session:
    with _connecting:
        session = _sessions.get(description)
        if session is None:
            url, key_file, ttl_ms = description
            session = _sessions[description] = _native.Session(url, key_file, ttl_ms)
        return session


def _after_fork() -> None:
    global _sessions, _connecting
    _native.forked()
    _sessions, _connecting = weakref.WeakValueDictionary(), threading.Lock()


os.register_at_fork(before=_native.before_fork, after_in_parent=_native.after_fork, after_in_child=_after_fork)
atexit.register(_native.shut_down)

# Who waits, for the detection of deadlocks: a thread, or a task. Numbers are never used twice.
_owners = itertools.count(1)
_threads = threading.local()
_tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()


def _thread_owner() -> int:
    owner: int | None = getattr(_threads, "owner", None)
    if owner is None:
        owner = _threads.owner = next(_owners)
    return owner


def _task_owner() -> int:
    task = asyncio.current_task()
    if task is None:
        return next(_owners)
    owner = _tasks.get(task)
    if owner is None:
        owner = _tasks[task] = next(_owners)
    return owner


def _name(path: str | os.PathLike[str] | Name) -> bytes:
    if isinstance(path, Name) or (isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path)):
        return path.encode()
    return _native.file_name(path)


def _timeout_ms(timeout: float | None) -> int | None:
    if timeout is None or timeout == math.inf:
        return None
    milliseconds = _milliseconds(timeout)
    return None if milliseconds > TIMEOUT_MS_MAX else milliseconds


def _milliseconds(seconds: float) -> int:
    if not seconds >= 0:
        raise ValueError(f"a time is not negative: {seconds}")
    return math.ceil(seconds * 1000)
