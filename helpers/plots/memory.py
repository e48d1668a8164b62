"""Allocated and reserved memory over time, stacked by who holds it, with the peak."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.memory.analysis import Holder, by_site, peak_of, timeline_of
from helpers.memory.rebuild import History, history
from helpers.memory.sizes import size_text
from helpers.memory.source import read

from . import style
from .picture import Picture, drawn, message

_PLOT, _LINE = 2.7, 0.23
_COLUMNS = 1600
"""Points drawn at most: two for each pixel of the picture's width."""
_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY)
_OTHERS = "#b9c0c8"


@drawn
def memory_timeline(
    source: Any, *, over: str = "events", most: int = 5, title: str = "Memory over time: who holds it"
) -> Picture:
    """Allocated memory stacked by the lines of code that hold most of it at the peak; reserved as a line above it.

    source: a Snapshot, a History, or anything that `memory.read` reads. over: "events" or "time" (seconds; ValueError
    where the events carry none). most: how many lines of code get a colour, 1 to 5.
    """
    found = source if isinstance(source, History) else history(read(source))
    if over not in ("events", "time"):
        raise ValueError(f"over={over!r}: 'events' or 'time'")
    if not 1 <= most <= len(_COLOURS):
        raise ValueError(f"most={most}: 1 to {len(_COLOURS)} colours can be told apart")
    evidence, line, top = found.snapshot.evidence, timeline_of(found), peak_of(found)
    if not len(line):
        return message(
            "no events: record them with torch.cuda.memory._record_memory_history() before the program runs",
            evidence=evidence, title=title,
        )  # fmt: skip
    if over == "time" and line.time_s is None:
        raise ValueError("over='time': these events carry no time; draw them over='events'")
    named = top.holders[:most]
    others = Holder(
        "all others", top.bytes - sum(h.bytes for h in named), sum(h.blocks for h in top.holders[most:])
    )
    keep = _thin(line.allocated, line.reserved)
    stack = by_site(found, [holder.site for holder in named])[:, keep]
    note = (
        f"peak {size_text(top.bytes)} after event {top.after}, while {size_text(top.reserved)} were reserved"
    )
    if not found.complete:
        note += (
            f" · the recording begins with {size_text(int(line.allocated[0]))} already allocated: what was before it, "
            "and any earlier peak, is not known"
        )
    rows = [*named, *([others] if stack[-1].any() else [])]
    body = _PLOT + 0.52 + _LINE * (len(rows) + 1) + 0.12
    fig, header = style.figure(body, evidence=evidence, title=title, note=note)
    fig.set_layout_engine("none")
    tall = body + header
    low = body - _PLOT
    ax = fig.add_axes((0.85 / style.WIDTH, low / tall, 1 - 1.1 / style.WIDTH, _PLOT / tall))
    factor, unit = _unit(int(line.reserved.max()))
    x = np.arange(len(line) + 1) if over == "events" else line.time_s
    assert x is not None
    scale, word = style.time_unit(float(x[-1])) if over == "time" else (1.0, "")
    _areas(ax, x[keep] * scale, stack / factor, line.reserved[keep] / factor, len(named))
    _peak(ax, fig, float(x[top.after]) * scale, top.bytes / factor, size_text(top.bytes))
    _failures(ax, found, x * scale, float(line.reserved.max()) / factor)
    ax.set_xlabel("events of the allocator" if over == "events" else f"time, {word}")
    ax.set_ylabel(unit)
    if over == "events":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _table(fig, rows, len(named), tall, low - 0.52)
    names = ", ".join(str(holder) for holder in rows)
    return Picture(fig, evidence, f"{title}: {note}; held then by {names}")


