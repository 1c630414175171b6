"""List locks: a lock covers exactly the byte ranges that an access touches.

    import elbowroom

    locks = elbowroom.LockClient("unix:/run/locks")      # or ELBOW_LOCKS
    with locks.hold("/data/grid", [(0, 4096), (8192, 4096)]) as hold:
        hold.check()                                      # just before each I/O under it
        ...                                               # read and write these bytes

`elbowroom.zarr` makes writes to parts of a Zarr shard safe, `elbowroom.dask` has a lock for `dask.array.store`. `elbowroom.disk` is a simulated disk,
which needs no service.
"""

from importlib.metadata import version as _version

from ._client import AsyncHolding, Holding, LockClient, Name
from ._errors import Deadlock, LockError, Lost, TimedOut, Unreachable, WouldBlock
from ._native import Hold
from ._ranges import Strided

#: Of the package, which is that of Elbowroom.
__version__ = _version("elbowroom")

__all__ = [
    "AsyncHolding",
    "Deadlock",
    "Hold",
    "Holding",
    "LockClient",
    "LockError",
    "Lost",
    "Name",
    "Strided",
    "TimedOut",
    "Unreachable",
    "WouldBlock",
    "__version__",
]
