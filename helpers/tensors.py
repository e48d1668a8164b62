"""The tensors in what is handed to a function or comes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import torch


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
