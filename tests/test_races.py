"""helpers.simulator.races: what is not ordered, whenever it happened to run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from helpers.simulator import SimGPU, SimulationError, simulate
from helpers.simulator.accesses import overlap, place


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    """An H100 that keeps its faults to itself."""
    device = simulate("H100", strict=False)
    with device:
        yield device


def pairs(gpu: SimGPU) -> list[tuple[str, int | None, str, int | None, str]]:
    return [(r.first.name, r.first.stream, r.second.name, r.second.stream, r.kind) for r in gpu.races]


def batch(n: int = 1024) -> torch.Tensor:
    return torch.empty(n, n, pin_memory=True)


# ------------------------------------------------------------------------------------ prefetchers


def racy(gpu: SimGPU) -> None:
    """Copies on a side stream, used on the main one, without a wait."""
    side = gpu.Stream()
    host = [batch() for _ in range(4)]
    for source in host:
        with gpu.stream(side):
            x = source.to(gpu.device, non_blocking=True)
        x.relu()
        x.record_stream(gpu.current_stream())


def overwritten(gpu: SimGPU) -> None:
    """Two buffers that the copy stream fills again without asking whether they were read."""
    side, buffers = gpu.Stream(), [torch.empty(1024, 1024, device=gpu.device) for _ in range(2)]
    for i in range(6):
        with gpu.stream(side):
            buffers[i % 2].copy_(batch(), non_blocking=True)
        gpu.current_stream().wait_stream(side)
        buffers[i % 2].relu()


def unrecorded(gpu: SimGPU) -> None:
    """Made on a side stream, read on the main one, and dropped without record_stream."""
    side = gpu.Stream()
    for _ in range(4):
        with gpu.stream(side):
            x = batch().to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.relu()
        del x


RACY = {
    racy: [("aten._to_copy", 1, "aten.relu", 0, "read after write")],
    overwritten: [("aten.relu", 0, "aten.copy_", 1, "write after read")],
    unrecorded: [("aten.relu", 0, "aten._to_copy", 1, "memory reused")],
}


@pytest.mark.parametrize("program", RACY)
def test_a_race_is_found_whatever_the_timing(program: Callable[[SimGPU], None]) -> None:
    slow = {"launch_latency_s": 1e-3}
    runs = [("H100", 0.0, 0, {}), ("T4", 0.0, 0, {}), ("H100", 1.5, 1, {}), ("A100", 1.5, 2, slow)]
    for card, noise, seed, assumptions in runs:
        gpu = simulate(card, noise=noise, seed=seed, strict=False, **assumptions)
        with gpu:
            program(gpu)
        assert pairs(gpu) == RACY[program], (card, noise, seed)
        assert len(gpu.faults) == 1 and gpu.faults[0] == str(gpu.races[0])


def test_a_race_says_who_what_where_and_what_to_add(gpu: SimGPU) -> None:
    racy(gpu)
    (race,) = gpu.races
    assert race.first.tensor == race.second.tensor == "float32[1024, 1024]"
    assert race.first.write and not race.second.write and race.times == 4
    for part in (
        "aten._to_copy on stream 1",
        "aten.relu on stream 0",
        "of racy",
        "wait_stream",
        "float32[1024, 1024]",
    ):
        assert part in race.what, part


def test_strict_raises_at_the_end_and_not_strict_keeps() -> None:
    with pytest.raises(SimulationError, match="nothing orders the two"):
        with simulate() as gpu:
            racy(gpu)
    with simulate(strict=False) as gpu:
        racy(gpu)
    assert len(gpu.faults) == len(gpu.races) == 1


def test_the_record_stream_message_says_record_stream(gpu: SimGPU) -> None:
    unrecorded(gpu)
    assert "record_stream" in gpu.races[0].what


def double_buffered(gpu: SimGPU, order: str) -> None:
    side, x = gpu.Stream(), None
    copied, used = [gpu.Event(), gpu.Event()], [gpu.Event(), gpu.Event()]
    device = [torch.empty(1024, 1024, device=gpu.device) for _ in range(2)]
    host = [batch() for _ in range(2)]
    for i in range(6):
        k = i % 2
        copied[k].synchronize()  # before the host writes the pinned buffer again
        host[k].fill_(i)
        with gpu.stream(side):
            if order == "stream":
                side.wait_stream(gpu.default_stream())
            else:
                side.wait_event(used[k])
            device[k].copy_(host[k], non_blocking=True)
            copied[k].record()
        if order == "stream":
            gpu.current_stream().wait_stream(side)
        else:
            copied[k].wait()
        x = device[k] * 2
        used[k].record()
    assert x is not None


def fresh_each_time(gpu: SimGPU) -> None:
    """The prefetcher of many repositories: new tensors, wait_stream and record_stream."""
    side, following = gpu.Stream(), None

    def fetch() -> torch.Tensor:
        with gpu.stream(side):
            return batch().to(gpu.device, non_blocking=True)

    following = fetch()
    for _ in range(6):
        gpu.current_stream().wait_stream(side)
        x, _ = following, following.record_stream(gpu.current_stream())
        following = fetch()
        (x @ x).relu()


def kept_alive(gpu: SimGPU) -> None:
    side, kept = gpu.Stream(), []
    for _ in range(4):
        with gpu.stream(side):
            kept.append(batch().to(gpu.device, non_blocking=True))
        gpu.current_stream().wait_stream(side)
        kept[-1].relu()
    gpu.synchronize()
    del kept
    with gpu.stream(side):
        batch().to(gpu.device, non_blocking=True)


def waits_back(gpu: SimGPU) -> None:
    """Instead of record_stream: the owner's stream waits before it takes memory again."""
    side = gpu.Stream()
    for _ in range(4):
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            x = batch().to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.relu()
        del x


