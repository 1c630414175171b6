"""Line charts as SVG: panels side by side, linear or logarithmic axes. No more than the figures need."""

import math
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 320, 290, 62, 30, 64, 12
HEADER = 40
COLOURS = ["#0b6e99", "#c2452d", "#5a8f29", "#7a4fa3"]


@dataclass
class Panel:
    """One chart; `series` maps a name to its points."""

    title: str
    x_label: str
    y_label: str
    series: dict = field(default_factory=dict)
    logarithmic: bool = False


def draw(title, caption, panels, columns):
    """The SVG of some panels, so many side by side."""
    rows = -(-len(panels) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * columns}" height="{HEIGHT * rows + HEADER}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="8" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
             f'<text x="8" y="34">{escape(caption)}</text>']
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts += [f'<g transform="translate({column * WIDTH},{row * HEIGHT + HEADER})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel):
    points = [point for series in panel.series.values() for point in series]
    if not points:
        return [f'<text x="{LEFT}" y="{TOP}">{escape(panel.title)}: nothing was measured</text>']
    x = _Axis([point[0] for point in points], panel.logarithmic, LEFT, WIDTH - RIGHT)
    y = _Axis([point[1] for point in points], panel.logarithmic, HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{escape(panel.title)}</text>']
    for value in x.ticks():
        parts += [_line(x.at(value), TOP, x.at(value), HEIGHT - BOTTOM), _text(x.at(value), HEIGHT - BOTTOM + 14, _short(value))]
    for value in y.ticks():
        parts += [_line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value)), _text(LEFT - 4, y.at(value) + 4, _short(value), "end")]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts += [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 30, panel.x_label),
              f'<text transform="translate(14,{middle}) rotate(-90)" text-anchor="middle">{escape(panel.y_label)}</text>']
    for number, (name, series) in enumerate(panel.series.items()):
        parts += _series(name, [(x.at(a), y.at(b)) for a, b in series], number, len(panel.series))
    return parts


def _series(name, points, number, count):
    colour = COLOURS[number % len(COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    left = LEFT + number * (WIDTH - LEFT) / max(count, 1)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in points),
            f'<text x="{left:.0f}" y="{HEIGHT - BOTTOM + 50}" fill="{colour}">{escape(name)}</text>']


class _Axis:
    """Values to pixels."""

    def __init__(self, values, logarithmic, begin, end):
        self.logarithmic = logarithmic
        if logarithmic:
            values = [value for value in values if value > 0] or [1]
            self.low, self.high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
            if self.low == self.high:
                self.high *= 10
        else:
            self.low, self.high = 0, max(values) * 1.05 or 1
        self.begin, self.end = begin, end

    def at(self, value):
        scale = (lambda number: math.log10(max(number, self.low))) if self.logarithmic else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high / 2))
        step = next(step * times for times in (1, 2, 5, 10) if self.high / (step * times) <= 6)
        return [step * number for number in range(int(self.high / step) + 1)]


def _line(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x, y, text, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(value):
    return f"{value:g}"
