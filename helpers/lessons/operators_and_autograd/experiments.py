"""Lesson 02: sizes and cards for the crossover, launches counted, graphs walked, tensors changed in place, and the tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import helpers.calibration.recorded
import helpers.lessons.operators_and_autograd.recorded  # noqa: F401 - their experiments are known by their names
from helpers import bench, count, recordings
from helpers.counters import Counts
from helpers.lessons.operators_and_autograd.graph import graph_of
from helpers.lessons.operators_and_autograd.overhead import fit_overhead
from helpers.pytorch import private_torch
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

#: numbers of elements for which an operator is timed: on this CPU, and on a GPU
SIZES = [10**k for k in range(7)]
GPU_SIZES = [10**k for k in range(9)]


# --- one line, how many operators ---------------------------------------------------------------------------------


def few_or_many(counted: Mapping[str, Counts]) -> dict[str, str]:
    """Of each line's operators: "1", "2 to 4" or "5 or more"."""
    numbers = {line: c.operators for line, c in counted.items()}
    return {line: "1" if n == 1 else "2 to 4" if n < 5 else "5 or more" for line, n in numbers.items()}


def which_operators(counted: Mapping[str, Counts]) -> Table:
    """Each line's operators, how many of them are views, and their names."""
    rows = [
        (f"`{line}`", c.operators, c.views, ", ".join(f"{_short(k)} ×{n}" for k, n in c.by_operator.items()))
        for line, c in counted.items()
    ]
    return table(rows, ["line", "operators", "of these, views", "which"], evidence="live (CPU)")


def _short(operator: str) -> str:
    return operator.removeprefix("aten.")


# --- overhead against size ----------------------------------------------------------------------------------------


def fastest(fn: Callable[..., Any], *args: Any) -> float:
    """Seconds of the fastest of many runs: so short a call can be disturbed, and then it is slower."""
    return min(bench(fn, *args, min_run_time=0.05, num_threads=1).samples_s)


