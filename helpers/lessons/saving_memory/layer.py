"""The layer that the lesson trains, a stack of them, and the loss of its experiments."""

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    """A Block as the lesson's set-up cell has it: x + down(act(up(norm(x)))), so many times as wide inside."""

    def __init__(self, width: int, wider: int = 4, act: Any = nn.functional.gelu) -> None:
        super().__init__()
        self.norm, self.act = nn.LayerNorm(width), act
        self.up, self.down = nn.Linear(width, wider * width), nn.Linear(wider * width, width)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.down(self.act(self.up(self.norm(x))))


def squares(out: torch.Tensor) -> torch.Tensor:
    """The loss of the lesson's experiments: one number."""
    return out.square().mean()


def stack(width: int, depth: int) -> nn.Sequential:
    return nn.Sequential(*[Layer(width) for _ in range(depth)])
