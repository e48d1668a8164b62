"""One rank of many on the simulated GPU: what collectives cost, what hides them, who waits for whom. No processes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from helpers import count, plots, ranks, trace, widgets
from helpers.check.sealed import sealed
from helpers.lessons.model_parallel import explorer as model_parallel_explorer
from helpers.lessons.model_parallel import schedule_picture
from helpers.ranks.costs import seconds as cost_of
from helpers.ranks.links import LINKS, Link
from helpers.simulator import SimGPU, SimulationError, simulate
from helpers.simulator.world import collectives
from helpers.simulator.world.buckets import Backward, Gradient, assign, gradients, overlap
from helpers.simulator.world.network import World
from helpers.simulator.world.pipeline import SCHEDULES, order, pipeline

WIDE, DEEP = 4096, 3
SLOW = Link("slow", 5e9, 10e-6, "made up")


def net(gpu: SimGPU, deep: int = DEEP, width: int = WIDE) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width, bias=False, device=gpu.device) for _ in range(deep)))


def step(gpu: SimGPU, model: nn.Module, works: list[Any] | None = None, rows: int = 4096) -> None:
    """Forward and backward, and what a hand-written DDP waits for at the end."""
    model(torch.empty(rows, WIDE, device=gpu.device)).sum().backward()
    for work in works or []:
        work.wait()


@contextmanager
def hooked(model: nn.Module, wait: bool = False) -> Iterator[list[Any]]:
    """A DDP with a bucket for each parameter."""
    works: list[Any] = []

    def send(parameter: torch.Tensor) -> None:
        works.append(dist.all_reduce(parameter.grad, async_op=True))
        if wait:
            works[-1].wait()

    handles = [p.register_post_accumulate_grad_hook(send) for p in model.parameters()]
    yield works
    for handle in handles:
        handle.remove()


def run(wait: bool = False, **how: Any) -> SimGPU:
    """One warm step of the net under the hand-written DDP. Its collectives are the last DEEP ones."""
    gpu = simulate("H100").world(8, **how)
    with gpu:
        model = net(gpu)
        with hooked(model, wait) as works:
            for _ in range(2):
                model.zero_grad()
                works.clear()
                step(gpu, model, works)
                torch.empty(1, device=gpu.device).zero_()  # what comes after the waits
                gpu.synchronize()
    return gpu


# ---------------------------------------------------------------------------------------- time


def test_a_collective_takes_what_the_formula_says() -> None:
    gpu = simulate("H100").world(8)
    with gpu:
        x = torch.empty(1 << 20, device=gpu.device)
        parts = list(torch.empty(8, 1 << 17, device=gpu.device))
        before = gpu.clock()
        dist.all_reduce(x)
        assert gpu.clock() - before < 300e-3  # first use; the host does not wait for the network
        dist.all_gather(parts, torch.empty(1 << 17, device=gpu.device))
        dist.reduce_scatter(parts[0], list(torch.empty(8, 1 << 17, device=gpu.device)))
        dist.broadcast(x, 0)
        dist.all_to_all_single(torch.empty_like(x), x)
        dist.send(x, 3)
        dist.recv(x, 3)
        dist.isend(x, 3).wait()
        kinds = [
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "broadcast",
            "all_to_all",
            "send",
            "recv",
            "send",
        ]
        assert [c.kind for c in gpu.collectives] == kinds
        for c in gpu.collectives:
            assert c.bytes == x.nbytes
            want = cost_of(c.kind, c.bytes, len(c.ranks), "NVLink 4")
            assert c.seconds == pytest.approx(want, abs=2e-9), c.kind
        assert gpu.collectives[0].seconds == pytest.approx(
            2 * 7 / 8 * x.nbytes / 450e9 + 14 * 3.4e-6, abs=2e-9
        )
        assert gpu.collectives[5].ranks == (0, 3) and gpu.collectives[5].stream != gpu.collectives[0].stream


def test_several_nodes_go_by_levels_or_as_slow_as_the_slower_link() -> None:
    def made(**how: Any) -> World:
        gpu = simulate("H100").world(32, nodes=4, between="InfiniBand NDR", **how)
        assert gpu.ranks is not None
        return gpu.ranks

    size, everybody = 1 << 26, tuple(range(32))
    levels = (
        cost_of("reduce_scatter", size, 8, "NVLink 4")
        + min(cost_of("all_reduce", size // 8, 4, "InfiniBand NDR", way) for way in ("ring", "tree"))
        + cost_of("all_gather", size, 8, "NVLink 4")
    )
    assert made().seconds("all_reduce", size, everybody) == pytest.approx(levels)
    flat = cost_of("all_reduce", size, 32, "InfiniBand NDR")  # its latency too is the larger one
    assert (
        made(algorithm="ring").seconds("all_reduce", size, everybody) == pytest.approx(flat) and flat > levels
    )
    assert made().seconds("all_reduce", size, tuple(range(8))) == cost_of("all_reduce", size, 8, "NVLink 4")
    one_a_node = tuple(range(0, 32, 8))  # the copies of a shard, where sharding stays inside a node
    for payload, way in ((1 << 10, "tree"), (1 << 30, "ring")):
        want = cost_of("all_reduce", payload, 4, "InfiniBand NDR", way)
        assert made().seconds("all_reduce", payload, one_a_node) == want
    assert made().seconds("all_gather", size, one_a_node) == cost_of("all_gather", size, 4, "InfiniBand NDR")
    assert made().seconds("send", size, (7, 8)) == cost_of("send", size, 2, "InfiniBand NDR")
    for kind in ("all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"):
        assert made().seconds(kind, size, everybody) > made().seconds(kind, size, tuple(range(8)))


@pytest.mark.parametrize("link", ["NVLink 4", SLOW])
def test_overlap_is_what_one_works_out_by_hand(link: Any) -> None:
    gpu = run(link=link, contention=False)
    sent, kernels = gpu.collectives[-DEEP:], [k for k in gpu.kernels if k.kind == "kernel"]
    product = next(k.end_ns - k.start_ns for k in reversed(kernels) if k.name == "aten.mm")
    each = sent[0].end_ns - sent[0].start_ns
    # Backward: two products for layer 3 (weight and input), two for layer 2, one for layer 1, whose input needs none.
    # One all-reduce a gradient, as soon as its layer is through.
    first = sent[0].arrival_ns
    done = [first, first + 2 * product, first + 3 * product]
    free, ends = 0, []
    for ready in done:
        free = max(free, ready) + each
        ends.append(free)
    assert [c.end_ns for c in sent] == ends
    # Compute ends with the last gradient, and what is after the waits begins with the last all-reduce's end: the total
    # is the longer of two chains, and the last bucket is always exposed.
    assert kernels[-1].start_ns == ends[-1] == max(done[-1] + each, first + DEEP * each)
    assert ends[-1] - done[-1] >= each
    assert (each > 2 * product) == (link is SLOW), "both cases are tried"


def test_who_waits_at_once_hides_nothing() -> None:
    late, early = run(contention=False), run(wait=True, contention=False)
    each = late.collectives[-1].end_ns - late.collectives[-1].start_ns

    def took(gpu: SimGPU) -> int:
        first, last = gpu.collectives[-DEEP], gpu.collectives[-1]
        return last.end_ns - first.start_ns

    assert took(early) == took(late) + (DEEP - 1) * each


def test_the_host_goes_on_and_item_and_barrier_wait() -> None:
    gpu = simulate("H100").world(8, link=SLOW)
    with gpu:
        x = torch.empty(1 << 22, device=gpu.device)
        dist.all_reduce(x)
        syncs, before = gpu.syncs, gpu.clock()
        work = dist.all_reduce(x, async_op=True)
        assert not work.is_completed()
        work.wait()
        assert gpu.clock() - before < 50e-6 and gpu.syncs == syncs
        x.sum().item()
        assert gpu.clock_ns() > gpu.collectives[-1].end_ns and gpu.syncs == syncs + 1 and work.is_completed()
        dist.all_reduce(x)
        dist.barrier()
        assert gpu.clock_ns() > gpu.collectives[-2].end_ns and gpu.syncs == syncs + 2


def test_counting_sees_no_sync_in_collectives() -> None:
    with simulate("H100").world(8) as gpu:
        x = torch.empty(1024, device=gpu.device)
        with count() as counts:
            dist.all_reduce(x)
            dist.all_reduce(x, async_op=True).wait()
            x.add_(1)
        assert counts.syncs == 0 and counts.by_operator == {"aten.add_": 1}


def test_two_groups_have_streams_of_their_own() -> None:
    with simulate("H100").world(8, link=SLOW) as gpu:
        x, y = torch.empty(2, 1 << 22, device=gpu.device)
        x, y = x.clone(), y.clone()
        pair, other = dist.new_group([0, 1]), dist.new_group([0, 4])
        works = [dist.all_reduce(t, group=g, async_op=True) for t, g in ((x, pair), (y, other), (y, other))]
        for work in works:
            work.wait()
    one, two, three = gpu.collectives
    assert one.ranks == (0, 1) and two.ranks == (0, 4) and one.stream != two.stream == three.stream
    assert two.start_ns < one.end_ns, "side by side"
    assert three.start_ns == two.end_ns, "one behind the other"


# ------------------------------------------------------------------------------------ what is shared


def test_kernels_beside_a_collective_have_fewer_sms() -> None:
    alone, beside = run(link=SLOW, contention=False), run(link=SLOW)

    def product(gpu: SimGPU) -> int:
        inside = [
            k for k in gpu.kernels if k.name == "aten.mm" and gpu.collectives[-DEEP].start_ns <= k.start_ns
        ]
        return inside[0].end_ns - inside[0].start_ns

    assert product(beside) / product(alone) == pytest.approx(
        132 / 108, rel=0.01
    )  # compute-bound, and all beside it


def test_a_streaming_kernel_loses_bandwidth_and_only_while_the_collective_runs() -> None:
    def took(**how: Any) -> tuple[float, float]:
        with simulate("H100").world(8, **how) as gpu:
            x, y = torch.empty(2, 1 << 26, device=gpu.device)
            small = torch.empty(1 << 22, device=gpu.device)
            y.add_(1)
            work = dist.all_reduce(small, async_op=True)
            y.add_(1)
            work.wait()
        return gpu.kernels[-1].duration_s, gpu.collectives[0].seconds

    (with_it, collective), (without, _) = took(), took(contention=False)
    share = 2 * (2 * 7 / 8 * (1 << 24)) / collective / 3.35e12
    # For as long as the collective runs it goes on at 1 - share of its speed: that much is left over behind it.
    assert with_it - without == pytest.approx(collective * share, rel=0.02)


# --------------------------------------------------------------------------------------- stragglers


def test_a_collective_waits_for_the_slowest_and_both_see_the_same_end() -> None:
    even = run(contention=False)
    seen = [run(contention=False, slow={3: 1.5}, rank=rank) for rank in (0, 3)]
    for gpu in seen:
        assert len(gpu.collectives) == 2 * DEEP
    waits, slow = seen[0].collectives[-1], seen[1].collectives[-1]
    assert slow.start_ns == slow.arrival_ns and waits.start_ns > waits.arrival_ns
    span = [g.collectives[-1].end_ns - g.collectives[DEEP - 1].end_ns for g in (even, *seen)]
    assert span[1] == pytest.approx(span[2], rel=0.002), "whoever looks, the step takes as long"
    assert span[1] / span[0] == pytest.approx(1.5, rel=0.03)


def test_the_last_of_many_is_later_than_of_few() -> None:
    def late(size: int, seed: int) -> float:
        gpu = simulate("H100").world(size, jitter=0.05, seed=seed, contention=False)
        with gpu:
            x, y = torch.empty(2, WIDE, WIDE, device=gpu.device)
            for _ in range(4):
                x @ y
            dist.all_reduce(x)
        factors = World(size, jitter=0.05, seed=seed).factors(np.random.Generator(np.random.PCG64(seed)))
        call = gpu.collectives[0]
        work = sum(k.end_ns - k.start_ns for k in gpu.kernels if k.kind == "kernel")
        begin = next(k for k in gpu.kernels if k.kind == "kernel").start_ns
        assert call.start_ns - begin == pytest.approx(work / factors[0] * factors.max(), rel=0.03)
        return float(factors.max())

    means = [np.mean([late(n, seed) for seed in range(6)]) for n in (8, 64, 1024)]
    assert 1 < means[0] < means[1] < means[2]


def test_jitter_is_repeatable() -> None:
    one, two = run(jitter=0.2, seed=7), run(jitter=0.2, seed=7)
    assert one.collectives == two.collectives and any(c.start_ns > c.arrival_ns for c in one.collectives)


# ------------------------------------------------------------------------------- programs as they are


def test_distributed_data_parallel_runs_and_fills_its_buckets_as_assigned() -> None:
    with simulate("H100").world(8) as gpu:
        model = net(gpu, 6, 2048)
        ddp = nn.parallel.DistributedDataParallel(model)
        for _ in range(3):
            before = len(gpu.collectives)
            ddp(torch.empty(512, 2048, device=gpu.device)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        sent = gpu.collectives[before:]
        places = assign([2048 * 2048 * 4] * 6)
        assert [c.bytes for c in sent] == [len(p) * 2048 * 2048 * 4 for p in places] and len(places) == 4
        with ddp.no_sync():
            ddp(torch.empty(512, 2048, device=gpu.device)).sum().backward()
        assert len(gpu.collectives) == before + len(sent)


@pytest.mark.parametrize("hook", [None, default_hooks.allreduce_hook, default_hooks.fp16_compress_hook])
def test_the_reducer_waits_for_a_bucket_and_copies_it_out_while_others_are_sent(hook: Any) -> None:
    """reducer.cpp, finalize_backward: for each bucket wait(), then finalize_bucket_dense()."""
    with simulate("H100").world(8, link=SLOW) as gpu:
        ddp = nn.parallel.DistributedDataParallel(net(gpu, 6, 2048))
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        for _ in range(3):
            before = len(gpu.collectives)
            ddp(torch.empty(512, 2048, device=gpu.device)).sum().backward()
        after = torch.empty(1, device=gpu.device).add_(1)
        gpu.synchronize()
        sent = gpu.collectives[before:]
        ran = [k for k in gpu.kernels if k.launch_ns > sent[-1].launch_ns and k.kind == "kernel"]
        ran = [k for k in ran if k.stream == 0]
        assert [k.name for k in ran] == ["aten.copy_"] * 6 + ["aten.add_"] and after is not None
        ends = [
            c.end_ns for c, places in zip(sent, assign([2048 * 2048 * 4] * 6), strict=True) for _ in places
        ]
        assert all(k.start_ns >= end for k, end in zip(ran, ends, strict=False))
        assert ran[0].end_ns < sent[-1].start_ns and ran[-1].start_ns > sent[-1].end_ns


def test_the_reducer_waits_for_all_buckets_where_it_copies_none() -> None:
    with simulate("H100").world(8, link=SLOW) as gpu:
        ddp = nn.parallel.DistributedDataParallel(net(gpu, 6, 2048), gradient_as_bucket_view=True)
        for _ in range(3):
            ddp(torch.empty(512, 2048, device=gpu.device)).sum().backward()
        torch.empty(1, device=gpu.device).add_(1)
        gpu.synchronize()
        last = gpu.collectives[-1]
        (add,) = [
            k for k in gpu.kernels if k.launch_ns > last.launch_ns and k.kind == "kernel" and k.stream == 0
        ]
        assert add.start_ns >= last.end_ns


@pytest.mark.parametrize("hook", [None, default_hooks.fp16_compress_hook])
def test_the_first_buckets_go_when_they_are_laid_out_anew(hook: Any) -> None:
    with simulate("H100").world(8) as gpu:
        model = net(gpu, 6, 2048)
        ddp = nn.parallel.DistributedDataParallel(model)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        held = []
        for _ in range(4):
            ddp(torch.empty(512, 2048, device=gpu.device)).sum().backward()
            model.zero_grad()
            gpu.synchronize()
            held.append(gpu.memory_allocated())
    workspaces = 2 * 4096 * 8 * 1024  # forward's and backward's
    if hook is None:
        assert held[0] == 2 * 6 * 2048 * 2048 * 4 + workspaces, "weights and buckets"
    assert held == held[:1] * 4, "no more after that, nor with each step"


def test_a_comm_hook_sends_half_the_bytes() -> None:
    with simulate("H100").world(8) as gpu:
        ddp = nn.parallel.DistributedDataParallel(net(gpu, 2, 1024))
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        ddp(torch.empty(64, 1024, device=gpu.device)).sum().backward()
        torch.optim.SGD(ddp.parameters(), lr=0.1).step()
    assert gpu.collectives[-1].bytes == 2 * 1024 * 1024 * 2


def test_fully_shard_without_a_mesh_takes_the_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.fsdp import fully_shard

    monkeypatch.setattr("torch._C._get_accelerator", lambda *_: torch.device("cuda"))  # built for CUDA
    with simulate("H100").world(8) as gpu:
        model = fully_shard(net(gpu, 1, 64))
        model(torch.empty(8, 64, device=gpu.device)).sum().backward()
    assert [c.kind for c in gpu.collectives] == ["all_gather", "reduce_scatter"]


def test_fully_shard_gathers_ahead_and_holds_less() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def peak(shard: bool) -> tuple[int, SimGPU]:
        with simulate("H100").world(8) as gpu:
            model = net(gpu, 6, 2048)
            if shard:
                mesh = init_device_mesh(gpu.device.type, (8,))
                for layer in model:
                    fully_shard(layer, mesh=mesh)
                fully_shard(model, mesh=mesh)
            gpu.reset_peak_memory_stats()
            for _ in range(2):
                model(torch.empty(4096, 2048, device=gpu.device)).sum().backward()
            gpu.synchronize()
            return gpu.max_memory_allocated(), gpu

    whole, _ = peak(False)
    sharded, gpu = peak(True)
    layer = 2048 * 2048 * 4
    assert whole - sharded > 4 * layer, "gradients and weights of six layers, against shards of them"
    half = gpu.collectives[: len(gpu.collectives) // 2]
    kinds = [c.kind for c in half]
    assert kinds.count("reduce_scatter") == 6 and kinds.count("all_gather") in (11, 12)
    assert {c.bytes for c in half} == {layer}
    overlapping = [
        c for c in gpu.collectives[len(half) :]
        if any(k.name == "aten.mm" and k.start_ns < c.end_ns and c.start_ns < k.end_ns for k in gpu.kernels)
    ]  # fmt: skip
    assert {"all_gather", "reduce_scatter"} == {c.kind for c in overlapping} and len(overlapping) >= 6


def test_a_stream_of_high_priority_does_not_wait_for_a_long_kernel() -> None:
    """FSDP copies shards into its messages there: behind every queued product, each second gather would be exposed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with simulate("H100").world(8) as gpu:
        model = net(gpu, 6, 4096)
        mesh = init_device_mesh(gpu.device.type, (8,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        x = torch.empty(4096, 4096, device=gpu.device)
        model(x)
        gpu.synchronize()
        kernels, sent = len(gpu.kernels), len(gpu.collectives)
        model(x)
        gpu.synchronize()
    products = [k for k in gpu.kernels[kernels:] if "mm" in k.name]
    gathers = gpu.collectives[sent:]
    assert len(products) >= 6 and len(gathers) == 6
    for product, gather in zip(products[:-1], gathers[1:], strict=False):
        assert gather.end_ns <= product.end_ns, "the next gather is done before this product"

    def ends(priority: int) -> list[int]:
        with simulate("H100").world(2) as gpu:
            stream = gpu.Stream(priority=priority)
            a = torch.empty(2048, 2048, device=gpu.device)
            _ = a @ a
            with gpu.stream(stream):
                _ = a @ a
            _ = a @ a
            gpu.synchronize()
        return sorted(k.end_ns for k in gpu.kernels if "mm" in k.name)

    low, high = ends(0), ends(-1)
    assert high[1] < low[1] and high[2] == pytest.approx(low[2], abs=20), "earlier, and no work is saved"


def test_compared_draws_runs_on_one_axis() -> None:
    from helpers import plots

    with simulate("H100").world(8, slow={3: 1.5}) as gpu:
        x = torch.empty(4096, 4096, device=gpu.device)
        dist.all_reduce(x @ x)
        gpu.synchronize()
    picture = plots.compared({"one": (gpu, 0.0), "two": (gpu, 0.0)}, title="Both")
    assert picture.alt.startswith("Both: one ") and "two" in picture.alt and picture.png()
    with pytest.raises(ValueError, match="no runs"):
        plots.compared({}, title="none")
    with pytest.raises(ValueError, match="no collective"):
        plots.compared({"later": (gpu, 1e3)}, title="none")


def test_tensor_parallel_sends_once_each_way() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    with simulate("H100").world(8) as gpu:
        mesh = init_device_mesh(gpu.device.type, (8,))
        model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(gpu.device)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        sent = len(gpu.collectives)
        x = torch.randn(64, 512, device=gpu.device, requires_grad=True)
        model(x).sum().backward()
    assert [(c.kind, c.bytes) for c in gpu.collectives[sent:]] == [("all_reduce", 64 * 512 * 4)] * 2


def test_what_follows_tensor_parallelism_waits_for_its_sum() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    with simulate("H100").world(8) as gpu:
        mesh = init_device_mesh(gpu.device.type, (8,))
        model = nn.Sequential(nn.Linear(2048, 8192), nn.ReLU(), nn.Linear(8192, 2048)).to(gpu.device)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        after, x = nn.Linear(2048, 2048).to(gpu.device), torch.randn(4096, 2048, device=gpu.device)
        model(x)  # what happens only once
        gpu.synchronize()
        sent, ran = len(gpu.collectives), len(gpu.kernels)
        after(model(x))
    (summed,) = gpu.collectives[sent:]
    *products, last = [k for k in gpu.kernels[ran:] if k.name == "aten.addmm"]
    assert all(k.end_ns <= summed.start_ns for k in products) and last.start_ns >= summed.end_ns


def test_messages_in_a_batch() -> None:
    with simulate("H100").world(4) as gpu:
        x, y = torch.empty(2, 1024, device=gpu.device)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x.clone(), 1), dist.P2POp(dist.irecv, y, 3)]
        ):
            work.wait()
    assert [(c.kind, c.ranks) for c in gpu.collectives] == [("send", (0, 1)), ("recv", (0, 3))]