def blocking(gpu: SimGPU) -> None:
    side = gpu.Stream()
    for _ in range(3):
        with gpu.stream(side):
            x = batch().to(gpu.device)  # the host waits
        x.relu()
        gpu.synchronize()


def polled(gpu: SimGPU) -> None:
    side, done = gpu.Stream(), gpu.Event()
    with gpu.stream(side):
        x = batch().to(gpu.device, non_blocking=True)
        done.record()
    while not done.query():
        gpu.host_work(1e-5)
    x.relu()
    with gpu.stream(side):
        x.relu()
    while not side.query():
        gpu.host_work(1e-5)
    x.zero_()


def halves(gpu: SimGPU) -> None:
    """Two streams in two parts of one tensor."""
    x, side = torch.zeros(64, 64, device=gpu.device), gpu.Stream()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        x[:, :32].mul_(2)
    x[:, 32:].mul_(2)


RIGHT: list[Callable[[SimGPU], None]] = [
    lambda gpu: double_buffered(gpu, "stream"),
    lambda gpu: double_buffered(gpu, "event"),
    *(fresh_each_time, kept_alive, waits_back, blocking, polled, halves),
]


@pytest.mark.parametrize("program", RIGHT)
def test_right_programs_have_no_race(program: Callable[[SimGPU], None]) -> None:
    for card, noise in (("H100", 0.0), ("T4", 1.5)):
        with simulate(card, noise=noise) as gpu:
            program(gpu)
        assert not gpu.races


# --------------------------------------------------------------------------------------- streams


def test_the_default_stream_is_like_any_other(gpu: SimGPU) -> None:
    x, side = torch.zeros(8, device=gpu.device), gpu.Stream()
    with gpu.stream(side):
        x.add_(1)  # PyTorch's streams do not wait for the default stream
    x.add_(1)
    assert pairs(gpu) == [
        ("aten.zeros", 0, "aten.add_", 1, "write after write"),
        ("aten.add_", 1, "aten.add_", 0, "write after write"),
    ]


