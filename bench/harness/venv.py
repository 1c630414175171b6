"""A Python environment in the bench's cache with the peers that come from PyPI, at fixed versions."""

import shutil
import subprocess
import sys

from .inputs import Unavailable

PINNED = ["duckdb==2.0.0", "polars==2.1.0", "numpy==2.4.6"]


def python(cache):
    """The environment's interpreter; made when it is first asked for."""
    place = cache / ("venv-" + "-".join(name.replace("==", "") for name in PINNED))
    program = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True, text=True)
            subprocess.run([program, "-m", "pip", "--quiet", "install", *PINNED], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise Unavailable(f"{' '.join(PINNED)} cannot be installed: {said[-1] if said else error}") from error
        (place / "complete").touch()
    return program
