"""The tensors in what is handed to a function or comes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import torch

#: dimensions → the layout of images with their channels last
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists, dicts and dataclasses, in order; one that is there twice comes twice."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)
    elif is_dataclass(tree) and not isinstance(tree, type):
        for item in vars(tree).values():
            yield from tensors(item)


def channels_last(tensor: Any) -> torch.memory_format | None:
    """The layout of a tensor that has its channels last, and could not as well have them second; else None."""
    layout = CHANNELS_LAST.get(tensor.dim()) if isinstance(tensor, torch.Tensor) else None
    if layout is None or tensor.is_contiguous() or not tensor.is_contiguous(memory_format=layout):
        return None
    return layout
