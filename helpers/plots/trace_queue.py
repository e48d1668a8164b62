"""The GPU's queue over time: who is busy, how much waits, and why nothing computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from helpers.text.seconds import approx, format_seconds
from helpers.trace import QueueDepth, Trace, idle, queue_depth, read, spans
from helpers.trace import names as words
from helpers.trace.columns import Work

from . import style
from .gantt import Gantt, Lane, Row
from .picture import Picture, drawn
from .trace_lanes import FAMILY, FAMILY_SAID, HOST, STREAMS, idle_lane, idle_said, key_of, stream_name

_BINS = 720  # about one for every pixel and a half of the axes
_BAR, _SPACE, _DEPTH = 0.27, 0.13, 1.25
_HOST_SAID = {"python": "Python", "operator": "operator or call", "wait": "waits for the GPU"}
Parts = dict[str, spans.Spans]


def _host(t: Trace, begin: int, end: int) -> Parts:
    """When a thread that launches work waits for the GPU, and when it is in anything else."""
    launched = t.work.launch_row[t.work.launch_row >= 0]
    mine = np.isin(t.thread, np.unique(t.thread[launched]))
    wait = mine & t.waiting
    waiting = spans.union(t.start_ns[wait], t.end_ns[wait])
    work = mine & t.of("operator", "call") & ~wait
    working = spans.union(t.start_ns[work], t.end_ns[work])
    rest = spans.complement(waiting, begin, end)
    other = mine & t.of("python")
    python = spans.intersection(spans.union(t.start_ns[other], t.end_ns[other]), rest)
    python = spans.intersection(python, spans.complement(working, begin, end))
    working = spans.intersection(working, rest)
    found = {"python": python, "operator": working, "wait": spans.clip(waiting, begin, end)}
    return {kind: when for kind, when in found.items() if len(when[0])}


def _streams(work: Work, begin: int, end: int) -> tuple[dict[int, Parts], int]:
    """What the busiest streams do, five at most, by number; and how many more there are."""
    streams: dict[int, Parts] = {}
    for stream in work.streams:
        parts = {}
        for family in words.FAMILIES:
            mine = work.of(family) & (work.stream == stream)
            when = spans.clip(spans.union(work.start_ns[mine], work.end_ns[mine]), begin, end)
            if len(when[0]):
                parts[family] = when
        if parts:
            streams[stream] = parts
    busy = {stream: sum(map(spans.length, parts.values())) for stream, parts in streams.items()}
    chosen = sorted(sorted(streams, key=lambda s: -busy[s])[:STREAMS])
    return {s: streams[s] for s in chosen}, len(streams) - len(chosen)


def _lane(label: str, parts: Parts, colours: dict[str, str]) -> Lane:
    """One row of what a lane does, whatever runs at the same time in it."""
    start, end = (np.concatenate([when[side] for when in parts.values()]) / 1e9 for side in (0, 1))
    every = [colours[kind] for kind, when in parts.items() for _ in when[0]]
    return Lane(label, [Row(start, end, every, dense=True, edge=0.0)])


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
    host = _host(t, begin, end)
    streams, left_out = _streams(t.work, begin, end)
    lanes = [_lane("host", host, HOST)] if host else []
    lanes += [_lane(stream_name(t, stream), parts, FAMILY) for stream, parts in streams.items()]
    lanes.append(idle_lane(gaps))
    gantt = Gantt(lanes, *gaps.window_s, bar=_BAR, space=_SPACE, clock=True)

    about = approx(t.evidence)
    note = f"GPU computes {about}{gaps.busy:.0%} of {about}{format_seconds(gaps.span)}"
    if gantt.has_columns:
        note += " · where bars are too short to see: height is their share of the time"
    if len(depth.times_s) > _BINS // 2:
        note += " · queue: mean, and lowest to highest pale"
    if left_out:
        note += f" · {left_out} more stream(s) not drawn"
    shown = [f for f in words.FAMILIES if any(f in parts for parts in streams.values())]
    key = key_of(gantt, {
        "host": [(HOST[kind], _HOST_SAID[kind]) for kind in host],
        "streams": [(FAMILY[family], FAMILY_SAID[family]) for family in shown],
        "idle": idle_said(gaps, about, shares=True),
    })  # fmt: skip
    gantt.draw(t.evidence, title, note, key=key, under=_DEPTH)
    _depth(gantt.under, depth, gantt)
    place = gantt.under.get_position()
    x, y = (gantt.left - 0.5) / style.WIDTH, (place.y0 + place.y1) / 2
    gantt.fig.text(x, y, "launches\nwaiting", ha="right", va="center", fontweight="bold")
    said = ", ".join(f"{cause} {s / gaps.span:.0%}" for cause, s in gaps.seconds.items())
    alt = f"{title}: lanes {', '.join(lane.label for lane in lanes)}, and the depth of the queue below"
    told = f"{alt}; idle: {said or 'never'}; mean depth {depth.mean:.1f}"
    return gantt.picture(t.evidence, alt if about else told)


def _depth(ax: Axes, depth: QueueDepth, gantt: Gantt) -> None:
    """The staircase; where it has more steps than can be seen: its mean, and from lowest to highest pale."""
    if len(depth.times_s) <= _BINS // 2:
        x, y = gantt.at(depth.times_s), depth.depth
        ax.fill_between(x, y, step="post", color=style.BLUE, alpha=0.18, linewidth=0)
        ax.plot(x, y, drawstyle="steps-post", color=style.BLUE, linewidth=1.1)
    else:
        edges = np.linspace(depth.times_s[0], depth.times_s[-1], _BINS + 1)
        times = np.union1d(depth.times_s, edges)
        value = depth.depth[np.searchsorted(depth.times_s, times, side="right") - 1]
        bins = np.searchsorted(times, edges[:-1])
        low, high = np.minimum.reduceat(value[:-1], bins), np.maximum.reduceat(value[:-1], bins)
        mean = np.add.reduceat(value[:-1] * np.diff(times), bins) / np.diff(edges)
        x = gantt.at(np.repeat(edges, 2)[1:-1])
        ax.fill_between(x, np.repeat(mean, 2), color=style.BLUE, alpha=0.12, linewidth=0)
        ax.fill_between(x, np.repeat(low, 2), np.repeat(high, 2), color=style.BLUE, alpha=0.22, linewidth=0)
        ax.plot(x, np.repeat(mean, 2), color=style.BLUE, linewidth=1.1)
    ax.set_ylim(0, max(1, depth.deepest) * 1.12)
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
