"""The most expensive names in a trace, and each step of a training loop in one line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from helpers.pytorch.waiting import call_waits
from helpers.text.seconds import approx, format_seconds
from helpers.text.tables import Table, table

from . import names as words
from . import spans
from .activity import covered
from .columns import Trace, nest
from .steady import marks

R = TypeVar("R")


class Listing(list[R]):
    """A list of rows that shows itself as a table with its evidence."""

    def __init__(self, rows: list[R], evidence: str, caption: str = "") -> None:
        super().__init__(rows)
        self.evidence, self.caption = evidence, caption

    @property
    def table(self) -> Table:
        about = approx(self.evidence)
        kind: Any = type(self[0]) if self else Top
        columns = [field.name for field in fields(kind)]

        def cell(key: str, value: object) -> object:
            if key.endswith("_s") and isinstance(value, float):
                return f"{about}{format_seconds(value)}"
            return f"{about}{value:.1%}" if key == "share" else value

        rows = [[cell(key, getattr(row, key)) for key in columns] for row in self]
        heads = [key.removesuffix("_s").replace("_", " ") for key in columns]
        return table(rows, heads, evidence=self.evidence, caption=self.caption)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


@dataclass(frozen=True)
class Top:
    """One name: how often, its seconds in all, its share of all seconds in the list it comes from. See :func:`top`."""

    name: str
    calls: int
    seconds_s: float
    share: float


@dataclass(frozen=True)
class Step:
    """One step. launches: calls that launch a kernel or a graph; syncs: synchronising calls.

    seconds: from its start to the next one's (the last: to its own end, or its work's). wait: the host's time
    in syncs, in copies from or to pageable memory, and in launches into a full queue. compute, idle: the GPU's time with and without a kernel, fill or copy inside it running.
    See :func:`steps`.
    """

    name: str
    start_s: float
    seconds_s: float
    launches: int
    copies: int
    syncs: int
    wait_s: float
    kernels: int
    compute_s: float
    idle_s: float


_BY = ("device", "host", "call")


def top(t: Trace, n: int = 10, by: str = "device") -> Listing[Top]:
    """The n names with the most time.

    by="device": what ran on the GPU, by short name; "host": operators by their own time on the CPU, without the
    operators they call; "call": runtime calls, such as cudaStreamSynchronize, by their time. ValueError for another
    `by`, or without GPU work for the first.

    >>> [(row.name, row.calls) for row in trace.top(t, 2)]
    [('aten::mm', 5), ('aten::sum', 5)]
    """
    if by not in _BY:
        raise ValueError(f"by={by!r}: one of {', '.join(_BY)}")
    keys, seconds = {"device": _device, "host": _host, "call": _call}[by](t)
    total = float(seconds.sum()) or 1.0
    order: dict[str, int] = {}
    place = np.array([order.setdefault(key, len(order)) for key in keys], np.int64)
    sums = np.bincount(place, weights=seconds, minlength=len(order))
    counts = np.bincount(place, minlength=len(order))
    label = list(order)
    best = np.argsort(-sums, kind="stable")[: max(n, 0)]
    rows = [Top(label[i], int(counts[i]), float(sums[i]), float(sums[i] / total)) for i in best]
    caption = {
        "device": "time on the GPU", "host": "own time on the CPU", "call": "time in the call",
    }[by]  # fmt: skip
    return Listing(rows, t.evidence, caption)


Found = tuple[list[str], NDArray[Any]]


def _device(t: Trace) -> Found:
    work = t.need_gpu("top(by='device')")
    used, place = np.unique(t.name[work.row], return_inverse=True)
    shorts = words.distinct([t.names[i] for i in used])
    return [shorts[i] for i in place.tolist()], (work.end_ns - work.start_ns) / 1e9


def _host(t: Trace) -> Found:
    pieces = nest(t)
    own = np.bincount(pieces.row, weights=(pieces.end_ns - pieces.start_ns) / 1e9, minlength=len(t))
    rows = np.flatnonzero(t.of("operator"))
    return [t.names[i] for i in t.name[rows].tolist()], own[rows]


def _call(t: Trace) -> Found:
    rows = np.flatnonzero(t.of("call"))
    return [t.names[i] for i in t.name[rows].tolist()], (t.end_ns - t.start_ns)[rows] / 1e9


def steps(t: Trace) -> Listing[Step]:
    """Each ProfilerStep#n: launches, copies, syncs, the host's waiting, the GPU's computing and idling.

    Host calls belong to the step in which they begin, GPU time to the step in whose time it falls. A trace
    without steps is one row, "whole trace". Works for CPU-only traces too: what the GPU did is then 0.

    >>> [(step.name, step.launches, step.syncs) for step in trace.steps(t)][:2]
    [('ProfilerStep#0', 3, 1), ('ProfilerStep#1', 2, 1)]
    """
    rows = marks(t)
    begins = t.start_ns[rows].tolist()
    labels = [t.names[t.name[i]] for i in rows]
    work = t.work
    if begins:
        last = int(t.end_ns[rows].max())
        mine = work.end_ns[work.launch_ns < last]
        ends = [*begins[1:], max(last, int(mine.max(initial=0)))]
    else:
        begins, ends, labels = [0], [int(t.end_ns.max(initial=1))], ["whole trace"]
    calls = t.of("call")
    kinds = {
        "launches": calls & t.named(words.launches), "copies": calls & t.named(words.copies),
        "syncs": calls & t.named(call_waits),
    }  # fmt: skip
    starts = {key: t.start_ns[mask] for key, mask in kinds.items()}
    waits = spans.union(t.start_ns[t.waiting], t.end_ns[t.waiting])
    kernels = work.start_ns[work.of("compute", "communication")]
    listed = []
    for label, a, b in zip(labels, begins, ends, strict=True):
        count = {key: int(((at >= a) & (at < b)).sum()) for key, at in starts.items()}
        compute = spans.length(covered(work, a, b, "compute", "memory")) / 1e9
        listed.append(
            Step(
                label, a / 1e9, (b - a) / 1e9, count["launches"], count["copies"], count["syncs"],
                spans.length(spans.clip(waits, a, b)) / 1e9, int(((kernels >= a) & (kernels < b)).sum()),
                compute, (b - a) / 1e9 - compute if len(work) else 0.0,
            )
        )  # fmt: skip
    return Listing(listed, t.evidence)
