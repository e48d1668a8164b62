"""What the device was doing over time: how much work waited for it, and what ran beside what."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.text.seconds import approx, format_seconds

from . import spans
from .columns import Trace, Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Overlap:
    """Seconds. Each family is the time in which at least one piece of it runs, however many do.

    compute: kernels; memory: copies inside the device and fills; copy: between host and device, or devices;
    communication: collectives. exposed_…: while it runs and neither kernels nor memory work do. busy: anything
    runs. span: from the first start to the last end. See :func:`overlap`.
    """

    span: float
    busy: float
    compute: float
    memory: float
    copy: float
    communication: float
    copy_and_compute: float
    communication_and_compute: float
    copy_and_communication: float
    exposed_copy: float
    exposed_communication: float
    evidence: str

    def __repr__(self) -> str:
        about = approx(self.evidence)
        seconds = {key: value for key, value in asdict(self).items() if key != "evidence"}
        rows = [f"  {key:<26} {about}{format_seconds(value)}" for key, value in seconds.items() if value]
        return "\n".join([f"overlap [{self.evidence}]", *rows])


def covered(work: Work, begin: int, end: int, *families: str) -> spans.Spans:
    """When work of these families runs, between two moments."""
    chosen = work.of(*families)
    return spans.clip(spans.union(work.start_ns[chosen], work.end_ns[chosen]), begin, end)


def overlap(t: Trace) -> Overlap:
    """Seconds of computing, copying and communicating, and of what runs at the same time. ValueError without GPU work.

    >>> trace.overlap(t).exposed_copy
    1e-05
    """
    work = t.need_gpu("overlap")
    begin, end = int(work.start_ns[0]), int(work.end_ns.max())
    compute, memory, copy, communication = (
        covered(work, begin, end, family) for family in ("compute", "memory", "copy", "communication")
    )
    away = spans.complement(covered(work, begin, end, "compute", "memory"), begin, end)
    busy = covered(work, begin, end, "compute", "memory", "copy", "communication")

    def seconds(*of: spans.Spans) -> float:
        found = of[0]
        for other in of[1:]:
            found = spans.intersection(found, other)
        return spans.length(found) / 1e9

    return Overlap(
        span=(end - begin) / 1e9, busy=seconds(busy), compute=seconds(compute), memory=seconds(memory),
        copy=seconds(copy), communication=seconds(communication),
        copy_and_compute=seconds(copy, compute),
        communication_and_compute=seconds(communication, compute),
        copy_and_communication=seconds(copy, communication),
        exposed_copy=seconds(copy, away), exposed_communication=seconds(communication, away),
        evidence=t.evidence,
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class QueueDepth:
    """Steps of a staircase: from times_s[i] to times_s[i + 1] the depth is depth[i].

    Depth: pieces of work whose launch call has begun and which have not started on the device. by_stream: the
    same for each stream, at the same times. See :func:`queue_depth`.
    """

    times_s: Floats
    depth: Ints
    by_stream: dict[int, Ints]
    evidence: str

    @property
    def mean(self) -> float:
        """Mean over time, from the first change to the last."""
        length = np.diff(self.times_s)
        return float((self.depth[:-1] * length).sum() / length.sum()) if length.sum() else 0.0

    @property
    def empty_share(self) -> float:
        """Share of that time in which nothing waits: 1.0 is a GPU that always waits for its host."""
        length = np.diff(self.times_s)
        return float(length[self.depth[:-1] == 0].sum() / length.sum()) if length.sum() else 1.0

    @property
    def deepest(self) -> int:
        return int(self.depth.max(initial=0))

    def __repr__(self) -> str:
        return (
            f"queue depth [{self.evidence}]: mean {self.mean:.1f}, deepest {self.deepest}, empty "
            f"{self.empty_share:.0%} of the time"
        )


def queue_depth(t: Trace, start_s: float | None = None, end_s: float | None = None) -> QueueDepth:
    """How many launched kernels, copies and fills wait, in all and by stream, whenever that changes.

    start_s, end_s: a window, whose ends are then the first and last of the times (None: from the first launch to
    the last start).

    One more when a launch call begins, one less when the work starts (as HTA counts, "queue length"). A graph's
    launch adds all its kernels at once. ValueError for a trace without GPU work.

    >>> trace.queue_depth(t)
    queue depth [simulated (H100)]: mean 0.1, deepest 2, empty 95% of the time
    """
    work = t.need_gpu("queue_depth")
    moments = np.concatenate((work.launch_ns, work.start_ns))
    step = np.repeat(np.array([1, -1]), len(work))
    stream = np.tile(work.stream, 2)
    # of equal moments the launch counts first: work that starts at once was never a negative wait
    order = np.lexsort((-step, moments))
    moments, step, stream = moments[order], step[order], stream[order]
    last = np.flatnonzero(np.concatenate((moments[1:] != moments[:-1], [True])))
    by_stream = {s: np.cumsum(np.where(stream == s, step, 0))[last] for s in work.streams}
    found = QueueDepth(moments[last] / 1e9, np.cumsum(step)[last], by_stream, t.evidence)
    return found if start_s is None and end_s is None else _cut(found, start_s, end_s)


def _cut(found: QueueDepth, start_s: float | None, end_s: float | None) -> QueueDepth:
    """The staircase between two moments."""
    times = found.times_s
    begin = times[0] if start_s is None else start_s
    end = times[-1] if end_s is None else end_s
    if not begin < end:
        raise ValueError(f"queue_depth: the window from {begin} s to {end} s is empty")
    inner = times[(times > begin) & (times < end)]
    at = np.concatenate(([begin], inner, [end]))
    place = np.searchsorted(times, at, side="right") - 1

    def cut(depth: Ints) -> Ints:
        return np.where(place >= 0, depth[place.clip(0)], 0)

    by_stream = {stream: cut(depth) for stream, depth in found.by_stream.items()}
    return QueueDepth(at, cut(found.depth), by_stream, found.evidence)