def test_order_goes_through_a_third_stream_and_through_the_host(gpu: SimGPU) -> None:
    a, b, x = gpu.Stream(), gpu.Stream(), torch.zeros(8, device=gpu.device)
    a.wait_stream(gpu.current_stream())
    b.wait_stream(a)
    with gpu.stream(b):
        x.add_(1)
    event = b.record_event()
    event.synchronize()
    with gpu.stream(a):
        x.add_(1)
    assert not gpu.races


def test_an_event_covers_what_came_before_it_and_nothing_after(gpu: SimGPU) -> None:
    side, x = gpu.Stream(), torch.zeros(8, device=gpu.device)
    event = gpu.current_stream().record_event()
    x.add_(1)
    side.wait_event(event)
    with gpu.stream(side):
        x.mul_(2)
    assert pairs(gpu) == [("aten.add_", 0, "aten.mul_", 1, "write after write")]


def test_two_readers_never_race_and_each_races_with_the_writer(gpu: SimGPU) -> None:
    a, b, x = gpu.Stream(), gpu.Stream(), torch.zeros(8, device=gpu.device)
    gpu.synchronize()
    with gpu.stream(a):
        x.exp()
    with gpu.stream(b):
        x.sin()
    assert not gpu.races
    x.zero_()
    assert {p[:2] for p in pairs(gpu)} == {("aten.exp", 1), ("aten.sin", 2)}
    assert {p[2:] for p in pairs(gpu)} == {("aten.zero_", 0, "write after read")}


def test_writing_needs_a_wait_too_when_the_memory_was_used_before(gpu: SimGPU) -> None:
    side = gpu.Stream()
    x = torch.ones(1 << 20, device=gpu.device)
    x.exp_()
    del x
    y = torch.empty(1 << 20, device=gpu.device)  # the same memory
    with gpu.stream(side):
        y.zero_()  # "STILL REQUIRED", says PyTorch's page on CUDA semantics
    assert pairs(gpu) == [("aten.exp_", 0, "aten.zero_", 1, "memory reused")]


@pytest.mark.parametrize(
    "touch",
    [
        lambda x, y: torch.add(y, 1, out=x),
        lambda x, y: torch._foreach_add_([y, x], 1.0),
        lambda x, y: x.t().mul_(2),
        lambda x, y: x[3:5].mul_(2),
        lambda x, y: x.view(-1)[7:9].copy_(y.view(-1)[:2]),
        lambda x, y: torch.cat([y, x]),
        lambda x, y: torch.where(y > 0, y, x),
        lambda x, y: y.index_put_((torch.zeros(1, dtype=torch.int64, device=y.device),), x[0]),
    ],
)
def test_every_way_to_touch_a_tensor_counts(gpu: SimGPU, touch) -> None:  # type: ignore[no-untyped-def]
    side = gpu.Stream()
    with gpu.stream(side):
        y = torch.zeros(8, 8, device=gpu.device)
    x = torch.ones(8, 8, device=gpu.device)
    with gpu.stream(side):
        touch(x, y)
    assert gpu.races and {(r.first.name, r.first.stream) for r in gpu.races} == {("aten.ones", 0)}


def test_one_operator_that_reads_a_tensor_twice_is_one_access(gpu: SimGPU) -> None:
    side, x = gpu.Stream(), torch.ones(8, 8, device=gpu.device)
    with gpu.stream(side):
        x @ x
    assert len(gpu.races) == 1 and gpu.races[0].times == 1


def test_views_and_bare_allocations_touch_nothing(gpu: SimGPU) -> None:
    side, x = gpu.Stream(), torch.ones(8, 8, device=gpu.device)
    with gpu.stream(side):
        x.t(), x[3], x.view(-1), x.detach(), torch.empty_like(x), x.expand(2, 8, 8)
    assert not gpu.races


