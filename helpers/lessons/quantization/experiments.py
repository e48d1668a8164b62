"""Lesson 13: number lines and curves, a net that is trained for its rounding, rows of tables, verdicts."""

from __future__ import annotations

import copy
import importlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import count, recordings, simulate
from helpers.lessons.quantization.recorded import (
    WIDTH,
    _ways,
)  # its experiments are known by their names, too
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.simulator.devices import DEVICES
from helpers.text.tables import Table, table

#: (tokens, way) → how many times as fast as bfloat16
Gains = Mapping[tuple[int, str], float]
#: of a net of three seeds at once: weight (seeds, out, in) and bias (seeds, 1, out) of each layer
Net = list[tuple[Tensor, Tensor]]

SEEDS = 3
#: the tokens of the table on the real GPU
_SHOWN = (1, 256, 4096)


# --- 1, one byte and a scale --------------------------------------------------------------------------------------


@drawn
def number_lines(after_relu: Tensor, uneven: Tensor) -> Picture:
    """Grids of 4 bits under the values that they round: of ReLU's output, and of a small row of uneven.

    Points of a grid to which no value is rounded are short and orange.
    """

    def grid(scale: float | Tensor, low: int = -7, high: int = 7) -> Tensor:
        return torch.arange(low, high + 1) * scale

    sizes = uneven.abs().amax(1)
    small = uneven[sizes.argsort()[181]]  # one of the smaller rows, as large below 0 as above
    rows = {
        "ReLU's output,\nsymmetric": (after_relu, grid(after_relu.max() / 7)),
        "ReLU's output,\naffine": (after_relu, grid(after_relu.max() / 15, 0, 15)),
        "a small row,\none scale for all": (small, grid(sizes.max() / 7)),
        "the same row,\na scale of its own": (small, grid(small.abs().max() / 7)),
    }
    title = "Where the values lie, and the grid to which they are rounded"
    note = "4 bits, so that the points can be seen. Short and orange: points to which no value is rounded. Light: how many "
    note += "values lie there (square root, the tallest cut off)"
    evidence = "live (CPU)"
    fig, _ = style.figure(0.85 * len(rows) + 0.3, evidence=evidence, title=title, note=note)
    axes = fig.subplots(len(rows), 1, squeeze=False)[:, 0]
    for ax, (label, (values, points)) in zip(axes, rows.items(), strict=True):
        values = values.flatten()
        low, high = float(points.min()), float(points.max())
        used = torch.zeros(len(points), dtype=torch.bool)
        used[(values[:, None] - points).abs().argmin(1).unique()] = True
        room = (high - low) * 0.02
        heights = torch.histc(values, 160, low - room, high + room).sqrt()
        edges = torch.linspace(low - room, high + room, 161)[:-1]
        width = (high - low + 2 * room) / 160
        heights = (heights / heights.sort().values[-3]).clamp(max=1)
        ax.bar(edges.tolist(), heights.tolist(), width, align="edge", color=style.SKY)
        for some, top, colour in (
            (points[used], -0.12, style.BLUE),
            (points[~used], -0.38, style.VERMILLION),
        ):
            ax.vlines(some.tolist(), -0.58, top, color=colour, linewidth=2.2)
        ax.set(xlim=(low - room, high + room), ylim=(-0.65, 1.1))
        ax.set_ylabel(label, rotation=0, ha="right", va="center", linespacing=1.3)
        ax.grid(False)
        ax.spines["left"].set_visible(False)
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.xaxis.set_major_locator(MaxNLocator(6))
    return Picture(fig, evidence, f"{title}: {', '.join(label.replace(chr(10), ' ') for label in rows)}")


def bits_won(error: float, smaller: float) -> float:
    """As many bits more would make error as small: each halves it."""
    return round(math.log2(error / smaller), 1)


# --- 2, multiply the integers -------------------------------------------------------------------------------------


def products_table(products: Mapping[str, Tensor], exact: Tensor) -> Table:
    """The type of each result, and the share of its numbers that are right."""
    rows = [
        (name, str(c.dtype).removeprefix("torch."), f"{float((c == exact).float().mean()):.1%}")
        for name, c in products.items()
    ]
    return table(rows, ["", "type of the result", "share right"], evidence="live (CPU)")