def test_with_values_the_others_hold_what_this_one_holds() -> None:
    with simulate("H100", values=True).world(4, rank=1) as gpu:
        x = torch.full((8,), 3.0, device=gpu.device)
        dist.all_reduce(x)
        assert x.tolist() == [12.0] * 8
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        assert x.tolist() == [12.0] * 8
        part, y = torch.empty(2, device=gpu.device), torch.arange(8.0, device=gpu.device)
        dist.reduce_scatter(part, list(y.view(4, 2)))
        assert part.tolist() == [8.0, 12.0]
        everything = [torch.empty(2, device=gpu.device) for _ in range(4)]
        dist.all_gather(everything, part)
        assert [t.tolist() for t in everything] == [[8.0, 12.0]] * 4


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("kind", "op", "takes", "gives"),
    [
        ("all_reduce", dist.ReduceOp.SUM, [[1.0, 2.0]], [[4.0, 8.0]]),
        ("all_reduce", dist.ReduceOp.AVG, [[1.0, 2.0]], [[2.0, 4.0]]),
        ("all_reduce", dist.ReduceOp.MAX, [[1.0, -2.0]], [[3.0, -2.0]]),
        ("all_reduce", dist.ReduceOp.PRODUCT, [[1.0, 2.0]], [[3.0, 12.0]]),
        ("reduce_scatter", dist.ReduceOp.SUM, [[1.0], [2.0]], [[4.0]]),
        ("all_gather", None, [[1.0, 2.0]], [[1.0, 2.0], [3.0, 6.0]]),
        ("all_gather", None, [[1.0, 2.0]], [[1.0, 2.0, 3.0, 6.0]]),
        ("all_to_all", None, [[1.0, 2.0]], [[1.0, 3.0]]),
        ("all_to_all", None, [[1.0], [2.0]], [[1.0], [3.0]]),
    ],
)
def test_the_others_may_hold_more(kind: str, op: Any, takes: Any, gives: Any) -> None:
    """The other one of two ranks holds three times what this one holds."""
    ins, outs = [torch.tensor(one) for one in takes], [torch.empty(len(one)) for one in gives]
    given = {} if op is None else {"reduce_op": _reducing(op)}
    collectives.fill(kind, given, ins, outs, [1, 3], 0)
    assert [out.tolist() for out in outs] == gives


