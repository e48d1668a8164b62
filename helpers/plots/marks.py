"""What may stand in the cells of a storage picture besides their numbers: labels, and colours by an index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from . import style
from .walk import Walk

Labels = Callable[..., object]
MAX_LABEL = 10
"""Longest label, characters."""


def marked(walk: Walk, labels: Labels | None, colour_by: int | None) -> Walk:
    """`walk` with labels in its cells and colours.

    `labels`: a function of an element's index. A cell of several elements is marked for the first of them.
    `colour_by`: the dimension whose index chooses the colour. ValueError for labels that are too long, a
    dimension that is not there, or more indices than there are colours.
    """
    first: dict[int, tuple[int, ...]] = {}
    for cell, index in zip(walk.cells, product(*map(range, walk.shape)), strict=True):
        first.setdefault(cell, index)
    said = {cell: str(labels(*index)) for cell, index in first.items()} if labels else {}
    if long := next((label for label in said.values() if len(label) > MAX_LABEL), None):
        raise ValueError(f"label {long!r} is longer than the {MAX_LABEL} characters that a cell has room for")
    if colour_by is None:
        return replace(walk, labels=said)
    dims = len(walk.shape)
    if not -dims <= colour_by < dims:
        raise ValueError(f"colour_by={colour_by}: {walk.name or 'this tensor'} has {dims} dimensions")
    dimension = colour_by % dims
    if walk.shape[dimension] > len(style.SERIES):
        raise ValueError(
            f"colour_by={colour_by}: {walk.shape[dimension]} indices, and at most {len(style.SERIES)} colours "
            "that can be told apart"
        )
    groups = {cell: index[dimension] for cell, index in first.items()}
    return replace(walk, labels=said, groups=groups, dimension=dimension)
