"""A store for zarr 3 whose chunks and shards are read and written under locks. See `elbowroom.zarr`.

A write to a part of a chunk (or of a shard, which is what the store sees of a sharded array) reads all of it, changes the
part and writes all of it back; two at once lose the changes of one. `Synchronized` holds an exclusive lock on the chunk or
shard from before the read until after the write, and a shared one while a part of a shard is read, which takes several reads of the
store. Other chunks and shards are not touched by it.

The lock is taken in the codec pipeline, because no layer below it knows where such a write begins and ends (the store sees
a `get` like any other), and the store refuses a `set` of a chunk that does not come from there. So a process whose
pipeline is another one gets an error, and no lost data. `docs/design/zarr.md` has the whole argument. The metadata are locked where
they are read, changed and written: `_zarr_nodes`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from contextvars import ContextVar, Token
from pathlib import Path
from types import MappingProxyType
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.array import AsyncArray
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import get_pipeline_class, register_pipeline
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore

from . import _zarr_nodes
from ._client import AsyncHolding, LockClient, Name, answered
from ._errors import LockError
from ._native import Hold
from ._ranges import footprint

__all__ = ["LockingPipeline", "NotSynchronized", "Synchronized", "TensorStoreWarning"]

#: What a store holds beside chunks: written whole, from what was read before; locked where that is read (`_zarr_nodes`).
METADATA = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
_PIPELINE = "codec_pipeline.path"

#: The ways to write to a store that `Synchronized` knows. A zarr with others is refused: they would go past the locks.
_WRITERS = frozenset({"set", "set_if_not_exists", "set_sync", "_set_many", "delete", "delete_sync", "delete_dir"})
_unknown = {name for name in dir(WrapperStore) if name.startswith(("set", "_set", "delete", "_delete"))} - _WRITERS
if _unknown:
    raise ImportError(f"zarr {zarr.__version__} writes to stores by {', '.join(_unknown)}, which this elbowroom does not know")

#: The locks under which the running task writes, by name.
_writing: ContextVar[Mapping[str, Hold]] = ContextVar("elbowroom_writing", default=MappingProxyType({}))


class NotSynchronized(LockError):
    """A chunk was about to be written without its lock."""


class TensorStoreWarning(UserWarning):
    """TensorStore may write to what a `Synchronized` store guards, and takes no locks."""


class Synchronized(WrapperStore[Store]):
    """A store whose chunks and shards are written under locks.

    `store`: a Zarr store, or a path. `locks`: a `LockClient`, or the address of a service; without it what ELBOW_LOCKS names.
    `name`: what the store is called for the lock service. Whoever writes to one store must use one name for it; it is
    needed where the store cannot tell it, and where machines reach one directory by different paths.

    All who write, and all who read parts of shards meanwhile, have to come through a `Synchronized`. It may be pickled. A cache
    above or below it would give back what was there before the lock, and must not be used.
    """

    def __init__(
        self, store: Store | str | os.PathLike[str], locks: LockClient | str | None = None, name: str | None = None
    ) -> None:
        super().__init__(LocalStore(Path(store)) if isinstance(store, (str, os.PathLike)) else store)
        self._locks = locks if isinstance(locks, LockClient) else LockClient(locks)
        self._name = (name or _name_of(self._store)).rstrip("/")
        use_locking_pipeline()
        warn_of_tensorstore()

    @property
    def name(self) -> str:
        """What the store is called for the lock service; chunk `c/0/1` is locked as `NAME/c/0/1`."""
        return self._name

    def lock_name(self, key: str) -> str:
        """The name under which a chunk or shard is locked."""
        return f"{self._name}/{key}"

    def hold(self, key: str, shared: bool) -> AsyncHolding:
        """The lock of a chunk or shard."""
        return AsyncHolding(self._locks, Name(self.lock_name(key)).encode(), footprint(None), shared, None)

    async def set(self, key: str, value: Any) -> None:
        """Writes a chunk under the lock that its writer holds, or metadata."""
        hold = _writing.get().get(self.lock_name(key))
        if hold is not None:
            await answered(hold.check_later)
        elif not _is_metadata(key):
            raise NotSynchronized(
                f"{key} would be written without its lock. Write it through a Zarr array that was opened on this store, "
                f"with the codec pipeline elbowroom.zarr.LockingPipeline ({_PIPELINE} is {zarr.config.get(_PIPELINE)}); "
                "or write to the store below, if nobody else does"
            )
        await self._store.set(key, value)

    # Other pipelines write by these, which do not wait, where a store can do all of it so.
    _supports_sync_io = False

    def set_sync(self, key: str, value: Any) -> None:
        """Not for a store whose writers wait for locks."""
        raise NotSynchronized(f"{key} would be written without its lock, by set_sync")

    def delete_sync(self, key: str) -> None:
        """Not for a store whose writers wait for locks."""
        raise NotSynchronized(f"{key} would be deleted without its lock, by delete_sync")

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Writes what is not there, in one step."""
        async with self._around(key):
            await self._store.set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        """Deletes a chunk under its lock, or metadata."""
        async with self._around(key):
            await self._store.delete(key)

    async def _set_many(self, values: Iterable[tuple[str, Any]]) -> None:
        for key, value in values:
            await self.set(key, value)

    @contextlib.asynccontextmanager
    async def _around(self, key: str) -> AsyncIterator[None]:
        """The lock of a chunk, unless its writer has it already."""
        hold = _writing.get().get(self.lock_name(key))
        if hold is not None:
            await answered(hold.check_later)
            yield
        elif _is_metadata(key):
            yield
        else:
            async with self.hold(key, shared=False):
                yield

    def _with_store(self, store: Store) -> Synchronized:
        return type(self)(store, self._locks, self._name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Synchronized) and (self._store, self._name) == (other._store, other._name)

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self._store, "locks": self._locks, "name": self._name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __str__(self) -> str:
        return f"synchronized-{self._store}"

    def __repr__(self) -> str:
        return f"Synchronized({self._store!r}, {self._locks!r}, {self._name!r})"


