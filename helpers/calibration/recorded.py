"""The calibration set: operators by family and size, timed with events.

`operators`: the rows are those of `helpers.calibration.measured`: source, card, set, op, dtype, shapes, us. Two thirds of the
sizes are for the fit and one third is held out, by their place in the grid.

`steps`: the kernels of whole training steps by the operator that launches them, which says where a simulated step is off.

`launches`: what a call on tiny tensors takes the CPU, or the GPU where it takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from helpers.calibration import measured
from helpers.models import GPT2, ResNet
from helpers.recordings.common import timed
from helpers.recordings.manifest import short_name
from helpers.recordings.registry import experiment

# Sizes from launch-bound to saturated; the awkward ones are there because models have them.
_MATMULS = [
    *((n, n, n) for n in (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)),
    *((16384, 768, k) for k in (768, 2304, 3072)),
    *((4096, 3072, 768), (8192, 50257, 768), (64, 4096, 4096), (1000, 1000, 1000), (4096, 64, 4096)),
]
_BATCHED = [(96, 512, 64, 512), (192, 1024, 64, 1024), (192, 1024, 1024, 64), (512, 128, 64, 128), (16, 2048, 128, 2048), (32, 512, 512, 512)]  # fmt: skip
_ATTENTION = [(16, 12, 1024, 64), (8, 12, 512, 64), (4, 16, 2048, 128), (32, 16, 512, 64), (2, 32, 4096, 128), (8, 25, 1024, 64)]  # fmt: skip
_ROWS = [(512, 768), (2048, 768), (4096, 1024), (8192, 1024), (16384, 768), (16384, 3072), (32768, 4096), (65536, 1024), (1000, 1001)]  # fmt: skip
_CONVOLUTIONS = [  # batch, channels in, channels out, side, kernel, stride
    *((64, 64, 64, 56, 3, 1), (64, 64, 256, 56, 1, 1), (64, 128, 128, 28, 3, 1), (64, 512, 128, 28, 1, 1)),
    *((64, 256, 256, 14, 3, 1), (64, 1024, 256, 14, 1, 1), (64, 512, 512, 7, 3, 1), (64, 3, 64, 224, 7, 2)),
    *((16, 320, 320, 64, 3, 1), (16, 128, 256, 28, 3, 2), (32, 96, 192, 32, 5, 1), (64, 256, 512, 28, 1, 2)),
]


def _cases() -> list[tuple[str, str, tuple[tuple[int, ...], ...]]]:
    """(operator, arithmetic, shapes), family by family, sizes in order."""
    cases: list[tuple[str, str, tuple[tuple[int, ...], ...]]] = []
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        cases += [("mm", dtype, ((m, k), (k, n))) for m, n, k in _MATMULS]
        cases += [("bmm", dtype, ((b, m, k), (b, k, n))) for b, m, k, n in _BATCHED]
    for dtype in ("float16", "bfloat16"):
        cases += [("attention", dtype, (shape,) * 3) for shape in _ATTENTION]
    for dtype in ("float32", "float16"):
        for op in ("layer_norm", "softmax", "gelu", "sum", "clone"):
            cases += [(op, dtype, (shape,)) for shape in _ROWS]
        cases += [("add", dtype, (shape, shape)) for shape in _ROWS]
        cases += [("embedding", dtype, ((50257, width), (rows,))) for rows, width in _ROWS]
        cases += [
            (f"conv2d/{stride}/{kernel // 2}", dtype, ((b, i, side, side), (o, i, kernel, kernel)))
            for b, i, o, side, kernel, stride in _CONVOLUTIONS
        ]
    return cases


def _card(name: str) -> str:
    """The card as `measured.CARDS` names it: A100s differ in memory and in form."""
    if "A100" not in name:
        return short_name(name)
    return f"A100-{'PCIE' if 'PCI' in name.upper() else 'SXM'}-{'40' if '40GB' in name else '80'}GB"


def _inputs(gpu: Any, op: str, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    if op == "embedding":
        table, rows = shapes
        places = torch.randint(table[0], rows, device=gpu.device)
        return [torch.randn(table, dtype=kind, device=gpu.device), places]
    return [torch.randn(shape, dtype=kind, device=gpu.device) for shape in shapes]


@experiment("calibration/operators", seconds=120)
def operators(gpu: Any) -> dict[str, Any]:
    """Median microseconds of every case."""
    card, rows = {"source": f"recorded {gpu.name}", "card": _card(gpu.name)}, []
    cudnn = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # a row says float32 and means it
    try:
        for place, (op, dtype, shapes) in enumerate(_cases()):
            inputs = _inputs(gpu, op, dtype, shapes)
            with torch.no_grad(), measured.precision(dtype):
                us = timed(gpu, partial(measured.run, op, inputs), repeats=10, samples=3)
            sizes = " ".join("x".join(map(str, shape)) for shape in shapes)
            side = "held-out" if place % 3 == 2 else "fit"
            of = {"set": side, "op": op, "dtype": dtype, "shapes": sizes, "us": round(us, 2)}
            rows.append(card | of)
    finally:
        torch.backends.cudnn.allow_tf32 = cudnn
    return {"table": rows}


def _gpt2(gpu: Any, dtype: torch.dtype | None) -> Callable[[], Any]:
    with torch.device(gpu.device):
        net = GPT2()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    tokens = torch.randint(50257, (4, 1024), device=gpu.device)

    def step() -> None:
        with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = net(tokens)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _resnet(gpu: Any, dtype: torch.dtype | None, layout: torch.memory_format) -> Callable[[], Any]:
    with torch.device(gpu.device):
        net = ResNet().to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, foreach=True)
    images = torch.randn(64, 3, 224, 224, device=gpu.device).contiguous(memory_format=layout)
    labels = torch.randint(1000, (64,), device=gpu.device)

    def step() -> None:
        with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _by_operator(gpu: Any, step: Callable[[], Any]) -> dict[tuple[str, str, str], list[float]]:
    """(operator, shapes of its inputs, kernel) → microseconds of each of its kernels in one step."""
    found: dict[tuple[str, str, str], list[float]] = {}
    if gpu.device.type != "cuda":
        before = len(gpu.kernels)
        step()
        gpu.synchronize()
        for kernel in gpu.kernels[before:]:
            found.setdefault((kernel.name, "", kernel.kind), []).append(kernel.duration_s * 1e6)
        return found
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True) as prof:
        step()
        gpu.synchronize()
    for event in prof.events() or ():
        for kernel in event.kernels:
            shapes = " ".join("x".join(map(str, shape)) for shape in event.input_shapes if shape)
            found.setdefault((event.name, shapes[:120], kernel.name[:160]), []).append(float(kernel.duration))
    return found


@experiment("calibration/steps", seconds=60)
def steps(gpu: Any) -> dict[str, Any]:
    """GPT-2 small (4 × 1,024 tokens, AdamW) and ResNet-50 (64 images, SGD): the step's time, and its kernels by operator."""
    last, half = torch.channels_last, torch.float16
    made: dict[str, Callable[[], Callable[[], Any]]] = {
        "GPT-2, fp32": lambda: _gpt2(gpu, None),
        "GPT-2, autocast, bf16": lambda: _gpt2(gpu, torch.bfloat16),
        "ResNet-50, fp32, NCHW": lambda: _resnet(gpu, None, torch.contiguous_format),
        "ResNet-50, autocast, fp16, NCHW": lambda: _resnet(gpu, half, torch.contiguous_format),
        "ResNet-50, autocast, fp16, channels last": lambda: _resnet(gpu, half, last),
    }
    rows = list[dict[str, Any]]()
    cudnn = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        for name, make in made.items():
            step = make()
            whole = timed(gpu, step, repeats=5, samples=3)
            rows.append(
                {"step": name, "op": "", "shapes": "", "kernel": "", "calls": 1, "us": round(whole, 1)}
            )
            for (op, shapes, kernel), times in _by_operator(gpu, step).items():
                of = {"step": name, "op": op, "shapes": shapes, "kernel": kernel, "calls": len(times)}
                rows.append(of | {"us": round(sum(times), 2)})
            del step
    finally:
        torch.backends.cudnn.allow_tf32 = cudnn
    return {"table": rows}


