"""How long each write of one block device took, as the kernel traces it (tracefs): from when it was handed to the device until it was complete.

A write with a flush before and behind it (a commit of ext4) is one, with both. In an instance of our own, so that nobody else's traces are touched.

Source: Documentation/trace/events.rst and ftrace.rst; the events are those of include/trace/events/block.h.
"""

import os
import re
import tempfile
from pathlib import Path

from .emulated import run
from .inputs import Unavailable
from .peers import Failed

EVENTS = {"block_bio_queue": "queue", "block_rq_complete": "complete"}
BUFFER_KIB = 4096  # For each processor; a write takes 200 bytes.
# `jbd2/loop6-8-123 [000] ..... 12.345678: block_bio_queue: 7,5 WS 1234 + 8 [jbd2/loop6-8]`, `...: block_rq_complete: 7,5 WS () 1234 + 16 be,0,3 [0]`
LINE = re.compile(r"\s(\d+\.\d+): (block_\w+): \d+,\d+ (\w+) (?:\(\) )?(\d+) \+ (\d+) ")
MINOR_BITS = 20  # Of a device number inside the kernel (MINORBITS).


class BlockTrace:
    """The writes of a device between `start` and `stop`."""

    def __init__(self):
        self.mounted, self.instance = None, None
        root = Path("/sys/kernel/tracing")
        if not (root / "instances").is_dir():
            self.mounted = root = Path(tempfile.mkdtemp(prefix="elbow-bench-tracefs-"))
            try:
                run("mount", "-t", "tracefs", "tracefs", root)
            except Failed as failed:
                root.rmdir()
                raise Unavailable(f"times of single writes: no tracefs here ({failed})") from failed
        if not (root / "events/block").is_dir():
            self.close()
            raise Unavailable("times of single writes: this kernel traces no block devices")
        self.instance = root / "instances" / f"elbow-bench-{os.getpid()}"
        self.instance.mkdir()
        self._write("buffer_size_kb", BUFFER_KIB)
        self._write("trace_clock", "mono")

    def start(self, device):
        number = os.stat(device).st_rdev
        self._write("trace", "")
        for event in EVENTS:
            self._write(f"events/block/{event}/filter", f"dev == {os.major(number) << MINOR_BITS | os.minor(number)}")
            self._write(f"events/block/{event}/enable", 1)

    def stop(self):
        """Their ms. Raises Failed where some were lost."""
        for event in EVENTS:
            self._write(f"events/block/{event}/enable", 0)
        lost = [stats for stats in self.instance.glob("per_cpu/cpu*/stats") if not re.search(r"^overrun: 0$", stats.read_text(), re.M)]
        if lost:
            raise Failed("the kernel's trace of writes has overflown: trace fewer transactions")
        return times(self.instance.joinpath("trace").read_text())

    def close(self):
        if self.instance:
            self.instance.rmdir()
        if self.mounted:
            run("umount", self.mounted)
            self.mounted.rmdir()
        self.instance = self.mounted = None

    def _write(self, name, value):
        (self.instance / name).write_text(f"{value}\n" if value != "" else "")


def times(trace):
    """The ms of each write in the text of a trace, in the order of their ends. Of what the kernel made one request of, the first submission counts; one with flushes (F) is complete
    when that behind it is, which is told by a second completion, of no sectors."""
    begun, found = {}, []
    for line in trace.splitlines():
        match = LINE.search(line)
        if not match or "W" not in match[3]:
            continue
        seconds, at, sectors = float(match[1]), int(match[4]), int(match[5])
        if EVENTS[match[2]] == "queue":
            begun[at] = seconds, match[3].startswith("F")
        elif at in begun and not (begun[at][1] and sectors):
            found.append((seconds - begun[at][0]) * 1000)
            for merged in [one for one in begun if at <= one < at + max(sectors, 1)]:
                del begun[merged]
    return found
