"""Calls of torch.distributed as work on streams: the operators of c10d, which every such call becomes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import _disable_current_modes

from helpers.simulator import cost, network
from helpers.simulator.same import fill
from helpers.simulator.sharded import sharding
from helpers.simulator.streams import Mark, mark, wait

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.timeline import Lane

__all__ = ["Collective", "Sent", "SentFuture", "Traffic"]

_KINDS = {  # operator, without a last underscore → kind
    **dict.fromkeys(("allreduce", "allreduce_coalesced", "all_reduce", "all_reduce_coalesced"), "all_reduce"),
    **dict.fromkeys(
        (
            *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
            *("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out"),
        ),
        "all_gather",
    ),
    **dict.fromkeys(
        (
            *(
                "reduce_scatter",
                "_reduce_scatter_base",
                "reduce_scatter_tensor_coalesced",
                "reduce_scatter_tensor",
            ),
            "reduce_scatter_tensor_out",
        ),
        "reduce_scatter",
    ),
    **dict.fromkeys(("alltoall", "alltoall_base", "all_to_all_single"), "all_to_all"),
    **{k: k for k in ("broadcast", "reduce", "gather", "scatter", "send", "recv", "barrier")},
    "monitored_barrier": "barrier",
}
_INPUTS = ("input", "inputs", "input_tensor", "input_tensors", "input_list")
_OUTPUTS = ("output", "outputs", "output_tensor", "output_tensors", "output_lists", "out")


@dataclass(frozen=True)
class Collective:
    """One call. kind, bytes (the payload) and ranks as in `helpers.ranks.Call`. Times: simulated clock, ns.

    launch: the host called; arrival: this rank's stream had come to it; start: the last rank's had; end: done.
    """

    kind: str
    bytes: int
    ranks: tuple[int, ...]
    stream: int
    launch_ns: int
    arrival_ns: int
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """What it takes once everybody is there."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def late_s(self) -> float:
        """How long this rank waited for the last one."""
        return (self.start_ns - self.arrival_ns) / 1e9


@dataclass
class _Call:
    """What a Sent stands for. held: its tensors, whose memory is not given away before somebody has waited."""

    sent: Sent
    kind: str
    done: Mark
    held: list[torch.Tensor]
    tensors: list[torch.Tensor]  # the program's own
    real: Any = None  # the fake group's own Work: whoever listens for waits knows that one


