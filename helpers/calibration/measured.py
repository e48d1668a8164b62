"""Times that were measured on real cards, of single operators and of whole steps, and what they are here.

Single operators are what the shares are fitted to. A row: source, card, set ("fit" or "held-out"), operator, arithmetic, shapes, microseconds. measured.csv holds
public measurements of others (docs/recording.md says which, and under which licence); recordings of this
course bring tables of the same form.

Whole steps (measured_steps.csv): `steps` says which of them enter the fit of what no operator's row tells (`fit`). NeuSight's
are the mean of the five fastest of 25 runs, forward (and backward, for training) of Hugging Face's models in fp32 with
attention written out (neusight/Tracing/trace.py: inference of BERT is a classifier's, without the language-model head). Its
runs empty PyTorch's cache before each measurement: on the A100 with 80 GB, where forward passes of small batches take half
as long as those of batches four times as large, backward alone is taken. The lecture's are the milliseconds a step, optimizer included, of "Let's reproduce GPT-2 (124M)" by
A. Karpathy (the chapters' titles). timm's are its results/
tables (CUDA events over 50 steps after 10, cuDNN choosing its algorithms by trial), without VGG-13's training with NCHW, which took longer than VGG-16's;
DeepLearningExamples' its READMEs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers.models import GPT2, Size
from helpers.pytorch import private_torch
from helpers.simulator.cost import roofline
from helpers.simulator.cost.roofline import ARITHMETIC, Work
from helpers.simulator.devices import DEVICES, Device
from helpers.simulator.gpu import SimGPU
from helpers.simulator.operators import cuda_kernels
from helpers.text.tables import read_rows

PUBLIC = Path(__file__).with_name("measured.csv")
STEPS = Path(__file__).with_name("measured_steps.csv")

_A100 = DEVICES["A100"]
#: the cards that were measured: the table's own and their variants, which differ in memory (data sheets)
CARDS: dict[str, Device] = DEVICES | {
    "A100-SXM-80GB": _A100,
    "A100-SXM-40GB": replace(_A100, memory_bytes_per_s=1.555e12, memory_bytes=40 * 10**9),
    "A100-PCIE-40GB": replace(_A100, memory_bytes_per_s=1.555e12, memory_bytes=40 * 10**9),
    "A100-PCIE-80GB": replace(_A100, memory_bytes_per_s=1.935e12),
    # NVIDIA Ampere GA102 GPU Architecture white paper, appendix (GeForce RTX 3090; fp16 with sums in fp32)
    "RTX 3090": Device(
        "RTX 3090",
        {"fp64": 0.556e12, "fp32": 35.6e12, "tf32": 35.6e12, "fp16": 71e12, "bf16": 71e12, "int8": 284e12},
        936e9,
        24 * 10**9,
        32e9,
        "NVIDIA Ampere GA102 GPU Architecture white paper",
        capability=(8, 6),
    ),
}

T = torch.Tensor
_OPS: dict[str, Callable[..., Any]] = {
    **{n: getattr(torch, n) for n in ("mm", "bmm", "addmm", "add", "sub", "mul", "div", "pow")},
    **{n: getattr(torch, n) for n in ("tanh", "sigmoid", "neg", "log2", "relu", "sum", "mean", "clone")},
    **{n: getattr(F, n) for n in ("linear", "gelu")},
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "add_number": lambda x: x + 0.5,
    "mul_number": lambda x: x * 0.5,
    "div_number": lambda x: x / 0.5,
    "pow_number": lambda x: x**0.5,
    "copy_": lambda x, y: x.copy_(y),
    "fill_": lambda x: x.fill_(1),
    **{n: getattr(torch.ops.aten, n) for n in ("tanh_backward", "sigmoid_backward")},
    "native_layer_norm_backward": lambda g, x, m, r, w, b: torch.ops.aten.native_layer_norm_backward(
        g, x, w.shape, m, r, w, b, [True, True, True]
    ),
    "embedding": lambda table, rows: F.embedding(rows.long(), table),
}
_CHANNELS = ("conv2d", "conv2d_backward", "batch_norm", "batch_norm_backward")
BACKENDS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
}  # fmt: skip
_KINDS = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64_tensor"}


@dataclass(frozen=True)
class Measurement:
    """One operator's median time on one card. held_out: kept away from the fit."""

    source: str
    card: str
    held_out: bool
    op: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    seconds: float

    @property
    def device(self) -> Device:
        return CARDS[self.card]


