"""Lesson 02: what a launch costs by size, and computations written out beside PyTorch's own operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from helpers.recordings.common import launched, timed
from helpers.recordings.registry import experiment


@experiment("02/crossover", seconds=15)
def crossover(gpu: Any) -> dict[str, Any]:
    """Microseconds of one x + y, launched many times in a row, by the number of float32 elements."""
    rows = []
    for n in (2**power for power in range(8, 29, 2)):
        x, y = torch.ones(n, device=gpu.device), torch.ones(n, device=gpu.device)
        rows.append({"elements": n, "us": timed(gpu, lambda: x + y, 50)})  # noqa: B023 - called here
    return {"table": rows}


def _norm(x: Any, gain: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias


def _entropy(x: Any, labels: Any) -> Any:
    shifted = x - x.max(-1, keepdim=True).values
    logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -logs.gather(1, labels[:, None]).mean()


def _attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


@experiment("02/fused", seconds=15)
def fused(gpu: Any) -> dict[str, Any]:
    """Microseconds and kernels of five computations, written out and as PyTorch has them, each launched many times in a row."""
    device = gpu.device
    x, y, z = (torch.randn(512, 1024, device=device) for _ in range(3))
    weight, gain, bias = (torch.randn(*s, device=device) for s in ((1024, 1024), (1024,), (1024,)))
    scores, labels = torch.randn(512, 1000, device=device), torch.zeros(512, device=device, dtype=torch.int64)
    q, k, v = (torch.randn(8, 16, 512, 64, device=device) for _ in range(3))
    ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "a + b * c": (lambda: x + y * z, lambda: torch.addcmul(x, y, z)),
        "x @ w.t() + b": (lambda: x @ weight.t() + bias, lambda: F.linear(x, weight, bias)),
        "layer norm": (lambda: _norm(x, gain, bias), lambda: F.layer_norm(x, (1024,), gain, bias)),
        "cross entropy": (lambda: _entropy(scores, labels), lambda: F.cross_entropy(scores, labels)),
        "attention": (lambda: _attention(q, k, v), lambda: F.scaled_dot_product_attention(q, k, v)),
    }
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for name, (by_hand, existing) in ways.items():
            for way, work in (("written out", by_hand), ("PyTorch's operator", existing)):
                kernels = len(launched(gpu, work))
                rows.append({"computation": name, "way": way, "us": timed(gpu, work), "kernels": kernels})
    return {"table": rows}
