"""Lesson 03, the GPU's queue: the same training loop when nothing, an .item(), and small kernels hold it up."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from helpers.recordings.common import mlp, profiled
from helpers.recordings.registry import experiment


def _loop(gpu: Any, width: int, batch: int, read_loss: bool, prepare_s: float = 0.0) -> Any:
    model = mlp(gpu, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    x, y = (torch.randn(batch, width, device=gpu.device) for _ in range(2))
    losses = []

    def step(i: int) -> None:
        with torch.profiler.record_function("forward"):
            loss = F.mse_loss(model(x), y)
        with torch.profiler.record_function("backward"):
            loss.backward()
        with torch.profiler.record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item() if read_loss else loss.detach())
        if prepare_s:
            gpu.host_work(prepare_s)
        if i == 0:  # the last before the recording begins: what it leaves in the queue would be in no step
            gpu.synchronize()

    return profiled(gpu, step)


@experiment("03/steady")
def steady(gpu: Any) -> dict[str, Any]:
    """Large layers, nobody waits: the queue stays full."""
    return {"trace": _loop(gpu, 4096, 4096, read_loss=False)}


@experiment("03/item_in_loop")
def item_in_loop(gpu: Any) -> dict[str, Any]:
    """Middling layers and an .item() each step: the queue runs dry once a step."""
    return {"trace": _loop(gpu, 2048, 1024, read_loss=True)}


@experiment("03/read_and_prepare")
def read_and_prepare(gpu: Any) -> dict[str, Any]:
    """The same with 1.5 ms of Python after each .item(): the GPU has nothing to do meanwhile."""
    return {"trace": _loop(gpu, 2048, 1024, read_loss=True, prepare_s=1.5e-3)}


@experiment("03/launch_bound")
def launch_bound(gpu: Any) -> dict[str, Any]:
    """Tiny layers: each kernel is done before the next is launched."""
    return {"trace": _loop(gpu, 64, 32, read_loss=False)}
