"""Is the CPU, the GPU or something between them the bottleneck? One word, and what speaks for it.

The flow: sparse → the host cannot keep up; dense → the GPU is the limit; dense with gaps → look before and
after the gaps. Here every gap of the steady part is looked at, by the rules of `gaps`, and the largest reason names the
verdict. With one exception: where the host is late only because it waited for the GPU before, the wait is the reason
(`unwaited`). Where the trace does not show a reason, none is given.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helpers.text.seconds import approx, format_seconds

from . import names as words
from . import spans
from .activity import queue_depth
from .columns import Nest, Trace, nest
from .gaps import CAUSES, FEW, Idle, idle
from .ranking import top
from .steady import Steady, shares, steady
from .unwaited import Unwaited, answers, unwaited

# Shares of the time in which the GPU computes. Above DENSE there is at most a ninth to win by closing gaps, and
# kernels are where to look; below SPARSE it waits longer than it works.
DENSE, SPARSE = 0.9, 0.5
# So many times as fast without the host's waits is worth a line; see `unwaited`.
TELLING = 1.1
# Where the GPU is not dense and the host waits for it for more than this share of the time, they take turns.
TURNS = 0.25
# Of many waits a few are named where they are this share of the time.
MOST = 0.8
# A cause is named if idle time without one is less than this share of it.
UNSURE = 0.8

BOTTLENECK = {
    "nothing launched": "CPU-bound", "short kernels": "launch-bound", "sync": "sync-bound",
    "waiting for a copy": "copy-bound", "waiting for communication": "communication-bound", "no cause seen": "unknown",
}  # fmt: skip
"""Cause of most of the idle time → the verdict's word."""
_HOST = ("nothing launched", "short kernels", "sync")

_ADVICE = {
    "CPU-bound": "look at what the host does between launches: data loading, Python, logging, large gaps first",
    "launch-bound": "launch less: fuse (torch.compile), batch more, foreach or fused optimizers, a CUDA graph",
    "sync-bound": "find what asks the GPU for a value (.item(), nonzero, masks, print, .cpu()) and ask less often",
    "copy-bound": "pin the memory, copy with non_blocking=True on a stream of its own, one batch ahead; or copy less",
    "communication-bound": "overlap it with backward, send fewer or larger messages, or fewer bytes",
    "GPU-bound": "make the kernels themselves cheaper: precision, layout, fusion, a better algorithm",
    "unknown": "the trace does not show what the GPU waited for: record more (other processes, all CUDA activities)",
    "CPU only": "nothing ran on a GPU: look at the operators that take longest on the host (trace.top with by='host')",
}
_DATA = "the host waits for its DataLoader: more workers, cheaper transforms, the next batch ahead"
_DRIVER = "the host is in the driver, which loads kernels and gets memory: record steps that come after a few warm ones"
_MANY = (
    "the host's time goes into the operators: call fewer and larger ones (torch.compile, foreach or fused optimizers), "
    "or record them in a CUDA graph"
)
_TOO_LITTLE = (
    "record some whole steps, with prof.step() after each: what happens between them is not in this trace"
)
_LOST = "record again with ProfilerActivity.CUDA, no other profiler attached, and up to the end of a step"