def _reducing(op: Any) -> Any:
    """As the dispatcher hands it on."""
    return SimpleNamespace(op=lambda: int(op))


def test_who_does_not_wait_races() -> None:
    gpu = simulate("H100").world(8)
    with pytest.raises(SimulationError, match=r"call wait\(\) on the Work"), gpu:
        x = torch.empty(1 << 20, device=gpu.device)
        dist.all_reduce(x, async_op=True)
        x.add_(1)
    gpu = simulate("H100").world(8)
    with gpu:
        x = torch.empty(1 << 20, device=gpu.device)
        work = dist.all_reduce(x, async_op=True)
        held = gpu.memory_allocated()
        del x
        assert gpu.memory_allocated() == held, "kept until somebody has waited"
        work.wait()
        assert gpu.memory_allocated() == 0


def test_a_graph_refuses_collectives() -> None:
    gpu = simulate("H100").world(8)
    with pytest.raises(SimulationError, match="collectives inside a graph are not simulated"), gpu:
        x = torch.empty(1024, device=gpu.device)
        with gpu.graph(gpu.CUDAGraph()):
            x.add_(1)
            dist.all_reduce(x)


def test_the_group_comes_and_goes_with_the_block() -> None:
    hook = sys.excepthook
    gpu = simulate("H100").world(1024, nodes=128, between="InfiniBand NDR", rank=1023)
    with gpu:
        assert (dist.get_rank(), dist.get_world_size()) == (1023, 1024)
    assert not dist.is_initialized() and sys.excepthook is hook
    with pytest.raises(ZeroDivisionError), gpu:
        raise ZeroDivisionError
    assert not dist.is_initialized()
    assert simulate("H100").collectives == [] and simulate("H100").ranks is None
    with pytest.raises(RuntimeError, match="before the first"):
        gpu.world(4)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"nodes": 3}, "the same number"), ({"rank": 8}, "numbered from 0"), ({"nodes": 2}, "what connects them"),
        ({"link": "string"}, "there are NVLink 5"), ({"algorithm": "star"}, "no algorithm"), ({"slow": {9: 2}}, "a rank below 8"),
        ({"slow": {1: 0}}, "a rank below"), ({"jitter": -1}, "sigma"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate("H100").world(8, **how)


def test_a_sealed_gpu_communicates() -> None:
    with simulate("H100", strict=False).world(8) as gpu:
        shown = sealed(gpu)
        ddp = nn.parallel.DistributedDataParallel(nn.Linear(64, 64, device=shown.device))
        ddp(torch.empty(4, 64, device=shown.device)).sum().backward()
        x = torch.empty(64, device=shown.device)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        x.add_(1)
        future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0].add_(1))
        future.wait().add_(1)
        dist.barrier()
        for name in ("collectives", "ranks", "world", "_traffic"):
            with pytest.raises(AttributeError, match="torch.cuda's names"):
                getattr(shown, name)
    calls, races = gpu.collectives, gpu.races
    assert [c.kind for c in calls][-3:] == ["all_reduce", "all_reduce", "barrier"] and not races


