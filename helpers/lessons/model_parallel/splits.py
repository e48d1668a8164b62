"""A matrix product that two ranks share: the parts that each holds, and how the result is put together."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots import style
from helpers.plots.picture import Picture, drawn

_INCH = 0.105  #: of a row or a column
_COLOURS = (style.BLUE, style.ORANGE)


@drawn
def matrix_splits(rows: int, inner: int, columns: int, *, evidence: str = "arithmetic") -> Picture:
    """x (rows × inner) times w (inner × columns), split over two ranks: by columns of w, and by rows of w."""
    title = "One product on two ranks, split in two ways"
    note = "blue: only rank 0 has it; orange: only rank 1 has it; grey: both have it"
    high = inner * _INCH
    fig, header = style.figure(2 * high + 0.95, evidence=evidence, title=title, note=note, placed=True)
    ax = style.inches_axes(fig)
    x, w, y = (rows, inner), (inner, columns), (rows, columns)
    for i, (name, parts, made, ends) in enumerate(
        (
            ("by columns", ("", "columns"), ("columns",), "side by side: all-gather"),
            ("by rows", ("columns", "rows"), ("0", "1"), "added up: all-reduce"),
        )
    ):
        middle = header + 0.25 + high / 2 + i * (high + 0.4)
        ax.text(0.15, middle, name, va="center", fontweight="bold")
        at = 1.35
        for sign, letter, shape, split in (("@", "x", x, parts[0]), ("=", "w", w, parts[1])):
            at = _matrix(ax, at, middle, letter, shape, split) + 0.17
            ax.text(at, middle, sign, ha="center", va="center", fontsize=14)
            at += 0.17
        for j, split in enumerate(made):
            if j:
                ax.text(at + 0.17, middle, "+", ha="center", va="center", fontsize=14)
                at += 0.34
            at = _matrix(ax, at, middle, "y", y, split)
        ax.text(at + 0.25, middle, ends, va="center")
    return Picture(
        fig,
        evidence,
        f"{title}: by columns of w, the halves of y stand side by side; by rows, two addends of y are added",
    )


def _matrix(ax: Axes, left: float, middle: float, letter: str, shape: Sequence[int], split: str) -> float:
    """Draw one matrix; split: "", "rows", "columns", or the rank that has all of it. Its right edge."""
    high, wide = (n * _INCH for n in shape)
    top = middle - high / 2
    if split == "columns":
        boxes = [(left + k * wide / 2, top, wide / 2, high, _COLOURS[k]) for k in (0, 1)]
    elif split == "rows":
        boxes = [(left, top + k * high / 2, wide, high / 2, _COLOURS[k]) for k in (0, 1)]
    else:
        boxes = [(left, top, wide, high, _COLOURS[int(split)] if split else style.FAINT)]
    for a, b, w, h, colour in boxes:
        ax.add_patch(Rectangle((a, b), w, h, facecolor=colour, edgecolor=style.PAPER, linewidth=1.2))
    ax.text(left + wide / 2, top - 0.02, letter, ha="center", va="bottom", fontsize=style.SMALL)
    return left + wide
