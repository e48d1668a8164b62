"""Lesson 10, mixed precision: one training step in four precisions."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from helpers.models import GPT2
from helpers.recordings.common import timed_step
from helpers.recordings.registry import experiment

PRECISIONS = {"fp32": None, "TF32": None, "autocast, bf16": torch.bfloat16, "autocast, fp16": torch.float16}


@experiment("10/four_precisions", seconds=30)
def four_precisions(gpu: Any) -> dict[str, Any]:
    """Time and peak of a warm training step of GPT-2 small (4 × 1,024 tokens, AdamW, a scaler with fp16)."""
    before = torch.get_float32_matmul_precision()
    rows = []
    try:
        for name, dtype in PRECISIONS.items():
            torch.set_float32_matmul_precision("high" if name == "TF32" else "highest")
            seconds, peak = _step(gpu, dtype)
            rows.append({"precision": name, "seconds": seconds, "peak_bytes": peak})
    finally:
        torch.set_float32_matmul_precision(before)
    return {"table": rows}


def _step(gpu: Any, dtype: torch.dtype | None) -> tuple[float, int]:
    """(seconds of one step, bytes allocated at its peak)."""
    with torch.device(gpu.device):
        net = GPT2()
    optimizer = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    tokens = torch.randint(50257, (4, 1024), device=gpu.device)

    def step() -> None:
        with torch.autocast("cuda", dtype=dtype) if dtype is not None else nullcontext():
            logits = net(tokens)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    step()
    gpu.reset_peak_memory_stats()
    us = timed_step(gpu, step, repeats=2)
    return us / 1e6, gpu.max_memory_allocated()
