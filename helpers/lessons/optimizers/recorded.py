"""Lesson 06, optimizers: what the three AdamWs cost on a GPU."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.common import timed_step
from helpers.recordings.registry import experiment

#: the options of torch.optim.AdamW that choose one of its three programs
WAYS: dict[str, dict[str, Any]] = {
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
# Weights of each parameter. GPT-2 small's sizes: two embeddings, twelve blocks, a last norm.
_BLOCK = [768, 768, 768 * 2304, 2304, 768 * 768, 768, 768, 768, 768 * 3072, 3072, 3072 * 768, 768]
NETS = {
    "100 parameters of 4,096": [4096] * 100,
    "GPT-2 small, 148 parameters": [50257 * 768, 1024 * 768, *_BLOCK * 12, 768, 768],
    "8 parameters of 16.8 M": [2**24] * 8,
}


@experiment("06/three_adamws", seconds=20)
def three_adamws(gpu: Any) -> dict[str, Any]:
    """Time of one warm AdamW step and its temporary memory, for three nets and three implementations."""
    rows = []
    for net, sizes in NETS.items():
        for way in WAYS:
            seconds, temporary = _step(gpu, sizes, way)
            rows.append({"net": net, "way": way, "seconds": seconds, "temporary_bytes": temporary})
    return {"table": rows}


def _step(gpu: Any, sizes: list[int], way: str) -> tuple[float, int]:
    """(seconds of one step, bytes that it holds at its peak beyond what is there before and after)."""
    params = [torch.nn.Parameter(torch.zeros(n, device=gpu.device)) for n in sizes]
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(params, **WAYS[way])
    optimizer.step()  # makes the state, loads the kernels, and leaves room for the temporaries in the pool
    gpu.reset_peak_memory_stats()
    held = gpu.memory_allocated()
    us = timed_step(gpu, optimizer.step)
    return us / 1e6, gpu.max_memory_allocated() - held
