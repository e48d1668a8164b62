"""Calls of torch.distributed as work on streams: the operators of c10d, which every such call becomes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Unseen
from helpers.pytorch.tensors import tensors
from helpers.ranks.collectives import kind_of, payload
from helpers.simulator.cost.roofline import Work, launch
from helpers.simulator.machine import Machine
from helpers.simulator.timeline import Lane, Mark
from helpers.simulator.world.collectives import Collective, copies, fill, sides
from helpers.simulator.world.network import World


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

    copies = staticmethod(copies)  # FSDP's own operators

    def __init__(self, machine: Machine, world: World) -> None:
        self.machine, self.world = machine, world
        self.calls: list[Collective] = []
        # What DDP's reducer waits for, in C++ and out of our sight: for each bucket, and which storages then have its sums.
        self.reducing: list[tuple[Mark, set[int]]] = []
        self._reduced: set[int] = set()  # the storages of those buckets that it has waited for
        self._lanes: dict[Any, Lane] = {}
        self._open: dict[int, _Call] = {}  # id of a Sent → what it stands for
        self._holding: list[_Call] = []  # those of them that the host has not outlived
        # When they are there. Weak: a future holds its value, as a bucket of DDP's, and is its holders' to let go of.
        self._futures: weakref.WeakKeyDictionary[SentFuture, Mark | None] = weakref.WeakKeyDictionary()
        # Storage of a functional collective's result → when it is there, and what is kept until somebody has waited.
        self._results: dict[int, tuple[Mark, list[torch.Tensor]]] = {}

    # ------------------------------------------------------------------------------------ from dispatch

    def call(self, guard: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """One operator of c10d or _c10d_functional. guard: calls what must not raise here."""
        machine, name = self.machine, str(func._schema.name).partition("::")[2]
        if name == "wait_tensor":
            guard(self._result_awaited, func, args[0])
            return func(*args, **kwargs)
        if name == "_wrap_tensor_autograd":
            # Torch 2.13: what a functional collective returns waits for itself at its first use. The operator's kernel
            # for meta tensors leaves that out.
            return private_torch.AsyncCollectiveTensor(args[0])
        kind = kind_of(name)
        given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
        group: Any = given.get("process_group", given.get("group_name"))
        resolve: Any = private_torch.resolve_group
        group = resolve(group) if isinstance(group, str) else _unboxed(group)
        reads, writes = sides(kind, given, group)
        if kind is None or (kind != "barrier" and not any(map(self._ours, [*reads, *writes]))):
            return func(*args, **kwargs)  # between hosts: nothing of the GPU's
        out = func(*args, **kwargs)
        functional = "functional" in func.namespace
        ins = reads
        made = [t for t in tensors(out) if not any(t is w for w in writes)] if functional else []
        if made and kind in ("all_reduce", "broadcast"):  # works in place on a copy (c10d/Functional.cpp)
            guard(self._copied, func, reads)
            reads = []
        writes += made
        if machine.device.type == "cpu":
            fill(kind, given, ins, writes, [1] * group.size(), group.rank())
        real = None if functional else out[-1] if isinstance(out, tuple) else out
        sent = guard(self._launch, func, kind, given, group, reads, writes, made, real)
        if sent is None:  # (a Sent that nobody holds would lose its Python half, and be waited for in vain)
            return out
        return (*out[:-1], sent.boxed()) if isinstance(out, tuple) else sent.boxed()

    def _launch(
        self, func: Any, kind: str, given: Any, group: Any, reads: Any, writes: Any, made: Any, real: Any
    ) -> Sent | None:
        machine, line, world = self.machine, self.machine.line, self.world
        a, name = machine.card.assumptions, str(func._overloadpacket)
        if dist.get_world_size() != world.size:
            machine.faults.append(
                f"{name}: this GPU is one of {world.size} ranks, and torch.distributed has {dist.get_world_size()}"
            )
        ranks = tuple(dist.get_process_group_ranks(group))
        key: tuple[Any, ...] = (group.group_name,)
        if kind in ("send", "recv"):
            peer = ranks[given.get("dst", given.get("src", 0))]
            ranks = tuple(sorted((world.rank, peer)))
            key += ranks
        current = machine.backward.lane() if machine.backward.several else machine.current
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
        mine = list(tensors(given.get("tensors", writes)))
        reads, writes = ([machine.seen(t) for t in side if self._ours(t)] for side in (reads, writes))
        for tensor in [*reads, *writes]:
            machine.memory.appeared(tensor)
        line.wait(lane, line.mark(current))
        read, written = (sum(t.nbytes for t in side) for side in (reads, writes))
        nbytes = payload(kind, read, written, len(ranks))
        seconds = world.seconds(kind, nbytes, ranks)
        share = None
        if world.contention:
            rate = world.memory_rate(kind, nbytes, ranks, seconds)
            share = min(0.9, rate / machine.card.memory_bytes_per_s)
        kernel, start = line.communicate(f"nccl:{kind}", lane, seconds, nbytes, ranks, share)
        touched = [(t, True) for t in writes] + [(t, False) for t in reads]
        line.races.touches(lane.number, f"dist.{kind}", touched)
        times = kernel.launch_ns, kernel.start_ns, start, kernel.end_ns
        self.calls.append(Collective(kind, nbytes, ranks, lane.number, *times))
        done = line.mark(lane)
        over = [call for call in self._holding if call.done.time_ns <= line.host_ns]
        for call in over:  # as NCCL's watchdog does
            call.held.clear()
            call.tensors = []
        if over:
            self._holding = [call for call in self._holding if call.done.time_ns > line.host_ns]
        for tensor in made:
            self._results[machine.seen(tensor).untyped_storage()._cdata] = done, [*reads, *writes]
        if real is None:
            return None
        sent = Sent(self)
        call = self._open[id(sent)] = _Call(sent, kind, done, [*reads, *writes], mine, _unboxed(real))
        self._holding.append(call)
        return sent

    def reduces(self, future: SentFuture) -> None:
        """DDP's reducer has that future of a bucket, and will wait for it without telling."""
        if (done := self.when(future)) is not None:
            self.reducing.append((done, _storages(future.value())))

    def reduced(self, args: Any) -> None:
        """An operator runs: if backward is over, DDP's reducer has waited for what it takes.

        reducer.cpp, finalize_backward: for each bucket it waits for the sums, and copies them out at once, while
        others may be under way. Whatever takes no bucket runs behind all of that."""
        if private_torch.current_autograd_node() is not None:
            return
        taken = _storages(args)
        if taken & self._reduced:
            return
        here = (n for n, (_, bucket) in enumerate(self.reducing, 1) if taken & bucket)
        for _ in range(next(here, len(self.reducing))):
            done, bucket = self.reducing.pop(0)
            self._reduced |= bucket
            self.waits(done)
        if not self.reducing:
            self._reduced.clear()

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
                with Unseen():
                    return torch.Tensor.clone(target)
        return None

    # ------------------------------------------------------------------------------------------- waiting

    def waited(self, sent: Sent) -> None:
        """sent.wait(): the current stream waits, for a barrier the host as well."""
        call, line = self._open.get(id(sent)), self.machine.line
        if call is None or call.sent is not sent or not self.machine.inside:
            return
        if call.real is not None:
            dist.Work.wait(call.real)  # not its own: who listens for waits hears this one
        call.held.clear()
        call.tensors = []
        self.waits(call.done)
        if call.kind == "barrier":
            self.machine.waits("barrier")
            line.wait_until("barrier", call.done.time_ns)
            line.races.host_knows(call.done.knows)

    def waits(self, done: Mark) -> None:
        """The current stream waits for that."""
        line = self.machine.line
        line.spend("work.wait", "work", self.machine.card.assumptions.event_s)
        line.wait(self.machine.current, done)
        if line.peers is not None:
            line.peers.level()

    def done(self, sent: Sent) -> Mark | None:
        call = self._open.get(id(sent))
        return None if call is None or call.sent is not sent else call.done

    def future(self, sent: Sent, waited: bool) -> SentFuture:
        """sent.get_future(). waited: whoever has it waits for it without telling: DDP's reducer, in C++."""
        call, done = self._open.get(id(sent)), self.done(sent)
        future = self._made(done, call.tensors if call is not None and done is not None else [])
        if waited:
            self.reduces(future)
        return future

    def _made(self, done: Mark | None, value: Any) -> SentFuture:
        future = SentFuture(self)
        future.set_result(value)
        self._futures[future] = done
        return future

    def when(self, future: SentFuture) -> Mark | None:
        return self._futures.get(future)

    def then(self, future: SentFuture, callback: Any) -> SentFuture:
        """Run it on a stream of its own, behind what the future stands for."""
        line, done = self.machine.line, self.when(future)
        side = line.new_lane()
        if done is not None:
            line.wait(side, done)
        with self.machine.on(side):
            value = callback(future)
        return self._made(line.mark(side), value)

    def _result_awaited(self, func: Any, tensor: torch.Tensor) -> None:
        known = self._results.pop(self.machine.seen(tensor).untyped_storage()._cdata, None)
        if known is not None:
            self.waits(known[0])

    def _copied(self, func: Any, copied: list[torch.Tensor]) -> None:
        machine = self.machine
        for tensor in map(machine.seen, copied):
            todo = Work(tensor.numel(), 2 * tensor.nbytes, "fp32")
            launch(machine, torch.ops.aten.clone.default, [todo], tensor.dtype)
            machine.races.touches(machine.current.number, "aten.clone", [(tensor, False)])

    def _ours(self, tensor: torch.Tensor) -> bool:
        return not self.machine.on_host(tensor)

    def forget(self) -> None:
        """The block ends: nobody waits any more."""
        self._open.clear()
        self._holding.clear()
        self._futures.clear()
        self.reducing.clear()
        self._reduced.clear()


