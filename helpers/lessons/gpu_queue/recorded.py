"""Lesson 03, the GPU's queue: the same training loop when nothing, an .item(), and small kernels hold it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from helpers.recordings.common import mlp, profiled, timed
from helpers.recordings.registry import experiment


def _loop(gpu: Any, width: int, batch: int, read_loss: bool, prepare_s: float = 0.0) -> Callable[[int], None]:
    """A training step, step(i)."""
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

    return step


#: the arguments of _loop
LOOPS: dict[str, dict[str, Any]] = {
    "steady": {"width": 4096, "batch": 4096, "read_loss": False},
    "item_in_loop": {"width": 2048, "batch": 1024, "read_loss": True},
    "read_and_prepare": {"width": 2048, "batch": 1024, "read_loss": True, "prepare_s": 1.5e-3},
    "launch_bound": {"width": 64, "batch": 32, "read_loss": False},
}


@experiment("03/steady")
def steady(gpu: Any) -> dict[str, Any]:
    """Large layers, nobody waits: the queue stays full."""
    return {"trace": profiled(gpu, _loop(gpu, **LOOPS["steady"]))}


@experiment("03/item_in_loop")
def item_in_loop(gpu: Any) -> dict[str, Any]:
    """Middling layers and an .item() each step: the queue runs dry once a step."""
    return {"trace": profiled(gpu, _loop(gpu, **LOOPS["item_in_loop"]))}


@experiment("03/read_and_prepare")
def read_and_prepare(gpu: Any) -> dict[str, Any]:
    """The same with 1.5 ms of Python after each .item(): the GPU has nothing to do meanwhile."""
    return {"trace": profiled(gpu, _loop(gpu, **LOOPS["read_and_prepare"]))}


@experiment("03/launch_bound")
def launch_bound(gpu: Any) -> dict[str, Any]:
    """Tiny layers: each kernel is done before the next is launched."""
    return {"trace": profiled(gpu, _loop(gpu, **LOOPS["launch_bound"]))}


@experiment("03/without_profiler", seconds=15)
def without_profiler(gpu: Any) -> dict[str, Any]:
    """Microseconds of a step of the same four loops, when no profiler looks on."""
    rows = []
    for name, of in LOOPS.items():
        step = _loop(gpu, **of)
        rows.append({"loop": name, "us": timed(gpu, lambda: step(1), 10)})  # noqa: B023 - called here
    return {"table": rows}
