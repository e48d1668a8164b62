"""Gradients in buckets: which go together, and how much of their all-reduces backward hides. Arithmetic, no tensors.

    run = gradients(gpu, model, lambda: loss(model(x)).backward())     # inside `with gpu:`, without DDP
    plan = overlap(run, seconds, cap_mb=5)
    plan.exposed_s, plan.buckets

The rule is DistributedDataParallel's (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): in the
order in which gradients are ready, a bucket is closed by the one that makes it reach its size. Whoever gives
bucket_cap_mb gives it for all buckets; without it the first has 1 MiB, so that sending begins early, and the others 25
(torch/nn/parallel/distributed.py, _BucketCapacityConfig.create). Buckets are sent in order, one at a time, from the
moment when the last of their gradients is ready. What collectives take from the kernels beside them is left out here;
on the simulated GPU itself it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

MIB = 1 << 20


@dataclass(frozen=True)
class Gradient:
    """One parameter's. ready_s: seconds after the start of the step's forward pass."""

    name: str
    bytes: int
    ready_s: float


@dataclass(frozen=True)
class Backward:
    """A step without communication. gradients: in the order in which they are ready; forward_s: when backward begins;
    seconds: when it ends. evidence: where the times come from."""

    gradients: tuple[Gradient, ...]
    forward_s: float
    seconds: float
    evidence: str

    @property
    def bytes(self) -> int:
        return sum(g.bytes for g in self.gradients)


@dataclass(frozen=True)
class Bucket:
    """Gradients that are sent together. ready_s, start_s, end_s: seconds, as in `Gradient`."""

    names: tuple[str, ...]
    bytes: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Plan:
    """What became of the buckets: each when it was sent."""

    backward: Backward
    buckets: tuple[Bucket, ...]

    @property
    def seconds(self) -> float:
        """Forward, backward, and what of the sending comes after them."""
        return max([self.backward.seconds, *(b.end_s for b in self.buckets)])

    @property
    def exposed_s(self) -> float:
        """Communication after the end of backward: nothing hides it."""
        return self.seconds - self.backward.seconds

    @property
    def communication_s(self) -> float:
        return sum(b.end_s - b.start_s for b in self.buckets)


def assign(sizes: Sequence[int], cap_mb: float | None = None) -> list[list[int]]:
    """Places of the gradients in each bucket; sizes: bytes, in the order in which they are ready.

    cap_mb: DDP's bucket_cap_mb, in MiB; None: its default, 1 for the first bucket and 25 for the others.
    """
    first_mb, cap_mb = (1.0, 25.0) if cap_mb is None else (cap_mb, cap_mb)
    if cap_mb <= 0:
        raise ValueError(f"a bucket has a size: cap_mb={cap_mb}")
    made: list[list[int]] = []
    room = 0.0
    for place, size in enumerate(sizes):
        if room <= 0:
            made.append([])
            room = (first_mb if len(made) == 1 else cap_mb) * MIB
        made[-1].append(place)
        room -= size
    return made


def overlap(run: Backward, seconds: Callable[[int], float], cap_mb: float | None = None) -> Plan:
    """Send the gradients in buckets while backward goes on. seconds: bytes → time of one all-reduce; cap_mb: as in `assign`."""
    buckets, free = [], 0.0
    for places in assign([g.bytes for g in run.gradients], cap_mb):
        mine = [run.gradients[i] for i in places]
        nbytes, ready = sum(g.bytes for g in mine), max(g.ready_s for g in mine)
        start = max(ready, free)
        free = start + seconds(nbytes)
        buckets.append(Bucket(tuple(g.name for g in mine), nbytes, ready, start, free))
    return Plan(run, tuple(buckets))


def gradients(gpu: SimGPU, model: torch.nn.Module, forward: Callable[[], torch.Tensor]) -> Backward:
    """Run forward() and its result's backward on the simulated GPU, and note when each gradient is ready.

    Call it inside `with gpu:`; it runs twice, so that first uses do not count. Gradients are dropped before and after.
    """
    machine, ready = gpu._machine, list[tuple[str, int, int]]()
    line = machine.need("gradients()")
    names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}

    def note(parameter: torch.Tensor) -> None:
        grad: Any = parameter.grad
        ready.append((names[parameter], grad.nbytes, line.mark(machine.current).time_ns))

    handles = [p.register_post_accumulate_grad_hook(note) for p in names]
    begin = middle = end = 0
    try:
        for _ in range(2):
            ready.clear()
            model.zero_grad(set_to_none=True)
            gpu.synchronize()
            begin = line.arrival_ns
            loss = forward()
            middle = machine.current.ready_ns
            loss.backward()
            end = machine.current.ready_ns
            del loss
    finally:
        for handle in handles:
            handle.remove()
        model.zero_grad(set_to_none=True)
    made = [Gradient(name, nbytes, (at - begin) / 1e9) for name, nbytes, at in ready]
    if not made or not math.isfinite(made[-1].ready_s):
        raise ValueError("gradients(): backward reached no parameter of the model")
    made.sort(key=lambda g: g.ready_s)
    return Backward(tuple(made), (middle - begin) / 1e9, (end - begin) / 1e9, gpu.evidence)
