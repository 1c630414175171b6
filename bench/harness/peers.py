"""The ways to get a job's result onto the storage, each timed until everything is there."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .inputs import find_program
from .storage import PATIENCE, Ssh, end, is_mounted, uninterrupted, unmount

TIMEOUT = 3600  # Seconds after which a run has failed.


class Failed(Exception):
    """A run that did not end well; the message says how."""

    @classmethod
    def ended(cls, code, out, errors):
        """Of a program's exit code and what it wrote: with `--json` ours answer with their error, on stdout."""
        return cls(f"exit code {code}: {(errors.strip() or out.strip())[-500:]}")


@dataclass
class Run:
    """One run: seconds until all is on the storage, and what else the peer says."""

    seconds: float
    details: dict = field(default_factory=dict)


class Peer:
    """Subclasses run a job on a storage that is fresh."""

    name = ""
    rival = False  # A wrong tree of a rival is reported, not fatal.
    keeps_directory_times = True  # False: times of directories are not compared.

    def can(self, job, storage):
        del job, storage
        return True

    def run(self, job, storage):
        raise NotImplementedError


class Direct(Peer):
    """The command itself, on the mount."""

    name = "direct"

    def run(self, job, storage):
        return Run(timed(job.command, cwd=storage.mount / job.directory)[0])


class Elbow(Peer):
    """The command under `elbow run`, until that returns."""

    name = "elbow"

    def __init__(self, program):
        self.program = program

    def run(self, job, storage):
        command = [self.program, "run", "--on", storage.mount, "--json", "--", *job.command]
        seconds, done = timed(command, cwd=storage.mount / job.directory)
        return Run(seconds, summary(done.stderr))


class ElbowVia(Peer):
    """The same with the storage reached by ssh instead of through a mount."""

    name = "elbow --via"

    def __init__(self, program):
        self.program = program
        self.far_program = program

    def can(self, job, storage):
        return isinstance(storage, Ssh)

    def run(self, job, storage):
        environment = ["env", f"ELBOW_SSH={storage.ssh_program()}", f"ELBOW_VIA_PROGRAM={self.far_program}"]
        via = ["--on", storage.mount, "--via", f"ssh://{storage.host}{storage.backing}", "--json"]
        # The directory is there only in the job.
        inside = ["env", "-C", storage.mount / job.directory, *job.command]
        seconds, done = timed([*environment, self.program, "run", *via, "--", *inside], cwd=storage.mount)
        return Run(seconds, summary(done.stderr))


class ElbowSftp(ElbowVia):
    """The same where no elbow is at the other end."""

    name = "elbow over SFTP"

    def __init__(self, program):
        super().__init__(program)
        self.far_program = ""


class Rsync(Peer):
    """The command in local memory, then rsync to the mount."""

    name = "tmpfs+rsync"

    def __init__(self, memory):
        self.memory = memory

    def can(self, job, storage):
        return job.stageable and bool(find_program("rsync"))

    def run(self, job, storage):
        return staged(job, self.memory, lambda stage: ["rsync", "-a", f"{stage}/", f"{storage.mount}/"])


class ParallelCopy(Peer):
    """The command in local memory, then a copy with 32 threads to the mount."""

    name = "tmpfs+copy32"

    def __init__(self, memory, programs):
        self.memory, self.pcopy = memory, programs / "pcopy"

    def can(self, job, storage):
        return job.stageable

    def run(self, job, storage):
        return staged(job, self.memory, lambda stage: [self.pcopy, stage, storage.mount, "--threads", "32"])


class SshTar(Peer):
    """The bound on sshfs: one stream to a tar (or an rm) on the server, no round trip per operation."""

    name = "ssh tar"

    def __init__(self, memory):
        self.memory = memory

    def can(self, job, storage):
        return isinstance(storage, Ssh) and job.name != "make"

    def run(self, job, storage):
        place = shlex.quote(str(storage.backing))
        extract = storage.remote(f"tar -xf - -C {place}")
        if job.there:
            said_here = shlex.join(storage.remote(f"cd {place} && {job.there}")) + " > /dev/null"
            return Run(timed(["sh", "-c", said_here])[0])
        if job.name == "rm":
            return Run(timed(storage.remote(f"rm -rf {place}/linux"))[0])
        if job.name == "tar":
            with open(job.command[-1], "rb") as archive:
                return Run(timed(extract, stdin=archive)[0])
        pipe = lambda stage: ["sh", "-c", f"tar -cf - -C {shlex.quote(str(stage))} . | {shlex.join(extract)}"]
        return staged(job, self.memory, pipe)


