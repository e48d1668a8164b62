"""Lesson 13, quantization: what eight bits buy one linear layer of 4,096 by 4,096, and which shapes are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from helpers.recordings.common import timed
from helpers.recordings.registry import experiment

WIDTH = 4096
TOKENS = (1, 16, 64, 256, 1024, 4096, 16384)


@experiment("13/int8_linear", seconds=40)
def int8_linear(gpu: Any) -> dict[str, Any]:
    """Microseconds of one linear layer in bfloat16 and in four int8 ways, for 1 to 16,384 tokens, warm."""
    weight = torch.randn(WIDTH, WIDTH, device=gpu.device, dtype=torch.bfloat16) / 64
    scale = weight.abs().amax(1) / 127
    q = (weight / scale[:, None]).round().to(torch.int8)
    rows = []
    for tokens in TOKENS:
        x = torch.randn(tokens, WIDTH, device=gpu.device, dtype=torch.bfloat16)
        for way, work in _ways(x, weight, q, scale).items():
            rows.append({"tokens": tokens, "way": way, "us": timed(gpu, work, 10, samples=3)})
    return {"table": rows}


def _ways(x: Any, weight: Any, q: Any, scale: Any) -> dict[str, Callable[[], Any]]:
    few = max(x.shape[0], 32)  # cuBLAS takes more than 16 rows
    x8 = torch.randint(-127, 128, (few, WIDTH), device=x.device, dtype=torch.int8)

    def converted() -> Any:
        return x @ q.to(x.dtype).t() * scale

    def dynamic() -> Any:
        step = x.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
        rounded = (x / step).round().to(torch.int8)
        if len(rounded) < few:
            rounded = torch.nn.functional.pad(rounded, (0, 0, 0, few - len(rounded)))
        return torch._int_mm(rounded, q.t())[: len(x)].to(x.dtype) * step * scale

    return {
        "bfloat16": lambda: x @ weight.t(),
        "weights in int8, converted first": converted,
        "weights in int8, one kernel": lambda: torch._weight_int8pack_mm(x, q, scale),
        "both in int8, op by op": dynamic,
        "both in int8, the product alone": lambda: torch._int_mm(x8, q.t()),
    }


@experiment("13/int8_shapes", seconds=10)
def int8_shapes(gpu: Any) -> dict[str, Any]:
    """Microseconds of torch._int_mm for inner and outer sizes near 4,096, or what it answers where it refuses."""
    rows: list[dict[str, Any]] = []
    for m, n in ((4096, 4096), (4096, 4112), (4096, 4104), (4096, 4100), (16, 4096), (17, 4096)):
        a = torch.randint(-127, 128, (m, n), device=gpu.device, dtype=torch.int8)
        b = torch.randint(-127, 128, (n, n), device=gpu.device, dtype=torch.int8)

        def work(a: Any = a, b: Any = b) -> Any:
            return torch._int_mm(a, b.t())

        try:
            rows.append({"rows": m, "size": n, "us": timed(gpu, work), "refused": ""})
        except RuntimeError as refused:
            rows.append({"rows": m, "size": n, "us": 0.0, "refused": str(refused).partition("\n")[0][:120]})
    return {"table": rows}
