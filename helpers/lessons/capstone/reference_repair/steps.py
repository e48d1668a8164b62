"""A training step of a task in one of its ways, on a GPU, a simulated one, or the CPU: the same code."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from helpers.lessons.capstone.reference_repair import inductor
from helpers.lessons.capstone.reference_repair.models import OPTIONS, Batch, Net, Task, Way, rungs_of
from helpers.running_example import rungs

Step = Callable[[], list[Any]]


def stepper(task: Task, way: Way, gpu: Any) -> Step:
    """A function that does the next step of a new model, and returns the record: (loss, share that is right) a step."""
    torch.manual_seed(0)
    with torch.device(gpu.device):
        net = Net(task, way)
    if way.compiled:
        compile_regions(task, way, net, gpu)
    adamw = torch.optim.AdamW(net.parameters(), lr=1e-4, **OPTIONS[way.adamw])
    kind = "cuda" if gpu.device.type == "meta" else gpu.device.type

    def step(inputs: Tensor, targets: Tensor) -> Batch:
        with torch.autocast(kind, torch.bfloat16) if way.bf16 else nullcontext():
            loss, right = net(inputs, targets)
        adamw.zero_grad()
        loss.backward()
        way.clip(net)
        adamw.step()
        return loss, right

    run = rungs.graphed(step, gpu) if way.graphed else step
    batches, record = task.batches(), list[Any]()

    def once() -> list[Any]:
        way.log(record, *run(*way.send(next(batches), gpu)))
        return record

    return once


def compile_regions(task: Task, way: Way, net: Net, gpu: Any) -> None:
    """torch.compile, part by part: the blocks share what is compiled for the first."""
    if gpu.device.type == "meta":
        inductor.on_simulated(task, way, net, gpu)
        return
    for part in [*net.blocks, net.leave]:
        part.compile()


def measured(task: Task, gpu: Any) -> list[dict[str, Any]]:
    """Every rung on that GPU: seconds of a warm step, and the most that the allocator had from the device meanwhile."""
    return [{"rung": rung.says, **one(task, rung.way, gpu)} for rung in rungs_of(task)]


def one(task: Task, way: Way, gpu: Any) -> dict[str, Any]:
    """A rung's seconds and peak_bytes."""
    gc.freeze()  # what is here already is no garbage of this rung: not to be gone through twice
    once = stepper(task, way, gpu)
    for _ in range(4 if way.graphed else 2):  # a graph is captured in the fourth step
        once()
    gpu.synchronize()
    gc.collect()
    gpu.empty_cache()  # what only the first steps took
    gpu.reset_peak_memory_stats()
    once()
    gpu.synchronize()
    counted = 1 if gpu.evidence.startswith("simulated") else 10
    start = gpu.clock()
    for _ in range(counted):
        once()
    gpu.synchronize()
    seconds, peak = (gpu.clock() - start) / counted, gpu.max_memory_reserved()
    del once
    gc.collect()
    gc.unfreeze()
    gpu.empty_cache()
    return {"seconds": seconds, "peak_bytes": peak}
