"""Locks: goals and tables from raw runs, as JSON, CSV and Markdown. Nothing is rounded in our favour."""

from .report import describe, down, up

NUMBERS = ["cycles_per_s", "p50_us", "p99_us"]
OLDER = "elbow, before"
AT_MOST = "cycles_per_s_at_most"  # Of a peer that did not end in time.


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), [*NUMBERS, AT_MOST])
    return text


def markdown(results):
    parts = ["# Locks", "", *(f"- {name}: {value}" for name, value in results.host.items()), "",
             "Medians. A cycle is lock and unlock; of a load with many in flight, p50 and p99 are of a round of them all.", ""]
    for storage in results.names("storage"):
        parts += _table(results, storage)
    parts += ["## Goals", "", "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    parts += [f"- FAILED: {describe(run)}" for run in results.runs if run["failed"]]
    return "\n".join(parts) + "\n"


def _table(results, storage):
    runs = [run for run in results.runs if run["storage"] == storage]
    jobs = list(dict.fromkeys(run["job"] for run in runs))
    lines = [f"## {storage}", "", "| | " + " | ".join(f"{job}: cycles/s, p50 us, p99 us" for job in jobs) + " |",
             "|---" * (len(jobs) + 1) + "|"]
    for peer in dict.fromkeys(run["peer"] for run in runs):
        rounded = down if peer.startswith("elbow") else up
        cells = []
        for job in jobs:
            numbers = [results.median(storage, job, peer, name) for name in NUMBERS]
            at_most = results.median(storage, job, peer, AT_MOST)
            if None not in numbers:
                cells.append(" , ".join(str(rounded(number, 0 if number > 100 else 1)) for number in numbers))
            else:
                cells.append(f"not done in time: at most {up(at_most, 1)}" if at_most else "")
        lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def goals(results):
    """(goal, measured, verdict) for each goal whose loads were run."""
    one, many = "1 connections", "64 connections"
    rate = lambda storage, job, peer: results.median(storage, job, peer, "cycles_per_s")
    pipelined = "elbow, 64 in flight"
    wanted = [
        ("one connection: a cycle <= 1.5x an echo's round trip", rate(one, "1 segments", "echo"), rate(one, "1 segments", "elbow"), 1.5, up),
        ("2,500 segments <= 1.2x the time of one", rate(one, "1 segments", "elbow"), rate(one, "2500 segments", "elbow"), 1.2, up),
    ]
    found = [_at_most(text, above, below, most) for text, above, below, most, _ in wanted]
    ratio = lambda ours, theirs: (f"{up(theirs / ours)}x", "") if ours and theirs else None
    beside_c = ratio(rate(one, "1 segments", "elbow"), rate(one, "1 segments", "C echo"))
    found.append(("one connection: a cycle beside the round trip of a C echo on bare epoll", *beside_c) if beside_c else None)
    found += [_irregular(results, one), _long(results, one)]
    for job in results.names("job"):
        now, before = rate(one, job, "elbow"), rate(one, job, OLDER)
        found.append(_at_least(f"one connection, {job}: >= 0.95x the cycles/s of before", now, before, 0.95, 3))
    found.append(_at_least(">= 500,000 cycles/s with 64 in flight", rate(one, "1 segments", pipelined), 1, 500_000))
    for storage in (one, many):
        for rival, least in (("kernel OFD", 1000), ("Redis", 20)):
            text = f">= {least}x {rival} at 2,500 segments, {storage}"
            theirs = rate(storage, "2500 segments", rival) or results.median(storage, "2500 segments", rival, AT_MOST)
            found.append(_at_least(text, rate(storage, "2500 segments", "elbow"), theirs, least))
    return [goal for goal in found if goal]


def _irregular(results, storage):
    """Ours beside ours: the list goes over the socket and is compared as one, a pattern is arithmetic."""
    p50 = lambda peer: results.median(storage, "2500 segments", peer, "p50_us")
    return _at_most("2,500 irregular segments <= 2x the time of regular ones", p50("elbow, irregular"), p50("elbow"), 2)


def _long(results, storage):
    p50 = results.median(storage, "100000 segments", "elbow, irregular", "p50_us")
    return p50 and ("100,000 irregular segments: a cycle <= 10 ms", f"{up(p50 / 1000)} ms", "met" if p50 <= 10_000 else "MISSED")


def _at_most(text, above, below, most):
    return (text, f"{up(above / below)}x", "met" if above / below <= most else "MISSED") if above and below else None


def _at_least(text, above, below, least, digits=1):
    return (text, f"{down(above / below, digits)}", "met" if above / below >= least else "MISSED") if above and below else None
