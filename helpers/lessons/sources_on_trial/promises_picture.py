"""What was promised, and what was measured: ratios with their intervals, and a mark where a claim has its promise."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.plots import style
from helpers.plots.picture import Picture, drawn

#: ratio, lower and upper end of its interval
Measured = tuple[float, float, float]


@drawn
def promises(
    rows: Mapping[str, Measured], promised: Mapping[str, float], *, evidence: str, title: str
) -> Picture:
    """A row each, on a logarithmic scale. promised: a row's promise; a row without one is a control, which should hold 1."""
    fig, _ = style.figure(0.75 + 0.42 * len(rows), evidence=evidence, title=title)
    ax = fig.add_subplot()
    ax.set_xscale("log")
    ax.set_xlim(0.8, 4)
    ax.axvline(1, color=style.INK, linewidth=1.4, zorder=1)
    for row, (name, (ratio, low, high)) in enumerate(rows.items()):
        colour, marker = (style.BLUE, "o") if name in promised else (style.MUTED, "D")
        ax.plot([low, high], [row, row], color=colour, linewidth=3, solid_capstyle="butt", zorder=2)
        ax.plot([low, high], [row, row], "|", color=colour, markersize=12, markeredgewidth=2, zorder=2)
        ax.plot([ratio], [row], marker, color=colour, markersize=6, markeredgecolor=style.PAPER, zorder=3)
    at = [list(rows).index(name) for name in promised]
    ax.plot(list(promised.values()), at, "|", color=style.VERMILLION, markersize=26, markeredgewidth=2.5, zorder=4)  # fmt: skip
    first, row = next(zip(promised.values(), at, strict=True))
    ax.annotate("the promise", (first, row - 0.5), ha="center", va="bottom", color=style.VERMILLION)
    ticks = (1, 1.2, 1.5, 2, 3)
    ax.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    ax.minorticks_off()
    style.row_names(ax, list(rows))
    ax.set_ylim(len(rows) - 0.5, -1)
    ax.set_xlabel("time before ÷ time after")
    right = ax.twinx()
    style.row_names(right, [f"{ratio:.2f}×  [{low:.2f}, {high:.2f}]" for ratio, low, high in rows.values()])
    right.set_ylim(ax.get_ylim())
    text = "; ".join(
        f"{name}: {ratio:.2f}, from {low:.2f} to {high:.2f}"
        + (f", promised {promised[name]:g}" if name in promised else "")
        for name, (ratio, low, high) in rows.items()
    )
    return Picture(fig, evidence, f"{title}: {text}")
