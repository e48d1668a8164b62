"""CUDA graphs on the simulated GPU: capture once, replay with one launch. Names and meaning are torch.cuda's.

    g = gpu.CUDAGraph()
    with gpu.graph(g):
        y = model(x)           # recorded, not run
    x.copy_(new)               # same address: the graph reads it
    g.replay()                 # one launch, all kernels

With `simulate(..., values=True)` the replay recomputes y for real.

What CUDA refuses during a capture: CUDA Programming Guide, "Creating a Graph Using Stream Capture" (cross-stream
dependencies, prohibited and unhandled operations, invalidation); the texts are cudaGetErrorString's. PyTorch, CUDA
semantics, "CUDA Graphs", Constraints. Where CUDA refuses, PyTorch raises at once and the graph is lost; here it
becomes a fault, and the rest of the capture goes on, so that one run names everything.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from helpers.simulator.machine import Machine
from helpers.simulator.memory import Memory
from helpers.simulator.streams import Stream, current, new_stream
from helpers.simulator.timeline import Lane, Mark, Node

PoolHandle = tuple[int, int]

_SYNC = "operation not permitted when stream is capturing"  # cudaErrorStreamCaptureUnsupported
_UNJOINED = "capturing stream has unjoined work"  # cudaErrorStreamCaptureUnjoined
_ISOLATION = "dependency created on uncaptured work in another stream"  # cudaErrorStreamCaptureIsolation
_EVENT = "operation not permitted on an event last recorded in a capturing stream"  # cudaErrorCapturedEvent
# cudaErrorStreamCaptureImplicit
_LEGACY = "operation would make the legacy stream depend on a capturing blocking stream"


class Capture:
    """The work put into one stream, and into those that wait for it, from begin to end."""

    def __init__(self, machine: Machine, origin: Lane) -> None:
        self._machine, self.origin, self.values = machine, origin, machine.recorder()
        self.nodes: list[Node] = []
        self.lanes = [origin]
        self._front: dict[int, tuple[int, ...]] = {origin.number: ()}
        self._strangers: set[int] = set()
        self.faults: list[str] = []  # of this capture
        self._refused = ""  # the copy that was just refused: its wait is not told as well
        self.open = True
        origin.capture = self

    def takes(self, lane: Lane, work: Node) -> bool:
        """Work for a stream: a node of the graph, if that stream is captured."""
        if lane.capture is not self:
            if lane.number not in self._strangers:
                self._strangers.add(lane.number)
                self._fault(
                    f"{work.name} was put into stream {lane.number} during a capture that this stream takes no part "
                    "in: it runs now, once, and no replay repeats it (PyTorch: 'No non-captured CUDA work may "
                    "run in this process while capture is underway'). Fork it first: "
                    "side.wait_stream(gpu.current_stream()), and join it before the capture ends"
                )
            return False
        stream = None if lane is self.origin else lane.number
        self.nodes.append(work._replace(stream=stream, after=self._front[lane.number]))
        self._front[lane.number] = (len(self.nodes) - 1,)
        self._refused = ""
        if work.pageable and work.kind.startswith("copy"):
            self._refused = work.name
            self._fault(
                f"{work.name}: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU "
                "tensor is pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True. "
                "(What every replay copies is what lies at that address then.)"
            )
        return True

    def frontier(self, lane: Lane) -> tuple[int, ...]:
        """The nodes that a mark put into the stream now comes after."""
        return self._front[lane.number]

    def joins(self, lane: Lane, mark: Mark) -> bool:
        """A stream waits for a mark, and at least one of the two is captured. Whether CUDA lets it."""
        if mark.capture is None:
            outside = "The event was recorded outside the graph. Record it in a captured stream, or wait for it before "
            self.refuse(f"stream {lane.number}.wait_event", _ISOLATION, f"{outside}the capture begins")
        elif not mark.capture.open:
            self.refuse(f"stream {lane.number}.wait_event", _EVENT)
        elif lane.number == 0:
            self.refuse("default_stream.wait_event", _LEGACY, "The default stream cannot be captured")
        elif lane.capture is None:
            lane.capture = self
            self.lanes.append(lane)
            self._front[lane.number] = mark.after
            return True
        else:
            self._front[lane.number] = tuple(sorted({*self._front[lane.number], *mark.after}))
            return True
        return False

    def refuses_wait(self, name: str, lane: Lane | None) -> bool:
        """The host is about to wait for a stream (None: for the device). A fault if that is captured."""
        if lane is not None and lane.capture is None:
            return False
        if name == self._refused:
            return True
        what = "asks the device for an answer" if "query" in name else "makes the host wait for the device"
        self.refuse(
            name, _SYNC, f"It {what}, and nothing runs while a graph is captured. Take it out of the graph"
        )
        return True

    def refuse(self, what: str, error: str, advice: str = "") -> None:
        """CUDA's own words, and what to do."""
        advice = advice or "An event recorded in a graph belongs to the graph: record another one outside"
        self._fault(f"{what}: CUDA error: {error}. {advice}")

    def end(self) -> None:
        """Every stream that took part must have come back to the first one."""
        self.open = False
        for lane in self.lanes:
            lane.capture = None
        inside, todo = set[int](), list(self._front[self.origin.number])
        while todo:
            i = todo.pop()
            if i not in inside:
                inside.add(i)
                todo += self.nodes[i].after
        lost = [i for i in range(len(self.nodes)) if i not in inside]
        for stream in sorted({self.nodes[i].stream or 0 for i in lost}):
            last = [self.nodes[i].name for i in lost if (self.nodes[i].stream or 0) == stream][-1]
            lost_in = (
                f"{last} in stream {stream} is the last of it: let the capturing stream wait before the end"
            )
            self.refuse("capture_end", _UNJOINED, f"{lost_in}, gpu.current_stream().wait_stream(side)")

    def _fault(self, text: str) -> None:
        self.faults.append(text)
        self._machine.faults.append(f"graph capture: {text}")