def parse(row: Mapping[str, Any], where: str = "") -> Measurement:
    """A row as a Measurement. ValueError, with the place, for what cannot be one."""
    op = str(row.get("op"))
    for column, value, known in (
        ("card", row.get("card"), CARDS), ("operator", op.partition("/")[0], {*_OPS, *_CHANNELS, "attention"}),
        ("arithmetic", row.get("dtype"), {*_KINDS, "int32", "int64"}), ("set", row.get("set"), {"fit", "held-out"}),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"{where}: no {column} {value!r}; there are {', '.join(sorted(known))}")
    try:
        shapes = tuple(tuple(int(n) for n in shape.split("x")) for shape in str(row["shapes"]).split())
        seconds = float(row["us"]) / 1e6
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None
    if not (seconds > 0 and math.isfinite(seconds)) or any(n < 1 for shape in shapes for n in shape):
        given = f"{row['us']} and {row['shapes']}"
        raise ValueError(f"{where}: times and sizes are positive numbers, not {given}")
    held_out = row["set"] == "held-out"
    return Measurement(row["source"], row["card"], held_out, op, row["dtype"], shapes, seconds)


def public() -> list[Measurement]:
    """The public measurements that ship with the course. ValueError with the line for a bad one."""
    return [parse(row, f"{PUBLIC.name}, row {i}") for i, row in enumerate(read_rows(PUBLIC), 1)]


class _Works(private_torch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Work] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "aten" and roofline.launches_kernel(func, out):
            self.found += roofline.kernels(func, args, kwargs, out)
        return out


@cache
def main_work(one: Measurement) -> tuple[Work, float]:
    """What that operator had to do, as the simulator's cost model counts it (kernels summed), and seconds of what was beside it:
    of a convolution, the kernels that turn its tensors."""
    works, beside_s = _works_of(one), 0.0
    main = max(works, key=lambda work: work.flops)
    if "convolution" in main.family:
        beside_s = sum(_turning_s(work.bytes, one.device) for work in works if work is not main)
        works = [main]
    # Which of fp32 and TF32 a product took depends on settings of the process that measured it.
    kind = _KINDS.get(one.dtype, main.kind) if main.family in ARITHMETIC else main.kind
    flops, nbytes = sum(w.flops for w in works), sum(w.bytes for w in works)
    return main._replace(flops=flops, bytes=nbytes, kind=kind), beside_s


def _turning_s(nbytes: int, card: Device) -> float:
    """One of cuDNN's kernels that turn a layout: as copies of 40 µs and more in the H100's recording, 0.956 of the bandwidth and
    12 µs. (Not as the fitted table has copies: the fit would rest on what it made the last time.)"""
    return roofline.with_ramp(
        nbytes / (0.956 * card.memory_bytes_per_s), 12e-6, card.assumptions.kernel_floor_s
    )


def _works_of(one: Measurement) -> list[Work]:
    dtype = torch.float32 if one.dtype == "tf32" else getattr(torch, one.dtype)
    back = one.op.endswith("/both")
    inputs = [torch.empty(shape, dtype=dtype, device="meta", requires_grad=back) for shape in one.shapes]
    if one.op.endswith("/nhwc"):
        inputs = [t.contiguous(memory_format=torch.channels_last) for t in inputs]
    chosen = partial(cuda_kernels.attention, lambda tensor: tensor.is_meta, capability=one.device.capability)
    with torch.set_grad_enabled(back), precision(one.dtype), _Works() as works:
        run(one.op, inputs, chosen)
    return works.found


def run(
    op: str, inputs: Sequence[torch.Tensor], attention: Callable[..., Any] = cuda_kernels.plain_attention
) -> Any:
    """The operator of a row on these inputs: "mm", "conv2d/<stride>/<padding>", "conv2d_backward/<stride>/<padding>" of a
    gradient, x and weight, "batch_norm", "batch_norm_backward" of a gradient and x, these four with "/nhwc" where the channels are
    last; "attention" with a causal mask or "attention/<backend>/<forward or both>" without one."""
    name, *how = op.split("/")
    if name in _CHANNELS:
        return _over_channels(name, how, inputs)
    if name != "attention":
        return _OPS[name](*inputs)
    if not how:
        return attention(*inputs, is_causal=True)
    with sdpa_kernel(BACKENDS[how[0]]):
        out = attention(*inputs)
    return out.sum().backward() if how[1] == "both" else out


