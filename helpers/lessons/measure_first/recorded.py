"""Lesson 00, measure first: twenty large products, timed in three ways."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.registry import experiment

PRODUCTS = 20


@experiment("00/three_timers", seconds=10)
def three_timers(gpu: Any) -> dict[str, Any]:
    """Seconds of twenty 4,096 × 4,096 products, by three timers: no synchronize, one at the end, and a pair of events."""
    x = torch.randn(4096, 4096, device=gpu.device)
    for _ in range(3):
        x @ x
    gpu.synchronize()
    began = gpu.clock()
    for _ in range(PRODUCTS):
        x @ x
    launched = gpu.clock() - began
    gpu.synchronize()
    waited = gpu.clock() - began
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    for _ in range(PRODUCTS):
        x @ x
    end.record()
    end.synchronize()
    by_events = start.elapsed_time(end) / 1e3
    timers = {"no synchronize": launched, "synchronize at the end": waited, "events": by_events}
    return {"table": [{"timer": name, "seconds": seconds} for name, seconds in timers.items()]}
