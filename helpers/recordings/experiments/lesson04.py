"""Lesson 04, data loading: what a batch of images costs on its way to the GPU, by dtype and by kind of memory."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.registry import experiment

BATCH = (256, 3, 224, 224)


@experiment("04/to_the_device", seconds=20)
def to_the_device(gpu: Any) -> dict[str, Any]:
    """A batch is copied, then made float32 in [0, 1] on the GPU if it was not before: bytes, copy, and all of it."""
    rows = []
    for dtype in (torch.float32, torch.uint8):
        for pinned in (False, True):
            batch = torch.zeros(BATCH, dtype=dtype, pin_memory=pinned)
            copy, whole = _seconds(gpu, batch, convert=False), _seconds(gpu, batch, convert=True)
            name = str(dtype).removeprefix("torch.")
            rows.append(
                {"dtype": name, "pinned": pinned, "bytes": batch.nbytes, "copy_s": copy, "ready_s": whole}
            )
    return {"table": rows}


def _seconds(gpu: Any, batch: torch.Tensor, convert: bool, repeats: int = 4) -> float:
    """Seconds of one copy to the GPU (and of the conversion behind it), from events around several."""

    def work() -> None:
        x = batch.to(gpu.device, non_blocking=True)
        if convert and x.dtype == torch.uint8:
            x.float().mul_(1 / 255)

    for _ in range(2):
        work()
    gpu.synchronize()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats
