"""The speed of the simulated disk: goals and tables from raw runs, as JSON, CSV and Markdown. Nothing is rounded in our favour."""

from .report import describe, up

DISK, GROUP, ANYWHERE = "SPTF, whole disk", "SPTF, group of 16 MB", "HRS, anywhere in the group"
MEMORY, REPLAY = "memory, Q = 16", "a trace, one at a time"
NUMBERS = ["requests_per_s", "requests_per_cpu_s", "peak_rss_bytes", "mean_ms", "estimates"]
MEMORY_SLACK = 1 << 20


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), NUMBERS)
    return text


def markdown(results):
    parts = ["# The simulated disk", "", *(f"- {name}: {value}" for name, value in results.host.items()), "",
             "Thousands of simulated requests per second of wall-clock time, in brackets per second of processor time; medians. Mechanics",
             "alone unless it says otherwise, HP C2247A.", ""]
    depths = [storage for storage in results.names("storage") if storage.startswith("Q = ")]
    parts += ["| | " + " | ".join(depths) + " |", "|---" * (len(depths) + 1) + "|"]
    for job in dict.fromkeys(run["job"] for run in results.runs if run["storage"] in depths):
        parts.append(f"| {job} | " + " | ".join(_rate(results, depth, job, "elbow") for depth in depths) + " |")
    parts += ["", f"{REPLAY}, reading included, all overheads:", ""]
    for peer in dict.fromkeys(run["peer"] for run in results.runs if run["storage"] == REPLAY):
        mean = results.median(REPLAY, "", peer, "mean_ms")
        parts.append(f"- {peer}: {_rate(results, REPLAY, '', peer)}" + (f", mean {mean:.3f} ms" if mean else ""))
    parts += ["", "Peak memory of a process:", ""]
    parts += [f"- {job}: {up(peak / 2**20, 1)} MiB" for job, peak in _peaks(results)]
    parts += ["", "## Goals", "", "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    parts += [f"- FAILED: {describe(run)}" for run in results.runs if run["failed"]]
    return "\n".join(parts) + "\n"


def _rate(results, storage, job, peer):
    wall, cpu = (results.median(storage, job, peer, name) for name in NUMBERS[:2])
    return f"{int(wall / 1000):,} ({int(cpu / 1000):,})" if wall else ""


def _peaks(results):
    jobs = dict.fromkeys(run["job"] for run in results.runs if run["storage"] == MEMORY)
    peaks = [(job, results.median(MEMORY, job, "elbow", "peak_rss_bytes")) for job in jobs]
    return sorted(((job, peak) for job, peak in peaks if peak), key=lambda of: int(of[0].split()[0]))


def goals(results):
    """(goal, measured, verdict) for each goal whose loads were run."""
    rate = lambda depth, job, name="requests_per_s": results.median(f"Q = {depth}", job, "elbow", name)
    found = [_at_least(f">= {least:,} simulated requests/s: {DISK}, Q = {depth}", rate(depth, DISK), least)
             for depth, least in ((1, 1_000_000), (16, 300_000))]
    for depth in [storage.removeprefix("Q = ") for storage in results.names("storage") if storage.startswith("Q = ")]:
        free, plain = (rate(depth, job, "requests_per_cpu_s") for job in (ANYWHERE, GROUP))
        if free and plain:  # By processor time: what else the machine does would count in a ratio, for or against us.
            text = f"{ANYWHERE} <= 3x the processor time of {GROUP}, Q = {depth}"
            found.append(_at_most(text, plain / free, 3, "x"))
    peaks = [peak for _, peak in _peaks(results)]
    if len(peaks) == 2:
        text = "a hundred times the requests in the same memory (1 MiB more at most)"
        found.append(_at_most(text, (peaks[1] - peaks[0]) / 2**20, MEMORY_SLACK / 2**20, " MiB more"))
    return [goal for goal in found if goal]


def _at_least(text, measured, least):
    return (text, f"{int(measured):,}", "met" if measured >= least else "MISSED") if measured else None


def _at_most(text, measured, most, unit):
    return text, f"{up(measured)}{unit}", "met" if measured <= most else "MISSED"
