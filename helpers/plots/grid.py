"""A tensor's logical grid above its storage: one colour for one storage cell, in both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from . import style
from .picture import Picture, drawn
from .strip import Frame, frame_of
from .walk import Walk, walk_of

if TYPE_CHECKING:
    import torch

_LEFT, _HIGH, _COLUMNS = 0.2, 0.32, 32


def panels(walk: Walk) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The logical grid as 2-D panels: (index of the panel, rows of storage cells).

    A scalar is one row of one cell, a vector one row (longer than 32: folded into rows of 32), a matrix one
    panel, more dimensions one panel for each index of the leading ones. ValueError for a matrix wider than
    32.
    """
    cells, shape = walk.cells, walk.shape
    if not cells:
        return []
    width = shape[-1] if shape else 1
    if len(shape) < 2:
        return [("", [cells[i : i + _COLUMNS] for i in range(0, len(cells), _COLUMNS)])]
    if width > _COLUMNS:
        raise ValueError(
            f"the last dimension is {width} long; at most {_COLUMNS} columns can be drawn and read"
        )
    rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    names = list(_indexes(shape[:-2]))
    return [(name, rows[i * shape[-2] : (i + 1) * shape[-2]]) for i, name in enumerate(names)]


def _indexes(leading: tuple[int, ...]) -> Iterator[str]:
    if not leading:
        yield ""
        return
    import itertools

    for index in itertools.product(*(range(n) for n in leading)):
        yield f"[{', '.join(map(str, index))}]"


def colour_of(cell: int, frame: Frame) -> str:
    """The colour of a storage cell, light enough for black figures; dark to light along the storage."""
    part = (cell - frame.first) / max(frame.last - frame.first - 1, 1)
    return to_hex(style.blend(to_hex(colormaps["viridis"](part)), "#ffffff", 0.52))


@drawn
def tensor_grid(tensor: torch.Tensor, evidence: str = "live (CPU)", title: str = "") -> Picture:
    """The tensor as its indices see it, above its storage; each grid cell shows its storage cell's number.

    Equal colour and number: the same storage cell. Storage cells that the tensor does not touch are grey;
    ×n counts the elements that share one. At most 64 storage cells (of a larger storage, the part visited):
    else ValueError.
    """
    walk = walk_of(tensor)
    frame = frame_of(walk)
    title = title or "The grid you see, and where its elements lie"
    note = f"shape {walk.shape} · stride {walk.stride} · offset {walk.offset} · each number is a storage cell"
    if not walk.cells:
        note = f"shape {walk.shape} · stride {walk.stride} · no elements: nothing to see, nothing is touched"
    found = panels(walk)
    columns = max((len(row) for _, rows in found for row in rows), default=1)
    gutter = 0.5 if len(walk.shape) > 1 else 0.0
    cell = min(0.44, (style.WIDTH - 2 * _LEFT - gutter) / columns)
    wide = max(columns * cell, 1.4) + 0.78
    across = max(1, min(len(found), int((style.WIDTH - _LEFT + 0.3) / wide)))
    tall = max((len(rows) for _, rows in found), default=0) * _HIGH + 0.55
    lines = -(-len(found) // across)
    many = max(walk.counts.values(), default=1) > 1
    row = 0.48 if many else 0.34
    body = lines * tall + 0.32 + frame.rows * (row + 0.12) + 0.1
    fig, top = style.figure(body, evidence=evidence, title=title, note=note)
    fig.set_layout_engine("none")
    ax = style.inches_axes(fig)
    for i, (name, rows) in enumerate(found):
        _panel(ax, _LEFT + (i % across) * wide, top + (i // across) * tall, name, rows, walk, frame, cell)
    top += lines * tall
    _storage(ax, top, walk, frame, row)
    return Picture(fig, evidence, f"{title}. {walk.describe()}")


def _box(ax: Axes, x: float, y: float, wide: float, tall: float, text: str, fill: str | None) -> None:
    line: dict[str, Any] = {
        "facecolor": fill or "#f4f5f6",
        "edgecolor": style.MUTED if fill else "#c4c9cf",
        "linewidth": 0.8,
    }
    ax.add_patch(Rectangle((x, y), wide, tall, zorder=2 if fill else 1, **line))
    look: dict[str, Any] = {"fontsize": style.SMALL, "color": style.INK if fill else "#737b84", "zorder": 3}
    ax.text(x + wide / 2, y + 0.17, text, ha="center", va="center", **look)


def _panel(
    ax: Axes,
    x: float,
    y: float,
    name: str,
    rows: list[tuple[int, ...]],
    walk: Walk,
    frame: Frame,
    cell: float,
) -> None:
    small: dict[str, Any] = {"fontsize": 8.5, "color": style.MUTED, "va": "center"}
    dims = len(walk.shape)
    left = x + (0.48 if dims > 1 else 0.0)
    if dims:
        text = f"dim {dims - 1} →  stride {walk.stride[-1]}"
        ax.text(left, y + 0.2, f"{name}   {text}" if name else text, ha="left", **small)
    if dims > 1:
        middle = y + 0.34 + len(rows) * _HIGH / 2
        text = (
            f"dim {dims - 2} →  stride {walk.stride[-2]}"
            if len(rows) > 3
            else f"dim {dims - 2}\n↓ {walk.stride[-2]}"
        )
        turn: dict[str, Any] = {"rotation": 270} if len(rows) > 3 else {}
        ax.text(left - 0.24, middle, text, ha="center", **small, **turn)
    for i, row in enumerate(rows):
        for j, at in enumerate(row):
            _box(ax, left + j * cell, y + 0.34 + i * _HIGH, cell, _HIGH, str(at), colour_of(at, frame))


def _storage(ax: Axes, top: float, walk: Walk, frame: Frame, tall: float) -> None:
    counts = walk.counts
    part = (
        ""
        if frame.last - frame.first == walk.size
        else f", cells {frame.first}–{frame.last - 1} of {walk.size:,}"
    )
    if frame.last > frame.first:
        ax.text(_LEFT, top + 0.14, f"storage{part}", fontweight="bold", va="center")
    for cell in range(frame.first, frame.last):
        row = (cell - frame.first) // frame.columns
        x, y = frame.x(cell, row) - frame.cell / 2, top + 0.32 + row * (tall + 0.12)
        _box(ax, x, y, frame.cell, tall, str(cell), colour_of(cell, frame) if cell in counts else None)
        if counts.get(cell, 0) > 1:
            look: dict[str, Any] = {"fontsize": 8.0, "fontweight": "bold", "zorder": 3}
            ax.text(x + frame.cell / 2, y + 0.36, f"×{counts[cell]}", ha="center", va="center", **look)
