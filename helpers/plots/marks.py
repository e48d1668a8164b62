"""What may stand in the cells of a storage picture besides their numbers: labels, and colours by an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

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
    return replace(walk, labels=_labels(walk, labels), **_groups(walk, colour_by))


def _labels(walk: Walk, labels: Labels | None) -> Mapping[int, str]:
    found: dict[int, str] = {}
    if labels is not None:
        for cell, index in zip(walk.cells, product(*map(range, walk.shape)), strict=True):
            found.setdefault(cell, str(labels(*index)))
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