def test_batch_norm_writes_its_running_statistics(gpu: SimGPU) -> None:
    norm, side = torch.nn.BatchNorm1d(8, device=gpu.device), gpu.Stream()
    x = torch.ones(4, 8, device=gpu.device)
    gpu.synchronize()
    norm(x)
    with gpu.stream(side):
        norm.running_mean.clone()
        norm.weight.clone()  # only read
    assert pairs(gpu) == [("aten.native_batch_norm", 0, "aten.clone", 1, "read after write")]


def test_places_overlap_exactly() -> None:
    x = torch.zeros(6, 10)
    for one, two, answer in [
        (x[:, :5], x[:, 5:], False), (x[:, :6], x[:, 5:], True), (x[0], x[1], False), (x.t(), x[3], True),
        (x[::2], x[1::2], False), (x[:, ::2], x[2:3, 1::2], False), (x[:, ::2], x[2:3, 1:3], True),
        (x.view(torch.uint8)[:, 1:2], x.view(torch.uint8)[:, 2:4], False), (x[:0], x, False),
        (x[:1].expand(4, 10), x[0, 9:], True),
    ]:  # fmt: skip
        assert overlap(place(one), place(two)) == overlap(place(two), place(one)) == answer


def test_random_programs_race_where_no_path_leads() -> None:
    """The clocks against plain reachability: launches, events, waits and synchronisations in any order."""
    raced = quiet = 0
    for seed in range(60):
        draw = random.Random(seed)
        with simulate("H100", strict=False, noise=draw.choice([0.0, 1.0])) as gpu:
            streams = [gpu.default_stream(), *(gpu.Stream() for _ in range(draw.randint(1, 3)))]
            tensors = [torch.empty(8, device=gpu.device) for _ in range(3)]
            paths: dict[int, set[int]] = {}  # operation → all that come before it
            last: list[set[int]] = [set() for _ in streams]  # before whatever is put into the stream next
            host: set[int] = set()
            events: list[tuple[Any, set[int]]] = []
            touched: list[list[tuple[int, bool]]] = [[] for _ in tensors]
            for i in range(40):
                k, what = draw.randrange(len(streams)), draw.random()
                if what < 0.55:
                    t, write = draw.randrange(3), draw.random() < 0.5
                    before = sum(r.times for r in gpu.races)
                    with gpu.stream(streams[k]):
                        tensors[t].zero_() if write else tensors[t].exp()
                    paths[i] = last[k] | host
                    last[k] = paths[i] | {i}
                    races = any((write or w) and j not in paths[i] for j, w in touched[t])
                    touched[t].append((i, write))
                    assert (sum(r.times for r in gpu.races) > before) == races, (seed, i)
                    raced, quiet = raced + races, quiet + (not races)
                elif what < 0.75:
                    events.append((streams[k].record_event(), last[k] | host))
                elif what < 0.9 and events:
                    event, known = draw.choice(events)
                    streams[k].wait_event(event)
                    last[k] = last[k] | known
                elif what < 0.95 and events:
                    event, known = draw.choice(events)
                    event.synchronize()
                    host |= known
                elif what < 0.99:
                    streams[k].synchronize()
                    host |= last[k]
                else:
                    gpu.synchronize()
                    host |= set().union(*last)
    assert raced > 200 and quiet > 500


# ------------------------------------------------------------------------------------------ host


def test_a_pinned_buffer_must_not_be_written_while_a_copy_reads_it(gpu: SimGPU) -> None:
    page = batch()
    page.to(gpu.device, non_blocking=True)
    page.fill_(1)
    assert pairs(gpu) == [("aten._to_copy", 0, "aten.fill_", None, "write after read")]
    assert "pinned" in gpu.races[0].what and "synchronize" in gpu.races[0].what


