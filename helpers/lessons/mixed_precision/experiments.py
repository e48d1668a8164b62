"""Lesson 10: nets and their peaks, a net that learns while its gradients are watched, published matmuls, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import helpers.calibration.recorded  # noqa: F401 - its experiments are known by their names
import helpers.lessons.mixed_precision.recorded  # noqa: F401 - its experiments are known by their names
from helpers import recordings, simulate
from helpers.calibration import measured
from helpers.lessons.mixed_precision import format_picture
from helpers.lessons.mixed_precision.float_formats import FORMATS, Format
from helpers.models import GPT2, ResNet
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.running_example.scores import Score, score
from helpers.running_example.script import Script
from helpers.simulator.devices import steps_off_by
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

# --- 1 · range and precision --------------------------------------------------------------------------------------


def fate(number: float, stored: float) -> str:
    """What a format made of a number: "same", "rounded", "inf" or "zero"."""
    if stored == number:
        return "same"
    return "zero" if stored == 0 else "inf" if math.isinf(stored) else "rounded"


def rounding_errors(numbers: Tensor, divisor: float) -> Table:
    """Relative errors of all formats: of the numbers, of the numbers divided, and of those scaled up, cast, scaled down."""
    rows, small = [], numbers / divisor
    for name, f in FORMATS.items():
        fits = 2.0 ** math.floor(math.log2(f.largest / small.abs().max().item()))
        (error, _), (of_small, gone), (scaled, _) = (
            _error(f, numbers),
            _error(f, small),
            _error(f, small, fits),
        )
        rows.append((name, f"{error:.1e}", f"{of_small:.1e}", f"{gone:.0%}", f"{scaled:.1e}"))
    return table(
        rows,
        ["format", "error", f"of 1/{divisor:,.0f} of it", "of which zero", "scaled up, cast, scaled down"],
        evidence="arithmetic",
        caption="root mean square of the error, relative to that of the numbers; the scale is the largest power of two that fits",
    )


def _error(f: Format, values: Tensor, scale: float = 1.0) -> tuple[float, float]:
    """Relative error (root mean square), and the share of values that became 0."""
    got = torch.tensor([f.rounded(v) for v in (values * scale).tolist()], dtype=torch.float64) / scale
    return ((got - values).norm() / values.norm()).item(), (got == 0).double().mean().item()


# --- 2 · what autocast casts --------------------------------------------------------------------------------------


def casts(gpu: Any) -> int:
    """How many kernels cast."""
    return sum("_to_copy" in k.name for k in gpu.kernels)


def _wide() -> nn.Module:
    return nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(4096, 4096), nn.ReLU())))


#: what holds the memory differs: activations, logits, weights
NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor]]] = {
    "ResNet-50, 8 images": (ResNet, lambda d: torch.empty(8, 3, 224, 224, device=d)),
    "ResNet-50, 64 images": (ResNet, lambda d: torch.empty(64, 3, 224, 224, device=d)),
    "ResNet-50, 96 images": (ResNet, lambda d: torch.empty(96, 3, 224, 224, device=d)),
    "GPT-2 small, 4 × 1,024 tokens": (GPT2, lambda d: torch.zeros(4, 1024, dtype=torch.int64, device=d)),
    "8 layers of 4,096 × 4,096, 16 rows": (_wide, lambda d: torch.empty(16, 4096, device=d)),
    "the same 8 layers, only forward": (_wide, lambda d: torch.empty(16, 4096, device=d)),
}
WORDS = {-0.45: "nearly halved", -0.25: "a quarter less", 0.0: "about the same", 0.5: "half more"}


def peak(net: str, dtype: torch.dtype | None = None) -> int:
    """Most bytes allocated on the simulated A100 during the second training step of one of NETS, with SGD and momentum.

    dtype: autocast's, around the forward pass and the loss; None: no autocast. "only forward": without gradients.
    """
    make, inputs = NETS[net]
    gpu, training = simulate("A100"), "only forward" not in net
    with gpu:
        with torch.device(gpu.device):  # weights are made there, not here
            model, x = make(), inputs(gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step() -> None:
            autocast = torch.autocast("cuda", dtype=dtype, enabled=dtype is not None)
            with autocast, torch.set_grad_enabled(training):
                y = model(x)
                y = y.reshape(-1, y.shape[-1])
                loss = F.cross_entropy(y, torch.zeros(len(y), dtype=torch.int64, device=gpu.device))
            if training:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

        step()
        return stretch(gpu, step).peak


def resnet_seconds(images: int, dtype: torch.dtype | None = None) -> float:
    """A warm training step of ResNet-50 on the simulated A100, with SGD and momentum. dtype: autocast's; None: no autocast."""
    gpu = simulate("A100")
    with gpu:
        with torch.device(gpu.device):
            model, x = ResNet(), torch.empty(images, 3, 224, 224)
            wanted = torch.zeros(images, dtype=torch.int64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step() -> None:
            with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(x), wanted)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        return stretch(gpu, step).seconds


