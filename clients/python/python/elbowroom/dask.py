"""A lock for `dask.array.store` and whatever else takes one: across threads, processes and machines.

    import dask.array, elbowroom.dask

    dask.array.store(values, target, lock=elbowroom.dask.Lock("target"))

It lets one task at a time write anything. Where the target is a Zarr array, `elbowroom.zarr.Synchronized` with
`lock=False` lets those go on together that write to different shards.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from ._client import Holding, LockClient, Name
from ._errors import TimedOut, WouldBlock

__all__ = ["Lock"]


class Lock:
    """A lock with the methods of `threading.Lock` and `distributed.Lock`.

    `name`: locks of one name are one lock; without it a name that nobody else has. `locks`: a `LockClient`, or the address of a
    service; without it what ELBOW_LOCKS names. Pickled, it is the same lock elsewhere. Not reentrant: whoever takes it twice
    in one thread gets `Deadlock`. A process that dies leaves it free.
    """

    def __init__(self, name: str | None = None, locks: LockClient | str | None = None) -> None:
        self.name = name or f"elbowroom.dask.Lock/{uuid.uuid4()}"
        self._locks = locks if isinstance(locks, LockClient) else LockClient(locks)
        self._holding: Holding | None = None
        self._handing_over = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Waits for the lock, `timeout` seconds at most (None or negative: as long as it takes), and says whether we have it."""
        if not blocking:
            timeout = 0
        elif timeout is not None and timeout < 0:
            timeout = None
        holding = self._locks.hold(Name(self.name), timeout=timeout)
        try:
            holding.__enter__()
        except (WouldBlock, TimedOut):
            return False
        with self._handing_over:
            self._holding = holding
        return True

    def release(self) -> None:
        """Gives it back, from any thread. Raises `Lost` if it was not ours to the end, RuntimeError if we never had it."""
        self._give_back(None)

    def _give_back(self, kind: type[BaseException] | None) -> None:
        with self._handing_over:
            holding, self._holding = self._holding, None
        if holding is None:
            raise RuntimeError(f"{self} is released by somebody who does not hold it")
        holding.__exit__(kind)

    def locked(self) -> bool:
        """Whether anybody holds it at this moment."""
        return self._locks.is_locked(Name(self.name))

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._give_back(kind)

    def __getstate__(self) -> tuple[str, LockClient]:
        return self.name, self._locks

    def __setstate__(self, state: tuple[str, LockClient]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __dask_tokenize__(self) -> Any:
        return type(self).__name__, self.name, self._locks.url

    def __repr__(self) -> str:
        return f"<elbowroom.dask.Lock {self.name!r}>"
