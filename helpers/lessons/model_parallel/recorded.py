"""Lesson 16, model parallel: what one rank's own products of a split MLP take, without any sending."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from helpers.recordings.common import timed
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
        rows.append({"ranks": n, "us": timed(gpu, partial(_forward, x, first, second), samples=1)})
    return {"table": rows}


def _forward(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ first) @ second