@pytest.mark.parametrize("wait", ["event", "stream", "device", "blocking", "read"])
def test_after_a_wait_it_may_be(gpu: SimGPU, wait: str) -> None:
    page = batch()
    x = page.to(gpu.device, non_blocking=wait != "blocking")
    if wait == "event":
        gpu.current_stream().record_event().synchronize()
    elif wait == "stream":
        gpu.current_stream().synchronize()
    elif wait == "device":
        gpu.synchronize()
    elif wait == "read":
        page.sum()  # both only read
        x.sum().item()  # waits for the stream
    page.fill_(1)
    assert not gpu.races


def test_pageable_memory_has_been_read_when_the_call_returns(gpu: SimGPU) -> None:
    for n in (10, 1000):
        page = torch.empty(n, n)
        page.to(gpu.device, non_blocking=True)
        page.fill_(1)
    assert not gpu.races


@pytest.mark.parametrize(
    "read",
    [
        lambda out: out.sum(),
        lambda out: out[0].item(),
        lambda out: out.tolist(),
        lambda out: out.numpy(),
        lambda out: repr(out),
        lambda out: out[0] + 1,
    ],
)
def test_a_result_must_not_be_read_before_it_has_arrived(gpu: SimGPU, read) -> None:  # type: ignore[no-untyped-def]
    x = torch.ones(8, device=gpu.device)
    read(x.to("cpu", non_blocking=True))
    assert {(r.first.name, r.first.stream, r.second.stream) for r in gpu.races} == {
        ("aten._to_copy", 0, None)
    }
    assert "asynchronous" in gpu.races[0].what
    gpu.races.clear()
    out = x.to("cpu", non_blocking=True)
    gpu.synchronize()
    read(out)
    read(x.cpu())
    assert not gpu.races


def test_two_copies_of_one_page_do_not_race_and_crossing_copies_do(gpu: SimGPU) -> None:
    page, side = batch(), gpu.Stream()
    x = page.to(gpu.device, non_blocking=True)
    with gpu.stream(side):
        y = page.to(gpu.device, non_blocking=True)
    assert not gpu.races
    with gpu.stream(side):
        page.copy_(y, non_blocking=True)
    assert pairs(gpu) == [("aten._to_copy", 0, "aten.copy_", 1, "write after read")]
    assert x is not None


# -------------------------------------------------------------------------------------- backward


def test_backward_runs_where_forward_ran_and_needs_no_wait_of_ours(gpu: SimGPU) -> None:
    side, w = gpu.Stream(), torch.ones(64, 64, device=gpu.device, requires_grad=True)
    x = torch.ones(64, 64, device=gpu.device)
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        h = x @ w
    gpu.current_stream().wait_stream(side)
    loss = (h * 2).sum()
    first = len(gpu.kernels)
    loss.backward()
    assert w.grad is not None
    w.grad.mul_(0.1)
    back = {k.name: k for k in gpu.kernels[first:]}
    assert back["aten.mm"].stream == 1 and back["aten.mul"].stream == 0
    assert back["aten.mm"].start_ns >= back["aten.mul"].end_ns
    assert back["aten.mul_"].stream == 0 and back["aten.mul_"].start_ns >= back["aten.mm"].end_ns
    assert not gpu.races and gpu.current_stream().stream_id == 0


def test_backward_of_two_branches_overlaps_as_forward_did(gpu: SimGPU) -> None:
    a, b = gpu.Stream(), gpu.Stream()
    w = [torch.ones(256, 256, device=gpu.device, requires_grad=True) for _ in range(2)]
    x = torch.ones(256, 256, device=gpu.device)
    outs = []
    for side, one in zip((a, b), w, strict=True):
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            outs.append(x @ one)
    gpu.current_stream().wait_stream(a)
    gpu.current_stream().wait_stream(b)
    (outs[0] + outs[1]).sum().backward()
    streams = [k.stream for k in gpu.kernels if k.name == "aten.mm"]
    assert sorted(streams[2:]) == [1, 2]
    torch.optim.SGD(w, lr=0.1).step()
    assert not gpu.races


