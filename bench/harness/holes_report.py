"""Figures 1 to 4 of *A Holesome File System*: medians, verdicts, CSV, SVG and Markdown. Nothing is rounded in our favour."""

import csv
import statistics

from . import plot
from .report import up

COLUMNS = ["figure", "storage", "way", "bytes", "repetition", "seconds", "synced_seconds", "peak_disk_bytes"]
TITLES = {"1": "Figure 1: freeing a whole file", "2": "Figure 2: freeing the middle of a file",
          "3": "Figure 3: NAS EP", "4": "Figure 4: s24, a sort of 24-byte records"}
# In the words of the abstract of A Holesome File System; the factor of figure 3 is from its section 5.
CLAIMS = {"1": "where their functionality overlaps, zero() is more efficient than ftruncate()",
          "2": "zero() can create holes in the middle of existing files",
          "3": "1.785 N of room becomes N, for only a small performance penalty",
          "4": "effectively doubles disk capacity, for only a small performance penalty"}
SMALL_PENALTY = 1.05
DOUBLE = 1.8  # At least; a run and what is under way has to fit too.
EP_ROOM = 1.05


def is_full(complaint):
    """Did it fail because the disk is full?"""
    return "No space left" in complaint or "ENOSPC" in complaint or "os error 28" in complaint


def write(rows, skipped, host, out):
    """Writes holes.csv, figure1.svg to figure4.svg and holes.md; returns the Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "holes.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    parts = ["# A Holesome File System, again", "", *(f"- {name}: {value}" for name, value in host.items()), ""]
    for figure in dict.fromkeys(row["figure"] for row in rows):
        of_it = [row for row in rows if row["figure"] == figure]
        drawn = plot.draw(TITLES[figure], f"The paper: {CLAIMS[figure]}.", *_panels(figure, of_it))
        (out / f"figure{figure}.svg").write_text(drawn)
        parts += [f"## {TITLES[figure]}", "", f"The paper: *{CLAIMS[figure]}*.", "", f"![{TITLES[figure]}](figure{figure}.svg)", "",
                  "| file system | here | |", "|---|---|---|"]
        for storage in _names(of_it, "storage"):
            measured, verdict = VERDICTS[figure](Medians(rows, storage))
            parts.append(f"| {storage} | {measured} | {verdict} |")
        parts.append("")
    text = "\n".join(parts + [f"- skipped: {line}" for line in skipped]) + "\n"
    (out / "holes.md").write_text(text)
    return text


class Medians:
    """Medians of a file system's rows. A size of which one repetition did not fit does not fit."""

    def __init__(self, rows, storage):
        self.rows = [row for row in rows if row["storage"] == storage]

    def sizes(self, figure, *ways):
        """The sizes that were measured, and fit, in all these ways."""
        found = sorted({row["bytes"] for row in self.rows if row["figure"] == figure})
        return [size for size in found if all(self.of(figure, way, size) is not None for way in ways)]

    def of(self, figure, way, size, what="seconds"):
        values = [row[what] for row in self.rows if (row["figure"], row["way"], row["bytes"]) == (figure, way, size)]
        return statistics.median(values) if values and None not in values else None

    def ratios(self, figure, above, below, what="seconds"):
        sizes = self.sizes(figure, above, below)
        return [self.of(figure, above, size, what) / self.of(figure, below, size, what) for size in sizes]


def _first(medians):
    ratios = medians.ratios("1", "zero", "ftruncate")
    synced = medians.ratios("1", "zero", "ftruncate", "synced_seconds")
    if not ratios:
        return "not measured", "-"
    mean = statistics.geometric_mean(ratios)
    text = (f"zero takes {up(mean)} of ftruncate (geometric mean over sizes; worst {up(max(ratios))}), "
            f"{up(statistics.geometric_mean(synced))} with fsync")
    bare = medians.ratios("1", "punch", "ftruncate")
    if bare:
        text += f"; fallocate alone {up(statistics.geometric_mean(bare))}"
    return text, "PASS" if mean <= 1 else "MISS"


def _second(medians):
    ratios = medians.ratios("2", "zero", "write", "synced_seconds")  # Written zeros have yet to go to the disk.
    if not ratios:
        return "not measured", "-"
    mean = statistics.geometric_mean(ratios)
    text = (f"with fsync, zero takes {up(mean)} of writing zeros (geometric mean over sizes), {up(ratios[-1], 4)} at the largest, "
            f"{up(max(ratios))} at worst")
    sizes = [size for size in medians.sizes("2", "zero") if medians.of("1", "ftruncate", size)]
    if sizes:
        like = statistics.geometric_mean(medians.of("2", "zero", size) / medians.of("1", "ftruncate", size) for size in sizes)
        text += f"; {up(like)} of cutting off as much with ftruncate"
    return text, "PASS" if mean < 1 else "MISS"


def _third(medians):
    times = medians.ratios("3", "freed", "kept")
    if not times:
        return "not measured", "-"
    room = {way: max(medians.of("3", way, size, "peak_disk_bytes") / size for size in medians.sizes("3", way))
            for way in ("kept", "freed")}
    text = f"{up(room['kept'], 3)} N becomes {up(room['freed'], 3)} N; freeing takes {up(times[-1], 3)} of the time (largest class)"
    return text, "PASS" if room["freed"] <= EP_ROOM and times[-1] <= SMALL_PENALTY else "MISS"


def _fourth(medians):
    kept, freed = medians.sizes("4", "kept"), medians.sizes("4", "freed")
    if not kept or not freed:
        return "not measured", "-"
    gain, time = freed[-1] / kept[-1], statistics.median(medians.ratios("4", "freed", "kept"))
    text = (f"{freed[-1] / 2**20:.0f} MiB fit instead of {kept[-1] / 2**20:.0f} ({gain:.2f}x, of the sizes tried); "
            f"where both fit, freeing takes {up(time, 3)} of the time")
    return text, "PASS" if gain >= DOUBLE and time <= SMALL_PENALTY else "MISS"


VERDICTS = {"1": _first, "2": _second, "3": _third, "4": _fourth}


def _panels(figure, rows):
    """The panels of a figure, and how many are side by side: a column for each file system."""
    medians = {storage: Medians(rows, storage) for storage in _names(rows, "storage")}
    if figure in ("1", "2"):
        what = "seconds" if figure == "1" else "synced_seconds"
        label = "ms" if figure == "1" else "ms, with fsync"
        found = [_panel(name, "KiB", label, of, figure, rows, what, 1024, 1e-3, True) for name, of in medians.items()]
        return found, len(medians)
    time = [_panel(f"{name}: time", "input, GiB", "s", of, figure, rows, "seconds", 2**30, 1, False)
            for name, of in medians.items()]
    room = [_panel(f"{name}: room", "input, GiB", "GiB", of, figure, rows, "peak_disk_bytes", 2**30, 2**30, False)
            for name, of in medians.items()]
    return time + room, len(medians)


def _panel(title, x_label, y_label, medians, figure, rows, what, x_unit, y_unit, logarithmic):
    series = {way: [(size / x_unit, medians.of(figure, way, size, what) / y_unit) for size in medians.sizes(figure, way)]
              for way in _names(rows, "way")}
    return plot.Panel(title, x_label, y_label, series, logarithmic)


def _names(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))