@dataclass(frozen=True, repr=False)
class Verdict:
    """bottleneck: one word of `BOTTLENECK`, or "GPU-bound", or "CPU only". evidence: what was seen, in words.

    density: "dense", "dense with gaps", "sparse" ("": no GPU work). figures: the numbers behind the words:
    shares of the time by cause, "compute" among them, mean queue depth, share of time with an empty queue; "without
    waits": at most so many times as fast if the host never waited for the GPU. See :func:`classify`.
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

    Of the steps between the first and the last, where three or more launch anything; else from the first device work to
    the last. Thresholds: `DENSE`, `SPARSE` here, and those of `gaps`.

    >>> trace.classify(t).bottleneck, trace.classify(t).density
    ('GPU-bound', 'dense')
    """
    if not t.has_gpu:
        return _without_gpu(t)
    part = steady(t)
    gaps = idle(t, *(time / 1e9 for time in part.device)) if part.steps else idle(t)
    about = approx(t.evidence)
    if not gaps.span or (gaps.busy >= DENSE and not part.steps and gaps.span < _recorded(t) / 2):
        said = (
            f"the GPU works for {about}{format_seconds(gaps.span)}, without a pause, of "
            f"{about}{format_seconds(_recorded(t))} that were recorded"
        )
        return Verdict("unknown", "", [said], _TOO_LITTLE, t.evidence)
    computing = gaps.busy
    density = "dense" if computing >= DENSE else "dense with gaps" if computing >= SPARSE else "sparse"
    depth = queue_depth(t, *gaps.window_s)
    figures = {"compute": computing, **gaps.share, "queue": depth.mean, "queue empty": depth.empty_share}
    where = (
        f" ({part.steps} step{'s' if part.steps > 1 else ''}, without the first and the last)"
        if part.steps
        else ", from its first work to its last"
    )
    evidence = [
        f"the GPU computes {about}{computing:.0%} of {about}{format_seconds(gaps.span)}{where}: {density}"
    ]
    waiting = (
        f"work waits in the queue: {about}{depth.mean:.1f} launches on average, none for {about}{depth.empty_share:.0%} "
        "of the time"
    )
    if density == "dense":
        evidence += [
            f"{row.name} takes {about}{row.share:.0%} of the GPU's working time" for row in top(t, 1)
        ]
        return Verdict("GPU-bound", density, [*evidence, waiting], _ADVICE["GPU-bound"], t.evidence, figures)

    pieces = nest(t, np.unique(t.thread[t.launching]), ("operator", "annotation", "call", "python"))
    cause = _main_cause(gaps)
    bottleneck = BOTTLENECK[cause]
    evidence += [_of_cause(t, gaps, cause, about, pieces), *_others(gaps, cause, about)]
    found = unwaited(t)
    figures["without waits"] = found.gain
    asked = _asked(t, part)
    if found.gain >= TELLING:
        evidence.append(_of_waits(t, found, about, pieces))
        # The host was late because it had waited: most of the idle time is gone without the waits, or both wait much.
        most = (found.before - found.after) / found.before > (1 - computing) / 2
        if cause in _HOST and (most or shares(t).waits > TURNS):
            bottleneck = "sync-bound"
    elif (
        asked > 2 * TURNS
        and bottleneck != "sync-bound"
        and cause in (*_HOST, "no cause seen")
        and depth.mean <= FEW
    ):
        evidence.append(
            f"the host waits for the GPU for {about}{asked:.0%} of the time{_askers(t, answers(t), pieces)}"
        )
        bottleneck = "sync-bound"
    advice = _ADVICE[bottleneck]
    evidence.append(waiting)
    if cause in (*_HOST, "no cause seen"):
        during, special = _during(t, gaps, cause, about, pieces)
        evidence += during
        advice = special if special and bottleneck == "CPU-bound" else advice
    evidence.append(_largest(t, gaps, about))
    return Verdict(bottleneck, density, evidence, advice, t.evidence, figures)


def _without_gpu(t: Trace) -> Verdict:
    text = f"no GPU work among {len(t):,} events"
    launches = int((t.of("call") & t.named(words.launches)).sum())
    if launches:
        lost = (
            f"{text}, though {launches:,} calls launched some: the profiler has not seen it, or has lost it"
        )
        return Verdict("unknown", "", [lost], _LOST, t.evidence)
    if t.unread:
        kinds = ", ".join(
            f"{n:,} × {kind}" for kind, n in sorted(t.unread.items(), key=lambda one: -one[1])[:3]
        )
        other = "events of another device, or of another kind, are not read here: trace.top(…, by='host') has the host's"
        return Verdict("unknown", "", [f"{text} that are read; there are others: {kinds}"], other, t.evidence)
    if first := top(t, 1, by="host"):
        text += f"; on the CPU {first[0].name} takes most of its operators' own time, {first[0].share:.0%}"
    return Verdict("CPU only", "", [text], _ADVICE["CPU only"], t.evidence)


def _recorded(t: Trace) -> float:
    """Seconds from the first event of the launching threads to the last of theirs, or of the GPU's."""
    host = t.launching
    begin = min(int(t.work.start_ns[0]), int(t.start_ns[host].min(initial=t.work.start_ns[0])))
    return (max(int(t.work.end_ns.max()), int(t.end_ns[host].max(initial=0))) - begin) / 1e9


def _asked(t: Trace, part: Steady) -> float:
    """The share of the time in which the host waits for an answer of the GPU."""
    calls, (begin, end) = answers(t), part.host
    waits = spans.clip(spans.union(t.start_ns[calls], t.end_ns[calls]), begin, end)
    return spans.length(waits) / (end - begin) if end > begin else 0.0


