"""Lesson 09, saving memory: eight blocks, plain, with checkpoints, and with what backward needs on the host meanwhile."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from helpers.lessons.saving_memory.layer import squares, stack
from helpers.recordings.common import peak_of, timed
from helpers.recordings.registry import experiment

WAYS = ("plain", "checkpoints", "save_on_cpu", "save_on_cpu, pinned")


def step(net: Any, x: Any, way: str) -> None:
    """Forward and backward in one of the four ways."""
    h = x
    to_host = torch.autograd.graph.save_on_cpu(pin_memory="pinned" in way)
    with to_host if "save_on_cpu" in way else nullcontext():
        for block in net:
            h = checkpoint(block, h, use_reentrant=False) if way == "checkpoints" else block(h)
        loss = squares(h)
    del h
    loss.backward()
    net.zero_grad()


@experiment("09/offloading", seconds=20)
def offloading(gpu: Any) -> dict[str, Any]:
    """Microseconds of a step of 8 blocks of width 512 with 2,048 rows, and the peak beyond weights and batch, in four ways."""
    with torch.device(gpu.device):
        net, x = stack(512, 8), torch.randn(2048, 512)
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        us = timed(gpu, lambda: step(net, x, way), 3)  # noqa: B023 - called here
        rows.append({"way": way, "us": us, "peak_bytes": peak_of(gpu, lambda: step(net, x, way))})  # noqa: B023
    return {"table": rows}