class LockingPipeline(BatchedCodecPipeline):
    """Zarr's codec pipeline, with the locks of the chunks that it reads and writes. Other stores are as with zarr's own."""

    async def write_batch(self, batch_info: Iterable[Any], value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Reads, changes and writes some chunks, under their locks."""
        batch = list(batch_info)
        if _places(batch):
            warn_of_tensorstore()
        async with contextlib.AsyncExitStack() as locks:
            held = {name: await locks.enter_async_context(store.hold(key, shared=False)) for name, store, key in _places(batch)}
            token = _writing.set(MappingProxyType({**_writing.get(), **held}))
            try:
                await super().write_batch(batch, value, drop_axes)
            finally:
                _writing.reset(token)

    async def read_batch(self, batch_info: Iterable[Any], out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
        """Reads some chunks; parts of a shard, which take several reads, under a lock that readers share."""
        batch = list(batch_info)
        async with contextlib.AsyncExitStack() as locks:
            if self.supports_partial_decode:
                for _, store, key in _places(batch):
                    await locks.enter_async_context(store.hold(key, shared=True))
            return await super().read_batch(batch, out, drop_axes)


register_pipeline(LockingPipeline)


def use_locking_pipeline() -> None:
    """Makes zarr in this process use `LockingPipeline`, unless it was told to use something else than its own.

    Raises `NotSynchronized` then: another pipeline would write without locks.
    """
    if _configured() is BatchedCodecPipeline:
        zarr.config.set({_PIPELINE: f"{LockingPipeline.__module__}.{LockingPipeline.__qualname__}"})
    if not issubclass(_configured(), LockingPipeline):
        raise NotSynchronized(
            f"zarr is configured with the codec pipeline {zarr.config.get(_PIPELINE)}, which takes no locks; "
            "Synchronized needs elbowroom.zarr.LockingPipeline"
        )


_has_warned = False


def warn_of_tensorstore() -> None:
    """Says once in a process that TensorStore is there, and what to do."""
    global _has_warned
    if "tensorstore" in sys.modules and not _has_warned:
        _has_warned = True
        warnings.warn(
            "tensorstore is loaded in this process, and takes no locks: what it writes to an array of a Synchronized store, and what others "
            "write to the same chunks meanwhile, is lost without an error. Write through zarr; or have TensorStore write whole chunks or shards "
            "only, each under LockClient.hold(Name(store.lock_name(KEY)))",
            TensorStoreWarning,
            stacklevel=3,
        )


class _MetadataLock:
    """The locks of a node's metadata, for the running task and those that it starts."""

    def __init__(self, store: Synchronized, keys: list[str]) -> None:
        self._store, self._names = store, {store.lock_name(key): key for key in keys}
        self._locks = contextlib.AsyncExitStack()
        self._token: Token[Mapping[str, Hold]] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the running task has them: zarr's methods call each other."""
        return set(self._names) <= set(_writing.get())

    async def __aenter__(self) -> None:
        if self.is_held:
            return
        async with contextlib.AsyncExitStack() as locks:
            held = {
                name: await locks.enter_async_context(self._store.hold(key, shared=False)) for name, key in self._names.items()
            }
            self._locks = locks.pop_all()
        self._token = _writing.set(MappingProxyType({**_writing.get(), **held}))

    async def __aexit__(self, *raised: Any) -> bool | None:
        if self._token is not None:
            _writing.reset(self._token)
        return await self._locks.__aexit__(*raised)


#: Where the metadata of a node are, by its format and whether it is an array. In one order for all.
_KEYS = {(3, True): ["zarr.json"], (3, False): ["zarr.json"], (2, True): [".zarray", ".zattrs"], (2, False): [".zattrs", ".zgroup"]}


def _metadata_lock(node: Any) -> _MetadataLock | None:
    """Of an asynchronous array or group; None on another store."""
    place = node.store_path
    store = _synchronized(place.store)
    if store is None:
        return None
    keys = _KEYS[node.metadata.zarr_format, isinstance(node, AsyncArray)]
    return _MetadataLock(store, [f"{place.path}/{key}".lstrip("/") for key in keys])


_zarr_nodes.install(_metadata_lock)


def _configured() -> type:
    return get_pipeline_class()


def _places(batch: list[Any]) -> list[tuple[str, Synchronized, str]]:
    """What is to be locked for a batch, each once and in one order for all, so that nobody waits in a circle."""
    places = {}
    for setter, *_ in batch:
        if isinstance(setter, StorePath) and (store := _synchronized(setter.store)) is not None:
            places[store.lock_name(setter.path)] = (store, setter.path)
    return [(name, *place) for name, place in sorted(places.items(), key=lambda item: item[0])]


def _synchronized(store: Store) -> Synchronized | None:
    """The one in a stack of wrappers, if there is one."""
    while not isinstance(store, Synchronized):
        if not isinstance(store, WrapperStore):
            return None
        store = store._store
    return store


def _is_metadata(key: str) -> bool:
    return key.rsplit("/", 1)[-1] in METADATA


def _name_of(store: Store) -> str:
    if isinstance(store, WrapperStore):
        return _name_of(store._store)
    if isinstance(store, LocalStore):
        return os.path.realpath(store.root)
    if isinstance(store, MemoryStore):
        return f"{socket.gethostname()}/{os.getpid()}/{store}"
    system, path = getattr(store, "fs", None), getattr(store, "path", None)  # zarr's FsspecStore
    if system is not None and isinstance(path, str):
        return str(system.unstrip_protocol(path))
    raise ValueError(f"{store} does not say what it is called everywhere: give it a name (name=...)")