def _main_cause(gaps: Idle) -> str:
    """The largest cause; the host's three count together against the others, then the largest of them is named."""
    host = sum(gaps.seconds.get(cause, 0.0) for cause in _HOST)
    rest = {cause: s for cause, s in gaps.seconds.items() if cause not in _HOST}
    if rest.get("no cause seen", 0.0) > UNSURE * max(
        host, *(s for c, s in rest.items() if c != "no cause seen"), 0.0
    ):
        return "no cause seen"
    if host >= max(rest.values(), default=0.0):
        return max(_HOST, key=lambda cause: gaps.seconds.get(cause, 0.0))
    return max(rest, key=lambda cause: rest[cause])


def _added_up(gaps: Idle, cause: str) -> bool:
    """Whether another cause alone is larger than the host's that is named: then the reader has to see the host's sum."""
    return cause in _HOST and cause != max(gaps.seconds, key=lambda c: gaps.seconds[c], default=cause)


def _of_cause(t: Trace, gaps: Idle, cause: str, about: str, pieces: Nest) -> str:
    share = f"{about}{gaps.seconds.get(cause, 0.0) / (gaps.total or 1):.0%} of its idle time"
    if _added_up(gaps, cause):
        host = sum(gaps.seconds.get(c, 0.0) for c in _HOST)
        share = f"the host is the reason of {about}{host / gaps.total:.0%} of its idle time; the largest part of that, {share}"
    n = len(np.unique(gaps.gap[gaps.cause == CAUSES.index(cause)]))
    gaps_n = f"{n:,} gap{'s' if n != 1 else ''}"
    if cause == "sync":
        begin, end = (round(s * 1e9) for s in gaps.window_s)
        waits = (t.asking | t.waiting & ~t.held_up) & t.launching & (t.end_ns > begin) & (t.start_ns < end)
        who = _askers(t, waits, pieces)
        return (
            f"{share}, in {gaps_n}: the host had waited for the GPU{who}, and began to launch again only then"
        )
    return {
        "nothing launched": f"{share}, in {gaps_n}: nothing had been launched, the host was busy elsewhere",
        "short kernels": f"{share}, in {gaps_n}: the kernel before was over sooner than the host can launch the next",
        "waiting for a copy": f"{share}, in {gaps_n}: a copy between host and GPU ran, and what follows waited for it",
        "waiting for communication": f"{share}, in {gaps_n}: a collective ran, and no kernel beside it",
        "no cause seen": f"{share}, in {gaps_n}: work had been launched, nothing ran, and the trace does not say why",
    }[cause]


def _askers(t: Trace, calls: NDArray[np.bool_], pieces: Nest) -> str:
    """Who made these calls, longest first: " (24 × in aten::item, …)"."""
    waits: dict[str, list[tuple[int, int]]] = defaultdict(list)  # name → (ns, row) of each
    for row in np.flatnonzero(calls).tolist():
        asker = pieces.outermost(row, t, "operator")
        waits[t.names[t.name[asker if asker >= 0 else row]]].append(
            (int(t.end_ns[row] - t.start_ns[row]), row)
        )
    longest = sorted(waits, key=lambda name: -sum(ns for ns, _ in waits[name]))[:2]
    said = [f"{len(waits[name]):,} × in {name}{_few(t, waits[name], pieces)}" for name in longest]
    return f" ({', '.join(said)})" if said else ""


