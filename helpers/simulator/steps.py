"""Whole steps of models that others measured on real cards, run on the simulated ones. None enters the fit.

NeuSight's are the mean of the five fastest of 25 runs, forward (and backward, for training) of Hugging Face's
GPT-2 large and BERT large in fp32 with attention written out (neusight/Tracing/trace.py: inference of BERT is a
classifier's, without the language-model head). Its runs empty PyTorch's cache before each measurement, so that
small batches measure cudaMalloc: the largest batch of each is taken. The lecture's are the milliseconds a step,
optimizer included, of "Let's reproduce GPT-2 (124M)" by A. Karpathy (the chapters' titles).
"""

from __future__ import annotations

import csv
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from helpers.simulator.gpu import SimGPU
from helpers.simulator.measured import CARDS

__all__ = ["simulate_step", "simulated"]

MEASURED = Path(__file__).with_name("measured_steps.csv")


def simulated() -> list[dict[str, Any]]:
    """Every measured step beside its simulation: card, what, measured_ms, simulated_ms, error."""
    rows = []
    with MEASURED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            ms = 1e3 * simulate_step(
                row["card"],
                row["model"],
                row["mode"],
                int(row["batch"]),
                int(row["length"]),
                row["precision"],
            )
            measured = float(row["ms"])
            what = f"{row['model']}, {row['mode']}, {row['precision']}, {row['batch']} × {row['length']}"
            found = {"source": row["source"], "card": row["card"], "what": what, "measured_ms": measured}
            rows.append(found | {"simulated_ms": round(ms, 1), "error": round(ms / measured - 1, 4)})
    return rows


def simulate_step(card: str, model: str, mode: str, batch: int, length: int, precision: str) -> float:
    """Seconds on the simulated card, warmed up, with everything done at the end.

    mode: "inference" is a forward pass, "training" forward and backward, "step" with loss and AdamW as well.
    """
    from helpers.recordings.models import GPT2, Bert

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    gpu = SimGPU(CARDS[card])
    try:
        with gpu, torch.device("meta"):
            dropout = 0.0 if model == "gpt2-124m" else 0.1
            if model == "bert-large":
                headless = mode == "inference"
                net: torch.nn.Module = Bert(Bert.LARGE, True, dropout, headless)
            elif model == "gpt2-large":
                net = GPT2(GPT2.LARGE, eager=True, dropout=dropout, gelu_parts=True)
            else:
                net = GPT2(eager=True)
            net.train(mode != "inference")
            optimizer = torch.optim.AdamW(net.parameters()) if mode == "step" else None
            tokens = torch.zeros(batch, length, dtype=torch.int64)
            times = []
            for _ in range(2):
                gpu.synchronize()
                start = gpu.clock()
                _once(net, tokens, mode, optimizer, precision == "bf16")
                gpu.synchronize()
                times.append(gpu.clock() - start)
    finally:
        torch.set_float32_matmul_precision(before)
    return times[-1]


def _once(
    net: torch.nn.Module, tokens: torch.Tensor, mode: str, optimizer: torch.optim.Optimizer | None, bf16: bool
) -> None:
    if mode == "inference":
        with torch.no_grad():
            net(tokens)
        return
    with torch.autocast("cuda", torch.bfloat16) if bf16 else nullcontext():
        logits = net(tokens)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
