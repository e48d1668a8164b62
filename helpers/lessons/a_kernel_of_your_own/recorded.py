"""Lesson 21, a kernel of your own: a softmax in four ways, and a product by kernels that reuse what they load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from helpers.recordings.common import launched, timed
from helpers.recordings.registry import experiment


def _by_operators(x: Any) -> Any:
    z = x - x.max(-1, keepdim=True).values
    powers = torch.exp(z)
    return powers / powers.sum(-1, keepdim=True)


@experiment("21/softmax", seconds=30)
def softmax(gpu: Any) -> dict[str, Any]:
    """Microseconds and kernels of a softmax over rows of float32: by operators, F.softmax, compiled, and by one Triton kernel."""
    rows: list[dict[str, Any]] = []
    for count, columns in ((2048, 1024), (65536, 1024), (16384, 4096), (64, 4096)):
        x = torch.randn(count, columns, device=gpu.device)
        for way, run in _softmaxes(gpu).items():
            same = gpu.device.type != "cuda" or torch.allclose(run(x), x.softmax(-1), atol=1e-6)
            us = timed(gpu, lambda: run(x))  # noqa: B023 - called here
            kernels = launched(gpu, lambda: run(x))  # noqa: B023
            rows.append(
                {
                    "rows": count,
                    "columns": columns,
                    "way": way,
                    "us": us,
                    "kernels": len(kernels),
                    "same": same,
                }
            )
    return {"table": rows}


def _softmaxes(gpu: Any) -> dict[str, Callable[[Any], Any]]:
    runs: dict[str, Callable[[Any], Any]] = {
        "five operators": _by_operators,
        "F.softmax": lambda x: F.softmax(x, -1),
    }
    if gpu.device.type == "cuda":
        from helpers.lessons.a_kernel_of_your_own import on_gpu

        torch._dynamo.reset()
        runs["compiled"] = torch.compile(_by_operators, dynamic=False)
        runs["a Triton kernel"] = on_gpu.softmax
    return runs


@experiment("21/products", seconds=40)
def products(gpu: Any) -> dict[str, Any]:
    """A product of two 4,096 × 4,096 matrices in float16: torch.matmul, and a tiled Triton kernel by the side of its tile."""
    a, b = (torch.randn(4096, 4096, device=gpu.device, dtype=torch.float16) for _ in range(2))
    runs: dict[str, Callable[[], Any]] = {"torch.matmul": lambda: a @ b}
    if gpu.device.type == "cuda":
        from helpers.lessons.a_kernel_of_your_own import on_gpu

        for side in (16, 32, 64, 128):
            runs[f"tiles of {side}"] = partial(on_gpu.matmul, a, b, side)
        runs["one program an element"] = lambda: on_gpu.by_dots(a, b)
    wanted, rows = a @ b, list[dict[str, Any]]()
    for name, run in runs.items():
        same = gpu.device.type != "cuda" or torch.allclose(run(), wanted, atol=0.5, rtol=1e-2)
        repeats = 1 if name == "one program an element" else 5
        rows.append({"way": name, "us": timed(gpu, run, repeats, 3, 1), "same": same})
    return {"table": rows}
