"""The key of a picture: small squares, and what their colours say, on lines no wider than the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from . import style

LINE = 0.24
"""Inches that a line of the key takes."""
_SIDE, _GAP, _EDGE = 0.13, 0.22, 0.1

Entry = tuple[Sequence[Any], str]
"""Colours of the squares, and the words after them; without a colour the words alone."""


@dataclass(frozen=True)
class Line:
    """One line of a key: what it is about, written left of `left`, and its entries, each with its x in inches."""

    about: str
    left: float
    entries: list[tuple[float, Entry]]


def lines(entries: Sequence[Entry], left: float, about: str = "") -> list[Line]:
    """The entries on lines from `left` to the picture's margin; `about` stands before the first of them."""
    lines: list[Line] = []
    x = style.WIDTH
    for entry in entries:
        squares = _SIDE * len(entry[0]) + (0.06 if entry[0] else 0)
        width = squares + style.text_width(entry[1], style.SMALL)
        if not lines or x + width > style.WIDTH - _EDGE:
            lines.append(Line("" if lines else about, left, []))
            x = left
        lines[-1].entries.append((x, entry))
        x += width + _GAP
    return lines


def height(found: Sequence[Line]) -> float:
    return LINE * len(found)


def draw(fig: Figure, found: Sequence[Line], top: float) -> None:
    """The lines, from `top` inches below the figure's upper edge down."""
    tall = fig.get_size_inches()[1]
    look: dict[str, Any] = {"va": "center", "fontsize": style.SMALL, "transform": fig.dpi_scale_trans}
    for i, line in enumerate(found):
        y = tall - top - LINE * (i + 0.5)
        fig.text(line.left - 0.1, y, line.about, ha="right", color=style.MUTED, **look)
        for x, (colours, words) in line.entries:
            for k, colour in enumerate(colours):
                square(fig, x + _SIDE * k, y, colour)
            fig.text(x + _SIDE * len(colours) + (0.06 if colours else 0), y, words, gid="key", **look)


def square(fig: Figure, x: float, y: float, colour: Any) -> None:
    """One square of a key: its left edge at `x`, its middle at `y`, inches from the figure's lower left corner."""
    look: dict[str, Any] = {"facecolor": colour, "edgecolor": style.MUTED, "linewidth": 0.5, "gid": "key"}
    fig.add_artist(Rectangle((x, y - _SIDE / 2), _SIDE, _SIDE, transform=fig.dpi_scale_trans, **look))
