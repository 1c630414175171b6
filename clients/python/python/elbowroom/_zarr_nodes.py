"""The metadata of arrays and groups on a `Synchronized` store, changed under a lock (zarr 3).

zarr reads the metadata of an array (its shape, and its attributes) when it opens it. To append, resize or set an attribute it changes what it
read then, and writes all of it. So an append goes to where the array ended when it was opened, and a new attribute takes back
what others have appended. No lock around the `set` helps: the lock must be around reading, changing and writing.

These are methods of zarr's classes, and zarr has no place to put others. So they are replaced here by ones that, on a `Synchronized` store, take
the lock of the metadata, read them again, and then do as zarr's own do; on any other store they are zarr's own.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import zarr
from zarr.core.array import AsyncArray
from zarr.core.attributes import Attributes
from zarr.core.group import AsyncGroup
from zarr.core.sync import sync

#: What an array has by how it was opened, and not from what is stored.
_OF_A_HANDLE = {"store_path", "config", "codec_pipeline"}

Change = Callable[[dict[str, Any]], None]
#: Takes the locks of a node's metadata, unless the running task has them: an async context manager; nothing for other stores.
Locked = Callable[[Any], Any]


def _own(owner: type, name: str) -> Any:
    """A method of zarr's, which must be there: without it something would be written without a lock, and nobody would see it."""
    try:
        return owner.__dict__[name]
    except KeyError:
        raise ImportError(f"zarr {zarr.__version__} has no {owner.__name__}.{name}, which this elbowroom replaces") from None


async def _read_again(node: Any) -> None:
    """Takes what is stored for what is known of an array or group."""
    if isinstance(node, AsyncArray):
        fresh = await AsyncArray.open(node.store_path, zarr_format=node.metadata.zarr_format)
        for name in vars(fresh).keys() - _OF_A_HANDLE:
            object.__setattr__(node, name, getattr(fresh, name))
    else:
        stored = await AsyncGroup.open(node.store_path, zarr_format=node.metadata.zarr_format, use_consolidated=False)
        node.metadata.attributes.clear()
        node.metadata.attributes.update(stored.metadata.attributes)


def install(locked: Locked) -> None:
    """Replaces zarr's methods; `locked(node)` is None for a node of another store."""
    for name in ("append", "resize"):
        setattr(AsyncArray, name, _under_lock(_own(AsyncArray, name), locked))
    writers = {owner: _own(owner, "update_attributes") for owner in (AsyncArray, AsyncGroup)}

    async def change_attributes(node: Any, change: Change) -> Any:
        async with locked(node):
            await _read_again(node)
            change(node.metadata.attributes)
            return await writers[AsyncArray if isinstance(node, AsyncArray) else AsyncGroup](node, {})

    for owner, write in writers.items():
        setattr(owner, "update_attributes", _updating(write, locked, change_attributes))
    for name, change_of in _CHANGES.items():
        setattr(Attributes, name, _setting(_own(Attributes, name), locked, change_attributes, change_of))


def _under_lock(method: Any, locked: Locked) -> Any:
    @functools.wraps(method)
    async def under_lock(self: Any, *arguments: Any, **options: Any) -> Any:
        lock = locked(self)
        if lock is None or lock.is_held:
            return await method(self, *arguments, **options)
        async with lock:
            await _read_again(self)
            return await method(self, *arguments, **options)

    return under_lock


def _updating(method: Any, locked: Locked, change_attributes: Callable[[Any, Change], Awaitable[Any]]) -> Any:
    @functools.wraps(method)
    async def update_attributes(self: Any, new_attributes: dict[str, Any]) -> Any:
        if locked(self) is None:
            return await method(self, new_attributes)
        return await change_attributes(self, lambda attributes: attributes.update(new_attributes))

    return update_attributes


def _put(attributes: dict[str, Any], new: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(new)


#: What each way to change the attributes of a node does to them.
_CHANGES: dict[str, Callable[..., Change]] = {
    "__setitem__": lambda key, value: lambda attributes: attributes.__setitem__(key, value),
    "__delitem__": lambda key: lambda attributes: attributes.__delitem__(key),
    "put": lambda d: lambda attributes: _put(attributes, d),
}


def _setting(
    method: Any, locked: Locked, change_attributes: Callable[[Any, Change], Any], change_of: Callable[..., Change]
) -> Any:
    @functools.wraps(method)
    def change(self: Any, *arguments: Any, **options: Any) -> None:
        node = self._obj._async_group if isinstance(self._obj, zarr.Group) else self._obj.async_array
        if locked(node) is None:
            method(self, *arguments, **options)
        else:
            sync(change_attributes(node, change_of(*arguments, **options)))

    return change
