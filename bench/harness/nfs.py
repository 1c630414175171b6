"""A real kernel NFS server and client with a delay between them, inside user-mode-linux: no module of this machine's
kernel, no virtual machine, nothing outside a directory.

    host    builds a Debian root once, copies the bench and its programs into it, boots it, collects the results
    guest   exports a directory in its memory, mounts it from itself over its loopback, delayed by `tc netem`,
            and runs the same matrix there (`run.py --inside`)

It has one processor and starting a process is slow in it: right for tar and rm, wrong for make.
"""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from . import inputs
from .inputs import Unavailable
from .storage import Storage

JOBS = {"tar", "unzip", "rm", "cp"}
MEMORY = "3G"
BOOT_SECONDS = 4 * 3600  # After which a guest has hung.
PACKAGES = "nfs-kernel-server,nfs-common,iproute2,kmod,fuse3,python3,rsync,unzip,tar,mount,procps"

INIT = """#!/bin/sh
# The first and only program of the guest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/nfs && mkdir -p /var/lib/nfs/sm /var/lib/nfs/v4recovery /run/rpcbind
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
ip link set lo up
modprobe -a fuse nfsd nfs nfsv3 nfsv4 sch_netem
mount -t nfsd nfsd /proc/fs/nfsd
{command}
echo $? >/bench/code
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


def parse(name):
    """`nfs4-10` is NFS v4.2 with 10 ms round trip."""
    version, milliseconds = name.removeprefix("nfs").split("-")
    return {"3": "3", "4": "4.2"}[version], float(milliseconds)


class Nfs(Storage):
    """In the guest: an exported directory of its memory, mounted over a delayed loopback."""

    def __init__(self, name, work):
        self.version, self.round_trip = parse(name)
        super().__init__(name, f"NFS v{self.version}, {self.round_trip:g} ms round trip", work)

    def start(self):
        if not _running("rpcbind"):
            _start_server()

    def do_mount(self):
        _run("tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", f"{self.round_trip / 2}ms", "limit", "100000")
        _run("exportfs", "-o", "rw,sync,no_root_squash,insecure,no_subtree_check,fsid=0", f"127.0.0.1:{self.backing}")
        # With fsid=0 the export is the root of version 4's name space; version 3 asks for its path.
        path, options = ("/", "") if self.version == "4.2" else (self.backing, ",nolock,mountproto=tcp")
        _run("mount", "-t", "nfs", "-o", f"vers={self.version},proto=tcp{options}", f"127.0.0.1:{path}", self.mount)

    def unmount(self):
        if os.path.ismount(self.mount):
            super().unmount()
            _run("exportfs", "-u", f"127.0.0.1:{self.backing}")

    def stats(self):
        """What the client asked the server since it was mounted."""
        return {"rpcs": rpcs(Path("/proc/self/mountstats").read_text(), str(self.mount))}


def rpcs(mountstats, mount):
    """How often the client of the NFS mounted at `mount` asked for each operation; none that it never asked for."""
    counts, is_ours, in_operations = {}, False, False
    for line in mountstats.splitlines():
        if line.startswith("device "):
            is_ours, in_operations = f" mounted on {mount} with fstype nfs" in line, False
        elif is_ours and line.strip() == "per-op statistics":
            in_operations = True
        elif is_ours and in_operations and ":" in line:
            name, numbers = line.split(":")
            asked = int(numbers.split()[0])
            if asked:
                counts[name.strip()] = asked
    return counts


def _start_server():
    _run("rpcbind")
    for name, seconds in (("nfsv4leasetime", 10), ("nfsv4gracetime", 10)):
        Path("/proc/fs/nfsd", name).write_text(f"{seconds}\n")
    _run("rpc.nfsd", "16")
    _run("rpc.mountd")
    Path("/proc/fs/nfsd/v4_end_grace").write_text("Y\n")  # Nobody was here before: there is nothing to reclaim.


def _running(program):
    return subprocess.run(["pgrep", "-x", program], stdout=subprocess.DEVNULL).returncode == 0


def _run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip() or done.returncode}")


def run_in_guest(names, files, options, programs):
    """Boots the guest, runs the matrix on the storages of these names in it (`files`: all sizes of input that they need),
    and returns the results as run.py writes them; raises Unavailable where the guest cannot be had."""
    wanted = [job for job in options.jobs if job in JOBS]
    root = _root(options.cache)
    _fill(root, options, programs, files)
    command = ["python3", "/bench/run.py", "--inside", "--no-rows", "--storage", ",".join(names), "--jobs", ",".join(wanted),
               "--repeat", options.repeat, "--cache", "/bench/cache", "--work", "/dev/shm",
               "--disk", "/dev/shm", "--elbow", "/bench/programs/elbow", "--programs", "/bench/programs",
               "--out", "/bench/out"]
    if options.files:
        command += ["--files", options.files]
    if options.peers:
        command += ["--peers", ",".join(options.peers)]
    init = root / "bench/init.sh"
    init.write_text(INIT.format(command=shlex.join(map(str, command))))
    init.chmod(0o755)
    _boot(root)
    result = root / "bench/out/results.json"
    found = json.loads(result.read_text()) if result.exists() else {"runs": []}
    if not found["runs"]:
        raise Unavailable(f"the guest ended without results; its console is in {root / 'bench/console'}")
    return found


def _root(cache):
    """The guest's Debian, built once."""
    if os.geteuid() != 0:
        raise Unavailable("building and booting the guest's Debian needs root")
    inputs.need_programs("linux.uml:user-mode-linux", "mmdebstrap")
    place = cache / "nfs-root"
    if not (place / "complete").exists():
        suite = _suite()
        print(f"bench: mmdebstrap {suite} (the root of the NFS guest, once)", flush=True)
        partial = cache / "nfs-root.partial"
        shutil.rmtree(partial, ignore_errors=True)
        done = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", suite, partial],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"mmdebstrap: {done.stderr.strip()[-500:]}")
        (partial / "complete").touch()
        partial.rename(place)
    modules = Path("/usr/lib/uml/modules")
    if not modules.is_dir():
        raise Unavailable("user-mode-linux is here without /usr/lib/uml/modules")
    shutil.copytree(modules, place / "lib/modules", dirs_exist_ok=True)
    return place