def test_a_backward_under_another_stream_is_waited_for_by_that_stream_only(gpu: SimGPU) -> None:
    side, w = gpu.Stream(), torch.ones(8, 8, device=gpu.device, requires_grad=True)
    loss = (w * 2).sum()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        loss.backward()  # runs on stream 0, and the side stream waits for it
        assert w.grad is not None
        w.grad.mul_(2)
    assert not gpu.races
    w.grad.mul_(2)  # the main stream does not wait for the side stream
    assert pairs(gpu) == [("aten.mul_", 1, "aten.mul_", 0, "write after write")]


@pytest.mark.parametrize("values", [False, True])
def test_gradients_that_cross_streams_are_lent_by_the_engine(values: bool) -> None:
    with simulate(values=values) as gpu:
        side, w = gpu.Stream(), torch.ones(512, 512, device=gpu.device, requires_grad=True)
        x = torch.ones(512, 512, device=gpu.device)
        for _ in range(4):
            side.wait_stream(gpu.current_stream())
            older = (x * w).exp()
            with gpu.stream(side):
                h = (x @ w).relu()
            gpu.current_stream().wait_stream(side)
            h.record_stream(gpu.current_stream())
            # The gradient of h * 2 goes to the side stream and dies there; the other branch then wants memory.
            (h * 2 + older).sum().backward()
        assert w.grad is not None
    assert not gpu.races


def test_a_gradient_made_on_another_stream_must_be_waited_for(gpu: SimGPU) -> None:
    side, w = gpu.Stream(), torch.ones(8, 8, device=gpu.device, requires_grad=True)
    loss = w * 2
    with gpu.stream(side):
        start = torch.ones(8, 8, device=gpu.device)
    loss.backward(gradient=start)
    assert ("aten.ones", 1, "aten.mul", 0, "read after write") in pairs(gpu)


def test_an_ordinary_training_step_has_no_race_and_costs_little() -> None:
    import time

    with simulate() as gpu:
        side = gpu.Stream()
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, device=gpu.device) for _ in range(100)])
        optimizer = torch.optim.AdamW(model.parameters())
        side.wait_stream(gpu.current_stream())
        start = time.process_time()
        for _ in range(3):
            with gpu.stream(side):
                x = torch.empty(16, 64, pin_memory=True).to(gpu.device, non_blocking=True)
            gpu.current_stream().wait_stream(side)
            x.record_stream(gpu.current_stream())
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        took = time.process_time() - start
    assert not gpu.races and len(gpu._machine.races._cells) < 2000 and took < 20


def test_memory_dropped_before_the_second_stream_was_made() -> None:
    """Making a stream orders nothing: what the first one still computes with is no safe place for a copy."""
    gpu = simulate("H100", strict=False)
    with gpu:
        batch = torch.empty(1024, 1024).pin_memory()
        busy = torch.empty(1024, 1024, device=gpu.device)
        busy @ busy
        del busy
        side = gpu.Stream()
        buffer = torch.empty(1024, 1024, device=gpu.device)
        with gpu.stream(side):
            buffer.copy_(batch, non_blocking=True)
    assert [race.kind for race in gpu.races] == ["memory reused"]
    assert (gpu.races[0].first.name, gpu.races[0].second.name) == ("aten.mm", "aten.copy_")
    assert "record_stream" not in gpu.races[0].what, "it would not help: the memory is stream 0's own"
    assert "let stream 1 wait for stream 0 first" in gpu.races[0].what


def test_a_stream_that_was_told_to_wait_for_itself_is_told_so() -> None:
    gpu = simulate("H100", strict=False)
    with gpu:
        side, x = gpu.Stream(), torch.empty(512, 512, device=gpu.device)
        y = x @ x
        with gpu.stream(side):
            side.wait_stream(gpu.current_stream())
            y.relu()
        gpu.synchronize()
    assert len(gpu.races) == 1 and "told to wait for itself" in gpu.races[0].what
