"""Lesson 19, attention: its ways by time and peak, the kernel that each call gets, and masks by blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from helpers.recordings.common import launched, peak_of, timed
from helpers.recordings.registry import experiment


def _written_out(q: Any, k: Any, v: Any) -> Any:
    return ((q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5).softmax(-1) @ v


def _only(backend: Any) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(backend):
            return sdpa(q, k, v)

    return attention


def _inputs(gpu: Any, n: int, batch: int = 8, **options: Any) -> list[Any]:
    dtype = options.pop("dtype", torch.bfloat16)
    return [torch.randn(batch, 16, n, 64, device=gpu.device, dtype=dtype, **options) for _ in range(3)]


@experiment("19/ways", seconds=30)
def ways(gpu: Any) -> dict[str, Any]:
    """Forward, and forward with backward, of 8 × 16 heads of 64 features in bfloat16: microseconds, peak beyond the inputs."""
    calls: dict[str, Callable[..., Any]] = {
        "written out": _written_out,
        "SDPA": sdpa,
        "math": _only(SDPBackend.MATH),
    }
    calls |= {"flash": _only(SDPBackend.FLASH_ATTENTION), "efficient": _only(SDPBackend.EFFICIENT_ATTENTION)}
    if gpu.device.type == "cuda":
        calls["cuDNN"] = _only(SDPBackend.CUDNN_ATTENTION)
    rows: list[dict[str, Any]] = []
    for n in (1024, 4096):
        q, k, v = _inputs(gpu, n, requires_grad=True)
        for way, call in calls.items():
            if way == "math" and n > 1024:
                continue  # in float32: more than the card has left

            def forward() -> None:
                with torch.no_grad():
                    call(q, k, v)  # noqa: B023 - called here

            def both() -> None:
                call(q, k, v).sum().backward()  # noqa: B023
                q.grad = k.grad = v.grad = None  # noqa: B023

            row: dict[str, Any] = {"tokens": n, "way": way}
            row |= {"us": timed(gpu, forward, 5), "peak_bytes": peak_of(gpu, forward)}
            row |= {"both_us": timed(gpu, both, 3), "both_peak_bytes": peak_of(gpu, both)}
            rows.append(row | {"kernels": launched(gpu, forward)})
    return {"table": rows}


@experiment("19/backends", seconds=15)
def backends(gpu: Any) -> dict[str, Any]:
    """The kernels that nine calls get, q, k and v of (2, 4, 128, 64) in bfloat16."""
    n = 128
    q, k, v = (torch.randn(2, 4, n, 64, device=gpu.device, dtype=torch.bfloat16) for _ in range(3))
    seen, bias = q.new_ones(n, n, dtype=torch.bool).tril(), nn.Parameter(q.new_zeros(n, n))
    calls: dict[str, Callable[[], Any]] = {
        "nothing but q, k and v": lambda: sdpa(q, k, v),
        "is_causal=True": lambda: sdpa(q, k, v, is_causal=True),
        "a mask of bools": lambda: sdpa(q, k, v, seen),
        "a mask that wants a gradient": lambda: sdpa(q, k, v, bias),
        "dropout_p=0.1": lambda: sdpa(q, k, v, dropout_p=0.1),
        "values wider than keys": lambda: sdpa(q, k, torch.cat([v, v], -1)),
        "three dimensions, no batch": lambda: sdpa(q[0], k[0], v[0]),
        "float32": lambda: sdpa(q.float(), k.float(), v.float()),
        "float64": lambda: sdpa(q.double(), k.double(), v.double()),
    }
    return {"table": [{"call": name, "kernels": launched(gpu, call)} for name, call in calls.items()]}


@experiment("19/blocks", seconds=60)
def blocks(gpu: Any) -> dict[str, Any]:
    """FlexAttention over block masks, compiled, beside SDPA with is_causal and with a mask of bools: 8,192 tokens, 16 heads."""
    n = 8192
    q, k, v = _inputs(gpu, n, batch=1)
    pair = torch.arange(n, device=gpu.device)
    allowed = pair[:, None] >= pair
    near = allowed & (pair[:, None] - pair < 256)
    runs: dict[str, Callable[[], Any]] = {
        "SDPA, no mask": lambda: sdpa(q, k, v),
        "SDPA, is_causal=True": lambda: sdpa(q, k, v, is_causal=True),
        "SDPA, causal as a mask of bools": lambda: sdpa(q, k, v, allowed),
        "SDPA, window of 256 as a mask of bools": lambda: sdpa(q, k, v, near),
    }
    if gpu.device.type == "cuda":
        runs |= _flex(gpu, q, k, v)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for name, run in runs.items():
            us = timed(gpu, run, 5)  # first: it compiles
            rows.append(
                {
                    "way": name,
                    "us": us,
                    "peak_bytes": peak_of(gpu, run),
                    "kernels": len(launched(gpu, run)),
                }
            )
    return {"table": rows}


def _flex(gpu: Any, q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n = q.shape[2]
    document = torch.repeat_interleave(torch.arange(8, device=gpu.device), n // 8)
    rules = {
        "causal": lambda b, h, i, j: i >= j,
        "sliding window of 256": lambda b, h, i, j: (i >= j) & (i - j < 256),
        "eight documents": lambda b, h, i, j: (document[i] == document[j]) & (i >= j),
    }
    compiled = torch.compile(flex_attention, dynamic=False)
    masks = {
        name: create_block_mask(rule, None, None, n, n, device=gpu.device) for name, rule in rules.items()
    }
    return {
        f"FlexAttention, {name}": partial(compiled, q, k, v, block_mask=mask) for name, mask in masks.items()
    }
