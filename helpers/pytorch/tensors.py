"""The tensors in what is handed to a function or comes out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import torch

#: dimensions → the layout of images with their channels last
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


#: what most arguments are, besides tensors: looked into no further
_PLAIN = {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout}


def tensors(tree: Any) -> list[torch.Tensor]:
    """Every tensor in nested tuples, lists, dicts and dataclasses, in order; one that is there twice comes twice."""
    leaves: list[torch.Tensor] = []
    _collect((tree,), leaves)
    return leaves


def _collect(items: Iterable[Any], found: list[torch.Tensor]) -> None:
    # This runs several times for every operator that is simulated or counted.
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif type(item) in _PLAIN:
            continue
        elif isinstance(item, (tuple, list)):
            _collect(item, found)
        elif isinstance(item, dict):
            _collect(item.values(), found)
        elif is_dataclass(item) and not isinstance(item, type):
            _collect(vars(item).values(), found)


def channels_last(tensor: Any) -> torch.memory_format | None:
    """The layout of a tensor that has its channels last, and could not as well have them second; else None."""
    layout = CHANNELS_LAST.get(tensor.dim()) if isinstance(tensor, torch.Tensor) else None
    if layout is None or tensor.is_contiguous() or not tensor.is_contiguous(memory_format=layout):
        return None
    return layout
