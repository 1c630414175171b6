"""MPI programs: the libraries that are here, the modes of atomicity, and one measured run."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field

from .build import ROOT
from .inputs import need_programs
from .peers import Failed

SOURCE = ROOT / "bench" / "mpi"
TIMEOUT = 900  # Seconds after which a run hangs.


@dataclass(frozen=True)
class Mpi:
    """An MPI library with its compiler and launcher, as Debian calls them."""

    name: str
    compiler: str
    launcher: list
    package: str
    environment: dict = field(default_factory=dict)


# OMPIO takes no hint that ends sieving, only parameters; nor do we see there what a program hints.
_EXACT = {f"OMPI_MCA_fbtl_posix_{way}_datasieving": "false" for way in ("read", "write")} | {"ELBOW_MPI_SIEVING": "never"}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPICH = Mpi("MPICH", "mpicc.mpich", ["mpirun.mpich"], "libmpich-dev")
OPEN_MPI = Mpi("Open MPI", "mpicc.openmpi", ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"], "libopenmpi-dev", _AS_ROOT)
MPIS = {"mpich": MPICH, "openmpi": OPEN_MPI}


@dataclass(frozen=True)
class Mode:
    """How an access is kept whole. `locks`: what our library locks; None is the MPI library alone."""

    name: str
    locks: str | None = None
    shim: bool = False
    atomic: bool = True
    collective: bool = False  # write_at_all, by whichever requests the library likes; so with `free`.
    free: bool = False
    promises: tuple = ("MPICH", "Open MPI")  # Where it claims to be whole, and is.
    on: tuple = ("MPICH", "Open MPI")
    environment: dict = field(default_factory=dict)

    @property
    def exact(self):
        """Whether it makes one request per piece, as all that are compared do."""
        return not (self.collective or self.free)


MODES = [
    Mode("none", shim=True, atomic=False, promises=()),
    Mode("list", shim=True, locks="list"),
    Mode("extent", shim=True, locks="extent"),
    Mode("file", shim=True, locks="file"),
    Mode("native", promises=("MPICH",)),
    Mode("native, ROMIO", on=("Open MPI",), environment={"OMPI_MCA_io": "romio321"}),
    Mode("native, sieving", free=True, promises=("MPICH",), on=("MPICH",)),
    Mode("native, ROMIO, sieving", free=True, on=("Open MPI",), environment={"OMPI_MCA_io": "romio321"}),
    Mode("list, as it likes", shim=True, locks="list", free=True, environment={"ELBOW_MPI_SIEVING": "automatic"}),
    # OMPIO's collective writes go by aio(7), which the delay does not reach.
    Mode("none, collective", shim=True, atomic=False, collective=True, promises=(), on=("MPICH",)),
    Mode("list, collective", shim=True, locks="list", collective=True, on=("MPICH",)),
]
BY_NAME = {mode.name: mode for mode in MODES}


class Programs:
    """What a run needs: the compiled programs, elbow and its shim, a lock service, and the workloads of the generators."""

    def __init__(self, elbow, shim, generator, work):
        self.elbow, self.shim, self.work = elbow, shim, work
        self.data, self.storage, self.socket = work / "data", work / "storage.so", work / "lockd"
        self.service, self.workloads, self.generator = None, {}, generator

    def start(self, pieces):
        compiled(["cc", "-shared", "-fPIC"], SOURCE / "storage.c", self.storage)
        said = subprocess.run([self.generator, "--json", "--file", self.data, "--pieces", str(pieces)], check=True, capture_output=True)
        self.workloads = {found["name"]: found for found in json.loads(said.stdout)}
        for name, workload in self.workloads.items():
            (self.work / name).write_text("".join(map(pattern_line, workload["ranks"])))
        self.service = subprocess.Popen([self.elbow, "lockd", "serve", "--listen", f"unix:{self.socket}"], stdout=subprocess.PIPE)
        if not self.service.stdout.readline():
            raise Failed(f"elbow lockd does not start (exit code {self.service.wait()})")

    def stop(self):
        if self.service:
            self.service.terminate()
            self.service.wait(timeout=30)

    def compile(self, mpi):
        need_programs(f"{mpi.compiler}:{mpi.package}", mpi.launcher[0])
        compiled([mpi.compiler], SOURCE / "access.c", self._program(mpi))

    def _program(self, mpi):
        return self.work / mpi.compiler.replace("mpicc", "access")

    def run(self, mpi, mode, workload, delay_us, seconds):
        """What bench/mpi/access.c prints, of a file that is new."""
        self.data.unlink(missing_ok=True)
        method = "read" if not workload["exclusive"] else "write_all" if mode.collective else "write"
        program = [self._program(mpi), self.data, self.work / workload["name"], method, "atomic" if mode.atomic else "nonatomic",
                   "exact" if mode.exact else "free", "guarded" if workload["name"].startswith("flash") else "plain", delay_us, seconds]
        words = [*mpi.launcher, "-n", len(workload["ranks"]), *program]
        if mode.shim:
            words = [self.elbow, "lock", "mpi", "--server", f"unix:{self.socket}", "--", *words]
        environment = {**os.environ, **mpi.environment, **(_EXACT if mode.exact else {}), **mode.environment,
                       "LD_PRELOAD": str(self.storage), "ELBOW_MPI_LIB": str(self.shim), "ELBOW_MPI_LOCKS": mode.locks or "list"}
        return said_by([str(word) for word in words], environment)


def pattern_line(patterns):
    """As bench/mpi/pattern.h reads it."""
    if len(patterns) != 1:
        raise Failed("a rank has more than one pattern")
    numbers = [patterns[0]["start"], patterns[0]["bytes"], *(number for dim in patterns[0]["dims"] for number in dim)]
    return " ".join(map(str, numbers)) + "\n"


def pieces(patterns):
    """Pieces of one rank."""
    count = 1
    for of_dim, _ in patterns[0]["dims"]:
        count *= of_dim
    return count


def total_bytes(workload):
    """Of all ranks, overlaps counted as often as they are written."""
    return sum(pieces(patterns) * patterns[0]["bytes"] for patterns in workload["ranks"])


def compiled(compiler, source, program):
    done = subprocess.run([*compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-ldl"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{compiler[0]} {source.name}: {done.stderr.strip()[:500]}")


def said_by(words, environment):
    """The one line of JSON that a command prints; all of its processes end with it."""
    command = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said, _ = command.communicate(timeout=TIMEOUT)
    except BaseException as error:
        os.killpg(command.pid, signal.SIGKILL)  # It has a session of its own: Ctrl-C does not reach it.
        command.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"it hangs (more than {TIMEOUT} s)") from error
        raise
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if command.returncode != 0 or len(lines) != 1:
        ours = [line for line in said.splitlines() if line.startswith(("FAILED", "byte ", "elbow"))]
        raise Failed(f"exit code {command.returncode}: {'; '.join(ours) or said.strip()[-500:]}")
    return json.loads(lines[0])
