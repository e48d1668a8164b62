"""Lesson 11, torch.compile: what it makes of pointwise operators and of a Transformer layer. Without a GPU only eager rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from helpers.recordings.common import captured, launched, peak_of, timed
from helpers.recordings.registry import experiment


def _chain(x: Any) -> Any:
    for op in (torch.exp, torch.neg, torch.tanh, torch.sigmoid, torch.sin, torch.relu):
        x = op(x)
    return x


def _norm_and_gelu(x: Any) -> Any:
    return F.gelu(F.layer_norm(x, x.shape[-1:]))


@experiment("11/fused", seconds=30)
def fused(gpu: Any) -> dict[str, Any]:
    """Microseconds and kernels of pointwise chains, eager and compiled."""
    small, large = torch.randn(1024, device=gpu.device), torch.randn(2**26, device=gpu.device)
    matrix = torch.randn(16384, 1024, device=gpu.device)
    runs: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "six pointwise operators, 1,024 numbers": (_chain, small),
        "six pointwise operators, 67 million numbers": (_chain, large),
        "layer norm and GELU, 16,384 rows of 1,024": (_norm_and_gelu, matrix),
    }
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for name, (fn, x) in runs.items():
            for way, run in _ways(gpu, fn).items():
                us = timed(gpu, lambda: run(x))  # noqa: B023 - called here
                kernels = launched(gpu, lambda: run(x))  # noqa: B023
                rows.append(
                    {"what": name, "way": way, "us": us, "kernels": len(kernels), "first": kernels[0]}
                )
    return {"table": rows}


def _ways(gpu: Any, fn: Any) -> dict[str, Any]:
    """Eager; and where there is a GPU that can run what Inductor writes for it, compiled in two modes."""
    if gpu.device.type != "cuda":
        return {"eager": fn}
    torch.compiler.reset()
    graphs = torch.compile(fn, mode="reduce-overhead", dynamic=False)
    return {"eager": fn, "compiled": torch.compile(fn, dynamic=False), "compiled, CUDA graph": graphs}


@experiment("11/layer", seconds=60)
def layer(gpu: Any) -> dict[str, Any]:
    """A Transformer layer of width 1,024, forward and backward, by tokens and precision: microseconds, launches, peak."""
    rows: list[dict[str, Any]] = []
    for dtype, shape in ((torch.float32, (8, 1024)), (torch.bfloat16, (8, 1024)), (torch.bfloat16, (1, 64))):
        torch.manual_seed(0)
        with torch.device(gpu.device):
            net = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True).to(dtype)
            x = torch.randn(*shape, 1024, dtype=dtype)
        for way, run in _ways(gpu, net).items():
            work = _step(run, net, x)
            row = {"precision": str(dtype).removeprefix("torch."), "tokens": shape[0] * shape[1], "way": way}
            row["us"] = timed(gpu, work, 10)  # first: it compiles
            rows.append(row | {"kernels": len(launched(gpu, work)), "peak_bytes": peak_of(gpu, work)})
            if way == "eager":
                graph = captured(gpu, work)  # its room was taken when it was captured: no peak
                row |= {"way": "eager, CUDA graph", "us": timed(gpu, graph.replay, 10), "peak_bytes": 0}
                rows.append(row | {"kernels": len(launched(gpu, graph.replay))})
                del graph
    return {"table": rows}


def _step(run: Any, net: Any, x: Any) -> Callable[[], None]:
    def work() -> None:
        run(x).sum().backward()
        for p in net.parameters():
            p.grad = None

    return work
