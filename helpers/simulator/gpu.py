"""simulate("H100"): a GPU that is not there, with torch.cuda's names, a clock and a queue."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from helpers.ranks.links import Link
from helpers.simulator import devices, streams
from helpers.simulator.accesses import Race
from helpers.simulator.graphs import CUDAGraph, Graphs
from helpers.simulator.machine import Machine
from helpers.simulator.memory import Memory, MemoryModule, MemoryNames
from helpers.simulator.operators.backward import Backward
from helpers.simulator.operators.calls import Calls, refused, stand_ins
from helpers.simulator.operators.dispatch import Dispatch
from helpers.simulator.operators.shapes import without_compiler
from helpers.simulator.operators.values import ValueCalls, ValueDispatch, Values
from helpers.simulator.timeline import Host, Kernel
from helpers.simulator.world import network
from helpers.simulator.world.collectives import Collective
from helpers.simulator.world.torch_distributed import joined
from helpers.simulator.world.traffic import Traffic
from helpers.simulator.written.profile import Notes, SimProfile

_SYNC_DEBUG = ("default", "warn", "error")

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

    >>> with simulate("H100") as gpu:
    ...     y = torch.ones(4096, 4096, device=gpu.device) + 1
    >>> [kernel.name for kernel in gpu.kernels]
    ['aten.ones', 'aten.add']
    """
    if not (0 <= noise < 2):
        raise ValueError(f"noise is the sigma of a log-normal factor, from 0 up to 2, not {noise}")
    card = devices.device(name, **assumptions)
    return SimGPU(card, noise, seed, alloc_conf, memory_bytes, strict, values)


def active() -> SimGPU | None:
    """The simulated GPU whose `with` block this thread is in, if any."""
    return getattr(_here, "gpu", None)


