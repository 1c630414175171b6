"""LOG SEED STOPFILE URL TTL: a client by the package elbowroom; see game.h. A TTL of 0: as the package has it."""

import os
import random
import sys
import time

import elbowroom

PIECES, PIECE = 12, 100
LOG, SEED, STOP, URL, TTL = sys.argv[1:]
RNG = random.Random(int(SEED))
OUT = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def note(line):
    os.write(OUT, line.encode() + b"\n")


def dream():
    first, kind = RNG.randrange(PIECES), RNG.randrange(100)
    if kind < 75:
        return [(first * PIECE, PIECE)]
    if kind < 85:
        return [(piece * PIECE, PIECE // 2) for piece in range(first % 4, PIECES, 4)]
    if kind < 98:
        return [(first * PIECE // 2 + 30, PIECE + RNG.randrange(PIECE))]
    return [(0, PIECES * PIECE)]


def play(locks):
    file, shared, ranges = RNG.choice("aabc"), RNG.randrange(4) == 0, dream()
    shown = ",".join(f"{start}:{start + length}" for start, length in ranges)
    is_modest = len(ranges) == 1 and ranges[0][1] <= 2 * PIECE
    timeout = RNG.choice([None if is_modest else 0.3] * 5 + [0.3] * 4 + [0])
    look = RNG.choice([0.0004] * 7 + [0.006] * 2 + [0.04])
    holding = locks.hold(file, ranges, shared=shared, timeout=timeout)
    note(f"ask {now()} {file} {'s' if shared else 'x'} {shown}")
    try:
        hold = holding.__enter__()
        at = now()
    except elbowroom.LockError as error:
        note(f"not {now()} {type(error).__name__}")
        return time.sleep(0.005)
    note(f"got {at} {hold.token}")
    for _ in range(1 + RNG.randrange(6)):
        before = now()
        said = tell(hold.check)
        note(f"{said} {before} {now()}")
        time.sleep(look)
    note(f"back {now()}")
    said = tell(lambda: holding.__exit__(None))
    note(f"done {now()} {said}")
    time.sleep(RNG.random() * 0.004)


def tell(ask):
    try:
        ask()
    except elbowroom.Lost:
        return "lost"
    return "ours"


def main():
    locks = elbowroom.LockClient(URL, ttl=float(TTL) or None)
    while not os.path.exists(STOP):
        play(locks)


main()
