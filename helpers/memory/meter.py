"""Every storage of a training step from birth to death, and what each turned out to be.

A counter of `helpers.counters` that also keeps the order of events. What a storage is (an activation, a gradient)
is known only afterwards, so each has a number, and numbers get their kind at the end.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from helpers.counters.operators import Operator
from helpers.counters.standins import saved_tensors, stand_ins
from helpers.counters.watch import Storages, Watch, running
from helpers.pytorch import private_torch

KINDS = (
    "parameters", "buffers", "inputs", "optimizer", "gradients", "activations", "recomputed", "output", "temporary",
)  # fmt: skip
"""What memory is used for, in the order in which it is stacked."""


# Between the operator and who asked for it: our own frames, and those that keep the compiler out.
_BETWEEN = ("watch.py", "meter.py", "_compile.py", "eval_frame.py")


class Event(NamedTuple):
    """One storage made (sign 1) or gone (sign −1)."""

    phase: int  # place in Meter.phases
    operator: str
    serial: int
    sign: int


class Meter(Watch):
    """Follows storages while it is entered. device: the type of device whose memory counts, "cpu" or "meta"."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.phases: list[str] = []
        self.events: list[Event] = []
        self.sizes: list[int] = []  # by serial number
        self.kinds: list[str] = []
        self.saved_bytes = 0  # distinct storages kept for backward in the first forward, older ones included
        self._serials: dict[int, int] = {}
        self._swaps: dict[int, int] = {}  # serial of a sum → serial of the term whose place it takes
        self._name = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count, unseen by any count that is going on around it."""
        around, running.watches = running.watches, [self]
        collecting = gc.isenabled()
        gc.disable()  # a tensor dies when its last reference does
        try:
            with ExitStack() as stack:
                stack.enter_context(stand_ins())
                stack.enter_context(saved_tensors())
                stack.enter_context(self)
                yield
        finally:
            running.watches = around
            self.stop()
            if collecting:
                gc.enable()

    def begin(self, phase: str) -> None:
        self.phases.append(phase)

    # ------------------------------------------------------------------------------------- what Watch tells

    def _record(self, op: Operator, before: Storages, args: Any, kwargs: Any, result: Any) -> None:
        super()._record(op, before, args, kwargs, result)
        if op.name == "aten.add" and _engine_adds(args):
            new, old = (self._serials.get(t.untyped_storage()._cdata) for t in (result, args[0]))
            if new is not None and old is not None:
                self._swaps[new] = old

    def _allocate(self, name: str, storage: torch.UntypedStorage, nbytes: int, new: bool = False) -> None:
        super()._allocate(name, storage, nbytes, new)
        if self.device == "cpu" or storage.device.type == self.device:
            # Gradients are computed with grad mode off: a node with it on is running a forward once more.
            again = (
                self.phases[-1].endswith("backward")
                and torch.is_grad_enabled()
                and private_torch.current_autograd_node() is not None
            )
            self.sizes.append(nbytes)
            self.kinds.append("recomputed" if again else "temporary")
            self._note(storage._cdata, name, len(self.sizes) - 1, 1)

    def _freed(self, key: int) -> None:
        super()._freed(key)
        self._note(key, "", self._serials.get(key), -1)

    def resized(self, name: str, storage: torch.UntypedStorage) -> None:
        serial = self._serials.get(storage._cdata)
        super().resized(name, storage)
        if serial is not None:
            self.events.append(Event(len(self.phases) - 1, name, serial, -1))

    def _note(self, key: int, name: str, serial: int | None, sign: int) -> None:
        if serial is None:
            return
        if sign > 0:
            self._serials[key] = serial
        else:
            self._serials.pop(key, None)
        self.events.append(Event(len(self.phases) - 1, name, serial, sign))

    def save(self, tensor: torch.Tensor) -> None:
        before = len(self._saved)
        super().save(tensor)
        if len(self._saved) > before:
            storage = tensor.untyped_storage()
            if len(self.phases) == 1:  # the first forward
                self.saved_bytes += storage.nbytes()
            serial = self._serials.get(storage._cdata)
            if serial is not None and self.kinds[serial] == "temporary":
                self.kinds[serial] = "activations"

    # ------------------------------------------------------------------------------------- what they are

    def call(self, kind: str, tensors: Iterable[torch.Tensor], only: str = "") -> None:
        """These tensors' storages, if they were made here (and taken for `only` so far), are of that kind."""
        for tensor in tensors:
            serial = self._serials.get(tensor.untyped_storage()._cdata)
            if serial is not None and only in ("", self.kinds[serial]):
                self.kinds[serial] = kind

    def ordered(self) -> list[Event]:
        """The events in order, sums of gradients in place."""
        return list(_swapped(self.events, self._swaps))

    def changes(self) -> tuple[np.ndarray, np.ndarray]:
        """(changes, phases): bytes by which each event (row) changes each kind (column); the phase of each event."""
        events = self.ordered()
        table = np.zeros((len(events), len(KINDS)), dtype=np.int64)
        for row, event in enumerate(events):
            table[row, KINDS.index(self.kinds[event.serial])] = event.sign * self.sizes[event.serial]
        return table, np.array([event.phase for event in events], dtype=np.int64)


def _engine_adds(args: tuple[Any, ...]) -> bool:
    """Whether autograd's engine, and no function of the graph, sums two gradients, the first of which is no view."""
    if (
        torch.is_grad_enabled()
        or len(args) != 2
        or not isinstance(args[1], torch.Tensor)
        or args[0]._is_view()
    ):
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


def _swapped(events: list[Event], swaps: dict[int, int]) -> Iterator[Event]:
    """The events, with sums of gradients in place.

    Where two gradients meet, autograd's engine adds the second to the first in place, if nobody else holds the
    first, which a view's base does; while a dispatch mode watches, it makes a third (`accumulate` in
    torch/csrc/autograd/input_buffer.cpp, isTensorSubclassLike in aten/src/ATen/TensorSubclassLikeUtils.h). Nobody
    else held what dies right after.
    """
    moved: set[int] = set()
    for place, event in enumerate(events):
        if place in moved:
            continue
        old = swaps.get(event.serial) if event.sign > 0 else None
        if old is not None:
            for later in range(place + 1, len(events)):
                if events[later].sign > 0:
                    break
                if events[later].serial == old:
                    moved.add(later)
                    yield events[later]
                    break
        yield event


def storages(tensors: Iterable[torch.Tensor], known: set[int], device: str) -> int:
    """Bytes of the storages under these tensors that are not `known` yet; they are then."""
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in known and device in ("cpu", tensor.device.type):
            known.add(storage._cdata)
            total += storage.nbytes()
    return total
