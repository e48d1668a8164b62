"""Is the CPU, the GPU or something between them the bottleneck? One word, and what speaks for it.

The flow: sparse → the host cannot keep up; dense → the GPU is the limit; dense with gaps → look before and
after the gaps. Here every gap is looked at, by the rules of `gaps`, and the largest reason names the verdict. With one
exception: where the host is late only because it waited for the GPU before, the wait is the reason (`unwaited`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from helpers.seconds import approx, format_seconds
from helpers.waiting import call_waits

from . import names as words
from . import spans
from .activity import queue_depth
from .columns import Trace, nest
from .gaps import CAUSES, Idle, idle
from .ranking import top
from .unwaited import Unwaited, unwaited

# Shares of the time in which the GPU computes. Above DENSE there is at most a ninth to win by closing gaps, and
# kernels are where to look; below SPARSE it waits longer than it works.
DENSE, SPARSE = 0.9, 0.5
# So many times as fast without the host's waits is worth a line; see `unwaited`.
TELLING = 1.1

BOTTLENECK = {
    "nothing launched": "CPU-bound", "short kernels": "short kernels", "sync": "sync-bound",
    "waiting for a copy": "copy-bound", "waiting for communication": "communication-bound", "no cause seen": "unknown",
}  # fmt: skip
"""Cause of most of the idle time → the verdict's word."""
_HOST = ("nothing launched", "short kernels", "sync")

_ADVICE = {
    "CPU-bound": "look at what the host does between launches: data loading, Python, logging, large gaps first",
    "short kernels": "launch less: fuse (torch.compile), batch more, foreach or fused optimizers, a CUDA graph",
    "sync-bound": "find what asks the GPU for a value (.item(), nonzero, masks, print, .cpu()) and ask less often",
    "copy-bound": "pin the memory, copy with non_blocking=True on a stream of its own, one batch ahead; or copy less",
    "communication-bound": "overlap it with backward, send fewer or larger messages, or fewer bytes",
    "GPU-bound": "make the kernels themselves cheaper: precision, layout, fusion, a better algorithm",
    "unknown": "the trace does not show what the GPU waited for: record more (other processes, all CUDA activities)",
    "CPU only": "nothing ran on a GPU: look at trace.top(t, by='host')",
}


@dataclass(frozen=True, repr=False)
class Verdict:
    """bottleneck: one word of `BOTTLENECK`, or "GPU-bound", or "CPU only". evidence: what was seen, in words.

    density: "dense", "dense with gaps", "sparse" ("": no GPU work). figures: the numbers behind the words:
    shares of the time by cause, "compute" among them, mean queue depth, share of time with an empty queue; "without
    waits": at most so many times as fast if the host never waited for the GPU.
    """

    bottleneck: str
    density: str
    evidence: list[str]
    advice: str
    source: str
    figures: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [f"{self.bottleneck} [{self.source}]", *(f"  · {line}" for line in self.evidence)]
        return "\n".join([*lines, f"  → {self.advice}"])


def classify(t: Trace) -> Verdict:
    """What limits this trace, with its reasons in words.

    From the first device work to the last: warm-up counts, unless a profiler schedule leaves it out. Thresholds:
    `DENSE`, `SPARSE` here, and those of `gaps`.
    """
    if not t.has_gpu:
        first = top(t, 1, by="host")
        said = f"no GPU work among {len(t):,} events"
        if first:
            said += (
                f"; on the CPU {first[0].name} takes most of its operators' own time, {first[0].share:.0%}"
            )
        return Verdict("CPU only", "", [said], _ADVICE["CPU only"], t.evidence)
    gaps = idle(t)
    about = approx(t.evidence)
    computing = gaps.busy
    density = "dense" if computing >= DENSE else "dense with gaps" if computing >= SPARSE else "sparse"
    depth = queue_depth(t, *gaps.window_s)
    figures = {"compute": computing, **gaps.share, "queue": depth.mean, "queue empty": depth.empty_share}
    evidence = [f"the GPU computes {about}{computing:.0%} of {about}{format_seconds(gaps.span)}: {density}"]
    cause = ""
    if density == "dense":
        bottleneck = "GPU-bound"
        evidence += [
            f"{row.name} takes {about}{row.share:.0%} of the GPU's working time" for row in top(t, 1)
        ]
    else:
        cause = _main_cause(gaps)
        bottleneck = BOTTLENECK[cause]
        evidence += [_of_cause(t, gaps, cause, about), *_others(gaps, cause, about)]
        found = unwaited(t)
        figures["without waits"] = found.gain
        if found.gain >= TELLING:
            evidence.append(_of_waits(t, gaps, found, about))
            # Most of the idle time is gone without the waits: the host was late because it had waited.
            if cause in _HOST and found.before - found.after > gaps.total / 2:
                bottleneck = BOTTLENECK["sync"]
    evidence.append(
        f"work waits in the queue: {about}{depth.mean:.1f} launches on average, none for {about}{depth.empty_share:.0%} "
        "of the time"
    )
    if density != "dense":
        if cause in (*_HOST, "no cause seen"):
            evidence += _during(t, gaps, cause, about)
        evidence.append(_largest(t, gaps, about))
    return Verdict(bottleneck, density, evidence, _ADVICE[bottleneck], t.evidence, figures)


def _main_cause(gaps: Idle) -> str:
    """The largest cause; the host's three count together against the others, then the largest of them is named."""
    host = sum(gaps.seconds.get(cause, 0.0) for cause in _HOST)
    rest = {cause: s for cause, s in gaps.seconds.items() if cause not in _HOST}
    if host >= max(rest.values(), default=0.0):
        return max(_HOST, key=lambda cause: gaps.seconds.get(cause, 0.0))
    return max(rest, key=lambda cause: rest[cause])


