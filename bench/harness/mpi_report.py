"""Atomic MPI-IO: goals and tables from raw runs, as JSON, CSV and Markdown. Nothing is rounded in our favour."""

import statistics

from .mpis import BY_NAME
from .report import at_least, describe, down, up

NUMBERS = ["mb_per_s", "rounds", "torn", "calls", "bytes", "at_once"]
LIST_GOAL, NATIVE_GOAL, FREE_GOAL = 0.97, 7, 0.9
# Locks per client and most ranks at once with lists and extents, as the patterns have them.
TRUE = {"block-8": ([2500], 8, 2), "block-27": ([1156, 1088, 1024], 27, 3), "block-64": ([625], 64, 4),
        "flash-8": ([24], 8, 1), "tile-6-exclusive": ([768], 2, 1), "tile-6-shared": ([768], 6, 6)}
NOTES = """\
Bandwidth: bytes of all ranks over the time from the first begin to the last end; medians of rounds, then of repetitions. In
brackets the share of no locking, the median of the repetitions' ratios. At once: ranks inside a read or write, on average.

- All modes but those that sieve or do as they like and the collective ones made the same requests in the same order: checked.
- none makes no promise: it tears where accesses overlap, and that is no error.
- Open MPI 4.1's own atomic mode (OMPIO) does nothing: its "native" is as fast as none and as torn, and is not counted as
  correct. Its ROMIO does what it says.
- "native, sieving" is ROMIO as it is without hints: each rank locks from its first byte to its last, reads all of that and writes it
  back in large pieces. That is fewer requests and more bytes, so it is no peer of the others, but of "list, as it likes": our
  library where it was told to choose (ELBOW_MPI_SIEVING=automatic; without that it never sieves). It then sieves by windows under
  list locks where that is quicker, as it has measured by then.
- ROMIO takes exclusive locks for reading too.
- The tables of the paper (locks per client, largest set) disagree with its text; these numbers are counted from the patterns."""


def place(mpi, delay_us):
    """What a run is filed under."""
    return f"{mpi}, {delay_us} us"


def delay_of(storage):
    return int(storage.split(", ")[1].split()[0])


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), NUMBERS)
    return text


def markdown(results):
    parts = ["# Atomic MPI-IO", "", *(f"- {name}: {value}" for name, value in results.host.items()), "", *NOTES.split("\n"), ""]
    for storage in results.names("storage"):
        parts += _table(results, storage)
    parts += _locks(results) + ["## Goals", "", "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    problems = [run for run in results.runs if run["failed"] or run["wrong"]]
    parts += [f"- FAILED{' (not ours)' if run['rival'] else ''}: {describe(run)}" for run in problems]
    return "\n".join(parts) + "\n"


def _table(results, storage):
    runs = [run for run in results.runs if run["storage"] == storage]
    jobs = list(dict.fromkeys(run["job"] for run in runs))
    lines = [f"## {storage} per request", "", "| MB/s | " + " | ".join(jobs) + " |", "|---" * (len(jobs) + 1) + "|"]
    for peer in [name for name in BY_NAME if any(run["peer"] == name for run in runs)]:
        name = f"{peer} (OMPIO: not atomic)" if (peer, storage.startswith("Open MPI")) == ("native", True) else peer
        lines.append(f"| {name} | " + " | ".join(_cell(results, storage, job, peer) for job in jobs) + " |")
    return [*lines, ""]


def _cell(results, storage, job, peer):
    rate, share = results.median(storage, job, peer, "mb_per_s"), ratio(results, storage, job, peer, "none")
    if rate is None:
        tried = any((run["storage"], run["job"], run["peer"]) == (storage, job, peer) for run in results.runs)
        return "failed" if tried else ""
    rounded = up if BY_NAME[peer].locks is None else down
    text = f"{rounded(rate, 1)}" + (f" ({rounded(share)})" if share and peer != "none" else "")
    median = lambda detail: results.median(storage, job, peer, detail)
    text += f", {down(median('at_once'))} at once" if BY_NAME[peer].exact else f", {median('calls'):.0f} requests"
    torn, rounds = (sum(run["details"][key] for run in results.good(storage, job, peer)) for key in ("torn", "rounds"))
    return text + (f", TORN in {torn} of {rounds} rounds" if torn else "")


def _locks(results):
    """What the locks cost, from the generators: no run is needed for it."""
    lines = ["## Locks", "", "Bytes on the wire: the frames of one lock (the most of any rank), its answer, and its end.", "",
             "| workload | ranks | | locks per client | most ranks at once | request + answer + end, bytes |", "|---" * 6 + "|"]
    for name, workload in results.rows.get("workloads", {}).items():
        for mode in ("list", "extent", "file"):
            cost = workload["modes"][mode]
            locks = ", ".join(map(str, workload["locks"])) if mode == "list" else cost["locks"][1]
            sizes = " + ".join(str(cost[f"{part}_bytes"]) for part in ("request", "answer", "unlock"))
            lines.append(f"| {name} | {workload['ranks']} | {mode} | {locks} | {cost['at_once']} | {sizes} |")
    return [*lines, ""]


def ratio(results, storage, job, above, below):
    """The median over the repetitions of how many times the bandwidth of one mode is that of another."""
    rates = [{run["repetition"]: run["details"]["mb_per_s"] for run in results.good(storage, job, peer)} for peer in (above, below)]
    ratios = [rates[0][repetition] / rates[1][repetition] for repetition in rates[0] if repetition in rates[1]]
    return statistics.median(ratios) if ratios else None


def goals(results):
    """(goal, measured, verdict) for each goal of this run."""
    workloads, found = results.rows.get("workloads", {}), []
    for storage in results.names("storage"):
        found += _of_storage(results, storage, workloads)
    for name, (locks, with_lists, with_extents) in TRUE.items():
        if name in workloads:
            modes = workloads[name]["modes"]
            has = (workloads[name]["locks"], modes["list"]["at_once"], modes["extent"]["at_once"])
            text = f"{name}: {', '.join(map(str, locks))} locks per client, {with_lists} at once with lists, {with_extents} with extents"
            found.append((text, "as counted" if has == (locks, with_lists, with_extents) else str(has),
                          "PASS" if has == (locks, with_lists, with_extents) else "MISS"))
    return found


def _of_storage(results, storage, workloads):
    found = []
    jobs = [name for name in workloads if any((run["storage"], run["job"]) == (storage, name) for run in results.runs)]
    for job in (name for name in jobs if workloads[name]["disjoint"]):
        share = ratio(results, storage, job, "list", "none")
        if share and delay_of(storage) >= 100:
            found.append(at_least(f"{storage}, {job}: list >= {LIST_GOAL} of no locking", share, LIST_GOAL))
        elif share:
            found.append((f"{storage}, {job}: list of no locking, published as measured", f"{down(share)}x", "-"))
    native = "native" if storage.startswith("MPICH") else "native, ROMIO"
    for job in jobs:
        for peer in (native, f"{native}, sieving"):
            share = ratio(results, storage, job, "list, as it likes", peer)
            if share:
                found.append(at_least(f"{storage}, {job}: list, as it likes >= {FREE_GOAL} of {peer}", share, FREE_GOAL))
    times = ratio(results, storage, "interleaved-8", "list", native)
    if times and delay_of(storage) >= 100:
        found.append(at_least(f"{storage}, interleaved-8: list >= {NATIVE_GOAL}x {native}", times, NATIVE_GOAL))
    elif times:
        found.append((f"{storage}, interleaved-8: list over {native}, published as measured", f"{down(times)}x", "-"))
    return found
