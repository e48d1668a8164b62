"""Which line each thing on the simulated clock belongs to: a mode above all others, and one below autograd.

What a backward pass launches belongs to the line whose forward pass made it: autograd's nodes are numbered as the forward
pass makes them. A leaf's accumulation, which no line made, stays with the line that called backward().
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import numpy
import torch
from torch.utils.weak import WeakIdKeyDictionary

from helpers.own_script import syntax
from helpers.own_script.as_cuda import CudaNames, answered
from helpers.own_script.host_time import HostTime
from helpers.own_script.kinds import BLOCKING
from helpers.own_script.places import NOWHERE, Place, calling, running
from helpers.own_script.true_values import TrueValues
from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Mode, Unseen
from helpers.simulator import SimGPU
from helpers.simulator.graphs import CUDAGraph

_ENGINE = "_engine_run_backward"
_LEAF = 2**64 - 1  # AccumulateGrad's sequence number
#: calls on host memory that mean something on a CUDA build: the simulator has to see them
_SEEN = frozenset("pin_memory is_pinned cuda record_stream copy_".split())


#: what cuDNN has one call for, and the simulator runs step by step
_RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu".split())
#: calls whose result holds where all that they are given does
_ALL_OF = frozenset("all any item __bool__ logical_and __and__ bitwise_and".split())


class Mark(NamedTuple):
    """From this record of the host's on, what happens belongs to `place`. backward: in its backward pass. within: the line
    that it was for, which called the model or asked the loader for a batch; None where no line did."""

    first: int
    place: Place
    backward: bool = False
    within: Place | None = None


class Marks:
    """Whose each record is, in order."""

    def __init__(self, gpu: SimGPU) -> None:
        self._line, self._allocator = gpu._machine.line, gpu._machine.memory.allocator
        self._first: list[int] = []
        self._events: list[int] = []  # how many of the memory's events there were then
        self._marks: list[Mark] = []
        self.wide: set[int] = set()  # records of the host's at which an operator on float64 began
        self.nchw: list[
            tuple[int, Place]
        ] = []  # records at which a convolution of an NCHW tensor began, and its line
        self.recurrent: set[Place] = set()  # lines that called an RNN which cuDNN would run as a whole
        self.recorded: set[Place] = set()  # lines that called a model while autograd was on

    @property
    def now(self) -> int:
        """The number of the host's next record."""
        return len(self._line.host)

    @property
    def events(self) -> int:
        """The number of the memory's next event, while its history is kept."""
        return len(self._allocator.history.events)

    def put(self, place: Place, backward: bool = False, within: Place | None = None) -> None:
        first = self.now
        if self._marks and self._marks[-1].first == first:
            self._marks[-1] = Mark(first, place, backward, within)
        elif not self._marks or self._marks[-1][1:] != (place, backward, within):
            self._first.append(first)
            self._events.append(max([self.events, *self._events[-1:]]))
            self._marks.append(Mark(first, place, backward, within))

    def wait(self, name: str) -> None:
        """The host waits here for all that the device has to do."""
        self._line.drain(name)

    def of(self, record: int) -> Mark:
        """The mark of one of the host's records."""
        return self._at(self._first, record)

    def of_event(self, event: int) -> Mark:
        """The mark of one of the memory's events."""
        return self._at(self._events, event)

    def _at(self, begins: list[int], number: int) -> Mark:
        at = bisect_right(begins, number) - 1
        return self._marks[at] if at >= 0 else Mark(0, NOWHERE)


class _Heard(list[Any]):
    """The host's records. One that comes while `runs`, the script itself, as of a stream's method, is of the line that runs."""

    def __init__(self, runs: Callable[[], bool], put: Callable[[], None]) -> None:
        super().__init__()
        self._runs, self._put = runs, put

    def append(self, record: Any) -> None:
        if self._runs():
            self._put()
        super().append(record)


