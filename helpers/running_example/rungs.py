"""What lessons 01 to 10 replaced in the running example: the same code as in the lesson's own cell."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from helpers.running_example import plain as plain_script
from helpers.running_example.plain import Batch, Record, Size
from helpers.running_example.script import Part, Rung

# ------------------------------------------------------------------------------------ 01: views for copies


def attention_by_views(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    context, features = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / math.sqrt(features)
    mask = torch.tril(torch.ones(context, context, device=q.device))
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


# ------------------------------------------------------------------------------------- 02: fused operators


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def fused_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# ---------------------------------------------------------------------------------- 03: no wait in each step


def clip_on_device(model: nn.Module, most: float = 1.0) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), most)


def log_every_five(record: Record, logits: Tensor, loss: Tensor) -> None:
    record.losses.append(loss.detach())
    record.kept.append(logits)
    if len(record.losses) % 5 == 0:
        record.losses[-5:] = torch.stack(record.losses[-5:]).tolist()


# ----------------------------------------------------------------------- 04: packed, and few bytes sent


def packed_text() -> Tensor:
    return torch.tensor(plain_script.text(), dtype=torch.uint8)


def batches_by_index(tokens: Tensor, size: Size, steps: int) -> Iterator[Tensor]:
    draw, piece = random.Random(0), torch.arange(size.context + 1)
    for _ in range(steps):
        starts = [draw.randrange(len(tokens) - size.context) for _ in range(size.batch)]
        yield tokens[torch.tensor(starts)[:, None] + piece]


def bytes_to_device(batches: Iterable[Tensor], gpu: Any) -> Iterator[Batch]:
    for pieces in batches:
        tokens = pieces.to(gpu.device).long()
        yield tokens[:, :-1], tokens[:, 1:]


# -------------------------------------------------------------------------------------------- 05: sent ahead


def sent_ahead(batches: Iterable[Tensor], gpu: Any) -> Iterator[Batch]:
    main, side = gpu.current_stream(), gpu.Stream()
    sent: Tensor | None = None
    for pieces in itertools.chain(batches, [None]):
        ready = sent
        main.wait_stream(side)  # it has sent `ready`
        if pieces is not None:
            with gpu.stream(side):
                sent = pieces.pin_memory().to(gpu.device, non_blocking=True).long()
        if ready is not None:
            ready.record_stream(main)
            yield ready[:, :-1], ready[:, 1:]


# ---------------------------------------------------------------------------------------- 06: one fused AdamW


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


# ------------------------------------------------------------------------------------------ 07: a CUDA graph


def capturable_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)


def graphed(step: Callable[..., Batch], gpu: Any) -> Callable[..., Any]:
    graph, side, steps = gpu.CUDAGraph(), gpu.Stream(), itertools.count()
    held: list[Any] = []

    def run(*batch: Tensor) -> Any:
        if next(steps) < 3:  # three ordinary steps
            side.wait_stream(gpu.current_stream())
            with gpu.stream(side):
                out = step(*batch)
            gpu.current_stream().wait_stream(side)
            for tensor in batch:
                tensor.record_stream(side)
            return out
        if not held:
            inputs = [tensor.clone() for tensor in batch]
            with gpu.graph(graph):
                held.extend([inputs, step(*inputs)])
        torch._foreach_copy_(held[0], batch)
        graph.replay()
        return [tensor.clone() for tensor in held[1]]

    return run


# ---------------------------------------------------------------------------------------- 08: kept, and let go


def log_and_let_go(record: Record, logits: Tensor, loss: Tensor) -> None:
    record.losses.append(loss.detach())
    record.kept.append(logits.argmax(-1).to(torch.uint8))
    if len(record.losses) % 5 == 0:
        record.losses[-5:] = torch.stack(record.losses[-5:]).tolist()


# ------------------------------------------------------------------------------------------- 09: checkpoints


def through_checkpoint(block: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(block, x, use_reentrant=False)


# --------------------------------------------------------------------------------------------- 10: half the bits


def forward_in_bf16(model: nn.Module, inputs: Tensor, targets: Tensor) -> Batch:
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        return plain_script.forward(model, inputs, targets)


PACKED: dict[str, Part] = {"text": packed_text, "batches": batches_by_index, "to_device": bytes_to_device}
GRAPHED: dict[str, Part] = {"optimizer": capturable_adamw, "around": graphed}

#: what each lesson left; "10+07" is what lesson 10 ends with
RUNGS = {
    "00": Rung("", {}, "plain"),
    "01": Rung("00", {"attention": attention_by_views}, "views for copies"),
    "02": Rung("01", {"attention": fused_attention, "activation": fused_gelu}, "fused operators"),
    "03": Rung("02", {"clip": clip_on_device, "log": log_every_five}, "no needless wait"),
    "04": Rung("03", PACKED, "packed bytes"),
    "05": Rung("04", {"to_device": sent_ahead}, "batches sent ahead"),
    "06": Rung("05", {"optimizer": fused_adamw}, "fused AdamW"),
    "07": Rung("06", GRAPHED, "CUDA graph"),
    "08": Rung("06", {"log": log_and_let_go}, "logits let go"),
    "09": Rung("08", {"through": through_checkpoint}, "checkpoints"),
    "10": Rung("08", {"forward": forward_in_bf16}, "bf16"),
    "10+07": Rung("10", GRAPHED, "bf16, CUDA graph again"),
}
