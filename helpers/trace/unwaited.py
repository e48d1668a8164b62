"""What a trace would take if the host never waited for the GPU: the trace replayed with those waits cut out.

A sync that empties the queue costs what the host does after it, which is why its own time says little: with
1.5 ms of Python behind an .item() the gap lies in the Python. So every wait is cut out of the host's time, and all that
the host did after it comes as much earlier. The device's work then starts when it is launched and its stream is free,
and what was seen to follow other work still does. What ran at the same time shares the GPU, as it did: each moment in
which n kernels ran counts as an n-th of it for each, and the same again whatever runs beside them in the replay. With
no wait cut, a trace so replays to its own time. What cannot be cut (a size that the host needs) is cut too: the result
is a lower bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from . import spans
from .columns import Trace
from .gaps import TURNAROUND_NS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ALONE = -1  # the number of what shares with nothing


@dataclass(frozen=True)
class Unwaited:
    """Seconds. waited: in calls that wait for the GPU. before: from the first launch to the end of all work, the launching
    threads' own included; after: the same without the waits. See :func:`unwaited`."""

    waited: float
    before: float
    after: float

    @property
    def gain(self) -> float:
        """At most so many times as fast."""
        return self.before / self.after if self.after else 1.0


def answers(t: Trace) -> NDArray[np.bool_]:
    """Which calls of the launching threads wait for the GPU's answer, and are followed by another launch.

    The last wait of a profile is not among them: it is the profiler's, or a program's end, and keeps nothing back.
    """
    launches = t.work.launch_row[t.work.launch_row >= 0]
    last = int(t.start_ns[launches].max(initial=-1))
    return t.asking & t.launching & (t.end_ns <= last)


def unwaited(t: Trace) -> Unwaited:
    """What the waits of the launching threads cost. ValueError without GPU work.

    >>> f"{trace.unwaited(t).waited:.2e}"
    '1.21e-03'
    """
    work = t.need_gpu("unwaited")
    calls = answers(t)
    begin = int(work.launch_ns.min())
    host = int(t.end_ns[t.launching].max(initial=begin))
    end = max(int(work.end_ns.max()), host)
    cut = spans.clip(spans.union(t.start_ns[calls], t.end_ns[calls]), begin, end)
    total = spans.length(cut)
    if not total:
        return Unwaited(0.0, (end - begin) / 1e9, (end - begin) / 1e9)
    ended, pushed = _Replay(t, cut).run()
    last = spans.clip(spans.union(*_closing(t, calls)), begin, end)
    after = max(host - total - spans.length(last) + pushed, ended) - begin
    return Unwaited(total / 1e9, (end - begin) / 1e9, min(after, end - begin) / 1e9)


