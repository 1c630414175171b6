"""File systems of their own, on loop devices (as root) or in memory, made anew for each run.

The image is read and written past the page cache of the machine (direct I/O), and each `fresh()` makes the file system
anew and mounts it, so that nothing of a run before is in memory or on the disk.
"""

import os
import subprocess
from pathlib import Path

from .inputs import Unavailable, find_program, need_programs

SECTOR = 512
MAKE = {  # Without discards: they would give the image's own blocks back, and every run would start with other ones.
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
SMALLEST = {"ext4": 64 << 20, "xfs": 320 << 20, "btrfs": 256 << 20}  # What mkfs accepts, and some room.


class Disk:
    """A mounted file system of a kind; `mount` is where."""

    def __init__(self, kind, size_bytes, work):
        self.kind, self.size_bytes = kind, max(size_bytes, SMALLEST.get(kind, 0))
        self.mount = Path(work, f"{kind}-mount")
        self.mount.mkdir(exist_ok=True)
        self.image, self.device = Path(work, f"{kind}.image"), None

    def start(self, written=False):
        """Makes the device; `written`: writes all of the image once, so that no run pays for its first blocks."""
        need_root()
        if self.kind == "tmpfs":
            return
        need_programs("losetup:mount", f"mkfs.{self.kind}:{PACKAGES[self.kind]}")
        with open(self.image, "wb") as image:
            if written:
                _write_zeros(image, self.size_bytes)
            image.truncate(self.size_bytes)
        said = _run("losetup", "--find", "--show", "--direct-io=on", self.image)
        self.device = said.strip()

    def fresh(self):
        """An empty file system."""
        self.unmount()
        if self.kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={self.size_bytes}", "tmpfs", self.mount)
            return
        command = MAKE[self.kind]
        _run(find_program(command[0]), *command[1:], self.device)
        self.mount_again()

    def mount_again(self):
        """Mounts; what was mounted is synced and out of the page cache then (a tmpfs stays as it is)."""
        if self.kind == "tmpfs":
            return
        self.unmount()
        try:
            _run("mount", "-t", self.kind, self.device, self.mount)
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{self.kind} cannot be mounted here: {(error.stderr or '').strip()}") from error

    def unmount(self):
        if os.path.ismount(self.mount):
            _run("umount", self.mount)

    def stop(self):
        self.unmount()
        if self.device:
            _run("losetup", "--detach", self.device)
            self.device = None
        self.image.unlink(missing_ok=True)

    def used_bytes(self):
        """What the file system says is taken."""
        if self.kind == "btrfs":
            return self._used_of_btrfs()
        found = os.statvfs(self.mount)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _used_of_btrfs(self):
        """statvfs(3) there knows only what a commit, every 30 s, has seen; this also has what is under way and what waits to be free."""
        place = next(Path("/sys/fs/btrfs").glob(f"*/devices/{Path(self.device).name}")).parent.parent / "allocation"
        parts = ("bytes_used", "bytes_reserved", "bytes_pinned", "bytes_may_use")
        return sum(int((place / kind / part).read_text()) for kind in ("data", "metadata") for part in parts)

    def transferred(self):
        """(bytes read, bytes written) of the block device since it was made; (0, 0) in memory."""
        if not self.device:
            return 0, 0
        fields = Path("/sys/block", Path(self.device).name, "stat").read_text().split()
        return int(fields[2]) * SECTOR, int(fields[6]) * SECTOR

    def sync(self):
        """Everything to the device."""
        _run("sync", "--file-system", self.mount)


def need_root():
    """Raises Unavailable for ordinary users and where there are no loop devices."""
    if os.geteuid() != 0:
        raise Unavailable("file systems of its own need root")
    if not os.path.exists("/dev/loop-control"):
        raise Unavailable("there are no loop devices here")


def _write_zeros(image, size_bytes):
    piece = bytes(8 << 20)
    for start in range(0, size_bytes, len(piece)):
        image.write(piece[:size_bytes - start])
    image.flush()
    os.fsync(image.fileno())
    os.posix_fadvise(image.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _run(*command):
    said = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if said.returncode != 0:
        raise CommandFailed(said.returncode, command, said.stdout, said.stderr)
    return said.stdout


class CommandFailed(subprocess.CalledProcessError):
    """One that says what the command said."""

    def __str__(self):
        return f"{super().__str__()} {self.stderr.strip()}"
