"""The key of a storage picture: small cells in a row, and what their shade or colour says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from . import style
from .strip import LEFT, UNVISITED, fill_of
from .walk import Walk

_HIGH = 0.22  # inches, a line of the key
_SIDE, _GAP = 0.13, 0.22
_TEXT = 8.5

Entry = tuple[list[Any], str]
"""Fills of the small cells, and the words after them."""


def entries_of(found: Sequence[Walk]) -> list[Entry]:
    """What the picture of these walks has to explain, and nothing that it does not show."""
    drawn = [walk for walk in found if walk.cells]
    entries: list[Entry] = []
    plain = [walk for walk in drawn if not walk.groups]
    for owns, words in ((False, "darker: visited later"), (True, "the same, in the copy's own storage")):
        of_kind = [walk for walk in plain if walk.owns == owns]
        if any(len(walk.counts) > 1 for walk in of_kind):
            entries.append(([fill_of(of_kind[0], part=k / 4) for k in range(5)], words))
    groups = {g: fill_of(walk, group=g) for walk in drawn for g in sorted(set(walk.groups.values()))}
    if groups:
        dims = sorted({walk.dimension for walk in drawn if walk.dimension is not None})
        words = f"index in dimension {' or '.join(map(str, dims))}: {', '.join(map(str, sorted(groups)))}"
        entries.append(([groups[g] for g in sorted(groups)], words))
    if any(len(walk.counts) < walk.size for walk in drawn):
        entries.append(([UNVISITED], "not visited"))
    if any(max(walk.counts.values()) > 1 for walk in drawn):
        entries.append(([], "×n: visited n times"))
    if any(walk.labels for walk in drawn):
        entries.append(([], "small figure: number of the cell"))
    return entries


def flow(figure: Figure, entries: Sequence[Entry]) -> list[list[tuple[float, Entry]]]:
    """The entries on lines no wider than the picture, each with its x in inches."""
    lines: list[list[tuple[float, Entry]]] = []
    x = LEFT
    for entry in entries:
        wide = _SIDE * len(entry[0]) + (0.07 if entry[0] else 0) + style.text_width(figure, entry[1], _TEXT)
        if not lines or x + wide > style.WIDTH - LEFT:
            lines.append([])
            x = LEFT
        lines[-1].append((x, entry))
        x += wide + _GAP
    return lines


def height(lines: Sequence[object]) -> float:
    """Inches that the lines of the key take, with the gap under them; nothing for none."""
    return _HIGH * len(lines) + (0.06 if lines else 0.0)


def draw(ax: Axes, top: float, lines: Sequence[Sequence[tuple[float, Entry]]]) -> None:
    """The lines of the key, from `top` down."""
    look: dict[str, Any] = {"fontsize": _TEXT, "color": style.MUTED, "va": "center"}
    edge: dict[str, Any] = {"edgecolor": style.MUTED, "linewidth": 0.6}
    for i, line in enumerate(lines):
        y = top + _HIGH * (i + 0.5)
        for x, (fills, words) in line:
            for k, fill in enumerate(fills):
                ax.add_patch(Rectangle((x + k * _SIDE, y - _SIDE / 2), _SIDE, _SIDE, facecolor=fill, **edge))
            ax.text(x + _SIDE * len(fills) + (0.07 if fills else 0), y, words, **look)
