"""The same names on a GPU that is there, so that one piece of code runs on both."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import torch

from helpers.simulator.devices import Device
from helpers.simulator.gpu import SimGPU, simulate

__all__ = ["RealGPU", "any_gpu"]


class RealGPU:
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


def any_gpu(name: str | Device = "H100", *, noise: float = 0.0, seed: int = 0) -> RealGPU | SimGPU:
    """The real GPU where there is one, else a simulated one of that name. Its `evidence` says which."""
    return RealGPU() if torch.cuda.is_available() else simulate(name, noise=noise, seed=seed)
