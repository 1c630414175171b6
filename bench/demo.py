#!/usr/bin/env python3
"""Extracts a real source tree onto slow storage, directly and through `elbow run`; compares times and trees."""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run
from harness import inputs, jobs, peers, storage, trees

LATENCY = "2ms"
GOAL = 10  # Times faster than directly.


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=run.FILES, help="how many files (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=inputs.default_cache(), help="where the sources are kept")
    parser.add_argument("--elbow", type=Path, help="the program to show (default: build it)")
    parser.add_argument("--programs", type=Path, help="where the testkit's programs are (default: build them)")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    programs = run.build(options)
    try:
        with tempfile.TemporaryDirectory(prefix="elbow-demo-", dir=storage.place_for_servers()) as work:
            sys.exit(demo(options, programs, Path(work)))
    except (inputs.Unavailable, peers.Failed) as error:
        sys.exit(f"demo: {error}")


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
    return judge(direct.seconds / eager.seconds, eager, eager_tree, direct_tree, job)


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


if __name__ == "__main__":
    main()
