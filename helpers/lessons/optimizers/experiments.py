"""Lesson 06: what an optimizer's step costs, when gradients live, what a larger batch buys and what it asks of the rate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from helpers import plots, recordings, simulate
from helpers.lessons.optimizers.recorded import WAYS
from helpers.plots import Picture, lanes
from helpers.recordings import Result
from helpers.simulator.devices import Device
from helpers.simulator.stretch import Stretch, stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

SIMULATED, LIVE = "simulated (H100)", "live (CPU)"


# --- one step of the optimizer ------------------------------------------------------------------------------------


step_on = stretch


def costs(steps: Mapping[str, Stretch], sizes: Sequence[int]) -> Table:
    """A row for each way: kernels, bytes moved, temporaries; and how far its weights are from the for-loop's."""
    weights, loop = sum(sizes), _trained(sizes, **WAYS["for-loop"])
    rows = []
    for way, step in steps.items():
        off = float((_trained(sizes, **WAYS[way]) - loop).abs().max())
        moved, temporary = f"{step.bytes / weights:.0f}", f"{step.temporary / 4 / weights:.2f}"
        rows.append((way, len(step.kernels), moved, temporary, f"≈ {off:.0e}" if off else "0"))
    return table(
        rows,
        ["way", "kernels", "bytes moved per weight", "temporaries ÷ all weights", "differs by"],
        evidence=f"{LIVE} · {SIMULATED}",
        caption=f"{len(sizes)} parameters in float32, {weights:,} weights. Differs by: the largest difference of a "
        "weight from the for-loop's, after three steps on this CPU, where foreach runs the for-loop's operators",
    )


def _trained(sizes: Sequence[int], **options: Any) -> Tensor:
    """All weights after three steps of AdamW on this CPU."""
    g = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(n, generator=g)) for n in sizes]
    optimizer = torch.optim.AdamW(params, lr=0.01, **options)
    for _ in range(3):
        for p in params:
            p.grad = torch.randn(p.shape, generator=g)
        optimizer.step()
    return torch.cat([p.detach() for p in params])


def optimizers_with(option: str = "") -> list[str]:
    """The optimizers of torch.optim whose signature has this option; all of them for ""."""
    kinds = [kind for kind in vars(torch.optim).values() if inspect.isclass(kind)]
    optimizers = [
        kind
        for kind in kinds
        if issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    ]
    return sorted(
        kind.__name__ for kind in optimizers if not option or option in inspect.signature(kind).parameters
    )


_READS = ("p", "m, g → m", "v", "v, g → v", "v → new", "root → new", "root", "p, m, root → p")


