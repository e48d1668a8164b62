"""A window of a trace, close up: host threads with their operators and calls, the streams, why nothing computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.seconds import approx, format_seconds
from helpers.trace import CAUSES, Idle, Trace, idle, read, spans
from helpers.trace import names as words

from . import coverage, style
from .picture import Picture, drawn
from .tracelanes import Lane, Row, host_lanes, stream_lanes

_ROW, _BAR, _SPACE = 0.27, 0.23, 0.10  # inches: a row of bars, a bar in it, the space between lanes
_RIGHT = 0.25  # inches right of the axes
_NARROW = 0.02  # inches: what is narrower is drawn as a share of its pixel's time
_LINKS = 40
_PALE = {
    coverage.HOST["python"], coverage.HOST["annotation"], coverage.HOST["operator"],
    style.ORANGE, style.SKY, style.PURPLE, coverage.CAUSE["short kernels"], coverage.CAUSE["no cause seen"],
}  # fmt: skip


@drawn
def zoom(
    source: Any, start_s: float | None = None, end_s: float | None = None, *, title: str = "Close up"
) -> Picture:
    """What every host thread and every stream did from `start_s` to `end_s`, by name where a bar has room.

    `source`: a Trace, or what `trace.read` takes; times in seconds of its clock (None: its first and last
    event). From top to bottom: named spans, Python as far as recorded, operators (three levels), CUDA calls, then the streams, and why
    nothing computes. Thin lines join a launch to its work where there are few. ValueError for an empty window.
    """
    t = read(source)
    begin = 0 if start_s is None else round(start_s * 1e9)
    end = int(t.end_ns.max()) if end_s is None else round(end_s * 1e9)
    if not begin < end:
        raise ValueError(f"zoom: the window from {begin / 1e9} s to {end / 1e9} s is empty")
    lanes, left_out = host_lanes(t, begin, end)
    streams = stream_lanes(t, begin, end) if t.has_gpu else []
    gaps = idle(t, begin / 1e9, end / 1e9) if t.has_gpu else None

    about = approx(t.evidence)
    note = f"{about}{format_seconds((end - begin) / 1e9)} of {about}{format_seconds(t.span_s)}"
    if gaps is not None:
        note += f" · GPU computes {about}{1 - gaps.total / gaps.span:.0%} of it"
    if left_out:
        note += f" · {left_out} more thread(s) not drawn"
    scratch, _ = style.figure(1.0, evidence=t.evidence)
    named = [lane.label for lane in (*lanes, *streams)] + (["idle because"] if gaps else [])
    left = max((style.text_width(scratch, lane, style.TEXT, "bold") for lane in named), default=0.5) + 0.3
    across = (end - begin) / (style.WIDTH - left - _RIGHT)  # ns in an inch
    every = [row for lane in (*lanes, *streams) for row in lane.rows]
    if any((np.subtract(*_times(t, row)) < _NARROW * across).any() for row in every):
        note += " · where bars are too short to see: height is their share of the time"
    lines = [
        line
        for what, entries in _entries(lanes, streams, gaps, about).items()
        for line in coverage.key(scratch, entries, left, what)
    ]
    y = 0.06
    for lane in (*lanes, *streams):
        for row in lane.rows:
            row.y = y
            y += _ROW
        y += _SPACE
    plot = y + (_ROW if gaps else 0)
    low = 0.5 + coverage.LINE * len(lines)
    fig, header = style.figure(max(plot, 0.4) + low, evidence=t.evidence, title=title, note=note)
    fig.set_layout_engine("none")
    tall = header + max(plot, 0.4) + low
    ax = fig.add_axes(
        (left / style.WIDTH, low / tall, 1 - (left + _RIGHT) / style.WIDTH, max(plot, 0.4) / tall)
    )
    time = coverage.TimeAxis(ax, begin, end)
    ax.set_ylim(max(plot, 0.4), 0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    edge = time.at(begin)
    for i, lane in enumerate((*lanes, *streams)):
        middle = (lane.rows[0].y + lane.rows[-1].y + _BAR) / 2
        ax.text(edge - 0.1 * time.inch, middle, lane.label, ha="right", va="center", fontweight="bold")
        if i:
            rule = lane.rows[0].y - _SPACE / 2 - 0.01
            ax.axhline(rule, color=style.FAINT, linewidth=0.8, zorder=1)
        for row in lane.rows:
            _bars(ax, fig, t, row, begin, end, time)
    if gaps:
        ax.axhspan(y, y + _BAR, color="#f4f5f6", zorder=0.5)
        ax.text(edge - 0.1 * time.inch, y + _BAR / 2, "idle because", ha="right", va="center", fontweight="bold")  # fmt: skip
        _idle(ax, fig, gaps, y, time)
    _links(ax, t, lanes, streams, begin, end, time)
    coverage.draw_key(fig, lines)
    alt = f"{title}: " + ", ".join(named)
    return Picture(fig, t.evidence, alt if about else f"{alt}; {note}")


def _entries(
    lanes: Sequence[Lane], streams: Sequence[Lane], gaps: Idle | None, about: str
) -> dict[str, list[tuple[str, str]]]:
    """The key, lane by lane: only what is in the picture."""
    used = {colour for lane in (*lanes, *streams) for row in lane.rows for colour in row.colours}
    causes = gaps.seconds.items() if gaps else ()
    return {
        "host": [(c, coverage.HOST_SAID[kind]) for kind, c in coverage.HOST.items() if c in used],
        "streams": [(c, coverage.FAMILY_SAID[family]) for family, c in coverage.FAMILY.items() if c in used],
        "idle": [(coverage.CAUSE[cause], f"{cause} {about}{format_seconds(s)}") for cause, s in causes],
    }


def _times(t: Trace, row: Row) -> tuple[Any, Any]:
    """When the bars of a row end and begin, nanoseconds."""
    return (
        t.end_ns[row.rows] if row.stop is None else row.stop,
        t.start_ns[row.rows] if row.start is None else row.start,
    )


def _bars(ax: Axes, fig: Figure, t: Trace, row: Row, begin: int, end: int, time: coverage.TimeAxis) -> None:
    ended, began = _times(t, row)
    start, stop = np.maximum(began, begin), np.minimum(ended, end)
    wide = (stop - start) * time.scale / time.inch
    colours = np.array(row.colours)
    edges = np.linspace(begin, end, 1 + max(1, round((end - begin) * time.scale / time.inch / _NARROW * 2)))
    tops: Any = np.full(len(edges) - 1, row.y + _BAR)
    for colour in dict.fromkeys(row.colours):
        mine = colours == colour
        thin = mine & (wide < _NARROW)
        if thin.any():
            covered = spans.union(start[thin], stop[thin])
            share = coverage.shares(*covered, edges)
            tops = coverage.fill(ax, time.at(edges), share, tops, _BAR, colour)
        thick = np.flatnonzero(mine & (wide >= _NARROW))
        bars = [(time.at(start[i]), (stop[i] - start[i]) * time.scale) for i in thick.tolist()]
        ax.broken_barh(bars, (row.y, _BAR), facecolor=colour, edgecolor=style.PAPER, linewidth=0.6, zorder=3)
        for i in thick[wide[thick] > 0.3].tolist():
            _label(ax, fig, t.names[t.name[row.rows[i]]], float(wide[i]), time.at((start[i] + stop[i]) / 2), row.y, colour)  # fmt: skip


def _label(ax: Axes, fig: Figure, name: str, wide: float, x: float, y: float, colour: str) -> None:
    """The name in its bar: whole, shortened, or not at all."""
    text = words.short(name, 60)
    if text.startswith("aten::"):
        text = text.removeprefix("aten::")
    room = wide - 0.06
    while style.text_width(fig, text, 8.5) > room:
        if len(text) <= 4:
            return
        text = text.rstrip("…")[:-1] + "…"
    look: dict[str, Any] = {"fontsize": 8.5, "color": _ink(colour), "zorder": 4, "clip_on": True}
    ax.text(x, y + _BAR / 2, text, ha="center", va="center", **look)


def _idle(ax: Axes, fig: Figure, gaps: Idle, y: float, time: coverage.TimeAxis) -> None:
    edges = np.linspace(gaps.window_s[0] * 1e9, gaps.window_s[1] * 1e9, 900)
    tops: Any = np.full(len(edges) - 1, y + _BAR)
    wide = (gaps.end_ns - gaps.start_ns) * time.scale / time.inch
    for i, cause in enumerate(CAUSES):
        mine = gaps.cause == i
        share = coverage.shares(gaps.start_ns[mine], gaps.end_ns[mine], edges)
        colour = coverage.CAUSE[cause]
        tops = coverage.fill(ax, time.at(edges), share, tops, _BAR, colour)
        need = style.text_width(fig, cause, 8.5) + 0.08
        for k in np.flatnonzero(mine & (wide > need)).tolist():
            x = time.at((gaps.start_ns[k] + gaps.end_ns[k]) / 2)
            look: dict[str, Any] = {"fontsize": 8.5, "color": _ink(colour), "zorder": 4}
            ax.text(x, y + _BAR / 2, cause, ha="center", va="center", **look)


def _ink(colour: str) -> str:
    """What can be read on a bar of this colour."""
    return style.INK if colour in _PALE else style.PAPER


def _links(
    ax: Axes, t: Trace, lanes: Sequence[Lane], streams: Sequence[Lane], begin: int, end: int,
    time: coverage.TimeAxis,
) -> None:  # fmt: skip
    """Lines from launch calls to the work they launched, where few enough to follow."""
    low = {int(r): row.y for lane in streams for row in lane.rows for r in row.rows}
    high = {int(r): row.y for lane in lanes for row in lane.rows for r in row.rows}
    work = t.work
    pairs = [
        (int(call), int(row))
        for call, row in zip(work.launch_row, work.row, strict=True)
        if int(call) in high and int(row) in low
    ]
    if len(pairs) > _LINKS:
        return
    for call, row in pairs:
        x = [time.at(max(int(t.start_ns[call]), begin)), time.at(min(int(t.start_ns[row]), end))]
        ax.plot(x, [high[call] + _BAR, low[row]], color=style.MUTED, linewidth=0.8, alpha=0.8, zorder=2)
