"""Training steps on four GPUs of one machine: what others measured, and what they are on the simulated card.

four_gpus.csv: NeuSight's labels (`scripts/asplos/label`, …-dp4, -tp4, -pp4_1) and its own predictions of the same steps,
in milliseconds. batch: of all four together. They are steps of Megatron-LM under accelerate, in fp32, which clips the gradient
and steps the optimizer too (collect_label_distributed.py; MegatronEngine.train_step). None of them enters a fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from helpers.calibration.measured import CARDS, GPT3_XL, precision, transposed
from helpers.models import GPT2, Block, Size
from helpers.ranks.costs import seconds
from helpers.ranks.links import LINKS, Link
from helpers.simulator.gpu import SimGPU
from helpers.text.tables import read_rows

STEPS = Path(__file__).with_name("four_gpus.csv")
RANKS = 4
_SIZES = {"gpt2-large": GPT2.LARGE, "gpt3-xl": GPT3_XL}
_NVLINK = LINKS["NVLink 4"]
#: NVIDIA A100 Tensor Core GPU Architecture white paper: 600 GB/s in both directions together
_LINKS: dict[str, Link] = {"H100": _NVLINK, "A100-SXM-40GB": replace(_NVLINK, bytes_per_s=300e9)}


@dataclass(frozen=True)
class Step:
    """One step. parallel: "data", "tensor" or "pipeline" (one micro-batch: the stages work one after another)."""

    card: str
    model: str
    parallel: str
    batch: int
    length: int
    seconds: float
    neusight_s: float


def steps() -> list[Step]:
    """All of them, in the file's order."""
    return [_step(row) for row in read_rows(STEPS)]


def _step(row: Mapping[str, Any]) -> Step:
    return Step(
        row["card"], row["model"], row["parallel"], int(row["batch"]), int(row["length"]), float(row["ms"]) / 1e3,
        float(row["neusight_ms"]) / 1e3,
    )  # fmt: skip


def simulate_step(step: Step) -> float:
    """Seconds: one rank's kernels, then what it sends, with nothing beside it, and the optimizer.

    Of a pipeline all stages run on one card here, one after another, as they do there; the optimizer's four parts run at once.
    """
    size, link = _SIZES[step.model], _LINKS[step.card]
    gpu = SimGPU(CARDS[step.card], memory_bytes=1 << 50)
    rows = step.batch // RANKS if step.parallel == "data" else step.batch
    with precision("float32"):
        with torch.device("meta"):
            net = GPT2(size, eager=True, dropout=0.1, gelu_parts=True)
            transposed(_quarter(net, size) if step.parallel == "tensor" else net)
        with gpu, torch.device("meta"):
            tokens = torch.zeros(rows, step.length, dtype=torch.int64)
            optimizer = torch.optim.AdamW(net.parameters(), fused=True)
            for _ in range(2):  # the first sets everything up
                gpu.synchronize()
                begin = gpu.clock()
                logits = net(tokens)
                F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1)).backward()
                gpu.synchronize()
                there_and_back = gpu.clock() - begin
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                gpu.synchronize()
                update = gpu.clock() - begin - there_and_back
                optimizer.zero_grad()
    between = rows * step.length * size.width * 4  # bytes from layer to layer
    if step.parallel == "data":
        weights = sum(p.numel() * p.element_size() for p in net.parameters())
        return there_and_back + update + seconds("all_reduce", weights, RANKS, link)
    if step.parallel == "tensor":  # two a layer in each direction, the embedding's and the head's
        sums = 4 * size.layers + 2
        return there_and_back + update + sums * seconds("all_reduce", between, RANKS, link)
    return there_and_back + update / RANKS + 2 * (RANKS - 1) * seconds("send", between, 2, link)


def _quarter(net: GPT2, size: Size) -> GPT2:
    """A rank's share of every matrix: of its columns, then of its rows (Megatron-LM, arXiv 1909.08053)."""
    width, share = size.width, size.width // RANKS
    for block in net.blocks:
        assert isinstance(block, Block)
        block.attention.size = replace(size, heads=size.heads // RANKS)
        block.attention.qkv = nn.ModuleList([nn.Linear(width, 3 * share)])
        block.attention.out = nn.Linear(share, width)
        block.wide, block.narrow = nn.Linear(width, 4 * share), nn.Linear(4 * share, width)
    net.tokens = nn.Embedding(-(-size.vocabulary // RANKS), width)
    net.head = nn.Linear(width, net.tokens.num_embeddings, bias=False)
    net.head.weight = net.tokens.weight
    return net
