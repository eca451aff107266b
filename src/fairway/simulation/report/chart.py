"""Line charts as SVG, without a library: title, axes, ticks, legend. Colours come from the page's style (`--s0` ... `--s7`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from fairway.simulation.report.axis import ChartAxis

WIDTH, HEIGHT = 760.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 34.0, 42.0, 52.0
COLOURS = 8
"""Number of colours; further lines differ by their dashes."""
_DASHES = ("", "7 4", "2 3")
_LETTER = 7.0
"""Approximate width of a letter in the legend."""
_KEY = 34.0
"""Width of a legend mark and the gap after it."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One curve."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Curves over two axes."""

    title: str
    note: str
    """A sentence about what to look for."""
    x: ChartAxis
    y: ChartAxis
    x_title: str
    y_title: str
    lines: tuple[ChartLine, ...]


def draw(chart: LineChart) -> str:
    """Return the chart as one `svg` element."""
    rows = _legend_rows(chart.lines)
    top = TOP + 18.0 * (len(rows) - 1)
    height = HEIGHT + top - TOP
    frame = _PlotArea(chart, top, height - BOTTOM)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img"',
        f"  aria-label={quoteattr(chart.title)}>",
        f"<title>{escape(chart.title)}</title>",
        *_legend(rows),
        *frame.grid(),
        *frame.titles(height),
        # The first line is drawn last, so that nothing covers it.
        *reversed([frame.curve(number, line) for number, line in enumerate(chart.lines)]),
        "</svg>",
    ]
    return "\n".join(drawn)


class _PlotArea:
    """Position of the plot within the picture."""

    def __init__(self, chart: LineChart, top: float, bottom: float) -> None:
        self._chart = chart
        self._top, self._bottom = top, bottom

    def x(self, value: float) -> float:
        return LEFT + self._chart.x.part(value) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self._bottom - self._chart.y.part(value) * (self._bottom - self._top)

    def grid(self) -> list[str]:
        drawn = []
        for value, text in self._chart.y.ticks:
            y = self.y(value)
            drawn.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            drawn.append(f'<text class="tick" x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
        for value, text in self._chart.x.ticks:
            x = self.x(value)
            drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{self._top:g}" y2="{self._bottom:g}"/>')
            drawn.append(f'<text class="tick" x="{x:.1f}" y="{self._bottom + 18:g}" text-anchor="middle">{escape(text)}</text>')
        corners = f"{LEFT:g},{self._top:g} {LEFT:g},{self._bottom:g} {WIDTH - RIGHT:g},{self._bottom:g}"
        return [*drawn, f'<polyline class="axis" points="{corners}"/>']

    def titles(self, height: float) -> list[str]:
        across, down = (LEFT + WIDTH - RIGHT) / 2, (self._top + self._bottom) / 2
        turned = f'transform="rotate(-90 16 {down:g})"'
        return [
            f'<text class="name" x="{across:g}" y="{height - 10:g}" text-anchor="middle">{escape(self._chart.x_title)}</text>',
            f'<text class="name" x="16" y="{down:g}" text-anchor="middle" {turned}>{escape(self._chart.y_title)}</text>',
        ]

    def curve(self, number: int, line: ChartLine) -> str:
        points = [(self.x(time), self.y(value)) for time, value in line.points]
        path = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(_thinned(points)))
        return f'<path class="curve" {_style(number)} d="{path}"><title>{escape(line.name)}</title></path>'


def _thinned(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those in the middle of a straight line, which cannot be seen."""
    kept: list[tuple[float, float]] = []
    for point in places:
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept[-1] = point
        else:
            kept.append(point)
    return kept


def _style(number: int) -> str:
    dash = _DASHES[(number // COLOURS) % len(_DASHES)]
    return f'style="stroke: var(--s{number % COLOURS})"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _legend_rows(lines: Sequence[ChartLine]) -> list[list[tuple[int, ChartLine, float]]]:
    """Return the legend entries with their position in the row; a new row starts when one is full."""
    rows: list[list[tuple[int, ChartLine, float]]] = [[]]
    x = LEFT
    for number, line in enumerate(lines):
        width = _KEY + _LETTER * len(line.name) + 14.0
        if rows[-1] and x + width > WIDTH - RIGHT:
            rows.append([])
            x = LEFT
        rows[-1].append((number, line, x))
        x += width
    return rows


def _legend(rows: Sequence[Sequence[tuple[int, ChartLine, float]]]) -> list[str]:
    drawn = []
    for row, entries in enumerate(rows):
        y = 18.0 + 18.0 * row
        for number, line, x in entries:
            drawn.append(f'<line class="curve" {_style(number)} x1="{x:g}" x2="{x + 26:g}" y1="{y - 4:g}" y2="{y - 4:g}"/>')
            drawn.append(f'<text class="legend" x="{x + _KEY:g}" y="{y:g}">{escape(line.name)}</text>')
    return drawn
