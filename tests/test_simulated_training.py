"""Training on the simulated GPU: what it launches, what its pictures look like, and how long simulating takes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from helpers import count, trace
from helpers.models import GPT2, Bert
from helpers.simulator import SimGPU, SimulationError, simulate
from helpers.simulator.operators import autocast, cuda_kernels


@pytest.fixture
def gpu() -> Iterator[SimGPU]:
    device = simulate("H100")
    with device:
        yield device


def launched(gpu: SimGPU, run: Callable[[], object]) -> list[str]:
    """Names of the kernels that it launches, in order, without "aten."."""
    before = len(gpu.kernels)
    run()
    return [k.name.removeprefix("aten.") for k in gpu.kernels[before:]]


def types(run: Callable[[], object]) -> list[tuple[str, str]]:
    """(operator, type of its result) of everything dispatched, views left out."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[tuple[str, str]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            first = out[0] if isinstance(out, tuple) else out
            if not func.is_view and isinstance(first, torch.Tensor):
                seen.append((func.__name__.partition(".")[0], str(first.dtype)[6:]))
            return out

    with Watch():
        run()
    return seen


# ------------------------------------------------------------------------------------------- autocast


def test_autocast_casts_as_cuda_does_forward_and_backward(gpu: SimGPU) -> None:
    linear, x = nn.Linear(8, 8, device=gpu.device), torch.randn(4, 8, device=gpu.device)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.mse_loss(linear(x), torch.zeros_like(x))
        assert loss.dtype == torch.float32
        loss.backward()

    seen = types(step)
    assert ("addmm", "bfloat16") in seen and ("mse_loss", "float32") in seen
    assert seen.count(("_to_copy", "bfloat16")) == 4  # input, weight, bias; and the loss's gradient
    assert seen.count(("_to_copy", "float32")) == 3  # what the loss reads; gradients of weight and bias
    assert linear.weight.grad is not None and linear.weight.grad.dtype == torch.float32


def test_a_weight_is_cast_once_while_autocast_lasts(gpu: SimGPU) -> None:
    linear, x = nn.Linear(8, 8, bias=False, device=gpu.device), torch.randn(4, 8, device=gpu.device)

    def casts(**how: object) -> int:
        with torch.autocast("cuda", **how):  # type: ignore[arg-type]
            names = launched(gpu, lambda: [linear(x) for _ in range(5)])
        return names.count("_to_copy")

    assert casts() == 5 + 1  # the input each time, the weight once
    assert casts() == 5 + 1  # forgotten at the end
    assert casts(cache_enabled=False) == 10
    assert not autocast._casts


def test_the_three_lists_and_what_is_banned(gpu: SimGPU) -> None:
    x = torch.randn(4, 4, device=gpu.device)
    half = x.half()
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.bmm(x[None], x[None]).dtype == torch.float16
        assert (
            half.exp().dtype
            == half.softmax(-1).dtype
            == half.sum().dtype
            == half.norm().dtype
            == torch.float32
        )
        assert half.softmax(-1, dtype=torch.float16).dtype == torch.float16  # asked for
        assert torch.addcmul(half, half, half).dtype == torch.float16
        assert torch.addcmul(x, half, half).dtype == torch.float32  # the widest
        assert (half + half).dtype == half.relu().dtype == torch.float16  # not listed: as it is
        assert (x.double() @ x.double()).dtype == torch.float64  # never cast
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(half.sigmoid(), half.sigmoid())
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32


def test_host_tensors_are_not_cast_and_nothing_stays_behind() -> None:
    with simulate() as gpu, torch.autocast("cuda"):
        host = torch.randn(4, 4)
        assert (host @ host).dtype == torch.float32
        assert (host.to(gpu.device) @ host.to(gpu.device)).dtype == torch.float16
    x = torch.randn(4, 4, device="meta")
    with pytest.warns(UserWarning, match="not available"), torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (host @ host).dtype == torch.bfloat16