class Traffic:
    """Every call of torch.distributed becomes work on a stream of its group."""

    def __init__(self, gpu: SimGPU, world: network.World) -> None:
        self._gpu, self.world = gpu, world
        self.calls: list[Collective] = []
        self.reducing: list[Mark] = []  # what DDP's reducer waits for, in C++ and out of our sight
        self._lanes: dict[Any, Lane] = {}
        self._open: dict[int, _Call] = {}  # id of a Sent → what it stands for
        self._futures: dict[int, tuple[SentFuture, Mark | None]] = {}  # id of one → when it is there
        # Storage of a functional collective's result → when it is there, and what is kept until somebody has waited.
        self._results: dict[int, tuple[Mark, list[torch.Tensor]]] = {}

    # ------------------------------------------------------------------------------------ from dispatch

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One operator of c10d or _c10d_functional."""
        gpu, name = self._gpu, str(func._schema.name).partition("::")[2]
        guard = gpu._mode._guard
        if name == "wait_tensor":
            guard(self._result_awaited, func, args[0])
            return func(*args, **kwargs)
        if name == "_wrap_tensor_autograd":
            # Torch 2.13: what a functional collective returns waits for itself at its first use. The operator's kernel
            # for meta tensors leaves that out.
            return AsyncCollectiveTensor(args[0])
        kind = _KINDS.get(name.rstrip("_"))
        given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
        group: Any = given.get("process_group", given.get("group_name"))
        resolve: Any = dist.distributed_c10d._resolve_process_group
        group = resolve(group) if isinstance(group, str) else _unboxed(group)
        reads, writes = _sides(kind, given, group)
        if kind is None or (kind != "barrier" and not any(map(self._ours, [*reads, *writes]))):
            return func(*args, **kwargs)  # between hosts: nothing of the GPU's
        out = func(*args, **kwargs)
        functional = "functional" in func.namespace
        ins = reads
        made = [t for t in cost.tensors(out) if not any(t is w for w in writes)] if functional else []
        if made and kind in ("all_reduce", "broadcast"):  # works in place on a copy (c10d/Functional.cpp)
            guard(self._copied, func, reads)
            reads = []
        writes += made
        if gpu._values is not None:
            fill(kind, given, ins, writes, group.size(), group.rank())
        real = None if functional else out[-1] if isinstance(out, tuple) else out
        sent = guard(self._launch, func, kind, given, group, reads, writes, made, real)
        if sent is None:  # (a Sent that nobody holds would lose its Python half, and be waited for in vain)
            return out
        return (*out[:-1], sent.boxed()) if isinstance(out, tuple) else sent.boxed()

    def _launch(
        self, func: Any, kind: str, given: Any, group: Any, reads: Any, writes: Any, made: Any, real: Any
    ) -> Sent | None:
        gpu, line, world = self._gpu, self._gpu._timeline, self.world
        a, name = gpu.card.assumptions, str(func._overloadpacket)
        if dist.get_world_size() != world.size:
            gpu.faults.append(
                f"{name}: this GPU is one of {world.size} ranks, and torch.distributed has {dist.get_world_size()}"
            )
        ranks = tuple(dist.get_process_group_ranks(group))
        key: tuple[Any, ...] = (group.group_name,)
        if kind in ("send", "recv"):
            peer = ranks[given.get("dst", given.get("src", 0))]
            ranks = tuple(sorted((world.rank, peer)))
            key += ranks
        current = (gpu._backward.stream() if gpu._backward.several else gpu._current)._lane
        if line.capture is not None:
            line.capture.refuse(
                f"dist.{kind}", "operation not permitted when stream is capturing",
                "NCCL can be captured; here collectives inside a graph are not simulated: keep them out of it",
            )  # fmt: skip
            return None
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = line.new_lane()
        line.warm_up("context", "CUDA context", a.context_s)
        line.spend(name, "operator", a.operator_s)
        mine = list(cost.tensors(given.get("tensors", writes)))
        reads, writes = ([gpu._on_device(t) for t in side if self._ours(t)] for side in (reads, writes))
        for tensor in [*reads, *writes]:
            gpu._memory.appeared(tensor)
        wait(line, lane, mark(line, current))
        payload = _payload(kind, given, [*reads, *writes], writes, len(ranks))
        seconds = world.seconds(kind, payload, ranks)
        share = None
        if world.contention:
            share = min(0.9, world.memory_rate(kind, payload, ranks, seconds) / gpu.card.memory_bytes_per_s)
        kernel, start = line.communicate(f"nccl:{kind}", lane, seconds, payload, ranks, share)
        line.races.touches(
            lane.number, f"dist.{kind}", [(t, True) for t in writes] + [(t, False) for t in reads]
        )
        self.calls.append(
            Collective(
                kind, payload, ranks, lane.number, kernel.launch_ns, kernel.start_ns, start, kernel.end_ns
            )
        )
        done = mark(line, lane)
        for call in self._open.values():  # as NCCL's watchdog does
            if call.done.time_ns <= line.host_ns:
                call.held.clear()
                call.tensors = []
        for tensor in made:
            self._results[gpu._on_device(tensor).untyped_storage()._cdata] = done, [*reads, *writes]
        if real is None:
            return None
        sent = Sent(gpu)
        self._open[id(sent)] = _Call(sent, kind, done, [*reads, *writes], mine, _unboxed(real))
        return sent

    def reduced(self) -> None:
        """An operator runs: if backward is over, DDP's reducer has waited for its buckets."""
        if torch._C._current_autograd_node() is None:
            marks, self.reducing = self.reducing, []
            for done in marks:
                self.waits(done)

    def comes_back(self, args: Any) -> torch.Tensor | None:
        """A copy of integers: what they are, if they went to the device before and come back now. DDP's reducer plans
        its buckets with numbers that rank 0 broadcasts in this way (torch/csrc/distributed/c10d/reducer.cpp,
        sync_bucket_indices)."""
        target, source = args[0], args[1]
        if source.dtype is torch.int32 and target.is_meta and source.device.type == "cpu":
            target._came_from = source
        elif source.is_meta and target.dtype is torch.int32 and target.device.type == "cpu":
            came = getattr(source, "_came_from", None)
            if came is not None and came.untyped_storage()._cdata == target.untyped_storage()._cdata:
                with _disable_current_modes():
                    return target.clone()
        return None

    # ------------------------------------------------------------------------------------------- waiting

    def waited(self, sent: Sent) -> None:
        """sent.wait(): the current stream waits, for a barrier the host as well."""
        call, line = self._open.get(id(sent)), self._gpu._timeline
        if call is None or call.sent is not sent or self._gpu._stack is None:
            return
        if call.real is not None:
            dist.Work.wait(call.real)  # not its own: who listens for waits hears this one
        call.held.clear()
        call.tensors = []
        self.waits(call.done)
        if call.kind == "barrier":
            self._gpu._waits("barrier")
            line.wait_until("barrier", call.done.time_ns)
            line.races.host_knows(call.done.knows)

    def waits(self, done: Mark) -> None:
        """The current stream waits for that."""
        line = self._gpu._timeline
        line.spend("work.wait", "work", self._gpu.card.assumptions.event_s)
        wait(line, self._gpu._current._lane, done)
        if line.peers is not None:
            line.peers.level()

    def done(self, sent: Sent) -> Mark | None:
        call = self._open.get(id(sent))
        return None if call is None or call.sent is not sent else call.done

    def future(self, sent: Sent, waited: bool) -> SentFuture:
        """sent.get_future(). waited: whoever has it waits for it without telling: DDP's reducer, in C++."""
        call, done = self._open.get(id(sent)), self.done(sent)
        future = self._made(done, call.tensors if call is not None and done is not None else [])
        if waited and done is not None:
            self.reducing.append(done)
        return future

    def _made(self, done: Mark | None, value: Any) -> SentFuture:
        future = SentFuture(self._gpu)
        future.set_result(value)
        self._futures[id(future)] = future, done
        return future

    def when(self, future: SentFuture) -> Mark | None:
        known = self._futures.get(id(future))
        return known[1] if known is not None and known[0] is future else None

    def then(self, future: SentFuture, callback: Any) -> SentFuture:
        """Run it on a stream of its own, behind what the future stands for."""
        gpu, line, done = self._gpu, self._gpu._timeline, self.when(future)
        side = gpu.Stream()
        if done is not None:
            wait(line, side._lane, done)
        with gpu.stream(side):
            value = callback(future)
        return self._made(mark(line, side._lane), value)

    def _result_awaited(self, func: Any, tensor: torch.Tensor) -> None:
        known = self._results.pop(self._gpu._on_device(tensor).untyped_storage()._cdata, None)
        if known is not None:
            self.waits(known[0])

    def _copied(self, func: Any, tensors: list[torch.Tensor]) -> None:
        gpu = self._gpu
        for tensor in map(gpu._on_device, tensors):
            todo = cost.Work(tensor.numel(), 2 * tensor.nbytes, "fp32")
            gpu._launch(torch.ops.aten.clone.default, todo, tensor.dtype)
            gpu._timeline.races.touches(gpu._current._lane.number, "aten.clone", [(tensor, False)])

    # -------------------------------------------------------------------------------------------- inside

    def _ours(self, tensor: torch.Tensor) -> bool:
        values = self._gpu._values
        return tensor.is_meta if values is None else not values.on_host(tensor)

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        """While active, DistributedDataParallel runs on the simulated GPU."""
        from torch.nn.parallel import distributed

        ddp, gpu = distributed.DistributedDataParallel, self._gpu  # closures can be read: no Traffic in them
        plain = ddp.register_comm_hook

        def register_comm_hook(module: Any, state: Any, hook: Any) -> Any:
            @functools.wraps(hook)
            def told(state: Any, bucket: Any) -> Any:
                future, traffic = hook(state, bucket), gpu._traffic
                if isinstance(future, SentFuture) and traffic is not None:
                    done = traffic.when(future)
                    traffic.reducing += [] if done is None else [done]
                return future

            return plain(module, state, told)

        with (
            mock.patch.object(ddp, "register_comm_hook", register_comm_hook),
            # compares shapes with the other ranks', of which there are none
            mock.patch.object(distributed, "_verify_param_shape_across_processes", lambda *args: None),
            # warns of a group whose backends are told by device, as this one's are
            mock.patch.object(dist.ProcessGroup, "_has_hooks", lambda group: False),
            sharding(self._gpu),
        ):
            try:
                yield
            finally:
                self._open.clear()
                self._futures.clear()


