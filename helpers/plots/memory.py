"""Allocated and reserved memory over time, stacked by who holds it, with the peak."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.memory.analysis import Holder, by_site, peak_of
from helpers.memory.reading import read
from helpers.memory.rebuild import History, history
from helpers.text.sizes import size_text, size_unit

from . import staircase, style
from .picture import Picture, drawn, message

_PLOT = 2.7
_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY)
_OTHERS = "#b9c0c8"


@drawn
def memory_timeline(source: Any, *, most: int = 5, title: str = "Memory over time: who holds it") -> Picture:
    """Allocated memory stacked by the lines of code that hold most of it at the peak; reserved as a line above it.

    source: a Snapshot, a History, or anything that `memory.read` reads. most: how many lines of code get a colour, 1
    to 5.
    """
    past = source if isinstance(source, History) else history(read(source))
    if not 1 <= most <= len(_COLOURS):
        raise ValueError(f"most={most}: 1 to {len(_COLOURS)} colours can be told apart")
    evidence, top = past.snapshot.evidence, peak_of(past)
    if not len(past):
        return message(
            "no events: record them with torch.cuda.memory._record_memory_history() before the program runs",
            evidence=evidence, title=title,
        )  # fmt: skip
    named = top.holders[:most]
    blocks = sum(h.blocks for h in top.holders[most:])
    others = Holder("all others", top.bytes - sum(h.bytes for h in named), blocks)
    keep = staircase.thin(past.allocated, past.reserved)
    stack = by_site(past, [holder.site for holder in named])[:, keep]
    peak, before = size_text(top.bytes), size_text(int(past.allocated[0]))
    note = f"peak {peak} after event {top.after}, while {size_text(top.reserved)} were reserved"
    if not past.complete:
        note += f" · the recording begins with {before} already allocated: what was before it, and any earlier peak, is not known"
    rows = [*named, *([others] if stack[-1].any() else [])]
    body = _PLOT + 0.52 + staircase.LINE * (len(rows) + 1) + 0.12
    fig, header = style.figure(body, evidence=evidence, title=title, note=note, placed=True)
    tall = body + header
    low = body - _PLOT
    ax = fig.add_axes((0.85 / style.WIDTH, low / tall, 1 - 1.1 / style.WIDTH, _PLOT / tall))
    factor, unit = size_unit(int(past.reserved.max()))
    x = np.arange(len(past) + 1)
    _areas(ax, x[keep], stack / factor, past.reserved[keep] / factor, len(named))
    staircase.peak(ax, float(x[top.after]), top.bytes / factor, size_text(top.bytes))
    _failures(ax, past, x, float(past.reserved.max()) / factor)
    ax.set(xlabel="events of the allocator", ylabel=unit)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _table(fig, rows, len(named), header + _PLOT + 0.52)
    names = ", ".join(str(holder) for holder in rows)
    return Picture(fig, evidence, f"{title}: {note}; held then by {names}")


def _areas(ax: Axes, x: np.ndarray, stack: np.ndarray, reserved: np.ndarray, named: int) -> None:
    # What is still there at the end lies lowest: weights carry what comes and goes, and not the other way round.
    order = sorted(range(len(stack)), key=lambda i: (i >= named, -stack[i, -1], i))
    top = staircase.stack(ax, x, [(stack[i], _COLOURS[i] if i < named else _OTHERS) for i in order])
    ax.plot(x, reserved, drawstyle="steps-post", color=style.VERMILLION, linestyle=(0, (4, 2)), linewidth=1.6)
    ax.set_xlim(x[0], x[-1] if x[-1] > x[0] else x[0] + 1)
    ax.set_ylim(0, 1.16 * max(float(reserved.max()), float(top.max()), 1e-12))


def _failures(ax: Axes, found: History, x: np.ndarray, top: float) -> None:
    failed = [event for event in found.snapshot.events if event.action == "oom"]
    left, right = ax.get_xlim()
    for event in failed:
        ax.axvline(x[event.index + 1], color=style.VERMILLION, linewidth=1.2)
    if failed:
        event = failed[0]
        at = float(x[event.index + 1])
        side = "right" if at > (left + right) / 2 else "left"
        ax.text(at, 1.15 * top, f" out of memory: {size_text(event.size)} asked for ", ha=side, va="top",
                fontsize=style.SMALL, color=style.VERMILLION)  # fmt: skip


def _table(fig: Figure, rows: list[Holder], named: int, top: float) -> None:
    """The key, which is also the list of holders: a line each, with what it holds at the peak."""
    cells = []
    for i, holder in enumerate(rows):
        size = f"{size_text(holder.bytes)} in {holder.blocks} block{'s' if holder.blocks != 1 else ''}"
        site = style.wrap(holder.site, style.SMALL, 3.9)[0]
        colour = _COLOURS[i] if i < named else _OTHERS
        cells.append((colour, (site, size if holder.blocks else "nothing")))
    staircase.table(fig, top, "held at the peak by", cells, ((1.08, "left"), (6.6, "right")))
    y = fig.get_size_inches()[1] - top - staircase.LINE / 2
    look: dict[str, Any] = {"va": "center", "fontsize": style.SMALL, "transform": fig.dpi_scale_trans}
    fig.text(style.WIDTH - 3.3, y, "– –", color=style.VERMILLION, fontweight="bold", **look)
    fig.text(style.WIDTH - 3.0, y, "reserved: what PyTorch holds from CUDA", color=style.MUTED, **look)
