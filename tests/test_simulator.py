"""helpers.simulator: what waits for what, to the nanosecond."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from helpers import count, simulator
from helpers.simulator import DEVICES, Device, RealGPU, SimGPU, SimulationError, active, simulate
from helpers.simulator.operators import cuda_kernels
from helpers.simulator.timeline import Engine, Timeline


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    """An H100, warm, inside its block."""
    device = simulate("H100")
    with device:
        x = torch.randn(8, 8, device=device.device)
        (x @ x).sum().item()
        yield device


def big(gpu: SimGPU, n: int = 4096) -> torch.Tensor:
    return torch.randn(n, n, device=gpu.device)


# ------------------------------------------------------------------------------------ host and queue


def test_a_launch_returns_long_before_the_work_is_done(gpu: SimGPU) -> None:
    x = big(gpu)
    x @ x
    gpu.synchronize()
    start = gpu.clock()
    x @ x
    launched = gpu.clock() - start
    gpu.synchronize()
    done = gpu.clock() - start
    assert launched == pytest.approx(6e-6)
    assert done == pytest.approx(14e-6 + gpu.kernels[-1].duration_s, rel=1e-3)
    assert done > 100 * launched


@pytest.mark.parametrize("name", list(DEVICES))
@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.float32, "fp32"), (torch.float16, "fp16"), (torch.float64, "fp64_tensor")]
)
def test_a_large_matmul_takes_its_flops_over_the_share_of_peak_that_such_kernels_reach(
    name: str, dtype: torch.dtype, kind: str
) -> None:
    n = 8192
    with simulate(name) as gpu:
        x = torch.randn(n, n, device=gpu.device, dtype=dtype)
        x @ x
    reached = DEVICES[name].reached("matmul", kind)
    peak = DEVICES[name].peak_flops.get(kind, DEVICES[name].peak_flops["fp32"])
    busy = 2 * n**3 / (reached.flop_share * peak)
    assert gpu.kernels[-1].flops == 2 * n**3
    assert gpu.kernels[-1].duration_s == pytest.approx(busy, abs=reached.ramp_s + 1e-9)
    assert 0.2 < reached.flop_share < 1


def test_shares_that_a_user_states_hold_for_every_kernel_even_the_standard_ones() -> None:
    with simulate("H100", flop_share=0.7, bandwidth_share=0.8) as gpu:
        x = torch.randn(4096, 4096, device=gpu.device)
        x @ x
        x.exp()
    assert gpu.kernels[-2].duration_s == pytest.approx(2 * 4096**3 / (0.7 * 67e12), abs=1e-9)
    assert gpu.kernels[-1].duration_s == pytest.approx(8 * 4096**2 / (0.8 * 3.35e12), abs=1e-9)


def test_tf32_is_used_when_the_matmul_precision_allows_it(gpu: SimGPU) -> None:
    x = big(gpu)
    x @ x
    slow = gpu.kernels[-1].duration_s
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        x @ x
    finally:
        torch.set_float32_matmul_precision(before)
    assert gpu.kernels[-1].flops == 2 * 4096**3
    assert slow / gpu.kernels[-1].duration_s > 4  # 494.7 to 67 TFLOP/s by the data sheet


def test_attention_in_fp32_is_as_fast_whatever_products_may_do(gpu: SimGPU) -> None:
    q, took = torch.randn(2, 8, 1024, 64, device=gpu.device), []
    before = torch.get_float32_matmul_precision()
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        try:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        finally:
            torch.set_float32_matmul_precision(before)
        took.append(gpu.kernels[-1].duration_s)
    assert took[0] == took[1]


def test_an_elementwise_kernel_takes_its_bytes_over_its_share_of_the_bandwidth(gpu: SimGPU) -> None:
    x = big(gpu)
    x + torch.randn(4096, device=gpu.device)  # the second operand is one broadcast row
    kernel = gpu.kernels[-1]
    assert kernel.bytes == 4 * (2 * 4096**2 + 4096)
    reached = gpu.card.reached("elementwise")
    busy = kernel.bytes / (reached.bandwidth_share * 3.35e12)
    assert kernel.duration_s == pytest.approx(busy, abs=reached.ramp_s + 1e-9)
    x.zero_()
    assert gpu.kernels[-1].bytes == 4 * 4096**2  # written, not read


def test_a_gather_reads_its_rows_and_not_the_table(gpu: SimGPU) -> None:
    table = torch.nn.Embedding(50_000, 64, device=gpu.device)
    table(torch.zeros(10, dtype=torch.int64, device=gpu.device))
    assert gpu.kernels[-1].bytes == 2 * 10 * 64 * 4 + 10 * 8


def test_tiny_kernels_take_the_floor_and_the_host_is_the_bottleneck(gpu: SimGPU) -> None:
    x = torch.zeros(4, device=gpu.device)
    start, first = gpu.clock(), len(gpu.kernels)
    for _ in range(100):
        x = x + 1
    assert gpu.clock() - start == pytest.approx(100 * 6e-6 + 0.5e-3)  # and add was loaded once
    assert {k.duration_s for k in gpu.kernels[first:]} == {2e-6}


def test_views_and_bare_allocations_launch_nothing(gpu: SimGPU) -> None:
    x = big(gpu)
    before = len(gpu.kernels)
    x.t(), x[3:], x.view(-1), x.expand(2, 4096, 4096), x.detach(), torch.empty_like(x), x.unsqueeze_(0)
    assert len(gpu.kernels) == before


def test_the_first_use_of_each_kernel_costs_a_warm_up_and_only_the_first() -> None:
    with simulate() as gpu:
        times = []
        for dtype in (torch.float32, torch.float32, torch.float16, torch.float16):
            x = torch.empty(64, 64, device=gpu.device, dtype=dtype)
            start = gpu.clock()
            x @ x
            gpu.synchronize()
            times.append(gpu.clock() - start)
    first, again, half, half_again = times
    assert first == pytest.approx(0.2 + 30e-3 + 0.5e-3, rel=1e-3)  # context, cuBLAS, the kernel
    assert half == pytest.approx(0.5e-3, rel=0.05)  # another kernel
    assert again == pytest.approx(14e-6) and half_again == pytest.approx(14e-6)
    assert [h.kind for h in gpu.host].count("warm-up") == 4


def test_the_queue_holds_so_many_launches_and_then_blocks_the_host() -> None:
    with simulate("H100", queue_depth=4) as gpu:
        x = big(gpu)
        x @ x
        gpu.synchronize()
        launches = []
        for _ in range(8):
            start = gpu.clock()
            x @ x
            launches.append(gpu.clock() - start)
    kernel = gpu.kernels[-1].duration_s
    assert launches[:4] == pytest.approx([6e-6] * 4)
    assert launches[5:] == pytest.approx([kernel] * 3, rel=1e-3)
    assert [h.kind for h in gpu.host].count("queue full") == 4


def test_synchronise_drains_every_stream(gpu: SimGPU) -> None:
    x, side = big(gpu), gpu.Stream()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        x @ x
    assert not side.query()
    gpu.synchronize()
    assert side.query() and gpu.current_stream().query()
    assert gpu.clock_ns() >= max(k.end_ns for k in gpu.kernels)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: float(x.sum()),
        lambda x: x[0].tolist(),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: torch.zeros(x.shape).copy_(x),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0),
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: str(x),
        lambda x: x.numpy(force=True),
    ],
)
def test_whoever_needs_an_answer_waits(gpu: SimGPU, ask) -> None:  # type: ignore[no-untyped-def]
    x = big(gpu, 2048)
    gpu.synchronize()
    before = gpu.syncs
    x @ x
    product = gpu.kernels[-1]
    ask(x)
    assert gpu.syncs == before + 1
    assert gpu.clock_ns() >= product.end_ns


def test_a_masked_number_needs_no_answer_and_masked_tensors_do(gpu: SimGPU) -> None:
    x = big(gpu, 64)
    before = gpu.syncs
    x[x > 0] = 0.0  # CUDA fills where the mask is true, and need not know how often
    assert gpu.syncs == before
    x[x > 0] = torch.zeros(64 * 64, device=gpu.device)
    assert gpu.syncs == before + 1


def test_answers_are_made_up_with_the_right_shapes(gpu: SimGPU) -> None:
    x = torch.randn(3, 4, device=gpu.device, dtype=torch.float16)
    host = x.cpu()
    assert host.dtype == torch.float16 and host.shape == (3, 4) and not host.any()
    assert x.sum().item() == 0.0
    assert x.nonzero().shape == (12, 2) and x[x > 0].shape == (12,)
    assert not torch.ones(3, 4).copy_(x).any()


# ------------------------------------------------------------------------------------- events, streams


def test_events_time_a_busy_stream_exactly(gpu: SimGPU) -> None:
    x, start, end = big(gpu), gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    x @ x  # keeps the device busy while the next three are launched
    start.record()
    x @ x
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    kernel = gpu.kernels[-1]
    assert start.elapsed_time(end) == (kernel.end_ns - kernel.start_ns) / 1e6


def test_events_on_an_idle_stream_also_see_the_launch(gpu: SimGPU) -> None:
    x, start, end = big(gpu), gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    gpu.synchronize()
    start.record()
    x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(gpu.kernels[-1].duration_s * 1e3 + 6e-3)


def test_event_mistakes_are_torch_cudas(gpu: SimGPU) -> None:
    timed, other, plain = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True), gpu.Event()
    with pytest.raises(RuntimeError, match="enable_timing"):
        timed.elapsed_time(plain)
    with pytest.raises(RuntimeError, match="recorded"):
        timed.elapsed_time(other)
    timed.record()
    x = big(gpu)
    x @ x
    other.record()
    with pytest.raises(RuntimeError, match="device not ready"):
        timed.elapsed_time(other)


def test_small_kernels_overlap_on_two_streams_and_queue_on_one(gpu: SimGPU) -> None:
    x, a, b = torch.zeros(4, device=gpu.device), gpu.Stream(), gpu.Stream()
    gpu.synchronize()
    with simulate_slow_device(gpu):
        x + 1, x + 1
        one, two = gpu.kernels[-2:]
        assert two.start_ns == one.end_ns
        with gpu.stream(a):
            x + 1
        with gpu.stream(b):
            x + 1
        one, two = gpu.kernels[-2:]
        assert one.stream != two.stream and two.start_ns < one.end_ns


def simulate_slow_device(gpu: SimGPU):  # type: ignore[no-untyped-def]
    """For a while the shortest kernel takes a millisecond, so that launches do not separate them."""
    import contextlib
    from dataclasses import replace

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        card = gpu.card
        slow = replace(card, assumptions=replace(card.assumptions, kernel_floor_s=1e-3))
        gpu._machine.line.card = slow
        yield
        gpu._machine.line.card = card

    return change()


def test_large_kernels_share_the_device_whatever_their_stream(gpu: SimGPU) -> None:
    x, side = big(gpu), gpu.Stream()
    gpu.synchronize()
    x @ x
    with gpu.stream(side):
        x @ x
    one, two = gpu.kernels[-2:]
    assert one.stream != two.stream and two.start_ns == one.end_ns


def test_a_pinned_copy_hides_behind_compute_on_another_stream(gpu: SimGPU) -> None:
    x, side, source = big(gpu), gpu.Stream(), torch.empty(1024, 1024, pin_memory=True)
    x @ x
    with gpu.stream(side):
        source.to(gpu.device, non_blocking=True)
    product, copy = gpu.kernels[-2:]
    assert copy.kind == "copy h2d" and copy.start_ns < product.end_ns and copy.end_ns < product.end_ns


def test_wait_stream_orders_streams_and_leaves_the_host_alone(gpu: SimGPU) -> None:
    x, side, source = big(gpu), gpu.Stream(), torch.empty(4096, 4096).pin_memory()
    gpu.synchronize()
    syncs = gpu.syncs
    with gpu.stream(side):
        source.to(gpu.device, non_blocking=True)
    gpu.current_stream().wait_stream(side)
    x @ x
    copy, product = gpu.kernels[-2:]
    assert product.start_ns == copy.end_ns
    assert gpu.syncs == syncs and gpu.clock_ns() < copy.end_ns
    event = side.record_event()
    event.wait()
    gpu.Event().wait()  # never recorded: nothing to wait for


def test_the_engine_fills_gaps_and_never_does_two_things_at_once() -> None:
    engine = Engine()
    assert engine.book(100, 50, now=0) == 100
    assert engine.book(0, 60, now=0) == 0  # before it
    assert engine.book(10, 40, now=0) == 60  # into the gap, exactly
    assert engine.book(10, 41, now=0) == 150
    assert engine.busy == [(0, 191)]
    assert engine.book(200, 5, now=195) == 200 and engine.busy == [(200, 205)]


# ----------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize(
    ("pinned", "non_blocking", "waits"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_only_pinned_and_non_blocking_copies_let_the_host_go_on(
    gpu: SimGPU, pinned: bool, non_blocking: bool, waits: bool
) -> None:
    source = torch.randn(1024, 1024)
    source = source.pin_memory() if pinned else source
    start = gpu.clock()
    source.to(gpu.device, non_blocking=non_blocking)
    assert (gpu.clock() - start > 50e-6) == waits
    rate = 0.8 * 64e9 if pinned else 8e9
    assert gpu.kernels[-1].duration_s == pytest.approx(2e-6 + source.nbytes / rate, abs=1e-9)


def test_tiny_pageable_copies_are_staged_at_once(gpu: SimGPU) -> None:
    before = gpu.syncs
    torch.randn(1000).to(gpu.device, non_blocking=True)
    assert gpu.syncs == before


def test_copies_back_are_asynchronous_only_into_pinned_memory(gpu: SimGPU) -> None:
    x = big(gpu)
    before = gpu.syncs
    out = x.to("cpu", non_blocking=True)  # PyTorch makes the target, and pins it
    assert out.is_pinned() and gpu.syncs == before
    torch.empty(4096, 4096).copy_(x, non_blocking=True)
    assert gpu.syncs == before + 1
    torch.empty(4096, 4096, pin_memory=True).copy_(x, non_blocking=True)
    assert gpu.syncs == before + 1


def test_pinned_memory_is_known_through_views_and_forgotten_with_the_storage(gpu: SimGPU) -> None:
    page, ordinary = torch.randn(64, 64).pin_memory(), torch.randn(64, 64)
    assert page[3].is_pinned() and page.pin_memory() is page and not ordinary.is_pinned()
    assert len(gpu._machine.pinned._held) == 1
    del page
    assert not gpu._machine.pinned._held


def test_a_tensor_made_from_python_data_on_the_device_is_one_copy(gpu: SimGPU) -> None:
    import numpy as np

    for make in (
        lambda: torch.tensor([1.0, 2.0], device=gpu.device),
        lambda: torch.as_tensor([1, 2], device=gpu.device),
        lambda: torch.as_tensor(np.zeros(3), device=gpu.device),
    ):
        before = len(gpu.kernels)
        make()
        assert [k.kind for k in gpu.kernels[before:]] == ["copy h2d"]


# ------------------------------------------------------------------------------- programs, other modes


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("foreach", [None, False])
def test_training_runs(gpu: SimGPU, name: str, foreach: bool | None) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    model.to(gpu.device)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, foreach=foreach)
    loader = [(torch.randn(16, 32), torch.zeros(16, dtype=torch.int64)) for _ in range(2)]
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(gpu.device)), y.to(gpu.device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert loss.item() == 0
    names = {k.name for k in gpu.kernels}
    assert {"aten.addmm", "aten.gelu", "aten.gelu_backward", "aten.mm"} <= names
    # As on CUDA, the foreach version is what one gets without asking.
    assert any("_foreach_" in n and "norm" not in n and "mul" not in n for n in names) == (foreach is None)


@pytest.mark.parametrize(("dtype", "kernel"), [(torch.bfloat16, "cudnn"), (torch.float32, "efficient")])
def test_attention_takes_cudas_kernel_forward_and_backward(
    gpu: SimGPU, dtype: torch.dtype, kernel: str
) -> None:
    q = torch.randn(2, 4, 128, 64, device=gpu.device, dtype=dtype, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True, device=gpu.device, dtype=dtype)
    layer(q[0], q[0], q[0], need_weights=False)
    names = [k.name for k in gpu.kernels]
    assert names.count(f"aten._scaled_dot_product_{kernel}_attention") == 2
    assert names.count(f"aten._scaled_dot_product_{kernel}_attention_backward") == 1
    assert not any("softmax" in n for n in names)


def test_ordinary_cpu_tensors_are_left_alone(gpu: SimGPU) -> None:
    host, device = gpu.clock_ns(), len(gpu.kernels)
    x = torch.arange(6.0, requires_grad=True)
    y = (x.reshape(2, 3) @ torch.ones(3, 2)).sum()
    y.backward()
    assert y.item() == 30 and x.grad is not None and x.grad.tolist() == [2.0] * 6
    assert bool(x.sum() > 0) and x.nonzero().shape == (5, 1) and x[x > 2].tolist() == [3, 4, 5]
    assert torch.equal(x, x) and str(x.detach()) == "tensor([0., 1., 2., 3., 4., 5.])"
    assert gpu.clock_ns() == host and len(gpu.kernels) == device


def test_counters_see_the_same_from_inside_and_outside() -> None:
    def program(x: torch.Tensor) -> float:
        return (x @ x).relu().sum().item()

    with simulate() as inner:
        inside = count(program, torch.empty(64, 64, device=inner.device))

    def whole() -> float:
        with simulate() as gpu:
            return program(torch.empty(64, 64, device=gpu.device))

    outside = count(whole)
    seen = {k: v for k, v in outside.by_operator.items() if k != "aten.empty"}
    assert seen == inside.by_operator
    assert list(seen) == ["aten.mm", "aten.relu", "aten.sum", "aten._local_scalar_dense"]
    assert inside.syncs == outside.syncs == 1
    assert [k.name for k in inner.kernels] == list(seen)


def test_host_work_moves_the_host_and_not_the_device(gpu: SimGPU) -> None:
    x = big(gpu)
    x @ x
    end = gpu.kernels[-1].end_ns
    gpu.host_work(10e-3)
    start = gpu.clock()
    gpu.synchronize()
    assert gpu.clock() - start == pytest.approx(4e-6) and gpu.kernels[-1].end_ns == end
    with pytest.raises(ValueError, match="not negative"):
        gpu.host_work(-1)


# ------------------------------------------------------------------------------ determinism and noise


def program(noise: float = 0.0, seed: int = 0) -> SimGPU:
    with simulate("A100", noise=noise, seed=seed) as gpu:
        x = big(gpu, 1024)
        for _ in range(50):
            x = (x @ x).relu()
        x.cpu()
    return gpu


def test_the_same_program_gives_the_same_nanoseconds() -> None:
    one, two = program(), program()
    assert one.kernels == two.kernels and one.host == two.host


def test_noise_is_seeded_centred_and_off_by_default() -> None:
    noisy, same, other = program(0.1, 1), program(0.1, 1), program(0.1, 2)
    assert noisy.kernels == same.kernels != other.kernels
    exact = program()
    ratios = [
        n.duration_s / e.duration_s
        for n, e in zip(noisy.kernels, exact.kernels, strict=True)
        if n.name == "aten.mm"
    ]
    assert len(set(ratios)) > 40
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, abs=0.05)


def test_a_program_this_size_simulates_soon_and_forgets_old_bookings() -> None:
    line = Timeline(DEVICES["H100"])
    for _ in range(20_000):
        line.spend("op", "operator", 6e-6)
        line.enqueue("op", line.lanes[0], 3e-6)
    assert len(line.engines["kernel"].busy) < 10 and len(line.lanes[0].pending) < 10


# ------------------------------------------------------------------------------------------- mistakes


def test_a_forgotten_block_is_told() -> None:
    gpu = simulate("H100")
    with pytest.raises(RuntimeError, match="gpu.clock\\(\\) outside `with gpu:`"):
        gpu.clock()
    for call in (gpu.synchronize, gpu.Event().record, gpu.Stream().synchronize, lambda: gpu.host_work(1)):
        with pytest.raises(RuntimeError, match="outside `with gpu:`"):
            call()
    with gpu:
        pass
    assert gpu.clock() == 0 and active() is None


def test_blocks_cannot_be_nested_but_can_follow_each_other() -> None:
    gpu = simulate("H100")
    with gpu:
        assert active() is gpu
        with pytest.raises(RuntimeError, match="this simulated GPU is in use already"):
            gpu.__enter__()
        with pytest.raises(RuntimeError, match="another simulated GPU \\(H100\\)"):
            simulate("T4").__enter__()
        torch.zeros(3, device=gpu.device)
    with gpu:
        torch.zeros(3, device=gpu.device)
    assert len(gpu.kernels) == 2


def test_another_thread_is_told() -> None:
    said: list[str] = []

    def use(gpu: SimGPU) -> None:
        for call in (gpu.synchronize, gpu.__enter__):
            try:
                call()
            except RuntimeError as error:
                said.append(str(error))

    with simulate() as gpu:
        thread = threading.Thread(target=use, args=(gpu,))
        thread.start()
        thread.join()
    assert "another thread" in said[0] and "shared by threads" in said[1]


def test_faults_are_raised_when_the_block_ends_and_once() -> None:
    gpu = simulate()
    with pytest.raises(SimulationError, match="CPU tensor of shape \\(4, 4\\)") as caught:
        with gpu:
            x = torch.randn(4, 4, device=gpu.device)
            x @ torch.randn(4, 4)
            after = x + torch.tensor(1.0)  # a number may stay on the CPU
            assert after.is_meta
    assert len(caught.value.faults) == 1
    with gpu:
        torch.randn(4, 4, device=gpu.device)


def test_an_error_of_the_user_stays_what_it_is_and_carries_the_faults() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        with simulate() as gpu:
            torch.randn(4, 4, device=gpu.device) @ torch.randn(4, 4)
            1 / 0  # noqa: B018
    assert "CPU tensor" in caught.value.__notes__[0]
    assert active() is None
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        with simulate() as gpu:
            torch.randn(2, 3, device=gpu.device) @ torch.randn(2, 3, device=gpu.device)


def test_everything_is_put_back_afterwards() -> None:
    from torch.utils import _foreach_utils

    with simulate():
        pass
    assert "meta" not in _foreach_utils._get_foreach_kernels_supported_devices()
    assert F.scaled_dot_product_attention is cuda_kernels.plain_attention
    with pytest.raises(RuntimeError):
        torch.zeros(1, device="meta").item()


def test_cards_names_and_labels() -> None:
    with pytest.raises(ValueError, match="H100, A100, V100, T4"):
        simulate("B9000")
    with pytest.raises(ValueError, match="no assumption named speed"):
        simulate("H100", speed=3)
    with pytest.raises(ValueError, match="noise"):
        simulate("H100", noise=-1)
    own = Device("mine", {"fp32": 1e12}, 1e11, 10**9, 1e10, "my own bench")
    assert simulate(own).evidence == "simulated (mine)"
    assert all("NVIDIA" in card.source for card in DEVICES.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_there_is_no_real_one() -> None:
    with pytest.raises(RuntimeError, match="no CUDA device"):
        RealGPU()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_program_runs_on_a_real_gpu() -> None:
    with RealGPU() as gpu:
        x, side = torch.randn(512, 512, device=gpu.device), gpu.Stream()
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        start.record()
        with gpu.stream(side):
            side.wait_event(start)
            x @ x
        gpu.current_stream().wait_stream(side)
        end.record()
        gpu.host_work(1e-3)
        end.synchronize()
        assert start.elapsed_time(end) > 0 and gpu.clock() > 0 and gpu.evidence == "live (GPU)"


def lines_run(step: Callable[[], object]) -> int:
    """Lines of Python that the simulator runs for it: a clock would tell of this machine's other work too."""
    here, lines = os.path.dirname(simulator.__file__), 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename.startswith(here) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return lines


