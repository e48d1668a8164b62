"""Lesson 16, model parallel: what one rank's own products of a split MLP take, without any sending."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.registry import experiment

WIDTH, TOKENS = 8192, 2048
RANKS = (1, 2, 4, 8, 16, 32, 64)


@experiment("16/split_mlp", seconds=12)
def split_mlp(gpu: Any) -> dict[str, Any]:
    """Microseconds of an MLP's forward with an n-th of its 32,768 hidden units, bfloat16, warm."""
    x = torch.zeros(TOKENS, WIDTH, device=gpu.device, dtype=torch.bfloat16)
    rows = []
    for n in RANKS:
        first = torch.zeros(WIDTH, 4 * WIDTH // n, device=gpu.device, dtype=torch.bfloat16)
        second = torch.zeros(4 * WIDTH // n, WIDTH, device=gpu.device, dtype=torch.bfloat16)
        rows.append({"ranks": n, "us": _microseconds(gpu, x, first, second)})
    return {"table": rows}


def _microseconds(gpu: Any, x: Any, first: Any, second: Any, repeats: int = 20) -> float:
    for _ in range(3):
        torch.nn.functional.gelu(x @ first) @ second
    gpu.synchronize()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        torch.nn.functional.gelu(x @ first) @ second
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) * 1e3 / repeats)
