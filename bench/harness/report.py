"""Medians, ratios, goals: from raw runs to JSON, CSV and Markdown. Nothing is rounded in our favour."""

import csv
import json
import math
import statistics
import sys

OURS = "elbow"
ALWAYS_WANTED_REPEAT = 3


class Results:
    """All raw runs, and the medians over them."""

    def __init__(self):
        self.runs, self.rows, self.skipped, self.host = [], {}, [], {}

    def add(self, **run):
        self.runs.append(run)

    def good(self, storage, job, peer):
        wanted = (storage, job, peer)
        return [run for run in self.runs
                if (run["storage"], run["job"], run["peer"]) == wanted and not run["failed"] and not run["wrong"]]

    def median(self, storage, job, peer, detail=None):
        """The median of the seconds (or of a detail) of the runs that went well; None when there is none."""
        runs = self.good(storage, job, peer)
        values = [run["details"].get(detail) if detail else run["seconds"] for run in runs]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def ratio(self, storage, job, slower, faster, detail=None):
        above, below = (self.median(storage, job, peer, detail) for peer in (slower, faster))
        return above / below if above and below else None

    def names(self, key):
        return list(dict.fromkeys(run[key] for run in self.runs))

    @property
    def bad(self):
        """The runs of others than rivals that failed or left a wrong tree."""
        return [run for run in self.runs if (run["failed"] or run["wrong"]) and not run["rival"]]

    def publish(self, out, text, goals, numbers):
        """Writes results.md (`text`), results.json (everything) and results.csv (each run, with these numbers of its details)."""
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.md").write_text(text)
        everything = {"host": self.host, "rows": self.rows, "runs": self.runs, "skipped": self.skipped,
                      "goals": [list(goal) for goal in goals]}
        (out / "results.json").write_text(json.dumps(everything, indent=1) + "\n")
        with open(out / "results.csv", "w", newline="") as file:
            table = csv.writer(file)
            keys = ["storage", "job", "peer", "repetition", "seconds"]
            table.writerow([*keys, *numbers, "problem"])
            for run in self.runs:
                problem = run["failed"] or "; ".join(run["wrong"][:3])
                table.writerow([*(run[key] for key in keys), *(run["details"].get(name) for name in numbers), problem])

    def exit(self, is_short=False):
        """Ends the program: names what failed, and fails if anything did, or less was measured than must be."""
        for run in self.bad:
            print(f"bench: FAILED: {describe(run)}", file=sys.stderr)
        sys.exit(1 if self.bad or not self.runs or is_short else 0)


def down(number, digits=2):
    return math.floor(number * 10**digits) / 10**digits


def up(number, digits=2):
    return math.ceil(number * 10**digits) / 10**digits


