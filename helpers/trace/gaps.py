"""Why the GPU does not compute: its idle time, cut where the reason changes, and named.

The rules, in order, for every moment in which the device computes nothing. Let "next" be the work that ends the
gap, and "launched" mean that the call that launches it has returned (the first launch of a kernel can take long
itself: the driver loads it).

launched already:
  a copy runs                      → waiting for a copy
  a collective runs                → waiting for communication
  otherwise                        → what kept it back so far, up to TURNAROUND_NS; longer: no cause seen, but
                                     sync where the host waits in a call, having put little into the queue before
not launched yet:
  nothing comes any more, and a copy runs (or a collective)      → waiting for a copy (communication)
  the host waits in a call, and a copy runs (or a collective)    → waiting for a copy (communication)
  the host waits in a call, or left one in this gap less than REFILL_NS ago → sync
  the host's launches follow each other within LAUNCH_NS         → short kernels: over before the next launch
  otherwise                        → nothing launched: the host was busy with something else
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.text.seconds import approx, format_seconds

from . import spans
from .activity import covered
from .columns import Trace, Work

# After a sync the host has to fill the queue again, and it is at most this much of the emptiness that is the
# sync's doing; what is longer is other work of the host (data, Python), which would show without it too.
REFILL_NS = 100_000
# Two launches closer than this are one operator after the other: eager PyTorch takes some 5 to 30 µs for each,
# and as much again under the profiler.
LAUNCH_NS = 50_000
# From a launch to the start on an idle device, or from one queued kernel to the next: a few µs on NVIDIA cards.
# HTA draws its line between "kernel wait" and "other" at 30 µs too (consecutive_kernel_delay).
TURNAROUND_NS = 30_000

# So few launches in the queue are what the host put there before it began to wait.
FEW = 64

CAUSES = (
    "nothing launched", "short kernels", "sync", "waiting for a copy", "waiting for communication", "no cause seen",
)  # fmt: skip
_NOTHING, _SHORT, _SYNC, _COPY, _COMMUNICATION, _UNKNOWN = range(len(CAUSES))

_NEVER = np.iinfo(np.int64).max // 4
Ints = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Idle:
    """Idle time by cause. seconds: cause → seconds, largest first, nothing that is 0.

    start_ns, end_ns, cause: the pieces, in order, `cause` an index into `CAUSES`. gap: for each piece, the
    number of its gap. window_s: start and end of what was looked at. total, span: seconds. busy: a share. See :func:`idle`.
    """

    seconds: dict[str, float]
    start_ns: Ints
    end_ns: Ints
    cause: Ints
    gap: Ints
    window_s: tuple[float, float]
    evidence: str

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def span(self) -> float:
        return self.window_s[1] - self.window_s[0]

    @property
    def busy(self) -> float:
        """The share of the span that is no gap; 0 of no time."""
        # sums of floats may come out a hair above the span
        return max(0.0, 1 - self.total / self.span) if self.span else 0.0

    @property
    def share(self) -> dict[str, float]:
        """Cause → share of the span."""
        return {cause: seconds / self.span for cause, seconds in self.seconds.items()}

    def __repr__(self) -> str:
        about = approx(self.evidence)
        head = f"the GPU computes nothing for {about}{format_seconds(self.total)} of {about}{format_seconds(self.span)} [{self.evidence}]"
        rows = [
            f"  {cause:<26} {about}{format_seconds(s):<12} {about}{s / self.span:.1%}"
            for cause, s in self.seconds.items()
        ]
        return "\n".join([head, *rows])


def idle(t: Trace, start_s: float | None = None, end_s: float | None = None) -> Idle:
    """When no kernel, fill or copy inside the device runs, and why: see the rules at the top of this module.

    start_s, end_s: a window (None: from the first device work to the last). Copies between host and device and
    collectives are not computing. ValueError without GPU work or for a window that ends before it begins.

    >>> list(trace.idle(t).seconds)
    ['nothing launched', 'sync', 'waiting for a copy']
    >>> set(trace.idle(t).seconds) <= set(trace.CAUSES)
    True
    """
    work = t.need_gpu("idle")
    begin = round(start_s * 1e9) if start_s is not None else int(work.start_ns[0])
    end = round(end_s * 1e9) if end_s is not None else int(work.end_ns.max())
    if begin > end or begin == end and not start_s == end_s is None:
        raise ValueError(
            f"idle: the window from {begin / 1e9} s to {end / 1e9} s is empty; the GPU works from "
            f"{work.start_ns[0] / 1e9} s to {work.end_ns.max() / 1e9} s"
        )
    gap_a, gap_b = spans.complement(covered(work, begin, end, "compute", "memory"), begin, end)
    launched = _next_launch(work, gap_b)
    copying = covered(work, begin, end, "copy")
    communicating = covered(work, begin, end, "communication")
    waiting, wait_ends = _waits(t, work)

    cuts = [gap_a, gap_b, launched, *copying, *communicating, *waiting, wait_ends + REFILL_NS]
    edges = np.concatenate(cuts)
    edges = np.unique(edges[(edges >= begin) & (edges <= end)])
    a, b = edges[:-1], edges[1:]
    free = spans.inside((gap_a, gap_b), a)
    a, b = a[free], b[free]
    gap = np.searchsorted(gap_a, a, side="right") - 1
    middle = a + (b - a) // 2

    is_launched = middle >= launched[gap]
    depth = np.searchsorted(np.sort(work.launch_ns), middle) - np.searchsorted(work.start_ns, middle)
    last = np.searchsorted(wait_ends, middle, side="right") - 1
    ended = wait_ends[np.maximum(last, 0)] if len(wait_ends) else np.full(len(a), -(10**18))
    blocked = spans.inside(waiting, middle)
    refill = (last >= 0) & (ended >= gap_a[gap]) & (middle - ended <= REFILL_NS)
    host = np.select([blocked | refill, _between(work, middle) <= LAUNCH_NS], [_SYNC, _SHORT], _NOTHING)
    is_copy, is_comm = spans.inside(copying, middle), spans.inside(communicating, middle)
    ready = is_launched | blocked | (launched[gap] == _NEVER)
    cause = np.select(
        [is_copy & ready, is_comm & ready, is_launched], [_COPY, _COMMUNICATION, _UNKNOWN], host
    )
    cause = _turnaround(cause, gap, b - a, len(gap_a))
    cause = np.where((cause == _UNKNOWN) & blocked & (depth <= FEW), _SYNC, cause)
    a, b, cause, gap = _joined(a, b, cause, gap)
    total = np.bincount(cause, weights=(b - a) / 1e9, minlength=len(CAUSES))
    order = np.argsort(-total, kind="stable")
    seconds = {CAUSES[i]: float(total[i]) for i in order if total[i] > 0}
    return Idle(seconds, a, b, cause, gap, (begin / 1e9, end / 1e9), t.evidence)


def _next_launch(work: Work, gap_b: Ints) -> Ints:
    """For each gap: when the work that ends it was launched. A gap that no work ends (the trace's end) counts as never."""
    own = work.of("compute", "memory")
    start, done = (np.append(times[own], _NEVER) for times in (work.start_ns, work.launched_ns))
    found: Ints = done[np.searchsorted(start[:-1], gap_b, side="left")]
    return found


def _between(work: Work, moments: Ints) -> Ints:
    """For each moment: from the beginning of the launch before it to the end of the next one. Any launch shows that the
    host is launching, whatever it launches; before the first and after the last one it counts as a long time."""
    order = np.argsort(work.launch_ns, kind="stable")
    begins, ends = work.launch_ns[order], np.append(work.launched_ns[order], _NEVER)
    place = np.searchsorted(begins, moments, side="right")
    found: Ints = np.where(place > 0, ends[place] - begins[np.maximum(place - 1, 0)], _NEVER)
    return found


def _waits(t: Trace, work: Work) -> tuple[spans.Spans, Ints]:
    """When a thread that launches kernels waits for the device in a call; and the sorted ends of those calls."""
    chosen = work.of("compute", "memory") & (work.launch_row >= 0)
    chosen = chosen if chosen.any() else work.launch_row >= 0
    chosen = t.waiting & np.isin(t.thread, np.unique(t.thread[work.launch_row[chosen]]))
    return spans.union(t.start_ns[chosen], t.end_ns[chosen]), np.sort(t.end_ns[chosen])


def _turnaround(cause: Ints, gap: Ints, length: Ints, gaps: int) -> Ints:
    """Names the little that lies between a launch and its start: it belongs to what kept the work back.

    That is the last cause before it in its gap; in a gap that has no other, it is the time from one queued kernel
    to the next. More than `TURNAROUND_NS` of it in a gap stays without a cause.
    """
    unknown = cause == _UNKNOWN
    reason = np.full(gaps, _SHORT)
    reason[gap[~unknown]] = cause[~unknown]  # pieces are in order: of several the last one stays
    brief = np.bincount(gap[unknown], weights=length[unknown], minlength=gaps) <= TURNAROUND_NS
    return np.where(unknown & brief[gap], reason[gap], cause)


def _joined(a: Ints, b: Ints, cause: Ints, gap: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Neighbouring pieces of one gap and one cause as one piece."""
    if not len(a):
        return a, b, cause.astype(np.int64), gap
    new = np.concatenate(([True], (cause[1:] != cause[:-1]) | (gap[1:] != gap[:-1]) | (a[1:] != b[:-1])))
    first = np.flatnonzero(new)
    last = np.concatenate((first[1:], [len(a)])) - 1
    return a[first], b[last], cause[first].astype(np.int64), gap[first]
