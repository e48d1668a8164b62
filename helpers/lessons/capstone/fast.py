"""Train a small vision transformer to tell drawn shapes apart.

python train.py
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from helpers.lessons.capstone.files import SHAPES, Files, draw_shapes

LOG_EVERY, VALIDATE_EVERY, SAVE_EVERY = 4, 2, 4


@dataclass(frozen=True)
class Size:
    """How large pictures, model and batch are. The gradients of a step are added up over so many equal parts of its batch."""

    side: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 2
    batch: int = 16
    parts: int = 2


@dataclass
class Record:
    """What a run writes down.

    rows: a step's loss, number of right answers and length of the gradient. waiting: the same, not read yet.
    guesses: what the pictures of each step were taken for, as classes or as the logits that they follow from.
    held_out: losses on pictures that are not trained on. saved: the last checkpoint.
    """

    rows: list[list[float]] = field(default_factory=list)
    waiting: list[Tensor] = field(default_factory=list)
    guesses: list[Tensor] = field(default_factory=list)
    held_out: list[Any] = field(default_factory=list)
    saved: dict[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------- the data


def draw(step: int, seed: int, count: int, size: Size) -> tuple[list[int], Tensor]:
    """What is random in a step: which pictures, and which of them are mirrored. It follows from seed and step."""
    random = torch.Generator().manual_seed(1_000_003 * seed + step)
    rows = torch.randint(count, (size.batch,), generator=random).tolist()
    return rows, torch.rand(size.batch, generator=random) < 0.5


def fetch(files: Files, rows: list[int]) -> tuple[Tensor, Tensor]:
    """The pictures of these rows, [rows, 3, side, side], and their labels, int64 [rows]."""
    pictures = torch.from_numpy(files.read(rows))
    return pictures, torch.from_numpy(files.labels[rows])


class Steps(Dataset[Any]):
    """Item i is the batch of step i: pictures, labels, and which pictures are mirrored."""

    def __init__(self, files: Files, size: Size, seed: int, steps: int) -> None:
        self.files, self.size, self.seed, self.steps = files, size, seed, steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> list[Tensor]:
        rows, mirrored = draw(step, self.seed, len(self.files), self.size)
        return [*fetch(self.files, rows), mirrored]


def loading(cores: int, gpu: Any) -> dict[str, Any]:
    """How the batches are loaded: keyword arguments of the DataLoader."""
    pinned = gpu.device.type != "cpu"
    return {"num_workers": max(1, cores // 2), "prefetch_factor": 2, "pin_memory": pinned}


def send(batches: Iterable[list[Tensor]], gpu: Any) -> Iterator[list[Tensor]]:
    """The batches on the GPU."""
    for batch in batches:
        yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]


def normalise(pictures: Tensor) -> Tensor:
    """Pixels from 0 to 255 as float32 numbers from -1 to 1."""
    return pictures.float() / 127.5 - 1


@torch.compile
def augment(pictures: Tensor, mirrored: Tensor) -> Tensor:
    """The pictures as numbers, some of them mirrored."""
    numbers = normalise(pictures)
    return torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)


# ------------------------------------------------------------------------------------------------ the model


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each place looks at all places. All: [pictures, heads, places, features of a head]."""
    return F.scaled_dot_product_attention(q, k, v)


def activation(x: Tensor) -> Tensor:
    """GELU, in the form with tanh."""
    return F.gelu(x, approximate="tanh")


def places(maps: Tensor) -> Tensor:
    """Feature maps [pictures, features, height, width] as a list of places, [pictures, places, features]."""
    return maps.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """One layer: attention, then two linear layers; each adds to what came in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split_heads(self.qkv(self.norm_1(x)), self.heads)
        mixed = attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.narrow(activation(self.wide(self.norm_2(x))))


def split_heads(qkv: Tensor, heads: int) -> list[Tensor]:
    """[pictures, places, 3 · width] as queries, keys and values, each [pictures, heads, places, features]."""
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1)]


def through(block: nn.Module, x: Tensor) -> Tensor:
    """How the model goes through a layer."""
    return block(x)


class Net(nn.Module):
    """forward(numbers [pictures, 3, side, side]) → logits [pictures, shapes]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        half = size.width // 2
        self.stem_1 = nn.Conv2d(3, half, 3, stride=2, padding=1)
        self.stem_2 = nn.Conv2d(half, size.width, 3, stride=2, padding=1)
        self.where = nn.Parameter(0.02 * torch.randn((size.side // 4) ** 2, size.width))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, len(SHAPES))

    def forward(self, numbers: Tensor) -> Tensor:
        maps = self.stem_2(activation(self.stem_1(numbers)))
        x = places(maps) + self.where
        for block in self.blocks:
            x = through(block, x)
        return self.head(self.norm(x).mean(1))


def cost(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of the shapes, as a mean over the pictures."""
    return F.cross_entropy(logits, labels)


def forward(model: nn.Module, numbers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and loss."""
    with torch.autocast(numbers.device.type, dtype=torch.bfloat16):
        logits = model(numbers)
        return logits, cost(logits, labels)


# ------------------------------------------------------------------------------------------------- the step


def pieces(batch: list[Tensor], parts: int) -> Iterator[tuple[Tensor, ...]]:
    """The batch in so many equal parts, one after the other."""
    yield from zip(*(tensor.chunk(parts) for tensor in batch), strict=True)


def accumulate(model: nn.Module, batch: list[Tensor], parts: int) -> tuple[Tensor, Tensor]:
    """Add up the gradients of the batch, part by part. Returns the logits of all pictures, and the mean loss."""
    kept, losses = [], []
    for pictures, labels, mirrored in pieces(batch, parts):
        logits, loss = forward(model, augment(pictures, mirrored), labels)
        (loss / parts).backward()
        kept.append(logits.detach())
        losses.append(loss.detach())
    share(model)
    return torch.cat(kept), torch.stack(losses).mean()


def share(model: nn.Module) -> None:
    """Every rank gets the mean of all ranks' gradients."""
    if dist.is_initialized():
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads]) / dist.get_world_size()
        dist.all_reduce(flat)
        parts = flat.split([grad.numel() for grad in grads])
        torch._foreach_copy_(grads, [part.view_as(grad) for part, grad in zip(parts, grads, strict=True)])


def clip(model: nn.Module, most: float = 1.0) -> Tensor:
    """Shorten the gradients of all weights together to a length of at most `most`. Returns their length before."""
    return nn.utils.clip_grad_norm_(model.parameters(), most)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """What changes the weights."""
    return torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)


@torch.no_grad()
def average(averaged: nn.Module, model: nn.Module, decay: float = 0.9) -> None:
    """Move the averaged weights a little towards those of the model."""
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)


