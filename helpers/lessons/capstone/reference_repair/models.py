"""The two models that are repaired, of the sizes of BERT-base and GPT-2 (124 M), and the ways a step of theirs is written.

Weights are random, and nothing is dropped out, so that the losses of every way can be compared.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import samples
from helpers.running_example import plain, rungs

Batch = tuple[Tensor, Tensor]
Part = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """A model and its batches. classes: 0 for a decoder that says the next token, else an encoder's kinds of text."""

    what: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    context: int
    batch: int
    classes: int = 0

    def reduced(self) -> Task:
        """So small that a step takes a second or two on two CPU cores; its texts are as long as the whole model's."""
        return replace(self, layers=4, width=256, heads=4, vocabulary=8192, batch=4)

    def batches(self) -> Iterator[Batch]:
        """Batches without end, on the host. Tokens are a text's bytes. Two classes: read forwards, or backwards."""
        text, draw = list(" ".join(samples.text(400)).encode()), random.Random(0)
        while True:
            inputs, targets = [], []
            for _ in range(self.batch):
                start = draw.randrange(len(text) - self.context)
                piece = text[start : start + self.context + 1]
                label = draw.randrange(self.classes or 1)
                inputs.append(torch.tensor(piece[-2::-1] if label else piece[:-1]))
                targets.append(torch.tensor(label if self.classes else piece[1:]))
            yield torch.stack(inputs), torch.stack(targets)


TASKS = {
    "bert": Task("BERT-base, fine-tuned", 12, 768, 12, 30522, 512, 32, classes=2),
    "gpt2": Task("GPT-2, 124 M", 12, 768, 12, 50257, 1024, 16),
}


# ------------------------------------------------------------------------------------- what the ways replace


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Written out, with a mask that is made anew. All: [batch, heads, context, features of a head]."""
    if causal:
        return rungs.attention_by_views(q, k, v)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    padding = torch.zeros(len(q), 1, 1, q.shape[-2], device=q.device)  # no text is shorter than the context
    return torch.softmax(scores + padding, dim=-1) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def send(batch: Batch, gpu: Any) -> Batch:
    return batch[0].to(gpu.device), batch[1].to(gpu.device)


def send_ahead(batch: Batch, gpu: Any) -> Batch:
    """From page-locked memory: the host does not wait."""
    if not hasattr(gpu, "Stream"):  # the CPU: there is nothing to wait for
        return batch
    inputs, targets = (part.pin_memory().to(gpu.device, non_blocking=True) for part in batch)
    return inputs, targets


def log(record: list[Any], loss: Tensor, right: Tensor) -> None:
    record.append((loss.item(), right.item()))


def log_later(record: list[Any], loss: Tensor, right: Tensor) -> None:
    """What is on the device stays there: `torch.stack(…).tolist()` reads it now and then."""
    record.append((loss.detach(), right))


@dataclass(frozen=True)
class Way:
    """How a step is written: as one writes it first, where nothing else is said.

    first_only: the encoder's last layer is asked for the first token alone, the only one that the loss reads.
    """

    attention: Part = attention
    activation: Part = plain.activation
    clip: Part = plain.clip
    send: Part = send
    log: Part = log
    bf16: bool = False
    adamw: str = "foreach=False"
    first_only: bool = False
    compiled: bool = False
    graphed: bool = False


@dataclass(frozen=True)
class Rung:
    """A way, and what it changes in the one before."""

    says: str
    way: Way


def rungs_of(task: Task) -> tuple[Rung, ...]:
    """The ladder. A decoder's loss reads every token: it has no rung for those that are not read."""
    rows, way = [Rung("plain fp32, eager", Way())], Way()
    changes: list[tuple[str, dict[str, Any]]] = [
        ("fused operators", {"attention": fused_attention, "activation": rungs.fused_gelu}),
        ("no needless wait", {"clip": rungs.clip_on_device, "send": send_ahead, "log": log_later}),
        ("bf16", {"bf16": True}),
        ("fused AdamW", {"adamw": "fused=True"}),
        ("last layer: what is read", {"first_only": True}),
        ("compiled", {"compiled": True}),
        ("CUDA graph", {"graphed": True, "adamw": "fused=True, capturable=True"}),
    ]
    for says, change in changes:
        if "first_only" in change and not task.classes:
            continue
        way = replace(way, **change)
        rows.append(Rung(says, way))
    return tuple(rows)


OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "foreach=False": {"foreach": False},
    "fused=True": {"fused": True},
    "fused=True, capturable=True": {"fused": True, "capturable": True},
}


# -------------------------------------------------------------------------------------------- the models


class Enter(nn.Module):
    """Tokens [batch, context] → features [batch, context, width]."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.tokens, self.places = (
            nn.Embedding(task.vocabulary, task.width),
            nn.Embedding(task.context, task.width),
        )
        self.norm = nn.LayerNorm(task.width) if task.classes else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.norm(self.tokens(tokens) + self.places(places))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer; the decoder's normalises before each half (GPT-2), the encoder's after (BERT)."""

    def __init__(self, task: Task, way: Way, first: bool = False) -> None:
        super().__init__()
        self.way, self.heads, self.causal, width = way, task.heads, not task.classes, task.width
        self.first = first  # only the first token's features are asked for
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        if self.causal:
            x = x + self.mixed(self.norm_1(x))
            return x + self.narrow(self.way.activation(self.wide(self.norm_2(x))))
        x = self.norm_1((x[:, :1] if self.first else x) + self.mixed(x))
        return self.norm_2(x + self.narrow(self.way.activation(self.wide(x))))  # type: ignore[no-any-return]

    def mixed(self, x: Tensor) -> Tensor:
        width, weight, bias = x.shape[-1], self.qkv.weight, self.qkv.bias
        if self.first:
            q = F.linear(x[:, :1], weight[:width], bias[:width])
            k, v = F.linear(x, weight[width:], bias[width:]).chunk(2, -1)
        else:
            q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return self.out(self.way.attention(q, k, v, self.causal).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Leave(nn.Module):
    """Features and targets → their loss (the mean of −log of the right one's share), and the share that is right."""

    def __init__(self, task: Task, tokens: nn.Embedding) -> None:
        super().__init__()
        self.classes = task.classes
        self.norm: nn.Module = nn.Identity() if task.classes else nn.LayerNorm(task.width)
        self.head = nn.Linear(task.width, task.classes or task.vocabulary, bias=bool(task.classes))
        if not task.classes:
            self.head.weight = tokens.weight

    def forward(self, x: Tensor, targets: Tensor) -> Batch:
        logits = self.head(self.norm(x[:, 0] if self.classes else x))
        logits, targets = logits.flatten(0, -2).float(), targets.flatten()
        return F.cross_entropy(logits, targets), (logits.argmax(-1) == targets).float().mean()


class Net(nn.Module):
    """forward(tokens, targets) → (loss, share that is right)."""

    def __init__(self, task: Task, way: Way) -> None:
        super().__init__()
        self.enter = Enter(task)
        self.blocks = nn.ModuleList(
            Block(task, way, way.first_only and i == task.layers - 1) for i in range(task.layers)
        )
        self.leave = Leave(task, self.enter.tokens)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Batch:
        x = self.enter(tokens)
        for block in self.blocks:
            x = block(x)
        return self.leave(x, targets)  # type: ignore[no-any-return]