def bytes_by_kernel(loop: Stretch, fused: Stretch, weights: int) -> Table:
    """The eight kernels of the for-loop over one parameter, and the fused step: what each reads, writes and moves."""
    rows: list[tuple[str, str, int]] = [
        (kernel.name.removeprefix("aten."), what, kernel.bytes // weights)
        for kernel, what in zip(loop.kernels, _READS, strict=True)
    ]
    rows.append(("all eight", "", loop.bytes // weights))
    rows.append(("fused", "p, g, m, v → p, m, v", fused.bytes // weights))
    return table(
        rows,
        ["kernel", "reads → writes", "bytes per weight"],
        evidence=SIMULATED,
        caption="float32: every tensor is read once, every result is written once; foreach has the same eight",
    )


def prices(step: Stretch) -> tuple[float, float]:
    """Microseconds of a launch on the simulated H100, and the TB per second of this step's fastest kernel."""
    launch_s = simulate("H100").card.assumptions.operator_s
    return 1e6 * launch_s, max(k.bytes / k.duration_s for k in step.kernels) / 1e12


def time_against_parameters(seconds: Mapping[str, Sequence[float]], numbers: Sequence[int]) -> Picture:
    """Seconds of one step over the same weights, in more and more parameters; a curve for each way."""
    return plots.curves(
        {"": {way: (numbers, of) for way, of in seconds.items()}},
        evidence=SIMULATED,
        title="One AdamW step over 16.8 M weights, in more and more parameters",
        note="both axes logarithmic; from the call of step() to the end of synchronize()",
        xlabel="parameters",
        ylabel="time of a step",
        log="xy",
        times=True,
        ticks={n: str(n) for n in numbers},
    )


def three_nets(results: Sequence[Result]) -> Table:
    """The runs of the experiment "06/three_adamws" beside each other; temporaries once where all have the same."""
    cells = []
    for rows in zip(*(result.table or () for result in results), strict=True):
        times = [
            result.about + format_seconds(row["seconds"]) for row, result in zip(rows, results, strict=True)
        ]
        sizes = dict.fromkeys(f"{row['temporary_bytes'] / 2**20:,.0f} MiB" for row in rows)
        cells.append((rows[0]["net"], rows[0]["way"], *times, " / ".join(sizes)))
    columns = ["net", "AdamW", *(f"step, {result.kind}" for result in results), "temporaries"]
    made = recordings.load("06/three_adamws")
    build = f"recorded with PyTorch {made.torch}" if made else ""
    return table(cells, columns, evidence=" · ".join(result.evidence for result in results), caption=build)


def steps_ms(result: Result) -> dict[tuple[str, str], float]:
    """(net, way) → milliseconds of a step in that run of "06/three_adamws"; a net by the first word of its name."""
    return {(row["net"].split()[0], row["way"]): 1e3 * row["seconds"] for row in result.table or ()}


@dataclass(frozen=True)
class Against:
    """The three nets, recorded against simulated.

    foreach, fused: how many times as long the recorded step takes, with 100 small parameters. apart_us: microseconds
    from this recorded foreach to the recorded fused. least, most: how many times as long the other steps take.
    """

    foreach: float
    fused: float
    apart_us: float
    least: float
    most: float


def recorded_against(simulated: Result, recorded: Result) -> Against:
    """The two runs of "06/three_adamws"."""
    of, real = steps_ms(simulated), steps_ms(recorded)
    over = {which: real[which] / of[which] for which in of}
    foreach, fused = ("100", "foreach"), ("100", "fused")
    others = [times for which, times in over.items() if which not in (foreach, fused)]
    apart_us = 1e3 * (real[foreach] - real[fused])
    return Against(over[foreach], over[fused], apart_us, min(others), max(others))


def rows_by_result(gpu: Any) -> list[lanes.Work]:
    """The bars of a timeline, where the three operators that make the root of v have one name."""
    root = "aten.sqrt", "aten.div", "aten.add_"
    return [
        ("sqrt, div, add_ (the root)" if name in root else name, lane, start, end)
        for name, lane, start, end in lanes.rows_of(gpu)
    ]


# --- gradients ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lives:
    """Arrays of a parameter's size beside the parameters, through one step, and the kernels of that step.

    arrays: the most since the point before: at the start, after each gradient, after step(); then what is left.
    """

    arrays: list[float]
    kernels: int

    @property
    def peak(self) -> int:
        return round(max(self.arrays))


def memory_over_a_step(set_to_none: bool = True, hook: Callable[[nn.Parameter], None] | None = None) -> Lives:
    """A step of SGD over 16 square parameters. hook: called for each parameter when its gradient is complete."""
    gpu, seen = simulate("H100"), list[int]()
    with gpu:
        params = [nn.Parameter(torch.empty(2048, 2048, device=gpu.device)) for _ in range(16)]
        x = torch.empty(4, 2048, device=gpu.device)
        optimizer = torch.optim.SGD(params, lr=0.1, foreach=False)

        def note(_: Any = None) -> None:
            seen.append(gpu.max_memory_allocated())
            gpu.reset_peak_memory_stats()

        def step() -> None:
            h = x
            for p in params:
                h = torch.tanh(h @ p)
            h.square().mean().backward()
            del h
            optimizer.step()  # finds no gradients where the hook has dropped them
            note()
            optimizer.zero_grad(set_to_none=set_to_none)

        for p in params:
            if hook is not None:
                p.register_post_accumulate_grad_hook(hook)
            p.register_post_accumulate_grad_hook(note)
        step()
        seen.clear()
        gpu.reset_peak_memory_stats()
        before = len(gpu.kernels)
        note()
        step()
        kernels = len(gpu.kernels) - before
        seen.append(gpu.memory_allocated())
        optimizer.zero_grad()
        always = gpu.memory_allocated()  # the parameters, and the matrix library's workspace
        return Lives([(held - always) / params[0].nbytes for held in seen], kernels)


def gradients_over_a_step(endings: Mapping[str, Lives]) -> Picture:
    """The arrays through one step, a curve for each ending."""
    last = len(next(iter(endings.values())).arrays) - 1
    places = {0: "start", **{n: str(n) for n in range(1, last - 1)}, last - 1: "step()", last: "   end"}
    return plots.curves(
        {"": {ending: (range(last + 1), lives.arrays) for ending, lives in endings.items()}},
        evidence=SIMULATED,
        title="Memory through one step: 16 gradients come, and when do they go?",
        note="each point: the most since the point before it; the last: what is left",
        xlabel="gradients complete, then step(), then zero_grad()",
        ylabel="arrays beside the parameters",
        ticks=places,
    )


# --- the batch ----------------------------------------------------------------------------------------------------

BATCHES = [4**k for k in range(9)]


@dataclass(frozen=True)
class Training:
    """A warm training step: seconds of its launches on the CPU, of its kernels on the GPU, of the whole; its FLOPs."""

    launches: float
    kernels: float
    seconds: float
    flops: float


@cache
def training_step(batch: int, way: str = "fused") -> Training:
    """Forward, backward and AdamW over eight layers of 1,024 × 1,024, on a simulated H100."""
    gpu = simulate("H100")
    with gpu:
        layers = [m for _ in range(8) for m in (nn.Linear(1024, 1024), nn.GELU())]
        net = nn.Sequential(*layers).to(gpu.device)
        optimizer = torch.optim.AdamW(net.parameters(), **WAYS[way])
        x = torch.empty(batch, 1024, device=gpu.device)

        def step() -> None:
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()  # warm-up
        ran = stretch(gpu, step)
    calls = sum(h.end_ns - h.start_ns for h in ran.host if h.kind != "sync") / 1e9
    return Training(calls, ran.busy_s, ran.seconds, sum(float(k.flops) for k in ran.kernels))


def by_batch() -> Table:
    """A row for each of BATCHES: launches and kernels of the step, samples a second; and the step with the for-loop."""
    card: Device = simulate("H100").card
    rows = []
    for batch in BATCHES:
        step, loop = training_step(batch), training_step(batch, "for-loop")
        times = map(format_seconds, (step.launches, step.kernels, step.seconds))
        share = f"{step.flops / step.seconds / card.peak_flops['fp32']:.0%}"
        rows.append((batch, *times, f"{batch / step.seconds:,.0f}", share, format_seconds(loop.seconds)))
    columns = ["batch", "launches", "kernels", "step", "samples per second", "of the peak FLOP/s"]
    return table(
        rows,
        [*columns, "step with the for-loop"],
        evidence=SIMULATED,
        caption="AdamW fused; last column: the same step with the for-loop. The simulator lets a large float32 matmul "
        f"reach {card.reached('matmul', 'fp32').flop_share:.0%} of the published FLOP/s, as measured",
    )


# --- the learning rate --------------------------------------------------------------------------------------------

RATES = {"SGD": [0.002 * 2**k for k in range(10)], "Adam": [0.001 * 2**k for k in range(8)]}
SIZES = (8, 32, 128, 1024)


@cache
def losses_by_rate(kind: str, batch: int) -> list[float]:
    """Test loss after training on 4,096 samples in batches of `batch`, for each of RATES[kind], mean over six seeds.

    kind: "SGD" or "Adam". A net of 16 hidden units learns noisy numbers; all (rate, seed) pairs are one bmm.
    """
    samples, seeds, width, rates = 4096, 6, 16, RATES[kind]
    g = torch.Generator().manual_seed(0)
    teacher = [torch.randn(width, width, generator=g) / 2, torch.randn(width, 1, generator=g) / 4]
    start = [torch.randn(seeds, width, n, generator=g) / 4 for n in (width, 1)]
    w = [s.repeat(len(rates), 1, 1).requires_grad_() for s in start]
    rate = torch.tensor(rates).repeat_interleave(seeds)[:, None, None]
    state = [(torch.zeros_like(t), torch.zeros_like(t)) for t in w]

    def data(*shape: int, noise: float) -> tuple[Tensor, Tensor]:
        x = torch.randn(*shape, width, generator=g)
        y = torch.tanh(x @ teacher[0]) @ teacher[1]
        return x, y + noise * torch.randn(y.shape, generator=g)

    for step in range(1, samples // batch + 1):
        x, y = (t.repeat(len(rates), 1, 1) for t in data(seeds, batch, noise=2.0))
        loss = (torch.tanh(x @ w[0]) @ w[1] - y).square().mean((1, 2)).sum()
        with torch.no_grad():
            for p, grad, (m, v) in zip(w, torch.autograd.grad(loss, w), state, strict=True):
                m.lerp_(grad, 0.1)
                v.lerp_(grad.square(), 0.001)
                adam = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                p -= rate * (grad if kind == "SGD" else adam)
    with torch.no_grad():
        x, y = data(4096, noise=0.0)
        test = (torch.tanh(x @ w[0]) @ w[1] - y).square().mean((1, 2))
    return [float(v) for v in test.reshape(len(rates), seeds).mean(1).nan_to_num(9.0).clamp(max=9.0).tolist()]


def best_rate(kind: str, batch: int) -> float:
    """The bottom of a parabola through the logarithms of three losses: the lowest of RATES[kind] and its neighbours."""
    rates, values = RATES[kind], losses_by_rate(kind, batch)
    i = min(max(values.index(min(values)), 1), len(values) - 2)
    a, b, c = (math.log(v) for v in values[i - 1 : i + 2])
    return float(rates[i] * 2 ** (0.5 * (a - c) / (a - 2 * b + c)))


def growth(kind: str) -> float:
    """By what factor the best rate grows from batch 8 to batch 128."""
    return best_rate(kind, 128) / best_rate(kind, 8)


def exponent(kind: str) -> float:
    """The power of the batch that the best rate follows from 8 to 128."""
    return math.log(growth(kind)) / math.log(16)


def best_rates() -> Table:
    """Best rate and lowest loss for each batch, and the exponent."""
    rows = []
    for kind in RATES:
        best = (f"≈ {best_rate(kind, b):.3f}" for b in SIZES)
        rows.append((f"{kind}, best rate", *best, f"≈ {exponent(kind):.1f}"))
        rows.append((f"{kind}, lowest loss", *(f"≈ {min(losses_by_rate(kind, b)):.3f}" for b in SIZES), ""))
    return table(
        rows,
        ["", *(f"batch {b:,}" for b in SIZES), "exponent"],
        evidence=LIVE,
        caption="best rate: the bottom of a parabola through three neighbouring losses, the lowest in the middle; rates "
        "were tried a factor of 2 apart. Exponent: the best rate grows with the batch to that power, from 8 to 128",
    )