def markdown(results):
    parts = ["# Bench", "", *(f"- {name}: {value}" for name, value in results.host.items()), ""]
    for storage in results.names("storage"):
        parts += _storage_table(results, storage)
    parts += _rows_text(results) + ["## Goals", "", "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    parts += [f"- FAILED: {describe(run)}" for run in results.bad]
    return "\n".join(parts) + "\n"


def describe(run):
    problems = [run["failed"]] if run["failed"] else run["wrong"]
    more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
    return f"{run['storage']} {run['job']} {run['peer']} #{run['repetition']}: {'; '.join(problems[:3])}{more}"


def _storage_table(results, storage):
    runs = [run for run in results.runs if run["storage"] == storage]
    peers = list(dict.fromkeys(run["peer"] for run in runs))
    lines = [f"## {storage}: {runs[0]['says']}", "", "Median seconds until everything is on the storage.", ""]
    lines += ["| job | " + " | ".join(peers) + " | direct / elbow | in flight |", "|---" * (len(peers) + 3) + "|"]
    for job in dict.fromkeys(run["job"] for run in runs):
        cells = [_cell(results, storage, job, peer) for peer in peers]
        ratio = results.ratio(storage, job, "direct", OURS)
        flight = results.median(storage, job, OURS, "mean_in_flight")
        cells += [f"**{down(ratio)}x**" if ratio else "", str(down(flight, 1)) if flight is not None else ""]
        lines.append(f"| {job} | " + " | ".join(cells) + " |")
    return [*lines, "", *_rpc_table(results, storage)]


def rpc_counts(results, storage, job, peer):
    """RPCs by operation, of the median run by their sum; None where they are not counted."""
    counted = [run["server"]["rpcs"] for run in results.good(storage, job, peer) if "rpcs" in (run["server"] or {})]
    return sorted(counted, key=lambda counts: sum(counts.values()))[len(counted) // 2] if counted else None


def _rpc_table(results, storage):
    """What each job asked an NFS server for, by operation."""
    lines = []
    for job in results.names("job"):
        by_peer = {peer: rpc_counts(results, storage, job, peer) for peer in results.names("peer")}
        by_peer = {peer: counts for peer, counts in by_peer.items() if counts}
        names = sorted({name for counts in by_peer.values() for name in counts},
                       key=lambda name: -max(counts.get(name, 0) for counts in by_peer.values()))
        for peer, counts in by_peer.items():
            cells = [f"{name} {counts[name]}" for name in names if name in counts]
            lines.append(f"| {job} | {peer} | {sum(counts.values())} | {', '.join(cells)} |")
    if not lines:
        return []
    return ["RPCs from mounting until the job is over.", "", "| job | peer | RPCs | by operation |", "|---|---|---|---|", *lines, ""]


def _cell(results, storage, job, peer):
    median = results.median(storage, job, peer)
    runs = [run for run in results.runs if (run["storage"], run["job"], run["peer"]) == (storage, job, peer)]
    broken = sum(1 for run in runs if run["failed"] or run["wrong"])
    text = "" if median is None else str(up(median) if peer == OURS else down(median))
    return f"{text} ({broken} of {len(runs)} wrong)".strip() if broken else text


def _rows_text(results):
    lines = ["## Beside the matrix", ""]
    native, rows = results.rows.get("native_extraction"), results.rows
    if "start" in rows:
        lines.append(f"- `elbow run -- true` over `true`, median of 20: {up(rows['start']['over'] * 1000)} ms")
    if native:
        for storage, natively in native.items():
            seconds = results.median(storage, "tar", OURS, "command_seconds")
            if seconds:
                lines.append(f"- tar acknowledged inside elbow on {storage}: {up(seconds * 1000)} ms, "
                             f"{up(seconds / natively)}x native tmpfs ({down(natively * 1000)} ms)")
    if "memory" in rows:
        peak = rows["memory"]
        lines.append(f"- peak resident memory extracting {peak['mebibytes']} MiB with --mem {peak['mem_mebibytes']}M: "
                     f"{up(peak['peak_bytes'] / 2**20, 1)} MiB (in {up(peak['seconds'], 1)} s)")
    return [*lines, ""]


def goals(results):
    """(goal, measured, verdict) for each goal that this run could tell something about, and those it could not."""
    wanted = []
    for storage, least in (("slowfs2", 10), ("ssh5", 8), ("nfs3-2", 3.5), ("nfs4-2", 3.5), ("nfs3-10", 5), ("nfs4-10", 5)):
        for job in ("tar", "unzip"):
            wanted.append(at_least(f"{storage}: {job} >= {least}x direct", results.ratio(storage, job, "direct", OURS), least))
    matrix = [storage for storage in results.names("storage") if storage != "local" and not storage.startswith("far")]
    for storage in matrix:
        wanted.append(at_least(f"{storage}: rm >= 2x direct", results.ratio(storage, "rm", "direct", OURS), 2))
        for job in ("append", "patch", "mv", "scatter"):
            wanted.append(at_least(f"{storage}: {job} >= 1x direct", results.ratio(storage, job, "direct", OURS), 1))
        for job in results.names("job"):
            wanted += _against_rivals(results, storage, job)
        for job in ("tar", "unzip", "rm"):
            ours, directly = (rpc_counts(results, storage, job, peer) for peer in (OURS, "direct"))
            if ours and directly:
                ratio = sum(ours.values()) / sum(directly.values())
                wanted.append(at_most(f"{storage}: {job} asks <= 1.1x the RPCs of the command alone", ratio, 1.1, "x"))
    wanted += _by_ssh(results) + _acknowledgement(results, matrix) + _rows_goals(results)
    return [goal for goal in wanted if goal]


def _against_rivals(results, storage, job):
    found = []
    for rival in ("tmpfs+copy32", "CannyFS"):
        least = 1.5 if rival == "CannyFS" and not storage.startswith("nfs") else 1
        ratio = results.ratio(storage, job, rival, OURS)
        if ratio:
            found.append(at_least(f"{storage}: {job} >= {least}x {rival}", ratio, least, strictly=least == 1))
    return found


def _by_ssh(results):
    """A job by ssh beside one stream to the server, which waits for nothing."""
    found = []
    for storage in results.names("storage"):
        for job, most in (("tar", 1.3), ("unzip", 1.3), ("rm", 1.5), ("read", 1.11), ("find", 1.5), ("git", 1.5)):
            ratio = results.ratio(storage, job, "elbow --via", "ssh tar")
            if ratio:
                found.append(at_most(f"{storage}: {job} by ssh in <= {most}x what it takes there", ratio, most, "x"))
    return found


def _acknowledgement(results, storages):
    found = []
    for storage in storages:
        native = results.rows.get("native_extraction", {}).get(storage)
        ours = results.median(storage, "tar", OURS, "command_seconds")
        theirs = results.median(storage, "tar", "CannyFS", "command_seconds")
        found.append(at_most(f"{storage}: tar acknowledged in <= 6x native tmpfs", ours and native and ours / native, 6, "x"))
        if theirs:
            found.append(at_most(f"{storage}: tar acknowledged in <= 0.6x CannyFS", ours and ours / theirs, 0.6, "x"))
    return found


def _rows_goals(results):
    start, memory = results.rows.get("start"), results.rows.get("memory")
    peak = memory and memory["peak_bytes"] / 2**20
    bound = memory["mem_mebibytes"] + 64 if memory else 128
    return [at_most("`elbow run -- true` <= 50 ms over `true`", start and start["over"] * 1000, 50, " ms"),
            at_most(f"peak resident memory <= {bound} MiB", peak, bound, " MiB")]


def at_least(text, measured, least, strictly=False):
    if measured is None:
        return text, "not measured", "-"
    met = measured > least if strictly else measured >= least
    return text, f"{down(measured)}x", "PASS" if met else "MISS"


def at_most(text, measured, most, unit):
    if measured is None:
        return text, "not measured", "-"
    return text, f"{up(measured)}{unit}", "PASS" if measured <= most else "MISS"


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), ["command_seconds", "mean_in_flight"])
    return text