def _suite():
    """This machine's Debian, so that the programs built here run there."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise Unavailable("/etc/os-release names no Debian release to build the guest from")


def _fill(root, options, programs, files):
    """The bench, its programs and its inputs, into the guest's root."""
    place = root / "bench"
    shutil.rmtree(place, ignore_errors=True)
    here = Path(__file__).resolve().parent.parent
    shutil.copytree(here, place, ignore=shutil.ignore_patterns("out", "results", "__pycache__"))
    (place / "programs").mkdir()
    shutil.copy(options.elbow, place / "programs/elbow")
    shutil.copy(programs / "pcopy", place / "programs/pcopy")
    for number in files:
        linux = inputs.linux(options.cache, number, links=False)
        if "unzip" in options.jobs:
            inputs.zip_of(linux)
        shutil.copytree(linux.tree.parent, place / "cache" / linux.tree.parent.name, symlinks=True)


def _boot(root):
    command = ["linux.uml", f"mem={MEMORY}", "root=/dev/root", "rootfstype=hostfs", f"rootflags={root.resolve()}", "rw",
               "init=/bench/init.sh", "con=null", "con0=fd:0,fd:1"]
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    with open(root / "bench/console", "wb") as console:
        guest = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=os.environ | memory)
        for line in guest.stdout:
            console.write(line)
            console.flush()
            if line.startswith(b"nfs") and b" #" in line:
                print(line.decode(errors="replace").rstrip(), flush=True)
        try:
            guest.wait(60)
        except subprocess.TimeoutExpired:
            guest.kill()
