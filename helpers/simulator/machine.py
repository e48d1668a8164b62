"""The simulated device itself: its clocks and streams, and the four things that it does: launch, copy, answer, wait.

The rooms around it take a Machine: operators, the allocator's tensors, graphs, the other ranks, what is written. It
knows none of them. Where it has to ask one, that room has put itself into one of the hooks below.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from helpers.simulator.devices import Device
from helpers.simulator.frames import caller
from helpers.simulator.timeline import Lane, Timeline


class Storages:
    """Some storages, for as long as they live: which are page-locked, say, of which a CPU build of PyTorch cannot tell."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._held:
            self._held.add(storage._cdata)
            weakref.finalize(storage, self._held.discard, storage._cdata).atexit = False
        return tensor

    def discard(self, tensor: torch.Tensor) -> None:
        self._held.discard(tensor.untyped_storage()._cdata)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._held


class Load(NamedTuple):
    """What one kernel is to the device. beside: seconds next to a collective that has this share of the memory
    bandwidth (None: the same); name: the kernel's, if not its operator's."""

    seconds: float
    flops: int
    bytes: int
    beside: Callable[[float], float] | None = None
    name: str = ""


class Machine:
    """One simulated GPU and the host beside it. values: tensors have true values, and lie on the CPU.

    line: clocks, streams, engines, and what ran; current: the stream that work goes into; faults: what went wrong.
    """

    def __init__(self, card: Device, noise: float = 0.0, seed: int = 0, values: bool = False) -> None:
        self.line = Timeline(card, noise, seed)
        self.device = torch.device("cpu" if values else "meta")
        self.faults, self.races = self.line.faults, self.line.races
        self.default = self.current = self.line.lanes[0]
        self.pinned = self.races.pinned = Storages()
        self.thread: int | None = None  # which one the program runs in, once it has begun
        self.inside = False  # whether it is in its `with gpu:` block
        self.sync_debug = 0  # torch.cuda.set_sync_debug_mode: nothing, warn, error
        # Hooks, filled by the rooms.
        self.memory: Any = None  # memory.Memory: which addresses tensors have
        self.backward: Any = None  # operators.backward.Backward: which stream a backward pass works in
        self.seen: Callable[[Any], Any] = lambda tensor: tensor  # a tensor as the device has it
        self.on_host: Callable[[torch.Tensor], bool] = lambda tensor: not tensor.is_meta
        # the true values of a graph, for a capture that begins
        self.recorder: Callable[[], Any] = lambda: None
        # What a collective takes from kernels beside it, in a world that counts it.
        self.sm_share: float | None = None
        self.works: list[Any] | None = None  # roofline.Work of every kernel, where somebody collects them
        self.rank: tuple[int, int] | None = None  # this rank and how many there are, in a world

    @property
    def card(self) -> Device:
        return self.line.card

    def need(self, what: str) -> Timeline:
        """The timeline, for a call that is made inside the block and in its thread; RuntimeError for others."""
        if not self.inside:
            raise RuntimeError(
                f"{what} outside `with gpu:`: the simulated {self.card.name} sees only what runs inside that block"
            )
        if threading.get_ident() != self.thread:
            raise RuntimeError(
                f"{what} from another thread: the simulated {self.card.name} has one host thread"
            )
        return self.line

    @contextmanager
    def on(self, lane: Lane) -> Iterator[None]:
        """Inside, work is put into that stream."""
        before, self.current = self.current, lane
        moved = lane is not before
        if moved:
            self.backward.switched(1)
        try:
            yield
        finally:
            self.current = before
            if moved:
                self.backward.switched(-1)

    def launch(self, name: str, loads: Sequence[Load], library: str | None, code: object) -> None:
        """One operator on the host, and its kernels on the device. library: whose handle it needs; code: with the
        name, what is loaded at a first use."""
        line, a = self.line, self.card.assumptions
        line.warm_up("context", "CUDA context", a.context_s)
        if library:
            line.warm_up(library, library, a.library_s)
        line.warm_up((name, code), f"load {name}", a.kernel_load_s)
        line.spend(name, "operator", a.operator_s)
        for place, load in enumerate(loads):
            if place:
                line.spend(name, "launch", a.launch_s)
            cost = load.seconds, "kernel", load.flops, load.bytes
            line.enqueue(load.name or name, self.current, *cost, beside=load.beside)

    def copy(self, name: str, kind: str, tensor: torch.Tensor, pinned: bool, non_blocking: bool) -> None:
        """A copy over PCIe. Pageable memory makes the host wait whatever it asked for, unless it is tiny."""
        line, a, lane = self.line, self.card.assumptions, self.current
        line.warm_up("context", "CUDA context", a.context_s)
        line.spend(name, "operator", a.operator_s)
        rate = a.bandwidth_share * self.card.pcie_bytes_per_s
        staged = not pinned and kind == "copy h2d" and tensor.nbytes <= a.staged_at_once_bytes
        if staged:
            line.spend(f"stage {name}", "work", tensor.nbytes / a.pageable_bytes_per_s)
        elif not pinned:
            rate = min(rate, a.pageable_bytes_per_s)
        if not non_blocking:
            self.waits(name)
        blocking, seconds = not non_blocking, a.copy_floor_s + tensor.nbytes / rate
        line.enqueue(name, lane, seconds, kind, 0, tensor.nbytes, not pinned, blocking)
        if not non_blocking or not (pinned or staged):
            line.drain(name, lane)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """tensor.pin_memory(): a page-locked copy, at the host's cost."""
        if tensor in self.pinned:
            return tensor
        self.line.spend("pin_memory", "work", tensor.nbytes / self.card.assumptions.pageable_bytes_per_s)
        return self.pinned.add(tensor.clone())

    def sync(self, name: str) -> None:
        """An operator that needs an answer from the device waits for its stream."""
        self.waits(name)
        self.line.drain(name, self.current)

    def waits(self, name: str) -> None:
        """An operation of that name is about to wait for the device: tell whoever asked (sync_debug)."""
        if not self.sync_debug:
            return
        text, frame = f"called a synchronizing CUDA operation: {name}", caller()
        if self.sync_debug == 2:
            line = f" (line {frame.f_lineno})" if frame is not None else ""
            self.faults.append(f"{text}{line}; set_sync_debug_mode('error') forbids it")
        elif frame is not None:  # at the line of the program, once a line as other warnings
            where, registry = frame.f_code.co_filename, frame.f_globals.setdefault("__warningregistry__", {})
            warnings.warn_explicit(text, UserWarning, where, frame.f_lineno, registry=registry)