class Sent(dist.Work):
    """The Work of one call. Holds nothing itself: what it stands for is the simulator's."""

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._gpu = gpu

    def wait(self, timeout: Any = None) -> bool:
        """The current stream waits for it; the host goes on (after a barrier: waits too)."""
        self._gpu._traffic.waited(self)  # type: ignore[union-attr]
        return True

    def synchronize(self) -> None:
        """The same."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done. Costs the host a moment."""
        gpu = self._gpu
        line = gpu._need("work.is_completed()")
        line.spend("event.query", "work", gpu.card.assumptions.event_s)
        done = gpu._traffic.done(self)  # type: ignore[union-attr]
        return done is None or done.time_ns <= line.host_ns

    def is_success(self) -> bool:
        """Nothing fails here."""
        return True

    def get_future(self) -> Any:
        """A future of its tensors, complete at once as NCCL's is: what follows it waits on the device."""
        caller = sys._getframe(1).f_code.co_name
        return self._gpu._traffic.future(self, caller == "_engine_run_backward")  # type: ignore[union-attr]


class SentFuture(torch.futures.Future):  # type: ignore[type-arg]
    """What Sent.get_future() returns. Holds no times itself."""

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._gpu = gpu

    def wait(self) -> Any:
        """The current stream waits; the value."""
        traffic: Any = self._gpu._traffic
        done = traffic.when(self)
        if done is not None:
            traffic.waits(done)
        return self.value()

    def then(self, callback: Any) -> SentFuture:  # type: ignore[override]
        """Run callback(self) on a stream of its own that waits for the device's part; a future of what it returns."""
        return self._gpu._traffic.then(self, callback)  # type: ignore[union-attr]


