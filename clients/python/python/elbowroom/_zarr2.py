"""A synchronizer for zarr 2, whose locks are those of a lock service. See `elbowroom.zarr`.

zarr 2 takes the lock of a chunk around each write to it, that of the metadata around `resize` and `append`, and that of the attributes around
each change to them. It reads the metadata when it opens an array, and not again before it appends, so that an append under the lock goes
to where the array ended then, and is lost. For arrays with this synchronizer it is read again under the lock.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ._client import Holding, LockClient, Name
from ._ranges import footprint

__all__ = ["Synchronizer"]


class Synchronizer:
    """Gives zarr 2 the locks of one store, by key.

    `store`: the path of the store, or a `Name` for it, the same for all who write to it. `locks`: a `LockClient`, or the address of a
    service; without it what ELBOW_LOCKS names. It may be pickled, and used by many threads and processes.

    A block under a lock that was lost meanwhile ends with `Lost`.
    """

    def __init__(self, store: str | os.PathLike[str], locks: LockClient | str | None = None) -> None:
        self._name = (str(store) if isinstance(store, Name) else os.path.realpath(store)).rstrip("/")
        self._locks = locks if isinstance(locks, LockClient) else LockClient(locks)

    @property
    def name(self) -> str:
        """What the store is called for the lock service; chunk `0.1` is locked as `NAME/0.1`."""
        return self._name

    def __getitem__(self, key: str) -> Holding:
        """The lock of a chunk, of the metadata or of the attributes, for one `with` block."""
        return Holding(self._locks, Name(f"{self._name}/{key}").encode(), footprint(None), False, None)

    def __repr__(self) -> str:
        return f"Synchronizer({self._name!r}, {self._locks!r})"


# By its name: the zarr for which types are checked has another one.
_Array: Any = importlib.import_module("zarr.core").Array
_refresh = _Array._refresh_metadata_nosync


def _refresh_under_lock(self: Any) -> None:
    """What zarr calls when it has the lock of the metadata, before it changes them."""
    if isinstance(self._synchronizer, Synchronizer) and not self._is_view:
        self._load_metadata_nosync()
    else:
        _refresh(self)


_Array._refresh_metadata_nosync = _refresh_under_lock
