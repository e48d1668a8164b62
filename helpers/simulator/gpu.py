"""simulate("H100"): a GPU that is not there, with torch.cuda's names, a clock and a queue."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from helpers.simulator import cost, devices, modes, streams
from helpers.simulator.backward import Backward
from helpers.simulator.collectives import WorldNames
from helpers.simulator.dispatch import Calls, Dispatch
from helpers.simulator.graphs import GraphNames, graph_defaults
from helpers.simulator.memory import Memory
from helpers.simulator.memory_names import MemoryNames
from helpers.simulator.profile import ProfileNames
from helpers.simulator.races import Race
from helpers.simulator.sync_debug import SyncDebugNames
from helpers.simulator.timeline import Host, Kernel, Timeline
from helpers.simulator.uncompiled import without_compiler
from helpers.simulator.values import ValueCalls, Values

__all__ = ["SimGPU", "SimulationError", "active", "simulate"]

_here = threading.local()  # .gpu: the simulated GPU whose `with` block this thread is in


class SimulationError(RuntimeError):
    """What went wrong inside `with gpu:`, told when it ends. faults: one line each."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n  ".join([f"{len(faults)} fault(s) on the simulated GPU:", *faults]))


def simulate(
    name: str | devices.Device = "H100", *, noise: float = 0.0, seed: int = 0,
    alloc_conf: str = "", memory_bytes: int | None = None, strict: bool = True, values: bool = False,
    **assumptions: float,
) -> SimGPU:  # fmt: skip
    """A simulated GPU: "H100", "A100", "T4", or a Device of your own.

    noise: sigma of a log-normal factor on every duration, drawn from PCG64(seed); 0 is exact and repeatable
    either way. alloc_conf: what PYTORCH_ALLOC_CONF would say. memory_bytes: the card's memory, if not the
    table's. strict: faults and races are raised when the block ends; otherwise they are only kept, in
    gpu.faults and gpu.races. values: gpu.device is the CPU, and tensors have true values (see `values`).
    assumptions: fields of `devices.Assumptions` to replace, e.g. queue_depth=4. ValueError for bad values.
    """
    if not (0 <= noise < 2):
        raise ValueError(f"noise is the sigma of a log-normal factor, from 0 up to 2, not {noise}")
    card = devices.device(name, **assumptions)
    return SimGPU(card, noise, seed, alloc_conf, memory_bytes, strict, values)


def active() -> SimGPU | None:
    """The simulated GPU whose `with` block this thread is in, if any."""
    return getattr(_here, "gpu", None)


