"""The one staircase: what is held over time, in steps stacked on one another, with its peak and a table as key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from . import key, style

LINE = 0.23
"""Inches that a row of the table takes."""
COLUMNS = 1600
"""Points drawn at most: two for each pixel of the picture's width."""
Curve = NDArray[Any]


def thin(*curves: Curve) -> NDArray[np.int64]:
    """Indexes worth drawing: all of short curves; of each stretch of long ones its ends, and each curve's extremes."""
    count = len(curves[0])
    if count <= COLUMNS:
        return np.arange(count)
    edges = np.linspace(0, count, COLUMNS // 4 + 1).astype(int)
    kept = {0, count - 1, int(curves[0].argmax())}
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        kept |= {a, b - 1, a + int(curves[0][a:b].argmin())}
        kept |= {a + int(curve[a:b].argmax()) for curve in curves}
    return np.array(sorted(kept))


def stack(ax: Axes, x: Curve, layers: Sequence[tuple[Curve, str]]) -> Curve:
    """Layers with their colours on one another, the first lowest, and a line on top. Returns their sum."""
    level = np.zeros(len(x))
    for curve, colour in layers:
        ax.fill_between(x, level, level + curve, step="post", linewidth=0, color=colour)
        level = level + curve
    ax.plot(x, level, drawstyle="steps-post", color=style.INK, linewidth=1.0)
    return level


def peak(ax: Axes, x: float, y: float, said: str) -> None:
    """A dot with `said` beside it, on the side that has room."""
    ax.plot([x], [y], "o", color=style.INK, markersize=6, zorder=6, clip_on=False)
    left, right = ax.get_xlim()
    side = "right" if x > left + 0.7 * (right - left) else "left"
    box = {"boxstyle": "round,pad=0.25", "facecolor": style.PAPER, "edgecolor": style.INK, "linewidth": 0.8}
    look: dict[str, Any] = {"va": "bottom", "fontsize": style.SMALL, "fontweight": "bold", "zorder": 7}
    shift: dict[str, Any] = {"xytext": (-9 if side == "right" else 9, 9), "textcoords": "offset points"}
    ax.annotate(f"peak {said}", (x, y), ha=side, bbox=box, **shift, **look)


def table(
    fig: Figure, top: float, head: str, rows: Sequence[tuple[str, Sequence[str]]], columns: Sequence[tuple[float, str]]
) -> None:  # fmt: skip
    """The key as a table: under `head` a line for each (colour, cells).

    top: inches from the figure's upper edge. columns: x in inches of each cell and "left", "right", or "muted" for
    a grey one from there.
    """
    tall = fig.get_size_inches()[1]
    look: dict[str, Any] = {"va": "center", "fontsize": style.SMALL, "transform": fig.dpi_scale_trans}
    left = columns[0][0] - 0.23
    fig.text(left, tall - top - LINE / 2, head, color=style.MUTED, **look)
    for i, (colour, cells) in enumerate(rows, 1):
        y = tall - top - LINE * (i + 0.5)
        key.square(fig, left, y, colour)
        for cell, (x, side) in zip(cells, columns, strict=True):
            ink = style.INK if side in ("left", "right") else style.MUTED
            fig.text(x, y, cell, ha="right" if "right" in side else "left", color=ink, **look)