def test_the_lists_are_those_of_the_installed_pytorch() -> None:
    """Compared with the header that PyTorch installs."""
    import re
    from pathlib import Path

    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    if not header.exists():
        pytest.skip("no header installed")
    text = header.read_text()
    for macro, policy in [
        ("AT_FORALL_LOWER_PRECISION_FP", "lower"),
        ("AT_FORALL_FP32", "float32"),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", "float32 result"),
        ("AT_FORALL_PROMOTE", "widest"),
    ]:
        body = re.search(rf"#define {macro}\(_\)(.*?)\n\n", text, re.S)
        assert body is not None, macro
        listed = {".".join(x.split(", ")) for x in re.findall(r"_\((\w+(?:, \w+)?)\)", body[1])}
        wanted = {row["operator"] for row in autocast.LISTS if row["policy"] == policy}
        if (
            torch.__version__ < "2.12"
        ):  # which also names dimensions, and leaves rms_norm in the type it is given
            listed = {name for name in listed if "imname" not in name}
            wanted -= {"rms_norm"}
        assert listed == wanted, macro


def test_grad_scaler_works_and_asks_once_a_step(gpu: SimGPU) -> None:
    model, x = nn.Linear(8, 8, device=gpu.device), torch.randn(4, 8, device=gpu.device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for step in range(3):
        before = gpu.syncs
        with torch.autocast("cuda"):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert gpu.syncs - before == 1, step  # were the gradients finite?
    names = [k.name for k in gpu.kernels]
    assert names.count("aten._amp_foreach_non_finite_check_and_unscale_") == 3
    assert names.count("aten._amp_update_scale_") == 3


# ------------------------------------------------------------------------------------- optimizers, lists


def four_layers(device: torch.device, width: int = 64) -> nn.Module:
    """53 parameters: 12 a layer, two embeddings, a last norm (2), a head."""
    layers = [
        nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, device=device) for _ in range(4)
    ]
    tables = [nn.Embedding(100, width, device=device), nn.Embedding(32, width, device=device)]
    rest = [nn.LayerNorm(width, device=device), nn.Linear(width, 100, bias=False, device=device)]
    return nn.ModuleList([*layers, *tables, *rest])


def step_kernels(
    gpu: SimGPU, model: nn.Module, make: Callable[..., torch.optim.Optimizer], **how: object
) -> list[str]:
    for p in model.parameters():
        p.grad = torch.empty_like(p)
    optimizer = make(model.parameters(), **({"lr": 1e-3} | how))
    optimizer.step()
    return launched(gpu, optimizer.step)


def test_adamw_of_a_four_layer_model_launches_424_8_or_2_kernels(gpu: SimGPU) -> None:
    """8 a parameter one by one; 8 on lists; fused: the step counters, and the rest."""
    model = four_layers(gpu.device)
    assert len(list(model.parameters())) == 53
    adamw = torch.optim.AdamW
    assert len(step_kernels(gpu, model, adamw, foreach=False)) == 53 * 8 == 424
    assert len(step_kernels(gpu, model, adamw)) == 8  # foreach is CUDA's default
    assert step_kernels(gpu, model, adamw, fused=True) == ["_foreach_add_", "_fused_adamw_"]


@pytest.mark.parametrize(
    ("make", "how", "last"),
    [
        (torch.optim.Adam, {"fused": True}, "_fused_adam_"),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}, "_fused_sgd_"),
        (torch.optim.SGD, {"momentum": 0.9}, "_foreach_add_"),
        (torch.optim.Adagrad, {"fused": True}, "_fused_adagrad_"),
        (torch.optim.AdamW, {"capturable": True}, "_foreach_addcdiv_"),
        (torch.optim.AdamW, {"capturable": True, "foreach": False}, "addcdiv_"),
        (torch.optim.AdamW, {"capturable": True, "fused": True}, "_fused_adamw_"),
    ],
)
def test_every_flavour_steps_without_waiting(
    gpu: SimGPU, make: Callable[..., torch.optim.Optimizer], how: dict[str, object], last: str
) -> None:
    model = nn.Linear(8, 8, device=gpu.device)
    before = gpu.syncs
    assert step_kernels(gpu, model, make, **how)[-1] == last
    assert gpu.syncs == before


