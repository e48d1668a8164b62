"""helpers.simulator.graphs: capture, replay, and what goes wrong; with true values and without."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import count
from helpers.simulator import SimGPU, SimulationError, simulate


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    """An H100 without values, that keeps its faults to itself."""
    device = simulate("H100", strict=False)
    with device:
        x = torch.ones(8, 8, device=device.device)
        (x @ x).sum().item()
        yield device


@pytest.fixture
def real() -> Iterator[SimGPU]:
    """An H100 with true values."""
    with simulate("H100", values=True) as device:
        yield device


def capture(gpu: SimGPU, body: Any, **options: Any) -> Any:
    graph = gpu.CUDAGraph()
    with gpu.graph(graph, **options):
        body()
    return graph


# ------------------------------------------------------------------------------------ launches, time


def test_a_replay_is_one_launch_and_kernels_back_to_back(gpu: SimGPU) -> None:
    x = torch.ones(64, 64, device=gpu.device)

    def chain() -> None:
        y = x
        for _ in range(100):
            y = y + 1

    chain()
    gpu.synchronize()
    kernels, launches = len(gpu.kernels), gpu.launches
    graph = capture(gpu, chain)
    assert len(graph.nodes) == 100 and len(gpu.kernels) == kernels and gpu.launches == launches
    gpu.synchronize()
    start = gpu.clock()
    graph.replay()
    host = gpu.clock() - start
    gpu.synchronize()
    graphed = gpu.clock() - start
    assert gpu.launches == launches + 1 and len(gpu.kernels) == kernels + 100
    ran = gpu.kernels[kernels:]
    assert all(a.end_ns == b.start_ns for a, b in zip(ran, ran[1:], strict=False))
    assert {k.graph for k in ran} == {1} and {k.launch_ns for k in ran} == {ran[0].launch_ns}
    assert host == pytest.approx(10e-6)
    start = gpu.clock()
    chain()
    gpu.synchronize()
    assert gpu.clock() - start > 2 * graphed and gpu.launches == launches + 101
    assert not gpu.faults


def test_launches_count_kernels_copies_and_replays(gpu: SimGPU) -> None:
    before = gpu.launches
    x = torch.zeros(64, device=gpu.device)
    x.add_(1)
    x.t()
    x.cpu()
    assert gpu.launches == before + 3
    graph = capture(gpu, lambda: x.add_(1).mul_(2))
    for _ in range(5):
        graph.replay()
    assert gpu.launches == before + 8
    assert [k.name for k in gpu.kernels[-2:]] == ["aten.add_", "aten.mul_"]


def test_replays_queue_up_and_the_host_runs_ahead(gpu: SimGPU) -> None:
    x = torch.zeros(4096, 4096, device=gpu.device)
    graph = capture(gpu, lambda: x.mul_(2))
    graph.replay()
    graph.replay()
    one, two = gpu.kernels[-2:]
    assert two.start_ns == one.end_ns and gpu.clock_ns() < one.end_ns


def test_branches_overlap_in_a_replay_and_join(gpu: SimGPU) -> None:
    x, side = torch.zeros(8, device=gpu.device), gpu.Stream()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        a = x + 1
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            b = a * 2
        c = a * 3
        gpu.current_stream().wait_stream(side)
        b + c
    assert [n.after for n in graph.nodes] == [(), (0,), (0,), (1, 2)]
    graph.replay()
    first, two, three, last = gpu.kernels[-4:]
    assert two.start_ns == three.start_ns == first.end_ns and last.start_ns == two.end_ns
    assert two.stream == side.stream_id and {first.stream, three.stream, last.stream} == {0}
    assert not gpu.faults


def test_backward_inside_a_capture_may_use_two_streams(gpu: SimGPU) -> None:
    w, side = torch.ones(8, 8, device=gpu.device, requires_grad=True), gpu.Stream()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            y = w @ w
        gpu.current_stream().wait_stream(side)
        (y * 2).sum().backward()
    graph.replay()
    assert not gpu.faults and {n.stream for n in graph.nodes} == {None, side.stream_id}


# ---------------------------------------------------------------------------------- what is illegal


def page(gpu: SimGPU) -> torch.Tensor:
    return torch.empty(64, 64, pin_memory=True)


ILLEGAL = {
    "synchronize": (lambda gpu, x: gpu.synchronize(), "not permitted when stream is capturing"),
    "stream sync": (lambda gpu, x: gpu.current_stream().synchronize(), "not permitted when stream is capturing"),
    "stream query": (lambda gpu, x: gpu.current_stream().query(), "not permitted when stream is capturing"),
    "item": (lambda gpu, x: x.sum().item(), "not permitted when stream is capturing"),
    "bool": (lambda gpu, x: bool((x > 0).all()), "not permitted when stream is capturing"),
    "print": (lambda gpu, x: str(x), "not permitted when stream is capturing"),
    "nonzero": (lambda gpu, x: x.nonzero(), "not permitted when stream is capturing"),
    "mask": (lambda gpu, x: x[x > 0], "not permitted when stream is capturing"),
    "cpu": (lambda gpu, x: x.cpu(), "unless the CPU tensor is pinned"),
    "pageable": (lambda gpu, x: torch.ones(64, 64).to(gpu.device), "unless the CPU tensor is pinned"),
    "small": (lambda gpu, x: torch.ones(4).to(gpu.device, non_blocking=True), "unless the CPU tensor is pinned"),
    "list": (lambda gpu, x: torch.tensor([1.0, 2.0], device=gpu.device), "unless the CPU tensor is pinned"),
    "blocking": (lambda gpu, x: page(gpu).to(gpu.device), "not permitted when stream is capturing"),
    "event": (lambda gpu, x: gpu.current_stream().record_event().synchronize(), "last recorded in a capturing stream"),
    "event query": (lambda gpu, x: gpu.current_stream().record_event().query(), "last recorded in a capturing"),
    "join": (lambda gpu, x: gpu.current_stream().wait_stream(gpu.Stream()), "uncaptured work in another stream"),
    "default": (lambda gpu, x: gpu.default_stream().wait_stream(gpu.current_stream()), "make the legacy stream depend"),
}  # fmt: skip


@pytest.mark.parametrize("what", ILLEGAL)
def test_what_cuda_refuses_is_one_fault_in_its_words(gpu: SimGPU, what: str) -> None:
    x, (body, words) = torch.ones(64, 64, device=gpu.device), ILLEGAL[what]
    syncs = gpu.syncs
    capture(gpu, lambda: (x + 1, body(gpu, x)))
    assert len(gpu.faults) == 1 and words in gpu.faults[0] and gpu.faults[0].startswith("graph capture: ")
    assert gpu.syncs == syncs + 1  # the one with which capture begins
    gpu.faults.clear()
    body(gpu, x)
    assert not gpu.faults  # and outside a capture all of it is legal


def test_a_branch_that_never_comes_back_is_named(gpu: SimGPU) -> None:
    x, side = torch.zeros(8, device=gpu.device), gpu.Stream()

    def body() -> None:
        x.add_(1)
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            x.exp()

    capture(gpu, body)
    (fault,) = gpu.faults
    assert "capturing stream has unjoined work" in fault and "aten.exp in stream 1" in fault
    assert "wait_stream(side)" in fault


def test_work_in_a_stream_that_takes_no_part_runs_now_and_is_told(gpu: SimGPU) -> None:
    x, side = torch.zeros(8, device=gpu.device), gpu.Stream()
    before = len(gpu.kernels)

    def body() -> None:
        x.add_(1)
        with gpu.stream(side):
            x.exp()
            x.exp()

    graph = capture(gpu, body)
    assert [n.name for n in graph.nodes] == ["aten.add_"] and len(gpu.kernels) == before + 2
    told = [f for f in gpu.faults if "takes no part in" in f]
    assert len(told) == 1 and "aten.exp" in told[0] and "No non-captured CUDA work" in told[0]


def test_an_event_of_a_graph_is_of_no_use_outside(gpu: SimGPU) -> None:
    x, event = torch.zeros(8, device=gpu.device), gpu.Event()
    capture(gpu, lambda: (x.add_(1), event.record()))
    assert not gpu.faults
    gpu.current_stream().wait_event(event)
    event.synchronize()
    assert len(gpu.faults) == 2 and all("last recorded in a capturing stream" in f for f in gpu.faults)


def test_pinned_and_non_blocking_copies_are_nodes(gpu: SimGPU) -> None:
    x, host = torch.zeros(64, 64, device=gpu.device), page(gpu)
    graph = capture(gpu, lambda: (x.copy_(host, non_blocking=True), x.mul_(2)))
    graph.replay()
    assert [k.kind for k in gpu.kernels[-2:]] == ["copy h2d", "kernel"] and not gpu.faults
    host.fill_(1)  # while the replay may still read it
    assert [r.second.name for r in gpu.races] == ["aten.fill_"]
    assert gpu.races[0].first.name == "aten.copy_ in a graph's replay"


def test_mistakes_in_calling_are_torch_cudas_errors(gpu: SimGPU) -> None:
    x, graph = torch.zeros(8, device=gpu.device), gpu.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        graph.capture_begin()
    with gpu.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match="only one capture"):
            gpu.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        with gpu.graph(graph):
            pass
    assert not gpu.is_current_stream_capturing()
    graph.reset()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), gpu.graph(graph):
        pass
    optimizer = torch.optim.Adam([torch.ones(3, device=gpu.device, requires_grad=True)])
    with pytest.raises(RuntimeError, match="param_groups' capturable is False"):
        capture(gpu, optimizer.step)
    with pytest.raises(ZeroDivisionError):
        capture(gpu, lambda: (x.add_(1), 1 / 0))
    assert not gpu.is_current_stream_capturing() and gpu._machine.line.capture is None


def test_a_graph_that_outlives_its_input_is_told(gpu: SimGPU) -> None:
    inputs, kept = [torch.zeros(8, device=gpu.device)], torch.zeros(8, device=gpu.device)
    graph = capture(gpu, lambda: kept.add_(inputs[0]))
    graph.replay()
    assert not gpu.faults
    inputs.clear()
    graph.replay()
    graph.replay()
    assert len(gpu.faults) == 1 and "a tensor (float32[8]) that is gone" in gpu.faults[0]


# ----------------------------------------------------------------------------------------- memory


def test_a_graphs_memory_stays_reserved_while_it_lives(gpu: SimGPU) -> None:
    x = torch.zeros(1 << 20, device=gpu.device)
    gpu.empty_cache()
    before = gpu.memory_reserved()
    graph = capture(gpu, lambda: (x + 1) * 2)
    assert gpu.memory_reserved() > before
    held = gpu.memory_reserved()
    gpu.empty_cache()
    assert gpu.memory_reserved() == held
    segments = [s for s in gpu.memory_snapshot() if tuple(s["segment_pool_id"]) == graph.pool()]
    assert sum(s["total_size"] for s in segments) == held - before
    other = torch.zeros(1 << 20, device=gpu.device)
    assert not any(s["address"] <= other.data_ptr() < s["address"] + s["total_size"] for s in segments)
    del graph
    gc.collect()
    gpu.empty_cache()
    assert gpu.memory_reserved() <= held


def test_graphs_can_share_a_pool(gpu: SimGPU) -> None:
    x = torch.zeros(8 << 20, device=gpu.device)
    gpu.empty_cache()
    start = gpu.memory_reserved()
    one = capture(gpu, lambda: (x + 1) * 2)
    alone = gpu.memory_reserved() - start
    two = capture(gpu, lambda: (x + 1) * 2, pool=one.pool())
    assert gpu.memory_reserved() - start == alone and one.pool() == two.pool()
    three = capture(gpu, lambda: (x + 1) * 2)
    assert gpu.memory_reserved() - start == 2 * alone and three.pool() != one.pool()
    token = gpu.graph_pool_handle()
    assert capture(gpu, lambda: x + 1, pool=token).pool() == token


def test_addresses_are_static_and_can_be_asked_for(gpu: SimGPU) -> None:
    x = torch.zeros(64, 64, device=gpu.device)
    where = x.data_ptr()
    x.copy_(torch.ones(64, 64, device=gpu.device))
    assert x.data_ptr() == where and x[1].data_ptr() == where + 256
    x = torch.ones(64, 64, device=gpu.device)
    assert x.data_ptr() != where


def test_the_same_graph_on_two_streams_is_a_race_and_one_stream_is_not(gpu: SimGPU) -> None:
    x, side = torch.zeros(8, device=gpu.device), gpu.Stream()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        y = x + 1
    for _ in range(3):
        graph.replay()
        y.exp()
    assert not gpu.races
    with gpu.stream(side):
        y.exp()
    assert [(r.first.name, r.second.name) for r in gpu.races] == [
        ("aten.add in a graph's replay", "aten.exp")
    ]
    gpu.synchronize()
    graph.replay()
    with gpu.stream(side):
        graph.replay()
    assert "memory pool" in gpu.races[1].what


# ------------------------------------------------------------------------------------- true values


def test_values_are_true_and_timed_as_on_the_gpu(real: SimGPU) -> None:
    assert real.device == torch.device("cpu") and real.evidence == "simulated (H100)"
    x = torch.arange(6.0, device=real.device).reshape(2, 3)
    before, syncs = len(real.kernels), real.syncs
    y = (x @ x.t()).relu()
    assert [k.name for k in real.kernels[before:]] == ["aten.mm", "aten.relu"]
    assert real.syncs == syncs
    assert y.sum().item() == 83.0 and real.syncs == syncs + 1
    assert y.tolist() == [[5.0, 14.0], [14.0, 50.0]] and str(y[0]).startswith("tensor([ 5.")
    assert y.cpu().numpy().sum() == 83.0 and y.cpu().is_cpu and not y.is_cpu
    assert real.memory_allocated() >= 6 * 4


def test_values_cost_the_time_of_meta() -> None:
    def program(gpu: SimGPU) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = torch.randn(16, 32, device=gpu.device)
        first = len(gpu.kernels)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [(k.name, k.duration_s, k.flops, k.bytes) for k in gpu.kernels[first:]]

    with simulate("H100") as meta:
        one = program(meta)
    with simulate("H100", values=True) as real:
        two = program(real)
    assert one == two


def test_pinned_memory_is_the_hosts_and_copies_carry_values(real: SimGPU) -> None:
    host = torch.arange(4.0).pin_memory()
    assert host.is_pinned()
    before = len(real.kernels)
    x = host.to(real.device, non_blocking=True)
    assert [k.kind for k in real.kernels[before:]] == ["copy h2d"] and x.data_ptr() != host.data_ptr()
    real.synchronize()
    host.add_(1)  # on the host: no kernel
    assert len(real.kernels) == before + 1 and x.tolist() == [0, 1, 2, 3] and host.tolist() == [1, 2, 3, 4]
    x.mul_(2)
    host.copy_(x, non_blocking=True)
    assert real.kernels[-1].kind == "copy d2h"
    real.synchronize()
    assert host.tolist() == [0, 2, 4, 6]


def test_races_are_found_with_values_too() -> None:
    with simulate("H100", values=True, strict=False) as gpu:
        side, x = gpu.Stream(), torch.zeros(8, device=gpu.device)
        with gpu.stream(side):
            x.add_(1)
    assert [(r.first.name, r.second.name) for r in gpu.races] == [("aten.zeros", "aten.add_")]


def test_capture_has_no_effect_and_outputs_hold_nothing_until_a_replay(real: SimGPU) -> None:
    x, total = torch.ones(4, device=real.device), torch.zeros(4, device=real.device)
    graph = real.CUDAGraph()
    with real.graph(graph):
        total.add_(x)
        y, flag, index = x * 2, x > 0, torch.arange(3, device=real.device)
    assert total.tolist() == [0.0] * 4 and y.isnan().all().item()
    assert flag.tolist() == [False] * 4 and index.tolist() == [-1] * 3
    graph.replay()
    graph.replay()
    assert total.tolist() == [2.0] * 4 and y.tolist() == [2.0] * 4
    assert flag.tolist() == [True] * 4 and index.tolist() == [0, 1, 2]
    x.fill_(5)
    graph.replay()
    assert total.tolist() == [7.0] * 4 and y.tolist() == [10.0] * 4


def test_what_cuda_refused_to_capture_is_a_fault_when_it_is_replayed() -> None:
    """A length that depends on values: with other values the recorded operators no longer fit together."""
    with pytest.raises(SimulationError) as told:
        with simulate("H100", values=True) as gpu:
            x = torch.arange(-4.0, 4.0, device=gpu.device)
            graph = capture(gpu, lambda: x[x > 0] * 2)
            x.fill_(1)
            graph.replay()
            gpu.synchronize()
    refused, replayed = told.value.faults
    assert "aten.index: CUDA error: operation not permitted when stream is capturing" in refused
    assert replayed.startswith("graph replay: what was recorded cannot run again")
    assert "CUDA refused its capture: aten.index" in replayed


def test_views_and_operators_in_place_keep_their_memory(real: SimGPU) -> None:
    x = torch.zeros(4, 4, device=real.device)
    row = x[1]
    graph = real.CUDAGraph()
    with real.graph(graph):
        row.add_(1)
        x.t()[1].mul_(3)
        z = torch.empty(4, device=real.device)
        torch.add(x[1], 1, out=z)
        parts = torch._foreach_add([x[1], z], 1.0)
        big, where = x.max(dim=1)
    graph.replay()
    graph.replay()
    expected = torch.zeros(4, 4)
    for _ in range(2):
        expected[1] += 1
        expected[:, 1] *= 3
    assert torch.equal(x, expected) and torch.equal(z, expected[1] + 1)
    assert torch.equal(parts[0], expected[1] + 1) and torch.equal(parts[1], expected[1] + 2)
    assert torch.equal(big, expected.max(1).values) and where[1].item() == 1


def test_random_numbers_are_drawn_anew_and_capture_draws_none(real: SimGPU) -> None:
    torch.manual_seed(3)
    eager = [torch.rand(4, device=real.device) for _ in range(2)]
    torch.manual_seed(3)
    graph = real.CUDAGraph()
    with real.graph(graph):
        x = torch.rand(4, device=real.device)
    for expected in eager:
        graph.replay()
        assert torch.equal(x, expected)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(32, 64),
            nn.BatchNorm1d(64),
            nn.GELU(),
            nn.Dropout(0.3),
            nn.Linear(64, 64),
            nn.LayerNorm(64),
        )
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x))


def train(
    name: str, graphed: bool, mistake: str = "", steps: int = 6, **options: Any
) -> tuple[Any, Any, int]:
    """Losses, final state, launches a step."""
    torch.manual_seed(0)
    data = [(torch.randn(16, 32), torch.randint(0, 8, (16,))) for _ in range(steps)]
    model = Net()
    losses: list[float] = []
    with simulate("H100", values=True) as gpu:
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        x, y = torch.zeros(16, 32, device=gpu.device), torch.zeros(16, dtype=torch.int64, device=gpu.device)
        scale = 1.0

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y) * scale
            loss.backward()
            optimizer.step()
            return loss

        for a, b in data[:2]:  # warm-up, as PyTorch's page asks for
            x.copy_(a), y.copy_(b)
            losses.append(step().item())
        graph = gpu.CUDAGraph()
        if graphed:
            optimizer.zero_grad(set_to_none=True)
            with gpu.graph(graph):
                loss = step()
        before, kept = gpu.launches, (x, y)
        for i, (a, b) in enumerate(data[2:]):
            if mistake == "address":
                x, y = a.clone(), b.clone()
            elif mistake != "stale":
                x.copy_(a), y.copy_(b)
            scale = 1.0 + i if mistake == "number" else 1.0
            if graphed:
                graph.replay()
            else:
                loss = step()
            losses.append(loss.item())
        launches = (gpu.launches - before) // (steps - 2)
        del kept
    return losses, {k: v.detach().clone() for k, v in model.state_dict().items()}, launches


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "foreach": False}),
    ("AdamW", {"lr": 0.01, "capturable": True}),
    ("AdamW", {"lr": 0.01, "capturable": True, "foreach": False}),
    ("Adam", {"lr": 0.01, "fused": True, "capturable": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_a_graphed_step_equals_the_eager_one_bit_for_bit(name: str, options: dict[str, Any]) -> None:
    eager, state, many = train(name, False, **options)
    graphed, same, few = train(name, True, **options)
    assert graphed == eager and all(torch.equal(state[k], same[k]) for k in state)
    assert few == 1 + 1 + 2 and many > 20  # the replay, loss.item(), two inputs


@pytest.mark.parametrize("mistake", ["stale", "address", "number"])
def test_the_classic_mistakes_give_wrong_values_and_no_error(mistake: str) -> None:
    options = {"lr": 0.05}
    right = train("SGD", False, "number" if mistake == "number" else "", **options)[0]
    wrong = train("SGD", True, mistake, **options)[0]
    assert wrong[:2] == right[:2] and wrong[3:] != right[3:]
    assert all(loss == loss for loss in wrong)  # plausible numbers, not NaN


@pytest.mark.parametrize("pinned", [False, True])
def test_what_is_read_where_a_tensor_was_is_not_its_values(pinned: bool) -> None:
    """What a graph made itself lives as long as the graph."""
    with simulate("H100", values=True, strict=False) as gpu:
        given = [torch.ones(4, pin_memory=True) if pinned else torch.ones(4, device=gpu.device)]
        x = torch.zeros(4, device=gpu.device)
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            x.copy_(given[0], non_blocking=True)
            twice = x * 2
            total = (twice + 1).sum()
        del twice
        graph.replay()
        assert total.item() == 12 and gpu.faults == []
        given.clear()
        graph.replay()
        assert math.isnan(total.item()) and x.isnan().all()
        assert (
            len(gpu.faults) == 1 and "uses the memory of a tensor (float32[4]) that is gone" in gpu.faults[0]
        )


def test_a_learning_rate_is_baked_in_unless_it_is_a_tensor_on_the_gpu() -> None:
    def run(lr: Any, change: Any) -> float:
        with simulate("H100", values=True) as gpu:
            rate = lr(gpu)
            w = torch.zeros(1, device=gpu.device, requires_grad=True)
            optimizer = torch.optim.Adam([w], lr=rate, capturable=True)
            graph = gpu.CUDAGraph()
            w.sum().backward()
            with gpu.graph(graph):
                optimizer.step()
            change(optimizer, rate)
            graph.replay()
            return round(w.item(), 3)

    def assign(optimizer: Any, rate: Any) -> None:
        optimizer.param_groups[0]["lr"] = 8.0

    assert run(lambda gpu: 1.0, assign) == -1.0
    assert run(lambda gpu: torch.ones((), device=gpu.device), lambda o, rate: rate.fill_(8.0)) == -8.0


def test_a_number_on_the_host_is_baked_in_as_a_kernels_argument(real: SimGPU) -> None:
    x, scale = torch.ones(2, device=real.device), torch.tensor(2.0)  # no device: the host's
    graph = real.CUDAGraph()
    with real.graph(graph):
        y = x * scale
    scale.fill_(5.0)
    graph.replay()
    assert y.tolist() == [2.0, 2.0]


def test_gradients_accumulate_in_place_when_they_existed_before(real: SimGPU) -> None:
    w = torch.ones(2, device=real.device, requires_grad=True)
    (w * 3).sum().backward()
    graph = real.CUDAGraph()
    with real.graph(graph):
        (w * 3).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [3.0, 3.0]
    graph.replay()
    graph.replay()
    assert w.grad.tolist() == [9.0, 9.0]


def test_branches_have_true_values(real: SimGPU) -> None:
    x, side = torch.ones(4, device=real.device), real.Stream()
    graph = real.CUDAGraph()
    with real.graph(graph):
        side.wait_stream(real.current_stream())
        with real.stream(side):
            a = x * 2
        b = x * 3
        real.current_stream().wait_stream(side)
        c = a + b
    x.fill_(2)
    graph.replay()
    assert c.tolist() == [10.0] * 4


def test_a_sync_in_a_capture_is_a_fault_with_values_too() -> None:
    with pytest.raises(SimulationError, match="not permitted when stream is capturing"):
        with simulate("H100", values=True) as gpu:
            x = torch.ones(4, device=gpu.device)
            capture(gpu, lambda: x.sum().item())


@pytest.mark.parametrize("values", [False, True])
def test_make_graphed_callables_is_pytorchs_own(values: bool) -> None:
    def run(graphed: bool) -> tuple[list[float], list[torch.Tensor], int]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        inputs = [torch.randn(8, 16) for _ in range(4)]
        with simulate("H100", values=values) as gpu:
            model.to(gpu.device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            call = model
            if graphed:
                sample = torch.zeros(8, 16, device=gpu.device)
                call = gpu.make_graphed_callables(model, (sample,))
            losses = []
            before = gpu.launches
            for x in inputs:
                optimizer.zero_grad(set_to_none=True)
                loss = call(x.to(gpu.device)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            launches = gpu.launches - before
        return losses, [p.detach() for p in model.parameters()], launches

    eager, state, many = run(False)
    graphed, same, few = run(True)
    assert graphed == eager and few < many
    if values:
        assert eager[0] > 0 and all(torch.equal(a, b) for a, b in zip(state, same, strict=True))


@pytest.mark.parametrize("values", [False, True])
def test_a_counter_around_the_gpu_sees_each_read_once(values: bool) -> None:
    gpu = simulate("H100", values=values)
    with count() as counts, gpu:
        x = torch.ones(4, device=gpu.device)
        x.sum().item(), bool(x.sum() > 0)
    assert counts.sync_by == {"aten._local_scalar_dense": 2} and gpu.syncs == 2
