"""The layer that the lesson trains."""

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