def test_a_long_list_is_split_where_the_kernels_arguments_are_full(gpu: SimGPU) -> None:
    def kernels(tensors: int, size: int = 4) -> int:
        xs = [torch.zeros(size, device=gpu.device) for _ in range(tensors)]
        return len(launched(gpu, lambda: torch._foreach_add_(xs, 1.0)))

    assert kernels(770) == 1 and kernels(771) == 2  # tensors: depth 1
    assert kernels(4, 2240 * 65536 // 4) == 1 and kernels(4, 2240 * 65536 // 4 + 1) == 2  # chunks of 65,536
    xs = [torch.zeros(4, device=gpu.device) for _ in range(337)]
    assert len(launched(gpu, lambda: torch._foreach_addcmul_(xs, xs, xs, 1.0))) == 2  # depth 3: 336
    assert (
        len(launched(gpu, lambda: torch._foreach_norm(xs))) == 3
    )  # zeros, norms of chunks, norms of tensors


def test_the_limits_are_those_of_the_installed_pytorch() -> None:
    from pathlib import Path

    header = Path(torch.__file__).parent / "include/ATen/native/cuda/MultiTensorApply.cuh"
    if not header.exists():
        pytest.skip("no header installed")
    text = "".join(header.read_text().split())
    for limits in (cuda_kernels.LARGE, cuda_kernels.SMALL)[
        torch.__version__ < "2.12" :
    ]:  # 2.11 has the small ones only
        assert f"depth_to_max_tensors[5]={{{','.join(map(str, limits.tensors))}}}" in text
        assert f"depth_to_max_blocks[5]={{{limits.blocks}" in text
        assert f"depth_to_max_tensors_scalarlist[5]={{{','.join(map(str, limits.with_scalars))}}}" in text


def test_lists_that_do_not_fit_each_other_take_the_slow_route_and_bad_ones_raise(gpu: SimGPU) -> None:
    mixed = [torch.zeros(4, device=gpu.device), torch.zeros(4, device=gpu.device, dtype=torch.float16)]
    assert len(launched(gpu, lambda: torch._foreach_add_(mixed, 1.0))) == 2
    xs = [torch.zeros(4, device=gpu.device) for _ in range(3)]
    with pytest.raises(RuntimeError):
        torch._foreach_add_(xs, xs[:2])
    with pytest.raises(RuntimeError):
        torch._foreach_add_(xs, [torch.zeros(5, device=gpu.device)] * 3)


def test_bytes_of_a_fused_step_are_those_of_reading_and_writing_its_state(gpu: SimGPU) -> None:
    model = nn.Linear(1024, 1024, bias=False, device=gpu.device)
    step_kernels(gpu, model, torch.optim.AdamW, fused=True)
    n = 4 * 1024**2  # reads parameter, gradient and two states; writes all but the gradient
    assert gpu.kernels[-1].bytes == pytest.approx(7 * n, rel=1e-4)


# --------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize(
    ("dtype", "kernel"), [(torch.bfloat16, "cudnn"), (torch.float16, "cudnn"), (torch.float32, "efficient")]
)
def test_attention_takes_cudas_kernel_forward_and_backward(
    gpu: SimGPU, dtype: torch.dtype, kernel: str
) -> None:
    q = torch.randn(2, 4, 16, 32, device=gpu.device, dtype=dtype, requires_grad=True)
    names = launched(gpu, lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward())
    assert f"_scaled_dot_product_{kernel}_attention" in names
    assert f"_scaled_dot_product_{kernel}_attention_backward" in names
    assert not {"bmm", "_softmax"} & set(names)


def test_masks_take_kernels_too_and_what_no_kernel_takes_runs_in_parts(gpu: SimGPU) -> None:
    """As recorded on an H100 (19/backends): a mask by cuDNN, one that wants a gradient by the memory-efficient kernel."""
    q = torch.randn(2, 4, 16, 32, device=gpu.device, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.ones(16, 16, dtype=torch.bool, device=gpu.device)
    bias = torch.zeros(16, 16, device=gpu.device, dtype=torch.bfloat16)
    for one, kernel in ((mask, "cudnn"), (bias, "cudnn"), (bias.clone().requires_grad_(), "efficient")):
        names = launched(gpu, lambda one=one: F.scaled_dot_product_attention(q, q, q, one).sum().backward())
        fused = f"_scaled_dot_product_{kernel}_attention"
        assert fused in names and f"{fused}_backward" in names
    assert "_safe_softmax" in launched(gpu, lambda: F.scaled_dot_product_attention(*[q.double()] * 3))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        assert "_safe_softmax" in launched(gpu, lambda: F.scaled_dot_product_attention(q, q, q))
    with torch.autocast("cuda"):
        x = q.detach().float()
        assert "_scaled_dot_product_cudnn_attention" in launched(
            gpu, lambda: F.scaled_dot_product_attention(x, x, x)
        )


@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention_and_transformer_train(gpu: SimGPU, masked: bool) -> None:
    x = torch.randn(2, 16, 64, device=gpu.device)
    mask = nn.Transformer.generate_square_subsequent_mask(16, device=gpu.device) if masked else None
    mha = nn.MultiheadAttention(64, 4, batch_first=True, device=gpu.device)
    names = launched(
        gpu, lambda: mha(x, x, x, need_weights=False, attn_mask=mask, is_causal=masked)[0].sum().backward()
    )
    assert "_scaled_dot_product_efficient_attention_backward" in names
    model = nn.Transformer(64, 4, 1, 1, 128, batch_first=True, device=gpu.device)
    model(x, x, tgt_mask=mask, tgt_is_causal=masked).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


# ------------------------------------------------------------------------------- whole models, and how soon


def training_step(gpu: SimGPU, kind: str) -> tuple[Callable[[], None], int]:
    """One step under autocast (bf16) of GPT-2 (16 × 1024) or BERT-base (32 × 512), and its parameters' number."""
    model, shape = (GPT2(), (16, 1024)) if kind == "gpt2" else (Bert(), (32, 512))
    model.to(gpu.device)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(shape, dtype=torch.int64, device=gpu.device)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), ids.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("kind", "millions"), [("gpt2", 124.4), ("bert", 109.5)])
