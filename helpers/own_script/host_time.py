"""The host's own time: what a script's Python, its loader and its CPU tensors take is measured, and put on the simulated clock.

The watch runs while the script does, and stands while the simulator works: the simulator's own cost is in no figure. What
is measured is the time of this machine, times a factor for the host of the card (1: a host as fast as this one).

Whose line it was is sampled every millisecond. Stretches too short for that belong to the line that ends
them. A stretch in which this thread never gave the processor away counts by its processor time: what other programs took
of it meanwhile is left out. One in which it waited, for a disk say, counts by the clock.
"""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any
from unittest import mock

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

from torch.utils.data import DataLoader

from helpers.own_script import places
from helpers.own_script.places import NOWHERE, Place, place
from helpers.pytorch import private_torch
from helpers.simulator.machine import Machine

PYTHON, TORCH, LOADER, WAITING = "Python", "PyTorch's Python", "DataLoader", "waits for a worker"
#: what of the host's time is measured, by the names of its records; all else is simulated
MEASURED = (PYTHON, TORCH, LOADER, WAITING)
_EVERY_S = 1e-3
#: the file in which a loader gets its samples
_FETCHING = os.path.join("torch", "utils", "data", "_utils", "fetch.py")
now, _processor = time.perf_counter, time.thread_time  # the true ones: the script's are others while it runs


