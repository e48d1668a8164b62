"""What a trace's lanes hold, and in what colour: host threads by level, streams by family, idle time by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.text.seconds import format_seconds
from helpers.trace import CAUSES, Idle, Trace
from helpers.trace import names as words
from helpers.trace.columns import nest

from . import key as keys
from . import style
from .gantt import Gantt, Lane, Row

FAMILY = {
    "compute": style.BLUE, "memory": style.SKY, "copy": style.ORANGE, "communication": style.PURPLE,
}  # fmt: skip
FAMILY_SAID = {
    "compute": "kernel", "memory": "copy or fill inside the GPU", "copy": "copy to or from the host",
    "communication": "collective",
}  # fmt: skip
# No colour stands for two things: a copy that runs and an idle GPU that waits for a copy are not the same news.
CAUSE = {
    "nothing launched": style.VERMILLION, "short kernels": "#C9B800", "sync": "#A50034",
    "waiting for a copy": "#7A4A12", "waiting for communication": "#5E2A84", "no cause seen": "#9aa3ad",
}  # fmt: skip
HOST = {
    "python": "#efe3cf", "annotation": "#c9ced6", "operator": "#a9cfe8", "launch": style.GREEN, "wait": style.INK,
    "other call": style.MUTED,
}  # fmt: skip
HOST_SAID = {
    "python": "Python", "annotation": "named span", "operator": "operator", "launch": "launch or copy call",
    "wait": "call that waits for the GPU", "other call": "other call",
}  # fmt: skip
IDLE = "idle because"

_LEVELS, _THREADS, STREAMS = 3, 3, 5
Ints = NDArray[np.int64]


def key_of(gantt: Gantt, groups: Mapping[str, Sequence[tuple[str, str]]]) -> list[keys.Line]:
    """The key, lane by lane: what it is about → (colour, words)."""
    lines: list[keys.Line] = []
    for about, entries in groups.items():
        lines += gantt.key([((colour,), said) for colour, said in entries], about)
    return lines


def bars(t: Trace, rows: Ints, colours: list[str], start: Ints | None = None, end: Ints | None = None) -> Row:
    """Rows of the trace side by side, each with its name; from `start` to `end`, ns (None: the rows' own)."""

    def name(i: int) -> tuple[str]:
        return (words.short(t.names[t.name[rows[i]]], 60).removeprefix("aten::"),)

    began, ended = t.start_ns[rows] if start is None else start, t.end_ns[rows] if end is None else end
    look: dict[str, Any] = {"dense": True, "bold": False, "pad": 0.06, "cut": 6}
    return Row(began / 1e9, ended / 1e9, colours, texts=name, ids=rows, **look)


def idle_lane(gaps: Idle, named: bool = False) -> Lane:
    """Why nothing computes, piece by piece. named: each cause stands in its piece, where it has room."""
    colours = [CAUSE[CAUSES[cause]] for cause in gaps.cause.tolist()]
    row = Row(gaps.start_ns / 1e9, gaps.end_ns / 1e9, colours, dense=True, bold=False, edge=0.0)
    if named:
        row.texts = lambda i: (CAUSES[gaps.cause[i]],)
    return Lane(IDLE, [row])


def idle_said(gaps: Idle, about: str, shares: bool = False) -> list[tuple[str, str]]:
    """The causes for the key, with their seconds; with their shares of the time, those that round to something."""
    entries = []
    for cause, s in gaps.seconds.items():
        share = s / gaps.span
        if not shares or share >= 0.0005:
            said = f"{cause} {about}{format_seconds(s)}" + (f" ({about}{share:.1%})" if shares else "")
            entries.append((CAUSE[cause], said))
    return entries


def levels(t: Trace, rows: Ints) -> list[Ints]:
    """Events of one thread by how deep they lie in one another; `rows` in order of start, the longer first."""
    found: list[list[int]] = []
    ends: list[int] = []
    for row in rows.tolist():
        start, end = t.start_ns[row], t.end_ns[row]
        while ends and ends[-1] <= start:
            ends.pop()
        if len(ends) == len(found):
            found.append([])
        found[len(ends)].append(row)
        ends.append(end)
    return [np.array(level, np.int64) for level in found]


def _python(t: Trace, thread: int, begin: int, end: int) -> Row | None:
    """What Python a thread was in, as one row: of functions that call each other always the innermost."""
    if not (t.of("python") & (t.thread == thread)).any():
        return None
    pieces = nest(t, np.array([thread]), ("python",))
    here = (pieces.start_ns < end) & (pieces.end_ns > begin)
    rows = pieces.row[here]
    colours = [HOST["python"]] * len(rows)
    return bars(t, rows, colours, pieces.start_ns[here], pieces.end_ns[here]) if len(rows) else None


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
        lane = Lane("host" if len(order) == 1 else f"host {number + 1}", [], ground=None)
        for kind, deep in (("annotation", 2), ("operator", _LEVELS)):
            for level in levels(t, np.flatnonzero(mine & t.of(kind)))[:deep]:
                lane.rows.append(bars(t, level, [HOST[kind]] * len(level)))
            if kind == "annotation" and (python := _python(t, thread, begin, end)):
                lane.rows.append(python)  # who calls stands above whom it calls
        calls = np.flatnonzero(mine & t.of("call"))
        if len(calls):
            kinds = ["wait" if t.waiting[i] else _call_kind(t.names[t.name[i]]) for i in calls.tolist()]
            lane.rows.append(bars(t, calls, [HOST[kind] for kind in kinds]))
        lanes.append(lane)
    return lanes, max(0, len(order) - _THREADS)


def stream_lanes(t: Trace, begin: int, end: int) -> list[Lane]:
    work = t.work
    here = (work.start_ns < end) & (work.end_ns > begin)
    colours = [FAMILY[f] for f in words.FAMILIES]
    counts = {s: int((here & (work.stream == s)).sum()) for s in work.streams}
    lanes = []
    for s in sorted(sorted(counts, key=lambda s: -counts[s])[:STREAMS]):
        if counts[s]:
            mine = here & (work.stream == s)
            row = bars(t, work.row[mine], [colours[f] for f in work.family[mine]])
            lanes.append(Lane(stream_name(t, s), [row], ground=None))
    return lanes


def stream_name(t: Trace, stream: int) -> str:
    """A lane's label: which stream is the default one, and what the others are for, as far as their work tells.

    The profiler numbers streams as CUPTI does, where the default stream of a process's first context is 7
    (HIP's is 0); other streams have no names in a trace.
    """
    if stream in (0, 7):
        return f"stream {stream} (default)"
    families = set(t.work.family[t.work.stream == stream].tolist())
    said = {words.FAMILIES.index("copy"): "copies", words.FAMILIES.index("communication"): "collectives"}
    only = said.get(families.pop(), "") if len(families) == 1 else ""
    return f"stream {stream} ({only or 'side'})"
