"""A stretch of a program on a simulated GPU: what ran in it, from an idle GPU to an idle one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stretch:
    """What a call did on a simulated GPU, which was idle before and is idle after."""

    result: Any  # what the call returned
    kernels: list[Any]  # and copies
    host: list[Any]  # what the host did: operators, waits, allocations
    collectives: list[Any]  # what was sent to other ranks
    began_s: float  # on the host's clock
    seconds: float  # until the GPU was idle again
    launches: int  # without those of that last wait, and so is syncs
    syncs: int
    peak: int  # bytes allocated at the most
    temporary: int  # of them, those beyond what was there before

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