class CannyFs(Peer):
    """CannyFS over the mount, until its process has ended: it returns from an unmount before all is written."""

    keeps_directory_times = False  # It does not order them after what is created in the directory.

    name = "CannyFS"
    rival = True

    def __init__(self, program, memory):
        self.program, self.options = program, shlex.split(os.environ.get("CANNYFS_OPTIONS", ""))
        self.mountpoint = memory / "cannyfs"
        self.mountpoint.mkdir(exist_ok=True)

    def can(self, job, storage):
        return job.name != "make"  # configure needs more of POSIX than it has.

    def run(self, job, storage):
        # It mirrors the whole tree: libfuse's subdir module would drop the times that tar sets.
        options = ["-f", "-o", "big_writes", "-o", "max_write=65536"]
        inside = self.mountpoint / storage.mount.relative_to("/")
        server = subprocess.Popen([self.program, *options, *self.options, self.mountpoint], stderr=subprocess.DEVNULL)
        try:
            self._wait_for_mount(server)
            started = time.perf_counter()
            done = subprocess.run(job.command, cwd=inside, capture_output=True, text=True, timeout=TIMEOUT)
            acknowledged = time.perf_counter() - started
            unmount(self.mountpoint)
            server.wait(TIMEOUT)
            seconds = time.perf_counter() - started
        finally:
            server.kill()
            if is_mounted(self.mountpoint):
                unmount(self.mountpoint)
        if done.returncode != 0:
            raise Failed.ended(done.returncode, done.stdout, done.stderr)
        return Run(seconds, {"command_seconds": acknowledged})

    def _wait_for_mount(self, server):
        deadline = time.monotonic() + PATIENCE
        while not is_mounted(self.mountpoint):
            if server.poll() is not None or time.monotonic() > deadline:
                raise Failed("it does not mount")
            time.sleep(0.01)


def staged(job, memory, copy):
    """Runs the job in a directory in memory and then `copy(directory)`, both timed; a job with a source has made it."""
    stage = memory / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    made = 0.0
    if job.source is None:
        made, _ = timed(job.command, cwd=stage)
    copied, _ = timed(copy(job.source or stage))
    shutil.rmtree(stage)
    return Run(made + copied, {"command_seconds": made})


def timed(command, cwd=None, stdin=subprocess.DEVNULL):
    """Runs a command; its seconds and its outcome. Fails unless it exits with 0."""
    words = [str(word) for word in command]
    started = time.perf_counter()
    done = completed(words, cwd, stdin)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise Failed(f"{Path(words[0]).name}: exit code {done.returncode}: {complaint(done.stderr)}")
    return seconds, done


def completed(words, cwd, stdin):
    """As subprocess.run, but however it ends (Ctrl-C too), the command ends first, and in its own way: what it runs on is
    unmounted next."""
    with uninterrupted():
        child = subprocess.Popen(words, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, []))
    with child:
        try:
            out, err = child.communicate(timeout=TIMEOUT)
        except BaseException:
            child.terminate()
            end(child)
            raise
    return subprocess.CompletedProcess(words, child.returncode, out, err)


def complaint(stderr):
    """What a failed command said: of a JSON summary, the errors and messages only."""
    last = stderr.strip().splitlines()[-1:]
    try:
        found = json.loads(last[0])
        return "; ".join(map(str, [found["outcome"], *found.get("errors", []), *found.get("messages", [])]))
    except (IndexError, ValueError, KeyError, TypeError):
        return stderr.strip()[-2000:]


def summary(stderr):
    """The summary of `elbow run --json`: one object, the last line that it writes to stderr."""
    lines = stderr.strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        raise Failed(f"elbow run --json ends without a summary: {stderr[-500:]!r}") from error
    if found["outcome"] != "committed":
        raise Failed(f"elbow run exits with 0 but says {found['outcome']!r}")
    return found
