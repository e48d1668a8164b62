"""A trace without its ends: from its second step to its last one, and who waits for whom in between.

The first recorded step meets an empty queue, and in the last one the host waits until all work is done, which a loop that
goes on would not. The host may be far ahead of the GPU, so the same steps are two windows: on the host from step to
step, on the GPU from the first work that one launched to the first that another did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import spans
from .activity import covered
from .columns import Trace

Ints = NDArray[np.int64]


class Shares(NamedTuple):
    """computes: the share of the time in which the GPU computes; waits: in which the host waits for it, or is ahead.
    See :func:`shares`.
    """

    computes: float
    waits: float


@dataclass(frozen=True)
class Steady:
    """host, device: begin and end, ns. steps: how many whole steps lie between; 0: the trace has too few, and this is all of it."""

    host: tuple[int, int]
    device: tuple[int, int]
    steps: int


def marks(t: Trace) -> Ints:
    """The rows of the ProfilerSteps, in order. (PyTorch 1.8 wrote them as operators.)"""
    return np.flatnonzero(t.of("annotation", "operator") & t.named(lambda n: n.startswith("ProfilerStep")))


def steady(t: Trace) -> Steady:
    """The steps between the first and the last that launch anything; all of the trace where those are fewer than three.

    All of it: from the first launch to the last, on the GPU from the first start to the last end. ValueError without
    GPU work.
    """
    work = t.need_gpu("steady")
    begins = t.start_ns[marks(t)]
    place = np.searchsorted(begins, work.launch_ns, side="right") - 1
    used = np.unique(place[place >= 0])
    if len(used) >= 3:
        first, last = used[1], used[-1]
        device = tuple(int(work.start_ns[place == step].min()) for step in (first, last))
        if device[0] < device[1]:
            return Steady((int(begins[first]), int(begins[last])), (device[0], device[1]), int(last - first))
    host = (int(work.launch_ns.min()), int(work.launch_ns.max()))
    return Steady(host, (int(work.start_ns[0]), int(work.end_ns.max())), 0)


def shares(t: Trace) -> Shares:
    """How much the GPU computes, and how much the host waits for it, in the steady part of a trace; 0 and 0 without a GPU.

    The host waits in synchronising calls, in copies from or to pageable memory, and in launches into a full queue. Where
    it needs less time for the same steps than the GPU does, the queue is filling: what it is ahead, it has to wait as
    soon as the queue is full, and that counts too.

    >>> f"{trace.shares(t).computes:.0%}"
    '97%'
    """
    if not t.has_gpu:
        return Shares(0.0, 0.0)
    part, mine = steady(t), t.waiting & t.launching
    waits = spans.clip(spans.union(t.start_ns[mine], t.end_ns[mine]), *part.host)
    takes = [end - begin for begin, end in (part.host, part.device)]
    busy = takes[0] - spans.length(waits)
    computing = spans.length(covered(t.work, *part.device, "compute", "memory"))
    return Shares(computing / (takes[1] or 1), 1 - busy / max(takes) if any(takes) else 0.0)