def _thin(allocated: np.ndarray, reserved: np.ndarray) -> np.ndarray:
    """Indexes worth drawing: all of a short curve; of each stretch of a long one its ends, maxima and minima."""
    count = len(allocated)
    if count <= _COLUMNS:
        return np.arange(count)
    edges = np.linspace(0, count, _COLUMNS // 4 + 1).astype(int)
    kept = {0, count - 1, int(allocated.argmax())}
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        kept |= {a, b - 1, a + int(allocated[a:b].argmax()), a + int(allocated[a:b].argmin())}
        kept.add(a + int(reserved[a:b].argmax()))
    return np.array(sorted(kept))


def _unit(nbytes: int) -> tuple[float, str]:
    power = next((p for p in (30, 20, 10) if nbytes >= 1 << p), 0)
    return float(1 << power), {30: "GiB", 20: "MiB", 10: "KiB", 0: "bytes"}[power]


def _areas(ax: Axes, x: np.ndarray, stack: np.ndarray, reserved: np.ndarray, named: int) -> None:
    bottom = np.zeros(stack.shape[1])
    # What is still there at the end lies lowest: weights carry what comes and goes, and not the other way round.
    for i in sorted(range(stack.shape[0]), key=lambda i: (i >= named, -stack[i, -1], i)):
        colour = _COLOURS[i] if i < named else _OTHERS
        look: dict[str, Any] = {"step": "post", "linewidth": 0, "color": colour}
        ax.fill_between(x, bottom, bottom + stack[i], **look)
        bottom = bottom + stack[i]
    ax.plot(x, bottom, drawstyle="steps-post", color=style.INK, linewidth=1.0)
    ax.plot(x, reserved, drawstyle="steps-post", color=style.VERMILLION, linestyle=(0, (4, 2)), linewidth=1.6)
    ax.set_xlim(x[0], x[-1] if x[-1] > x[0] else x[0] + 1)
    ax.set_ylim(0, 1.16 * max(float(reserved.max()), float(bottom.max()), 1e-12))


def _peak(ax: Axes, fig: Figure, x: float, y: float, text: str) -> None:
    ax.plot([x], [y], "o", color=style.INK, markersize=6, zorder=6, clip_on=False)
    left, right = ax.get_xlim()
    words = f"peak {text}"
    side = "right" if x > left + 0.7 * (right - left) else "left"
    box = {"boxstyle": "round,pad=0.25", "facecolor": style.PAPER, "edgecolor": style.INK, "linewidth": 0.8}
    shift = (-9, 9) if side == "right" else (9, 9)
    look: dict[str, Any] = {
        "ha": side,
        "va": "bottom",
        "fontsize": style.SMALL,
        "fontweight": "bold",
        "zorder": 7,
    }
    ax.annotate(words, (x, y), xytext=shift, textcoords="offset points", bbox=box, **look)


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


def _table(fig: Figure, rows: list[Holder], named: int, tall: float, top: float) -> None:
    """The key, which is also the list of holders: a line each, with the share at the peak."""
    wide = style.WIDTH

    def put(x: float, row: int, text: str, **look: Any) -> None:
        fig.text(
            x / wide,
            (top - _LINE * (row + 0.5)) / tall,
            text,
            va="center",
            **{"fontsize": style.SMALL} | look,
        )

    put(0.85, 0, "held at the peak by", color=style.MUTED)
    put(wide - 3.3, 0, "– –", color=style.VERMILLION, fontweight="bold")
    put(wide - 3.0, 0, "reserved: what PyTorch holds from CUDA", color=style.MUTED)
    for i, holder in enumerate(rows):
        colour = _COLOURS[i] if i < named else _OTHERS
        put(0.85, i + 1, "■", color=colour, fontsize=style.TEXT + 1)
        size = f"{size_text(holder.bytes)} in {holder.blocks} block{'s' if holder.blocks != 1 else ''}"
        size = size if holder.blocks else "nothing"
        put(1.08, i + 1, style.wrap(fig, holder.site, style.SMALL, 3.9)[0])
        put(6.6, i + 1, size, ha="right")
