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
    z = x - x.amax(-1, keepdim=True)
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

        torch.compiler.reset()
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


@experiment("21/window", seconds=30)
def window(gpu: Any) -> dict[str, Any]:
    """A new token's attention to 4 first and 256 last places of a cache: 8 texts × 32 heads, room for 8,192 places of 64 features."""
    texts, heads, places, d, sinks, last = 8, 32, 8192, 64, 4, 256
    many = texts * heads
    q = torch.randn(many, 1, 1, d, device=gpu.device)
    k, v = (torch.randn(many, 1, places, d, device=gpu.device) for _ in range(2))
    filled = (torch.arange(many, device=gpu.device) // heads + 1) * (places // texts)
    place = torch.arange(places, device=gpu.device)
    n = filled[:, None, None, None]
    within, counts = place < n, (place < n) & ((place < sinks) | (place >= n - last))
    runs: dict[str, Callable[[], Any]] = {
        "SDPA, all places": lambda: F.scaled_dot_product_attention(q, k, v),
        "SDPA, a mask of what is filled": lambda: F.scaled_dot_product_attention(q, k, v, within),
        "SDPA, a mask of what counts": lambda: F.scaled_dot_product_attention(q, k, v, counts),
    }
    if gpu.device.type == "cuda":
        from helpers.lessons.a_kernel_of_your_own import on_gpu

        runs["a Triton kernel, blocks of 16"] = lambda: on_gpu.attend_window(q, k, v, filled, sinks, last, 16)
        runs["a Triton kernel, blocks of 64"] = lambda: on_gpu.attend_window(q, k, v, filled, sinks, last, 64)
    rows = list[dict[str, Any]]()
    with torch.no_grad():
        for name, run in runs.items():
            wanted = runs["SDPA, a mask of what counts"]()
            same = "Triton" not in name or torch.allclose(run(), wanted, atol=1e-3, rtol=1e-3)
            rows.append(
                {"way": name, "us": timed(gpu, run), "kernels": len(launched(gpu, run)), "same": same}
            )
    return {"table": rows}