def _of_cause(t: Trace, gaps: Idle, cause: str, about: str) -> str:
    share = f"{about}{gaps.seconds.get(cause, 0.0) / (gaps.total or 1):.0%} of its idle time"
    n = len(np.unique(gaps.gap[gaps.cause == CAUSES.index(cause)]))
    gaps_n = f"{n:,} gap{'s' if n != 1 else ''}"
    if cause == "sync":
        return f"{share}, in {gaps_n}: the host had waited for the GPU{_askers(t, gaps)}, and began to launch again only then"
    return {
        "nothing launched": f"{share}, in {gaps_n}: nothing had been launched, the host was busy elsewhere",
        "short kernels": f"{share}, in {gaps_n}: the kernel before was over sooner than the host can launch the next",
        "waiting for a copy": f"{share}, in {gaps_n}: a copy between host and GPU ran, and what follows waited for it",
        "waiting for communication": f"{share}, in {gaps_n}: a collective ran, and no kernel beside it",
        "no cause seen": f"{share}, in {gaps_n}: work had been launched, nothing ran, and the trace does not say why",
    }[cause]


def _askers(t: Trace, gaps: Idle, copies: bool = True) -> str:
    """Who waited for the GPU in the window: " (24 × in aten::item, …)". copies: also those of pageable memory."""
    begin, end = (round(s * 1e9) for s in gaps.window_s)
    waiting = t.waiting if copies else t.of("call") & t.named(call_waits)
    calls = waiting & (t.end_ns > begin) & (t.start_ns < end)
    pieces = nest(t, kinds=("operator", "call"))
    found: Counter[str] = Counter()
    for row in np.flatnonzero(calls).tolist():
        asker = pieces.outermost(row, t, "operator")
        found[t.names[t.name[asker if asker >= 0 else row]]] += 1
    said = [f"{n:,} × in {words.short(name)}" for name, n in found.most_common(2)]
    return f" ({', '.join(said)})" if said else ""


def _of_waits(t: Trace, gaps: Idle, found: Unwaited, about: str) -> str:
    return (
        f"the host also waited {about}{format_seconds(found.waited)} for the GPU{_askers(t, gaps, False)}, and the GPU for what "
        f"the host did after that: without the waits both work at the same time, {about}{format_seconds(found.after)} "
        f"instead of {about}{format_seconds(found.before)}, at most {about}{found.gain:.2f}×"
    )


def _others(gaps: Idle, cause: str, about: str) -> list[str]:
    said = [
        f"{other} {about}{seconds / gaps.total:.0%}"
        for other, seconds in gaps.seconds.items()
        if other != cause and seconds >= 0.05 * gaps.total
    ]
    return ["the rest of its idle time: " + ", ".join(said)] if said else []


def _during(t: Trace, gaps: Idle, cause: str, about: str) -> list[str]:
    """What the launching threads were in during the idle time of that cause: the two longest names."""
    launched = t.work.launch_row[t.work.launch_row >= 0]
    pieces = nest(t, np.unique(t.thread[launched]), ("operator", "annotation", "call", "python"))
    chosen = gaps.cause == CAUSES.index(cause)
    begin, end = gaps.start_ns[chosen], gaps.end_ns[chosen]
    part = spans.before((begin, end), pieces.end_ns) - spans.before((begin, end), pieces.start_ns)
    by_name = np.bincount(t.name[pieces.row], weights=part, minlength=len(t.names))
    steps = np.array([n.startswith("ProfilerStep") for n in t.names])
    by_name[steps] = 0  # a step is around everything: to be in nothing else is to be in Python
    inner = ~steps[t.name[pieces.row]]
    covered = spans.union(pieces.start_ns[inner], pieces.end_ns[inner])
    idle_then = spans.intersection(covered, spans.union(begin, end))
    total = float((end - begin).sum())
    best = [i for i in np.argsort(-by_name, kind="stable")[:2] if by_name[i] > 0.1 * total]
    said = [f"{words.short(t.names[i])} {about}{by_name[i] / total:.0%}" for i in best]
    python = 1 - spans.length(idle_then) / total
    if python > 0.1:
        said.append(f"no event (Python, or waiting for data) {about}{python:.0%}")
    return ["meanwhile the launching thread is in " + ", ".join(said)] if said else []


def _largest(t: Trace, gaps: Idle, about: str) -> str:
    """The largest gap: what ran before it and what after it."""
    length = np.bincount(gaps.gap, weights=gaps.end_ns - gaps.start_ns)
    which = np.flatnonzero(gaps.gap == int(length.argmax()))
    begin, end = int(gaps.start_ns[which[0]]), int(gaps.end_ns[which[-1]])
    work = t.work
    own = work.of("compute", "memory")
    before, after = np.flatnonzero(own & (work.end_ns <= begin)), np.flatnonzero(own & (work.start_ns >= end))

    def said(i: int) -> str:
        return words.short(t.names[t.name[work.row[i]]])

    parts = [f"after {said(before[np.argmax(work.end_ns[before])])}"] if len(before) else []
    if len(after):
        i = after[0]
        parts.append(f"before {said(i)}")
        late = int(work.launch_ns[i]) - begin
        parts.append(
            f"which was launched {about}{format_seconds(late / 1e9)} after the gap began"
            if late > 0
            else f"which had been launched {about}{format_seconds(-late / 1e9)} before the gap began"
        )
    return (
        f"the largest gap: {about}{format_seconds((end - begin) / 1e9)} at {about}{format_seconds(begin / 1e9)}, "
        + ", ".join(parts)
    )
