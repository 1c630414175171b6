"""What the benches have in common: programs, options, the host."""

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

from .inputs import default_cache, find_program
from .report import ALWAYS_WANTED_REPEAT
from .storage import file_system

ROOT = Path(__file__).resolve().parent.parent.parent
IN_CI = os.environ.get("CI") == "true"  # There root and loop devices exist: what is skipped elsewhere fails.
# How programs are built. The gate looks whether a bench still runs, and at none of its numbers: it takes what its tests have built.
PROFILE = os.environ.get("ELBOW_BENCH_PROFILE", "release")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BUILT = TARGET / {"dev": "debug"}.get(PROFILE, PROFILE)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def programs(elbow, package, example=None):
    """(elbow, the directory with the programs of `package`); builds what is not given. With `example`, that of the package."""
    wanted = [["-p", package, *(["--example", example] if example else [])]] + ([] if elbow else [["-p", "elbow"]])
    if PROFILE != "release":  # One package alone has other features of what several share, and would be built once more.
        wanted = [["--workspace", "--lib", "--bins", "--examples"]]
    for words in wanted:
        subprocess.run(["cargo", "build", "--profile", PROFILE, "--locked", "--quiet", *words], cwd=ROOT, check=True)
    return (elbow or BUILT / "elbow").resolve(), BUILT


class Parser(argparse.ArgumentParser):
    """The options that the benches have in common, and the help that their docstring is."""

    def __init__(self, description):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_choice(self, option, known, default=None, more=""):
        """A list with commas of known words; without it the default, or None for all."""
        known = list(known)
        self.add_argument(option, type=lambda text: listed(self, text, known), default=default,
                          help=f"of {','.join(known)} (default: all{more})")

    def add_common(self, out, disk="images and inputs", tiny="a small input, once", repeat=""):
        """What is measured how often, and where everything goes; `out` is a directory in bench/out."""
        self.add_argument("--repeat", type=int, help=f"repetitions; medians are over these (default: {ALWAYS_WANTED_REPEAT}{repeat})")
        self.add_argument("--tiny", action="store_true", help=tiny)
        self.add_argument("--elbow", type=Path, help="the program to measure (default: build it)")
        self.add_argument("--disk", type=Path, default=Path("/var/tmp"), help=f"a directory on a local disk: {disk}")
        self.add_argument("--out", type=Path, default=ROOT / "bench" / "out" / out, help="where the results go")

    def add_cache(self, what):
        self.add_argument("--cache", type=Path, default=default_cache(), help=f"where {what} kept")


def older(tree):
    """The `elbow` of another checkout, built there."""
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "elbow"], cwd=tree, env=_environment(tree), check=True)
    return (tree / "target" / "release" / "elbow").resolve()


def bench(package, name, tree=ROOT):
    """The program of a bench target of a checkout; builds it."""
    profile, wanted = ("bench", ["-p", package]) if PROFILE == "release" else (PROFILE, ["--workspace"])
    said = subprocess.run(["cargo", "bench", "--profile", profile, "--locked", *wanted, "--bench", name, "--no-run", "--message-format", "json"],
                          cwd=tree, env=_environment(tree), check=True, stdout=subprocess.PIPE, text=True)
    built = [message["executable"] for message in map(json.loads, said.stdout.splitlines())
             if message["reason"] == "compiler-artifact" and message["target"]["name"] == name and message["executable"]]
    return Path(built[0])


def _environment(tree):
    """Of cargo: another checkout has its own target directory, or its programs would take the place of ours."""
    return os.environ if tree == ROOT else {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}


def size(text):
    """Bytes of `256M`."""
    unit = text.lstrip("0123456789.")
    if unit not in UNITS or not text.removesuffix(unit):
        raise argparse.ArgumentTypeError(f"not a size: {text} (write 256M or 2G)")
    return int(float(text.removesuffix(unit)) * UNITS[unit])


def listed(parser, text, known):
    """The words of a list with commas, all of them known."""
    words = [word for word in text.split(",") if word]
    unknown = [word for word in words if word not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)} (known: {', '.join(known)})")
    return words


def describe_host(disk):
    """What a reader of the results wants to know about the machine."""
    return {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "host": platform.node(), "commit": _commit(),
            "kernel": platform.release(), "processors": len(os.sched_getaffinity(0)),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
            "images on": file_system(disk)}


def _commit():
    git = find_program("git")
    said = git and subprocess.run([git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() if said and said.stdout.strip() else "unknown"
