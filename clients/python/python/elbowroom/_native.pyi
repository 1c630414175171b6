from collections.abc import Callable, Sequence
from os import PathLike
from typing import final

@final
class Footprint:
    @staticmethod
    def whole() -> Footprint: ...
    @staticmethod
    def pairs(pairs: Sequence[tuple[int, int]]) -> Footprint: ...
    @staticmethod
    def packed(bytes: bytes) -> Footprint: ...
    @staticmethod
    def patterns(patterns: Sequence[tuple[int, Sequence[tuple[int, int]], int]]) -> Footprint: ...
    def union(self, other: Footprint) -> Footprint: ...

@final
class Hold:
    """A lock that is held. It is released when its `with` block ends, or nobody refers to it any more."""

    @property
    def token(self) -> int:
        """The fencing token: larger than that of any grant on the file before."""
    @property
    def wanted(self) -> bool:
        """Whether somebody waits for this lock, as far as the service has said."""
    def check(self) -> None:
        """Raises `Lost` if the lock is not ours any more. To be called just before each I/O under it. No round trip,
        except after the connection broke."""
    def release(self) -> None:
        """Releases it. Once is enough, more is harmless."""
    def finish(self) -> None:
        """Releases it, and raises `Lost` if it was not ours to the end."""
    def check_later(self, then: Callable[[], None]) -> Pending: ...
    def finish_later(self, then: Callable[[], None]) -> Pending: ...

@final
class Pending:
    # Nothing where it is no lock that was waited for.
    def wait(self) -> Hold: ...
    def take(self) -> Hold: ...
    def abandon(self) -> None: ...

@final
class Session:
    def __new__(cls, url: str, key: bytes | None, ttl_ms: int | None) -> Session: ...
    def lock(self, file: bytes, footprint: Footprint, shared: bool, timeout_ms: int | None, owner: int) -> Hold: ...
    def lock_later(
        self,
        file: bytes,
        footprint: Footprint,
        shared: bool,
        timeout_ms: int | None,
        owner: int,
        patient: bool,
        then: Callable[[], None] | None,
    ) -> Pending: ...
    def is_locked(self, file: bytes) -> bool: ...
    def status(self) -> str: ...

def file_name(path: str | PathLike[str]) -> bytes: ...
def forked() -> None: ...
def shut_down() -> None: ...