class Sent(dist.Work):
    """The Work of one call. Holds nothing itself: what it stands for is the simulator's."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def wait(self, timeout: Any = None) -> bool:
        """The current stream waits for it; the host goes on (after a barrier: waits too)."""
        self._traffic.waited(self)
        return True

    def synchronize(self) -> None:
        """The same."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done. Costs the host a moment."""
        line = self._traffic.machine.need("work.is_completed()")
        line.spend("event.query", "work", line.card.assumptions.event_s)
        done = self._traffic.done(self)
        return done is None or done.time_ns <= line.host_ns

    def is_success(self) -> bool:
        """Nothing fails here."""
        return True

    def get_future(self) -> Any:
        """A future of its tensors, complete at once as NCCL's is: what follows it waits on the device."""
        caller = sys._getframe(1).f_code.co_name
        return self._traffic.future(self, caller == "_engine_run_backward")


class SentFuture(torch.futures.Future):  # type: ignore[type-arg]
    """What Sent.get_future() returns. Holds no times itself."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def wait(self) -> Any:
        """The current stream waits; the value."""
        done = self._traffic.when(self)
        if done is not None:
            self._traffic.waits(done)
        return self.value()

    def then(self, callback: Any) -> SentFuture:  # type: ignore[override]
        """Run callback(self) on a stream of its own that waits for the device's part; a future of what it returns."""
        return self._traffic.then(self, callback)


def _storages(thing: Any) -> set[int]:
    return {t.untyped_storage()._cdata for t in tensors(thing) if t.layout is torch.strided}


def _unboxed(thing: Any) -> Any:
    """The Python object of a process group or a Work that travelled through the dispatcher."""
    if not isinstance(thing, private_torch.ScriptObject):
        return thing
    kind: Any = dist.Work if "Work" in str(thing._type()) else dist.ProcessGroup
    return kind.unbox(thing)
