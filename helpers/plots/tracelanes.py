"""The lanes of a trace's window: which rows stand beside each other, and in what colour."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helpers.trace import Trace
from helpers.trace import names as words
from helpers.trace.columns import nest

from . import coverage

_LEVELS, _THREADS, _STREAMS = 3, 3, 5
Ints = NDArray[np.int64]


@dataclass
class Row:
    """Bars side by side: rows of the trace with a colour each; from `start` to `stop` (None: the rows' own)."""

    rows: Ints
    colours: list[str]
    y: float = 0.0
    start: Ints | None = None
    stop: Ints | None = None


@dataclass
class Lane:
    label: str
    rows: list[Row] = field(default_factory=list)


def _levels(t: Trace, rows: Ints) -> list[Ints]:
    """Events of one thread by how deep they lie in one another; `rows` in order of start, the longer first."""
    levels: list[list[int]] = []
    ends: list[int] = []
    for row, start, end in zip(
        rows.tolist(), t.start_ns[rows].tolist(), t.end_ns[rows].tolist(), strict=True
    ):
        while ends and ends[-1] <= start:
            ends.pop()
        if len(ends) == len(levels):
            levels.append([])
        levels[len(ends)].append(row)
        ends.append(end)
    return [np.array(level, np.int64) for level in levels]


def _python(t: Trace, thread: int, begin: int, end: int) -> Row | None:
    """What Python a thread was in, as one row: of functions that call each other always the innermost."""
    if not (t.of("python") & (t.thread == thread)).any():
        return None
    pieces = nest(t, np.array([thread]), ("python",))
    here = (pieces.start_ns < end) & (pieces.end_ns > begin)
    rows = pieces.row[here]
    if not len(rows):
        return None
    colours = [coverage.HOST["python"]] * len(rows)
    return Row(rows, colours, start=pieces.start_ns[here], stop=pieces.end_ns[here])


def _call_kind(name: str) -> str:
    started = words.launches(name) or words.copies(name) or "Memset" in name
    return "launch" if started else "other call"


def host_lanes(t: Trace, begin: int, end: int) -> tuple[list[Lane], int]:
    """Lanes of the busiest threads (the one that launches most first), and how many threads are left out."""
    host = (t.start_ns < end) & (t.end_ns > begin) & t.of("annotation", "operator", "call", "python")
    # a thread that only asks (cudaEventQuery, as NCCL's watchdog does) is no news
    idle_calls = t.of("call") & ~t.waiting & t.named(lambda name: _call_kind(name) == "other call")
    threads = np.unique(t.thread[host & ~idle_calls])
    launches = np.bincount(t.thread[t.work.launch_row[t.work.launch_row >= 0]], minlength=len(t.threads))
    busy = np.bincount(t.thread[host], minlength=len(t.threads))
    order = sorted(threads.tolist(), key=lambda i: (-launches[i], -busy[i]))
    lanes = []
    for number, thread in enumerate(order[:_THREADS]):
        mine = host & (t.thread == thread)
        lane = Lane("host" if len(order) == 1 else f"host {number + 1}")
        for kind, deep in (("annotation", 2), ("operator", _LEVELS)):
            for level in _levels(t, np.flatnonzero(mine & t.of(kind)))[:deep]:
                lane.rows.append(Row(level, [coverage.HOST[kind]] * len(level)))
            if kind == "annotation" and (python := _python(t, thread, begin, end)):
                lane.rows.append(python)  # who calls stands above whom it calls
        calls = np.flatnonzero(mine & t.of("call"))
        if len(calls):
            kinds = [
                "wait" if w else _call_kind(t.names[i])
                for i, w in zip(t.name[calls].tolist(), t.waiting[calls].tolist(), strict=True)
            ]
            lane.rows.append(Row(calls, [coverage.HOST[kind] for kind in kinds]))
        lanes.append(lane)
    return lanes, max(0, len(order) - _THREADS)


def stream_lanes(t: Trace, begin: int, end: int) -> list[Lane]:
    work = t.work
    here = (work.start_ns < end) & (work.end_ns > begin)
    colours = [coverage.FAMILY[f] for f in words.FAMILIES]
    counts = {s: int((here & (work.stream == s)).sum()) for s in work.streams}
    chosen = sorted(sorted(counts, key=lambda s: -counts[s])[:_STREAMS])
    return [
        Lane(coverage.stream_name(t, s), [Row(work.row[mine], [colours[f] for f in work.family[mine]])])
        for s in chosen
        if (mine := here & (work.stream == s)).any()
    ]
