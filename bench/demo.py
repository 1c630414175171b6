#!/usr/bin/env python3
"""Extracts a real source tree onto slow storage, directly and through `elbow run`; compares times and trees."""

import argparse
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run
from harness import inputs, jobs, peers, storage, trees

LATENCY = "2ms"
GOAL = 10  # Times faster than directly.


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupted)
    programs = run.build(options)
    try:
        with tempfile.TemporaryDirectory(prefix="elbow-demo-", dir=options.work or storage.place_for_servers()) as work:
            sys.exit(demo(options, programs, Path(work)))
    except (inputs.Unavailable, *run.FAILURES) as error:
        sys.exit("\n".join(f"demo: {line}" for line in sentences(error)))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=run.FILES, help="how many files (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=inputs.default_cache(), help="where the sources are kept")
    parser.add_argument("--elbow", type=Path, help="the program to show (default: build it)")
    parser.add_argument("--programs", type=Path, help="where the testkit's programs are (default: build them)")
    parser.add_argument("--work", type=Path, help="where the servers' directories are (default: /dev/shm with 4 GiB free)")
    return parser.parse_args()


def interrupted(number, _):
    """Ends the demo by way of everything that cleans up, once."""
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    print(f"demo: {signal.strsignal(number)}: cleaning up", file=sys.stderr)
    sys.exit(128 + number)


def sentences(error):
    """What failed first, and what failed while that was cleaned up."""
    before = error.__context__ if error.__cause__ is None else None
    return (sentences(before) if isinstance(before, Exception) else []) + [str(error)]


def demo(options, programs, work):
    linux = inputs.linux(options.cache, options.files)
    (work / "scratch").mkdir()
    [job], _ = jobs.make_jobs(["tar"], linux, None, work / "scratch")
    slow = storage.SlowFs("slow", LATENCY, work, programs)
    print(f"demo: tar x of {linux.files} files ({linux.bytes / 1e6:.0f} MB) of the Linux sources, as Debian packages them")
    print(f"demo: slow storage: {slow.says}")
    try:
        direct, direct_tree = measure(slow, job, peers.Direct(), "tar directly")
        eager, eager_tree = measure(slow, job, peers.Elbow(options.elbow), "elbow run -- tar")
    finally:
        slow.stop()
    code = judge(direct.seconds / eager.seconds, eager, eager_tree, direct_tree, job)
    try_next(options.elbow)
    return code


def measure(slow, job, peer, label):
    """Runs it on fresh storage; the run and what is on the server's side when it returns."""
    slow.fresh()
    done = peer.run(job, slow)
    tree = trees.snapshot(slow.backing)
    operations = slow.stats()["total"]
    print(f"demo:   {label:18} {done.seconds:7.2f} s until everything is on the storage, {operations} operations there")
    return done, tree


def judge(ratio, eager, eager_tree, direct_tree, job):
    wrong = trees.difference(eager_tree, direct_tree) + trees.difference(direct_tree, job.expected)
    for line in wrong[:20]:
        print(f"demo: the trees differ: {line}")
    seconds = eager.details
    print(f"demo: tar itself took {seconds['command_seconds']:.2f} s, the rest {seconds['drain_seconds']:.2f} s, "
          f"the commit {seconds['commit_seconds']:.2f} s")
    shown = int(ratio * 10) / 10  # Never rounded up.
    print(f"demo: {shown}x faster than directly ({'as promised' if ratio >= GOAL else 'MISSED'}: at least {GOAL}x)")
    if not wrong:
        print(f"demo: the trees are equal: {len(eager_tree)} names, by content, mode, mtime and links")
    return 1 if wrong or ratio < GOAL else 0


def try_next(elbow):
    """Three commands that work at once, with the program that has just been shown."""
    program = shlex.quote(str(elbow.relative_to(Path.cwd()) if elbow.is_relative_to(Path.cwd()) else elbow))
    install = "make build && make install" if os.geteuid() == 0 else "make build && sudo make install"
    commands = [(f"{program} run -- sh -c 'echo x > published; exit 1'", "it fails, and leaves no file `published`"),
                (f"{program} run --help", "all options; recipes: docs/src/guide/run.md"),
                (install, "into /usr/local, with libraries and man pages")]
    width = max(len(command) for command, _ in commands)
    print("demo: try next:")
    for command, says in commands:
        print(f"    {command:{width}}   # {says}")


if __name__ == "__main__":
    main()
