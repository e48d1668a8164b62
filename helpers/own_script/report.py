"""What a run says: where a step's time goes, how far that is from the card, what holds the memory, and which lines to repair first."""

from __future__ import annotations

import itertools
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from helpers import memory
from helpers.own_script import ranking, replay, syntax
from helpers.own_script.costs import Row
from helpers.own_script.counters import largest
from helpers.own_script.host_time import LOADER, MEASURED, WAITING
from helpers.own_script.kinds import ADVICE, BLOCKING, UNPRICED
from helpers.own_script.places import Place
from helpers.own_script.running import Run
from helpers.own_script.stepping import Bound
from helpers.simulator.cost.roofline import Work
from helpers.simulator.written import kineto
from helpers.text import pages
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, cell_html, table

#: steps whose records are replayed for each line: more tell nothing new; fewer where a step has many records
_REPLAYED, _RECORDS = 3, 12_000
_SHOWN = 40
_CODE = 60  # letters of a line that are shown
#: how the warning begins that stands above all else
_BUSY = "this machine was busy"
#: what the device's work is called that is no copy
_ENGINES = {"kernel": "kernels", "collective": "collectives"}


@dataclass(frozen=True)
class Report:
    """The findings of one run. All times are seconds a step, on the simulated clock.

    step_s: a step, on average. usual_s: the one in the middle of all. host, device: what took how much of it on either side. rows: lines, ranked. everywhere:
    what no line is to blame for. warnings: what the run could not see. flops: of a step's kernels; peak_kind: in which most
    of them are;
    mfu: those in a second, as a share of the card's peak; roofline_s: what a step would take if each kernel ran at the
    card's published peaks and nothing else took time.
    """

    run: Run
    step_s: float
    usual_s: float
    slowest_s: float
    steps: int
    host: dict[str, float]
    device: dict[str, float]
    flops: int
    peak_kind: str
    roofline_s: float
    rows: list[Row]
    peak: Any
    everywhere: list[Row]
    warnings: list[str]

    @property
    def evidence(self) -> str:
        ranks = self.run.gpu.ranks
        return self.run.gpu.evidence + (f", one of {ranks.size} ranks" if ranks is not None else "")

    @property
    def mfu(self) -> float:
        return self.flops / self.step_s / self.run.gpu.card.peak_flops[self.peak_kind]

    @cached_property
    def table(self) -> Table:
        """The ranked lines, numbered, and among them what no line is to blame for, where it could buy more than those below."""
        rows = [self._cells(number, row) for number, row in self.shown]
        columns = ["", "could buy", "behind those above", "line", "code", "what", "evidence"]
        caption = (
            "could buy: how much shorter a step is without it, other limits in place; a bound. hidden: what it would buy "
            "if the host's Python and launches took no time; for later"
        )
        return table(rows, columns, evidence=self.evidence, caption=caption)

    @property
    def shown(self) -> list[tuple[str, Row]]:
        """Each row of the table with its number, "" for what stands for no line."""
        shown, whole = list[tuple[str, Row]](), list(self.everywhere)
        for number, row in enumerate(self.rows, start=1):
            while whole and whole[0].kind not in UNPRICED and whole[0].buys_s > row.buys_s:
                shown.append(("", whole.pop(0)))
            shown.append((str(number), row))
        return [*shown, *(("", row) for row in whole)]

    def _cells(self, number: str, row: Row) -> tuple[str, ...]:
        where = (str(row.place), f"`{row.place.text[:_CODE]}`") if row.place else ("everywhere", "")
        behind = format_seconds(row.next_s) if row.place and not row.hidden_s else ""
        return number, self._buys(row), behind, *where, row.advice.what, row.evidence

    @property
    def to_try(self) -> list[str]:
        """What to try for each kind of row that is there, in their order, with the lesson that teaches it. What else a line
        does is left out where all of it could buy next to nothing."""
        kinds = dict.fromkeys(
            kind
            for _, row in self.shown
            for kind in (row.kind, *(row.also if row.buys_s > ranking.LITTLE * self.step_s else ()))
        )
        advice = (ADVICE[kind] for kind in kinds)
        return [f"{one.what}: {one.sentence} (lesson {one.lessons})" for one in advice]

    def _buys(self, row: Row) -> str:
        if row.kind in UNPRICED:
            return UNPRICED[row.kind]
        if row.hidden_s:
            return f"hidden: {format_seconds(row.hidden_s)}"
        left = max(self.step_s - row.buys_s, 1e-9)
        return f"{format_seconds(max(0.0, row.buys_s))} ({self.step_s / left:.2f}×)"

    @property
    def speed(self) -> str:
        """MFU, and how far a step is from the card."""
        peak = f"{self.run.gpu.card.peak_flops[self.peak_kind] / 1e12:.0f} TFLOP/s in {self.peak_kind}"
        return (
            f"MFU {self.mfu:.1%} of {peak}; at the card's published peaks the kernels alone would take "
            f"{format_seconds(self.roofline_s)}"
        )

    @property
    def lengths(self) -> str:
        """How long a step is."""
        usual, slowest = format_seconds(self.usual_s), format_seconds(self.slowest_s)
        return f"{format_seconds(self.step_s)} on average (usually {usual}, the slowest {slowest})"

    def __str__(self) -> str:
        lines = [
            f"{Path(self.run.script).name} · {self.evidence} · {self.steps} steps after {self.run.warm} of warm-up",
            f"a step: {self.lengths}",
            *(f"! {warning}" for warning in self.warnings if warning.startswith(_BUSY)),
            f"  host:   {_shares(self.host, self.step_s)}",
            f"  device: {_shares(self.device, self.step_s)}",
            f"  {self.speed}",
            "",
            str(self.table),
            "",
            "What to try",
            *(f"- {advice}" for advice in self.to_try),
            "",
            f"Memory: {self.peak}" if self.peak is not None else "Memory: not seen",
            "",
            *(f"! {warning}" for warning in self.warnings if not warning.startswith(_BUSY)),
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._body(lambda found, _: found._repr_html_())

    def write(self, folder: Path) -> list[Path]:
        """The page and the trace, in that folder: where they lie."""
        name = Path(self.run.script).stem
        page, trace = folder / f"{name}-report.html", folder / f"{name}-trace.json.gz"
        page.write_text(pages.page(f"{name} on {self.evidence}", self._body(pages.shown)), encoding="utf-8")
        kineto.write(self.run.gpu.trace(), trace)
        return [page, trace]

    def _body(self, shown: Callable[[Table, str], str]) -> str:
        said = "".join(f"<li>{cell_html(warning)}</li>" for warning in self.warnings)
        tried = "".join(f"<li>{cell_html(advice)}</li>" for advice in self.to_try)
        held = "".join(
            f"<li><code>{escape(str(h))}</code></li>" for h in (self.peak.holders[:10] if self.peak else ())
        )
        memory_said = f"Peak {size_text(self.peak.bytes)}, held by:" if self.peak else "Not seen."
        begin = ""
        if self.shown:
            first = self.shown[0][1]
            where = f"<code>{escape(str(first.place))}</code>, " if first.place else ""
            begin = (
                f'<p class="first">First: {where}{escape(first.advice.what)}. '
                f"A step without it is shorter by {escape(self._buys(first))} at most.</p>"
            )
        return (
            f"<h1>{escape(Path(self.run.script).name)}: {format_seconds(self.step_s)} a step</h1>"
            f"<p><b>{escape(self.evidence)}</b> · {self.steps} steps after {self.run.warm} of warm-up · "
            f"{escape(self.lengths)} · {escape(self.speed)}</p>{begin}"
            f"<h2>Where a step's time goes</h2><h3>The host</h3>{_bar(self.host, self.step_s, 'the host')}"
            f"<h3>The device</h3>{_bar(self.device, self.step_s, 'the device')}"
            f'<h2>Lines, by what their repair could buy</h2><div class="lines">{shown(self.table, "Lines, ranked")}</div>'
            f"<h2>What to try</h2><ul>{tried}</ul>"
            f"<h2>Memory</h2><p>{memory_said}</p><ul>{held}</ul>"
            + f"<h2>What this run could not see</h2><ul>{said}</ul>"
        )


def _shares(parts: dict[str, float], whole: float) -> str:
    return ", ".join(
        f"{name} {format_seconds(s)} ({s / whole:.0%})" for name, s in largest(parts) if s / whole >= 0.005
    )


def _bar(parts: dict[str, float], whole: float, name: str) -> str:
    most = max(whole, sum(parts.values()))
    shares = [(what, s / most, format_seconds(s)) for what, s in largest(parts) if s / whole >= 0.005]
    return pages.bar(shares, name)


def findings(run: Run) -> Report:
    """The findings of a run. ValueError for one that has measured fewer than two steps."""
    if run.measured < 2:
        raise ValueError(
            f"{len(run.bounds)} call(s) of optimizer.step() ran; {run.warm} for the warm-up and three more are needed"
        )
    gpu, line = run.gpu, run.gpu._machine.line
    begin, end = run.bounds[run.warm], run.bounds[-1]
    steps = len(run.bounds) - 1 - run.warm
    lengths = [
        b.at_ns - a.at_ns for a, b in zip(run.bounds[run.warm :], run.bounds[run.warm + 1 :], strict=False)
    ]
    works = _works(run)
    host: dict[str, float] = defaultdict(float)
    for record in line.host[begin.host : end.host]:
        host[_side(record.name, record.kind)] += record.duration_s / steps
    device: dict[str, float] = defaultdict(float)
    kernels = line.kernels[begin.kernels : end.kernels]
    for kernel in kernels:
        device[_ENGINES.get(kernel.kind, "copies")] += kernel.duration_s / steps
    step_s = (end.at_ns - begin.at_ns) / 1e9 / steps
    device["idle"] = max(0.0, step_s - _busy(kernels) / steps)
    tape, step_line = _tape(run, works)
    of_step = [works[k] for k in range(begin.kernels, end.kernels) if k in works]
    kind = _peak_kind(of_step or works.values(), gpu.card.peak_flops)
    if any(kernel.graph for kernel in kernels):  # replayed: no work of theirs was asked for again
        of_step = [Work(k.flops, k.bytes, kind) for k in kernels if k.kind == "kernel"]
    snapshot = memory.read(run.snapshot) if run.snapshot is not None else None
    rows = ranking.rank(tape, gpu.card, step_line, run.marks.recorded)
    rows += _now_and_then(
        run,
        begin,
        end,
        {row.place for row in rows if {row.kind, *row.also} & {"unused", "loader", "workers"}},
    )
    rows += _behind_workers(run, begin, end, {row.place for row in rows}, step_s - device["idle"])
    rows = ranking.in_order(rows, _SHOWN)
    whole = ranking.everywhere(tape, gpu.card)
    whole += _unpriced(run, begin, end)
    if snapshot is not None and len(run.grown) > 2:
        whole += _growth(memory.leaks(snapshot, run.grown))
    return Report(
        run, step_s, statistics.median(lengths) / 1e9, max(lengths) / 1e9, steps, dict(host), dict(device), sum(w.flops for w in of_step) // steps, kind,
        sum(_ideal_s(w, gpu.card) for w in of_step) / steps, rows, memory.peak(snapshot) if snapshot else None,
        whole, _warnings(run, begin, end),
    )  # fmt: skip


def _growth(leaks: Iterable[memory.Leak]) -> list[Row]:
    """What stays in memory after every step: one row for all of it, with the lines that made most of it."""
    grows = [leak for leak in leaks if leak.grows]
    if not grows:
        return []
    more = sum(sum(leak.per_step[1:]) / (len(leak.per_step) - 1) for leak in grows)
    sites = ", ".join(leak.site for leak in sorted(grows, key=lambda leak: -leak.bytes)[:3])
    return [Row(None, "grows", 0.0, f"{size_text(more)} more after each step, made at {sites}")]


def _now_and_then(run: Run, begin: Bound, end: Bound, told: set[Place | None]) -> list[Row]:
    """Forward passes that no backward pass follows and that not every step makes, an evaluation or samples, and their loaders."""
    line, marks, steps = run.gpu._machine.line, run.marks, len(run.bounds) - 1 - run.warm
    host, device, kernels, loading = (defaultdict[Place, int](int) for _ in range(4))
    used = set[Place | None]()
    for i in range(begin.host, end.host):
        mark, record = marks.of(i), line.host[i]
        if mark.backward:
            used.add(mark.within)
        elif mark.within is not None:
            loads = record.kind == "work" and record.name in (LOADER, WAITING)
            if loads or record.kind == "operator" or record.name in MEASURED:
                (loading if loads else host)[mark.within] += record.end_ns - record.start_ns
    for kernel in line.kernels[begin.kernels : end.kernels]:
        mark = marks.of(kernel.call)
        if mark.within is not None:
            device[mark.within] += kernel.end_ns - kernel.start_ns
            kernels[mark.within] += 1
    rows = []
    for place in device.keys() - used - told:
        took = max(host[place], device[place]) / steps / 1e9
        evidence = f"{kernels[place] / steps:.0f} kernels in a step on average, not in every step" + (
            ", with autograd on" if place in marks.recorded else ""
        )
        rows.append(Row(place, "unused", took, evidence, {}, took, took))
    for place, ns in loading.items():
        if place not in told:
            took = ns / steps / 1e9
            evidence = f"{1e3 * took:.2f} ms of the host in a step on average, not in every step"
            rows.append(Row(place, "loader", took, evidence, {}, took, took))
    return rows


def _behind_workers(run: Run, begin: Bound, end: Bound, told: set[Place | None], busy_s: float) -> list[Row]:
    """Lines of a data set whose workers keep up with the step as it is, and would not with one as long as the device's work."""
    took: dict[Place, float] = defaultdict(float)
    for record, place, seconds in run.worked:
        if begin.host <= record < end.host:
            took[place] += seconds / run.measured
    most = max(took.values(), default=0.0)
    return [
        Row(
            place,
            "workers",
            s,
            f"{1e3 * s:.2f} ms of each worker in a step, measured here",
            hidden_s=s - busy_s,
        )
        for place, s in took.items()
        if place not in told and s > max(busy_s, most / 10)
    ]


def _unpriced(run: Run, begin: Bound, end: Bound) -> list[Row]:
    """What slows a real card down, and costs nothing on the simulated one."""
    rows = []
    lines = Counter(place for record, place in run.marks.nchw if begin.host <= record < end.host)
    if lines:
        many, steps = sum(lines.values()), len(run.bounds) - 1 - run.warm
        where = ", ".join(str(place) for place, _ in lines.most_common(3))
        rows.append(Row(None, "layout", 0.0, f"{many / steps:.0f} in a step, at {where}"))
    rows += [
        Row(None, "switch", 0.0, switch)
        for switch in run.switches
        if "anomaly" not in switch and BLOCKING not in switch
    ]
    return rows


def _side(name: str, kind: str) -> str:
    if kind in ("sync", "queue full"):
        return "waiting for the GPU"
    if kind == "work" and name in MEASURED:
        return name
    return "launching" if kind in ("operator", "launch", "work") else "other"


def _busy(kernels: Iterable[Any]) -> float:
    """Seconds in which the device did anything."""
    busy, until = 0, 0
    for start, end in sorted((k.start_ns, k.end_ns) for k in kernels):
        busy += max(0, end - max(start, until))
        until = max(until, end)
    return busy / 1e9


def _works(run: Run) -> dict[int, Work]:
    """What each kernel had to do, by its number: in the order of launch, as the cost model was asked."""
    given, found = iter(run.gpu._machine.works or ()), dict[int, Work]()
    for number, kernel in enumerate(run.gpu.kernels):
        if kernel.kind == "kernel" and not kernel.graph:
            for work in given:
                if (work.flops, work.bytes) == (kernel.flops, kernel.bytes):
                    found[number] = work
                    break
    return found


def _peak_kind(works: Iterable[Work], peaks: dict[str, float]) -> str:
    """The arithmetic that most FLOPs were done in: the peak that MFU is a share of."""
    flops: dict[str, int] = defaultdict(int)
    for work in works:
        flops[work.kind if work.kind in peaks else "fp32"] += work.flops
    return max(flops, key=lambda kind: flops[kind], default="fp32")


def _ideal_s(work: Work, card: Any) -> float:
    peak = card.peak_flops.get(work.kind, card.peak_flops["fp32"])
    return float(max(work.flops / peak, work.bytes / card.memory_bytes_per_s))


def _typical(run: Run, steps: int) -> int:
    """The bound that ends the most usual of all stretches of so many measured steps: an evaluation, a checkpoint or a
    busy moment of this machine in one of them would be taken for what each step does."""
    at = [bound.at_ns for bound in run.bounds]
    lengths = [after - before for before, after in itertools.pairwise(at)]
    if run.workers > 1:  # some steps wait for all workers, and those behind them for none
        of_all = {n: at[n] - at[n - steps] for n in range(max(run.warm + steps, steps + 1), len(at))}
        usual = statistics.median(of_all.values())
        return min(of_all, key=lambda n: (abs(of_all[n] - usual), -n))
    usual = statistics.median(lengths[run.warm :])
    ends = range(max(run.warm + steps, steps + 1), len(at))
    return min(ends, key=lambda n: (max(abs(took - usual) for took in lengths[n - steps : n]), -n))


def _tape(run: Run, works: dict[int, Work]) -> tuple[replay.Tape, Place | None]:
    """The last steps' records, and the line that ends a step."""
    line, marks = run.gpu._machine.line, run.marks
    each = (run.bounds[-1].host - run.bounds[run.warm].host) // run.measured
    wanted = max(1, round(_REPLAYED / (run.workers or 1))) * (run.workers or 1)  # each worker's turn as often
    steps = max(1, min(wanted, run.measured, len(run.bounds) - 2, _RECORDS // max(1, each) - 1))
    last_bound = _typical(run, steps)
    begin, warm, end = (run.bounds[last_bound - back] for back in (steps + 1, steps, 0))
    costs, emptied = list[replay.Cost](), None
    for i in range(begin.host, end.host):
        record, mark = line.host[i], marks.of(i)
        kind = record.kind
        if record.name == "cudaFree":
            emptied = mark
        if record.name == "cudaMalloc":  # what was given back is asked for again
            kind, mark = "wait", emptied or mark
        elif kind == "sync" or record.name == "cudaFree":
            kind = "wait"
        elif kind == "work":
            kind = record.name if record.name in MEASURED else "stage"
        elif kind == "launch":
            kind = "operator"
        costs.append(replay.Cost(mark.place, kind, mark.backward, False, mark.within))
    kernel_costs = []
    for kernel in line.kernels[begin.kernels : end.kernels]:
        mark = marks.of(kernel.call)
        kinds = {"copy h2d": "h2d", "copy d2h": "d2h", "collective": "collective"}
        kind, wide = kinds.get(kernel.kind, "kernel"), kernel.call in marks.wide
        kernel_costs.append(replay.Cost(mark.place, kind, mark.backward, wide, mark.within))
    span = begin.host, end.host, begin.kernels, end.kernels
    last = [c.place for c in costs if ".step(" in c.place.text]
    tape = replay.tape(run.gpu, costs, kernel_costs, works, span, warm.host, steps)
    return tape, last[-1] if last else None


def _warnings(run: Run, begin: Bound, end: Bound) -> list[str]:
    """What the run could not see, or saw under conditions that a reader must know."""
    gpu, said = run.gpu, []
    said += [
        f"{switch} is on: it is for looking for mistakes, and every step pays for it (lesson 00)"
        for switch in run.switches
    ]
    said += _values_said(run, begin, end)
    if run.unsaved:
        paths = ", ".join(run.unsaved[:3]) + (" …" if len(run.unsaved) > 3 else "")
        said.append(
            f"not written, so that no checkpoint of yours is lost: {paths}. All else that the script writes, it writes"
        )
    said += [f"on the simulated GPU: {fault}" for fault in gpu.faults[:5]]
    said += [
        f"{place} calls a recurrent layer, which runs step by step here: on a card, cuDNN takes far fewer launches for it"
        for place in sorted(run.marks.recurrent)
    ]
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if run.factor and busy > (os.cpu_count() or 1):
        said.append(
            f"{_BUSY} (load {busy:.0f} on {os.cpu_count()} cores): Python and loader times are too long"
        )
    if run.ended:
        said.append(f"fewer steps than asked for: {run.ended}")
    said.append(
        f"Python and loader times are those of this machine × {run.factor:g}; a faster or slower host: --host-factor. "
        "A first call's set-up is left out with the warm-up"
    )
    return said


def _values_said(run: Run, begin: Bound, end: Bound) -> list[str]:
    """Which branches a value decided that was not there."""
    if run.values is not None:
        return [
            f"values are not known from {place} on ({operator}: {why}): they read as 0 there"
            for (place, operator), why in run.values.lost.items()
        ]
    waits = [i for i in range(begin.host, end.host) if run.gpu.host[i].kind == "sync"]
    asked = sorted({place for i in waits if (place := run.marks.of(i).place).file})
    branches = [p for p in asked if syntax.lines(p.file).get(p.line, syntax.Stands()).asks]
    if not branches:
        return []
    where = ", ".join(f"{p} `{p.text[:50]}`" for p in branches[:5])
    return [
        f"tensors have no values here (each reads as 0; --values), so these branches went one way: {where}"
    ]