# ------------------------------------------------------------------------------------ buckets, traces


def test_buckets_are_closed_by_what_fills_them() -> None:
    mib = 1 << 20
    assert assign([mib // 2, mib // 2, 20 * mib, 5 * mib, mib]) == [[0, 1], [2, 3], [4]]
    assert assign([30 * mib, 30 * mib]) == [[0], [1]] and assign([]) == []
    with pytest.raises(ValueError, match="has a size"):
        assign([1], cap_mb=0)
    one = Backward(tuple(Gradient(str(i), 2 * mib, 1.0 + i) for i in range(3)), 0.5, 3.2, "arithmetic")
    plan = overlap(one, lambda nbytes: nbytes / mib)
    assert [(b.bytes // mib, b.start_s, b.end_s) for b in plan.buckets] == [(2, 1.0, 3.0), (4, 3.0, 7.0)]
    assert plan.exposed_s == pytest.approx(3.8) and plan.communication_s == 6


@pytest.mark.parametrize("cap_mb", [None, 0.5, 3, 5, 25, 1000])
def test_buckets_are_assigned_as_ddp_does(cap_mb: float | None) -> None:
    """The first bucket is smaller by default only: bucket_cap_mb=25 is not the default."""
    with ranks.fake(8):
        ddp = nn.parallel.DistributedDataParallel(
            nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(9))), bucket_cap_mb=cap_mb
        )
        for _ in range(2):  # buckets are laid out again when the second begins
            with ranks.sent() as record:
                ddp(torch.ones(1, 512)).sum().backward()
    sent = [c.bytes // 2**20 for c in record.of("all_reduce")]
    assert sent == [len(places) for places in assign([2**20] * 9, cap_mb)]


def test_the_plan_of_buckets_is_what_the_gpu_does() -> None:
    with simulate("H100") as gpu:
        model = net(gpu)
        alone = gradients(gpu, model, lambda: model(torch.empty(4096, WIDE, device=gpu.device)).sum())
    assert [g.name for g in alone.gradients] == ["2.weight", "1.weight", "0.weight"]
    plan = overlap(alone, lambda nbytes: cost_of("all_reduce", nbytes, 8, "NVLink 4"), cap_mb=1)
    sent = run(contention=False).collectives[-DEEP:]
    gaps = [c.end_ns / 1e9 - sent[0].end_ns / 1e9 for c in sent]
    assert [b.end_s - plan.buckets[0].end_s for b in plan.buckets] == pytest.approx(gaps, abs=1e-6)
    assert plan.exposed_s == pytest.approx(sent[-1].seconds, abs=2e-6)


def test_a_trace_tells_what_is_exposed() -> None:
    gpu = simulate("H100").world(8, contention=False)
    with gpu:
        model = net(gpu)
        with hooked(model) as works, gpu.profile() as prof:
            step(gpu, model, works)
            gpu.synchronize()
    found = trace.overlap(trace.read(prof))
    each = gpu.collectives[-1].seconds
    assert found.communication == pytest.approx(DEEP * each, rel=1e-3)
    assert found.exposed_communication == pytest.approx(each, rel=0.02)
    picture = plots.overlapped(gpu)
    assert f"{DEEP} collectives" in picture.alt and "exposed" in picture.alt and picture.png()
    assert "communication 1" in plots.timeline(gpu, evidence=gpu.evidence).alt
    with pytest.raises(ValueError, match="no collective"):
        plots.overlapped(simulate("H100"))


# -------------------------------------------------------------------------------------------- pipelines


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 5), (4, 2), (4, 8), (8, 16), (16, 32)])
def test_bubbles_and_activations_are_what_the_formulas_say(p: int, m: int) -> None:
    for name in SCHEDULES[:2]:
        ran = pipeline(order(name, p, m))
        assert ran.bubble == pytest.approx((p - 1) / (m + p - 1))
        assert ran.seconds == pytest.approx(3 * (m + p - 1))
        assert list(ran.peak) == [m if name == "GPipe" else min(p - r, m) for r in range(p)]
    if m % p == 0:
        for v in (2, 3):
            ran = pipeline(order("Interleaved 1F1B", p, m, v), {"F": 1 / v})
            assert ran.bubble == pytest.approx((p - 1) / (v * m + p - 1)), "the bubble is a v-th"