def test_an_operator_costs_the_same_after_ten_thousand() -> None:
    """Whatever is kept of the ones before: spans in which the device is busy, accesses to a block in pieces."""
    with simulate("H100") as gpu:
        rows, out = (torch.empty(64 * 5_000, 256, device=gpu.device) for _ in range(2))
        weight, small = torch.empty(256, 256, device=gpu.device), torch.empty(8, device=gpu.device)
        steps = zip(rows.split(64), out.split(64), strict=True)

        def step() -> None:
            piece, into = next(steps)
            torch.mm(piece, weight, out=into)
            small.relu_()  # at the kernels' floor, beside the others

        for _ in range(200):  # a block is remembered in so many pieces and no more
            step()
        first = [lines_run(step) for _ in range(10)]
        for _ in range(4_770):
            step()
        last = [lines_run(step) for _ in range(10)]
        assert len(gpu.kernels) > 9_900
    assert max(last) < 1.2 * max(first), (first, last)


def test_under_another_mode_shapes_are_remembered_too() -> None:
    """count() outside sees each operator, and PyTorch's rules in Python are asked once a kind of input."""

    def counted() -> tuple[dict[str, Any], float]:
        with count() as counts, simulate("H100") as gpu:
            x, y = torch.ones(4, 4, device=gpu.device), torch.ones(4, 4, device=gpu.device)
            for _ in range(2):
                x.addcmul_(y, y).lerp_(y, 0.5)
                F.softplus(x).copysign(y)
                assert x.resize_(8, 8).shape == (8, 8) and x.resize_(4, 4).shape == (4, 4)
        return counts.as_dict(), gpu.clock()

    first, rules = counted(), set[str]()
    rule = (f"{os.sep}_refs{os.sep}", f"{os.sep}_decomp{os.sep}")
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, *_: (
            rules.add(frame.f_code.co_name) if any(r in frame.f_code.co_filename for r in rule) else None
        )
    )
    try:
        again = counted()
    finally:
        sys.setprofile(before)
    assert again == first and first[0]["operators"] > 8
    assert not rules, rules
    with count(), simulate("H100") as gpu, pytest.raises(RuntimeError, match="broadcast"):
        x = torch.ones(4, 4, device=gpu.device)
        x.addcmul_(x, torch.ones(3, device=gpu.device))  # what does not fit is refused as ever
