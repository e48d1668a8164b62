"""What people write with PyTorch, on the simulated GPU: no false alarm, no crash, no memory left behind."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from helpers.simulator import Device, SimGPU, SimulationError, simulate


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    device = simulate("H100")
    with device:
        yield device


# ------------------------------------------------------------------------------------- whole programs


def cnn_with_amp(gpu: SimGPU) -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Dropout(0.1), nn.Linear(8, 10)),
    ).to(gpu.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        x = torch.randn(4, 3, 16, 16).pin_memory().to(gpu.device, non_blocking=True)
        y = torch.randint(0, 10, (4,), device=gpu.device)
        optimizer.zero_grad()
        with torch.autocast(gpu.device.type, dtype=torch.float16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    assert f"{loss:.3f}" == "0.000"


def transformer_with_checkpoints(gpu: SimGPU) -> None:
    layers = nn.ModuleList([nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(2)])
    table, head = nn.Embedding(100, 64, device=gpu.device), nn.Linear(64, 100, device=gpu.device)
    weights = [*layers.to(gpu.device).parameters(), *table.parameters(), *head.parameters()]
    average = [w.detach().clone() for w in weights]
    optimizer = torch.optim.AdamW(weights, fused=True)
    for reentrant in (False, True):
        tokens = torch.randint(100, (2, 16), device=gpu.device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            h = table(tokens)
            for layer in layers:
                h = checkpoint(layer, h, use_reentrant=reentrant)
            loss = F.cross_entropy(head(h).flatten(0, 1), tokens.flatten()) / 2
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(average, [w.detach() for w in weights], 0.01)


def evaluation(gpu: SimGPU) -> None:
    model = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 10)).to(gpu.device).eval()
    table, losses, right = torch.zeros(10, 10, dtype=torch.long, device=gpu.device), [], 0
    with torch.inference_mode():
        for _ in range(3):
            x, y = torch.randn(8, 20, device=gpu.device), torch.randint(10, (8,), device=gpu.device)
            out = model(x)
            guess = out.argmax(1)
            right += (guess == y).sum().item()
            table.index_put_((y, guess), torch.ones_like(y), accumulate=True)
            losses.append(F.cross_entropy(out, y, reduction="none").cpu())
            assert out.topk(5, 1).indices.eq(y[:, None]).any(1).float().mean().item() == 0
    assert torch.cat(losses).shape == (24,) and torch.bincount(guess, minlength=10).shape == (10,)


def selections(gpu: SimGPU) -> None:
    x, some = torch.randn(20, 6, device=gpu.device), torch.randint(20, (5,), device=gpu.device)
    x[x > 0] = x[x > 0] * 2
    x[some] += 1
    x.index_add_(0, some, torch.randn(5, 6, device=gpu.device))
    x.scatter_add_(0, some[:, None].expand(-1, 6), torch.randn(5, 6, device=gpu.device))
    assert torch.repeat_interleave(x, torch.ones_like(x[:, 0], dtype=torch.long), dim=0).shape == x.shape
    torch.unique_consecutive(some), x.unique(dim=0), torch.histc(x), x.nonzero(as_tuple=True), x.sort()
    (
        torch.einsum("ij,kj->ik", x, x),
        torch.fft.rfft(x).abs(),
        (x.to(torch.complex64) @ x.T.to(torch.complex64)).real,
    )
    torch.linalg.svd(x), torch.linalg.cholesky(x.T @ x), torch.multinomial(x.softmax(1), 2)
    torch.distributions.Categorical(logits=x).sample()
    assert (x == x).all() and not x.isnan().any()


def derivatives(gpu: SimGPU) -> None:
    w, x = torch.randn(4, 4, device=gpu.device), torch.randn(8, 4, device=gpu.device)
    one = torch.func.grad(lambda w, x: (x @ w).tanh().sum())
    torch.func.vmap(one, (None, 0))(w, x), torch.func.jacrev(torch.sin)(x[0])
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = nn.Linear(4, 4, device=gpu.device)(x).square().sum()
    loss.backward()


def test_what_save_on_cpu_pins_goes_at_the_speed_of_pinned_memory() -> None:
    took = {}
    for pinned in (False, True):
        with simulate("H100") as gpu:
            x = torch.randn(2048, 2048, device=gpu.device, requires_grad=True)
            with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
                loss = x.sin().sum()
            loss.backward()
        copies = [kernel for kernel in gpu.kernels if kernel.kind.startswith("copy")]
        assert [(k.kind, k.pageable) for k in copies] == [("copy d2h", not pinned), ("copy h2d", not pinned)]
        took[pinned] = sum(kernel.duration_s for kernel in copies)
    assert took[False] > 2 * took[True]


def recurrent(gpu: SimGPU) -> None:
    lstm, x = nn.LSTM(8, 8, batch_first=True).to(gpu.device), torch.randn(3, 5, 8, device=gpu.device)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
    nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])[0].sum().backward()
    bag = nn.EmbeddingBag(50, 8, mode="sum").to(gpu.device)
    bag(torch.randint(50, (9,), device=gpu.device), torch.arange(0, 9, 3, device=gpu.device)).sum().backward()


PROGRAMS = [cnn_with_amp, transformer_with_checkpoints, evaluation, selections, derivatives, recurrent]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    "card", ["H100", "T4", Device("mine", {"fp32": 1e13}, 1e11, 2 * 10**9, 1e10, "my bench")],
    ids=["H100", "T4", "mine"],
)  # fmt: skip
def test_programs_run_without_a_fault_and_leave_no_memory(
    program: Callable[[SimGPU], None], card: str | Device
) -> None:
    gpu = simulate(card)
    with gpu:
        program(gpu)
        gc.collect()
        workspaces = len(gpu._memory._workspaces) * (32 << 20 if card == "H100" else 8320 << 10)
        assert gpu.memory_allocated() == workspaces
    assert gpu.faults == [] and gpu.races == []
    assert all(k.end_ns > k.start_ns and k.duration_s < 1e-2 for k in gpu.kernels)


# ------------------------------------------------------------------------------------------ one by one


def test_inference_mode_launches_what_no_grad_does(gpu: SimGPU) -> None:
    model, x = nn.Linear(64, 64, device=gpu.device), torch.randn(8, 64, device=gpu.device)
    seen = []
    for mode in (torch.no_grad, torch.inference_mode):
        before = len(gpu.kernels)
        with mode():
            F.cross_entropy(model(x), x.argmax(1)).item()
        seen.append([(k.name, k.flops, k.bytes) for k in gpu.kernels[before:]])
    assert seen[0] == seen[1] and seen[0][1:2] != []


def test_a_number_in_a_text_waits_for_it(gpu: SimGPU) -> None:
    x, before = torch.randn(3, device=gpu.device), gpu.syncs
    assert f"{x.sum():.2f} {x.max()}" == "0.00 0.0" and gpu.syncs == before + 2


def test_a_checkpointed_segment_is_computed_again_under_the_same_autocast(gpu: SimGPU) -> None:
    linear, x = nn.Linear(64, 64, device=gpu.device), torch.randn(8, 64, device=gpu.device)
    segment = nn.Sequential(linear, nn.GELU(), linear)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = checkpoint(segment, x, use_reentrant=False)
    before = len(gpu.kernels)
    out.sum().backward()
    again = [k.bytes for k in gpu.kernels[before:] if k.name == "aten.addmm"]
    assert again == [2 * (2 * 8 * 64 + 64 * 64 + 64)]  # 16 bit; the last one is not needed


def test_the_shape_of_what_has_no_rule_is_found_on_zeros_and_the_host_waits(gpu: SimGPU) -> None:
    x, before = torch.randint(3, (5,), device=gpu.device), gpu.syncs
    assert torch.bincount(x, minlength=4).shape == (4,) and torch.bincount(x).is_meta
    assert gpu.syncs == before + 2 and not gpu.faults
    with pytest.raises(NotImplementedError) as error:
        torch.bincount(torch.empty(1 << 30, dtype=torch.long, device=gpu.device))
    assert any("bincount" in note for note in error.value.__notes__)


def test_sparse_tensors_are_one_fault_and_the_hosts_are_none() -> None:
    with simulate() as gpu:
        torch.eye(2).to_sparse() @ torch.ones(2, 2)
        assert gpu.memory_allocated() == 0  # nor does a matmul on the host take cuBLAS's workspace
    with pytest.raises(SimulationError) as error, simulate() as gpu:
        table = nn.Embedding(10, 4, sparse=True, device=gpu.device)
        table(torch.arange(3, device=gpu.device)).sum().backward()
        torch.optim.SparseAdam(table.parameters()).step()
    (fault,) = error.value.faults
    assert "not simulated" in fault and "sparse=False" in fault


def test_two_devices_say_what_to_move(gpu: SimGPU) -> None:
    x = torch.ones(3, device=gpu.device)
    for wrong in (lambda: x + torch.ones(3), lambda: nn.Linear(3, 3)(x)):
        with pytest.raises(RuntimeError) as error:
            wrong()
        assert "t.to(gpu.device)" in "".join(error.value.__notes__)


def test_torch_compile_says_that_it_changes_nothing() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    linear = nn.Linear(4, 4, device="meta")
    module, function = torch.compile(linear, backend=backend), torch.compile(torch.sin, backend=backend)
    with simulate() as gpu:
        x = torch.ones(2, 4, device=gpu.device)
        with pytest.warns(UserWarning, match="torch.compile changes nothing on the simulated H100"):
            inside = torch.compile(linear, backend=backend)
        with pytest.warns(UserWarning, match="changes nothing"):
            module(x)
        with warnings.catch_warnings(record=True):
            inside(x)
        function(x)
        assert [k.name for k in gpu.kernels[-3:]] == ["aten.addmm", "aten.addmm", "aten.sin"]
    assert not graphs  # nothing was compiled, the simulator's own code least of all


def test_the_newer_names_for_tf32_count_too(gpu: SimGPU) -> None:
    x, settings = torch.randn(2048, 2048, device=gpu.device), torch.backends.cuda.matmul
    took, before = [], settings.fp32_precision
    try:
        for precision in ("ieee", "tf32"):
            settings.fp32_precision = precision
            x @ x
            took.append(gpu.kernels[-1].duration_s)
    finally:
        settings.fp32_precision = before
    assert took[0] > 4 * took[1] and not gpu.faults


def test_nested_tensors_are_seen_by_what_is_inside(gpu: SimGPU) -> None:
    rows = [torch.randn(3, 8), torch.randn(5, 8)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=gpu.device)
    before = len(gpu.kernels)
    nested * 2
    assert [k.name for k in gpu.kernels[before:]] == ["aten.mul"] and not gpu.faults


@pytest.mark.parametrize(
    "card, half, bfloat, native",
    [("H100", "cudnn", "cudnn", True), ("L4", "flash", "flash", True), ("T4", "efficient", "", False)],
)
def test_a_card_has_the_kernels_of_its_generation(card: str, half: str, bfloat: str, native: bool) -> None:
    with simulate(card) as gpu:
        for dtype, kernel in ((torch.float16, half), (torch.bfloat16, bfloat)):
            q, before = torch.randn(1, 2, 16, 8, device=gpu.device, dtype=dtype), len(gpu.kernels)
            F.scaled_dot_product_attention(q, q, q)
            fused = [k.name for k in gpu.kernels[before:] if "scaled_dot_product" in k.name]
            assert fused == ([f"aten._scaled_dot_product_{kernel}_attention"] if kernel else [])
        assert torch.cuda.is_bf16_supported() and torch.cuda.is_bf16_supported(False) == native
    with simulate(card) as gpu:
        x = torch.randn(4, 4, device=gpu.device)
        x @ x
        assert (gpu.memory_allocated() > 32 << 20) == (card == "H100")  # cuBLAS's workspace


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    "part", ["cost.roofline.work", "cost.roofline.launches_kernel", "memory.Memory.produced"]
)
def test_a_failure_of_the_simulator_is_a_fault_and_never_raised_inside_an_operator(
    part: str, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("broken on purpose")

    monkeypatch.setattr(f"helpers.simulator.{part}", broken)
    reached = False
    with pytest.raises(SimulationError, match="aten.mm: KeyError: 'broken on purpose'"):
        with simulate(values=values) as gpu:
            w = torch.ones(4, 4, device=gpu.device, requires_grad=True)
            (w @ w).sum().backward()
            reached = w.grad is not None
    assert reached


def test_what_has_no_shadow_is_a_fault_too() -> None:
    with pytest.raises(SimulationError, match="NotImplementedError"), simulate(values=True) as gpu:
        packed = torch.quantize_per_tensor(torch.ones(3, device=gpu.device), 0.1, 0, torch.quint8)
        assert packed.dequantize().sum() == pytest.approx(3)


def test_vmap_and_grad_work_with_values() -> None:
    with simulate(values=True) as gpu:
        x = torch.randn(3, 4, device=gpu.device)
        slopes = torch.func.vmap(torch.func.grad(lambda row: row.sin().sum()))(x)
        assert torch.allclose(slopes, x.cos()) and gpu.kernels


# ---------------------------------------------------------------------- who waits, with values and without


def waits(gpu: SimGPU, body: Callable[[], Any]) -> int:
    """How often the host waited in it."""
    before = gpu.syncs
    body()
    return gpu.syncs - before


@pytest.fixture(params=[False, True], ids=["meta", "values"])
def either(request: pytest.FixtureRequest) -> Iterator[SimGPU]:
    with simulate("H100", values=request.param) as device:
        yield device


def test_a_number_put_into_a_mask_waits_where_cuda_waits(either: SimGPU) -> None:
    """A number in host memory becomes masked_fill_; one on the device makes indices of the mask, with nonzero().

    ATen/native/TensorAdvancedIndexing.cpp, _index_put_impl_, and TensorAdvancedIndexingUtils.h,
    canDispatchToMaskedFill (`value.numel() == 1 && value.device().is_cpu()`); a Python number is a CPU tensor there
    (torch/csrc/autograd/python_variable_indexing.cpp). With accumulate=True no mask is filled.
    """
    x = torch.randn(8, 8, device=either.device)
    mask, total = x > 0, x.sum()

    def put(value: Any) -> None:
        x[mask] = value

    assert waits(either, lambda: put(1.0)) == 0
    assert waits(either, lambda: put(torch.tensor(2.0))) == 0
    assert waits(either, lambda: put(total)) == 1
    assert waits(either, lambda: put(total.reshape(1))) == 1
    assert waits(either, lambda: x.index_put_((mask,), torch.tensor(2.0))) == 0
    # nonzero(), and the number's way to the device
    assert waits(either, lambda: x.index_put_((mask,), torch.tensor(2.0), accumulate=True)) == 2
    assert waits(either, lambda: put(total)) == 1  # what was assigned before does not stick


def test_masked_fill_reads_a_number_that_lies_on_the_device(either: SimGPU) -> None:
    """ATen/native/cuda/Indexing.cu, masked_fill__cuda with a tensor: `masked_fill__cuda(self, mask, value.item())`."""
    x = torch.randn(8, 8, device=either.device)
    mask, total = x > 0, x.sum()
    assert waits(either, lambda: x.masked_fill(mask, 1.0)) == 0
    assert waits(either, lambda: x.masked_fill_(mask, torch.tensor(1.0))) == 0
    assert waits(either, lambda: x.masked_fill(mask, total)) == 1
    assert waits(either, lambda: x.masked_fill_(mask, total)) == 1
    assert waits(either, lambda: torch.where(mask, total, x)) == 0  # this one reads it on the device


def test_every_way_to_the_host_waits(either: SimGPU) -> None:
    x = torch.randn(64, 64, device=either.device)
    ways: list[Callable[[], torch.Tensor]] = [
        x.cpu, lambda: x.to("cpu"), lambda: x.to(device="cpu"), lambda: x.to("cpu", torch.float64),
        lambda: x.to("cpu", copy=True),
    ]  # fmt: skip
    for way in ways:
        assert waits(either, way) == 1
    assert waits(either, lambda: x.to("cpu", non_blocking=True)) == 0
    assert waits(either, lambda: x.to(either.device)) == 0


def test_values_that_went_to_the_host_stay_there() -> None:
    with simulate("H100", values=True) as gpu:
        x = torch.arange(4.0, device=gpu.device)
        kept = x.to("cpu")
        x.add_(1)
        assert kept.is_cpu and kept.tolist() == [0, 1, 2, 3] and not x.is_cpu
        assert waits(gpu, kept.tolist) == 0 and kept.to("cpu") is kept
        halves = kept.to("cpu", torch.float16)
        assert halves.is_cpu and halves.dtype == torch.float16 and kept.to(gpu.device).is_cpu is False
        arriving = x.to("cpu", non_blocking=True)
        assert arriving.is_pinned()
        gpu.synchronize()
        assert arriving.tolist() == [1, 2, 3, 4]


def test_sync_debug_mode_warns_at_the_line_that_waits(either: SimGPU) -> None:
    x = torch.randn(8, device=either.device)
    assert either.get_sync_debug_mode() == 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        x.sum().item()
        either.set_sync_debug_mode("warn")
        x.add_(1)
        either.synchronize()
        assert not told and either.get_sync_debug_mode() == 1
        line = sys._getframe().f_lineno + 1
        x.sum().item()
        x[x > 0].sum()
        x.cpu()
        either.current_stream().synchronize()
        x.to("cpu", non_blocking=True)
        either.set_sync_debug_mode(0)
        x.sum().item()
    assert [(w.filename, w.lineno) for w in told] == [(__file__, line + i) for i in range(4)]
    assert all("called a synchronizing CUDA operation" in str(w.message) for w in told)
    assert "_local_scalar_dense" in str(told[0].message)


@pytest.mark.parametrize("values", [False, True])
def test_sync_debug_mode_error_is_a_fault_and_never_raised_in_an_operator(values: bool) -> None:
    reached = 0
    with pytest.raises(
        SimulationError, match="called a synchronizing CUDA operation: aten._local_scalar_dense"
    ):
        with simulate("H100", values=values) as gpu:
            gpu.set_sync_debug_mode("error")
            assert gpu.get_sync_debug_mode() == 2
            reached += torch.ones(3, device=gpu.device).sum().item() is not None
    assert reached == 1


def test_sync_debug_mode_takes_what_torch_takes(gpu: SimGPU) -> None:
    for number, word in enumerate(("default", "warn", "error")):
        gpu.set_sync_debug_mode(word)
        assert gpu.get_sync_debug_mode() == number
        gpu.set_sync_debug_mode(number)
        assert gpu.get_sync_debug_mode() == number
    for wrong in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            gpu.set_sync_debug_mode(wrong)
    with pytest.raises(RuntimeError, match="answers to gpu.set_sync_debug_mode"):
        torch.cuda.set_sync_debug_mode("warn")


# ---------------------------------------------------------------------------------------- determinism

PROGRAM = """
import hashlib, json, pickle, sys, torch
from helpers.simulator import simulate
with simulate() as first:
    torch.ones(2, device=first.device)
