"""Emulated drives, and what an ext4 has its journal and its data on: such a drive, a write-ahead region on one, or memory.

Each is attached anew for each measurement, so that what it says of itself at its detach (how late its answers were, what they took) is of that alone. Bytes
stay where they were.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from .inputs import Unavailable, need_programs
from .peers import Failed

MODEL = "generic-7200"
OWN_NAMESPACE = "ELBOW_BENCH_OWN_NAMESPACE"  # Of the environment.
COUNTS = ("range_writes", "moved", "forced_flushes", "device_flushes")  # Of a region.
PROFILE_TRIES = 3
MODEL_JITTER_MS = 0.2  # Of the way to a drive and back, on a machine that is not idle.
PATIENCE = 60  # Seconds that the kernel may take to let go of a device after an unmount.


def in_own_namespace():
    """Goes on with this program in a mount namespace of its own: who copies the machine's mounts meanwhile (a container, `elbow run`) would keep ours busy after they are unmounted here."""
    if OWN_NAMESPACE not in os.environ:
        os.environ[OWN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])


class Elbow:
    """The program, asked in JSON."""

    def __init__(self, program):
        self.program = program

    def says(self, *words):
        """What it prints. Raises Failed."""
        done = subprocess.run([str(word) for word in (self.program, *words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failed(f"elbow {' '.join(map(str, words[:2]))}: {Failed.ended(done.returncode, done.stdout, done.stderr)}")
        return done.stdout.strip()

    def detach(self, kind, device):
        """Its last status. Tries again for a while what is still in use."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return json.loads(self.says(kind, "detach", device, "--json"))
            except Failed as failed:
                if "in use" not in str(failed) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)


class Drive:
    """An emulated drive, write-through, as a block device or as a file."""

    def __init__(self, elbow, work, name, size_bytes, is_file=False):
        self.elbow, self.name, self.size_bytes = elbow, name, size_bytes
        self.backing, self.offered = Path(work, f"{name}.image"), Path(work, name) if is_file else None
        self.device = None

    def attach(self):
        offered = ["--file", self.offered] if self.offered else []
        self.device = self.elbow.says("disk", "attach", "--model", MODEL, "--cache", "write-through", "--backing", self.backing,
                                      "--size", self.size_bytes, *offered)
        return self.device

    def detach(self):
        """What it did and how late it was, as numbers of a measurement."""
        if self.device is None:
            return {}
        said = self.elbow.detach("disk", self.device)
        self.device = None  # What could not be detached can be tried again.
        late, took = said["lateness_us"], said["response_ms"]
        return {f"{self.name}_requests": said["served"], f"{self.name}_late_p50_us": late["p50"], f"{self.name}_late_p99_us": late["p99"],
                f"{self.name}_late_max_us": late["max"], f"{self.name}_p50_ms": took["p50"], f"{self.name}_p99_ms": took["p99"],
                f"{self.name}_realtime": said["realtime"]}


class Region:
    """A write-ahead region on an emulated drive, its places chosen by a profile."""

    def __init__(self, elbow, work, name, size_bytes):
        self.elbow, self.name, self.size_bytes = elbow, name, size_bytes
        self.drive = Drive(elbow, work, name, 4 * size_bytes, is_file=True)
        self.profile, self.device = Path(work, f"{name}.profile.toml"), None

    def measure(self):
        """Makes the profile, in a minute or two, in sectors of 512 bytes, of which the region is made; returns what is said of it. On a busy machine it is tried again, and the last
        one is taken although it is not recommended."""
        device = self.drive.attach()
        try:
            for _ in range(PROFILE_TRIES):
                said = json.loads(self.elbow.says("bark", "profile", device, "--sector-bytes", 512, "--overwrite", "--json", "--output", self.profile))
                if said["recommended"]:
                    break
        finally:
            self.drive.detach()
        if not said["rotation"]:
            raise Unavailable(f"no turn was found of {self.name}, an emulated disk: is this machine busy?")
        return said

    def take_from_model(self, program):
        """Makes the profile in the model's own time."""
        device = self.drive.attach()
        try:
            self.profile.write_text(run(program, MODEL, device, MODEL_JITTER_MS))
        finally:
            self.drive.detach()

    def attach(self):
        self.device = self.elbow.says("bark", "attach", self.drive.attach(), "--size", self.size_bytes, "--profile", self.profile)
        return self.device

    def detach(self):
        numbers = {}
        try:
            said = self.elbow.detach("bark", self.device) if self.device else {}
            self.device = None
            numbers = {f"{self.name}_{field}": said[field] for field in COUNTS if field in said}
        finally:
            numbers.update(self.drive.detach())
        return numbers


class Memory:
    """A loop device on a file in memory: no disk at all."""

    def __init__(self, directory, name, size_bytes):
        self.image, self.size_bytes, self.device = Path(directory, f"{name}.image"), size_bytes, None

    def attach(self):
        with open(self.image, "ab") as image:
            image.truncate(self.size_bytes)
        self.device = run("losetup", "--find", "--show", self.image).strip()
        return self.device

    def detach(self):
        device, self.device = self.device, None
        if device:
            run("losetup", "--detach", device)
        return {}


class Ext4:
    """An ext4 with its data on one device and its journal on another; without one it lies with the data."""

    def __init__(self, work):
        self.place = Path(work, "mounted")
        self.place.mkdir(exist_ok=True)

    def make(self, data, journal):
        need_programs("mkfs.ext4:e2fsprogs", "mke2fs:e2fsprogs", "losetup:mount")
        if journal:
            run("mke2fs", "-q", "-F", "-b", "4096", "-O", "journal_dev", journal)
        lies = ["-J", f"device={journal}"] if journal else []
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-N", "256", *lies, data)

    def mount(self, data, journal, mode):
        found = f",journal_path={journal}" if journal else ""
        run("mount", "-t", "ext4", "-o", f"noatime,data={mode}{found}", data, self.place)
        _wake_committer_first(journal or data)

    def unmount(self):
        if os.path.ismount(self.place):
            run("umount", self.place)

    def check(self, data, journal):
        """What is wrong with it when it is unmounted."""
        done = subprocess.run(["e2fsck", "-fn", "-j", journal, data], capture_output=True, text=True, env=_environment())
        return [] if done.returncode == 0 else [f"e2fsck: {(done.stdout + done.stderr).strip()[-300:]}"]


def _wake_committer_first(device):
    """Gives the kernel's thread that commits a journal on a device the priority that the emulated disks have. Without the right to it all commits come later."""
    name = f"jbd2/{Path(device).name}"
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # It may have ended meanwhile.
            if comm.read_text().strip().split("-")[0] == name:
                os.sched_setscheduler(int(comm.parent.name), os.SCHED_FIFO, os.sched_param(1))


def run(*command):
    """What a command printed. Raises Failed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=_environment())
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _environment():
    return {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin", "LC_ALL": "C"}
