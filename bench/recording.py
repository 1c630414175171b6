#!/usr/bin/env python3
"""Makes the recording of the README: a real job on slow storage, directly beside `elbow run`, and one that fails.

Two terminals, each with slow storage of its own, both commands started at once. What was to be seen in them is written to
docs/src/images/elbow-run.json, with its times, and drawn as elbow-run.svg beside it. Nothing is edited: the time in
which only the direct side is busy is shown faster, and the picture says so. `--draw` only draws what was recorded before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import animation, build, inputs, storage, terminal

FILES = 2335
LATENCY = "2ms"
SIZE = (50, 20)  # Columns and rows of each terminal.
QUICK_SECONDS = 4  # How long the picture takes over the time in which only the direct side is busy.
PATIENCE = 180  # Seconds for the direct run.
RECORD = build.ROOT / "docs/src/images/elbow-run.json"
IMAGE = build.ROOT / "docs/src/images/elbow-run.svg"
DIRECT, ELBOW = "direct", "elbow"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw what was recorded before")
    parser.add_argument("--cache", type=Path, default=inputs.default_cache(), help="where the sources are kept")
    parser.add_argument("--elbow", type=Path, help="the program to show (default: build it)")
    options = parser.parse_args()
    if not options.draw:
        options.elbow, programs = build.programs(options.elbow, "elbow-testkit")
        write(RECORD, json.dumps(record(options, programs), ensure_ascii=False) + "\n")
    write(IMAGE, animation.Picture(recorded()).svg())


def recorded():
    return json.loads(RECORD.read_text())


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    print(f"recording: {path.relative_to(build.ROOT)}, {len(content) / 1000:.0f} kB")


def record(options, programs):
    linux = inputs.linux(options.cache, FILES)
    with tempfile.TemporaryDirectory(prefix="elbow-", dir=storage.place_for_servers()) as work:
        work = Path(work)
        make_archives(work, linux.tar)
        slow = {name: storage.SlowFs(name, LATENCY, work, programs) for name in (DIRECT, ELBOW)}
        try:
            for one in slow.values():
                one.fresh()
            played = play(options, work, slow)
            check(slow)
            return {"host": build.describe_host(work), "storage": slow[DIRECT].says, **describe(linux), **played}
        finally:
            for one in slow.values():
                one.stop()


def make_archives(work, tar):
    """linux.tar, and the first half of it: an archive that was cut short."""
    (work / "linux.tar").symlink_to(tar)
    with open(tar, "rb") as whole, open(work / "half.tar", "wb") as half:
        half.write(whole.read(tar.stat().st_size // 2))


def check(slow):
    """That what the picture shows is what happened: two equal trees, and nothing of the job that failed."""
    trees = [one.backing / "linux" for one in slow.values()]
    if subprocess.run(["diff", "-r", "--no-dereference", *trees]).returncode != 0:
        raise SystemExit("recording: the trees differ")
    if left := [entry.name for entry in os.scandir(slow[ELBOW].backing / "new")]:
        raise SystemExit(f"recording: the job that failed left {left}")


def describe(linux):
    """What the picture says of itself."""
    head = f"Unpacking {linux.files:,} files ({linux.bytes / 1e6:.0f} MB) onto storage that takes {LATENCY[:-2]} ms for each operation"
    return {"head": head, "titles": {DIRECT: "tar, directly", ELBOW: "the same through elbow run"}}


def play(options, work, slow):
    """Both terminals from the first key to the end of the slower one."""
    environment = {**os.environ, "HOME": str(work), "PATH": f"{options.elbow.parent}:{os.environ['PATH']}", "PS1": f"{terminal.PROMPT} ",
                   "TIMEFORMAT": "took %1R s", "LC_ALL": "C.UTF-8", "HISTFILE": ""}
    columns, rows = SIZE
    with terminal.Terminals(work, columns, rows, environment) as screen:
        for name in (DIRECT, ELBOW):
            screen.open(name, slow[name].mount)
        screen.look_for(1)
        screen.type(DIRECT, "time tar xf ~/linux.tar")
        screen.type(ELBOW, "time elbow run -- tar xf ~/linux.tar")
        screen.look_for(0.5)
        screen.restart_clock()
        screen.enter(DIRECT, ELBOW)
        play_elbow(screen)
        quick_start = screen.seconds()
        screen.wait(DIRECT, screen.is_idle, PATIENCE)
        quick = quick_over(quick_start, screen.seconds())
        screen.run(DIRECT, "ls -A", 10)
        return {"columns": columns, "rows": rows, "seconds": screen.seconds(), "quick": quick, "screens": screen.screens}


def play_elbow(screen):
    """Waits for the job, then runs one that fails half-way, in a directory of its own."""
    screen.wait(ELBOW, screen.is_idle, 60)
    screen.look_for(1)
    screen.run(ELBOW, "ls -A", 10)
    screen.run(ELBOW, "# and an archive that was cut short:", 10)
    screen.run(ELBOW, "mkdir new; cd new", 10)
    screen.run(ELBOW, "elbow run -- tar xf ~/half.tar", 60)
    screen.look_for(1)
    screen.run(ELBOW, "ls -A    # nothing is left of it", 10)
    screen.look_for(2)


def quick_over(start, end):
    """What is shown faster, and by how much: nothing, if it is short anyway."""
    factor = max(1, round((end - start) / QUICK_SECONDS))
    return {"start": start, "end": end, "factor": factor}


if __name__ == "__main__":
    main()
