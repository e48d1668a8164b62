"""A script's steps: from the end of one `optimizer.step()` to the end of the next, of the first optimizer that steps.

Where no torch.optim.Optimizer steps, since the script has one of its own, a step ends where backward() does.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from helpers.own_script.host_time import now
from helpers.pytorch import private_torch
from helpers.simulator import SimGPU

#: calls of backward() without a step of an optimizer, after which they are taken for the steps
_PATIENCE = 8
_FEWEST = 3


class Enough(BaseException):
    """All steps that were wanted have run: ends the script from inside. A BaseException, so that `except Exception` lets it by."""


@dataclass(frozen=True)
class Bound:
    """Where a step ends. host, kernels: how many records there are by then. at_ns: when host and device are done with them."""

    host: int
    kernels: int
    at_ns: int


@dataclass
class Steps:
    """The ends of the steps so far. warm: how many come before the measured ones; wanted: how many of those, or fewer, yet at
    least `_FEWEST`, if they take more than `seconds` of the true clock."""

    gpu: SimGPU
    warm: int
    wanted: float
    seconds: float = math.inf
    before: Callable[[], None] = lambda: None  # what is told of a step's end before it is noted
    ended: Callable[[int], None] = lambda steps: None  # … and after it, with how many have ended
    bounds: list[Bound] = field(default_factory=list)
    _first: int = 0
    _backwards: int = 0
    _began: float = 0.0
    late: bool = False  # whether it was the time that ended them

    @property
    def measured(self) -> int:
        return max(0, len(self.bounds) - 1 - self.warm)

    @contextmanager
    def found(self) -> Iterator[None]:
        handle = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            handle.remove()

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:
            return  # a second network's: part of the same step
        self._end()

    def backward_ended(self) -> None:
        """A call of backward() has returned."""
        self._backwards += 1
        if not self._first and self._backwards > _PATIENCE:
            self._end()

    def _end(self) -> None:
        self.before()
        line = self.gpu._machine.line
        done = max(line.host_ns, *(lane.ready_ns for lane in line.lanes), 0)
        self.bounds.append(Bound(len(line.host), len(line.kernels), done))
        self.ended(len(self.bounds))
        if len(self.bounds) == self.warm + 1:
            self._began = now()
        if self.measured >= self.wanted:
            raise Enough
        self.look()

    def look(self) -> None:
        """End the script if the time is over and enough steps are measured: in the middle of a long evaluation too."""
        self.late = self.wanted > self.measured >= _FEWEST and now() - self._began > self.seconds
        if self.late:
            raise Enough


def switches() -> list[str]:
    """Switches for looking for mistakes that are on now, each of which makes every step slower."""
    on = {
        "torch.autograd.set_detect_anomaly(True)": torch.is_anomaly_enabled(),
        "torch.use_deterministic_algorithms(True)": torch.are_deterministic_algorithms_enabled(),
        "CUDA_LAUNCH_BLOCKING=1": os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "torch.profiler": private_torch.profiler_enabled(),
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "sys.settrace": sys.gettrace() is not None,
    }
    return [name for name, there in on.items() if there]