def _closing(t: Trace, calls: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Starts and ends of the waits at the end: the host comes back from them when the work is done, whenever that is."""
    chosen = t.asking & t.launching & ~calls
    return t.start_ns[chosen], t.end_ns[chosen]


class _Replay:
    """Work in the order of its launches; times in ns. For each piece: what has to happen before it starts."""

    def __init__(self, t: Trace, cut: spans.Spans) -> None:
        work = t.work
        order = np.lexsort((work.start_ns, work.launch_ns))
        self.launch, self.start, self.stop = (
            times[order].tolist() for times in (work.launch_ns, work.start_ns, work.end_ns)
        )
        row = work.launch_row[order]
        back = np.where(row >= 0, t.end_ns[row], work.launch_ns[order])  # when the launching call returned
        self.early = np.rint(spans.before(cut, work.launch_ns[order])).tolist()
        self.back = (back - np.rint(spans.before(cut, back))).tolist()
        # the host comes back from such a copy when it has its bytes, however late that begins
        pageable = np.array(["Pageable ->" in name for name in t.names], bool)[t.name[work.row[order]]]
        self.holds = (pageable & (back >= work.end_ns[order])).tolist()
        self.lane, self.demand = _demand(t, order)
        self.need: list[int] = [1] * len(order)  # how many things it still waits for; one is its launch
        # work → (work, ns behind its end)
        self.after_end: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.after_start: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.latency = [min(a - at, TURNAROUND_NS) for at, a in zip(self.launch, self.start, strict=True)]
        self._follow(work.stream[order].tolist())

    def _follow(self, streams: list[int]) -> None:
        """What each piece of work was seen to follow: its stream's last, or what ended just before it began."""
        ends_of = np.array(self.stop)
        by_end = np.argsort(ends_of, kind="stable")
        ends = ends_of[by_end]
        places = (np.searchsorted(ends, self.start, side="right") - 1).tolist()
        last: dict[int, int] = {}
        for i in np.lexsort((ends_of, self.start)).tolist():
            stream, at, start = streams[i], self.launch[i], self.start[i]
            before = last.get(stream)
            free = self.stop[before] if before is not None else at
            fed = int(by_end[places[i]]) if places[i] >= 0 else i
            held = start > max(at, free) + TURNAROUND_NS
            if held and fed != i and start - self.stop[fed] <= TURNAROUND_NS:
                self._add(self.after_end, fed, i, start - self.stop[fed])
                held = False
            elif at >= free:
                self.latency[i] = start - at
            if before is not None and start < free:
                self._add(self.after_start, before, i, start - self.start[before])
            elif before is not None:  # held, and nobody knows by what: it stays as late
                behind = start - free if held else min(start - free, TURNAROUND_NS)
                self._add(self.after_end, before, i, behind if free > at else 0)
            if before is None or self.stop[i] >= free:
                last[stream] = i

    def _add(self, after: dict[int, list[tuple[int, int]]], first: int, i: int, behind: int) -> None:
        after[first].append((i, behind))
        self.need[i] += 1

    def run(self) -> tuple[int, int]:
        """When the device's work ends, and by how much copies that the host waits for push it back."""
        pushed, launched, n = 0.0, 0, len(self.launch)
        ready = [0.0] * n
        moments: list[tuple[float, int]] = []  # work whose start is known
        lanes: dict[int, _Lane] = defaultdict(_Lane)
        ended = 0.0

        def met(i: int, when: float) -> None:
            ready[i] = max(ready[i], when)
            self.need[i] -= 1
            if not self.need[i]:
                heappush(moments, (ready[i], i))

        while True:
            while launched < n:  # up to the next copy that the host waits for
                met(launched, self.launch[launched] - self.early[launched] + pushed + self.latency[launched])
                launched += 1
                if self.holds[launched - 1]:
                    break
            holding = launched - 1
            while moments or any(lane.jobs for lane in lanes.values()):
                lane = min(lanes.values(), key=_Lane.ends, default=None)
                if moments and (lane is None or moments[0][0] <= lane.ends()):
                    now, i = heappop(moments)
                    where = self.lane[i] if self.lane[i] != _ALONE else -2 - i
                    lanes[where].add(now, i, self.demand[i])
                    for j, behind in self.after_start.get(i, ()):
                        met(j, now + behind)
                    continue
                assert lane is not None
                now, i = lane.pop()
                if not lane.jobs and self.lane[i] == _ALONE:
                    del lanes[-2 - i]
                ended = max(ended, now)
                for j, behind in self.after_end.get(i, ()):
                    met(j, now + behind)
                if i == holding and self.holds[i]:
                    pushed += max(0.0, now - (self.back[i] + pushed))
                    break
            else:
                if launched == n:
                    return round(ended), round(pushed)


class _Lane:
    """Jobs that share one engine evenly: of n at a time each gets an n-th."""

    def __init__(self) -> None:
        self.jobs: list[tuple[float, int]] = []  # (what each must have got when it ends, job)
        self.each, self.now = 0.0, 0.0  # what each has got since the beginning, and until when

    def _until(self, now: float) -> None:
        if self.jobs:
            self.each += (now - self.now) / len(self.jobs)
        self.now = now

    def add(self, now: float, job: int, demand: float) -> None:
        self._until(now)
        heappush(self.jobs, (self.each + demand, job))

    def ends(self) -> float:
        """When the next job ends."""
        return self.now + (self.jobs[0][0] - self.each) * len(self.jobs) if self.jobs else float("inf")

    def pop(self) -> tuple[float, int]:
        now = self.ends()
        self._until(now)
        return now, heappop(self.jobs)[1]


def _demand(t: Trace, order: Ints) -> tuple[list[int], list[float]]:
    """For each piece of work, by the order of launches: which engine it shares, and how many ns of it it takes alone.

    Kernels, fills and copies inside the device share one, the copies of each direction another. A collective waits for
    other ranks most of its time, and shares with nothing.
    """
    work = t.work
    start, stop = work.start_ns[order], work.end_ns[order]
    lane = np.zeros(len(order), np.int64)
    copies = work.of("copy")[order]
    lane[copies] = 1 + t.name[work.row[order]][copies]
    lane[work.of("communication")[order]] = _ALONE
    demand = (stop - start).astype(np.float64)
    for one in np.unique(lane[lane != _ALONE]):
        mine = lane == one
        edges, steps = np.unique(np.concatenate((start[mine], stop[mine])), return_inverse=True)
        change = np.bincount(steps[: mine.sum()], minlength=len(edges)) - np.bincount(
            steps[mine.sum() :], minlength=len(edges)
        )
        running = np.maximum(np.cumsum(change)[:-1], 1)
        got = np.concatenate(([0.0], np.cumsum(np.diff(edges) / running)))
        demand[mine] = got[steps[mine.sum() :]] - got[steps[: mine.sum()]]
    return lane.tolist(), demand.tolist()
