"""Lesson 05, streams and double buffering: loops and programs run on the simulated GPU, and their tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import helpers.lessons.streams_and_double_buffering.recorded  # noqa: F401 - its experiments are known by their names
from helpers import recordings, simulate, trace
from helpers.plots.lanes import Work, timeline
from helpers.plots.picture import Picture
from helpers.simulator import DEVICES, Kernel, Race
from helpers.text.seconds import approx, format_seconds
from helpers.text.tables import Table, table

if TYPE_CHECKING:
    from helpers.running_example import Board

#: a batch of float32: 64 MiB
BATCH = (4096, 4096)
EVIDENCE = "simulated (H100)"

Load = Callable[[Any, Sequence[torch.Tensor]], Iterable[torch.Tensor]]
"""(gpu, batches on the host) → batches on the GPU"""


def pcie_gbs() -> float:
    """GB/s of an H100's bus, as its generation of PCIe has in one direction."""
    return DEVICES["H100"].pcie_bytes_per_s / 1e9


# --- one copy -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """A copy to the GPU. held_s: how long its call held the host; copy_s, nbytes: the copy itself; beside_s: how long a
    kernel ran at the same time; queued_s: the kernels that were in the queue before it."""

    held_s: float
    copy_s: float
    nbytes: int
    beside_s: float
    queued_s: float

    @property
    def gbs(self) -> float:
        return self.nbytes / self.copy_s / 1e9

    @property
    def host(self) -> str:
        """What the host does: "waits" or "goes on"."""
        return "waits" if self.held_s > 1e-3 else "goes on"


def copy_of(held_s: float, ran: Sequence[Kernel]) -> Copy:
    """ran: kernels and one copy to the device, in the order of their launch."""
    place = next(i for i, k in enumerate(ran) if k.kind == "copy h2d")
    copy, kernels = ran[place], [k for k in ran if k.kind == "kernel"]
    overlaps = [min(copy.end_ns, k.end_ns) - max(copy.start_ns, k.start_ns) for k in kernels]
    beside = sum(max(0, ns) for ns in overlaps) / 1e9
    return Copy(held_s, copy.duration_s, copy.bytes, beside, sum(k.duration_s for k in ran[:place]))


def each_call(copy_behind: Callable[[bool, bool], Copy]) -> dict[str, Copy]:
    """call → its copy. copy_behind: (pinned, non_blocking) → a copy behind kernels."""
    calls = ("pageable", "pageable, non_blocking=True", "pinned", "pinned, non_blocking=True")
    return {call: copy_behind("pinned" in call, "non_blocking" in call) for call in calls}


def copies_table(copies: Mapping[str, Copy]) -> Table:
    """call → what it did."""
    rows = [
        (call, format_seconds(c.held_s), format_seconds(c.copy_s), f"{c.gbs:.0f} GB/s", format_seconds(c.beside_s))
        for call, c in copies.items()
    ]  # fmt: skip
    columns = ["call", "holds the host for", "the copy itself", "rate", "beside a kernel"]
    return table(rows, columns, evidence=EVIDENCE)


# --- loops --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A loop over batches. step_s: seconds a step; ran: kernels and copies; grown: bytes of memory that the allocator
    took from the card meanwhile; races: what nothing orders."""

    step_s: float
    ran: list[Kernel]
    grown: int
    races: list[Race]

    @property
    def copy_s(self) -> float:
        return next(k.duration_s for k in self.ran if k.kind == "copy h2d")

    @property
    def product_s(self) -> float:
        return next(k.duration_s for k in self.ran if k.kind == "kernel")

    @property
    def nearer(self) -> str:
        """Which the step's time is nearer to: "sum" or "max" of a copy and a product."""
        total, larger = self.copy_s + self.product_s, max(self.copy_s, self.product_s)
        return "sum" if abs(self.step_s - total) < abs(self.step_s - larger) else "max"


def run(
    load: Load, *, shape: tuple[int, int] = BATCH, pinned: bool = True, item: bool = False, steps: int = 20
) -> Loop:
    """Take batches from a loader, and multiply each by a square matrix. item: each step looks at its result.

    Races are noted, and not raised.
    """
    gpu = simulate("H100", strict=False)
    with gpu:
        w = torch.empty(shape[1], shape[1], device=gpu.device)
        (w @ w)[0, 0].item()  # set-up
        host = [torch.empty(shape, pin_memory=pinned) for _ in range(steps)]
        held, first, start = gpu.memory_reserved(), len(gpu.kernels), gpu.clock()
        for x in load(gpu, host):
            y = x @ w
            if item:
                y[0, 0].item()
            del x, y
        gpu.synchronize()
        step, grown = (gpu.clock() - start) / steps, gpu.max_memory_reserved() - held
    return Loop(step, gpu.kernels[first:], grown, gpu.races)


def loops_table(loops: Mapping[str, Loop]) -> Table:
    """C, K, their sum, the larger, and what a step took."""
    rows = [
        (name, *map(format_seconds, (c, k, c + k, max(c, k), step_s)))
        for name, c, k, step_s in (
            (name, loop.copy_s, loop.product_s, loop.step_s) for name, loop in loops.items()
        )
    ]
    return table(rows, ["loop", "C", "K", "C + K", "max(C, K)", "a step"], evidence=EVIDENCE)


