"""Lesson 19's claims on trial: by what its cells measured, and a function for the loss, which stands in none of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from helpers import simulate
from helpers.counters.counts import Counts
from helpers.lesson.claim import Claim
from helpers.lessons.attention import experiments

GB = 1e9
Kernels = Mapping[str, list[str]]


def on_trial(steps: Mapping[str, Sequence[Counts]], kernels: Kernels) -> list[Claim]:
    """The claims of the core. steps: way → its step by length, section 1; kernels: call → operators, section 3."""
    return [other_backends(kernels), silent(kernels), memory_savings(steps)]


def other_backends(kernels: Kernels) -> Claim:
    flash = {name: any("flash" in operator for operator in live) for name, live in kernels.items()}
    fused, math = ([name for name, is_fused in flash.items() if is_fused is kind] for kind in (True, False))
    return Claim(
        "19-other-backends",
        "pytorch-attention",
        "it may call optimized kernels when using the CUDA backend; for all other backends, the PyTorch implementation is used",
        f"on the CPU {len(math)} of {len(kernels)} calls ran as the PyTorch implementation ({'; '.join(math)}), {len(fused)} as one kernel "
        f"({'; '.join(fused)})",
        "confirmed" if not fused
        else f"partly: so for {len(math)} of the calls; the others take a flash kernel of the CPU's own" if math
        else "refuted: the CPU has a flash kernel of its own",
        "3 · Which kernel did you get?",
    )  # fmt: skip


def silent(kernels: Kernels) -> Claim:
    """Whether calls that no fused kernel takes warn, and say why: one left alone, and three with math shut out."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def told(q: Tensor, *allowed: SDPBackend, **options: Any) -> str:
        with sdpa_kernel(list(allowed)), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                F.scaled_dot_product_attention(q, q, q, **options)
            except RuntimeError:
                pass
        return experiments.reason(said) if said else ""

    q, flash = torch.randn(2, 4, 16, 8), SDPBackend.FLASH_ATTENTION
    alone = told(q[0], flash, SDPBackend.MATH)
    wants = torch.zeros(16, 16, requires_grad=True)
    shut_out = [told(q[0], flash), told(q, flash, dropout_p=0.1), told(q, flash, attn_mask=wants)]
    warned, why = (sum(ok(text) for text in shut_out) for ok in (bool, experiments.gives_a_reason))
    return Claim(
        "19-warning",
        "pytorch-attention",
        "where math is shut out and no fused implementation is available, a warning says why",
        f"on the CPU, math shut out: {warned} of {len(shut_out)} such calls warned, {why} of them with a reason. With math allowed: "
        f"{'a warning' if alone else 'no warning'}",
        "refuted" if not warned
        else "confirmed" if why == len(shut_out)
        else "partly: a warning comes, though not always with a reason",
        "3 · Which kernel did you get?",
    )  # fmt: skip


def _times_less(n: int, width: int) -> float:
    """Peak of a step written out ÷ SDPA's: 8 texts, 12 heads, float16, inputs and gradients among it."""

    def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(-1, -2) * width**-0.5).softmax(-1) @ v

    peaks = []
    for way in (written_out, F.scaled_dot_product_attention):
        with simulate("H100") as gpu:
            small = torch.zeros(8, 8, dtype=torch.float16, device=gpu.device)
            small @ small  # the matrix library's workspace is there from now on
            held = gpu.memory_allocated()
            q, k, v = (
                torch.zeros(8, 12, n, width, dtype=torch.float16, device=gpu.device, requires_grad=True)
                for _ in range(3)
            )
            way(q, k, v).sum().backward()
            peaks.append(gpu.max_memory_allocated() - held)
    return peaks[0] / peaks[1]


def memory_savings(steps: Mapping[str, Sequence[Counts]]) -> Claim:
    ratios = [
        plain.peak_live_bytes / fused.peak_live_bytes
        for plain, fused in zip(steps["written out"], steps["SDPA"], strict=True)
    ]
    growth = [later / earlier for earlier, later in zip(ratios, ratios[1:], strict=False)]
    proportional = all(1.8 < factor < 2.2 for factor in growth)
    told = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    sized = {width: [_times_less(n, width) for n in (2048, 4096)] for width in (64, 128)}
    near = all(abs(r / t - 1) < 0.1 for of in sized.values() for r, t in zip(of, (10, 20), strict=True))
    return Claim(
        "19-memory-savings",
        "flash-attention",
        "memory savings are proportional to the sequence length: 10 times at 2,000 tokens, 20 times at 4,000",
        f"peak of a step written out ÷ SDPA at 256, 512, 1,024 and 2,048 tokens (2 heads of 64, float32): {told}. Simulated, at 2,048 and 4,096 "
        f"(8 × 12 heads, float16): {'; '.join(f'heads of {width} {a:.1f} and {b:.1f}' for width, (a, b) in sized.items())}",
        "confirmed"
        if proportional and near
        else "partly: holds for the proportion; the factor at a length follows from the width of a head, more than 10 and 20 with 64, less with 128"
        if proportional and sized[64] > [10.0, 20.0] > sized[128]
        else "partly: holds for the proportion; the factors are others"
        if proportional
        else "refuted",
        "1 · The score matrix, and what holds it",
    )


def _loss_peak(rows: int | None) -> float:
    """Peak bytes that a loss of 8,192 tokens over 256,000 words adds, forward and backward, its gradients among them where they
    are there; rows: tokens at a time."""
    gpu, tokens, words, width = simulate("H100"), 8192, 256_000, 2304
    with gpu:
        hidden = torch.randn(tokens, width, device=gpu.device, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.randn(words, width, device=gpu.device, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.zeros(tokens, device=gpu.device, dtype=torch.int64)

        def summed(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy((part @ weight.T).float(), wanted, reduction="sum")

        gpu.reset_peak_memory_stats()
        held = gpu.memory_allocated()
        if rows is None:
            loss = summed(hidden, targets)
        else:
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            loss = torch.stack([checkpoint(summed, *part, use_reentrant=False) for part in parts]).sum()
        (loss / tokens).backward()
        return float(gpu.max_memory_allocated() - held)


def loss_memory() -> Claim:
    whole, chunks = _loss_peak(None) / GB, _loss_peak(256) / GB
    return Claim(
        "19-loss-memory",
        "cut-your-losses",
        "the loss of Gemma 2 (2B) takes 24 GB, and 1 MB if the logits are never made whole",
        f"peak of a step over 8,192 tokens and 256,000 words: {whole:.1f} GB at once ({whole * GB / 2**30:.1f} GiB), three arrays of logits, without the "
        f"gradients of weight and hidden; {chunks:.1f} GB with a checkpoint around each 256 tokens, these gradients among them",
        "partly: holds for the 24 GB; with PyTorch's operators a chunk's logits and a second gradient of the weight remain, and 1 MB needs a kernel"
        if 20 < whole < 30 and 0.002 < chunks < whole / 4
        else "confirmed"
        if 20 < whole < 30 and chunks < whole / 4
        else "refuted",
        "Further: The loss in chunks",
    )
