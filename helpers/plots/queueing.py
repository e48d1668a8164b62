"""The GPU's queue over time: who is busy, how much waits, and why nothing computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from helpers.seconds import approx, format_seconds
from helpers.trace import CAUSES, Idle, QueueDepth, Trace, idle, queue_depth, read, spans
from helpers.trace import names as words
from helpers.trace.columns import Work

from . import coverage, style
from .picture import Picture, drawn

_BINS = 720  # about one for every pixel and a half of the axes
_LANE, _BAR, _DEPTH = 0.40, 0.27, 1.25
_STREAMS = 5
_HOST_SAID = {"python": "Python", "operator": "operator or call", "wait": "waits for the GPU"}


def _host(t: Trace) -> list[tuple[str, spans.Spans]]:
    """When a thread that launches work waits for the GPU, and when it is in anything else."""
    launched = t.work.launch_row[t.work.launch_row >= 0]
    if not len(launched):
        return []
    mine = np.isin(t.thread, np.unique(t.thread[launched]))
    wait = mine & t.waiting
    waiting = spans.union(t.start_ns[wait], t.end_ns[wait])
    work = mine & t.of("operator", "call") & ~wait
    working = spans.union(t.start_ns[work], t.end_ns[work])
    last = int(t.end_ns.max()) + 1
    rest = spans.complement(waiting, 0, last)
    other = mine & t.of("python")
    python = spans.intersection(spans.union(t.start_ns[other], t.end_ns[other]), rest)
    python = spans.intersection(python, spans.complement(working, 0, last))
    found = [("python", python), ("operator", spans.intersection(working, rest)), ("wait", waiting)]
    return [(kind, when) for kind, when in found if len(when[0])]


def _streams(work: Work, begin: int, end: int) -> tuple[list[int], int]:
    """The streams that are drawn, busiest first and at most five, by number; and how many are left out."""
    busy = {
        s: int((np.minimum(work.end_ns, end) - np.maximum(work.start_ns, begin))[work.stream == s].clip(0).sum())
        for s in work.streams
    }  # fmt: skip
    active = [s for s in work.streams if busy[s]]
    chosen = sorted(sorted(active, key=lambda s: -busy[s])[:_STREAMS])
    return chosen, len(active) - len(chosen)


@drawn
def queue(
    source: Any,
    start_s: float | None = None,
    end_s: float | None = None,
    *,
    title: str = "Who waits for whom",
) -> Picture:
    """The host, the GPU's streams, why nothing computes, and how many launches wait, over one time axis.

    `source`: a Trace, or what `trace.read` takes. start_s, end_s: a window in seconds (None: from the first GPU
    work to the last). Where bars are too short to see, a column's height is their share of its time. ValueError
    for a trace without GPU work, or an empty window.
    """
    t = read(source)
    gaps = idle(t, start_s, end_s)
    begin, end = (round(s * 1e9) for s in gaps.window_s)
    depth = queue_depth(t, *gaps.window_s)
    work = t.work
    streams, left_out = _streams(work, begin, end)
    host = _host(t)
    called = {s: coverage.stream_name(t, s) for s in streams}
    lanes = [*(["host"] if host else []), *called.values(), "idle because"]

    about = approx(t.evidence)
    note = f"GPU computes {about}{1 - gaps.total / gaps.span:.0%} of {about}{format_seconds(gaps.span)} · height: share of the time"
    if len(depth.times_s) > _BINS // 2:
        note += " · queue: mean, and lowest to highest pale"
    if left_out:
        note += f" · {left_out} more stream(s) not drawn"
    scratch, _ = style.figure(1.0, evidence=t.evidence)
    left = max(style.text_width(scratch, lane, style.TEXT, "bold") for lane in lanes) + 0.3
    shown = [f for f in words.FAMILIES if np.isin(work.stream[work.of(f)], streams).any()]
    lines = coverage.key(scratch, [(coverage.HOST[kind], _HOST_SAID[kind]) for kind, _ in host], left, "host")
    families = [(coverage.FAMILY[f], coverage.FAMILY_SAID[f]) for f in shown]
    lines += coverage.key(scratch, families, left, "streams")
    lines += coverage.key(
        scratch,
        [
            (coverage.CAUSE[cause], f"{cause} {about}{format_seconds(s)} ({about}{s / gaps.span:.1%})")
            for cause, s in gaps.seconds.items()
            if s / gaps.span >= 0.0005
        ],
        left,
        "idle",
    )  # fmt: skip
    plot = 0.08 + _LANE * len(lanes)
    low = 0.5 + coverage.LINE * len(lines)
    fig, header = style.figure(plot + 0.16 + _DEPTH + low, evidence=t.evidence, title=title, note=note)
    fig.set_layout_engine("none")
    tall = header + plot + 0.16 + _DEPTH + low
    wide = 1 - (left + 0.25) / style.WIDTH
    ax = fig.add_axes((left / style.WIDTH, (low + _DEPTH + 0.16) / tall, wide, plot / tall))
    under = fig.add_axes((left / style.WIDTH, low / tall, wide, _DEPTH / tall))
    ax.set_ylim(plot, 0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", labelbottom=False, length=0)
    time = coverage.TimeAxis(ax, begin, end, label=False)
    edges = np.linspace(begin, end, _BINS + 1)
    at, inch = time.at(edges), time.inch
    base = {lane: 0.04 + _LANE * (i + 0.5) + _BAR / 2 for i, lane in enumerate(lanes)}
    for lane, y in base.items():
        ax.axhspan(y - _BAR, y, color="#f4f5f6", zorder=0.5)
        ax.text(at[0] - 0.1 * inch, y - _BAR / 2, lane, ha="right", va="center", fontweight="bold")
    for kind, when in host:
        coverage.fill(ax, at, coverage.shares(*when, edges), base["host"], _BAR, coverage.HOST[kind])
    for stream in streams:
        tops: Any = np.full(_BINS, base[called[stream]])
        for family in words.FAMILIES:
            mine = work.of(family) & (work.stream == stream)
            covered = spans.union(work.start_ns[mine], work.end_ns[mine])
            tops = coverage.fill(
                ax, at, coverage.shares(*covered, edges), tops, _BAR, coverage.FAMILY[family]
            )
    _causes(ax, gaps, at, edges, base["idle because"])
    _depth(under, depth, coverage.TimeAxis(under, begin, end))
    x, y = (left - 0.5) / style.WIDTH, (low + _DEPTH / 2) / tall
    fig.text(x, y, "launches\nwaiting", ha="right", va="center", fontweight="bold")
    coverage.draw_key(fig, lines)
    said = ", ".join(f"{cause} {s / gaps.span:.0%}" for cause, s in gaps.seconds.items())
    alt = f"{title}: lanes {', '.join(lanes)}, and the depth of the queue below"
    return Picture(
        fig, t.evidence, alt if about else f"{alt}; idle: {said or 'never'}; mean depth {depth.mean:.1f}"
    )


def _causes(ax: Axes, gaps: Idle, at: Any, edges: Any, base: float) -> None:
    tops: Any = np.full(len(edges) - 1, base)
    for i, cause in enumerate(CAUSES):
        mine = gaps.cause == i
        share = coverage.shares(gaps.start_ns[mine], gaps.end_ns[mine], edges)
        tops = coverage.fill(ax, at, share, tops, _BAR, coverage.CAUSE[cause])


def _depth(ax: Axes, depth: QueueDepth, time: coverage.TimeAxis) -> None:
    """The staircase; where it has more steps than can be seen: its mean, and from lowest to highest pale."""
    if len(depth.times_s) <= _BINS // 2:
        x, y = time.at(depth.times_s * 1e9), depth.depth
        ax.fill_between(x, y, step="post", color=style.BLUE, alpha=0.18, linewidth=0)
        ax.plot(x, y, drawstyle="steps-post", color=style.BLUE, linewidth=1.1)
    else:
        edges = np.linspace(depth.times_s[0], depth.times_s[-1], _BINS + 1)
        times = np.union1d(depth.times_s, edges)
        value = depth.depth[np.searchsorted(depth.times_s, times, side="right") - 1]
        bins = np.searchsorted(times, edges[:-1])
        low, high = np.minimum.reduceat(value[:-1], bins), np.maximum.reduceat(value[:-1], bins)
        mean = np.add.reduceat(value[:-1] * np.diff(times), bins) / np.diff(edges)
        x = time.at(np.repeat(edges, 2)[1:-1] * 1e9)
        ax.fill_between(x, np.repeat(mean, 2), color=style.BLUE, alpha=0.12, linewidth=0)
        ax.fill_between(x, np.repeat(low, 2), np.repeat(high, 2), color=style.BLUE, alpha=0.22, linewidth=0)
        ax.plot(x, np.repeat(mean, 2), color=style.BLUE, linewidth=1.1)
    ax.set_ylim(0, max(1, depth.deepest) * 1.12)
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
