"""A stretch of a program on a simulated GPU: what ran in it, from an idle GPU to an idle one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stretch:
    """What a call did on a simulated GPU, which was idle before and is idle after.

    result: what it returned. kernels: copies too. host, collectives: records of the operators, waits …, and of what was sent. began_s: on the host's clock;
    seconds: until the GPU was done. launches, syncs: the call's own. peak: bytes allocated at the most; temporary: of them those
    beyond what was there before.
    """

    result: Any
    kernels: list[Any]
    host: list[Any]
    collectives: list[Any]
    began_s: float
    seconds: float
    launches: int
    syncs: int
    peak: int
    temporary: int

    @property
    def bytes(self) -> int:
        """What its kernels read and write, and its copies carry."""
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def busy_s(self) -> float:
        """Seconds of its kernels and copies, one after the other."""
        return sum(float(kernel.duration_s) for kernel in self.kernels)


def stretch(gpu: Any, call: Callable[[], Any]) -> Stretch:
    """One call on a simulated GPU, which is entered: from the moment in which it is idle to the end of the call's work."""
    gpu.synchronize()
    gpu.reset_peak_memory_stats()
    held, launches, syncs, began = gpu.memory_allocated(), gpu.launches, gpu.syncs, gpu.clock()
    kernels, host, collectives = len(gpu.kernels), len(gpu.host), len(gpu.collectives)
    result = call()
    launches, syncs = gpu.launches - launches, gpu.syncs - syncs
    gpu.synchronize()
    peak = gpu.max_memory_allocated()
    return Stretch(
        result, gpu.kernels[kernels:], gpu.host[host:], gpu.collectives[collectives:],
        began, gpu.clock() - began, launches, syncs, peak, peak - held,
    )  # fmt: skip
