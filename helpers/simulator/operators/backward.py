"""Which stream a backward pass works in.

"Each backward CUDA op runs on the same stream that was used for its corresponding forward op", and the engine
makes streams wait where a gradient goes from one to another, before the first and after the last of them
(PyTorch, CUDA semantics, "Stream semantics of backward passes"; torch/csrc/autograd/engine.cpp). On a CPU
build the engine knows of no streams. Here a node's stream is found by its sequence number, which grows with
every node that the forward pass makes, and a wait is put in where a kernel reads what another stream wrote
in the same backward pass. A leaf's AccumulateGrad takes the stream of the gradient that reaches it (in
PyTorch: the stream on which the leaf was first used, and a warning where the two differ).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from helpers.pytorch import private_torch
from helpers.simulator.accesses import accesses
from helpers.simulator.machine import Machine
from helpers.simulator.timeline import Lane, Mark

_LEAF = 2**64 - 1  # AccumulateGrad's sequence number: it comes before everything else


class Backward:
    """The streams of the forward pass, and who waits for whom on the way back."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        machine.backward = self
        self.several = False  # more than one stream was ever current: otherwise there is nothing to do
        self._numbers, self._lanes = [0], [machine.default]  # from which node on which stream was current
        self._depth = 0  # `with gpu.stream(...)` blocks that are open
        self._runs: list[_Run] = []

    def switched(self, opened: int) -> None:
        """Another stream is current from now on. opened: 1 where a block for it begins, -1 where it ends."""
        self.several, self._depth = True, self._depth + opened
        number = private_torch.sequence_number()
        if self._numbers[-1] == number:
            self._lanes[-1] = self._machine.current
        else:
            self._numbers.append(number)
            self._lanes.append(self._machine.current)

    def lane(self) -> Lane:
        """The stream that a launch goes to now: a backward node's, else the current one."""
        node = private_torch.current_autograd_node()
        if node is None or not self._runs or self._depth > self._runs[-1].depth:
            return self._machine.current
        number = node._sequence_nr()
        if number >= _LEAF:
            return self._runs[-1].last
        return self._lanes[max(0, bisect_right(self._numbers, number) - 1)]

    def enter(self, func: Any, args: Any, kwargs: Any) -> Lane | None:
        """An operator is about to run. In a backward pass: go to its stream, and wait for what it reads there.
        Returns the stream to come back to, None outside a backward pass."""
        machine, run = self._machine, self._runs[-1] if self._runs else None
        if run is None or private_torch.current_autograd_node() is None:
            return None
        before, lane = machine.current, self.lane()
        machine.current = run.last = lane
        for tensor, _ in accesses(func, args, kwargs, None):
            made = run.made.get(_key(tensor))
            if made is not None and made[0] != lane.number:
                machine.line.wait(lane, made[1])
                # As the engine does (torch/csrc/autograd/input_buffer.cpp, record_stream_any_impl).
                machine.memory.record_stream(machine.seen(tensor), lane)
        return before

    def leave(self, func: Any, before: Lane, launched: bool, args: Any, kwargs: Any, out: Any) -> None:
        """It has run: remember what it wrote."""
        machine, run = self._machine, self._runs[-1]
        if launched:
            lane = machine.current
            made = run.used[lane.number] = machine.line.mark(lane)
            for tensor, write in accesses(func, args, kwargs, out):
                if write:
                    run.made[_key(tensor)] = lane.number, made
        machine.current = before

    def ran(self, lane: Lane) -> None:
        """Work was put into a stream unseen by the dispatcher: a graph's replay."""
        if self._runs:
            self._runs[-1].used[lane.number] = self._machine.line.mark(lane)

    @contextmanager
    def engine(self) -> Iterator[None]:
        """While active, the engine's own beginning and end are seen."""
        plain = private_torch.run_backward

        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.several:
                return plain(outputs, *args, **kwargs)
            line, lane = self._machine.line, self._machine.current
            run = _Run(self._depth, lane)
            begin = lane.number, line.mark(lane)
            for gradient in args[0] if args and isinstance(args[0], (list, tuple)) else ():
                if isinstance(gradient, torch.Tensor):
                    run.made[_key(gradient)] = begin
            self._runs.append(run)
            try:
                return plain(outputs, *args, **kwargs)
            finally:
                self._runs.pop()
                for number, last in run.used.items():
                    if number != lane.number:
                        line.wait(lane, last)

        with (
            mock.patch.object(*private_torch.place("run_backward"), run_backward),
            mock.patch.object(torch.autograd, "_engine_run_backward", run_backward),
        ):
            yield


class _Run:
    """One backward pass. made: storage → the stream that wrote it, and when; used: stream → its last mark."""

    def __init__(self, depth: int, ambient: Lane) -> None:
        self.depth, self.last = depth, ambient
        self.made: dict[int, tuple[int, Mark]] = {}
        self.used: dict[int, Mark] = {}


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
