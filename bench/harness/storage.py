"""Slow storage: a directory (the server's side) and a mount of it that is slow.

Each `fresh()` clears the server's side, fills it directly and mounts anew, so that no cache remembers anything.
"""

import contextlib
import json
import os
import shlex
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from .inputs import Unavailable, need_programs

PATIENCE = 30  # Seconds that a mount may take to appear or to go.


class Storage:
    """A kind of storage; subclasses mount and unmount."""

    def __init__(self, name, says, work):
        self.name, self.says = name, says
        self.backing = work / name / "server"
        self.mount = work / name / "mount"
        for place in (self.backing, self.mount):
            place.mkdir(parents=True)

    def start(self):
        """Starts what lives as long as the bench; raises Unavailable where it cannot be had."""

    def fresh(self, populate=None):
        self.unmount()
        clear(self.backing)
        if populate:
            populate(self.backing)
        self.do_mount()

    def do_mount(self):
        raise NotImplementedError

    def unmount(self):
        if is_mounted(self.mount):
            unmount(self.mount)

    def stats(self):
        """What reached the server since it was fresh, where that is counted."""
        return None

    def stop(self):
        self.unmount()


class SlowFs(Storage):
    """The testkit's FUSE passthrough: a delay per operation, at most 64 in service at once."""

    CONCURRENT = 64

    def __init__(self, name, latency, work, programs):
        super().__init__(name, f"passthrough, {latency} per operation, {self.CONCURRENT} at once", work)
        self.latency, self.programs, self.server = latency, programs, None

    def do_mount(self):
        command = [self.programs / "slowfs", "--latency", self.latency, "--concurrent", str(self.CONCURRENT)]
        with uninterrupted():
            # Not in the terminal's group: Ctrl-C ends the job, and then we unmount what it was on.
            self.server = subprocess.Popen([*command, self.backing, self.mount], stdout=subprocess.PIPE, text=True,
                                           start_new_session=True)
            mounted = self.server.stdout.readline()
        if not mounted:
            raise Unavailable(f"slowfs does not mount (exit code {self.server.wait()})")

    def unmount(self):
        try:
            super().unmount()
        finally:
            server, self.server = self.server, None
            if server:
                end(server)

    def stats(self):
        return json.loads(os.getxattr(self.mount, "user.slowfs.stats"))


class Ssh(Storage):
    """sshfs, mounted as users mount it, on a private sshd behind a delaying proxy."""

    def __init__(self, name, one_way, work, programs):
        super().__init__(name, f"sshfs, {one_way} one way", work)
        self.one_way, self.programs, self.keys, self.server = one_way, programs, work / name / "keys", None
        self.rate = []

    def start(self):
        need_programs("sshd:openssh-server", "ssh:openssh-client", "sshfs")
        self.keys.mkdir(mode=0o700)
        command = [self.programs / "sshbed", self.keys, "--one-way", self.one_way, *self.rate]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.server.stdout.readline()
        if not line:
            raise Unavailable(f"the private sshd does not start (exit code {self.server.wait()})")
        access = json.loads(line)
        self.host, self.options = access["host"], access["options"]

    def do_mount(self):
        subprocess.run(["sshfs", f"{self.host}:{self.backing}", self.mount, *self.options], check=True)

    def remote(self, command):
        """The arguments that run a shell command on the server."""
        return ["ssh", *self.options, self.host, command]

    def ssh_program(self):
        """A program that is ssh to that server, whatever its arguments are."""
        program = self.keys.parent / "as-ssh"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(["ssh", *self.options])} "$@"\n')
        program.chmod(0o755)
        return program

    def stop(self):
        super().stop()
        if self.server:
            self.server.terminate()
            self.server.wait(PATIENCE)


class Far(Ssh):
    """The same server without a mount: what is beside a stream to it."""

    def __init__(self, name, one_way, work, programs, megabits=None):
        super().__init__(name, one_way, work, programs)
        self.says = f"ssh without a mount, {one_way} one way"
        if megabits:
            self.says += f", {megabits} Mbit/s"
            self.rate = ["--rate", str(megabits * 1_000_000 // 8)]

    def do_mount(self):
        pass


class Local(Storage):
    """A directory of the local disk, as it is: what a job costs where nothing is slow."""

    def __init__(self, name, work):
        super().__init__(name, f"local {file_system(work)}, no delay", work)
        self.mount = self.backing

    def do_mount(self):
        pass

    def unmount(self):
        pass


def file_system(path):
    """The type of the file system that `path` is on."""
    found = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True)
    return {"ext2/ext3": "ext4"}.get(found.stdout.strip(), found.stdout.strip() or "file system")


def clear(directory):
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


@contextlib.contextmanager
def uninterrupted():
    """Lets signals wait until what is begun is known to whoever ends it; processes started here inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_mounted(place):
    """Whether something is mounted there: also where its server is dead, of which os.path.ismount says no."""
    place = os.path.join(os.path.realpath(Path(place).parent), Path(place).name)
    places = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), other) == place for other in places)


def unmount(mountpoint, patience=PATIENCE):
    """Unmounts, trying again for a while what is still busy. What stays is detached, and the error is umount's own."""
    command, lazily = (["umount"], "-l") if os.geteuid() == 0 else (["fusermount3", "-u"], "-z")
    deadline = time.monotonic() + patience
    while True:
        done = subprocess.run([*command, mountpoint], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        if done.returncode == 0 or not is_mounted(mountpoint):
            return
        if "busy" not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    subprocess.run([*command, lazily, mountpoint], capture_output=True)
    raise RuntimeError(f"{' '.join(command)} {mountpoint}: {done.stderr.strip()}")


def end(server, patience=PATIENCE):
    """Waits for the end of a server that has nothing to serve any more, and ends it where it does not come."""
    try:
        server.wait(patience)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def place_for_servers():
    """Where the servers' directories and staging areas live: in memory where there is room, as a server's disk is not
    what is measured here."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30:
        return memory
    return None