class SimGPU(ProfileNames, MemoryNames, GraphNames, SyncDebugNames, WorldNames):
    """A simulated GPU. Inside `with gpu:` every operator on `gpu.device` is launched on it.

    clock() is the host's clock, simulated. kernels: what ran on the device; host: what the host did; both in
    order of launch, kept after the block. faults: what went wrong, races among it. card: the Device with its
    assumptions.
    """

    def __init__(
        self, card: devices.Device, noise: float = 0.0, seed: int = 0,
        alloc_conf: str = "", memory_bytes: int | None = None, strict: bool = True, values: bool = False,
    ) -> None:  # fmt: skip
        self.card, self.name, self.strict = card, card.name, strict
        self.device = torch.device("cpu" if values else "meta")
        self._timeline = Timeline(card, noise, seed)
        self.faults: list[str] = self._timeline.faults
        self._pinned = modes.Pinned()
        self._default = self._current = streams.Stream(self, self._timeline.lanes[0])
        self._stack: ExitStack | None = None
        self._thread: int | None = None
        self._seen_faults = 0
        self._puts_number = False  # whether an assignment of a Python number is running
        self._init_profile()
        self._memory = Memory(self, memory_bytes, alloc_conf)
        self._races = self._timeline.races
        self._races.held, self._races.pinned = self._memory._held, self._pinned
        self._backward, self._values = Backward(self), Values(self) if values else None
        self._init_graphs()
        self._init_world()

    @property
    def evidence(self) -> str:
        """Where numbers of this run come from, for a caption: "simulated (H100)"."""
        return f"simulated ({self.name})"

    @property
    def kernels(self) -> list[Kernel]:
        """Every kernel and copy that ran on the device, in order of launch."""
        return self._timeline.kernels

    @property
    def host(self) -> list[Host]:
        """What the host did: operators, work, warm-ups, waits."""
        return self._timeline.host

    @property
    def races(self) -> list[Race]:
        """Pairs of operations on the same memory that nothing orders, whenever they happened to run."""
        return self._races.found

    @property
    def launches(self) -> int:
        """How often the host put work into a queue: kernels, copies, and one for each replay of a graph."""
        return self._timeline.launches

    @property
    def syncs(self) -> int:
        """How often the host waited for the device, explicit waits included."""
        return sum(record.kind == "sync" for record in self.host)

    def __enter__(self) -> SimGPU:
        other = active()
        if other is not None or self._stack is not None:
            which = (
                "this simulated GPU" if other is self else f"another simulated GPU ({(other or self).name})"
            )
            raise RuntimeError(
                f"{which} is in use already: `with gpu:` blocks cannot be nested or shared by threads"
            )
        without_compiler()
        with ExitStack() as stack:
            stack.enter_context(self._joined())
            stack.enter_context(modes.cuda_defaults(self))
            stack.enter_context(graph_defaults(self))
            stack.enter_context(self._backward.engine())
            stack.enter_context(ValueCalls(self) if self._values is not None else Calls(self))
            self._mode = stack.enter_context(Dispatch(self))
            self._stack = stack.pop_all()
        self._thread, self._seen_faults = threading.get_ident(), len(self.faults)
        _here.gpu = self
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        assert self._stack is not None
        stack, self._stack, _here.gpu = self._stack, None, None
        stack.close()
        fresh = self.faults[self._seen_faults :]
        if error is None and fresh and self.strict:
            raise SimulationError(fresh)
        if error is not None:
            for fault in fresh:
                error.add_note(f"on the simulated GPU before this: {fault}")

    def clock(self) -> float:
        """Seconds on the simulated host's clock: what time.perf_counter() would read. Starts at 0."""
        return self.clock_ns() / 1e9

    def clock_ns(self) -> int:
        """The same in whole nanoseconds, as time.perf_counter_ns()."""
        if self._thread is None:
            self._need("gpu.clock()")
        return self._timeline.host_ns

    def synchronize(self, device: Any = None) -> None:
        """The host waits until every stream is done."""
        self._need("gpu.synchronize()").drain("synchronize")

    def host_work(self, seconds: float) -> None:
        """The host is busy for so long: Python, decoding, anything that is not an operator on this GPU."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise ValueError(f"host_work takes a number of seconds that is not negative, not {seconds}")
        self._need("gpu.host_work()").spend("host work", "work", seconds)

    def Stream(self, device: Any = None, priority: int = 0) -> streams.Stream:
        """A new stream. priority: -1 is high, 0 low; simulated in a world of several ranks only."""
        lane = self._timeline.new_lane()
        lane.priority = min(0, max(-1, priority))
        return streams.Stream(self, lane)

    def Event(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> streams.Event:
        """A new event, not yet recorded."""
        return streams.Event(self, enable_timing)

    def current_stream(self, device: Any = None) -> streams.Stream:
        """The stream that operators are launched into now."""
        return self._current

    def default_stream(self, device: Any = None) -> streams.Stream:
        """The stream that is current where no other was chosen. Like any other: nothing waits for it by itself."""
        return self._default

    @contextmanager
    def stream(self, stream: streams.Stream | None) -> Iterator[None]:
        """Inside, operators are launched into that stream. None changes nothing."""
        if stream is not None and stream._gpu is not self:
            raise ValueError("that stream belongs to another simulated GPU")
        before, self._current = self._current, stream or self._current
        moved = self._current is not before
        if moved:
            self._backward.switched()
            self._backward.depth += 1
        try:
            yield
        finally:
            self._current = before
            if moved:
                self._backward.depth -= 1
                self._backward.switched()

    def _need(self, what: str) -> Timeline:
        if self._stack is None:
            raise RuntimeError(
                f"{what} outside `with gpu:`: the simulated {self.name} sees only what runs inside that block"
            )
        if threading.get_ident() != self._thread:
            raise RuntimeError(f"{what} from another thread: the simulated {self.name} has one host thread")
        return self._timeline

    def _launch(
        self, func: Any, todo: cost.Work, dtype: torch.dtype | None, shares: list[float] | None = None
    ) -> None:
        """One operator on the host, one kernel on the device; for lists of tensors a kernel for each share."""
        line, a, name = self._timeline, self.card.assumptions, str(func._overloadpacket)
        library = cost.library(func)
        line.warm_up("context", "CUDA context", a.context_s)
        if library:
            line.warm_up(library, library, a.library_s)
        line.warm_up((name, dtype), f"load {name}", a.kernel_load_s)
        line.spend(name, "operator", a.operator_s)
        for place, share in enumerate([1.0] if shares is None else shares):
            if place:
                line.spend(name, "launch", a.launch_s)
            part = todo if share == 1 else todo.part(share)
            line.enqueue(
                name, self._current._lane, cost.seconds(part, self.card), "kernel", part.flops, part.bytes,
                beside=self._beside(part),
            )  # fmt: skip

    def _copy(self, name: str, kind: str, tensor: torch.Tensor, pinned: bool, non_blocking: bool) -> None:
        """A copy over PCIe. Pageable memory makes the host wait whatever it asked for, unless it is tiny."""
        line, a, lane = self._timeline, self.card.assumptions, self._current._lane
        line.warm_up("context", "CUDA context", a.context_s)
        line.spend(name, "operator", a.operator_s)
        rate = a.bandwidth_share * self.card.pcie_bytes_per_s
        staged = not pinned and kind == "copy h2d" and tensor.nbytes <= a.staged_at_once_bytes
        if staged:
            line.spend(f"stage {name}", "work", tensor.nbytes / a.pageable_bytes_per_s)
        elif not pinned:
            rate = min(rate, a.pageable_bytes_per_s)
        if not non_blocking:
            self._waits(name)
        blocking, seconds = not non_blocking, a.copy_floor_s + tensor.nbytes / rate
        line.enqueue(name, lane, seconds, kind, 0, tensor.nbytes, not pinned, blocking)
        if not non_blocking or not (pinned or staged):
            line.drain(name, lane)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the simulation sees it: with true values, its shadow on meta."""
        return tensor if self._values is None else self._values.shadow(tensor)  # type: ignore[no-any-return]

    def _sync(self, name: str) -> None:
        """An operator that needs an answer from the device waits for its stream."""
        self._waits(name)
        self._timeline.drain(name, self._current._lane)

    def __repr__(self) -> str:
        return f"<simulated {self.name}: {self._timeline.host_ns / 1e9:.6f} s, {len(self.kernels)} kernels>"
