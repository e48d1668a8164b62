"""The same names on a GPU that is there, so that one piece of code runs on both."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import torch

from helpers.simulator.devices import Device
from helpers.simulator.gpu import SimGPU, simulate
from helpers.simulator.written.profile import real_profile

__all__ = ["RealGPU", "RealMemoryNames", "any_gpu"]


class RealMemoryNames:
    """The same names on a real GPU: torch.cuda's own."""

    memory = torch.cuda.memory
    memory_stats = staticmethod(torch.cuda.memory_stats)
    memory_allocated = staticmethod(torch.cuda.memory_allocated)
    max_memory_allocated = staticmethod(torch.cuda.max_memory_allocated)
    memory_reserved = staticmethod(torch.cuda.memory_reserved)
    max_memory_reserved = staticmethod(torch.cuda.max_memory_reserved)
    reset_peak_memory_stats = staticmethod(torch.cuda.reset_peak_memory_stats)
    reset_accumulated_memory_stats = staticmethod(torch.cuda.reset_accumulated_memory_stats)
    empty_cache = staticmethod(torch.cuda.empty_cache)
    mem_get_info = staticmethod(torch.cuda.mem_get_info)
    set_per_process_memory_fraction = staticmethod(torch.cuda.set_per_process_memory_fraction)
    memory_snapshot = staticmethod(torch.cuda.memory_snapshot)


class RealGPU(RealMemoryNames):
    """torch.cuda behind the simulated GPU's names. `with gpu:` does nothing; the clock is the wall's.

    RuntimeError where no CUDA device can be used.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError(
                "no CUDA device here: use simulate('H100'), or any_gpu() to take what there is"
            )
        self.device = torch.device("cuda")
        self.name = torch.cuda.get_device_name()
        self.evidence = "live (GPU)"
        self.Stream = torch.cuda.Stream
        self.Event = torch.cuda.Event
        self.stream = torch.cuda.stream
        self.current_stream = torch.cuda.current_stream
        self.default_stream = torch.cuda.default_stream
        self.synchronize = torch.cuda.synchronize
        self.profile = real_profile
        self.set_sync_debug_mode = torch.cuda.set_sync_debug_mode
        self.get_sync_debug_mode = torch.cuda.get_sync_debug_mode
        self.CUDAGraph, self.graph = torch.cuda.CUDAGraph, torch.cuda.graph
        self.graph_pool_handle = torch.cuda.graph_pool_handle
        self.make_graphed_callables = torch.cuda.make_graphed_callables
        self.is_current_stream_capturing = torch.cuda.is_current_stream_capturing
        self.faults: list[str] = []
        self.clock = time.perf_counter
        self.clock_ns = time.perf_counter_ns

    def __enter__(self) -> RealGPU:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def host_work(self, seconds: float) -> None:
        """Keep the host busy for so long (spinning: a sleep would wake up too late)."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    @property
    def kernels(self) -> NoReturn:
        raise RuntimeError("a real GPU does not list its kernels by itself: record them with torch.profiler")

    def trace(self) -> NoReturn:
        raise RuntimeError(
            "a real GPU keeps no trace by itself: `with gpu.profile() as prof:`, then trace.read(prof)"
        )

    @property
    def launches(self) -> NoReturn:
        raise RuntimeError("a real GPU does not count launches by itself: record them with torch.profiler")

    @property
    def syncs(self) -> NoReturn:
        raise RuntimeError("a real GPU does not count waits by itself: record them with torch.profiler")

    @property
    def races(self) -> NoReturn:
        raise RuntimeError("a real GPU does not find races: run the program on simulate('H100') for that")


def any_gpu(name: str | Device = "H100", *, noise: float = 0.0, seed: int = 0) -> RealGPU | SimGPU:
    """The real GPU where there is one, else a simulated one of that name. Its `evidence` says which."""
    return RealGPU() if torch.cuda.is_available() else simulate(name, noise=noise, seed=seed)
