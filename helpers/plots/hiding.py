"""What communication hides behind: computing, collectives by number and size, and the time in which only they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.seconds import format_seconds
from helpers.trace import spans

from . import style
from .picture import Picture, drawn

_LANE, _BAR = 0.58, 0.36
_SHORT = {
    "all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS", "broadcast": "B", "all_to_all": "A2A",
    "reduce": "R", "gather": "G", "scatter": "S", "send": "send", "recv": "recv",
}  # fmt: skip
_COMPUTE, _OTHER, _COMMUNICATION, _EXPOSED = style.BLUE, style.ORANGE, style.PURPLE, style.VERMILLION
# what hands data round has one colour, what adds up another, single messages a third
_HANDS = {"all_gather", "broadcast", "gather", "scatter", "all_to_all"}
_HIDDEN_KINDS = ("barrier",)


def _colour(kind: str) -> str:
    return style.GREEN if kind in _HANDS else style.SKY if kind in ("send", "recv") else _COMMUNICATION


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
    """What is drawn. Spans in ns: label → starts and ends, disjoint and sorted."""

    work: dict[str, spans.Spans] = field(default_factory=dict)
    calls: dict[str, list[_Call]] = field(default_factory=dict)
    evidence: str = ""
    note: str = ""

    def clip(self, begin: int, end: int) -> None:
        self.work = {label: spans.clip(s, begin, end) for label, s in self.work.items()}
        kept = {
            label: [c for c in cs if c.arrival < end and c.end > begin] for label, cs in self.calls.items()
        }
        self.calls = {label: cs for label, cs in kept.items() if cs}

    @property
    def exposed(self) -> spans.Spans:
        """Where collectives run and no kernel does."""
        every = [c for cs in self.calls.values() for c in cs]
        busy = spans.union(*_ends([(c.arrival, c.end) for c in every]))
        for done in self.work.values():
            if len(busy[0]):
                low, high = int(busy[0][0]), int(busy[1].max())
                busy = spans.intersection(busy, spans.complement(spans.clip(done, low, high), low, high))
        return busy


def _ends(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def _of_gpu(gpu: Any) -> _Run:
    run = _Run(evidence=gpu.evidence, note=str(gpu.ranks or "one rank"))
    streams = sorted({k.stream for k in gpu.kernels if k.kind == "kernel"})
    for stream in streams:
        mine = [(k.start_ns, k.end_ns) for k in gpu.kernels if k.stream == stream and k.kind == "kernel"]
        label = "compute" if len(streams) == 1 or not stream else f"stream {stream}"
        run.work[label] = spans.union(*_ends(mine))
    lanes = sorted({c.stream for c in gpu.collectives if c.kind not in _HIDDEN_KINDS})
    for number, lane in enumerate(lanes):
        label = "communication" if not number else f"communication {number + 1}"
        run.calls[label] = [
            _Call(c.kind, c.bytes, c.arrival_ns, c.start_ns, c.end_ns)
            for c in gpu.collectives
            if c.stream == lane and c.kind not in _HIDDEN_KINDS
        ]
    return run


def _of_plan(plan: Any) -> _Run:
    def ns(seconds: float) -> int:
        return round(seconds * 1e9)

    run = _Run(evidence=plan.backward.evidence)
    run.work["compute"] = _ends([(0, ns(plan.backward.seconds))])
    run.calls["communication"] = [
        _Call("", b.bytes, ns(b.start_s), ns(b.start_s), ns(b.end_s)) for b in plan.buckets
    ]
    return run


@drawn
def overlapped(
    source: Any, *, since_s: float = 0.0, until_s: float | None = None, marks: Mapping[str, float] | None = None,
    title: str = "What hides the communication", note: str | None = None,
) -> Picture:  # fmt: skip
    """Lanes of kernels and of collectives over time, and in red where only collectives run: the exposed time.

    source: a simulated GPU with a world, or what `helpers.simulator.buckets.overlap` returns. since_s, until_s: the
    window, seconds on its clock. marks: label → seconds, a dashed line through all lanes. Collectives carry their
    number and size where they have room; pale: this rank waits for slower ones. ValueError if nothing was communicated.
    """
    run = _of_plan(source) if hasattr(source, "buckets") else _of_gpu(source)
    begin = round(since_s * 1e9)
    every = [c.end for cs in run.calls.values() for c in cs] + [
        int(s[1].max()) for s in run.work.values() if len(s[1])
    ]
    end = round(until_s * 1e9) if until_s is not None else max(every, default=0)
    run.clip(begin, end)
    if not run.calls:
        raise ValueError("overlapped: no collective in this window")
    found = [int(s[0][0]) for s in run.work.values() if len(s[0])] + [
        c.arrival for cs in run.calls.values() for c in cs
    ]
    begin = max(begin, min(found))
    exposed = run.exposed
    total = spans.length(exposed) / 1e9
    part = total / ((end - begin) / 1e9)
    said = f"exposed {format_seconds(total)} of {format_seconds((end - begin) / 1e9)}, {part:.0%}"
    head = " · ".join(x for x in (run.note if note is None else note, said) if x)
    lanes = [*run.work, *run.calls, "exposed"]
    scale, unit = style.time_unit((end - begin) / 1e9)
    scratch, _ = style.figure(1.0, evidence=run.evidence)
    left = max(style.text_width(scratch, lane, style.TEXT, "bold") for lane in lanes) + 0.3
    top = 0.28 if marks else 0.06
    plot, low = top + _LANE * len(lanes), 0.78
    fig, header = style.figure(plot + low, evidence=run.evidence, title=title, note=head)
    fig.set_layout_engine("none")
    tall = plot + low + header
    ax = fig.add_axes((left / style.WIDTH, low / tall, 1 - (left + 0.25) / style.WIDTH, plot / tall))
    long = (end - begin) / 1e9 * scale
    inch = long / (style.WIDTH - left - 0.25)
    ax.set_xlim(0, 1.002 * long)
    ax.set_ylim(plot, 0)
    ax.set_yticks([])
    ax.set_xlabel(f"time, {unit}")
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)

    def at(ns: Any) -> Any:
        return (ns - begin) / 1e9 * scale

    for i, lane in enumerate(lanes):
        y = top + _LANE * (i + 0.5)
        ax.axhspan(y - _BAR / 2, y + _BAR / 2, color="#f4f5f6", zorder=0.5)
        ax.text(-0.1 * inch, y, lane, ha="right", va="center", fontweight="bold")
        if lane in run.calls:
            _calls(ax, fig, run.calls[lane], at, y, inch)
        else:
            starts, ends = exposed if lane == "exposed" else run.work[lane]
            colour = _EXPOSED if lane == "exposed" else _COMPUTE
            bars = [(at(a), max(at(b) - at(a), 0.006 * inch)) for a, b in zip(starts, ends, strict=True)]
            ax.broken_barh(bars, (y - _BAR / 2, _BAR), facecolor=colour, edgecolor="none", zorder=3)
            if lane == "exposed":
                _lengths(ax, fig, bars, y, 1 / scale, inch)
    for label, second in (marks or {}).items():
        x = at(second * 1e9)
        ax.plot([x, x], [0.24, plot], color=style.INK, linestyle=(0, (4, 2)), linewidth=1.2, zorder=5)
        half = style.text_width(fig, label, style.SMALL) / 2 * inch
        place = min(max(x, half), ax.get_xlim()[1] - half)
        ax.text(place, 0.12, label, ha="center", va="center", fontsize=style.SMALL)
    _key(fig, run, tall, left)
    count = sum(map(len, run.calls.values()))
    return Picture(fig, run.evidence, f"{title}: {count} collectives; {said}")


@drawn
def compared(runs: Mapping[str, tuple[Any, float]], *, title: str) -> Picture:
    """Runs under one another on one time axis, each with thin lanes: kernels, collectives, and where only the latter run.

    runs: name → (simulated GPU with a world, since when in seconds on its clock). ValueError without runs, or if one
    has sent nothing in that time.
    """
    if not runs:
        raise ValueError("compared: no runs")
    found = dict[str, tuple[_Run, int, int]]()
    for name, (gpu, since_s) in runs.items():
        run, begin = _of_gpu(gpu), round(since_s * 1e9)
        ends = [int(s[1].max()) for s in run.work.values() if len(s[1])]
        end = max([*ends, *(c.end for cs in run.calls.values() for c in cs)], default=0)
        run.clip(begin, end)
        if not run.calls:
            raise ValueError(f"compared: {name} has no collective in this window")
        found[name] = run, begin, end
    every = _Run(evidence=next(iter(found.values()))[0].evidence)
    for name, (run, _, _) in found.items():
        every.calls |= {f"{name}, {lane}": calls for lane, calls in run.calls.items()}
    long_ns = max(end - begin for _, begin, end in found.values())
    scale, unit = style.time_unit(long_ns / 1e9)
    scratch, _ = style.figure(1.0, evidence=every.evidence)
    left = max(style.text_width(scratch, name, style.TEXT, "bold") for name in found) + 0.3
    lanes = [3 + (len(run.calls) > 1) for run, _, _ in found.values()]
    thin, apart = 0.13, 0.2
    plot, low = sum(lanes) * thin + apart * len(found), 0.78
    fig, header = style.figure(plot + low, evidence=every.evidence, title=title)
    fig.set_layout_engine("none")
    tall, right = plot + low + header, 0.75
    ax = fig.add_axes((left / style.WIDTH, low / tall, 1 - (left + right) / style.WIDTH, plot / tall))
    inch = long_ns / 1e9 * scale / (style.WIDTH - left - right)
    ax.set_xlim(0, long_ns / 1e9 * scale)
    ax.set_ylim(plot, 0)
    ax.set_yticks([])
    ax.set_xlabel(f"time, {unit}")
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    y = apart / 2
    for (name, (run, begin, end)), count in zip(found.items(), lanes, strict=True):
        middle = y + count * thin / 2
        ax.text(-0.1 * inch, middle, name, ha="right", va="center", fontweight="bold")
        ax.text((end - begin) / 1e9 * scale + 0.06 * inch, middle, format_seconds((end - begin) / 1e9), va="center", fontsize=style.SMALL)  # fmt: skip
        rows: list[list[tuple[int, int, Any]]] = [
            [(int(a), int(b), _COMPUTE) for s in run.work.values() for a, b in zip(*s, strict=True)]
        ]
        for calls in list(run.calls.values())[:2]:
            rows.append([(c.arrival, c.end, _colour(c.kind)) for c in calls])
            rows[-1] += [
                (c.arrival, c.start, style.blend(_colour(c.kind), style.PAPER, 0.65)) for c in calls if c.start > c.arrival
            ]  # fmt: skip
        rows.append([(int(a), int(b), _EXPOSED) for a, b in zip(*run.exposed, strict=True)])
        for row in rows:
            bars = [((a - begin) / 1e9 * scale, max((b - a) / 1e9 * scale, 0.006 * inch)) for a, b, _ in row]
            ax.broken_barh(bars, (y, thin * 0.9), facecolors=[c for _, _, c in row], edgecolor=style.PAPER, linewidth=0.15, zorder=3)  # fmt: skip
            y += thin
        y += apart
    _key(fig, every, tall, 0.5)
    said = "; ".join(
        f"{name} {format_seconds((end - begin) / 1e9)}" for name, (_, begin, end) in found.items()
    )
    return Picture(fig, every.evidence, f"{title}: {said}")


def _calls(ax: Axes, fig: Figure, calls: list[_Call], at: Any, y: float, inch: float) -> None:
    for number, call in enumerate(calls, 1):
        x, width = at(call.arrival), max(at(call.end) - at(call.arrival), 0.012 * inch)
        line: dict[str, Any] = {"edgecolor": style.PAPER, "linewidth": 0.6}
        ax.broken_barh([(x, width)], (y - _BAR / 2, _BAR), facecolor=_colour(call.kind), zorder=3, **line)
        late = at(call.start) - x
        if late > 0.01 * inch:
            pale = style.blend(_colour(call.kind), style.PAPER, 0.65)
            ax.broken_barh([(x, late)], (y - _BAR / 2, _BAR), facecolor=pale, zorder=3.1, **line)
        kind = _SHORT.get(call.kind, call.kind)
        size = _size(call.nbytes)
        for text in (f"{kind} {number} · {size}".strip(), f"{kind} {number}".strip(), str(number)):
            if style.text_width(fig, text, 8.5, "bold") + 0.06 < (width - max(late, 0)) / inch:
                middle = x + max(late, 0) + (width - max(late, 0)) / 2
                ax.text(
                    middle,
                    y,
                    text,
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    fontweight="bold",
                    color=style.INK,
                    zorder=4,
                )
                break


def _lengths(
    ax: Axes, fig: Figure, bars: list[tuple[float, float]], y: float, unit_s: float, inch: float
) -> None:
    """How long each exposed piece is, where there is room. unit_s: seconds of one data unit."""
    if not bars:
        ax.text(0.1 * inch, y, "nothing", va="center", fontsize=style.SMALL, zorder=4)
    look: dict[str, Any] = {"va": "center", "fontsize": style.SMALL, "fontweight": "bold", "zorder": 4}
    for x, width in bars:
        text = format_seconds(width * unit_s)
        need = (style.text_width(fig, text, style.SMALL, "bold") + 0.12) * inch
        if need < width:
            ax.text(x + width / 2, y, text, ha="center", color=style.PAPER, **look)
        elif len(bars) == 1:
            right = x + width + need < ax.get_xlim()[1]
            where = x + width + 0.06 * inch if right else x - 0.06 * inch
            ax.text(where, y, text, ha="left" if right else "right", color=_EXPOSED, **look)


def _key(fig: Figure, run: _Run, tall: float, left: float) -> None:
    entries: list[tuple[Any, str]] = [(_COMPUTE, "kernels")]
    kinds = dict.fromkeys(c.kind for cs in run.calls.values() for c in cs)
    for colour in dict.fromkeys(map(_colour, kinds)):
        mine = [k for k in kinds if _colour(k) == colour]
        entries.append((colour, ", ".join(f"{_SHORT[k]} {k}" for k in mine if k in _SHORT) or "collectives"))
    if any(c.start > c.arrival for cs in run.calls.values() for c in cs):
        entries.append((style.blend(_COMMUNICATION, style.PAPER, 0.65), "waiting for the slowest rank"))
    entries.append((_EXPOSED, "only collectives run"))
    x = min(left, 1.2)
    for colour, text in entries:
        fig.text(x / style.WIDTH, 0.13 / tall, "■", color=colour, va="center", fontsize=style.TEXT)
        fig.text((x + 0.17) / style.WIDTH, 0.13 / tall, text, va="center", fontsize=style.SMALL)
        x += 0.17 + style.text_width(fig, text, style.SMALL) + 0.22


def _size(nbytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} B"