@drawn
def curves(
    series: Mapping[str, tuple[Iterable[float], Iterable[float]]],
    *,
    evidence: str,
    title: str,
    xlabel: str,
    ylabel: str,
    note: str = "",
    log: bool = False,
    level: float | None = None,
    xticks: Mapping[int, str] | None = None,
    ylim: tuple[float, float | None] = (0, None),
    mark: tuple[float, str] | None = None,
) -> Picture:
    """name → (x, y), a curve each. level: a dashed line; mark: a dotted one at (x, its name)."""
    fig, _ = style.figure(3.2, evidence=evidence, title=title, note=note)
    ax = fig.subplots()
    if level is not None:
        ax.axhline(level, color=style.MUTED, linewidth=1, linestyle="--")
    for i, (name, (x, y)) in enumerate(series.items()):
        ax.plot(list(x), list(y), marker=style.MARKERS[i], markersize=5, color=style.SERIES[i], label=name)
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
    if xticks:
        ax.set_xticks(list(xticks), list(xticks.values()))
    ax.set_ylim(*ylim)
    if mark:
        ax.axvline(mark[0], color=style.MUTED, linewidth=1, linestyle=":")
        ax.text(mark[0], 0.02, f" {mark[1]}", color=style.MUTED, transform=ax.get_xaxis_transform())
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    return Picture(fig, evidence, f"{title}: {ylabel} against {xlabel} for {', '.join(series)}")


def against_bfloat16(gain: Gains) -> Picture:
    """How many times as fast as bfloat16 each way is, against the tokens."""
    card = DEVICES["H100"]
    ridge = card.peak_flops["bf16"] / card.memory_bytes_per_s  # 2 FLOPs a weight and token, 2 bytes a weight
    tokens = sorted({t for t, _ in gain})
    ways = [way for way in dict.fromkeys(way for _, way in gain) if way != "bfloat16"]
    return curves(
        {way: (tokens, [gain[t, way] for t in tokens]) for way in ways},
        evidence="simulated (H100)",
        title="One linear layer, 4,096 → 4,096, against bfloat16",
        note="above the dashed line: faster. The simulator knows bytes, FLOPs and launches, and not how well a kernel is "
        "written; no int8 product has been measured for it, so it takes the efficiency of fp16 products",
        xlabel="tokens at once",
        ylabel="times as fast",
        log=True,
        level=1.0,
        xticks={t: f"{t:,}" for t in tokens},
        mark=(ridge, f"{ridge:.0f}, at peak rates"),
    )


# --- 3, one loud channel ------------------------------------------------------------------------------------------


def errors_table(errors: Mapping[str, float], lost: float) -> Table:
    """What is rounded, and how far off the output is. lost: percent of x's ordinary numbers that become 0."""
    rows = [(name, f"{error:.1%}") for name, error in errors.items()]
    columns = ["rounded to 8 bits", "output off by, as a share of what the ordinary channels add"]
    note = f"{lost:.1f} % of the ordinary numbers of x become exactly 0"
    return table(rows, columns, evidence="live (CPU)", caption=note)


def smoothing_curves(alphas: Sequence[float], errors: Mapping[str, Sequence[float]], level: float) -> Picture:
    """The output's error against α, by what is rounded. level: the error of a layer that has no loud channel."""
    low, at = min(zip(errors["both"], alphas, strict=True))
    return curves(
        {f"rounded: {name}": (alphas, [100 * e for e in curve]) for name, curve in errors.items()},
        evidence="live (CPU)",
        title="Moving the difficulty from x to the weights",
        note=f"lowest for both: {low:.1%} at α = {at:g}; dashed, both without the loud channel: {level:.1%}",
        xlabel="α",
        ylabel="output off by (%)",
        level=100 * level,
    )


def try_smooth(smooth: Callable[..., None], rounded: Callable[..., Tensor]) -> None:
    """Print the error of a layer behind a LayerNorm whose weight makes a channel loud, before and after smooth.

    rounded(t, dim=0): t in 8 bits, with a scale for each row.
    """
    dice = torch.Generator().manual_seed(0)
    norm, layer = nn.LayerNorm(256), nn.Linear(256, 256, bias=False)
    norm.weight.data[37] = 100
    layer.weight.data.copy_(torch.randn(256, 256, generator=dice) / 16)
    given = torch.randn(256, 256, generator=dice)
    with torch.no_grad():
        x, ordinary = norm(given), torch.arange(256) != 37
        want = layer(x)
        quiet = x[:, ordinary] @ layer.weight[:, ordinary].t()

        def off() -> float:
            output = rounded(norm(given), dim=0) @ rounded(layer.weight, dim=0).t()
            return float((output - want).norm() / quiet.norm())

        plain = off()
        try:
            smooth(norm, [layer], x.abs().amax(0))
        except NotImplementedError:
            print("for later: this cell wants your smooth of exercise 13.3")
        else:
            print(f"both rounded: off by {plain:.1%}; after your smooth: {off():.1%}")


