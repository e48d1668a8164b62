"""Lesson 05, copies behind compute: serial from pageable memory, serial from pinned, double-buffered."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.common import mlp, profiled
from helpers.recordings.registry import experiment

BATCH, WIDTH = 8192, 2048  # 64 MiB a batch


@experiment("05/serial")
def serial(gpu: Any) -> dict[str, Any]:
    """Each batch is copied from ordinary memory, then used."""
    return _one_after_the_other(gpu, pinned=False)


@experiment("05/pinned")
def pinned(gpu: Any) -> dict[str, Any]:
    """Each batch is copied from pinned memory, then used: the same loop, and a faster copy."""
    return _one_after_the_other(gpu, pinned=True)


def _one_after_the_other(gpu: Any, pinned: bool) -> dict[str, Any]:
    model = mlp(gpu, WIDTH)
    batch = torch.zeros(BATCH, WIDTH, pin_memory=pinned)

    def step(i: int) -> None:
        with torch.no_grad():
            model(batch.to(gpu.device, non_blocking=True))[0, 0].item()  # a step that looks at its loss

    return {"trace": profiled(gpu, step)}


@experiment("05/double_buffered")
def double_buffered(gpu: Any) -> dict[str, Any]:
    """The next batch is copied from pinned memory, in a stream of its own, while this one is used."""
    model = mlp(gpu, WIDTH)
    batch = torch.zeros(BATCH, WIDTH, pin_memory=True)
    side = gpu.Stream()
    waiting: list[torch.Tensor] = []

    def fetch() -> None:
        with gpu.stream(side):
            waiting.append(batch.to(gpu.device, non_blocking=True))

    def step(i: int) -> None:
        if not waiting:
            fetch()
        gpu.current_stream().wait_stream(side)
        x = waiting.pop()
        x.record_stream(gpu.current_stream())
        fetch()
        with torch.no_grad():
            model(x)[0, 0].item()

    return {"trace": profiled(gpu, step)}
