"""One strip of a storage picture: numbered cells in a row, and the arcs of the walk over and under them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox, TransformedBbox

from . import style
from .walk import Walk

MAX_CELLS = 64
_PER_ROW = {1: 32, 2: 32, 3: 26, 4: 20}  # by digits of the largest cell number, so that they stay readable
LEFT, LINE = 0.2, 0.24
_FILL = ("#e3f1fa", "#7fbfe6")  # first visit … last visit: light enough for black figures on top
_OWN_FILL = ("#fdeee2", "#f0b184")  # the same in the storage of a copy: another storage, another colour
UNVISITED = "#f4f5f6"
STEP_COLOURS = (style.BLUE, style.VERMILLION, style.GREEN)
_STEP_DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.6)), (0, (1, 1.2)))


Line = list[tuple[float, str, dict[str, Any]]]
"""A line of a caption: for each piece its x in inches, text and look."""


def fill_of(walk: Walk, *, part: float = 0.0, group: int | None = None) -> Any:
    """Fill of a cell first visited at `part` (0…1) of the walk, or of the given group."""
    if group is not None:
        return style.blend(style.SERIES[group], "#ffffff", 0.62)
    return style.blend(*(_OWN_FILL if walk.owns else _FILL), part)


@dataclass(frozen=True)
class Frame:
    """Which cells are drawn and where: `first` … `last` (exclusive), `columns` a row, `cell` inches wide."""

    first: int
    last: int
    columns: int
    cell: float

    @property
    def rows(self) -> int:
        return -(-(self.last - self.first) // self.columns)

    def x(self, cell: int, row: int) -> float:
        """Middle of `cell`, inches, as if all cells continued the given row to both sides."""
        return LEFT + (cell - self.first - row * self.columns + 0.5) * self.cell


def frame_of(walk: Walk) -> Frame:
    """The cells to draw: all of a storage up to 64 cells, else the part visited. ValueError if over 64."""
    first, last = 0, walk.size
    if walk.size > MAX_CELLS and walk.cells:
        first, last = max(0, min(walk.cells) - 1), min(walk.size, max(walk.cells) + 2)
    if last - first > MAX_CELLS:
        raise ValueError(
            f"{walk.name or 'this tensor'} spans {last - first:,} cells of its storage; at most {MAX_CELLS} "
            "can be drawn and read: start small, the pattern is the same"
        )
    room = style.WIDTH - 2 * LEFT
    longest = max(map(len, walk.labels.values()), default=0)
    label = 0.14 + 0.078 * longest if longest else 0.0  # inches, for bold figures of 8.5 points
    per_row = min(_PER_ROW.get(len(str(last)), 16), int(room / label) if label else MAX_CELLS)
    rows = max(1, -(-(last - first) // per_row))
    columns = max(1, -(-(last - first) // rows))
    return Frame(first, last, columns, min(max(0.42, label), room / columns))


def arcs_of(walk: Walk) -> list[tuple[int, int, int]]:
    """Arcs to draw: (from cell, to cell, rank of the step), each once; rank 0: the commonest step but 0."""
    ranks = {step: rank for rank, step in enumerate(step for step in walk.steps if step)}
    pairs = dict.fromkeys((a, b) for a, b in pairwise(walk.cells) if a != b)
    return [(a, b, ranks[b - a]) for a, b in pairs]


def arc_height(step: int, largest: int) -> float:
    """Height of a step's arc, inches: grows with the root of its length; `largest` is the longest drawn."""
    return 0.17 + (0.0 if largest <= 1 else 0.40 * ((abs(step) - 1) / (largest - 1)) ** 0.5)


