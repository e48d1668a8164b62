"""What may stand in the cells of a storage picture besides their numbers: labels, and colours by an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from . import style
from .walk import Walk

if TYPE_CHECKING:
    import torch

Labels = str | Callable[..., object] | Sequence[object]
MAX_LABEL = 10
"""Longest label, characters."""


def marked(walk: Walk, tensor: torch.Tensor, labels: Labels | None, colour_by: int | None) -> Walk:
    """`walk` with labels in its cells and colours; `tensor` is any tensor of the storage that is drawn.

    `labels`: "values"; a function of an element's index; or one thing for each cell of the storage. A cell
    of several elements is marked for the first of them. `colour_by`: the dimension whose index chooses the
    colour. ValueError for labels that are too long or do not fit the storage, a dimension that is not
    there, or more indices than there are colours.
    """
    return replace(walk, labels=_labels(walk, tensor, labels), **_groups(walk, colour_by))


def _labels(walk: Walk, tensor: torch.Tensor, labels: Labels | None) -> Mapping[int, str]:
    if labels is None:
        return {}
    found: dict[int, str] = {}
    if callable(labels):
        indices = product(*map(range, walk.shape))
        for cell, index in zip(walk.cells, indices, strict=True):
            found.setdefault(cell, str(labels(*index)))
    elif isinstance(labels, str):
        if labels != "values":
            raise ValueError(
                f'labels={labels!r}: give "values", a function of the index, or one label for each cell'
            )
        values = tensor.detach().as_strided((walk.size,), (1,), 0).tolist()
        found = {cell: f"{v:.4g}" if isinstance(v, float) else str(v) for cell, v in enumerate(values)}
    else:
        if len(labels) != walk.size:
            raise ValueError(
                f"{len(labels)} labels for the {walk.size} cells of {walk.name or 'this storage'}: give one for "
                "each, or a function of the index, which fits every storage"
            )
        found = {cell: str(label) for cell, label in enumerate(labels)}
    long = next((label for label in found.values() if len(label) > MAX_LABEL), None)
    if long:
        raise ValueError(f"label {long!r} is longer than the {MAX_LABEL} characters that a cell has room for")
    return found


def _groups(walk: Walk, colour_by: int | None) -> dict[str, Any]:
    if colour_by is None:
        return {}
    dims = len(walk.shape)
    if not -dims <= colour_by < dims:
        raise ValueError(f"colour_by={colour_by}: {walk.name or 'this tensor'} has {dims} dimensions")
    dimension = colour_by % dims
    if walk.shape[dimension] > len(style.SERIES):
        raise ValueError(
            f"colour_by={colour_by}: {walk.shape[dimension]} indices, and at most {len(style.SERIES)} colours "
            "that can be told apart"
        )
    groups: dict[int, int] = {}
    for cell, index in zip(walk.cells, product(*map(range, walk.shape)), strict=True):
        groups.setdefault(cell, index[dimension])
    return {"groups": groups, "dimension": dimension}