def test_gpt2_and_bert_simulate_in_about_a_second(kind: str, millions: float) -> None:
    gpu = simulate("H100")
    with gpu:
        with torch.device("meta"):
            step, parameters = training_step(gpu, kind)
        step()  # outside: torch 2.11 would put the optimizer's step counters there too
        gpu.synchronize()
        start, cpu, before = gpu.clock(), time.process_time(), len(gpu.kernels)
        step()
        cpu = time.process_time() - cpu  # of this process alone: the machine may be busy with others
        gpu.synchronize()
        simulated = gpu.clock() - start
    assert parameters / 1e6 == pytest.approx(millions, abs=0.5)
    kernels = Counter(k.name for k in gpu.kernels[before:])
    assert kernels["aten._scaled_dot_product_cudnn_attention"] == 12
    assert kernels["aten._scaled_dot_product_cudnn_attention_backward"] == 12
    assert sum(n for name, n in kernels.items() if "_foreach_" in name) in (8, 9)
    assert 0.02 < simulated < 0.08  # about 45 ms; the host is far ahead of the device
    assert cpu < 3  # 0.3 s on a quiet machine; cores and caches may be shared


def test_what_was_worked_out_once_is_not_worked_out_again_and_other_modes_see_every_call() -> None:
    x = torch.randn(4, 4, device="meta")
    layer = nn.LayerNorm(4, device="meta")

    def work() -> torch.Tensor:
        y = layer(x).exp() + x
        torch._foreach_mul_([y], 2.0)
        return y

    plain = count(work).operators
    with simulate():
        assert count(work).operators == plain
        inside = [work() for _ in range(3)]
    with count() as outside, simulate():
        again = work()
    assert outside.operators >= plain
    expected = work()
    for y in [*inside, again]:
        assert (y.shape, y.stride(), y.dtype) == (expected.shape, expected.stride(), expected.dtype)
    storages = {y.untyped_storage()._cdata for y in inside}
    assert len(storages) == 3


def test_numbers_and_types_are_not_mixed_up_by_what_is_remembered(gpu: SimGPU) -> None:
    x = torch.zeros(4, dtype=torch.int64, device=gpu.device)
    for _ in range(2):
        assert (x * 2).dtype == torch.int64
        assert (x * 2.0).dtype == torch.float32
        assert (x * True).dtype == torch.int64
        assert x.sum(0, keepdim=True).shape == (1,) and x.sum(0, keepdim=False).shape == ()
        assert x.to(torch.float16).dtype == torch.float16 and x.to(torch.float64).dtype == torch.float64


# -------------------------------------------------------------------------------------- cost of sharing