class Strip:
    """One walk, drawn from `top` (inches from the figure's top) down; measured first, drawn later."""

    def __init__(self, walk: Walk, lines: list[Line]) -> None:
        self.walk, self.frame, self.arcs = walk, frame_of(walk), arcs_of(walk)
        self.lines = lines
        self.largest = max((abs(b - a) for a, b, _ in self.arcs), default=1)
        up = {cell for a, b, _ in self.arcs if b > a for cell in (a, b)}
        down = {cell for a, b, _ in self.arcs if b < a for cell in (a, b)}
        ends = {*walk.cells[:1], *walk.cells[-1:]}
        self.between = ends & up & down
        """First or last cells with arcs on both sides: the label stands under them, arcs end under it."""
        self.over = down - up
        """Cells whose label goes above them, because arcs hang below and none stands above."""
        above = max((arc_height(b - a, self.largest) for a, b, _ in self.arcs if b > a), default=0.0)
        self.above = max(above + 0.08, 0.22 if self.over & ends else 0.0)
        below = max((arc_height(b - a, self.largest) for a, b, _ in self.arcs if b < a), default=0.0)
        self.below = max(0.22, below + (0.22 if self.between else 0.06))
        self.many = max(walk.counts.values(), default=1) > 1
        self.tall = 0.34 + (0.12 if self.many else 0) + (0.08 if walk.labels else 0)
        self.height = LINE * len(self.lines) + self.frame.rows * (self.above + self.tall + self.below)

    def draw(self, ax: Axes, top: float) -> None:
        for i, line in enumerate(self.lines):
            for x, text, look in line:
                ax.text(x, top + LINE * (i + 0.5), text, va="center", **look)
        top += LINE * len(self.lines)
        for row in range(self.frame.rows):
            cells = top + row * (self.above + self.tall + self.below) + self.above
            self._cells(ax, cells, row)
            self._arcs(ax, cells, row)

    def _cells(self, ax: Axes, top: float, row: int) -> None:
        frame, walk = self.frame, self.walk
        when = {cell: i for i, cell in reversed(list(enumerate(walk.cells)))}
        counts, last_visit = walk.counts, max(len(walk.cells) - 1, 1)
        begin = frame.first + row * frame.columns
        for cell in range(begin, min(begin + frame.columns, frame.last)):
            x, seen = frame.x(cell, row), cell in when
            fill = UNVISITED
            if seen:
                fill = fill_of(walk, part=when[cell] / last_visit, group=walk.groups.get(cell))
            edge, ink, above = (style.MUTED, style.INK, 2.5) if seen else ("#c4c9cf", "#737b84", 2)
            box = Rectangle((x - frame.cell / 2, top), frame.cell, self.tall, facecolor=fill, edgecolor=edge)
            box.set(linewidth=0.8, zorder=above)
            ax.add_patch(box)
            put: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 5}
            if walk.labels:
                label = walk.labels.get(cell, "")
                ax.text(x, top + 0.27, label, fontsize=8.5, fontweight="bold", color=ink, **put)
                ax.text(x, top + 0.10, str(cell), fontsize=7.0, color=style.MUTED, **put)
            else:
                ax.text(x, top + 0.17, str(cell), fontsize=style.SMALL, color=ink, **put)
            if counts.get(cell, 0) > 1:
                put |= {"fontsize": 8.0, "fontweight": "bold", "color": style.INK}
                ax.text(x, top + self.tall - 0.11, f"×{counts[cell]}", **put)
        ends = dict.fromkeys(walk.cells[:1] + walk.cells[-1:])
        for i, cell in enumerate(ends):
            if begin <= cell < begin + frame.columns:
                self._end(ax, cell, frame.x(cell, row), top, first=i == 0, both=len(ends) == 1)

    def _end(self, ax: Axes, cell: int, x: float, top: float, *, first: bool, both: bool) -> None:
        half = self.frame.cell / 2
        if first:
            box = Rectangle((x - half, top), 2 * half, self.tall, fill=False, edgecolor=style.INK)
            box.set(linewidth=2, zorder=6)
            ax.add_patch(box)
        # Labels of neighbouring first and last cells are pushed apart.
        near = not both and abs(self.walk.cells[0] - self.walk.cells[-1]) * self.frame.cell < 0.36
        shift = 0.0
        if near:
            shift = -0.12 if first == (self.walk.cells[0] < self.walk.cells[-1]) else 0.12
        text = "first and last" if both and len(self.walk.cells) > 1 else "first" if first else "last"
        x = max(x + shift, LEFT + (0.32 if both and len(text) > 5 else 0.1))
        put: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5, "zorder": 7}
        put["bbox"] = style.ground(0.08)
        y = top - 0.11 if cell in self.over else top + self.tall + 0.11
        ax.text(x, y, text, fontweight="bold" if first else "normal", **put)

    def _arcs(self, ax: Axes, top: float, row: int) -> None:
        frame = self.frame
        left, right = LEFT, LEFT + frame.columns * frame.cell
        angle = np.linspace(np.pi, 0, 30)
        curves: dict[int, list[Any]] = {}
        heads: dict[int, list[Any]] = {}
        for a, b, rank in self.arcs:
            inset = frame.cell * (0.12 if abs(b - a) < 3 else 0.08) * (1 if b > a else -1)
            x0, x1 = frame.x(a, row) + inset, frame.x(b, row) - inset
            if max(x0, x1) < left or min(x0, x1) > right:
                continue
            edge, up = (top, -1) if b > a else (top + self.tall, 1)
            edge0, edge1 = (edge + (0.2 if up > 0 and cell in self.between else 0.0) for cell in (a, b))
            height = arc_height(b - a, self.largest)
            x = (x0 + x1) / 2 + (x1 - x0) / 2 * np.cos(angle)
            rank = min(rank, len(STEP_COLOURS))
            y = np.linspace(edge0, edge1, len(x)) + up * height * np.sin(angle)
            curves.setdefault(rank, []).append(np.column_stack([x, y]))
            behind = edge1 + up * 0.075
            heads.setdefault(rank, []).append([(x1 - 0.035, behind), (x1 + 0.035, behind), (x1, edge1)])
        window = Bbox([[left - 0.08, 0], [right + 0.08, ax.get_ylim()[0]]])
        for rank in sorted(curves, reverse=True):
            colour = (*STEP_COLOURS, style.MUTED)[rank]
            dash = (*_STEP_DASHES, (0, (5, 1, 1, 1)))[rank]
            lines = LineCollection(curves[rank], colors=colour, linewidths=1.2, linestyles=[dash], zorder=3)
            points = PolyCollection(heads[rank], facecolors=colour, edgecolors="none", zorder=4)
            for artist in (lines, points):
                ax.add_collection(artist, autolim=False)
                artist.set_clip_box(TransformedBbox(window, ax.transData))
