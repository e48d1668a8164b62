"""Lesson 12, layout: the kernels of a convolution in half precision, by the layout of its input."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.common import launched, timed
from helpers.recordings.registry import experiment

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@experiment("12/layouts", seconds=15)
def layouts(gpu: Any) -> dict[str, Any]:
    """Microseconds and kernels of a 3 × 3 convolution of 64 channels, 56 × 56 pixels, in float16: alone, and 8 of them in a row."""
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for depth, batch in ((1, 8), (8, 64)):
            parts = [torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(depth)]
            net = torch.nn.Sequential(*parts).to(gpu.device, torch.float16)
            images = torch.randn(batch, 64, 56, 56, device=gpu.device, dtype=torch.float16)
            for name, layout in LAYOUTS.items():
                turned, given = net.to(memory_format=layout), images.contiguous(memory_format=layout)  # type: ignore[call-overload]
                us = timed(gpu, lambda: turned(given))  # noqa: B023 - called here
                kernels = launched(gpu, lambda: turned(given))  # noqa: B023
                rows.append({"depth": depth, "batch": batch, "layout": name, "us": us, "kernels": kernels})
    return {"table": rows}
