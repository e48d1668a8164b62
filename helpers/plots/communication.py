"""What communication hides behind: computing, collectives by number and size, and the time in which only they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.trace import spans

from . import key as keys
from . import style
from .gantt import Gantt, Lane, Row
from .picture import Picture, drawn

_SHORT = {
    "all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS", "broadcast": "B", "all_to_all": "A2A",
    "reduce": "R", "gather": "G", "scatter": "S", "send": "send", "recv": "recv",
}  # fmt: skip
_COMPUTE, _COMMUNICATION, _EXPOSED = style.BLUE, style.PURPLE, style.VERMILLION
# what hands data round has one colour, what adds up another, its half and single messages a third and a fourth
_COLOURS = dict.fromkeys(("all_gather", "broadcast", "gather", "scatter", "all_to_all"), style.GREEN)
_COLOURS |= {"reduce_scatter": style.SKY, "send": style.ORANGE, "recv": style.ORANGE}


def _colour(kind: str) -> str:
    return _COLOURS.get(kind, _COMMUNICATION)


def _pale(kind: str) -> tuple[float, float, float]:
    """The colour of a rank that waits in such a collective for slower ones."""
    return style.blend(_colour(kind), style.PAPER, 0.65)


@dataclass
class _Call:
    """A collective, in ns: this rank is there at arrival, the last one at start."""

    kind: str
    nbytes: int
    arrival: int
    start: int
    end: int


@dataclass
class _Run:
    """What is drawn, from begin to end. In ns: label → spans, label → collectives."""

    work: dict[str, spans.Spans] = field(default_factory=dict)
    calls: dict[str, list[_Call]] = field(default_factory=dict)
    evidence: str = ""
    note: str = ""
    begin: int = 0
    end: int = 0

    def window(self, since_s: float, what: str) -> None:
        """Keep what lies behind `since_s`. ValueError if nothing was communicated in it."""
        last = [int(s[1].max()) for s in self.work.values() if len(s[1])]
        last += [c.end for calls in self.calls.values() for c in calls]
        self.begin = round(since_s * 1e9)
        self.end = max(last, default=0)
        self.work = {label: spans.clip(s, self.begin, self.end) for label, s in self.work.items()}
        for label, calls in list(self.calls.items()):
            self.calls[label] = [c for c in calls if c.arrival < self.end and c.end > self.begin]
        self.calls = {label: calls for label, calls in self.calls.items() if calls}
        if not self.calls:
            raise ValueError(f"{what} no collective in this window")

    @property
    def every(self) -> list[_Call]:
        return [c for calls in self.calls.values() for c in calls]

    @property
    def exposed(self) -> spans.Spans:
        """Where collectives run and no kernel does."""
        busy = spans.union(*_ends([(c.arrival, c.end) for c in self.every]))
        for done in self.work.values():
            if len(busy[0]):
                low, high = int(busy[0][0]), int(busy[1].max())
                busy = spans.intersection(busy, spans.complement(spans.clip(done, low, high), low, high))
        return busy

    def key(self, short: bool = True) -> list[keys.Entry]:
        """short: with the letters that stand in the bars."""
        kinds = dict.fromkeys(c.kind for c in self.every)
        entries: list[keys.Entry] = [((_COMPUTE,), "kernels")]
        for colour in dict.fromkeys(map(_colour, kinds)):
            mine = [k for k in kinds if _colour(k) == colour]
            said = ", ".join(
                f"{_SHORT[k]} {k}" if short and _SHORT[k] != k else k for k in mine if k in _SHORT
            )
            entries.append(((colour,), said or "collectives"))
        late = dict.fromkeys(_pale(c.kind) for c in self.every if c.start > c.arrival)
        if late:
            entries.append((tuple(late), "waiting for the slowest rank"))
        return [*entries, ((_EXPOSED,), "only collectives run")]


def _ends(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def _of_gpu(gpu: Any) -> _Run:
    run = _Run(evidence=gpu.evidence, note=str(gpu.ranks or "one rank"))
    streams = sorted({k.stream for k in gpu.kernels if k.kind == "kernel"})
    for stream in streams:
        mine = [(k.start_ns, k.end_ns) for k in gpu.kernels if k.stream == stream and k.kind == "kernel"]
        label = "compute" if len(streams) == 1 or not stream else f"stream {stream}"
        run.work[label] = spans.union(*_ends(mine))
    sent = [c for c in gpu.collectives if c.kind != "barrier"]
    for number, lane in enumerate(sorted({c.stream for c in sent})):
        run.calls["communication" if not number else f"communication {number + 1}"] = [
            _Call(c.kind, c.bytes, c.arrival_ns, c.start_ns, c.end_ns) for c in sent if c.stream == lane
        ]
    return run


def _of_plan(plan: Any) -> _Run:
    def ns(seconds: float) -> int:
        return round(seconds * 1e9)

    run = _Run(evidence=plan.backward.evidence)
    run.work["compute"] = _ends([(0, ns(plan.backward.seconds))])
    starts = [ns(b.start_s) for b in plan.buckets]
    sent = [_Call("", b.bytes, at, at, ns(b.end_s)) for b, at in zip(plan.buckets, starts, strict=True)]
    run.calls["communication"] = sent
    return run


@drawn
def overlapped(
    source: Any, *, since_s: float = 0.0, marks: Mapping[str, float] | None = None,
    title: str = "What hides the communication", note: str | None = None,
) -> Picture:  # fmt: skip
    """Lanes of kernels and of collectives over time, and in red where only collectives run: the exposed time.

    source: a simulated GPU with a world, or what `helpers.simulator.world.buckets.overlap` returns. since_s: what
    began before is left out, seconds on its clock. marks: label → seconds, a dashed line through all lanes. Collectives carry their
    number and size where they have room; pale: this rank waits for slower ones. ValueError if nothing was communicated.
    """
    run = _of_plan(source) if hasattr(source, "buckets") else _of_gpu(source)
    run.window(since_s, "overlapped:")
    first = [int(s[0][0]) for s in run.work.values() if len(s[0])] + [c.arrival for c in run.every]
    run.begin = max(run.begin, min(first))
    exposed = run.exposed
    total, long = spans.length(exposed) / 1e9, (run.end - run.begin) / 1e9
    figures = f"exposed {format_seconds(total)} of {format_seconds(long)}, {total / long:.0%}"
    lanes = [Lane(label, [_plain(done, _COMPUTE)]) for label, done in run.work.items()]
    lanes += [Lane(label, [_collectives(calls)]) for label, calls in run.calls.items()]
    alone = _plain(exposed, _EXPOSED)
    alone.texts = lambda i: (format_seconds(float(alone.end[i] - alone.start[i])),)
    alone.size, alone.beside = style.SMALL, len(alone.start) == 1
    gantt = Gantt([*lanes, Lane("exposed", [alone], empty="nothing")], run.begin / 1e9, run.end / 1e9, bar=0.36, space=0.22)  # fmt: skip
    head = " · ".join(x for x in (run.note if note is None else note, figures) if x)
    gantt.draw(run.evidence, title, head, key=gantt.key(run.key()), marks=marks, grid=False)
    return gantt.picture(run.evidence, f"{title}: {len(run.every)} collectives; {figures}")


@drawn
def compared(runs: Mapping[str, tuple[Any, float]], *, title: str) -> Picture:
    """Runs under one another on one time axis, each with thin lanes: kernels, collectives, and where only the latter run.

    runs: name → (simulated GPU with a world, since when in seconds on its clock). ValueError without runs, or if one
    has sent nothing in that time.
    """
    if not runs:
        raise ValueError("compared: no runs")
    found = {name: (_of_gpu(gpu), since_s) for name, (gpu, since_s) in runs.items()}
    every = _Run(evidence=next(iter(found.values()))[0].evidence)
    lanes = []
    for name, (run, since_s) in found.items():
        run.window(since_s, f"compared: {name} has")
        every.calls |= {f"{name}, {lane}": calls for lane, calls in run.calls.items()}
        every.end = max(every.end, run.end - run.begin)
        work = _ends([(int(a), int(b)) for s in run.work.values() for a, b in zip(*s, strict=True)])
        sent = [_collectives(calls) for calls in list(run.calls.values())[:2]]
        rows = [_plain(work, _COMPUTE), *sent, _plain(run.exposed, _EXPOSED)]
        for row in rows:
            row.start, row.end, row.edge = row.start - run.begin / 1e9, row.end - run.begin / 1e9, 0.15
            row.texts = None
        lanes.append(Lane(name, rows, ground=None, after=format_seconds((run.end - run.begin) / 1e9)))
    gantt = Gantt(lanes, 0.0, every.end / 1e9, bar=0.117, pitch=0.13, space=0.2)
    gantt.draw(every.evidence, title, key=gantt.key(every.key(short=False)))
    said = "; ".join(f"{lane.label} {lane.after}" for lane in lanes)
    return gantt.picture(every.evidence, f"{title}: {said}")


def _plain(done: spans.Spans, colour: str) -> Row:
    return Row(done[0] / 1e9, done[1] / 1e9, [colour] * len(done[0]), edge=0.0)


def _collectives(calls: list[_Call]) -> Row:
    """Each collective from its start, with its number; and before it, pale, this rank's waiting for the slowest."""
    late = [c for c in calls if c.start > c.arrival]
    start, end = _ends([(c.start, c.end) for c in calls] + [(c.arrival, c.start) for c in late])
    colours = [_colour(c.kind) for c in calls] + [_pale(c.kind) for c in late]

    def texts(i: int) -> tuple[str, ...]:
        if i >= len(calls):
            return ()
        named = f"{_SHORT.get(calls[i].kind, calls[i].kind)} {i + 1}".strip()
        return f"{named} · {size_text(calls[i].nbytes, decimal=True)}", named, str(i + 1)

    return Row(start / 1e9, end / 1e9, colours, texts=texts)