def _unboxed(thing: Any) -> Any:
    """The Python object of a process group or a Work that travelled through the dispatcher."""
    if not isinstance(thing, torch._C.ScriptObject):
        return thing
    kind: Any = dist.Work if "Work" in str(thing._type()) else dist.ProcessGroup
    return kind.unbox(thing)


def _sides(
    kind: str | None, given: dict[str, Any], group: Any
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What a call reads on this rank, and what it writes."""
    if kind is None or kind == "barrier":
        return [], []
    if "tensors" in given:
        held = list(cost.tensors(given["tensors"]))
        if kind == "send" or (kind == "broadcast" and given.get("root_rank") == group.rank()):
            return held, []
        return ([], held) if kind in ("recv", "broadcast") else (held, list(held))
    reads = [t for name in _INPUTS for t in cost.tensors(given.get(name))]
    writes = [t for name in _OUTPUTS for t in cost.tensors(given.get(name))]
    return reads, writes


def _payload(
    kind: str, given: dict[str, Any], held: list[torch.Tensor], writes: list[torch.Tensor], n: int
) -> int:
    """Bytes as nccl-tests counts them: of a gather the whole result, of a scatter the whole input."""
    sizes = [sum(t.nbytes for t in side) for side in (held[: len(held) - len(writes)], writes)]
    if kind == "barrier":
        return 0
    if kind == "all_gather":
        return sizes[1]
    if kind == "gather":
        return n * sizes[0]
    if kind == "scatter":
        return n * sizes[1]
    return sizes[0] or sizes[1]
