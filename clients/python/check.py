#!/usr/bin/env python3
"""Builds the package `elbowroom`, installs it into an environment of its own and runs its tests against a real lock service.

    clients/python/check.py [ARGUMENTS OF PYTEST]

The environment lies in cargo's target directory and is made once for each list of requirements. Where PyPI cannot be reached it
says SKIPPED, and fails if CI is set. A step of `cargo xtask ci`.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()

# The last zarr for the Python of Debian 12; `ZARR=3.4.2 python3.12 clients/python/check.py` is for another.
REQUIREMENTS = [
    "maturin==1.16.0",
    f"zarr=={os.environ.get('ZARR', '3.1.6')}",
    "dask[array]==2026.8.0",
    "fsspec==2026.9.0",
    "pyarrow==26.0.1",
    "matplotlib==3.11.2",
    "pytest==9.2.0",
    "mypy==2.4.1",
]


def environment():
    """The directory of the programs of the environment, or None where it cannot be made."""
    words = " ".join([sys.version, *REQUIREMENTS])
    place = TARGET / "python" / hashlib.sha256(words.encode()).hexdigest()[:12]
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        print(f"pip install {' '.join(REQUIREMENTS)}, into {place}", flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", place], check=False)
        if made.returncode != 0 or subprocess.run([*pip(place), *REQUIREMENTS], check=False).returncode != 0:
            return None
        (place / "complete").touch()
    return place


def pip(place):
    return [place / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]


def install(place):
    """Builds as the guide says, but without optimising."""
    settings = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "MATURIN_PEP517_ARGS": "--profile dev --locked",
        # Not the directory of the rest: another interpreter than cargo's own checks find makes pyo3 build anew.
        "CARGO_TARGET_DIR": str(TARGET / "python" / "build"),
    }
    command = [*pip(place), "--no-build-isolation", "--no-deps", "--force-reinstall", HERE]
    subprocess.run(command, env={**os.environ, **settings}, check=True)


def main():
    place = environment()
    if place is None:
        print("SKIPPED: clients/python: its environment cannot be made here")
        return 1 if os.environ.get("CI") == "true" else 0
    # As the tests of the gate have built it: alone it has other features of what crates share, and would be built once more.
    wanted = ["--workspace", "--bins"] if os.environ.get("CI") == "true" else ["-p", "elbow"]
    subprocess.run(["cargo", "build", "--quiet", "--locked", *wanted], cwd=ROOT, check=True)
    install(place)
    settings = {"ELBOW": str(TARGET / "debug/elbow"), "PYTHONDONTWRITEBYTECODE": "1"}
    settings["PATH"] = f"{place / 'bin'}:{TARGET / 'debug'}:{os.environ['PATH']}"
    command = [place / "bin/python", "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]]
    return subprocess.run(command, cwd=HERE, env={**os.environ, **settings}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
