"""What can go wrong: between a program and its lock service, and with a description of a disk."""

from typing import Optional


class LockError(OSError):
    """There is no lock, or not any more. The message says why."""


class WouldBlock(LockError, BlockingIOError):
    """Somebody else holds it or waits for it, and the request was not to wait (`timeout=0`)."""


class TimedOut(LockError, TimeoutError):
    """Somebody else held it for as long as the request could wait."""


class Deadlock(LockError):
    """To wait would have no end: whoever holds it waits for a lock that we hold. The message names the cycle."""


class Lost(LockError):
    """A lock that was held is held no more: what was done under it may not have been atomic. Do no more I/O under it."""


class Unreachable(LockError, ConnectionError):
    """There is no lock service at that address."""


class DiskError(ValueError):
    """A description of a drive, or a trace, that is none. `file`, `line` (from 1) and `key` say where; each may be None."""

    def __init__(self, message: str, file: Optional[str] = None, line: Optional[int] = None, key: Optional[str] = None) -> None:
        super().__init__(message, file, line, key)
        self.file, self.line, self.key = file, line, key

    def __str__(self) -> str:
        return str(self.args[0])