class CUDAGraph:
    """Kernels recorded from streams, to be launched together. Made by gpu.CUDAGraph()."""

    __slots__ = (
        *("_graphs", "_capture", "_nodes", "_pool", "_touched", "_values", "_told", "_refused", "_let_go"),
        "__weakref__",
    )

    def __init__(self, graphs: Graphs, keep_graph: bool = False) -> None:
        self._graphs = graphs
        self._capture: Capture | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._pool: PoolHandle = (0, 0)
        self._touched: list[Any] = []
        self._values: Any = None  # its operators, where tensors have true values
        self._told = False
        self._refused = ""  # what CUDA said at its capture
        self._let_go: Callable[[], Any] = lambda: None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What was captured, in the order of the program (the simulator's own; CUDA shows it in debug_dump)."""
        return self._nodes or ()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **later: Any) -> None:
        """What is put into the current stream from now on is recorded and not run."""
        machine, line = self._graphs.machine, self._graphs.machine.need("graph.capture_begin()")
        if self._nodes is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
                "instance."
            )
        if line.capture is not None:
            raise RuntimeError(
                "a graph is being captured already: only one capture may be underway at a time"
            )
        if machine.current is machine.default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                "replay them on the default stream.)"
            )
        self._pool = pool.pool() if isinstance(pool, CUDAGraph) else pool or self._graphs.pool_handle()
        self._capture = line.capture = capture = Capture(machine, machine.current)
        allocator = self._graphs.allocator
        allocator.begin_pool(self._pool, lambda stream: line.lanes[stream].capture is capture)
        let_go = weakref.finalize(self, _release, allocator, self._pool)
        let_go.atexit = False
        self._let_go = let_go
        line.races.record()

    def capture_end(self) -> None:
        """The graph is complete. Nothing of it has run."""
        capture, line = self._capture, self._graphs.machine.need("graph.capture_end()")
        if capture is None or line.capture is not capture:
            raise RuntimeError("capture_end without a capture that this graph began")
        capture.end()
        line.capture, self._capture = None, None
        self._graphs.allocator.end_pool(self._pool)
        self._touched = line.races.recorded()
        for lane in capture.lanes:  # what was only recorded is in nobody's way
            line.races.drained(lane.number)
        if capture.values is not None:
            capture.values.end()
        self._values = capture.values
        self._nodes, self._refused = tuple(capture.nodes), next(iter(capture.faults), "")
        if not self._nodes:  # ATen/cuda/CUDAGraph.cpp warns in the same words
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
                "wrong device or stream.",
                stacklevel=2,
            )
        each = line.card.assumptions.graph_node_s
        line.spend("cudaGraphInstantiate", "warm-up", len(self._nodes) * each)

    def replay(self) -> None:
        """Launch the whole graph into the current stream: one call, whatever is in it."""
        graphs, machine = self._graphs, self._graphs.machine
        line, a = machine.need("graph.replay()"), machine.card.assumptions
        if self._nodes is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if line.capture is not None:
            line.capture.refuse("graph.replay", "a graph inside a graph is not simulated", "Capture it apart")
            return
        lane = machine.backward.lane()
        line.warm_up("context", "CUDA context", a.context_s)
        line.spend("cudaGraphLaunch", "operator", a.graph_launch_s)
        graphs.replays += 1
        line.run_graph("cudaGraphLaunch", lane, self._nodes, graphs.replays)
        stale = line.races.touched(lane.number, self._touched, self._pool)
        if stale is not None and not self._told:
            self._told = True
            machine.faults.append(
                f"graph replay: {stale.name} uses the memory of a tensor ({stale.tensor}) that is gone. A graph "
                "keeps addresses, not tensors: keep each input alive as long as the graph, and write new data "
                "into it with copy_"
            )
        machine.backward.ran(lane)
        if self._values is not None:
            try:
                self._values.replay()
            except Exception as error:  # noqa: BLE001 - each operator has its own: an index that is read as NaN
                refused = f"CUDA refused its capture: {self._refused}"
                why = refused if self._refused else "its tensors are others now"
                machine.faults.append(f"graph replay: what was recorded cannot run again ({error}); {why}")

    def reset(self) -> None:
        """Forget the graph and let go of its memory pool."""
        self._nodes, self._touched, self._told = None, [], False
        self._let_go()

    def pool(self) -> PoolHandle:
        """The pool's handle, to share it: capture graphs into it in the order in which they are replayed."""
        return self._pool


