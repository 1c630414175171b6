"""Journals: Table 3, Figures 12 and 13 and goals from raw runs, as JSON, CSV, SVG and Markdown. Nothing is rounded in our favour.

A ratio is of two journals of one round, and what is told is the median of the rounds that were not rejected.

Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 6; its Table 3 has TPC-B, its Figure 13 the times of journal writes.
"""

import csv
import math
import statistics
import tomllib

from . import plot
from .report import describe, down, up

PLAIN, BARK, NULL = JOURNALS = ["plain", "Bark", "null"]
FILE, ONE_DISK, TWO_DISKS = LOGS = ["append and fsync", "log on one disk", "log on two disks"]
ENTRIES = "entries, each durable"
DATA = {"disk": "data on an emulated disk", "memory": "data in memory"}
PROGRAMS = {"sqlite-rollback": "SQLite, rollback journal", "sqlite-wal": "SQLite, WAL", "pgbench": "PostgreSQL, pgbench", "append": "append and fsync"}
NUMBERS = ["mean_ms", "p50_ms", "p99_ms", "load_average", "rejected", "plain_late_p50_us", "plain_late_p99_us", "plain_late_max_us", "bark_late_p50_us",
           "bark_late_p99_us", "bark_late_max_us", "first_late_p99_us", "second_late_p99_us", "data_late_p50_us", "data_late_p99_us", "data_late_max_us", "bark_range_writes", "bark_moved"]
ON_DISK, IN_MEMORY = DATA["disk"], DATA["memory"]
ROLLBACK, APPEND = PROGRAMS["sqlite-rollback"], PROGRAMS["append"]
PERCENTS = range(101)
SHOWN_PERCENT = 99  # In the picture: the slowest of all would leave the others no room.


def write(results, out):
    text = markdown(results)
    results.publish(out, text, goals(results), NUMBERS)
    _figure_13(results, out)
    return text