# --- train for the rounding ---------------------------------------------------------------------------------------


def _spirals(n: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """(seeds, n, 2) points on three spirals, and on which each lies."""
    which = torch.randint(3, (SEEDS, n), generator=dice)
    radius = torch.rand(SEEDS, n, generator=dice).sqrt()
    angle = radius * 5.5 + which * 2 * math.pi / 3
    points = radius[..., None] * torch.stack([angle.cos(), angle.sin()], -1)
    return points + 0.05 * torch.randn(points.shape, generator=dice), which


def as_stored(w: Tensor, bits: int) -> Tensor:
    """Weights of each seed (seeds, out, in), rounded row by row: PyTorch's own operator, with its gradient."""
    most = 2 ** (bits - 1) - 1
    flat = w.flatten(0, 1)
    scale = (flat.detach().abs().amax(1) / most).clamp(min=1e-12)
    zero = torch.zeros(len(scale), dtype=torch.int32)
    rounded = torch.fake_quantize_per_channel_affine(flat, scale, zero, 0, -most, most)
    return rounded.reshape(w.shape)


def _scores(net: Net, x: Tensor, bits: int | None = None) -> Tensor:
    for i, (w, b) in enumerate(net):
        x = torch.baddbmm(b, x.relu() if i else x, (as_stored(w, bits) if bits else w).mT)
    return x


class Spirals:
    """Points on three spirals, and nets that tell the spirals apart, three seeds at once."""

    def __init__(self) -> None:
        dice = torch.Generator().manual_seed(0)
        self.points, self.labels = _spirals(400, dice)
        self.new, self.truth = _spirals(1000, dice)
        shapes = ((2, 32), (32, 32), (32, 3))
        self._fresh: Net = [
            (torch.randn(SEEDS, n, k, generator=dice) * (2 / k) ** 0.5, torch.zeros(SEEDS, 1, n))
            for k, n in shapes
        ]

    def exact(self) -> Net:
        """Trained without any rounding."""
        return self.trained(self._fresh, 300, 0.01)

    def trained(self, net: Net, steps: int, rate: float, bits: int | None = None) -> Net:
        """A copy of net, trained on; bits: with its weights rounded in every forward, straight through in backward."""
        net = [(w.clone().requires_grad_(), b.clone().requires_grad_()) for w, b in net]
        optimizer = torch.optim.Adam([p for pair in net for p in pair], rate, fused=True)
        for _ in range(steps):
            scores = _scores(net, self.points, bits)
            loss = SEEDS * F.cross_entropy(scores.flatten(0, 1), self.labels.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return [(w.detach(), b.detach()) for w, b in net]

    def right(self, net: Net, bits: int | None = None) -> float:
        """Percent of new points, mean over the seeds."""
        return float((_scores(net, self.new, bits).argmax(-1) == self.truth).float().mean()) * 100

    def first(self, net: Net) -> tuple[nn.Sequential, Tensor, Tensor]:
        """The first of the three nets as a module, its training points, and what it says of them."""
        shapes = [tuple(w.shape[1:]) for w, _ in net]
        layers = [m for n, k in shapes for m in (nn.Linear(k, n), nn.ReLU())][:-1]
        module = nn.Sequential(*layers)
        numbers = [t[0].flatten() if t.shape[1] == 1 else t[0] for pair in net for t in pair]
        for p, value in zip(module.parameters(), numbers, strict=True):
            p.data.copy_(value)
        return module, self.points[0], _scores(net, self.points)[0]

    def right_of(self, module: nn.Sequential, bits: int) -> float:
        """Percent of new points, with the module's weights rounded."""
        stored = copy.deepcopy(module)
        with torch.no_grad():
            for layer in stored:
                if isinstance(layer, nn.Linear):
                    layer.weight.copy_(as_stored(layer.weight[None], bits)[0])
            scores = stored(self.new[0])
        return float((scores.argmax(-1) == self.truth[0]).float().mean()) * 100


def try_training(train_quantized: Callable[..., None], spirals: Spirals, exact: Net) -> None:
    """Print the right answers of one net with 2 bits: rounded after, and after train_quantized, whose goal is what the exact net says."""
    student, points, goal = spirals.first(exact)
    plain = spirals.right_of(student, 2)
    try:
        train_quantized(student, points, goal, bits=2, steps=300, lr=0.003)
    except NotImplementedError:
        print("for later: this cell wants your train_quantized of exercise 13.4")
    else:
        trained = spirals.right_of(student, 2)
        print(f"2 bits, rounded after: ≈ {plain:.1f} % right; after your loop: ≈ {trained:.1f} %")


def bits_curves(after: Mapping[int, float], aware: Mapping[int, float]) -> Picture:
    """Right answers against the bits: rounded after the training, and trained with the rounding."""
    ways = {"rounded after": after, "trained with it": aware}
    return curves(
        {name: (list(right), list(right.values())) for name, right in ways.items()},
        evidence="live (CPU)",
        title="Right answers against the bits of the weights",
        note="three spirals, mean of 3 seeds. The axis begins at 60; one in three is right by chance",
        xlabel="bits",
        ylabel="right (%)",
        ylim=(60, 101),
        xticks={bits: str(bits) for bits in after},
    )


# --- what one would use -------------------------------------------------------------------------------------------


def small_model() -> tuple[nn.Sequential, Tensor]:
    """Two linear layers with a ReLU between them, and 64 inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).requires_grad_(False)
    return model, torch.randn(64, 256, generator=torch.Generator().manual_seed(0))


def torchao_table(model: nn.Sequential, sample: Tensor, own: Callable[[nn.Linear], nn.Module]) -> Table:
    """Bytes of weights and scales, error and operators: own's layers, and torchao's where it is installed."""
    want, rows = model(sample), []

    def add(name: str, other: nn.Module, stored: int) -> None:
        run = count(other, sample)
        used = ", ".join(op.removeprefix("aten.") for op in run.by_operator if op.endswith("mm"))
        off = float((run.result - want).norm() / want.norm())
        rows.append((name, f"{stored:,}", f"{off:.2%}", used, str(run.operators)))

    linears = [m for m in model if isinstance(m, nn.Linear)]
    float_bytes = sum(m.weight.nbytes for m in linears)
    yours = copy.deepcopy(model)
    try:
        for i, layer in enumerate(model):
            if isinstance(layer, nn.Linear):
                yours[i] = own(layer)
        held = sum(t.nbytes for t in yours.state_dict().values()) - sum(m.bias.nbytes for m in linears)
        add("your Int8Linear", yours, held)
    except NotImplementedError:
        pass
    note = f"two linear layers, {float_bytes:,} bytes in float32"
    configs = _torchao()
    for name, quantize in configs.items():
        other = copy.deepcopy(model)
        quantize(other)
        kept: list[Any] = [m.weight for m in other if isinstance(m, nn.Linear)]
        add(name, other, sum(t.nbytes for w in kept for t in (w.qdata, w.scale)))
    if not configs:
        note += ". torchao is not installed here; with it (make lab EXTRAS=models) there are two rows more"
    if not rows:
        rows.append(("nothing to show yet", "", "", "", ""))
    columns = ["", "bytes of weights and scales", "off by", "product", "operators"]
    return table(rows, columns, evidence="live (CPU)", caption=note)


def _torchao() -> dict[str, Callable[[nn.Module], Any]]:
    """Its two int8 ways by name; none where it is not installed."""
    for name in ("torchao", "torch.utils._pytree"):  # without a GPU: kernels that it cannot load
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        quantization = importlib.import_module("torchao.quantization")
    except ImportError:
        return {}
    names = ("Int8WeightOnly", "Int8DynamicActivationInt8Weight")
    configs = {name: getattr(quantization, f"{name}Config")() for name in names}
    return {name: partial(quantization.quantize_, config=config) for name, config in configs.items()}


# --- on the real GPU ---------------------------------------------------------------------------------------------


def on_real_gpu(simulated: Mapping[tuple[int, str], float]) -> list[dict[str, Any]]:
    """Show the layer of section 2 and int8 products by shape, live or recorded; the rows of the products.

    simulated: (tokens, way) → microseconds, which stand beside.
    """
    result = recordings.show("13/int8_linear")
    times = {(row["tokens"], row["way"]): row["us"] for row in result.table or []}
    rows = [
        (
            way,
            *(
                text
                for t in _SHOWN
                for text in (f"{result.about}{times[t, way]:,.0f} µs", f"{simulated[t, way]:,.0f} µs")
            ),
        )
        for way in dict.fromkeys(way for _, way in times)
    ]
    tokens = ["1 token", *(f"{t:,} tokens" for t in _SHOWN[1:])]
    columns = ["4,096 → 4,096", *(name for t in tokens for name in (t, "simulated"))]
    table(rows, columns, evidence=f"{result.evidence} · simulated (H100)").show()
    result = recordings.show("13/int8_shapes")
    shapes = result.table or []
    rows = [(r["rows"], r["size"], r["refused"] or f"{result.about}{r['us']:,.0f} µs") for r in shapes]
    table(rows, ["rows", "K = N", "torch._int_mm"], evidence=result.evidence).show()
    return shapes


def recorded_gains() -> Gains:
    """The layer of section 2, recorded on an H100, as `Gains`."""
    us = _recorded_us()
    return {(tokens, way): us[tokens, "bfloat16"] / us[tokens, way] for tokens, way in us}


def in_the_text(simulated: Mapping[tuple[int, str], float]) -> dict[str, float]:
    """What the text says of the layer of section 2. simulated: (tokens, way) → microseconds."""
    alone, by_ops, product = (
        "weights in int8, one kernel",
        "both in int8, op by op",
        "both in int8, the product alone",
    )
    gain = {(t, way): simulated[t, "bfloat16"] / us for (t, way), us in simulated.items()}
    us, recorded, operators = _recorded_us(), recorded_gains(), _operators()
    return {
        "alone": gain[1, alone],
        # fixed + reading = 1, and fixed + reading ÷ 2 = 1 ÷ gain
        "fixed": 2 / gain[1, alone] - 1,
        "converted": gain[1, "weights in int8, converted first"],
        "by ops": gain[4096, by_ops],
        "product": gain[4096, product],
        "alone, recorded": 1 / recorded[1, alone],
        "alone, many, recorded": 1 / recorded[4096, alone],
        "product, few, recorded": recorded[1, product],
        "product, recorded": recorded[4096, product],
        "peak": _share_of_peak(us[4096, "bfloat16"], "bf16"),
        "peak, int8": _share_of_peak(us[4096, product], "int8"),
        "operators": operators,
        "launch, recorded": us[1, by_ops] / operators,
        "launch": simulated[1, by_ops] / operators,
        "odd size": _recorded_size(4104),
        "even size": _recorded_size(4112),
    }


def _share_of_peak(us: float, kind: str) -> float:
    """What a product of 4,096 tokens in so many microseconds reaches of an H100's peak for the format."""
    return 2 * 4096**3 / (us * 1e-6) / DEVICES["H100"].peak_flops[kind]


def _operators() -> int:
    """How many operators *both in int8, op by op* launches for 1 token."""
    with simulate("H100") as gpu:
        x = torch.zeros(1, WIDTH, device=gpu.device, dtype=torch.bfloat16)
        q = torch.zeros(WIDTH, WIDTH, device=gpu.device, dtype=torch.int8)
        scale = torch.ones(WIDTH, device=gpu.device, dtype=torch.bfloat16)
        work = _ways(x, q, q, scale)["both in int8, op by op"]
        before = gpu.launches
        work()
        return gpu.launches - before


def _recorded_us() -> dict[tuple[int, str], float]:
    rows = recordings.show("13/int8_linear", prefer="recorded").table or ()
    return {(row["tokens"], row["way"]): row["us"] for row in rows}


def _recorded_size(size: int) -> float:
    """`over_4096` as it was recorded."""
    return over_4096(recordings.show("13/int8_shapes", prefer="recorded").table or (), size)


def over_4096(rows: Sequence[Mapping[str, Any]], size: int) -> float:
    """The time of 4,104 (a multiple of 8 and not of 16) or 4,112 (of 16 and not of 32) over that of 4,096."""
    us = {row["size"]: row["us"] for row in rows if row["rows"] == 4096}
    return float(us[size] / us[4096])
