"""CUDA graphs on the simulated GPU: capture once, replay with one launch. Names and meaning are torch.cuda's.

    g = gpu.CUDAGraph()
    with gpu.graph(g):
        y = model(x)           # recorded, not run
    x.copy_(new)               # same address: the graph reads it
    g.replay()                 # one launch, all kernels

With `simulate(..., values=True)` the replay recomputes y for real.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from helpers.simulator.capture import Capture
from helpers.simulator.streams import Stream
from helpers.simulator.timeline import Node

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["CUDAGraph", "GraphNames", "graph_defaults"]

PoolHandle = tuple[int, int]


class CUDAGraph:
    """Kernels recorded from streams, to be launched together. Made by gpu.CUDAGraph()."""

    def __init__(self, gpu: SimGPU, keep_graph: bool = False) -> None:
        self._gpu = gpu
        self._capture: Capture | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._pool: PoolHandle = (0, 0)
        self._touched: list[Any] = []
        self._told = False
        self._refused = ""  # what CUDA said at its capture
        self._let_go: Callable[[], Any] = lambda: None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What was captured, in the order of the program (the simulator's own; CUDA shows it in debug_dump)."""
        return self._nodes or ()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **later: Any) -> None:
        """What is put into the current stream from now on is recorded and not run."""
        gpu = self._gpu
        line = gpu._need("graph.capture_begin()")
        if self._nodes is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
                "instance."
            )
        if line.capture is not None:
            raise RuntimeError(
                "a graph is being captured already: only one capture may be underway at a time"
            )
        if gpu._current == gpu._default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                "replay them on the default stream.)"
            )
        self._pool = pool.pool() if isinstance(pool, CUDAGraph) else pool or gpu.graph_pool_handle()
        values = gpu._values.recorder() if gpu._values is not None else None
        self._capture = line.capture = capture = Capture(gpu, gpu._current._lane, values)
        allocator = gpu._memory.allocator
        allocator.begin_pool(self._pool, lambda stream: line.lanes[stream].capture is capture)
        let_go = weakref.finalize(self, _release, allocator, self._pool)
        let_go.atexit = False
        self._let_go = let_go
        line.races.record()

    def capture_end(self) -> None:
        """The graph is complete. Nothing of it has run."""
        gpu, capture = self._gpu, self._capture
        line = gpu._need("graph.capture_end()")
        if capture is None or line.capture is not capture:
            raise RuntimeError("capture_end without a capture that this graph began")
        capture.end()
        line.capture, self._capture = None, None
        gpu._memory.allocator.end_pool(self._pool)
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
        a = gpu.card.assumptions
        line.spend("cudaGraphInstantiate", "warm-up", len(self._nodes) * a.graph_node_s)

    def replay(self) -> None:
        """Launch the whole graph into the current stream: one call, whatever is in it."""
        gpu = self._gpu
        line = gpu._need("graph.replay()")
        if self._nodes is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if line.capture is not None:
            line.capture.refuse("graph.replay", "a graph inside a graph is not simulated", "Capture it apart")
            return
        stream = gpu._backward.stream()
        line.warm_up("context", "CUDA context", gpu.card.assumptions.context_s)
        line.spend("cudaGraphLaunch", "operator", gpu.card.assumptions.graph_launch_s)
        gpu._replays += 1
        line.run_graph("cudaGraphLaunch", stream._lane, self._nodes, gpu._replays)
        stale = line.races.touched(stream._lane.number, self._touched, self._pool)
        if stale is not None and not self._told:
            self._told = True
            gpu.faults.append(
                f"graph replay: {stale.name} uses the memory of a tensor ({stale.tensor}) that is gone. A graph "
                "keeps addresses, not tensors: keep each input alive as long as the graph, and write new data "
                "into it with copy_"
            )
        gpu._backward.ran(stream)
        if gpu._values is not None:
            try:
                self._values.replay()
            except RuntimeError as error:
                refused = f"CUDA refused its capture: {self._refused}"
                why = refused if self._refused else "its tensors are others now"
                gpu.faults.append(f"graph replay: what was recorded cannot run again ({error}); {why}")

    def reset(self) -> None:
        """Forget the graph and let go of its memory pool."""
        self._nodes, self._touched, self._told = None, [], False
        self._let_go()

    def pool(self) -> PoolHandle:
        """The pool's handle, to share it: capture graphs into it in the order in which they are replayed."""
        return self._pool


def _release(allocator: Any, pool: PoolHandle) -> None:
    allocator.release_pool(pool)


_Graph = CUDAGraph  # inside GraphNames that name is a method


class GraphNames:
    """torch.cuda's names for graphs, on the simulated GPU."""

    def _init_graphs(self) -> None:
        self._replays, self._pools = 0, 0
        self._capture_stream: Stream | None = None

    def CUDAGraph(self, keep_graph: bool = False) -> _Graph:
        """An empty graph, for gpu.graph()."""
        return _Graph(self, keep_graph)  # type: ignore[arg-type]

    def graph_pool_handle(self) -> PoolHandle:
        """A memory pool that several graphs may share."""
        self._pools += 1
        return (0, self._pools)

    def is_current_stream_capturing(self) -> bool:
        """Whether work for the current stream is being recorded into a graph."""
        return self._current._lane.capture is not None  # type: ignore[attr-defined, no-any-return]

    @contextmanager
    def graph(
        self, cuda_graph: _Graph, pool: Any = None, stream: Stream | None = None,
        capture_error_mode: str = "global", **later: Any,
    ) -> Iterator[None]:  # fmt: skip
        """Inside, GPU work is recorded into the graph, on `stream` or a side stream of its own, and not run."""
        gpu: SimGPU = self  # type: ignore[assignment]
        if stream is None:
            stream = gpu._capture_stream = gpu._capture_stream or gpu.Stream()
        gpu.synchronize()
        gpu.empty_cache()
        with gpu.stream(stream):
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
        gpu: SimGPU = self  # type: ignore[assignment]
        gpu._need("gpu.make_graphed_callables()")
        names = ("CUDAGraph", "Stream", "stream", "graph", "synchronize")
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(mock.patch.object(torch.cuda, name, getattr(gpu, name)))
            graphs = torch.cuda.graphs
            stack.enter_context(mock.patch.object(graphs, "graph_pool_handle", gpu.graph_pool_handle))
            return graphs.make_graphed_callables(
                callables, sample_args, num_warmup_iters, allow_unused_input, pool
            )


def graph_defaults(gpu: SimGPU) -> ExitStack:
    """What optimizers and callables ask a CUDA build about graphs; closing the stack puts everything back."""
    stack = ExitStack()

    def devices(supports_xla: bool = True) -> list[str]:
        return ["cuda", "meta", "cpu"]

    def health_check(self: torch.optim.Optimizer) -> None:
        # torch/optim/optimizer.py, _accelerator_graph_capture_health_check: the same words
        if gpu.is_current_stream_capturing() and not all(group["capturable"] for group in self.param_groups):
            raise RuntimeError(
                f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__} but "
                "param_groups' capturable is False."
            )

    for name in list(sys.modules):
        module = sys.modules[name]
        if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
            stack.enter_context(mock.patch.object(module, "_get_capturable_supported_devices", devices))
    for check in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, check):
            stack.enter_context(mock.patch.object(torch.optim.Optimizer, check, health_check))
    plain = torch.Tensor.data_ptr

    def data_ptr(tensor: torch.Tensor) -> int:
        where = gpu._memory.extent(tensor) if tensor.is_meta else None
        return where[0] if where else plain(tensor)

    stack.enter_context(mock.patch.object(torch.Tensor, "data_ptr", data_ptr))
    return stack