@dataclass(frozen=True)
class Peaks:
    """The peak of each of NETS in fp32, and with autocast to fp16."""

    fp32: Mapping[str, int]
    half: Mapping[str, int]

    @property
    def change(self) -> dict[str, float]:
        return {net: self.half[net] / self.fp32[net] - 1 for net in self.fp32}

    def in_words(self) -> dict[str, str]:
        nearest = {net: min(WORDS, key=lambda c: abs(c - change)) for net, change in self.change.items()}
        return {net: WORDS[c] for net, c in nearest.items()}

    def table(self) -> Table:
        rows = [
            (net, f"{self.fp32[net] / 2**30:.2f} GiB", f"{self.half[net] / 2**30:.2f} GiB", f"{change:+.0%}")
            for net, change in self.change.items()
        ]
        return table(
            rows, ["net", "peak, fp32", "peak, autocast fp16", "change"], evidence="simulated (A100)"
        )


def cast(inputs: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """The tensors among the inputs in this dtype."""
    return [t.to(dtype) if torch.is_tensor(t) else t for t in inputs]


def off_by(exact: Tensor, losses: Mapping[str, Tensor]) -> Table:
    """Each loss, and how far it lies from the exact one."""
    rows = [
        (name, f"≈ {loss.item():.3f}", f"≈ {abs(loss.item() / exact.item() - 1) * 100:.2f} %")
        for name, loss in losses.items()
    ]
    return table(rows, ["", "loss", "off from float64 by"], evidence="live (CPU)")


# --- 3 · gradients that vanish ------------------------------------------------------------------------------------

Step = Callable[[nn.Module, torch.optim.Optimizer, Any, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Learned:
    """A run: losses (mean of the last 10 at each step, without the factor), and what flowed in its first step.

    outputs: the net's; gradients: of activations, multiplied by the scale. scales: before each step and at the end.
    """

    losses: list[float]
    finite: bool
    outputs: Tensor
    gradients: Tensor
    scales: list[float]

    @property
    def zero(self) -> float:
        """The share of the gradients that are 0 in the first step."""
        return (self.gradients == 0).double().mean().item()


def learn(
    step: Step, steps: int, *, factor: float = 1.0, weights: torch.dtype = torch.float32, **scaling: Any
) -> Learned:
    """A net of three layers learns from a teacher: `step(net, optimizer, scaler, x, y)` is called for each batch.

    factor: what the step multiplies the loss by; losses are kept without it. weights: the net's dtype. scaling: for
    torch.amp.GradScaler; without `enabled=True` it does nothing.
    """
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(2)
    teacher = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    layers: list[nn.Module] = []
    for a, b in ((16, 48), (48, 48), (48, 16)):
        layers += [nn.Linear(a, b), nn.GELU()]
    net = nn.Sequential(*layers[:-1]).to(weights)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", **({"enabled": False} | scaling))
    passing: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, out: Tensor) -> None:
        if len(passing) < len(net):
            out.retain_grad()
            passing.append(out)

    for layer in net:
        layer.register_forward_hook(keep)
    losses, scales = [], []
    for _ in range(steps):
        x = torch.randn(64, 16, generator=g)
        with torch.no_grad():
            y = teacher(x)
        scales.append(scaler.get_scale())
        losses.append(step(net, optimizer, scaler, x.to(weights), y).item() / factor)
    smooth = [sum(losses[max(0, i - 9) : i + 1]) / len(losses[max(0, i - 9) : i + 1]) for i in range(steps)]
    backward = [t.grad.double().reshape(-1) for t in passing if t.grad is not None]
    return Learned(
        smooth,
        all(map(math.isfinite, losses)),
        passing[-1].detach().double().reshape(-1),
        torch.cat(backward),
        [*scales, scaler.get_scale()],
    )


Sweep = Mapping[str, Mapping[str, Learned]]


def stopped_at(sweep: Sweep) -> str:
    """The first factor with which fp16's loss ends above nine tenths of where fp32 began."""
    return next(f for f, runs in sweep.items() if runs["fp16"].losses[-1] > 0.9 * runs["fp32"].losses[0])


def sweep_table(sweep: Sweep) -> Table:
    """A factor a row: the share of gradients that vanish in fp16, and the losses of all runs."""
    runs = list(next(iter(sweep.values())))
    rows = [
        (
            factor,
            f"≈ {100 * by_run['fp16'].zero:.1f} %",
            *(f"≈ {by_run[run].losses[-1]:.4f}" for run in runs),
        )
        for factor, by_run in sweep.items()
    ]
    columns = ["factor", "fp16: gradients that are 0", *(f"loss, {run}" for run in runs)]
    caption = "zeros of the first step, among the gradients of activations; losses after 60 steps, mean of the last 10, without the factor"
    return table(rows, columns, evidence="live (CPU)", caption=caption)


def flows(run: Learned) -> Picture:
    """Magnitudes in an fp32 run's first step beside what bf16 and fp16 can hold."""
    groups = {
        "forward: the net's outputs": run.outputs,
        "backward: gradients of activations": run.gradients,
        "the same × 65,536": run.gradients * 65536,
    }
    return format_picture.float_ranges(
        {
            f"{name}; in fp16 ≈ {_per_cent(v.half() == 0)} are 0, ≈ {_per_cent(_subnormal(v.half()))} subnormal": v.tolist()
            for name, v in groups.items()
        },
        ["bf16", "fp16"],
        evidence="live (CPU)",
        title="A loss with the factor 1/100,000: its gradients, and what fp16 can hold",
    )


def _per_cent(those: Tensor) -> str:
    return f"{100 * those.double().mean().item():.0f} %"


def _subnormal(some: Tensor) -> Tensor:
    return (some != 0) & (some.abs() < torch.finfo(some.dtype).smallest_normal)


def like(run: Learned, plain: Learned) -> str:
    """How a run learns beside fp32's: "like fp32", "slower" or "not at all"."""
    if run.losses[-1] < 1.15 * plain.losses[-1]:
        return "like fp32"
    return "slower" if run.losses[-1] < 0.5 * plain.losses[0] else "not at all"


# --- 4 · shapes that fit ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matmul:
    """One matmul of a published trace: (m, k) times (k, n)."""

    m: int
    k: int
    n: int
    seconds: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.m, self.k, self.n

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.sizes)

    @property
    def rate(self) -> float:
        """FLOP/s that it reached."""
        return self.flops / self.seconds


class Matmuls:
    """TF32 matmuls in traces of A100s that others published. No size below 64: a kernel's tile is as wide."""

    def __init__(self) -> None:
        matmuls = []
        for kernel in measured.public():
            if kernel.source == "HTA" and kernel.dtype == "tf32" and kernel.op in ("mm", "addmm"):
                (m, k), (_, n) = kernel.shapes[-2:]
                matmuls.append(Matmul(m, k, n, kernel.seconds))
        self.all = [matmul for matmul in matmuls if min(matmul.sizes) >= 64]
        self.fitting = [matmul for matmul in self.all if all(size % 4 == 0 for size in matmul.sizes)]
        self.missing = [matmul for matmul in self.all if matmul not in self.fitting]

    def of_columns(self, columns: int) -> Matmul:
        """1024 × 1024 by 1024 × columns."""
        return next(matmul for matmul in reversed(self.all) if matmul.sizes == (1024, 1024, columns))

    @cached_property
    def share(self) -> float:
        """The rate of those that miss, over that of those that fit."""
        return self.reached(self.missing) / self.reached(self.fitting)

    def least_near(self, columns: int) -> float:
        """The least FLOP/s of those that fit and have from 2/3 to 3/2 of the work of `of_columns(columns)`."""
        work = self.of_columns(columns).flops
        return min(matmul.rate for matmul in self.fitting if work / 1.5 < matmul.flops < 1.5 * work)

    @staticmethod
    def reached(some: Sequence[Matmul]) -> float:
        """Median FLOP/s of those of 1.5 to 4.5 GFLOP."""
        rates = sorted(matmul.rate for matmul in some if 1.5e9 < matmul.flops < 4.5e9)
        return (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2

    @drawn
    def picture(self) -> Picture:
        """The rate of each matmul against its work; two that differ in their columns alone are named."""
        groups = {"M, N and K fit:\nmultiples of 4": self.fitting, "one of them\ndoes not": self.missing}
        title = "TF32 matmuls on A100s: the same work, other shapes"
        note = "traces in facebookresearch/HolisticTraceAnalysis; no size below 64"
        fig, _ = style.figure(3.1, evidence="published", title=title, note=note)
        ax = fig.subplots()
        for i, (name, some) in enumerate(groups.items()):
            x, y = [matmul.flops / 1e9 for matmul in some], [matmul.rate / 1e12 for matmul in some]
            ax.scatter(x, y, s=34, marker=style.MARKERS[i], color=style.SERIES[i], label=name)
        for columns, at, side in ((1300, (-40, 14), "right"), (1705, (14, -16), "left")):
            matmul = self.of_columns(columns)
            ax.annotate(
                f"{columns:,} columns", (matmul.flops / 1e9, matmul.rate / 1e12), xytext=at, textcoords="offset points",
                ha=side, fontsize=style.SMALL,
                arrowprops={"arrowstyle": "-", "color": style.MUTED, "lw": 0.8, "shrinkB": 4},
            )  # fmt: skip
        ax.set(
            xscale="log", xlabel="GFLOP of the matmul, logarithmic", ylabel="TFLOP/s reached", ylim=(0, None)
        )
        ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
        names = " or ".join(name.replace("\n", " ") for name in groups)
        return Picture(
            fig, "published", f"{title}. {names}: those that fit reach a higher rate at the same work."
        )


# --- the running example ------------------------------------------------------------------------------------------


def in_tf32(script: Script) -> Score:
    """The script's score with TF32 allowed in matmuls."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        # a part of its own: scores are kept by script
        return score(script.replace(prepare=lambda model, gpu: script.prepare(model, gpu)))
    finally:
        torch.set_float32_matmul_precision(before)


# --- on the real GPU ----------------------------------------------------------------------------------------------


def four_precisions(simulated: Sequence[Mapping[str, Any]]) -> Table:
    """A training step of GPT-2 small in four precisions: live, else recorded, beside the rows of its simulation."""
    result = recordings.show("10/four_precisions")
    rows = result.table or []
    shown = [
        (
            row["precision"], f"{row['peak_bytes'] / 2**30:.2f} GiB", result.about + format_seconds(row["seconds"]),
            f"{result.about}{rows[0]['seconds'] / row['seconds']:.2f}×",
            f"{beside['peak_bytes'] / 2**30:.2f} GiB", format_seconds(beside["seconds"]),
            f"{simulated[0]['seconds'] / beside['seconds']:.2f}×",
        )
        for row, beside in zip(rows, simulated, strict=True)
    ]  # fmt: skip
    measured = ["peak", "a step", "times as fast as fp32"]
    return table(
        shown,
        ["precision", *measured, *(f"simulated: {name}" for name in measured)],
        evidence=f"{result.evidence} · simulated (H100)",
        caption="GPT-2 small, 4 × 1,024 random tokens, AdamW; a step: recorded or live, the median of five means of two",
    )


def precisions() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of "10/four_precisions": as it was recorded, and as it is simulated."""
    recorded, simulated = (
        recordings.show("10/four_precisions", prefer=way).table or [] for way in ("recorded", "simulated")
    )
    return recorded, simulated


def kernels_ms(step: str) -> tuple[float, float]:
    """ms of a step of "calibration/steps" on the recorded H100, and of its kernels, copies and fills together."""
    recording = recordings.load("calibration/steps", device="H100")
    rows = [row for row in (recording and recording.table) or [] if row["step"] == step]
    whole, own = (sum(row["us"] for row in rows if bool(row["op"]) is part) / 1e3 for part in (False, True))
    return whole, own


def numbers_of(
    recorded: Sequence[Mapping[str, Any]], simulated: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """What the text says of the rows of :func:`precisions`; *_off: simulated over recorded, less 1.

    bf16_kernels_off: of the kernels alone; the simulated step is nothing else, as its GPU waits for nothing.
    """
    fp32_s, tf32_s, bf16_s, fp16_s = (row["seconds"] for row in recorded)
    h200 = recordings.load("10/four_precisions", device="H200")
    *_, bf16, fp16 = (h200 and h200.table) or recorded
    (fp32_whole, fp32_kernels), (bf16_whole, bf16_kernels) = map(
        kernels_ms, ("GPT-2, fp32", "GPT-2, autocast, bf16")
    )
    off = [
        {key: beside[key] / row[key] - 1 for key in ("seconds", "peak_bytes")}
        for row, beside in zip(recorded, simulated, strict=True)
    ]
    names = ("fp32_off", "tf32_off", "bf16_off", "fp16_off")
    return {name: of["seconds"] for name, of in zip(names, off, strict=True)} | {
        "tf32_times": fp32_s / tf32_s,
        "bf16_times": fp32_s / bf16_s,
        "bf16_ms": 1e3 * bf16_s,
        "fp32_whole": fp32_whole,
        "fp32_kernels": fp32_kernels,
        "bf16_whole": bf16_whole,
        "bf16_kernels": bf16_kernels,
        "bf16_kernels_off": 1e3 * simulated[2]["seconds"] / bf16_kernels - 1,
        "fp16_ms": 1e3 * (fp16_s - bf16_s),
        "fp16_ms_h200": 1e3 * (fp16["seconds"] - bf16["seconds"]),
        "peak_off": max(abs(of["peak_bytes"]) for of in off),
        "worst": steps_off_by(),
    }