def queues_picture(loads: Mapping[str, Load]) -> Picture:
    """Loops one under the other: in one queue, or the products below the copies."""
    bars = [bar for name, load in loads.items() for bar in _bars(name, run(load, steps=4).ran, "product")]
    title = "Four steps: in two queues, each copy but the first runs beside a product"
    return timeline(bars, evidence=EVIDENCE, links=False, title=title)


def _bars(name: str, ran: Sequence[Kernel], kernel: str) -> list[Work]:
    """Bars for copies and kernels, from the first launch on, with a lane for each stream: "name", or "name: side"."""
    start, streams = ran[0].launch_ns, {k.stream for k in ran}
    return [
        (
            kernel if k.kind == "kernel" else "copy",
            name if len(streams) == 1 else f"{name}: {'side' if k.stream else 'default'}",
            (k.start_ns - start) / 1e9,
            (k.end_ns - start) / 1e9,
        )
        for k in ran
    ]


def memory_table(loops: Mapping[str, Loop]) -> Table:
    """What loaders take from the card, in batches, and their races."""
    rows = [
        (name, batches(loop), ", ".join(r.kind for r in loop.races) or "none", format_seconds(loop.step_s))
        for name, loop in loops.items()
    ]
    columns = ["loader", "batches of memory", "race", "a step"]
    return table(rows, columns, evidence=EVIDENCE, caption="20 batches of 64 MiB")


def batches(loop: Loop) -> int:
    """The memory that a loop took from the card, in batches of 64 MiB."""
    return round(loop.grown / 2**26)


# --- races --------------------------------------------------------------------------------------------------------

Program = Callable[[Any, Any, torch.Tensor], Any]
"""(gpu, another stream, a pinned page)"""


def try_program(program: Program, *more: Any) -> Any:
    """The simulated GPU on which it ran; races are noted."""
    gpu = simulate("H100", strict=False, kernel_load_s=0.0)
    with gpu:
        program(gpu, gpu.Stream(), torch.empty(BATCH, pin_memory=True), *more)
    return gpu


def verdict(gpu: Any) -> str:
    """ "race" or "safe"."""
    return "race" if gpu.races else "safe"


def days_picture(gpus: Mapping[str, Any]) -> Picture:
    """day → the GPU on which a program ran that copies in one stream and computes in another."""
    bars = [bar for day, gpu in gpus.items() for bar in _bars(day, gpu.kernels, "relu")]
    title = "One program, two days: on Tuesday relu reads what has not arrived"
    return timeline(bars, evidence=EVIDENCE, links=False, title=title)


def try_pages(program: Callable[[Any, list[torch.Tensor]], Any], on_gpu: bool = False) -> Any:
    """The same for a program that takes four pages, or four tensors on the GPU."""
    gpu = simulate("H100", strict=False)
    with gpu:
        where = {"device": gpu.device} if on_gpu else {"pin_memory": True}
        pages = [torch.empty(2048, 2048, **where) for _ in range(4)]
        torch.empty(2048, 2048, device=gpu.device).zero_()  # dropped at once
        program(gpu, pages)
    return gpu


def races_table(gpus: Mapping[str, Any]) -> Table:
    """program → each race that its GPU saw, and between whom."""
    rows = []
    for name, gpu in gpus.items():
        races = [
            (r.kind, f"{r.first.name} on {r.first.lane}", f"{r.second.name} on {r.second.lane}")
            for r in gpu.races
        ]
        rows += [(name, *race) for race in races or [("none", "", "")]]
    return table(rows, ["program", "race", "first", "second"], evidence=EVIDENCE)


# --- the running example -------------------------------------------------------------------------------------------


def time_and_waits(board: Board) -> Table:
    """Of a comparison of two scripts the rows that matter here, and whether both train alike."""
    whole = board.table()
    rows = [row for row in whole.rows if row[0] in ("time", "syncs")]
    return table(rows, whole.columns, evidence=whole.evidence, caption=whole.caption)


# --- on a real GPU ------------------------------------------------------------------------------------------------


class RealLoop(NamedTuple):
    """Of one step of a recorded loop: seconds, of them copying, of that beside kernels, and without a kernel."""

    evidence: str
    step_s: float
    copy_s: float
    hidden_s: float
    idle_s: float


def real_loops(names: Sequence[str]) -> dict[str, dict[str, RealLoop]]:
    """loop → "simulated", "recorded" and, where there is a GPU, "live"."""
    return {
        name: {result.kind: _real(result) for result in recordings.side_by_side(f"05/{name}")}
        for name in names
    }


def _real(result: recordings.Result) -> RealLoop:
    assert result.trace is not None
    o, steps = trace.overlap(result.trace), len(trace.steps(result.trace))
    seconds = (o.span, o.copy, o.copy_and_compute, o.span - o.compute)
    return RealLoop(result.evidence, *(s / steps for s in seconds))


def real_table(loops: Mapping[str, Mapping[str, RealLoop]]) -> Table:
    """Each loop of real_loops as each machine ran it: a step, its copy, and how much of that is hidden."""
    rows = []
    for name, runs in loops.items():
        for kind, run in runs.items():
            about = approx(run.evidence)
            times = (f"{about}{format_seconds(s)}" for s in (run.step_s, run.copy_s, run.idle_s))
            hidden = f"{about}{run.hidden_s / run.copy_s:.0%}"
            rows.append((name, kind, *times, hidden))
    columns = ["loop", "run", "a step", "of it copying", "without a kernel", "of the copy hidden"]
    evidence = " · ".join(run.evidence for run in next(iter(loops.values())).values())
    return table(rows, columns, evidence=evidence)