def _few(t: Trace, waits: list[tuple[int, int]], pieces: Nest) -> str:
    """Where a few of many waits are nearly all of their time: how many, which call, and within which annotation."""
    waits = sorted(waits, reverse=True)
    total, most = sum(ns for ns, _ in waits), 0
    for few, (ns, row) in enumerate(waits[: len(waits) // 4], start=1):
        most += ns
        if most >= MOST * total:
            name = _around(t, row, pieces)
            return f", of which {few} take {most / total:.0%}: {t.names[t.name[row]]}" + (
                f" in {name}" if name else ""
            )
    return ""


def _around(t: Trace, row: int, pieces: Nest) -> str:
    """The innermost annotation around a row that is not the step itself; "" for none."""
    at = int(pieces.parent[row])
    while at >= 0:
        if words.KINDS[t.kind[at]] == "annotation" and not t.names[t.name[at]].startswith("ProfilerStep"):
            return words.cut(t.names[t.name[at]])
        at = int(pieces.parent[at])
    return ""


def _of_waits(t: Trace, found: Unwaited, about: str, pieces: Nest) -> str:
    return (
        f"the host also waited {about}{format_seconds(found.waited)} for the GPU{_askers(t, answers(t), pieces)}, and the GPU "
        f"for what the host did after that: without the waits both would work at the same time, and the whole trace would "
        f"take {about}{format_seconds(found.after)} instead of {about}{format_seconds(found.before)}: at most {about}{found.gain:.2f}×"
    )


def _others(gaps: Idle, cause: str, about: str) -> list[str]:
    told = _HOST if _added_up(gaps, cause) else (cause,)  # the host's sum holds its other causes already
    said = [
        f"{other} {about}{seconds / gaps.total:.0%}"
        for other, seconds in gaps.seconds.items()
        if other not in told and seconds >= 0.05 * gaps.total
    ]
    return ["the rest of its idle time: " + ", ".join(said)] if said else []


def _during(t: Trace, gaps: Idle, cause: str, about: str, pieces: Nest) -> tuple[list[str], str]:
    """What the launching threads were in during the idle time of that cause: the two longest names; and advice that follows.

    Of two threads at the same moment, the one in an operator or a call counts: the other waits within an annotation.
    """
    chosen = gaps.cause == CAUSES.index(cause)
    begin, end = gaps.start_ns[chosen], gaps.end_ns[chosen]
    part = spans.before((begin, end), pieces.end_ns) - spans.before((begin, end), pieces.start_ns)
    operators, calls = t.of("operator")[pieces.row], t.of("call")[pieces.row]
    busy = spans.union(pieces.start_ns[operators | calls], pieces.end_ns[operators | calls])
    beside = spans.intersection(busy, spans.union(begin, end))
    both = spans.before(beside, pieces.end_ns) - spans.before(beside, pieces.start_ns)
    part = np.where(operators | calls, part, part - both)
    by_name = np.bincount(t.name[pieces.row], weights=part, minlength=len(t.names))
    steps = np.array([n.startswith("ProfilerStep") for n in t.names])
    by_name[steps] = 0  # a step is around everything: to be in nothing else is to be in Python
    inner = ~steps[t.name[pieces.row]]
    covered = spans.union(pieces.start_ns[inner], pieces.end_ns[inner])
    idle_then = spans.intersection(covered, spans.union(begin, end))
    total = float((end - begin).sum())
    if not total:
        return [], ""
    best = [i for i in np.argsort(-by_name, kind="stable")[:2] if by_name[i] > 0.1 * total]
    shares = [f"{words.cut(t.names[i])} {about}{by_name[i] / total:.0%}" for i in best]
    many = part[operators & ~np.isin(t.name[pieces.row], best)].sum() / total
    if many > SPARSE:
        shares.append(f"{'other ' if best else ''}operators, none of them for long, {about}{many:.0%}")
    python = 1 - spans.length(idle_then) / total
    if python > 0.1:
        shares.append(f"no event (Python, or waiting for data) {about}{python:.0%}")
    driver = (t.of("call") & ~t.asking)[pieces.row]
    advice = _DRIVER if part[driver].sum() > 0.5 * total else _MANY if many > SPARSE else ""
    if best and "DataLoader" in t.names[best[0]]:
        advice = _DATA
    threads = "thread is" if len(np.unique(t.thread[pieces.row])) == 1 else "threads are"
    return [f"meanwhile the launching {threads} in " + ", ".join(shares)] if shares else [], advice


def _largest(t: Trace, gaps: Idle, about: str) -> str:
    """The largest gap: what ran before it and what after it; neither where all the work is copies."""
    length = np.bincount(gaps.gap, weights=gaps.end_ns - gaps.start_ns)
    which = np.flatnonzero(gaps.gap == int(length.argmax()))
    begin, end = int(gaps.start_ns[which[0]]), int(gaps.end_ns[which[-1]])
    work = t.work
    own = work.of("compute", "memory")
    before, after = np.flatnonzero(own & (work.end_ns <= begin)), np.flatnonzero(own & (work.start_ns >= end))

    def said(i: int) -> str:
        return words.short(t.names[t.name[work.row[i]]])

    where = (
        f"the largest gap: {about}{format_seconds((end - begin) / 1e9)}, {about}{format_seconds(begin / 1e9)} after the "
        "recording began"
    )
    parts = [where] + ([f"after {said(before[np.argmax(work.end_ns[before])])}"] if len(before) else [])
    if len(after):
        i = after[0]
        parts.append(f"before {said(i)}")
        late = int(work.launch_ns[i]) - begin
        parts.append(
            f"which was launched {about}{format_seconds(late / 1e9)} after the gap began"
            if late > 0
            else f"which had been launched {about}{format_seconds(-late / 1e9)} before the gap began"
        )
    return ", ".join(parts)
