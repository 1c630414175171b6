#!/usr/bin/env python3
"""Measures `elbow lockd` beside the kernel's locks, Redis and etcd: `make bench-locks`.

One interleaved run: each repetition goes through all loads and peers in turn (they start at another one each time). A cycle is
lock and unlock; each connection locks its own segments of one file (for the kernel and Redis one lock each), so that nobody waits for
anybody. All services and the load run on this machine; Redis and etcd are Debian's, started here and ended with the run.

    bench/locks.py                                everything that can be had here
    bench/locks.py --segments 1,2500 --connections 1
    bench/locks.py --before ../older              beside the `elbow` of another checkout, in the same run
    bench/locks.py --tiny                         seconds, to see that the bench itself works

"echo" is the bound: a service that does nothing, on the same socket, with messages as long as ours; once as a tokio service, which is what
`elbow lockd` is built on, and once in C on bare epoll ("C echo", built with cc from bench/echo.c). With "64 in flight" a client sends 64
cycles before it reads their answers. "irregular" segments have lengths and places without a pattern: each cycle sends them all.
"beside lists" is a lock of one segment while another client holds fifteen irregular lists and asks for a sixteenth all the time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import build, inputs, lock_report, peers, report

SEGMENTS, IRREGULAR, CONNECTIONS = [1, 768, 2500], [2500, 100_000], [1, 64]
IN_FLIGHT = 64
START_SECONDS = 20
OLDER = lock_report.OLDER
FAILURES = (peers.Failed, inputs.Unavailable, subprocess.SubprocessError, RuntimeError, OSError, ValueError)


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    options.elbow, _ = build.programs(options.elbow, "elbow-lock")
    load = build.bench("elbow-lock", "load")
    options.older = options.before and (build.older(options.before), build.bench("elbow-lock", "load", options.before))
    results = report.Results()
    results.host = {**build.describe_host(options.disk), "repetitions": options.repeat, "seconds a load": options.seconds}
    with tempfile.TemporaryDirectory(prefix="elbow-bench-locks-", dir=options.disk) as work:
        bench = Bench(options, load, Path(work), results)
        try:
            bench.start()
            bench.run()
        finally:
            bench.stop()
            print(lock_report.write(results, options.out))
    results.exit()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--segments", type=numbers, help="of a lock (default: 1,768,2500)")
    parser.add_argument("--irregular", type=numbers, help="segments of a lock that have no pattern, on one connection (default: 2500,100000)")
    parser.add_argument("--connections", type=numbers, help="at a time (default: 1,64)")
    parser.add_argument("--seconds", type=float, help="of each load (default: 2)")
    parser.add_argument("--repeat", type=int, help="repetitions; medians are over these (default: 3)")
    parser.add_argument("--tiny", action="store_true", help="short loads, once, without Redis and etcd")
    parser.add_argument("--elbow", type=Path, help="the program to measure (default: build it)")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of an older version, built and measured in turn")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a directory for sockets and the file of the kernel's locks")
    parser.add_argument("--out", type=Path, default=build.ROOT / "bench" / "out" / "locks", help="where the results go")
    options = parser.parse_args()
    options.segments = options.segments or ([1, 768] if options.tiny else SEGMENTS)
    options.irregular = options.irregular or ([768] if options.tiny else IRREGULAR)
    options.connections = options.connections or ([1, 8] if options.tiny else CONNECTIONS)
    options.seconds = options.seconds or (0.1 if options.tiny else 2)
    options.repeat = options.repeat or (1 if options.tiny else report.ALWAYS_WANTED_REPEAT)
    return options


class Bench:
    """Services, and loads on them in turn."""

    def __init__(self, options, load, work, results):
        self.options, self.work, self.results = options, work, results
        self.loads = {OLDER: options.older[1]} if options.older else {}
        self.load = load
        self.children, self.peers = [], {}

    def start(self):
        echo = self.work / "echo"
        self.peers = {"elbow": self._start_elbow("lockd", self.options.elbow)}
        if self.options.older:
            self.peers[OLDER] = self._start_elbow("older", self.options.older[0])
        self._child([self.load, "serve-echo", echo], echo)
        self.peers |= {"echo": ("echo", f"unix:{echo}"), "kernel OFD": ("ofd", self.work / "file")}
        self._maybe("C echo", self._start_c_echo)
        if not self.options.tiny:
            self._maybe("Redis", self._start_redis)
            self._maybe("etcd", self._start_etcd)

    def _maybe(self, name, start):
        try:
            self.peers[name] = start()
        except inputs.Unavailable as error:
            self.results.skipped.append(f"{name}: {error}")
            print(f"SKIPPED: {name}: {error}")

    def _start_elbow(self, name, program):
        socket = self.work / name
        self._child([program, "lockd", "serve", "--listen", f"unix:{socket}"], socket)
        return "elbow", f"unix:{socket}"

    def _start_c_echo(self):
        compiler, program, socket = needed("cc"), self.work / "c-echo-program", self.work / "c-echo"
        subprocess.run([compiler, "-O2", "-o", program, build.ROOT / "bench" / "echo.c"], check=True)
        self._child([program, socket], socket)
        return "echo", f"unix:{socket}"

    def _start_redis(self):
        program, socket = needed("redis-server"), self.work / "redis"
        self._child([program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"], socket)
        return "redis", f"unix://{socket}"

    def _start_etcd(self):
        program, data = needed("etcd"), self.work / "etcd"
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        log = self.work / "etcd.log"
        with open(log, "wb") as said:
            self.children.append(subprocess.Popen(
                [program, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
                stdout=said, stderr=said))
        wait_for("etcd", lambda: b"serving" in log.read_bytes())
        return "etcd", client

    def _child(self, words, socket):
        self.children.append(subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_for(words[0], socket.exists)

    def stop(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def run(self):
        for repetition in range(self.options.repeat):
            for connections in self.options.connections:
                for segments in self.options.segments:
                    turn = self._turn(connections, segments)
                    first = repetition % len(turn)
                    for name, in_flight in turn[first:] + turn[:first]:
                        self._once(name, in_flight, connections, segments, repetition)
            for segments in self.options.irregular:
                # The echo is asked with messages as long as those of a regular lock: what else the machine does at that moment.
                for name, is_irregular in [("elbow", True), ("echo", False)] + ([(OLDER, True)] if self.options.older else []):
                    self._once(name, 1, 1, segments, repetition, is_irregular)
            self._once("elbow", 1, 1, 1, repetition, beside_lists=max(self.options.irregular))

    def _turn(self, connections, segments):
        # The messages of an echo do not grow with the segments, as those of a regular lock do not.
        turn = [(name, 1) for name in self.peers if segments == 1 or name != "etcd"]
        if connections == 1:
            turn += [(name, IN_FLIGHT) for name in ("elbow", OLDER, "echo", "C echo") if name in self.peers]
        return turn

    def _once(self, name, in_flight, connections, segments, repetition, is_irregular=False, beside_lists=0):
        kind, address = self.peers[name]
        peer = (name + (f", {in_flight} in flight" if in_flight > 1 else "") + (", irregular" if is_irregular else "")
                + (f", beside lists of {beside_lists}" if beside_lists else ""))
        words = [self.loads.get(name, self.load), "run", kind, "--address", address, "--connections", connections, "--segments", segments,
                 "--seconds", self.options.seconds, "--in-flight", in_flight, *(["--irregular"] if is_irregular else []),
                 *(["--beside-lists", beside_lists] if beside_lists else [])]
        outcome = dict(storage=f"{connections} connections", says="", job=f"{segments} segments", peer=peer, repetition=repetition,
                       rival=name in ("Redis", "etcd"), seconds=None, details={}, wrong=[], failed=None)
        try:
            said = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=300)
            outcome["details"] = json.loads(said.stdout)
        except FAILURES as error:
            outcome["failed"] = (getattr(error, "stderr", None) or str(error)).strip()[-300:]
        self.results.add(**outcome)
        rate, at_most = (outcome["details"].get(name) for name in ("cycles_per_s", lock_report.AT_MOST))
        print(f"{connections:3} connections {segments:5} segments  {peer:22} #{repetition} "
              + (f"{rate:12.0f} cycles/s" if rate is not None else f"at most {at_most:.1f} cycles/s" if at_most else f"FAILED {outcome['failed']}"))


def needed(name):
    program = inputs.find_program(name)
    if not program:
        raise inputs.Unavailable(f"{name} is not installed")
    return program


def wait_for(what, is_there):
    give_up = time.monotonic() + START_SECONDS
    while not is_there():
        if time.monotonic() > give_up:
            raise inputs.Unavailable(f"{what} did not start within {START_SECONDS} s")
        time.sleep(0.02)


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    os.environ.pop("ELBOW_LOCKS", None)
    main()