@experiment("calibration/launches", seconds=15)
def launches(gpu: Any) -> dict[str, Any]:
    """Microseconds of one call on tiny tensors, many in a row, without autograd and with: what a call takes the CPU."""
    x, y = (torch.randn(16, 16, device=gpu.device) for _ in range(2))
    q = torch.randn(1, 1, 16, 16, device=gpu.device, dtype=torch.bfloat16)
    image, at = (
        torch.randn(1, 16, 8, 8, device=gpu.device),
        torch.zeros(16, dtype=torch.int64, device=gpu.device),
    )
    gain, filters = (
        torch.nn.Parameter(torch.ones(16, device=gpu.device)),
        torch.nn.Parameter(torch.randn(16, 16, 3, 3, device=gpu.device)),
    )
    weight = torch.nn.Parameter(torch.randn(16, 16, device=gpu.device))
    calls: dict[str, Callable[[], Any]] = {
        "x + y": lambda: x + y,
        "x.add_(1)": lambda: x.add_(1),
        "x * gain": lambda: x * gain,
        "x.view, no kernel": lambda: x.view(256),
        "torch.empty_like, no kernel": lambda: torch.empty_like(x),
        "x @ weight": lambda: x @ weight,
        "F.linear with bias": lambda: F.linear(x, weight, gain),
        "F.gelu": lambda: F.gelu(x),
        "softmax": lambda: x.softmax(-1),
        "F.layer_norm": lambda: F.layer_norm(x, (16,), gain, gain),
        "x.sum()": lambda: x.sum(),
        "torch.cat": lambda: torch.cat([x, y]),
        "x[at]": lambda: x[at],
        "F.embedding": lambda: F.embedding(at, weight),
        "x.to(bfloat16)": lambda: x.to(torch.bfloat16),
        "F.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q),
        "F.conv2d": lambda: F.conv2d(image, filters, padding=1),
        "F.linear, forward and backward": lambda: F.linear(x, weight, gain).backward(y),
    }
    rows = list[dict[str, Any]]()
    for name, call in calls.items():
        for grad in (False, True):
            if not grad and "backward" in name:
                continue
            with torch.set_grad_enabled(grad):
                rows.append({"call": name, "autograd": grad, "us": round(timed(gpu, call, 50), 2)})
    return {"table": rows}