def test_what_an_operator_reads_twice_comes_from_memory_once(gpu: SimGPU) -> None:
    n = 1024
    x, other = torch.randn(n, n, device=gpu.device), torch.randn(n, n, device=gpu.device)
    size = 4 * n * n
    for run, expected in [
        (lambda: x + other, 3 * size),
        (lambda: x + x, 2 * size),
        (lambda: x @ x.t(), 2 * size),
        (lambda: x[: n // 2] + x[n // 2 :], 1.5 * size),
        (lambda: x[: n // 2] + x[: n // 2], size),
        (lambda: torch.zeros_like(x), size),
    ]:
        run()
        assert gpu.kernels[-1].bytes == expected


def test_a_loss_reads_the_picked_numbers_and_not_all(gpu: SimGPU) -> None:
    logits = torch.randn(1024, 4096, device=gpu.device, requires_grad=True)
    F.nll_loss(logits, torch.zeros(1024, dtype=torch.int64, device=gpu.device)).backward()
    by_name = {k.name: k.bytes for k in gpu.kernels}
    assert by_name["aten.nll_loss_forward"] < 20_000
    assert by_name["aten.nll_loss_backward"] == pytest.approx(4 * 1024 * 4096, rel=0.01)


# --------------------------------------------------------------------------- loaders, hints, generators


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_with_pin_memory_gives_pinned_batches(
    gpu: SimGPU, workers: int, recwarn: pytest.WarningsRecorder
) -> None:
    data = TensorDataset(torch.zeros(8, 3), torch.zeros(8))
    for x, y in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
        assert x.is_pinned() and y.is_pinned()
        before = gpu.syncs
        x.to(gpu.device, non_blocking=True)
        assert gpu.syncs == before
    assert not [w for w in recwarn if "pin_memory" in str(w.message)]
    assert not next(iter(DataLoader(data, batch_size=4)))[0].is_pinned()


def test_what_needs_a_real_gpu_says_what_to_write(gpu: SimGPU) -> None:
    x, host, linear = torch.zeros(2, device=gpu.device), torch.zeros(2), nn.Linear(2, 2)
    for call in (
        lambda: host.cuda(), lambda: x.cuda(), lambda: linear.cuda(), lambda: host.to("cuda"),
        lambda: linear.to("cuda:0"), lambda: torch.zeros(2, device="cuda"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="gpu.device, which is right on both|to\\(gpu.device\\)"):
            call()
    if not torch.cuda.is_available():
        for name in ("synchronize", "memory_allocated", "current_stream", "Stream", "Event", "CUDAGraph"):
            with pytest.raises(RuntimeError, match=rf"gpu\.{name}"):
                getattr(torch.cuda, name)()
        with pytest.raises(RuntimeError, match=r"gpu\.memory\._record_memory_history"):
            torch.cuda.memory._record_memory_history()
    linear.to(gpu.device)(x)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    generator = torch.Generator(device=gpu.device)
    assert isinstance(torch.default_generator, torch.Generator) and isinstance(generator, torch.Generator)
    torch.randn(3, device=gpu.device, generator=generator.manual_seed(1))


def test_after_the_block_everything_is_as_it_was() -> None:
    names = [
        (torch, "Generator"), (torch.cuda, "synchronize"), (torch.cuda, "Stream"), (torch.autocast, "__enter__"),
        (torch, "clear_autocast_cache"), (F, "scaled_dot_product_attention"), (torch.Tensor, "record_stream"),
        (sys.modules["torch.optim.optimizer"], "_get_fused_kernels_supported_devices"),
        (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    with pytest.raises(SimulationError), simulate() as gpu:
        torch.zeros(3, device=gpu.device).mul_(torch.zeros(3))
    assert [getattr(owner, name) for owner, name in names] == before


# ------------------------------------------------------------------------------------- classic pictures


def profiled(gpu: SimGPU, steps: int, step: Callable[[int], None]) -> trace.Trace:
    """Steps of a loop, after one that is not looked at."""
    step(0)
    gpu.synchronize()
    with gpu.profile() as prof:
        for i in range(steps):
            step(i)
            prof.step()
    return trace.read(prof)


def mlp(gpu: SimGPU, width: int, layers: int = 8) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*[nn.Linear(width, width, device=gpu.device) for _ in range(layers)])
    return model, torch.optim.SGD(model.parameters(), 0.1)


@pytest.mark.parametrize("logging", [False, True])
def test_item_in_the_loop_drains_the_queue(gpu: SimGPU, logging: bool) -> None:
    model, optimizer = mlp(gpu, 2048)
    x = torch.randn(4096, 2048, device=gpu.device)

    def step(i: int) -> None:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if logging:
            loss.item()

    t = profiled(gpu, 6, step)
    depth, idle, steps = trace.queue_depth(t), trace.idle(t), list(trace.steps(t))
    one_step = steps[1].kernels
    assert all(s.syncs == logging for s in steps[:5])  # the last one holds the profiler's own
    if logging:
        # at the end of each step nothing is waiting, and the GPU stands still until the host is back
        assert depth.depth.max() <= one_step + 1
        assert sum(seconds for cause, seconds in idle.seconds.items() if cause == "sync") > 0
        ends = [s.start_s + s.seconds_s for s in steps[:5]]
        # half a nanosecond of grace: a float of seconds may lie just before the moment that it means
        at = np.searchsorted(depth.times_s, np.add(ends, 5e-10), side="right") - 1
        assert not depth.depth[at].any()
    else:
        assert depth.depth.max() > 4 * one_step  # the host runs ahead, step after step
        assert "sync" not in idle.seconds
        assert idle.total / t.span_s < 0.02


def test_tiny_kernels_starve_the_gpu_and_large_ones_feed_it() -> None:
    busy: dict[int, float] = {}
    for width in (64, 4096):
        with simulate("H100") as gpu:
            model, optimizer = mlp(gpu, width)
            x = torch.randn(width, width, device=gpu.device)

            def step(i: int, model=model, optimizer=optimizer, x=x) -> None:  # type: ignore[no-untyped-def]
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

            t = profiled(gpu, 4, step)
        busy[width] = trace.overlap(t).compute / t.span_s
        depth = trace.queue_depth(t)
        if width == 64:
            assert depth.mean < 2  # every kernel is over before the next one comes
            assert trace.classify(t).bottleneck in ("CPU-bound", "launch-bound")
        else:
            assert depth.mean > 20
            assert trace.classify(t).bottleneck == "GPU-bound"
    assert busy[64] < 0.5 < 0.98 < busy[4096]


@pytest.mark.parametrize("how", ["serial", "double-buffered", "double-buffered, pageable"])
def test_double_buffering_hides_the_copy_and_pageable_memory_unhides_it(how: str) -> None:
    with simulate("H100") as gpu:
        pin = "pageable" not in how
        batches = [torch.empty(4096, 4096, pin_memory=pin) for _ in range(8)]
        w = torch.randn(4096, 4096, device=gpu.device)
        side, main = gpu.Stream(), gpu.current_stream()

        def fetch(batch: torch.Tensor) -> torch.Tensor:
            with gpu.stream(side):
                return batch.to(gpu.device, non_blocking=True)

        def work(x: torch.Tensor) -> None:
            for _ in range(2):
                x = x @ w

        warm = fetch(batches[0])
        gpu.synchronize()
        work(warm)
        gpu.synchronize()
        first = len(gpu.kernels)
        with gpu.profile() as prof:
            ahead = None if how == "serial" else fetch(batches[0])
            for i in range(len(batches)):
                if ahead is None:
                    x = batches[i].to(gpu.device)
                else:
                    main.wait_stream(side)
                    x = ahead
                    x.record_stream(main)  # type: ignore[arg-type]
                    ahead = fetch(batches[i + 1]) if i + 1 < len(batches) else x
                work(x)
    t = trace.read(prof)
    found = trace.overlap(t)
    compute, copies = found.compute, found.copy
    assert not gpu.races
    assert len([k for k in gpu.kernels[first:] if k.kind == "copy h2d"]) == 8
    if how == "double-buffered":
        assert found.exposed_copy < 0.2 * copies  # only the first one stands alone
        assert t.span_s < compute + 0.2 * copies + 1e-3
    elif how == "serial":
        assert found.exposed_copy == pytest.approx(copies, rel=0.05)
        assert t.span_s > compute + 0.95 * copies
    else:
        assert all(k.pageable for k in gpu.kernels[first:] if k.kind == "copy h2d")
        # The host waits in each copy, so that the next product is launched behind it; pageable copies are slow.
        assert t.span_s > 1.5 * compute
        assert "waiting for a copy" in trace.idle(t).seconds


def test_moving_a_model_keeps_its_parameters() -> None:
    """On CUDA ``model.to`` swaps the data of each Parameter: ties hold, and an optimizer made before goes on."""
    words, head = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 10, bias=False)
    head.weight = words.weight
    net = torch.nn.Sequential(words, head)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    gpu = simulate("H100")
    with gpu:
        net.to(gpu.device)
        assert head.weight is words.weight and optimizer.param_groups[0]["params"][0] is words.weight
        assert gpu.memory_allocated() == 512, "10 × 8 floats, once"
        net(torch.zeros(4, dtype=torch.long, device=gpu.device)).sum().backward()
        assert words.weight.grad is not None and words.weight.grad.device == gpu.device
        optimizer.step()
    assert not torch.__future__.get_swap_module_params_on_conversion()