def _waits() -> int:
    """How often this thread has given the processor away of its own accord; 0 where nobody counts it."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if resource is not None else 0


def _shares(samples: list[tuple[Place, bool]]) -> dict[tuple[Place, bool], float]:
    """What share of the samples each has."""
    return {sample: seen / len(samples) for sample, seen in Counter(samples).items()}


class HostTime:
    """A stopwatch for what the script does itself. factor: seconds of the card's host for one second here.

    charge: what is told of each stretch: (line, what it was, simulated seconds).
    """

    def __init__(self, machine: Machine, factor: float, charge: Callable[[Place, str, float], None]) -> None:
        self.machine, self.factor, self._charge = machine, factor, charge
        self._since: float | None = None
        self._processor_s, self._waits = 0.0, -1
        self._pending = 0.0
        self._aside_s: float | None = None  # what somebody else's work has taken so far; None outside `aside`
        self._samples: list[tuple[Place, bool]] = []  # a line, and whether it was in PyTorch's code
        self.what = PYTHON
        self.workers = 0  # of the loader that has most
        #: what workers did: the host's record that was the next, a line, and its seconds, shared among all workers
        self.worked: list[tuple[int, Place, float]] = []
        self.asker: Place | None = None  # the line that asked the loader for a batch, while it is made
        self.within: Place | None = None  # the line that called the model which runs now
        self.leak_s = 0.0  # what the way to our modes and back has cost the script's side of the watch since the last settling

    @property
    def runs(self) -> bool:
        return self._since is not None

    def stop(self) -> None:
        if self._since is not None:
            took = now() - self._since
            if _waits() == self._waits:
                took = min(took, _processor() - self._processor_s)
            self._pending, self._since = self._pending + took, None

    def go(self) -> None:
        self._processor_s, self._waits, self._since = _processor(), _waits(), now()

    def settle(self, where: Place) -> None:
        """What was measured so far is the host's work before what comes now, at `where`, or, inside `aside`, somebody else's.
        The watch stands."""
        if self._aside_s is not None:
            self._aside_s += self._spent()
            return
        spent = self._spent() * self.factor
        samples, self._samples = self._samples, []
        for (line, torchs), share in _shares(samples or [(where, places.in_torch(sys._getframe(1)))]).items():
            what = TORCH if torchs and self.what == PYTHON else self.what
            self._charge(line, what, spent * share)

    def reset(self) -> float:
        """Forget what was measured since the last settling, and return it. The watch stands."""
        took, self._samples = self._spent(), []
        return took

    def _spent(self) -> float:
        """Seconds since the last settling, which begins anew."""
        took = max(0.0, self._pending - self.leak_s)
        self._pending = self.leak_s = 0.0
        return took

    def seconds(self) -> float:
        """The simulated clock, for a script that asks the time."""
        since = now() - self._since if self._since is not None else 0.0
        return self.machine.line.host_ns / 1e9 + (self._pending + since) * self.factor

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Within this block the time is that of something else than plain Python."""
        self._between()
        before, self.what = self.what, what
        try:
            yield
        finally:
            self._between()
            self.what = before

    @contextmanager
    def asked(self, where: Place | None) -> Iterator[None]:
        """Within this block, that line waits for a batch."""
        before, self.asker = self.asker, where
        try:
            yield
        finally:
            self.asker = before

    def _between(self) -> None:
        ran = self._since is not None
        self.stop()
        self.settle(place(sys._getframe(2)) or NOWHERE)
        if ran:
            self.go()

    @contextmanager
    def aside(self, workers: int, then: Callable[[float], float]) -> Iterator[None]:
        """Within this block the work is that of one of so many workers: it is measured, and what is charged, to its lines, is
        what the host has to wait for it: `then` is told its seconds and says how many."""
        self._between()
        outer, self._aside_s = self._aside_s, 0.0
        try:
            yield
        finally:
            self.stop()
            samples, took = self._samples, ((self._aside_s or 0.0) + self.reset()) * self.factor
            self._aside_s = outer
            wait = then(took)
            where = _shares(samples or [(place(sys._getframe(2)) or NOWHERE, False)])
            record, each = len(self.machine.line.host), took / workers
            if self.asker is not None:
                self.worked.append((record, self.asker, each))
            for (line, _), share in where.items():
                if line != self.asker:
                    self.worked.append((record, line, each * share))
                if wait > 0:
                    self._charge(line, WAITING, wait * share)
            self.go()

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Within this block, a timer looks where the script is. (A thread that looks would take the interpreter's lock.)

        Where there is no such timer, or another thread runs the script, each stretch belongs to the line that ends it.
        """

        def look(frame: FrameType | None) -> None:
            if self._since is not None and (where := place(frame)) is not None and where.file:
                if where == self.asker and frame is not None:
                    where = _sample_ended(frame) or where
                self._samples.append((where, places.in_torch(frame)))

        with ticking(look):
            yield


def _sample_ended(frame: FrameType) -> Place | None:
    """Whose time a timer's signal is of that is seen where a loader's own code has just got a sample.

    Python looks for signals after calls and at a loop's end only. One that came in an operator of NumPy's, in the last lines
    of a data set's `__getitem__`, is seen when that has returned.
    """
    at: FrameType | None = frame
    while at is not None and at.f_code.co_filename.endswith(_FETCHING):
        data = getattr(at.f_locals.get("self"), "dataset", None)
        while data is not None:
            code = getattr(type(data).__getitem__, "__code__", None) if hasattr(data, "__getitem__") else None
            if code is not None and places.own(code.co_filename):
                return places.Place(code.co_filename, _last_unseen(code), places.function_of(code))
            data = getattr(data, "dataset", None)
        at = at.f_back
    return None


@lru_cache(maxsize=256)
def _last_unseen(code: CodeType) -> int:
    """The line of a function that computes something after its last call: Python looks for no signal from there on."""
    line, found = code.co_firstlineno, None
    for instruction in dis.get_instructions(code):
        if instruction.starts_line is not None:
            line = instruction.starts_line
        if "CALL" in instruction.opname or instruction.opname == "JUMP_BACKWARD":
            found = None
        elif found is None and instruction.opname.startswith(("BINARY", "UNARY", "COMPARE", "RETURN")):
            found = line
    return found or line


@contextmanager
def ticking(look: Callable[[FrameType | None], None]) -> Iterator[None]:
    """Within this block `look` is shown every millisecond where the program is. Never, where there is no such timer, or
    another thread runs the script."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda number, frame: look(frame))
    signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Workers:
    """DataLoader's workers on the simulated clock. Batches are made here, in this process, one after another; batch n is worker
    n mod W's, which begins it when it is free and was told of it: `ahead` batches for each worker are asked for in advance."""

    def __init__(self, workers: int, ahead: int, now_s: float) -> None:
        self.many, self._free = workers, [now_s] * workers
        self._taken: list[float] = []
        self._begun, self._most = now_s, workers * ahead

    def ready_s(self, cost_s: float) -> float:
        """When the next batch, which takes so long to make, is there."""
        number = len(self._taken)
        worker = number % len(self._free)
        told = self._taken[number - self._most] if number >= self._most else self._begun
        self._free[worker] = max(self._free[worker], told) + cost_s
        return self._free[worker]

    def take(self, now_s: float) -> None:
        self._taken.append(now_s)


@contextmanager
def loaders(watch: HostTime, asked: Callable[[], None]) -> Iterator[None]:
    """While active, every DataLoader works in this process, and its workers' time is put beside the host's. asked: called
    when a batch is asked for."""
    line, base = watch.machine.line, private_torch.DataLoaderIterator
    proceed, single = base.__next__, private_torch.SingleLoaderIterator

    def one_process(loader: DataLoader[Any]) -> Any:
        workers, timeout = loader.num_workers, loader.timeout
        loader.num_workers = loader.timeout = 0
        try:
            made = single(loader)
        finally:
            loader.num_workers, loader.timeout = workers, timeout
        if workers:
            watch.workers = max(watch.workers, workers)
            made._simulated_workers = _Workers(workers, loader.prefetch_factor or 2, line.host_ns / 1e9)
            made._num_workers = workers  # who pins: the simulator asks
        return made

    def following(self: Any) -> Any:
        asked()
        workers: _Workers | None = getattr(self, "_simulated_workers", None)
        with watch.asked(places.running()):
            if workers is None:
                with watch.doing(LOADER):
                    return proceed(self)
            with watch.aside(workers.many, lambda cost_s: workers.ready_s(cost_s) - line.host_ns / 1e9):
                data = proceed(self)
            workers.take(line.host_ns / 1e9)
            return data

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DataLoader, "_get_iterator", one_process))
        stack.enter_context(mock.patch.object(base, "__next__", following))
        yield


@contextmanager
def clocks(watch: HostTime) -> Iterator[None]:
    """While active, time.time() and its like tell the simulated time: what a script prints of its speed is of the card."""
    began = time.time()
    with ExitStack() as stack:
        for name in ("perf_counter", "monotonic"):
            stack.enter_context(mock.patch.object(time, name, watch.seconds))
            stack.enter_context(mock.patch.object(time, f"{name}_ns", lambda: int(1e9 * watch.seconds())))
        stack.enter_context(mock.patch.object(time, "time", lambda: began + watch.seconds()))
        yield
