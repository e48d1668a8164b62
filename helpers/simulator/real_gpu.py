"""The same names on a GPU that is there, so that one piece of code runs on both."""

from __future__ import annotations

import time
from typing import Any

import torch

from helpers.simulator.written.profile import real_profile

_NOT_KEPT = {
    "kernels": "list its kernels by itself: record them with torch.profiler",
    "launches": "count launches by itself: record them with torch.profiler",
    "syncs": "count waits by itself: record them with torch.profiler",
    "races": "find races: run the program on simulate('H100') for that",
    "trace": "keep a trace by itself: `with gpu.profile() as prof:`, then trace.read(prof)",
}


class RealGPU:
    """torch.cuda behind the simulated GPU's names. `with gpu:` does nothing; the clock is the wall's.

    RuntimeError where no CUDA device can be used, and for what a real GPU does not tell.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("no CUDA device here: use simulate('H100')")
        self.device, self.name = torch.device("cuda"), torch.cuda.get_device_name()
        self.evidence, self.faults = "live (GPU)", list[str]()
        self.profile = real_profile
        self.clock, self.clock_ns = time.perf_counter, time.perf_counter_ns

    def __getattr__(self, name: str) -> Any:
        """All other names are torch.cuda's."""
        if name in _NOT_KEPT:
            raise RuntimeError(f"a real GPU does not {_NOT_KEPT[name]}")
        return getattr(torch.cuda, name)

    def __enter__(self) -> RealGPU:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def host_work(self, seconds: float) -> None:
        """Keep the host busy for so long (spinning: a sleep would wake up too late)."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