def percentile(values, percent):
    """The least value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values):
    """All percentiles, from 0 on; None where there is nothing."""
    return [percentile(values, percent) for percent in PERCENTS] if values else None


class Rounds:
    """The rounds of a setting: in each, the runs of its three journals or files."""

    def __init__(self, results, storage, job):
        self.all, self.good = {}, []
        for run in results.runs:
            if (run["storage"], run["job"]) == (storage, job):
                self.all.setdefault(run["repetition"], {})[run["peer"]] = run
        wanted = set(LOGS if storage == ENTRIES else JOURNALS)
        for runs in self.all.values():
            if set(runs) == wanted and not any(run["failed"] or run["wrong"] or run["details"]["rejected"] for run in runs.values()):
                self.good.append(runs)

    @property
    def rejected(self):
        return sum(any(run["details"].get("rejected") for run in runs.values()) for runs in self.all.values())

    def median(self, journal, number):
        values = [runs[journal]["details"].get(number) for runs in self.good]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def ratio(self, above, below, number="mean_ms"):
        """The median over rounds; None where there is none."""
        ratios = [runs[above]["details"][number] / runs[below]["details"][number] for runs in self.good
                  if runs[above]["details"].get(number) and runs[below]["details"].get(number)]
        return statistics.median(ratios) if ratios else None


def settings(results):
    """(storage, job) of all that were measured, sorted."""
    return sorted({(run["storage"], run["job"]) for run in results.runs})


def markdown(results):
    parts = ["# Journals", "", *(f"- {name}: {value}" for name, value in results.host.items()), *_profile(results), "",
             "ms per transaction: the median of the means of the rounds, in brackets p50 and p99. Load is the machine's load average (1 minute) before each measurement,",
             "lateness the worst p99 of any emulated disk, of the rounds that were not rejected.", "",
             "| | | " + " | ".join(JOURNALS) + " | plain / Bark | Bark / null | rounds | rejected | load | lateness us |", "|---" * 11 + "|"]
    parts += [_row(Rounds(results, storage, job), storage, job) for storage, job in settings(results) if storage != ENTRIES]
    parts += [line for storage, job in settings(results) if storage == ENTRIES for line in _logs(Rounds(results, storage, job), job)]
    parts += ["", "## Goals", "", "| goal | measured | |", "|---|---|---|"]
    parts += [f"| {text} | {measured} | {verdict} |" for text, measured, verdict in goals(results)] + [""]
    parts += [f"- skipped: {text}" for text in results.skipped]
    parts += [f"- FAILED: {describe(run)}" for run in results.runs if run["failed"] or run["wrong"]]
    return "\n".join(parts) + "\n"


def _profile(results):
    found = results.rows.get("profile")
    if not found:
        return []
    rotation = found["rotation"]
    trial = rotation["trial"]
    return [f"- profile: a turn of {rotation['period_ms']:.3f} ms, jitter {rotation['jitter_ms']:.3f} ms; tried, {up(trial['mean_ms'])} ms by it and "
            f"{down(trial['in_order_ms'])} in order, {trial['missed']} of {trial['writes']} too late"]


def _times(rounds, peer):
    numbers = [rounds.median(peer, name) for name in ("mean_ms", "p50_ms", "p99_ms")]
    rounded = down if peer in (PLAIN, FILE) else up
    return "" if None in numbers else f"{rounded(numbers[0])} ({rounded(numbers[1])}, {rounded(numbers[2])})"


def _logs(rounds, job):
    return ["", f"| {ENTRIES}, {job} | " + " | ".join(LOGS) + " | rounds | rejected | load | lateness us |", "|---" * 8 + "|",
            "| ms | " + " | ".join(_times(rounds, peer) for peer in LOGS) + " | " + " | ".join(_conditions(rounds)) + " |"]


def _row(rounds, storage, job):
    cells = [_times(rounds, journal) for journal in JOURNALS]
    speed, over = rounds.ratio(PLAIN, BARK), rounds.ratio(BARK, NULL)
    cells += [f"**{down(speed)}x**" if speed else "", f"{up(over)}x" if over else "", *_conditions(rounds)]
    return f"| {storage} | {job} | " + " | ".join(cells) + " |"


def _conditions(rounds):
    """How many rounds counted, how many did not, and what the machine was like."""
    loads = [run["details"]["load_average"] for runs in rounds.good for run in runs.values()]
    late = [value for runs in rounds.good for run in runs.values() for name, value in run["details"].items() if name.endswith("_late_p99_us")]
    shown = [f"{down(min(loads), 1)} to {up(max(loads), 1)}" if loads else "", str(int(up(max(late), 0))) if late else ""]
    return [str(len(rounds.good)), str(rounds.rejected), *shown]


def goals(results):
    """(goal, measured, verdict) for each goal and claim of the paper; "-" where nothing was measured."""
    found = []
    for mode in ("journal", "ordered"):
        on_disk = lambda cache, mode=mode: Rounds(results, f"{ON_DISK}, data={mode}", f"{ROLLBACK}, {cache}")
        in_memory = Rounds(results, f"{IN_MEMORY}, data={mode}", f"{ROLLBACK}, cached")
        if mode == "journal":  # Where the journal has all data, it is what is waited for.
            found.append(_at_least(f"{ON_DISK}, data={mode}, cached: Bark >= 1.6x plain (paper: 61 %)", on_disk("cached").ratio(PLAIN, BARK), 1.6))
        found.append(_at_least(f"{IN_MEMORY}, data={mode}, cached: Bark >= 1.6x plain (paper: 61 %)", in_memory.ratio(PLAIN, BARK), 1.6))
        found.append(_at_least(f"{ON_DISK}, data={mode}, uncached: Bark >= 1.2x plain (paper: 20 %)", on_disk("uncached").ratio(PLAIN, BARK), 1.2))
    for cache in ("cached", "uncached"):
        rounds = Rounds(results, f"{ON_DISK}, data=ordered", f"{ROLLBACK}, {cache}")
        found.append(_at_most(f"{ON_DISK}, data=ordered, {cache}: Bark within 10 % of no journal", rounds.ratio(BARK, NULL), 1.1))
    appends = Rounds(results, f"{IN_MEMORY}, data=ordered", APPEND)
    found.append(_at_most(f"{IN_MEMORY}, data=ordered: p50 of append and fsync < 1/3 of plain", appends.ratio(BARK, PLAIN, "p50_ms"), 1 / 3))
    logs = Rounds(results, ENTRIES, next((job for storage, job in settings(results) if storage == ENTRIES), ""))
    found.append(_at_most("entries in a log on one disk: p50 < 1/3 of append and fsync of a file on it", logs.ratio(ONE_DISK, FILE, "p50_ms"), 1 / 3))
    found.append(_at_most("entries in a log on two disks: p50 no more than on one", logs.ratio(TWO_DISKS, ONE_DISK, "p50_ms"), 1))
    for storage, job in settings(results):
        if job == f"{ROLLBACK}, cached":
            ratio = Rounds(results, storage, job).ratio(BARK, PLAIN, "journal_write_p50_ms")
            found.append(_at_most(f"Figure 13, {storage}: Bark's median write of the journal < 1/3 of plain", ratio, 1 / 3))
    return found


def _at_least(text, measured, least):
    return (text, f"{down(measured)}x", "met" if measured >= least else "MISSED") if measured else (text, "not measured", "-")


def _at_most(text, measured, most):
    return (text, f"{up(measured)}x", "met" if measured <= most else "MISSED") if measured else (text, "not measured", "-")


def _figure_13(results, out):
    """The distribution of the times of journal writes, of all rounds that were not rejected: each percentile the median of theirs."""
    panels, rows = [], []
    for storage, job in settings(results):
        rounds, series = Rounds(results, storage, job), {}
        for journal in [] if storage == ENTRIES else JOURNALS:
            found = [runs[journal]["details"].get("journal_writes_ms") for runs in rounds.good]
            found = [values for values in found if values]
            if found:
                series[journal] = [(statistics.median(values), percent) for percent, values in zip(PERCENTS, zip(*found))]
                rows += [[storage, job, journal, percent, ms] for ms, percent in series[journal]]
        if series:
            shown = {journal: points[:SHOWN_PERCENT + 1] for journal, points in series.items()}
            panels.append(plot.Panel(job, f"ms of a write of the journal; {storage}", "% no longer", shown))
    with open(out / "figure-13.csv", "w", newline="") as file:
        csv.writer(file).writerows([["storage", "job", "journal", "percent", "ms"], *rows])
    if panels:
        (out / "figure-13.svg").write_text(plot.draw("Figure 13: how long writes of the journal take", "per journal, cumulative", panels, min(3, len(panels))))


def keep_profile(profile, out):
    """Figure 12: the profile, its picture, and its rows as CSV."""
    out.mkdir(parents=True, exist_ok=True)
    text = profile.read_text()
    (out / "profile.toml").write_text(text)
    picture = profile.with_suffix(".svg")
    if picture.exists():
        (out / "figure-12.svg").write_text(picture.read_text())
    with open(out / "figure-12.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["skip_sectors", "end_ms", "quickest_ms"])
        table.writerows([row["skip"], *write] for row in tomllib.loads(text)["row"] for write in row["writes"])