class Calls(CudaNames):
    """Every call of the script's: "cuda" is the card, the watch stands meanwhile, and what it costs is its line's.

    Calls that touch host memory alone run as they are, with the watch on: they are the host's work.
    """

    leak_s = 0.0  # what one call costs the script's side of the watch

    def __init__(
        self, gpu: SimGPU, watch: HostTime, marks: Marks, backward_ended: Callable[[], None], values: TrueValues | None,
    ) -> None:  # fmt: skip
        super().__init__(gpu)
        self._watch, self._marks, self._backward_ended, self._values = watch, marks, backward_ended, values
        self._holds: Any = WeakIdKeyDictionary()  # tensors that say that something is finite

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watch = self._watch
        watch.stop()
        watch.leak_s += self.leak_s
        try:
            if getattr(func, "__name__", "") == "__get__" or answered(func):
                return super().__torch_function__(func, types, args, kwargs)
            func, args, kwargs = self.here(func, args, kwargs or {})
            if self._on_host(func, args, kwargs):
                return _by_itself(watch, func, args, kwargs)
            place = running() or NOWHERE
            within = watch.within = calling()
            watch.settle(place)
            self._marks.put(place, within=within)
            if getattr(func, "__name__", "") in _RECURRENT:
                self._marks.recurrent.add(place)
            if within is not None and torch.is_grad_enabled():
                self._marks.recorded.add(within)
            result = self._called(func, args, kwargs)
            if func is torch.Tensor.backward or func is torch.autograd.backward:
                self._backward_ended()
            return result
        finally:
            watch.go()

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        values = self._values
        if values is None:
            return self._finite(func, args, func(*args, **kwargs))
        values.asked(func, args)
        result = func(*args, **kwargs)
        values.told(func, args, kwargs, result)
        if func is torch.Tensor.__repr__ and args[0].is_meta:
            return values.printed(args[0]) or result
        return result

    def _finite(self, func: Any, args: Any, result: Any) -> Any:
        """A result where tensors have no values: what asks whether a tensor is finite is told that it is, and an assertion
        that it holds."""
        name = getattr(func, "__name__", "")
        asked = [a for a in args if isinstance(a, torch.Tensor)]
        if name == "isfinite" or (name in _ALL_OF and asked and all(a in self._holds for a in asked)):
            if isinstance(result, torch.Tensor):
                self._holds[result] = True
            elif result is False:
                return True
        elif func is torch.Tensor.__bool__ and not result:
            place = running()
            return place is not None and syntax.lines(place.file).get(place.line, syntax.Stands()).asserts
        return result

    def _on_host(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether the GPU has no part in a call."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            return False
        if getattr(func, "__name__", "") in _SEEN or "pin_memory" in kwargs:
            return False
        with private_torch.DisableTorchFunction():
            return not _any_meta(args, 3) and not _any_meta(kwargs.values(), 3)


def _by_itself(watch: HostTime, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call that is the host's work: unseen by all, with the watch on."""
    with private_torch.DisableTorchFunction(), Unseen():
        watch.go()
        try:
            return func(*args, **kwargs)
        finally:
            watch.stop()


def _any_meta(things: Any, depth: int) -> bool:
    for thing in things:
        if isinstance(thing, torch.Tensor):
            if thing.is_meta:
                return True
        elif depth and isinstance(thing, (list, tuple)):
            if _any_meta(thing, depth - 1):
                return True
        elif isinstance(thing, torch.device) and thing.type == "meta":
            return True
    return False


class Nodes(Mode):
    """Below autograd: which line made each node of the graph, and in a backward pass, whose node runs."""

    leak_s = 0.0  # as Calls has it

    def __init__(self, watch: HostTime, marks: Marks, within: Callable[[], Place | None] = calling) -> None:
        super().__init__()
        self._watch, self._marks, self._within = watch, marks, within
        self._made: dict[int, tuple[Place, Place | None]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._watch.runs:
            return self._looked_at(func, args, kwargs or {})
        # A call that no function mode saw, such as torch.from_numpy's.
        self._watch.stop()
        self._watch.leak_s += self.leak_s
        try:
            if _any_meta(args, 1):
                self._watch.settle(running() or NOWHERE)
                return self._looked_at(func, args, kwargs or {})
            return _by_itself(self._watch, func, args, kwargs or {})
        finally:
            self._watch.go()

    def _looked_at(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if any(isinstance(a, torch.Tensor) and a.dtype is torch.float64 and a.is_meta for a in args):
            self._marks.wide.add(self._marks.now)
        if func is torch.ops.aten.convolution.default and _nchw(args[0]):
            self._marks.nchw.append((self._marks.now, running() or NOWHERE))
        node = private_torch.current_autograd_node()
        if node is not None:
            number = node._sequence_nr()
            own = running(until=_ENGINE)  # a hook, or a segment that is computed again
            made, within = (self._made.get(number) if number < _LEAF else None) or (None, None)
            if own or made:
                self._marks.put(own or made or NOWHERE, backward=True, within=within)
            else:
                self._marks.put(running() or NOWHERE, within=self._within())
        else:
            where, within = running() or NOWHERE, self._within()
            self._made.setdefault(private_torch.sequence_number() - 1, (where, within))
            self._marks.put(where, within=within)
        result = func(*args, **kwargs)
        if os.environ.get(BLOCKING, "0") not in ("", "0"):
            self._marks.wait(BLOCKING)
        return result


def _nchw(tensor: torch.Tensor) -> bool:
    """Whether a tensor is images in NCHW, and could be in another order: one channel or one pixel is both."""
    both = tensor.is_contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else True
    return tensor.is_meta and tensor.is_contiguous() and not both


@contextmanager
def listening(
    gpu: SimGPU, watch: HostTime, marks: Marks, backward_ended: Callable[[], None] = lambda: None,
    values: TrueValues | None = None,
) -> Iterator[None]:  # fmt: skip
    """Within this block, which is inside `with gpu:` and where nothing has run yet, all that happens is told of."""
    put = lambda: marks.put(running() or NOWHERE)  # noqa: E731
    gpu._machine.line.host = _Heard(lambda: watch.runs, put)
    beside = values or nullcontext()
    with (
        beside, _replays(watch, marks), Nodes(watch, marks) as nodes,
        Calls(gpu, watch, marks, backward_ended, values) as calls,
    ):  # fmt: skip
        held, array = torch.empty(1), numpy.zeros(1)
        calls.leak_s = _leak(watch, held.dim)
        nodes.leak_s = _leak(watch, lambda: torch.from_numpy(array))
        yield


@contextmanager
def noting(gpu: SimGPU, within: Callable[[], Place | None]) -> Iterator[Marks]:
    """Within this block, which is inside `with gpu:` and where nothing has run yet, it is noted whose each record is, and
    nothing else: the script's own time is not charged, and "cuda" means nothing. within: says which line a line is for."""
    marks = Marks(gpu)
    put = lambda: marks.put(running() or NOWHERE, within=within())  # noqa: E731
    forward = lambda: private_torch.current_autograd_node() is None  # noqa: E731
    gpu._machine.line.host = _Heard(forward, put)
    with Nodes(HostTime(gpu._machine, 0.0, lambda *stretch: None), marks, within):
        yield marks


@contextmanager
def _replays(watch: HostTime, marks: Marks) -> Iterator[None]:
    """While active, a replay of a CUDA graph is its line's, and what the simulator takes for it is in no figure."""
    replay = CUDAGraph.replay

    def seen(graph: CUDAGraph) -> None:
        ran, place = watch.runs, running() or NOWHERE
        if ran:
            watch.stop()
            watch.settle(place)
            marks.put(place)
        try:
            replay(graph)
        finally:
            if ran:
                watch.go()

    with mock.patch.object(CUDAGraph, "replay", seen):
        yield


def _leak(watch: HostTime, call: Callable[[], Any], times: int = 1000) -> float:
    """Seconds of one call's way to our mode and back, the call itself among them."""
    watch.stop()
    watch.reset()
    watch.go()
    for _ in range(times):
        call()
    watch.stop()
    return watch.reset() / times