def stage_of(rank: int, ranks: int, ran: list[str]) -> Any:
    """A pipeline stage for torch's schedules to drive: it notes which forwards and backwards it is told to run."""
    stage = mock.Mock(stage_index=rank, num_stages=ranks, is_first=rank == 0, is_last=False)
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        getattr(stage, name).return_value = []
    stage.forward_one_chunk.side_effect = lambda i, *a, **k: ran.append(f"{rank}F{i}")
    stage.backward_one_chunk.side_effect = lambda i, *a, **k: ran.append(f"{rank}B{i}")
    return stage


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8, 16])
def test_orders_are_those_that_torch_runs(p: int) -> None:
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    for m in sorted({p, p + 1, 2 * p + 3}):  # torch's 1F1B wants at least a micro-batch a stage
        for name, kind in (("GPipe", ScheduleGPipe), ("1F1B", Schedule1F1B)):
            wanted: list[list[str]] = [[] for _ in range(p)]
            for rank in range(p):
                schedule = kind(stage_of(rank, p, wanted[rank]), m, loss_fn=lambda out, target: out)
                with mock.patch.multiple(
                    schedule, _initialize_stage=mock.DEFAULT, _check_inputs=lambda *a: a[:2]
                ):
                    schedule._step_microbatches([()] * m, [{}] * m)
            assert order(name, p, m) == wanted, (name, p, m)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_interleaved_orders_are_the_librarys(p: int) -> None:
    for m, v in itertools.product((p, 2 * p, 4 * p), (2, 3, 4)):
        assert order("Interleaved 1F1B", p, m, v) == tables("Interleaved1F1B", p, m, v), (m, v)


