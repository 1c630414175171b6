"""An animated SVG of what was to be seen in terminals side by side: a picture that needs no program to be played.

Each row of text is one element that CSS shows from one moment to another; so it is small, sharp at any size, and can be searched.
Where nothing moves (a reader that asks for reduced motion, a viewer without CSS animations) the last moment is shown.
"""

from dataclasses import dataclass
from html import escape

CELL_PX = (8.4, 19)  # Of a character, width and height.
MARGIN_PX = 14
GAP_PX = 16
HEAD_PX = 62  # Above the rows: what this is, and the titles of the terminals.
FOOT_PX = 34  # Below: the clock.
HOLD = 5  # Seconds for which the end is shown.
CLOCK_STEP = 0.5  # Seconds of the picture between two times on its clock.

STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; fill: #b4bdc9 }
.typed { fill: #ffffff; font-weight: 600 }
.said { fill: #e3b341 }
.head { font-family: system-ui, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 15px; fill: #ffffff }
.title { font-family: system-ui, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #79c0ff; font-weight: 600 }
"""


@dataclass(frozen=True)
class Quick:
    """From `start` to `end` (seconds of the clock) everything is shown `factor` times faster."""

    start: float
    end: float
    factor: float

    def picture_time(self, seconds):
        """When in the picture a moment of the clock is shown."""
        return seconds - max(0.0, min(seconds, self.end) - self.start) * (1 - 1 / self.factor)

    def clock_time(self, seconds):
        """Which moment of the clock the picture shows then."""
        quick_end = self.start + (self.end - self.start) / self.factor
        if seconds <= quick_end:
            return seconds + max(0.0, seconds - self.start) * (self.factor - 1)
        return seconds - quick_end + self.end


class Picture:
    """A recording as SVG. `record` has `head`, `titles` (by name of the terminal), `columns`, `rows`, `screens`, `quick`."""

    def __init__(self, record):
        self.record, self.quick = record, Quick(**record["quick"])
        self.begin = record["screens"][0][0]
        self.length = self._at(record["seconds"]) + HOLD
        self.keyframes = {}

    def svg(self):
        columns, rows = self.record["columns"], self.record["rows"]
        self.panel_px = columns * CELL_PX[0] + 2 * MARGIN_PX
        width = 2 * self.panel_px + GAP_PX + 2 * MARGIN_PX
        height = HEAD_PX + rows * CELL_PX[1] + 2 * MARGIN_PX + FOOT_PX
        body = [f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#0d1117" stroke="#6e7681"/>',
                text(MARGIN_PX + 4, 28, self.record["head"], "head")]
        for index, name in enumerate(self.record["titles"]):
            body += self._panel(name, MARGIN_PX + index * (self.panel_px + GAP_PX))
        body += self._clock(MARGIN_PX + 4, height - 14)
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
                          f'height="{height}">', f"<title>{escape(self.record['head'])}</title>", f"<style>{STYLE}{self._rules()}</style>",
                          *body, "</svg>\n"])

    def _panel(self, name, left):
        height = self.record["rows"] * CELL_PX[1] + MARGIN_PX
        yield f'<rect x="{left}" y="{HEAD_PX}" width="{self.panel_px:.0f}" height="{height}" rx="6" fill="#161b22"/>'
        yield text(left + 4, HEAD_PX - 9, self.record["titles"][name], "title")
        for row, shown, start, end in spans([screen for screen in self.record["screens"] if screen[1] == name]):
            x, y = left + MARGIN_PX, HEAD_PX + MARGIN_PX + (row + 0.6) * CELL_PX[1]
            kind = "said" if shown.startswith("$ #") else "typed" if shown.startswith("$") else ""
            yield text(x, y, shown, f"{kind} {self._shown(self._at(start), self._until(end))}", len(shown) * CELL_PX[0])

    def _clock(self, x, y):
        """The elapsed time, which is that of the recording whatever the speed, and the speed where it is not the real one."""
        last = self.record["seconds"]
        steps = [index * CLOCK_STEP for index in range(int(self.quick.picture_time(last) / CLOCK_STEP) + 1)]
        ends = [*steps[1:], None]
        for start, end in zip(steps, ends, strict=True):
            seconds = self.quick.clock_time(start) if end else last
            until = end - self.begin if end else self.length
            yield text(x, y, f"{seconds:5.1f} s elapsed", f"typed {self._shown(start - self.begin, until)}")
        start, end = self._at(self.quick.start), self._at(self.quick.end)
        said = f"shown {self.quick.factor:.0f} times faster: only the left side is still busy"
        yield text(x + 150, y, said, f"said {self._shown(start, end)}")

    def _at(self, seconds):
        return self.quick.picture_time(seconds) - self.begin

    def _until(self, end):
        return self.length if end is None else self._at(end)

    def _shown(self, start, end):
        """The classes of what is to be seen from `start` to `end`, in seconds of the picture."""
        moments = tuple(round(100 * seconds / self.length, 2) for seconds in (start, end))
        return "moving " + self.keyframes.setdefault(moments, f"t{len(self.keyframes)}")

    def _rules(self):
        """Without animation only what is there at the end is shown, so that is what `opacity` says outside of the keyframes."""
        moving = [f".moving {{ animation: {self.length:.2f}s step-end infinite }}"]
        still = []
        for (start, end), name in self.keyframes.items():
            before = "0%{opacity:0}" if start > 0 else ""
            after = f"{end}%{{opacity:0}}" if end < 100 else ""
            moving.append(f"@keyframes {name}{{{before}{start}%{{opacity:1}}{after}}}.{name}{{animation-name:{name}}}")
            if end < 100:
                still.append(f".{name}")
        return "\n".join([f"{','.join(still)}{{opacity:0}}", "@media (prefers-reduced-motion: no-preference) {", *moving, "}"])


def spans(screens):
    """(row, text, first seen, no longer seen or None) of each text of each row, in the order in which they end."""
    shown = {}
    for seconds, _, rows in screens:
        for row in range(max(len(rows), max(shown, default=-1) + 1)):
            new = rows[row] if row < len(rows) else ""
            old, since = shown.get(row, ("", None))
            if old == new:
                continue
            if old:
                yield row, old, since, seconds
            shown[row] = (new, seconds)
    yield from ((row, last, since, None) for row, (last, since) in sorted(shown.items()) if last)


def text(x, y, words, kind, width=None):
    fixed = f' textLength="{width:.0f}" lengthAdjust="spacingAndGlyphs"' if width else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind.strip()}"{fixed}>{escape(words, quote=False)}</text>'
