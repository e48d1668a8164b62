"""A small GPT learns a text, byte by byte: the course's running example, as one writes it first.

    python -m helpers.running_example.plain

The script is made of parts: functions that `train` puts together. A lesson replaces one part, or a few.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import samples

VOCABULARY = 256  # a token is a byte

Batch = tuple[Tensor, Tensor]  # inputs and targets, each [batch, context]


@dataclass(frozen=True)
class Size:
    """How large the model and a batch are."""

    layers: int = 2
    width: int = 128
    heads: int = 4
    context: int = 64
    batch: int = 8


# ------------------------------------------------------------------------------------------------- the data


def text() -> Any:
    """The text: a list of numbers, one a byte."""
    return list(" ".join(samples.text(400)).encode())


def batches(tokens: Any, size: Size, steps: int) -> Iterator[Batch]:
    """A batch a step: pieces of the text from random places, and as targets the bytes that follow."""
    draw = random.Random(0)
    for _ in range(steps):
        inputs, targets = [], []
        for _ in range(size.batch):
            start = draw.randrange(len(tokens) - size.context)
            piece = tokens[start : start + size.context + 1]
            inputs.append(torch.tensor(piece[:-1]))
            targets.append(torch.tensor(piece[1:]))
        yield torch.stack(inputs), torch.stack(targets)


def to_device(batches: Iterable[Batch], gpu: Any) -> Iterator[Batch]:
    """The batches on the GPU."""
    for inputs, targets in batches:
        yield inputs.to(gpu.device), targets.to(gpu.device)


# ------------------------------------------------------------------------------------------------ the model


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each place looks at itself and at those before it. All: [batch, heads, context, features of a head]."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, context, features = q.shape
    scores = q @ k.transpose(-2, -1).contiguous() / math.sqrt(features)
    mask = torch.tril(torch.ones(context, context, device=q.device)).repeat(batch, heads, 1, 1)
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def activation(x: Tensor) -> Tensor:
    """GELU, by its formula (Hendrycks and Gimpel, 2016, with tanh)."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Block(nn.Module):
    """One layer: attention, then two linear layers; each adds to what came in."""

    def __init__(self, parts: Any, size: Size) -> None:
        super().__init__()
        self.heads, self.attention, self.activation = size.heads, parts.attention, parts.activation
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.wide, self.narrow = (
            nn.Linear(size.width, 4 * size.width),
            nn.Linear(4 * size.width, size.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, context, _ = x.shape
        q, k, v = (
            t.view(batch, context, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        mixed = self.attention(q, k, v).transpose(1, 2).reshape(batch, context, -1)
        x = x + self.out(mixed)
        return x + self.narrow(self.activation(self.wide(self.norm_2(x))))


class GPT(nn.Module):
    """forward(tokens [batch, context]) → logits [batch, context, 256]."""

    def __init__(self, parts: Any, size: Size) -> None:
        super().__init__()
        self.through = parts.through
        self.tokens, self.places = (
            nn.Embedding(VOCABULARY, size.width),
            nn.Embedding(size.context, size.width),
        )
        self.blocks = nn.ModuleList(Block(parts, size) for _ in range(size.layers))
        self.norm, self.head = (
            nn.LayerNorm(size.width),
            nn.Linear(size.width, VOCABULARY, bias=False),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = self.through(block, x)
        return self.head(self.norm(x))


def through(block: nn.Module, x: Tensor) -> Tensor:
    """How the model goes through a layer."""
    return block(x)


def prepare(model: nn.Module, gpu: Any) -> nn.Module:
    """What is done to the model before the first step."""
    return model


# --------------------------------------------------------------------------------------------- the training


def forward(model: nn.Module, inputs: Tensor, targets: Tensor) -> Batch:
    """The logits, and their loss: the mean over all places of −log of the share that the right byte got."""
    logits = model(inputs)
    return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """What changes the weights."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def clip(model: nn.Module, most: float = 1.0) -> None:
    """No step is longer than `most`: all gradients together are one vector, and its length is limited."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    length = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()
    if length > most:
        for grad in grads:
            grad.mul_(most / length)


def around(step: Callable[..., Batch], gpu: Any) -> Callable[..., Batch]:
    """What is done around a step."""
    return step


@dataclass
class Record:
    """What the script writes down. losses: one a step. kept: what it keeps to look at later."""

    losses: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)


def log(record: Record, logits: Tensor, loss: Tensor) -> None:
    """Write down how it goes."""
    record.losses.append(loss.item())
    record.kept.append(logits)


def train(parts: Any, size: Size, gpu: Any, steps: int) -> Iterator[Record]:
    """Train a new model for so many steps. The record is handed out after each step, to be looked at."""
    torch.manual_seed(0)
    model = parts.prepare(GPT(parts, size).to(gpu.device), gpu)
    optimizer, record = parts.optimizer(model), Record()

    def step(inputs: Tensor, targets: Tensor) -> Batch:
        logits, loss = parts.forward(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        parts.clip(model)
        optimizer.step()
        return logits, loss

    step = parts.around(step, gpu)
    for inputs, targets in parts.to_device(parts.batches(parts.text(), size, steps), gpu):
        logits, loss = step(inputs, targets)
        parts.log(record, logits, loss)
        yield record


if __name__ == "__main__":
    here = SimpleNamespace(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for record in train(sys.modules[__name__], Size(), here, steps=100):
        print(f"step {len(record.losses)}: loss {record.losses[-1]:.3f}")