def tables(name: str, *sizes: int) -> list[list[str]]:
    """The rows of the library's own table, without its pauses."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    rows: Any = get_schedule_ops(name, *sizes)
    return [[str(a) for a in row if a is not None and str(a)[-1].isdigit()] for row in rows]


def test_the_librarys_tables_are_ours() -> None:
    for p, m in ((2, 4), (4, 8), (4, 6), (3, 7)):
        assert order("GPipe", p, m) == tables("GPipe", p, m)
        # torch 2.13 counts the last rank's forwards from 1 in this table, which its own run does not use
        assert order("1F1B", p, m)[:-1] == tables("1F1B", p, m)[:-1]


def test_messages_take_time_one_after_the_other() -> None:
    ran = pipeline([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]], {"F": 1, "B": 1}, send_s=2)
    starts = {str(s): s.start_s for s in ran.steps}
    assert starts["1F0"] == 3 and starts["1F1"] == 5, "the second message leaves when the first has arrived"
    assert starts["0B0"] == 6 + 1 + 2 and len(ran.messages) == 4
    uneven = pipeline(order("GPipe", 2, 3), {"F": [1, 2], "B": [2, 4]})
    assert uneven.seconds == 1 + 3 * 2 + 3 * 4 + 2


@pytest.mark.parametrize(
    ("table", "times", "said"),
    [
        ([["0F0", "0F0"]], None, "twice"), ([["0X0"]], None, "is no action"),
        ([["0B0", "0F0"]], None, "rank 0 waits in 0B0 for 0F0, which is behind it"),
        ([["0F0", "0B0"], ["1F0"]], None, "1B0, which is nowhere in the table"),
        ([["0F0"]], {"B": 1}, "without F"), ([["0F0"]], {"F": [1, 2]}, "one for each of 1"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_says_why(table: Any, times: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pipeline(table, times)
    with pytest.raises(ValueError, match="equal rounds"):
        order("Interleaved 1F1B", 4, 9, 2)


def test_schedules_are_drawn() -> None:
    for p, m in ((4, 8), (16, 16)):
        picture = schedule_picture.schedule(pipeline(order("1F1B", p, m), {"F": 1e-3}, send_s=1e-4))
        assert f"{p} ranks" in picture.alt and "bubble" in picture.alt
        rows = [t for t in picture.figure.axes[0].texts if t.get_text().startswith("rank")]
        assert len(rows) == p and picture.png()


# --------------------------------------------------------------------------------------------- explorer


@pytest.fixture(scope="module")
def small() -> Backward:
    mib = 1 << 20
    return Backward(
        tuple(Gradient(f"layer {i}", 8 * mib, 0.01 + 0.002 * i) for i in range(10)),
        0.01,
        0.0281,
        "arithmetic",
    )


def test_the_bucket_explorer_moves(small: Backward) -> None:
    pytest.importorskip("ipywidgets")
    explorer = widgets.bucket_explorer(small, ranks=8)
    assert explorer.widget is not None and explorer.controls["between"].disabled
    few = len(explorer.plan.buckets)
    explorer.controls["cap_mb"].value = 1
    assert len(explorer.plan.buckets) == 10 > few and "10 all-reduces" in explorer._text.value
    before, image = explorer.plan.exposed_s, explorer.image.value
    explorer.set(ranks=1024)
    assert explorer.plan.exposed_s > before and explorer.image.value != image
    assert explorer.controls["ranks"].value == 1024 and not explorer.controls["between"].disabled
    with pytest.raises(ValueError, match="ranks: one of"):
        widgets.bucket_explorer(small, ranks=3)


def test_the_pipeline_explorer_moves() -> None:
    pytest.importorskip("ipywidgets")
    explorer = model_parallel_explorer.pipeline_explorer("GPipe")
    assert explorer.widget is not None and "27.3%" in explorer.facts
    explorer.controls["microbatches"].value = 16
    assert explorer.run is not None and explorer.run.microbatches == 16 and "15.8%" in explorer._text.value
    explorer.set(schedule="Interleaved 1F1B", microbatches=9)
    assert explorer.run is None and "equal rounds" in explorer._text.value and explorer.static().png()
    with pytest.raises(ValueError, match="1 to 16"):
        model_parallel_explorer.pipeline_explorer(ranks=17)


@pytest.mark.parametrize("kind", ["buckets", "pipeline"])
def test_explorers_are_pictures_where_nothing_can_move(
    kind: str, small: Backward, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipywidgets")

    def made() -> Any:
        return (
            widgets.bucket_explorer(small)
            if kind == "buckets"
            else model_parallel_explorer.pipeline_explorer()
        )

    live, _ = made()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in live and "image/png" in live
    monkeypatch.setenv(widgets.STATIC, "1")
    built, about = made()._repr_mimebundle_()
    assert set(built) == {"text/plain", "image/png"} and "alt" in about["image/png"]
    monkeypatch.delenv(widgets.STATIC)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bare, _ = made()._repr_mimebundle_()
    assert set(bare) == {"text/plain", "image/png"} and "ipywidgets is not installed" in bare["text/plain"]


def test_links_by_name_are_the_tables() -> None:
    gpu = simulate("H100").world(2, link="PCIe 4.0 x16")
    assert gpu.ranks is not None and gpu.ranks.link is LINKS["PCIe 4.0 x16"]