def _over_channels(name: str, how: Sequence[str], inputs: Sequence[torch.Tensor]) -> Any:
    if name == "conv2d":
        return F.conv2d(inputs[0], inputs[1], stride=int(how[0]), padding=int(how[1]))
    if name == "conv2d_backward":
        stride, padding = ([int(n)] * 2 for n in how[:2])
        options: list[Any] = [None, stride, padding, [1, 1], False, [0, 0], 1, [True, True, False]]
        return torch.ops.aten.convolution_backward(*inputs, *options)
    x = inputs[-1]
    of = [x.new_empty(x.shape[1], dtype=torch.float32) for _ in range(5)]
    if name == "batch_norm":
        return torch.ops.aten.native_batch_norm(x, *of[:4], True, 0.1, 1e-5)
    return torch.ops.aten.native_batch_norm_backward(*inputs, *of, True, 1e-5, [True, True, True])


@contextmanager
def precision(kind: str) -> Iterator[None]:
    """fp32 products in TF32 or in full, as they were measured."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Step:
    """One whole step, measured by others. mode: "inference" is a forward pass, "training" forward and backward, "step"
    with loss and AdamW as well, "sgd step" with SGD, "backward" that alone. size: tokens, or pixels on a side."""

    source: str
    card: str
    model: str
    mode: str
    batch: int
    size: int
    precision: str
    layout: str
    seconds: float
    held_out: bool = False

    @property
    def group(self) -> tuple[str, str, str]:
        """What differs in size, layout, memory or precision only is either fitted or held out, together."""
        return self.card.partition("-")[0], self.model, self.mode

    @property
    def what(self) -> str:
        layout = f", {self.layout}" if self.layout else ""
        return f"{self.model}, {self.mode}, {self.precision}{layout}, {self.batch} × {self.size}"


def steps() -> list[Step]:
    """Every measured step. Held out: all of NeuSight's, and of timm's a third of each card's groups, every third in the order of
    their hashes. The others, all of an A100, are fitted."""
    rows = [
        Step(
            row["source"], row["card"], row["model"], row["mode"], int(row["batch"]), int(row["size"]), row["precision"],
            row["layout"], float(row["ms"]) / 1e3,
        )
        for row in read_rows(STEPS)
    ]  # fmt: skip
    out: set[tuple[str, str, str]] = set()
    for card in {step.group[0] for step in rows}:
        groups = {step.group for step in rows if step.group[0] == card and step.source == "timm"}
        out |= set(sorted(groups, key=lambda g: hashlib.sha256(" ".join(g).encode()).hexdigest())[::3])
    return [replace(step, held_out=step.source == "NeuSight" or step.group in out) for step in rows]


def simulate_step(step: Step, collect: bool = False) -> tuple[float, list[Work]]:
    """Seconds on the simulated card, warmed up, with everything done at the end; and, if asked for, its kernels."""
    images = step.layout != ""
    gpu = SimGPU(CARDS[step.card], memory_bytes=1 << 50)
    start = 0.0

    def begin() -> None:
        nonlocal start
        gpu.synchronize()
        start, gpu._machine.works = gpu.clock(), [] if collect else None

    with precision(step.precision):
        with torch.device("meta"):
            net = _network(step)
        with gpu, torch.device("meta"):
            batch = torch.zeros(step.batch, step.size, dtype=torch.int64)
            if images:
                batch = torch.zeros(step.batch, 3, step.size, step.size)
            if step.layout == "nhwc":
                net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                batch = batch.to(memory_format=torch.channels_last)
            optimizer = _optimizer(net, step.mode)
            for _ in range(1 if collect and optimizer is None else 2):
                begin()
                loss = _forward(net, batch, step)
                if step.mode == "backward":
                    begin()
                if loss is not None:
                    loss.backward()
                if optimizer is not None:
                    optimizer.step()
                    optimizer.zero_grad()
                gpu.synchronize()
                seconds = gpu.clock() - start
            works = gpu._machine.works or []
    return seconds, works


GPT3_XL, _GPT3_27 = Size(3072, 24, 24, 50257, 2048), Size(2560, 32, 32, 50257, 2048)


def _network(step: Step) -> torch.nn.Module:
    """The model as its source has it, made of plain modules (helpers.models)."""
    from helpers import models as m

    nvidia = step.source == "DeepLearningExamples"
    # PyTorch 1.12 had no fused attention
    written_out: bool | str = "bare" if step.mode == "sgd step" else False
    makers: dict[str, Callable[[], torch.nn.Module]] = {
        # NVIDIA's pre-training asks its head for the masked tokens only, a seventh of them, left out here.
        "bert-large": lambda: m.Bert(m.Bert.LARGE, True, 0.1, headless=nvidia or step.mode == "inference"),
        "gpt2-large": lambda: transposed(m.GPT2(m.GPT2.LARGE, eager=True, dropout=0.1, gelu_parts=True)),
        "gpt3-xl": lambda: transposed(m.GPT2(GPT3_XL, eager=True, dropout=0.1, gelu_parts=True)),
        "gpt3-2.7b": lambda: transposed(m.GPT2(_GPT3_27, eager=True, dropout=0.1, gelu_parts=True)),
        "opt-1.3b": lambda: m.OPT(dropout=0.1),
        "gpt2-124m": lambda: m.GPT2(eager="filled"),
        "resnet18": lambda: m.ResNet((2, 2, 2, 2), basic=True),
        "resnet34": lambda: m.ResNet((3, 4, 6, 3), basic=True),
        "resnet50": m.ResNet,
        "resnet101": lambda: m.ResNet((3, 4, 23, 3)),
        "resnet152": lambda: m.ResNet((3, 8, 36, 3)),
        "wide-resnet50": lambda: m.ResNet(wide=2),
        "resnext50": lambda: m.ResNet(wide=2, groups=32),
        "resnext101": lambda: m.ResNet((3, 4, 23, 3), wide=2, groups=32),
        "regnetx-400mf": lambda: m.RegNet((1, 2, 7, 12), (32, 64, 160, 384), 16),
        "regnetx-1.6gf": m.RegNet,
        "regnetx-3.2gf": lambda: m.RegNet((2, 6, 15, 2), (96, 192, 432, 1008), 48),
        "regnetx-8gf": lambda: m.RegNet((2, 5, 15, 1), (80, 240, 720, 1920), 120),
        "mobilenetv2-50": lambda: m.MobileNet(0.5),
        "mobilenetv2-100": m.MobileNet,
        "mobilenetv2-140": lambda: m.MobileNet(1.4),
        "convnext-tiny": m.ConvNeXt,
        "convnext-small": lambda: m.ConvNeXt((3, 3, 27, 3)),
        "convnext-base": lambda: m.ConvNeXt((3, 3, 27, 3), 128),
        "vgg11": lambda: m.VGG((1, 1, 2, 2, 2)),
        "vgg13": lambda: m.VGG((2, 2, 2, 2, 2)),
        "vgg16": m.VGG,
        "vgg19": lambda: m.VGG((2, 2, 4, 4, 4)),
        "vit-tiny": lambda: m.ViT(192, heads=3, eager=written_out),
        "vit-small": lambda: m.ViT(384, heads=6, eager=written_out),
        "vit-base": lambda: m.ViT(eager=written_out),
        "vit-large": lambda: m.ViT(1024, 24, 16, eager=written_out),
    }
    return makers[step.model]().train(step.mode != "inference")


def transposed(net: GPT2) -> GPT2:
    """Weights as Hugging Face's GPT-2 keeps them (its Conv1D), but for the head's: inputs first."""
    for part in net.modules():
        if isinstance(part, torch.nn.Linear) and part is not net.head:
            part.weight = torch.nn.Parameter(part.weight.detach().t().contiguous().t())
    return net


def _optimizer(net: torch.nn.Module, mode: str) -> torch.optim.Optimizer | None:
    if mode == "sgd step":
        return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(net.parameters()) if mode == "step" else None


def _forward(net: torch.nn.Module, batch: torch.Tensor, step: Step) -> torch.Tensor | None:
    """The loss; None for inference."""
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(step.precision)
    lower = torch.autocast("cuda", half) if half else nullcontext()
    if step.mode == "inference":
        with torch.no_grad(), lower:
            net(batch)
        return None
    with lower:
        logits = net(batch)
        target = batch if batch.dim() == 2 else torch.zeros(len(batch), dtype=torch.int64)
        if logits.dim() == 3 and logits.shape[-1] < 2048:  # features, for a head that is left out
            return logits.float().mean()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))