assert "torch._dynamo" not in sys.modules, "the first operator does not import the compiler, which takes seconds"
gpu = simulate("H100", strict=False, noise=0.1, seed=3)
with gpu:
    gpu.memory._record_memory_history()
    side, page = gpu.Stream(), torch.empty(8, 16, 64, pin_memory=True)
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(gpu.device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        page.zero_()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            model(x).sum().backward()
        optimizer.step()
assert gpu.races
for thing in (json.dumps(gpu.trace()).encode(), pickle.dumps(gpu.memory._snapshot()), str(gpu.races).encode()):
    print(hashlib.sha256(thing).hexdigest())
"""


def test_trace_snapshot_and_races_are_the_same_bytes_in_every_process() -> None:
    running = []
    for seed in ("0", "1"):
        environment: dict[str, Any] = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        run = [sys.executable, "-W", "ignore", "-c", PROGRAM]
        running.append(subprocess.Popen(run, env=environment, stdout=subprocess.PIPE))
    said = [one.communicate()[0] for one in running]
    assert not any(one.returncode for one in running), "what was wrong stands above"
    assert said[0] == said[1] and len(said[0]) == 3 * (hashlib.sha256().digest_size * 2 + 1)


def test_of_two_equal_spans_the_annotation_holds_the_copy() -> None:
    with simulate() as gpu:
        page = torch.empty(1 << 20, pin_memory=True)
        with gpu.profile() as profile:
            page.to(gpu.device, non_blocking=True)
            profile.step()
    device = [e["cat"] for e in profile.trace()["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    assert device == ["gpu_user_annotation", "gpu_memcpy"]


# ----------------------------------------------------------------------- kernels that only a GPU has


def launched(gpu: SimGPU, body: Callable[[], object]) -> list[str]:
    before = len(gpu.kernels)
    body()
    return [k.name.removeprefix("aten.") for k in gpu.kernels[before:]]


def test_dropout_is_one_kernel_with_a_mask_of_bools(either: SimGPU) -> None:
    x = torch.randn(1 << 20, device=either.device).requires_grad_()
    before = either.memory_allocated()
    kept: list[torch.Tensor] = []
    assert launched(either, lambda: kept.append(F.dropout(x, 0.1))) == ["native_dropout"]
    assert either.memory_allocated() - before == 5 << 20  # the result, and a byte an element
    assert launched(either, lambda: kept[0].backward(x))[-1] == "native_dropout_backward"
    for p, train in ((0.0, True), (0.1, False)):
        assert launched(either, lambda p=p, train=train: torch.dropout(x, p, train)) == []  # type: ignore[misc]
    attention = nn.MultiheadAttention(8, 2, dropout=0.1).to(either.device)
    q = torch.randn(3, 2, 8, device=either.device)
    assert "native_dropout" in launched(either, lambda: attention(q, q, q))
    assert torch.dropout(torch.ones(3), 0.5, False).sum() == 3  # the host's own


def test_rms_norm_is_one_kernel_each_way_unless_types_differ(either: SimGPU) -> None:
    x = torch.randn(8, 16, device=either.device).requires_grad_()
    w = torch.rand(16, device=either.device).requires_grad_()
    kept: list[torch.Tensor] = []
    assert launched(either, lambda: kept.append(F.rms_norm(x, (16,), w))) == ["_fused_rms_norm"]
    backward = launched(either, lambda: kept[0].backward(torch.ones_like(kept[0])))
    assert backward[-1] == "_fused_rms_norm_backward" and len(backward) == 2
    with torch.inference_mode():
        assert launched(either, lambda: nn.RMSNorm(16, device=either.device)(x))[-1] == "_fused_rms_norm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Cannot dispatch to fused implementation", once a process
        assert len(launched(either, lambda: F.rms_norm(x.bfloat16(), (16,), w))) > 5
    with pytest.raises(RuntimeError, match="normalized_shape|shape"):
        F.rms_norm(x, (3,))


def test_rms_norm_with_values_has_the_values_of_the_cpu() -> None:
    x, w = torch.randn(8, 16), torch.rand(16)
    found = []
    for device in ("cpu", "gpu"):
        with simulate("H100", values=True) as gpu:
            here = "cpu" if device == "cpu" else gpu.device
            a, b = x.clone().to(here).requires_grad_(), w.clone().to(here).requires_grad_()
            F.rms_norm(a, (16,), b).pow(2).sum().backward()
            assert a.grad is not None and b.grad is not None
            found.append((a.grad.clone(), b.grad.clone()))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("card", ["H100", "T4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("masked", "shared"), [(False, False), (True, False), (False, True)])
def test_attention_costs_the_same_with_values_and_has_those_of_the_cpu(
    card: str, dtype: torch.dtype, masked: bool, shared: bool
) -> None:
    """Its kernel and its memory are the card's: cuDNN's, the memory-efficient one, or single operators."""

    shapes = (2, 4, 40, 32), *[(2, 2 if shared else 4, 72, 32)] * 2

    def program(device: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        q, k, v = (torch.randn(shape, dtype=dtype, device=device).requires_grad_() for shape in shapes)
        mask = torch.ones(40, 72, dtype=torch.bool, device=device).tril(20) if masked else None
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared)
        out.sum().backward()
        return [t for t in (out, q.grad, k.grad, v.grad) if t is not None]

    runs = []
    for values in (False, True):
        with simulate(card, values=values) as gpu:
            found = program(gpu.device)
            gpu.synchronize()
        runs.append((gpu.clock(), [k.name for k in gpu.kernels], gpu.max_memory_allocated()))
    assert runs[0] == runs[1]
    for one, other in zip(found, program("cpu"), strict=True):
        tolerance = 1e-5 if dtype == torch.float32 else 5e-2
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance)


def test_a_graph_replays_attention_with_values() -> None:
    with simulate("H100", values=True) as gpu:
        q = torch.randn(1, 2, 8, 16, device=gpu.device)
        F.scaled_dot_product_attention(q, q, q)
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            out = F.scaled_dot_product_attention(q, q, q)
        q.copy_(new := torch.randn(1, 2, 8, 16))
        graph.replay()
        found = out.cpu()
    assert torch.allclose(found, F.scaled_dot_product_attention(new, new, new), atol=1e-5)


@pytest.mark.parametrize(
    "name", ["inv", "solve", "cholesky", "lu_factor", "svdvals", "eigh", "eigvals", "pinv"]
)
def test_a_factorisation_waits_as_its_documentation_says(gpu: SimGPU, name: str) -> None:
    """ "When inputs are on a CUDA device, this function synchronizes that device with the CPU" (torch.linalg)."""
    x, before = torch.randn(64, 64, device=gpu.device), gpu.syncs
    args = (x, x) if name == "solve" else (x,)
    getattr(torch.linalg, name)(*args)
    assert gpu.syncs == before + 1
    if hasattr(torch.linalg, f"{name}_ex"):
        getattr(torch.linalg, f"{name}_ex")(*args)
        assert gpu.syncs == before + 1
        getattr(torch.linalg, f"{name}_ex")(*args, check_errors=True)
        assert gpu.syncs == before + 2


def test_a_factorisation_takes_longer_than_the_product_and_grows_with_the_cube(gpu: SimGPU) -> None:
    took: dict[str, list[float]] = {}
    for n in (2048, 4096, 8192):
        x = torch.randn(n, n, device=gpu.device)
        for name, body in {
            "mm": lambda x=x: x @ x, "inv": lambda x=x: torch.linalg.inv_ex(x),
            "svd": lambda x=x: torch.linalg.svd(x), "qr": lambda x=x: torch.linalg.qr(x),
        }.items():  # fmt: skip
            before = len(gpu.kernels)
            body()
            took.setdefault(name, []).append(sum(k.duration_s for k in gpu.kernels[before:]))
    for name in ("inv", "svd", "qr"):
        assert all(a > b for a, b in zip(took[name], took["mm"], strict=True))
        assert took[name][2] > 3 * took[name][1] > 6 * took[name][0]


def test_a_list_as_an_index_is_copied_and_waited_for(either: SimGPU) -> None:
    x = torch.randn(8, 8, device=either.device)
    for body in (
        lambda: x[[0, 2]],
        lambda: x[:, [0, 2]],
        lambda: x[..., range(3)],
        lambda: x[np.array([[0, 2]])],
    ):
        assert waits(either, body) == 1

    def put() -> None:
        x[[0, 2]] = 1.0

    assert waits(either, put) == 1
    assert waits(either, lambda: x[[0, 1], [2, 3]]) == 2
    assert waits(either, lambda: x[[True] * 4 + [False] * 4]) == 2  # and how many are True
    assert waits(either, lambda: x[0, 1:3]) == waits(either, lambda: x[(0, slice(1))]) == 0
    assert waits(either, lambda: x[torch.zeros(2, dtype=torch.int64, device=either.device)]) == 0


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_convolutions_in_16_bits_turn_tensors_that_are_not_channels_last(
    gpu: SimGPU, half: torch.dtype
) -> None:
    names, took = {}, {}
    for layout in (torch.contiguous_format, torch.channels_last):
        conv = nn.Conv2d(64, 64, 3, padding=1, device=gpu.device, dtype=half).to(memory_format=layout)  # type: ignore[call-overload]
        x = (
            torch.randn(64, 64, 56, 56, device=gpu.device, dtype=half)
            .to(memory_format=layout)
            .requires_grad_()
        )
        before = len(gpu.kernels)
        y = conv(x)
        y.backward(torch.empty_like(y))
        names[layout] = [k.name for k in gpu.kernels[before:] if "cudnn" in k.name]
        took[layout] = sum(k.duration_s for k in gpu.kernels[before:])
    assert names[torch.channels_last] == []
    assert len(names[torch.contiguous_format]) == 3 + 6
    assert took[torch.contiguous_format] > 1.2 * took[torch.channels_last]
    x = torch.randn(8, 64, 56, 56, device=gpu.device)  # 32 bits have kernels for both
    assert launched(gpu, lambda: nn.Conv2d(64, 64, 3, device=gpu.device)(x))[-1:] == ["convolution"]


def test_rows_that_are_no_whole_16_bytes_cost_tensor_cores_more(gpu: SimGPU) -> None:
    def took(vocabulary: int, dtype: torch.dtype) -> float:
        x = torch.empty(8192, 768, device=gpu.device, dtype=dtype)
        x @ torch.empty(768, vocabulary, device=gpu.device, dtype=dtype)
        return gpu.kernels[-1].duration_s

    assert took(50257, torch.bfloat16) > 1.1 * took(50304, torch.bfloat16)
    assert took(50257, torch.float32) < took(50304, torch.float32)
    assert gpu.kernels[-1].flops == 2 * 8192 * 768 * 50304  # what is asked for, whatever it costs


def ctc(gpu: SimGPU) -> None:
    scores = torch.randn(50, 4, 20, device=gpu.device).log_softmax(2)
    target = torch.ones(4, 10, dtype=torch.long, device=gpu.device)
    F.ctc_loss(scores, target, torch.full((4,), 50), torch.full((4,), 10))


def flex(gpu: SimGPU) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8, device=gpu.device)
    flex_attention(q, q, q)


def nested(gpu: SimGPU) -> None:
    torch.nested.nested_tensor([torch.randn(3, 4, device=gpu.device)])


def sparse(gpu: SimGPU) -> None:
    places = torch.zeros(2, 3, dtype=torch.long, device=gpu.device)
    torch.sparse_coo_tensor(places, torch.randn(3, device=gpu.device), (4, 4)).to_dense()


@pytest.mark.parametrize(
    ("program", "words"),
    [(ctc, "leave it out"), (flex, "scaled_dot_product"), (nested, "layout=torch.jagged"), (sparse, "dense")],
)
def test_what_is_refused_says_what_to_do_instead(program: Callable[[SimGPU], None], words: str) -> None:
    with pytest.raises(Exception) as error, simulate() as gpu:  # noqa: PT011
        program(gpu)
    assert any("on the simulated GPU: " in note and words in note for note in error.value.__notes__)
    if program in (ctc, sparse):  # the other way that the words name
        with simulate(values=True) as gpu:
            program(gpu)


def test_an_operator_costs_the_same_after_many_others(gpu: SimGPU) -> None:
    """Counted, not timed: how many earlier accesses and bookings each new kernel is compared with."""
    looked: list[int] = []
    races, engine = gpu._machine.races, gpu._machine.line.engines["kernel"]
    x = torch.randn(1 << 20, device=gpu.device)
    spans = []
    for _ in range(6):
        first = len(looked)
        for i in range(100):
            looked.append(len(races._cell(x).seen) + len(engine.busy))
            x[i * 1024 : (i + 1) * 1024].add_(1)
        spans.append(sum(looked[first:]))
    assert spans[-1] <= 1.5 * spans[1]


@pytest.mark.parametrize("read", [np.asarray, np.float32, np.from_dlpack, lambda x: np.add(x, 1)])
def test_numpy_reads_no_value_of_the_device_for_nothing(read: Callable[[Any], Any]) -> None:
    """A real GPU refuses; here it waits, as `.cpu()` does."""
    with simulate("H100", strict=False, values=True) as gpu:
        x, before = torch.ones((), device=gpu.device) * 2, gpu.syncs
        read(x)
        assert gpu.syncs == before + 1
