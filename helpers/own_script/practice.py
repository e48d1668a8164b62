"""A training script to try a tool on, before it is tried on one's own: the six names that each lesson's own-script code uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from helpers.own_script.as_cuda import CudaNames, names
from helpers.simulator import SimGPU, simulate


class Toy(NamedTuple):
    """What a training script has."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: nn.Module
    loader: DataLoader[Any]
    device: str
    step: Callable[[Any], torch.Tensor]


def toy(device: str = "cpu", *, width: int = 32, batch: int = 8, pinned: bool = False) -> Toy:
    """A model of two linear layers, AdamW, cross-entropy and a loader of 8 batches. Seeded: the same at every call.

    device: "cuda" inside `simulated_cuda`, or where there is a GPU. width: of the hidden layer; x is (batch, width / 2).
    batch: samples in one. pinned: the loader's batches lie in pinned memory.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width // 2, width), nn.ReLU(), nn.Linear(width, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    data = TensorDataset(torch.randn(8 * batch, width // 2), torch.randint(4, (8 * batch,)))
    loader = DataLoader(data, batch_size=batch, pin_memory=pinned)

    def step(batch: Any) -> torch.Tensor:
        x, y = (part.to(device) for part in batch)
        loss: torch.Tensor = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Toy(model, optimizer, loss_fn, loader, device, step)


@contextmanager
def simulated_cuda(card: str = "H100", *, values: bool = False) -> Iterator[SimGPU]:
    """Within this block "cuda" is that simulated card, and torch.cuda's names are the card's.

    values: tensors on the card have true values. RuntimeError inside another simulated GPU's block.
    """
    with (gpu := simulate(card, values=values)), names(gpu), CudaNames(gpu):
        yield gpu