def _release(allocator: Any, pool: PoolHandle) -> None:
    allocator.release_pool(pool)


class Graphs:
    """torch.cuda's names for graphs, on the simulated GPU."""

    def __init__(self, machine: Machine, memory: Memory) -> None:
        self.machine, self.allocator = machine, memory.allocator
        self.replays = self._pools = 0
        self._side: Stream | None = None  # which captures take that name none

    def pool_handle(self) -> PoolHandle:
        """A memory pool that several graphs may share."""
        self._pools += 1
        return (0, self._pools)

    def capturing(self) -> bool:
        """Whether work for the current stream is being recorded into a graph."""
        return self.machine.current.capture is not None

    @contextmanager
    def capture(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None,
        capture_error_mode: str = "global", **later: Any,
    ) -> Iterator[None]:  # fmt: skip
        """gpu.graph(g): inside, GPU work is recorded into the graph, on `stream` or a side stream of its own, and
        not run."""
        if stream is None:
            stream = self._side = self._side or new_stream(self.machine)
        self.machine.need("gpu.synchronize()").drain("synchronize")
        self.allocator.empty_cache()
        with current(self.machine, stream):
            cuda_graph.capture_begin(pool, capture_error_mode)
            try:
                yield
            finally:
                cuda_graph.capture_end()

    def make_graphed_callables(
        self, callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
        pool: Any = None,
    ) -> Any:  # fmt: skip
        """Graphed versions of modules or functions, forward and backward: PyTorch's own, on this GPU."""
        line = self.machine.need("gpu.make_graphed_callables()")
        graphs = torch.cuda.graphs
        with ExitStack() as stack:
            for owner, name, ours in [
                (torch.cuda, "CUDAGraph", partial(CUDAGraph, self)),
                (torch.cuda, "Stream", partial(new_stream, self.machine)),
                (torch.cuda, "stream", partial(current, self.machine)),
                (torch.cuda, "graph", self.capture),
                (torch.cuda, "synchronize", lambda device=None: line.drain("synchronize")),
                (graphs, "graph_pool_handle", self.pool_handle),
            ]:
                stack.enter_context(mock.patch.object(owner, name, ours))
            return graphs.make_graphed_callables(
                callables, sample_args, num_warmup_iters, allow_unused_input, pool
            )
