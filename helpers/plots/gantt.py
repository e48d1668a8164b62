"""The one timeline: lanes of bars over an axis of time, with links, marks, brackets and a key.

A picture says what its lanes, rows and bars are, in seconds. Here it is decided where they go, what has room, and how
what is too narrow to see is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from helpers.text.seconds import approx, format_seconds
from helpers.trace import spans

from . import key as keys
from . import style
from .picture import Picture

GROUND = "#f4f5f6"
TEXT = 8.5
"""Points of what stands in a bar."""
NARROW = 0.02
"""Inches: in a dense row, what is narrower is drawn as a share of its time."""
_SEEN = 0.012  # inches: elsewhere nothing is narrower than that
_MARK, _BRACKET, _RIGHT = 0.22, 0.34, 0.25
_AXIS = 0.5  # inches under the lanes, for ticks and the axis' label

Floats = NDArray[np.float64]


@dataclass
class Row:
    """Bars side by side. start, end: seconds; colours: one a bar.

    texts: of bar i what may be written in it, the best first; the first that fits is. cut: where none does, the last
    one in a smaller size, or cut to no fewer characters than that (0: neither). beside: where none does, the first stands beside the bar.
    dense: too many bars to see each; narrow ones are then columns, as high as their share of the time. ids: by what the
    picture knows its bars. pad: inches around a text; edge: points of white between bars.
    """

    start: Floats
    end: Floats
    colours: Sequence[Any]
    texts: Callable[[int], Sequence[str]] | None = None
    cut: int = 0
    beside: bool = False
    dense: bool = False
    bold: bool = True
    size: float = TEXT
    pad: float = 0.08
    ids: Any = ()
    edge: float = 0.6
    y: float = field(default=0.0, init=False)
    """Inches from the lanes' upper edge to the bars'."""


@dataclass
class Lane:
    """Rows under one label. ground: colour behind them; right: said at the lane's right end; after: said behind its last
    bar; empty: said if it has none."""

    label: str
    rows: list[Row]
    ground: str | None = GROUND
    right: str = ""
    after: str = ""
    empty: str = ""
    height: float = field(default=0.0, init=False)


class Gantt:
    """Lanes laid out over the time from `begin` to `end`; `draw` makes the figure.

    bar: inches of a bar's height; pitch: from one row of a lane to the next (None: bars touch); space: between lanes.
    unit: what times are in, if not seconds. clock: the axis counts on the source's own clock, or, in a window far from
    its start, from the window; else from `begin`. heading: what stands over what lanes say at their right end.
    """

    def __init__(
        self, lanes: Sequence[Lane], begin: float, end: float, *, bar: float, space: float, pitch: float | None = None,
        unit: str = "", clock: bool = False, heading: str = "",
    ) -> None:  # fmt: skip
        self.lanes, self.begin, self.end, self.bar, self.space = list(lanes), begin, end, bar, space
        self.factor, self.unit = (1.0, unit) if unit else style.time_unit(end - begin)
        self.origin = 0.0 if clock and begin <= 2 * (end - begin) else begin
        self.since = f" after {moment(begin, end - begin)}" if clock and self.origin else ""
        labels = [line for lane in self.lanes for line in lane.label.splitlines()]
        self.left = max((style.text_width(label, style.TEXT, "bold") for label in labels), default=0.5) + 0.3
        self.heading = heading
        said = [heading, *(lane.right or lane.after for lane in self.lanes)]
        ends = max(style.text_width(words, style.TEXT) for words in said)
        self.right = max(_RIGHT, ends + 0.2 if ends else 0.0)
        self.inch = ((end - begin) or 1.0) / (style.WIDTH - self.left - self.right)
        """Seconds in an inch."""
        y = 0.0
        for lane in self.lanes:
            for i, row in enumerate(lane.rows):
                row.y = y + space / 2 + i * (pitch or bar)
            lane.height = (len(lane.rows) - 1) * (pitch or bar) + bar
            y += lane.height + space
        self.height = max(y, 0.4)
        self.fig: Figure
        self.ax: Axes
        self.under: Axes
        """Axes under the lanes on the same time axis, where `draw` was asked for them."""

    def at(self, seconds: Any) -> Any:
        """Where a moment lies on the axis."""
        return (seconds - self.origin) * self.factor

    @property
    def has_columns(self) -> bool:
        """Whether any bar is shown as its share of the time only."""
        for row in (row for lane in self.lanes for row in lane.rows if row.dense):
            here = (row.end > self.begin) & (row.start < self.end)
            if (here & (row.end - row.start < NARROW * self.inch)).any():
                return True
        return False

    def fits(
        self, text: str, seconds: float, size: float = TEXT, weight: str = "bold", pad: float = 0.08
    ) -> bool:
        """Whether `text` has room in a bar of that length. pad: inches that both sides together need."""
        return style.text_width(text, size, weight) + pad < seconds / self.inch

    def key(self, entries: Sequence[keys.Entry], about: str = "") -> list[keys.Line]:
        """A key under the lanes, from where they begin; from the margin, where that saves a line."""
        found = keys.lines(entries, self.left, about)
        return found if about or len(found) < 2 else keys.lines(entries, 0.2)

    def draw(
        self, evidence: str, title: str, note: str = "", *, key: Sequence[keys.Line] = (),
        marks: Mapping[str, float] | None = None, brackets: Mapping[str, tuple[float, float]] | None = None,
        under: float = 0.0, grid: bool = True, rules: bool = False,
    ) -> None:  # fmt: skip
        """Make the figure. marks: label → moment, a dashed line; brackets: label → from when to when, under the lanes.

        under: inches of further axes below, `self.under`. rules: thin lines between lanes.
        """
        marks, brackets = dict(marks or {}), dict(brackets or {})
        levels = self._levels(marks)
        above = max(levels.values(), default=-1) + 1 or bool(self.heading)
        top = _MARK * above + 0.04
        plot = top + self.height + _BRACKET * len(brackets)
        gap = 0.16 if under else 0.0
        low = _AXIS + keys.height(key) + (0.06 if key else 0.0)
        fig, header = style.figure(
            plot + gap + under + low, evidence=evidence, title=title, note=note, placed=True
        )
        tall = header + plot + gap + under + low
        wide = 1 - (self.left + self.right) / style.WIDTH
        across = (self.left / style.WIDTH, wide)
        self.fig = fig
        self.ax = fig.add_axes((across[0], (low + gap + under) / tall, wide, plot / tall))
        lanes = [self.ax]
        if under:
            self.under = fig.add_axes((across[0], low / tall, wide, under / tall))
            lanes.append(self.under)
            self.ax.tick_params(axis="x", labelbottom=False, length=0)
        lanes[-1].set_xlabel(f"time, {self.unit}{self.since}")
        first = self.at(self.begin)
        for ax in lanes:
            ax.set_xlim(first, first + self.inch * self.factor * wide * style.WIDTH)
        self.ax.set_ylim(self.height + _BRACKET * len(brackets), -top)
        self.ax.set_yticks([])
        self.ax.spines["left"].set_visible(False)
        self.ax.grid(visible=grid, axis="x")
        for i, lane in enumerate(self.lanes):
            self._lane(lane, rule=rules and i > 0)
        for label, moment_s in marks.items():
            self._mark(label, moment_s, -top + _MARK * (levels[label] + 0.5))
        if self.heading:
            x = self.ax.get_xlim()[1] + 0.08 * self.inch * self.factor
            self.ax.text(x, -top / 2, self.heading, va="center", fontsize=style.SMALL, color=style.MUTED)
        for i, (label, (start, end)) in enumerate(brackets.items()):
            self._bracket(f"{label}: {approx(evidence)}{format_seconds(end - start)}", start, end, i)
        keys.draw(fig, key, tall - 0.06 - keys.height(key))

    def links(self, pairs: Sequence[tuple[float, float, float, float]], **look: Any) -> None:
        """Thin lines, each (from when, from which y, to when, to which y): y as in `Row.y`."""
        lines = [[(self.at(a), y), (self.at(b), z)] for a, y, b, z in pairs]
        drawn_as: dict[str, Any] = {"color": style.MUTED, "linewidth": 0.9, "zorder": 2} | look
        self.ax.add_collection(LineCollection(lines, **drawn_as), autolim=False)

    def picture(self, evidence: str, alt: str) -> Picture:
        return Picture(self.fig, evidence, alt)

    # ---- what is drawn ----------------------------------------------------------------------------

    def _lane(self, lane: Lane, rule: bool) -> None:
        ax, y = self.ax, lane.rows[0].y
        first, last = ax.get_xlim()
        inch = self.inch * self.factor
        middle: dict[str, Any] = {"y": y + lane.height / 2, "va": "center"}
        ax.text(
            first - 0.1 * inch, s=lane.label, ha="right", fontweight="bold", multialignment="right", **middle
        )
        if lane.right:
            ax.text(last + 0.08 * inch, s=lane.right, fontsize=style.TEXT, **middle)
        if lane.after:
            end = max(float(row.end.max()) for row in lane.rows if len(row.end))
            ax.text(self.at(end) + 0.06 * inch, s=lane.after, fontsize=style.SMALL, **middle)
        if lane.ground:
            ax.axhspan(y, y + lane.height, color=lane.ground, zorder=0.5)
        if rule:
            ax.axhline(y - self.space / 2, color=style.FAINT, linewidth=0.8, zorder=1)
        if lane.empty and not any(len(row.start) for row in lane.rows):
            ax.text(first + 0.1 * inch, s=lane.empty, fontsize=style.SMALL, **middle)
        for row in lane.rows:
            self._bars(row)

    def _bars(self, row: Row) -> None:
        here = np.flatnonzero((row.end >= self.begin) & (row.start <= self.end))
        start, end = np.maximum(row.start[here], self.begin), np.minimum(row.end[here], self.end)
        wide = (end - start) / self.inch
        palette = list(dict.fromkeys(row.colours))
        number = {colour: k for k, colour in enumerate(palette)}
        which = np.array([number[c] for c in row.colours], np.int64)[here]
        base: Any = row.y + self.bar
        for k, colour in enumerate(palette):
            mine = which == k
            thin = mine & (wide < NARROW) & row.dense
            if thin.any():
                base = self._columns(start[thin], end[thin], base, colour)
            # A white edge parts neighbours; on a bar of a few pixels it would be all there is.
            for plain in (True, False):
                some = np.flatnonzero(mine & ~thin & ((wide < 0.05) == plain))
                lengths = np.maximum(wide[some], _SEEN) * self.inch * self.factor
                bars = np.stack((self.at(start[some]), lengths), 1)
                look: dict[str, Any] = {"edgecolor": style.PAPER, "linewidth": 0.0 if plain else row.edge}
                if len(bars):
                    self.ax.broken_barh(bars.tolist(), (row.y, self.bar), facecolor=colour, zorder=3, **look)
        if row.texts is not None:
            for i in np.flatnonzero(wide > 0.05).tolist() if not row.beside else range(len(here)):
                self._text(row, row.texts(int(here[i])), start[i], end[i], row.colours[int(here[i])])

    def _columns(self, start: Floats, end: Floats, base: Any, colour: Any) -> Any:
        """Columns from `base` up, as high as a bar where the share of the time is 1. Returns their tops."""
        count = max(1, round((self.end - self.begin) / self.inch / NARROW * 2))
        edges = np.linspace(self.begin, self.end, 1 + count)
        top = base - self.bar * shares(*spans.union(start, end), edges)
        level = np.repeat(np.broadcast_to(base, top.shape), 2)
        x = self.at(np.repeat(edges, 2)[1:-1])
        self.ax.fill_between(x, level, np.repeat(top, 2), color=colour, linewidth=0, zorder=3)
        return top

    def _text(self, row: Row, texts: Sequence[str], start: float, end: float, colour: Any) -> None:
        """What fits into a bar, the first in full size before the last in a smaller one."""
        weight = "bold" if row.bold else "normal"
        ways = [(text, row.size, row.pad) for text in texts if text]
        if row.cut and texts:
            cuts = [texts[-1][:n] + "…" for n in range(len(texts[-1]) - 1, row.cut - 1, -1)]
            ways += [(texts[-1], row.size - 1.5, row.pad / 2), *((text, row.size, row.pad) for text in cuts)]
        chosen = next((way for way in ways if self.fits(way[0], end - start, way[1], weight, way[2])), None)
        look: dict[str, Any] = {"va": "center", "fontweight": weight, "zorder": 4}
        y, inch = row.y + self.bar / 2, self.inch * self.factor
        if chosen:
            look |= {"fontsize": chosen[1], "color": style.ink(colour)}
            self.ax.text(self.at((start + end) / 2), y, chosen[0], ha="center", **look)
        elif row.beside:
            need = (style.text_width(texts[0], row.size, weight) + 0.1) * inch
            x, side = self.at(end) + 0.06 * inch, "left"
            if self.at(end) + need >= self.ax.get_xlim()[1]:
                x, side = self.at(start) - 0.06 * inch, "right"
            self.ax.text(x, y, texts[0], ha=side, fontsize=row.size, color=colour, **look)

    def _levels(self, marks: Mapping[str, float]) -> dict[str, int]:
        """On which line above the lanes each mark's label stands, so that none lies over another: 0 is the uppermost."""
        ends: list[float] = []
        found: dict[str, int] = {}
        for label, moment_s in sorted(marks.items(), key=lambda item: item[1]):
            left, right = self._label_ends(label, moment_s)
            level = next((i for i, end in enumerate(ends) if end + 0.1 * self.inch <= left), len(ends))
            ends[level : level + 1] = [right]
            found[label] = level
        return found

    def _label_ends(self, label: str, moment_s: float) -> tuple[float, float]:
        """From when to when a mark's label reaches: around its moment, inside the axes."""
        half = style.text_width(label, style.SMALL) / 2 * self.inch
        most = self.begin + (style.WIDTH - self.left - self.right) * self.inch - half
        middle = min(max(moment_s, self.begin + half), most)
        return middle - half, middle + half

    def _mark(self, label: str, moment_s: float, y: float) -> None:
        x = self.at(moment_s)
        look: dict[str, Any] = {"color": style.INK, "linestyle": (0, (4, 2)), "linewidth": 1.2, "zorder": 5}
        look["clip_on"] = False
        self.ax.plot([x, x], [y + 0.11, self.height], **look)
        middle = self.at(sum(self._label_ends(label, moment_s)) / 2)
        box = style.ground(0.1)
        self.ax.text(middle, y, label, ha="center", va="center", fontsize=style.SMALL, bbox=box, zorder=6)

    def _bracket(self, text: str, start: float, end: float, place: int) -> None:
        a, b, y = self.at(start), self.at(end), self.height + _BRACKET * (place + 0.5)
        inch = self.inch * self.factor
        look: dict[str, Any] = {"color": style.INK, "linewidth": 1.4, "zorder": 5, "clip_on": False}
        for x in (a, b):
            self.ax.plot([x, x], [y - 0.08, y + 0.08], **look)
        self.ax.plot([a, b], [y, y], **look)
        wide = (style.text_width(text, style.SMALL) + 0.12) * inch
        box = style.ground(0.15)
        if wide + 0.3 * inch < b - a:
            x, side = (a + b) / 2, "center"
        elif b + wide < self.ax.get_xlim()[1]:
            x, side = b + 0.08 * inch, "left"
        else:
            x, side = a - 0.08 * inch, "right"
        self.ax.text(x, y, text, ha=side, va="center", fontsize=style.SMALL, bbox=box, zorder=6)


def shares(starts: Floats, ends: Floats, edges: Floats) -> Floats:
    """Of each bin between two neighbouring edges, the share that these disjoint, sorted spans cover (0…1)."""
    return np.asarray(np.diff(spans.before((starts, ends), edges)) / np.diff(edges))


def moment(seconds: float, window_s: float) -> str:
    """A moment with as many digits as a window of that length can show: "1.2345 s"."""
    factor, unit = style.time_unit(seconds)
    digits = max(0, ceil(-log10(window_s / 50 * factor)))
    text = f"{seconds * factor:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
