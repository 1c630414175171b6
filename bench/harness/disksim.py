"""DiskSim 4.0, where it is given: it is not vendored, and nothing of it is built here.

DISKSIM is its program, or the tree it was built in (`src/disksim`). DISKSIM_PARV is a parameter file for the HP C2247A; without it, the tree's own, the only one
below DISKSIM whose name has 2247 in it and that ends or begins with `parv`. It runs as `disksim PARV OUT ascii TRACE 0`, in the directory of the parameters, which
name their other files by relative paths.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .inputs import Unavailable
from .peers import Failed


@dataclass
class DiskSim:
    program: Path
    parameters: Path

    def replay(self, trace, out, taken):
        """(what it took, its mean response time in ms)."""
        spent = taken([self.program, self.parameters, out, "ascii", trace, "0"], self.parameters.parent)
        del spent["stdout"]
        found = re.search(r"^(?:Overall I/O )?System Response time average:\s+([0-9.]+)", Path(out).read_text(errors="replace"), re.MULTILINE)
        if not found:
            raise Failed("its output has no average of response times")
        return spent, float(found[1])


def given():
    """DiskSim, as the environment names it. Raises Unavailable."""
    named, parameters = os.environ.get("DISKSIM"), os.environ.get("DISKSIM_PARV")
    if not named:
        raise Unavailable("not given (DISKSIM=/its/tree)")
    place = Path(named).resolve()
    program = place / "src" / "disksim" if place.is_dir() else place
    if not os.access(program, os.X_OK) or program.is_dir():
        raise Unavailable(f"{program} is no program")
    return DiskSim(program, Path(parameters).resolve() if parameters else _own_parameters(place))


def _own_parameters(tree):
    found = [path for path in tree.glob("**/*2247*") if "parv" in (path.name.split(".")[0], path.suffix[1:])] if tree.is_dir() else []
    if len(found) != 1:
        raise Unavailable(f"{len(found)} parameter files for the HP C2247A below {tree}: name one in DISKSIM_PARV")
    return found[0]