class SimGPU(MemoryNames):
    """A simulated GPU. Inside `with gpu:` every operator on `gpu.device` is launched on it.

    clock() is the host's clock, simulated. kernels: what ran on the device; host: what the host did; both in
    order of launch, kept after the block. faults: what went wrong, races among it. card: the Device with its
    assumptions. All other names are torch.cuda's; device arguments are accepted: there is one.
    """

    def __init__(
        self, card: devices.Device, noise: float = 0.0, seed: int = 0,
        alloc_conf: str = "", memory_bytes: int | None = None, strict: bool = True, values: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.strict = card.name, strict
        self._machine = machine = Machine(card, noise, seed, values)
        super().__init__(Memory(machine, memory_bytes, alloc_conf))
        self._backward, self._notes = Backward(machine), Notes(machine)
        self._values = Values(machine) if values else None
        self._traffic: Traffic | None = None
        self.device, self.faults = machine.device, machine.faults
        self._stack: ExitStack | None = None
        self._seen_faults = 0

        self.memory = MemoryModule(self._memory)

        graphs = Graphs(machine, self._memory)
        self.CUDAGraph = partial(CUDAGraph, graphs)
        self.graph, self.graph_pool_handle = graphs.capture, graphs.pool_handle
        self.is_current_stream_capturing = graphs.capturing
        self.make_graphed_callables = graphs.make_graphed_callables
        self.profile = partial(SimProfile, self._notes)

    @property
    def card(self) -> devices.Device:
        """The data sheet, and what is assumed beside it."""
        return self._machine.card

    @property
    def evidence(self) -> str:
        """Where numbers of this run come from, for a caption: "simulated (H100)"."""
        return f"simulated ({self.name})"

    @property
    def kernels(self) -> list[Kernel]:
        """Every kernel and copy that ran on the device, in order of launch."""
        return self._machine.line.kernels

    @property
    def host(self) -> list[Host]:
        """What the host did: operators, work, warm-ups, waits."""
        return self._machine.line.host

    @property
    def races(self) -> list[Race]:
        """Pairs of operations on the same memory that nothing orders, whenever they happened to run."""
        return self._machine.races.found

    @property
    def launches(self) -> int:
        """How often the host put work into a queue: kernels, copies, and one for each replay of a graph."""
        return self._machine.line.launches

    @property
    def syncs(self) -> int:
        """How often the host waited for the device, explicit waits included."""
        return sum(record.kind == "sync" for record in self.host)

    def __enter__(self) -> SimGPU:
        other = active()
        if other is not None or self._stack is not None:
            which = "this" if other is self else "another"
            named = "" if other is self else f" ({(other or self).name})"
            raise RuntimeError(
                f"{which} simulated GPU{named} is in use already: `with gpu:` blocks cannot be nested or shared by threads"
            )
        without_compiler()
        machine = self._machine
        with ExitStack() as stack:
            if self._traffic is not None:
                stack.enter_context(joined(self._traffic, active))
            stack.enter_context(stand_ins(machine))
            stack.enter_context(self._backward.engine())
            operators: Dispatch
            if self._values is not None:
                operators = ValueDispatch(self._values, machine, self._notes, self._traffic)
                stack.enter_context(ValueCalls(operators))
            else:
                operators = Dispatch(machine, self._notes, self._traffic)
                stack.enter_context(Calls(operators))
            stack.enter_context(operators)
            self._stack = stack.pop_all()
        machine.inside, machine.thread = True, threading.get_ident()
        self._seen_faults = len(self.faults)
        _here.gpu = self
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        assert self._stack is not None
        stack, self._stack, _here.gpu = self._stack, None, None
        self._machine.inside = False
        stack.close()
        fresh = self.faults[self._seen_faults :]
        if error is None and fresh and self.strict:
            raise SimulationError(fresh)
        if error is not None:
            if (words := refused(error)) is not None:
                error.add_note(f"on the simulated GPU: {words}")
            for fault in fresh:
                error.add_note(f"on the simulated GPU before this: {fault}")

    def clock(self) -> float:
        """Seconds on the simulated host's clock: what time.perf_counter() would read. Starts at 0."""
        return self.clock_ns() / 1e9

    def clock_ns(self) -> int:
        """The same in whole nanoseconds, as time.perf_counter_ns()."""
        if self._machine.thread is None:
            self._machine.need("gpu.clock()")
        return self._machine.line.host_ns

    def synchronize(self, device: Any = None) -> None:
        """The host waits until every stream is done."""
        self._machine.need("gpu.synchronize()").drain("synchronize")

    def host_work(self, seconds: float) -> None:
        """The host is busy for so long: Python, decoding, anything that is not an operator on this GPU."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise ValueError(f"host_work takes a number of seconds that is not negative, not {seconds}")
        self._machine.need("gpu.host_work()").spend("host work", "work", seconds)

    def Stream(self, device: Any = None, priority: int = 0) -> streams.Stream:
        """A new stream. priority: -1 is high, 0 low; simulated in a world of several ranks only."""
        return streams.new_stream(self._machine, device, priority)

    def Event(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> streams.Event:
        """A new event, not yet recorded."""
        return streams.Event(self._machine, enable_timing)

    def current_stream(self, device: Any = None) -> streams.Stream:
        """The stream that operators are launched into now."""
        return streams.Stream(self._machine, self._machine.current)

    def default_stream(self, device: Any = None) -> streams.Stream:
        """The stream that is current where no other was chosen. Like any other: nothing waits for it by itself."""
        return streams.Stream(self._machine, self._machine.default)

    def stream(self, stream: streams.Stream | None) -> AbstractContextManager[None]:
        """Inside, operators are launched into that stream. None changes nothing."""
        return streams.current(self._machine, stream)

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """0 or "default": nothing; 1 or "warn": a UserWarning for each operation that waits; 2 or "error": a fault.

        As in PyTorch these are the waits of copies, of operators that need an answer (.item(), nonzero(), masks)
        and stream.synchronize(); gpu.synchronize() and events may wait (c10/cuda/CUDAFunctions.h). On a GPU
        "error" raises at that operation; here it becomes a fault, which is raised when the `with gpu:` block ends.
        RuntimeError for any other mode.
        """
        known = dict(zip((*_SYNC_DEBUG, 0, 1, 2), (0, 1, 2) * 2, strict=True))
        if debug_mode not in known:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error` (or 0, 1, 2), not {debug_mode!r}"
            )
        self._machine.sync_debug = known[debug_mode]

    def get_sync_debug_mode(self) -> int:
        """0, 1 or 2."""
        return self._machine.sync_debug

    def trace(self) -> dict[str, Any]:
        """Everything since this GPU was made, as torch.profiler's Chrome JSON (see `written.kineto`)."""
        return self._notes.trace()

    def world(
        self, size: int, *, link: Link | str = "NVLink 4", nodes: int = 1, between: Link | str | None = None,
        algorithm: str | None = None, rank: int = 0, slow: Mapping[int, float] | None = None,
        jitter: float = 0.0, seed: int = 0, contention: bool = True,
    ) -> SimGPU:  # fmt: skip
        """This GPU as one of `size` ranks; returns it. Before its first `with gpu:`, in which torch.distributed is set up.

        link, between: what connects the ranks of a node, and the nodes: a `helpers.ranks.Link` or its name. nodes: how
        many, with size / nodes ranks each. algorithm: "ring", "tree" or, with several nodes and by default there,
        "hierarchical" (see `network`).
        rank: the one that is run. The others are scaled copies of it: each launches the same when this one does, and
        its kernels take slow[rank] times as long (1 where not given), times a jitter that is drawn anew each time the
        ranks have waited for each other: log-normal with this sigma.
        Collectives wait for the last of their ranks (see `network` for what is exact in that, and what is not).
        contention: while a collective runs, kernels beside it have fewer SMs (`network.SM_SHARE`: 24 of 132
        less) and less of the memory's bandwidth, by what the collective reads and writes.
        ValueError for what does not fit; RuntimeError if the GPU has been used or has a world.
        """
        machine = self._machine
        if self._traffic is not None or machine.thread is not None:
            raise RuntimeError("gpu.world() is said once, before the first `with gpu:`")
        how = algorithm, rank, slow, jitter, seed, contention
        made = network.World(size, link, nodes, between, *how)
        self._traffic, machine.rank = Traffic(machine, made), (made.rank, made.size)
        machine.line.squeezes = True
        machine.sm_share = network.SM_SHARE if made.contention else None
        machine.line.peers = network.Peers(made) if made.uneven else None
        return self

    @property
    def ranks(self) -> network.World | None:
        """The world that was declared, if one was."""
        return self._traffic.world if self._traffic is not None else None

    @property
    def collectives(self) -> list[Collective]:
        """What was communicated, in order of call."""
        return self._traffic.calls if self._traffic is not None else []

    def __repr__(self) -> str:
        seconds = self._machine.line.host_ns / 1e9
        return f"<simulated {self.name}: {seconds:.6f} s, {len(self.kernels)} kernels>"
