"""Pieces that several lessons' experiments share. A change here makes their recordings old, so change with care."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def mlp(gpu: Any, width: int, layers: int = 4, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """`layers` square linear layers with ReLUs between them, on the GPU."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width, device=gpu.device, dtype=dtype), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def profiled(gpu: Any, step: Callable[[int], Any], steps: int = 4, warm_up: int = 3) -> Any:
    """A profiler that recorded `steps` calls of step(i), after some that it did not.

    The GPU is idle when recording begins, and when it ends: what the warm-up left in the queue is none of the
    steps' work.
    """
    for i in range(warm_up):
        step(i)
    gpu.synchronize()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)
    with gpu.profile(schedule=schedule) as prof:
        for i in range(1 + steps):
            step(i)
            if i in (0, steps):  # the profiler's own warm-up step, and the last one
                gpu.synchronize()
            prof.step()
    return prof


def timed(gpu: Any, work: Callable[[], Any], repeats: int = 20, samples: int = 5, warm_up: int = 3) -> float:
    """Median microseconds of one call, from events around `repeats` of them, after some that are not timed."""
    for _ in range(warm_up):
        work()
    gpu.synchronize()
    times = []
    for _ in range(samples):
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / repeats)
    return float(sorted(times)[samples // 2])


def timed_step(gpu: Any, step: Callable[[], Any], repeats: int = 5, samples: int = 5) -> float:
    """Median microseconds of one call of what takes long. A simulated one takes the same each time, and long to simulate."""
    if gpu.device.type == "cuda":
        return timed(gpu, step, repeats, samples)
    return timed(gpu, step, 2, samples=1, warm_up=1)


def captured(gpu: Any, work: Callable[[], Any]) -> Any:
    """A CUDA graph of work(), warmed up in another stream as torch.cuda.graph wants it."""
    side, graph = gpu.Stream(), gpu.CUDAGraph()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        for _ in range(3):
            work()
    gpu.current_stream().wait_stream(side)
    with gpu.graph(graph):
        work()
    return graph


def launched(gpu: Any, work: Callable[[], Any]) -> list[str]:
    """Names of the kernels and copies that one call runs on the GPU, in their order, after one call that is not looked at."""
    work()
    gpu.synchronize()
    if gpu.device.type != "cuda":
        before = len(gpu.kernels)
        work()
        gpu.synchronize()
        return [kernel.name for kernel in gpu.kernels[before:]]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        work()
        gpu.synchronize()
    kernels = [event for event in prof.events() or () if event.device_type == torch.autograd.DeviceType.CUDA]
    return [event.name[:200] for event in sorted(kernels, key=lambda event: event.time_range.start)]


def peak_of(gpu: Any, work: Callable[[], Any]) -> int:
    """Bytes that one call has allocated at its peak, beyond what was there before it."""
    gpu.synchronize()
    held = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    work()
    gpu.synchronize()
    return int(gpu.max_memory_allocated() - held)
