"""Zarr arrays that many threads, processes and machines may write to at once.

With zarr 3 a store whose writes are under locks:

    import elbowroom, zarr
    from elbowroom.zarr import Synchronized

    store = Synchronized("/data/grid.zarr", elbowroom.LockClient("unix:/run/locks"))
    array = zarr.open_array(store)
    array[100:200] = values            # safe, whoever else writes to other parts of the same shards
    array.append(more)                 # safe, whoever else appends

With zarr 2 a synchronizer:

    from elbowroom.zarr import Synchronizer

    array = zarr.open_array("/data/grid.zarr", synchronizer=Synchronizer("/data/grid.zarr", "unix:/run/locks"))

Both lock a chunk, or the metadata, under the path of its file, so that programs with zarr 2 and with zarr 3 may write to one array of format 2.
"""

from __future__ import annotations

import zarr as _zarr

if _zarr.__version__.startswith("2."):
    from ._zarr2 import Synchronizer

    __all__ = ["Synchronizer"]
else:
    from ._zarr3 import LockingPipeline, NotSynchronized, Synchronized, TensorStoreWarning

    __all__ = ["LockingPipeline", "NotSynchronized", "Synchronized", "TensorStoreWarning"]


def __getattr__(name: str) -> object:
    """What the other zarr has: the import says what to do."""
    if name in ("Synchronized", "NotSynchronized", "LockingPipeline"):
        raise ImportError(f"elbowroom.zarr.{name} needs zarr 3, and this is zarr {_zarr.__version__}: use Synchronizer")
    if name == "Synchronizer":
        raise ImportError(f"zarr {_zarr.__version__} has no synchronizers: use elbowroom.zarr.Synchronized, a store")
    raise AttributeError(name)
