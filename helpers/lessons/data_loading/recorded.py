"""Lesson 04, data loading: what a batch of images costs on its way to the GPU, by dtype and by kind of memory."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.common import timed
from helpers.recordings.registry import experiment

BATCH = (256, 3, 224, 224)


@experiment("04/to_the_device", seconds=20)
def to_the_device(gpu: Any) -> dict[str, Any]:
    """A batch is copied, then made float32 in [0, 1] on the GPU if it was not before: bytes, copy, and all of it."""
    rows = []
    for dtype in (torch.float32, torch.uint8):
        for pinned in (False, True):
            batch = torch.zeros(BATCH, dtype=dtype, pin_memory=pinned)
            seconds = {"copy_s": _seconds(gpu, batch, False), "ready_s": _seconds(gpu, batch, True)}
            name = str(dtype).removeprefix("torch.")
            rows.append({"dtype": name, "pinned": pinned, "bytes": batch.nbytes, **seconds})
    return {"table": rows}


def _seconds(gpu: Any, batch: torch.Tensor, convert: bool) -> float:
    """Seconds of one copy to the GPU (and of the conversion behind it)."""

    def work() -> None:
        x = batch.to(gpu.device, non_blocking=True)
        if convert and x.dtype == torch.uint8:
            x.float().mul_(1 / 255)

    return timed(gpu, work, repeats=4) / 1e6