# -------------------------------------------------------------------------------------------------- the run


def count_right(logits: Tensor, labels: Tensor) -> Any:
    """How many pictures were taken for what they are."""
    return (logits.argmax(-1) == labels).sum()


def log(record: Record, loss: Tensor, right: Any, length: Any) -> None:
    """Write down how a step went; the numbers are read every few steps."""
    record.waiting.append(torch.stack([loss, right, length]))
    if len(record.waiting) == LOG_EVERY:
        record.rows += torch.stack(record.waiting).tolist()
        record.waiting.clear()


def remember(record: Record, logits: Tensor) -> None:
    """Keep what the pictures of a step were taken for."""
    record.guesses.append(logits.argmax(-1).to(torch.uint8))


def held_out(files: Files, size: Size, gpu: Any) -> list[list[Tensor]]:
    """Pictures that are not trained on, in batches: the last quarter of the files."""
    rows = range(len(files) - len(files) // 4, len(files))
    batches = [list(rows[i : i + size.batch]) for i in range(0, len(rows), size.batch)]
    return [[tensor.to(gpu.device) for tensor in fetch(files, batch)] for batch in batches]


@torch.no_grad()
def validate(model: nn.Module, batches: list[list[Tensor]], gpu: Any) -> Any:
    """The mean loss on pictures that are not trained on."""
    losses = []
    for batch in batches:
        pictures, labels = (tensor.to(gpu.device) for tensor in batch)
        losses.append(forward(model, normalise(pictures), labels)[1])
    return torch.stack(losses).mean()


def to_host(module: nn.Module) -> Tensor:
    """All weights as one tensor on the host. It is complete when the GPU has caught up."""
    flat = torch.cat([p.detach().flatten() for p in module.parameters()])
    host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.device.type != "cpu")
    return host.copy_(flat, non_blocking=True)


def save(record: Record, step: int, model: nn.Module, averaged: nn.Module) -> None:
    """Every few steps, keep the weights and their average as they are now, in place of those kept before."""
    if step % SAVE_EVERY == 0:
        record.saved = {"step": step, "model": to_host(model), "averaged": to_host(averaged)}


def train(files: Files, size: Size, gpu: Any, steps: int, seed: int = 0) -> Iterator[Record]:
    """Train a new model for so many steps. The record is handed out after each step, to be looked at."""
    torch.manual_seed(seed)
    model = Net(size).to(gpu.device)
    averaged, optimizer, record = copy.deepcopy(model), make_optimizer(model), Record()
    rest = held_out(files, size, gpu)
    batches = DataLoader(
        Steps(files, size, seed, steps), batch_size=None, **loading(os.cpu_count() or 1, gpu)
    )
    for step, batch in enumerate(send(batches, gpu), start=1):
        optimizer.zero_grad()
        logits, loss = accumulate(model, batch, size.parts)
        length = clip(model)
        optimizer.step()
        average(averaged, model)
        log(record, loss, count_right(logits, batch[1]), length)
        remember(record, logits)
        if step % VALIDATE_EVERY == 0:
            record.held_out.append(validate(averaged, rest, gpu))
        save(record, step, model, averaged)
        yield record


if __name__ == "__main__":
    here = SimpleNamespace(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    with tempfile.TemporaryDirectory() as folder:
        shapes = draw_shapes(folder, 1024, Size().side)
        for record in train(shapes, Size(), here, steps=100):
            for loss, right, length in record.rows[-1:]:
                print(
                    f"step {len(record.guesses)}: loss {loss:.3f}, {right:.0f} right, gradient {length:.2f}"
                )
