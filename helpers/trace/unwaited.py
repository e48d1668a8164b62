"""What a trace would take if the host never waited for the GPU: the trace replayed with those waits cut out.

A sync that empties the queue costs what the host does after it, which is why its own time says little: with
1.5 ms of Python behind an .item() the gap lies in the Python. So every wait is cut out of the host's time, all that
the host did after it comes as much earlier, and the device's work, as long as it was, starts when it is launched and
its stream is free. What cannot be cut (a size that the host needs) is cut too: the result is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.waiting import call_waits

from . import spans
from .columns import Trace

Ints = NDArray[np.int64]

_READY_NS = 30_000  # from a launch to the start on an idle device, at most: gaps.TURNAROUND_NS


@dataclass(frozen=True)
class Unwaited:
    """Seconds. waited: in calls that wait for the GPU. before: from the first launch to the end of all work, the launching
    threads' own included; after: the same without the waits."""

    waited: float
    before: float
    after: float

    @property
    def gain(self) -> float:
        """At most so many times as fast."""
        return self.before / self.after if self.after else 1.0


def unwaited(t: Trace) -> Unwaited:
    """What the waits of the launching threads cost. ValueError without GPU work."""
    work = t.need_gpu("unwaited")
    threads = np.unique(t.thread[work.launch_row[work.launch_row >= 0]])
    mine = np.isin(t.thread, threads) & t.of("annotation", "operator", "call", "python")
    begin = int(work.launch_ns.min())
    host = int(t.end_ns[mine].max(initial=begin))
    end = max(int(work.end_ns.max()), host)
    calls = mine & t.of("call") & t.named(call_waits)
    cut = spans.clip(spans.union(t.start_ns[calls], t.end_ns[calls]), begin, end)
    total = spans.length(cut)
    ended, pushed = _replayed(t, cut, begin)
    after = max(host - total + pushed, ended) - begin
    return Unwaited(total / 1e9, (end - begin) / 1e9, min(after, end - begin) / 1e9)


def _replayed(t: Trace, cut: spans.Spans, begin: int) -> tuple[int, int]:
    """When the device's work ends, and by how much copies that the host waits for push it back."""
    work = t.work
    order = np.lexsort((work.start_ns, work.launch_ns))
    launch, start, stop = work.launch_ns[order], work.start_ns[order], work.end_ns[order]
    early = _before(cut, launch)
    pageable = np.array(["Pageable" in name for name in t.names], bool)[t.name[work.row[order]]]
    row = work.launch_row[order]
    back = np.where(row >= 0, t.end_ns[row], launch)  # when the launching call returned
    back_early = _before(cut, back)
    feeds = _feeding(work.stream[order], launch, start, stop)
    free: dict[int, int] = {}
    moved: list[int] = []  # new ends
    pushed = 0
    for i, (stream, at, a, b) in enumerate(
        zip(work.stream[order].tolist(), launch.tolist(), start.tolist(), stop.tolist(), strict=True)
    ):
        now = at - int(early[i]) + pushed
        new = max(now + min(a - at, _READY_NS), free.get(stream, begin))
        if 0 <= feeds[i] < i:
            new = max(new, moved[feeds[i]] + a - int(stop[feeds[i]]))
        free[stream] = new + b - a
        moved.append(free[stream])
        if pageable[i]:  # the host comes back when the copy has its bytes, however late that begins
            pushed += max(0, free[stream] - (int(back[i]) - int(back_early[i]) + pushed))
    return max(moved, default=begin), pushed


def _before(cut: spans.Spans, times: Ints) -> Ints:
    """How much of the cut lies before each moment."""
    return np.rint(spans.before(cut, times)).astype(np.int64)


def _feeding(stream: Ints, launch: Ints, start: Ints, stop: Ints) -> list[int]:
    """For work that was launched, in a free stream, and still waited: what ended just before it began; else -1."""
    by_end = np.argsort(stop, kind="stable")
    ends = stop[by_end]
    found: list[int] = []
    free: dict[int, int] = {}
    for s, at, a, b in zip(stream.tolist(), launch.tolist(), start.tolist(), stop.tolist(), strict=True):
        place = int(np.searchsorted(ends, a, side="right")) - 1
        held = a > max(at, free.get(s, 0)) + _READY_NS
        found.append(int(by_end[place]) if held and place >= 0 and a - ends[place] <= _READY_NS else -1)
        free[s] = b
    return found