def crossing(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Elements at which call and work take the same time, one after the other: the ring of the picture."""
    floor_s, slope_s = fit_overhead(sizes, seconds)
    return floor_s / slope_s


def bandwidth(card: Any) -> float:
    """Bytes per second that an element-by-element kernel reaches on a simulated card."""
    return float(card.reached("elementwise").bandwidth_share * card.memory_bytes_per_s)


def crossing_on(card: Any) -> int:
    """Launch × bandwidth ÷ bytes: the elements whose bytes (of x + y: 8 read, 4 written) move during one launch."""
    return round(card.assumptions.operator_s * bandwidth(card) / (8 + 4))


def times(calls: Mapping[str, Callable[[], Any]]) -> Table:
    """The fastest of many runs of each call, on this CPU."""
    rows = [(what, f"≈ {format_seconds(fastest(call))}") for what, call in calls.items()]
    return table(rows, ["with one element", "time per call"], evidence="live (CPU)")


# --- written out, and as PyTorch has it ---------------------------------------------------------------------------


class Ran(NamedTuple):
    """What a function did on a simulated GPU. largest: which of launches, bytes and arithmetic would take longest by itself."""

    launches: int
    bytes: int
    seconds: float
    largest: str


def ran(gpu: Any, fn: Callable[..., Any], *inputs: Tensor) -> Ran:
    """One run of fn with warm kernels, to the end of its work."""
    fn(*inputs)
    run, card = stretch(gpu, lambda: fn(*inputs)), gpu.card
    launched, flops = len(run.kernels), sum(k.flops for k in run.kernels)
    parts = {
        "launches": launched * card.assumptions.operator_s,
        "bytes": run.bytes / bandwidth(card),
        "arithmetic": flops / (card.reached("matmul").flop_share * card.peak_flops["fp32"]),
    }
    return Ran(launched, run.bytes, run.seconds, max(parts, key=lambda part: parts[part]))


Fused = dict[str, tuple[Ran, Ran]]


def about(elements: float) -> str:
    """The nearest of four sizes, by ratio: "100", "10 thousand", "1 million" or "100 million"."""
    sizes = {"100": 1e2, "10 thousand": 1e4, "1 million": 1e6, "100 million": 1e8}
    return min(sizes, key=lambda name: abs(math.log(elements / sizes[name])))


def both_ways(gpu: Any, norm: Any, entropy: Any, attention: Any) -> Fused:
    """Five computations in sizes that fit a layer: (written out, as PyTorch has it), in the order of the prediction."""
    with gpu:

        def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.ones(shape, device=gpu.device, dtype=dtype)

        x, row, labels = ones(512, 1024), ones(1024), ones(512, dtype=torch.int64)
        heads = [ones(8, 16, 512, 64) for _ in range(3)]
        norms = (x, row, ones(1024))
        return {
            "a + b * c": _pair(gpu, lambda a, b, c: a + b * c, torch.addcmul, x, x.clone(), x.clone()),
            "x @ w.t() + b": _pair(gpu, lambda x, w, b: x @ w.t() + b, F.linear, x, ones(1024, 1024), row),
            "norm_by_hand": _pair(gpu, norm, lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b), *norms),
            "entropy_by_hand": _pair(gpu, entropy, F.cross_entropy, ones(512, 1000), labels),
            "attention_by_hand": _pair(gpu, attention, F.scaled_dot_product_attention, *heads),
        }


def _pair(gpu: Any, by_hand: Any, existing: Any, *inputs: Tensor) -> tuple[Ran, Ran]:
    return ran(gpu, by_hand, *inputs), ran(gpu, existing, *inputs)


def launches(fused: Fused) -> dict[str, str]:
    """Of each written-out form: "1 to 3", "4 to 6" or "7 or more"."""
    numbers = {name: hand.launches for name, (hand, _) in fused.items()}
    return {name: "1 to 3" if n < 4 else "4 to 6" if n < 7 else "7 or more" for name, n in numbers.items()}


def what_fusion_gives(fused: Fused, evidence: str) -> Table:
    """Launches, bytes, time, and which of launches, bytes and arithmetic is largest: written out → as PyTorch has it."""
    rows = [
        (
            name,
            f"{hand.launches} → {has.launches}",
            f"{hand.bytes / 1e6:.1f} → {has.bytes / 1e6:.1f}",
            f"{hand.seconds * 1e6:.1f} → {has.seconds * 1e6:.1f}",
            f"{hand.largest} → {has.largest}",
        )
        for name, (hand, has) in fused.items()
    ]
    columns = [
        "written out → PyTorch's operator",
        "launches",
        "MB moved",
        "time, µs",
        "largest of launches, bytes, arithmetic",
    ]
    caption = "forward only; the time includes the way to the GPU and one synchronize"
    return table(rows, columns, evidence=evidence, caption=caption)


@dataclass(frozen=True)
class Real:
    """x + y on a recorded GPU: seconds by size, what a call takes, and the elements at which the memory takes as long."""

    evidence: str
    sizes: list[int]
    seconds: list[float]

    @property
    def launch_s(self) -> float:
        return min(self.seconds)

    @property
    def crossing(self) -> float:
        return self.launch_s / self.seconds[-1] * self.sizes[-1]

    @property
    def bytes_per_s(self) -> float:
        return 12 * self.sizes[-1] / self.seconds[-1]


def on_real_card(prefer: str = "recorded") -> Real:
    run = recordings.show("02/crossover", prefer=prefer)
    rows = run.table or []
    return Real(run.evidence, [row["elements"] for row in rows], [row["us"] / 1e6 for row in rows])


def longer_part(operators: Mapping[str, int], real: Real) -> dict[str, str]:
    """Of each operator, by the bytes that it moves: "the call" or "the bytes"."""
    return {
        what: "the bytes" if moved / real.bytes_per_s > real.launch_s else "the call"
        for what, moved in operators.items()
    }


def moved_and_time(operators: Mapping[str, int], real: Real) -> Table:
    """The bytes that each operator moves, the time that these take the card's memory, and that of a call."""
    rows = [
        (what, f"{moved / 1e6:.2f}", f"{moved / real.bytes_per_s * 1e6:.2f}", f"{real.launch_s * 1e6:.1f}")
        for what, moved in operators.items()
    ]
    columns = ["operator", "MB moved", "÷ bandwidth, µs", "a call of x + y, µs"]
    return table(rows, columns, evidence=real.evidence)


def recorded_calls() -> tuple[dict[str, float], Table]:
    """Recorded calls on tiny tensors, many in a row: each one's microseconds with autograd; and these beside those without."""
    recording = recordings.show("calibration/launches", prefer="recorded")
    times = {(row["call"], row["autograd"]): row["us"] for row in recording.table or ()}
    called = list(dict.fromkeys(name for name, _ in times))
    rows = [
        (
            name,
            *(
                f"{recording.about}{times[name, on]:.1f}" if (name, on) in times else "—"
                for on in (False, True)
            ),
        )
        for name in called
    ]
    columns = ["a call on tiny tensors", "without autograd, µs", "with, µs"]
    shown = table(rows, columns, evidence=recording.evidence)
    return {name: times[name, True] for name in called}, shown


def what_fusion_gave() -> Table:
    """The five computations on a recorded GPU: kernels and time, written out → as PyTorch has it."""
    recording = recordings.show("02/fused", prefer="recorded")
    by: dict[str, list[dict[str, Any]]] = {}
    for row in recording.table or ():
        by.setdefault(row["computation"], []).append(row)
    rows = [
        (
            name,
            f"{hand['kernels']} → {has['kernels']}",
            f"{recording.about}{hand['us']:.0f} → {has['us']:.0f}",
            f"{recording.about}{hand['us'] / has['us']:.1f} ×",
        )
        for name, (hand, has) in by.items()
    ]
    columns = ["written out → PyTorch's operator", "kernels", "time, µs", "times as fast"]
    return table(rows, columns, evidence=recording.evidence, caption="forward only, many calls in a row")


# --- graphs -------------------------------------------------------------------------------------------------------


def branch(x: Tensor) -> Tensor:
    return (x.exp() * x if x.sum() > 0 else x * 3).sum()


def loop(x: Tensor) -> Tensor:
    while x.norm() < 100:
        x = x * x + 1
    return x.sum()


def early_exit(x: Tensor) -> Tensor:
    total = x.sum() * 0
    for value in x:
        if value < 0:
            break
        total = total + value**2
    return total


#: programs that decide by looking at their data, and five inputs for each
PROGRAMS = (branch, loop, early_exit)
POINTS = [torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(5)]


def right_gradients(program: Callable[[Tensor], Tensor]) -> int:
    """For how many of POINTS backward agrees with finite differences."""
    return sum(torch.autograd.gradcheck(program, p.clone().requires_grad_()) for p in POINTS)


def deciding() -> Table:
    """Of each program: right gradients, the nodes of its graph and the syncs, input by input."""
    rows = []
    for program in PROGRAMS:
        runs = [count(program, p.clone().requires_grad_()) for p in POINTS]
        nodes = ", ".join(str(len(graph_of(run.result))) for run in runs)
        syncs = ", ".join(str(run.syncs) for run in runs)
        rows.append((program.__name__, f"{right_gradients(program)} of {len(POINTS)}", nodes, syncs))
    columns = ["program", "right gradients", "nodes, input by input", "syncs, input by input"]
    return table(rows, columns, evidence="live (CPU)")


# --- in place -----------------------------------------------------------------------------------------------------

_W = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
#: operators whose input or result is changed before backward
CODES = [
    *("x + 1", "2 * x", "x * x", "x.exp()", "x.log()", "x.sqrt()", "x.sin()", "x.tanh()", "x.sigmoid()"),
    *("F.silu(x)", "F.gelu(x)", "x.softmax(-1)", "F.layer_norm(x, (8,))", "x.clamp(0.6, 1.2)"),
    *("x @ W", "x.mean(1)", "x.cumsum(1)", "torch.cat([x, x])"),
]
Change = Callable[[Tensor], Any]
#: (the change, "input" or "result", the operator) → "raises", "fine" or "wrong"
Outcomes = dict[tuple[str, str, str], str]


def under_no_grad(t: Tensor) -> None:
    with torch.no_grad():
        t.add_(1)


def by_numpy(t: Tensor) -> None:
    t.detach().numpy()[...] += 1


#: ways to add 1 in place; the last two are not seen by the version check
CHANGES: dict[str, Change] = {
    "t.add_(1)": lambda t: t.add_(1),
    "t.add_(1) under no_grad": under_no_grad,
    "t.detach().add_(1)": lambda t: t.detach().add_(1),
    "t.data.add_(1)": lambda t: t.data.add_(1),
    "t.detach().numpy()[...] += 1": by_numpy,
}


def gradient(code: str, which: str = "", change: Change | None = None) -> Tensor:
    """d(random sum of op(x))/dx at a fixed x, with `change` done to x or to op(x) before backward."""
    generator = torch.Generator().manual_seed(2)
    leaf = (torch.rand(8, 8, generator=generator) + 0.5).requires_grad_()
    x = leaf * 1.0
    y = eval(code, {"torch": torch, "F": F, "W": _W, "x": x})
    if change is not None:
        change({"input": x, "result": y}[which])
    y.backward(torch.randn(y.shape, generator=generator))
    assert leaf.grad is not None
    return leaf.grad


def outcome(code: str, which: str, change: Change) -> str:
    """Whether backward "raises", or its gradient is "fine" or "wrong"."""
    try:
        got = gradient(code, which, change)
    except RuntimeError:
        return "raises"
    return "fine" if torch.allclose(got, gradient(code)) else "wrong"


@cache
def outcomes() -> Outcomes:
    """Every change, done to the input and to the result of every operator of CODES."""
    return {
        (name, which, code): outcome(code, which, change)
        for name, change in CHANGES.items()
        for which in ("input", "result")
        for code in CODES
    }


def by_change(endings: Outcomes) -> Table:
    """What became of the gradients, change by change."""

    def counted(change: str, which: str) -> str:
        kinds = Counter(endings[change, which, code] for code in CODES)
        return " · ".join(f"{kinds[kind]} {kind}" for kind in ("raises", "fine", "wrong"))

    rows = [(f"`{change}`", counted(change, "input"), counted(change, "result")) for change in CHANGES]
    columns = ["the change", "done to the operator's input", "done to its result"]
    return table(rows, columns, evidence="live (CPU)", caption=f"{len(CODES)} operators each")


def needed(endings: Outcomes) -> Table:
    """Which operators raise when their input, and which when their result is changed: what their nodes keep."""
    rows = [
        (which, ", ".join(code for code in CODES if endings["t.add_(1)", which, code] == "raises"))
        for which in ("input", "result")
    ]
    return table(rows, ["the node keeps its", "operators"], evidence="live (CPU)")


# --- with and without a graph -------------------------------------------------------------------------------------

#: what is called "a mode" in the text
MODES: dict[str, Callable[[], Any]] = {
    "with a graph": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def in_each_mode(fn: Callable[[], Any]) -> dict[str, Counts]:
    """fn counted in each of MODES."""
    counted = {}
    for name, mode in MODES.items():
        with mode():
            counted[name] = count(fn)
    return counted


def compare_modes(counted: Mapping[str, Counts]) -> Table:
    """The counters of each mode, the time of fifty tiny adds, and the stops of a tensor made in it."""
    start, step = torch.rand(1), torch.rand(1, requires_grad=True)

    def tiny(mode: Callable[[], Any]) -> None:
        with mode():
            h = start
            for _ in range(50):
                h = h + step

    # in turns: lesson 00
    turns = [{name: fastest(tiny, mode) for name, mode in MODES.items()} for _ in range(3)]
    rows = []
    for name, c in counted.items():
        with MODES[name]():
            stops = str(private_torch.dispatch_keys(torch.empty(1))).removeprefix("DispatchKeySet")
        clock = f"≈ {format_seconds(min(turn[name] for turn in turns))}"
        rows.append((name, c.operators, c.saved_bytes, c.peak_live_bytes, clock, stops))
    columns = ["", "operators", "bytes kept", "peak live bytes", "50 tiny adds", "stops of a new tensor"]
    return table(rows, columns, evidence="live (CPU)")


def each_tried(lines: Sequence[str], scope: Mapping[str, Any]) -> Table:
    """What each line gives, or the first sentence of what it raises."""
    rows = []
    for line in lines:
        try:
            rows.append((f"`{line}`", f"works, and gives a {type(eval(line, dict(scope))).__name__}"))
        except RuntimeError as error:
            rows.append((f"`{line}`", f"raises: {str(error).partition('.')[0]}."))
    return table(rows, ["line", "what happens"], evidence="live (CPU)")


# --- what stays alive ---------------------------------------------------------------------------------------------


def peaks(train: Callable[..., Any]) -> Table:
    """Peak live bytes of a training by the number of its steps; batch 64, width 256."""
    rows = []
    for n in (2, 8, 32):
        g = torch.Generator().manual_seed(0)
        w1, w2 = torch.randn(32, 256, generator=g) / 6, torch.randn(256, 4, generator=g) / 16
        xs, ys = torch.randn(n, 64, 32, generator=g), torch.randn(n, 64, 4, generator=g)
        rows.append((n, count(train, w1, w2, xs, ys).peak_live_bytes))
    columns = ["steps", f"peak live bytes of {train.__name__}"]
    return table(rows, columns, evidence="live (CPU)", caption="batch 64, width 256")
