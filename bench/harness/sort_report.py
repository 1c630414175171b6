"""Sorts: goals and tables from raw runs, as JSON, CSV and Markdown. Nothing is rounded in our favour."""

from .report import at_least, at_most, describe, down, up
from .sorters import FREED, GNU_OTHER, GNU_OVER, IN_PLACE, KEPT, OTHER, OVER, SMALL

NUMBERS = ["seconds", "synced_seconds", "cpu_seconds", "peak_rss_bytes", "read_bytes", "written_bytes", "peak_disk_bytes"]
PEAK_GOALS = {"ext4": 1.05, "xfs": 1.10}
OURS = (IN_PLACE, OTHER, OVER)


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), ["input_bytes", *NUMBERS])
    return text


def markdown(results):
    parts = ["# Sorting", "", *(f"- {name}: {value}" for name, value in results.host.items()), ""]
    for storage in results.names("storage"):
        for job in dict.fromkeys(run["job"] for run in results.runs if run["storage"] == storage):
            parts += _table(results, storage, job)
    parts += ["## Goals", "", "Of room, transfers and memory the worst repetition counts, of times the median. Less than the transfers of two passes "
              "means that runs never left the page cache.", "",
              "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    problems = [run for run in results.runs if run["failed"] or run["wrong"]]
    parts += [f"- FAILED{' (a rival)' if run['rival'] else ''}: {describe(run)}" for run in problems]
    return "\n".join(parts) + "\n"


def _table(results, storage, job):
    lines = [f"## {job} on {storage}", "", "Medians. Room is the peak on the file system, the input with it.", "",
             "| | wall s | until synced s | CPU s | RSS MB | read GB | written GB | room / input |", "|---" * 8 + "|"]
    for peer in dict.fromkeys(run["peer"] for run in results.runs if (run["storage"], run["job"]) == (storage, job)):
        median = lambda detail: results.median(storage, job, peer, detail)
        size = median("input_bytes")
        if size is None:
            lines.append(f"| {peer} | failed" + " |" * 7)
            continue
        rounded = up if peer in (*OURS, KEPT, FREED) else down
        cells = [(median("seconds"), 1), (median("synced_seconds"), 1), (median("cpu_seconds"), 1),
                 (median("peak_rss_bytes"), 1e6), (median("read_bytes"), 1e9), (median("written_bytes"), 1e9),
                 (median("peak_disk_bytes"), size)]
        lines.append(f"| {peer} | " + " | ".join(str(rounded(number / unit)) for number, unit in cells) + " |")
    return [*lines, ""]


def goals(results):
    """(goal, measured, verdict) for each goal of this run."""
    found = []
    for job in ("s24", "r100"):
        for ours in (IN_PLACE, OTHER):
            for rival, least in (("TPIE", 3), ("STXXL", 3), ("DuckDB", 5)):
                ratio = results.ratio("ext4", job, rival, ours)
                found.append(at_least(f"{job}, {ours}: >= {least}x {rival}", ratio, least))
    for ours, rival in ((OTHER, GNU_OTHER), (OVER, GNU_OVER)):
        ratio = results.ratio("ext4", "text", rival, ours)
        found.append(at_least(f"text, {ours}: >= 8x {rival}", ratio, 8))
        ratio = results.ratio("ext4", SMALL, rival, ours)
        found.append(at_least(f"{SMALL}, {ours}: >= 4x {rival}", ratio, 4))
    for storage, most in PEAK_GOALS.items():
        for job in ("s24", "r100"):
            worst = _worst(results, storage, job, IN_PLACE, lambda numbers: numbers["peak_disk_bytes"] / numbers["input_bytes"])
            found.append(at_most(f"{storage}: {job} in place takes <= {most}x its input of room", worst, most, "x"))
    for job, ours in (("s24", IN_PLACE), ("s24", OTHER), ("r100", IN_PLACE), ("r100", OTHER), ("text", OTHER), ("text", OVER)):
        found.append(at_most(f"{job}, {ours}: <= 1.02x the transfers of two passes",
                              _worst(results, "ext4", job, ours, _of_two_passes), 1.02, "x"))
        memory = _worst(results, "ext4", job, ours, lambda numbers: numbers["peak_rss_bytes"] / numbers["memory_bytes"])
        found.append(at_most(f"{job}, {ours}: resident memory <= 1.05x the budget", memory, 1.05, "x"))
    found.append(at_most("s24 in streams: freeing costs <= 5 % over keeping", _over(results, FREED, KEPT), 5, " %"))
    found.append(at_most("s24: in place costs <= 5 % over another file", _over(results, IN_PLACE, OTHER), 5, " %"))
    return found


def _of_two_passes(numbers):
    """Both passes read everything and write everything."""
    return (numbers["read_bytes"] + numbers["written_bytes"]) / (4 * numbers["input_bytes"])


def _over(results, ours, other):
    ratio = results.ratio("ext4", "s24", ours, other)
    return (ratio - 1) * 100 if ratio else None


def _worst(results, storage, job, peer, of):
    values = [of(run["details"]) for run in results.good(storage, job, peer)]
    return max(values) if values else None
