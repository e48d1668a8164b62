"""What lesson 19 shows: attention's bytes by length, a running softmax, kernels that a call gets, masks and their blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from helpers import count, plots, simulate
from helpers.counters.counts import Counts
from helpers.plots.picture import Picture
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

MIB = 2**20
LIVE, ON_H100 = "live (CPU)", "simulated (H100)"
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


# --- 1 · the score matrix ------------------------------------------------------------------------------------------


def step(way: Attention, n: int) -> Counts:
    """Forward and backward of one way, for two heads of 64 features and n tokens."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, n, 64, requires_grad=True) for _ in range(3)]
    return count(lambda: way(*inputs).sum().backward())


def when_n_doubles(steps: Mapping[str, Sequence[Counts]]) -> dict[str, Any]:
    """By what the peak grows from the last length but one to the last; FLOPs of SDPA against the formula."""
    peaks = {name: [c.peak_live_bytes for c in counts] for name, counts in steps.items()}
    plain, fused = steps["written out"][-1].flops, steps["SDPA"][-1].flops
    return {
        "n doubles, written out: peak ×": round(peaks["written out"][-1] / peaks["written out"][-2]),
        "n doubles, SDPA: peak ×": round(peaks["SDPA"][-1] / peaks["SDPA"][-2]),
        "FLOPs of SDPA": "fewer" if fused < plain else "more" if fused > plain else "as many",
    }


def peaks(steps: Mapping[str, Sequence[Counts]], lengths: Sequence[int]) -> Picture:
    series = {name: (lengths, [c.peak_live_bytes / MIB for c in counts]) for name, counts in steps.items()}
    return plots.curves(
        {"": series},
        evidence=LIVE,
        title="Peak of one attention, forward and backward",
        xlabel="tokens, n",
        ylabel="MiB",
        log="xy",
        ticks={n: f"{n:,}" for n in lengths},
    )


def of_steps(steps: Mapping[str, Sequence[Counts]], lengths: Sequence[int]) -> Table:
    rows = [
        (
            f"{n:,}",
            name,
            f"{c.peak_live_bytes / MIB:.1f}",
            f"{c.saved_bytes / MIB:.1f}",
            f"{c.flops / 1e9:.2f}",
            f"{c.operators}",
        )
        for i, n in enumerate(lengths)
        for name, c in ((name, counts[i]) for name, counts in steps.items())
    ]
    columns = ["tokens", "attention", "peak, MiB", "kept for backward, MiB", "GFLOPs", "operators"]
    return table(rows, columns, evidence=LIVE, caption="2 heads of 64 features, float32")


def on_h100(ways: Mapping[str, Attention], lengths: Sequence[int]) -> Table:
    """Forward of each way in bfloat16, 8 × 16 heads of 64 features: kernels, their time, and the peak that they add."""
    rows = []
    for n in lengths:
        for name, way in ways.items():
            with simulate("H100") as gpu, torch.no_grad():
                q, k, v = (
                    torch.randn(8, 16, n, 64, device=gpu.device, dtype=torch.bfloat16) for _ in range(3)
                )
                way(q, k, v)  # the matrix library's workspace is there from now on
                gpu.reset_peak_memory_stats()
                held, before = gpu.memory_allocated(), len(gpu.kernels)
                way(q, k, v)
                gpu.synchronize()
                kernels = gpu.kernels[before:]
            parts = ", ".join(f"{short(kernel.name)} {format_seconds(kernel.duration_s)}" for kernel in kernels)
            seconds = format_seconds(sum(kernel.duration_s for kernel in kernels))
            more = (gpu.max_memory_allocated() - held) / MIB
            rows.append((f"{n:,}", name, seconds, parts, f"{more:,.0f}"))
    columns = ["tokens", "attention", "time", "kernels", "peak above the inputs, MiB"]
    return table(rows, columns, evidence=ON_H100, caption="forward, 8 × 16 heads of 64 features, bfloat16")


def short(name: str) -> str:
    """An operator's name without what all of them share."""
    return name.removeprefix("aten.").removeprefix("_scaled_dot_product_").lstrip("_")


# --- 2 · a running softmax -----------------------------------------------------------------------------------------


def of_running(rows: Sequence[Sequence[Any]], naive: str) -> dict[str, str]:
    """rows: block, maximum, factor, sum. naive: the sum of exp(score) itself."""
    shrinks = any(0 < factor < 1 for _, _, factor, _ in rows)
    return {
        "sum of exp(score), scores up to 90, float32": naive if naive in ("inf", "nan") else "right",
        "a larger maximum comes: the old sum is": "multiplied" if shrinks else "kept",
        "each score is read": "once",
    }


def running(rows: Sequence[Sequence[Any]]) -> Table:
    shown = [
        (", ".join(f"{x:g}" for x in block), f"{most:g}", f"{factor:.3g}", f"{total:.4f}")
        for block, most, factor, total in rows
    ]
    columns = ["block of scores", "running maximum", "old sum times", "running sum"]
    return table(shown, columns, evidence=LIVE)
