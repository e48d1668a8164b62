"""Sets of time as sorted, disjoint spans: two arrays, starts and ends. Plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[Any]
"""Whole nanoseconds, or seconds."""
Spans = tuple[Times, Times]
"""Starts and ends, sorted; no two touch."""

NOTHING: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Times, ends: Times) -> Spans:
    """The time covered by any of these intervals, as spans. Intervals of no length cover nothing."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return NOTHING
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return starts[first], ends[last]


def clip(spans: Spans, begin: int, end: int) -> Spans:
    """The part of `spans` between two moments."""
    starts, ends = np.maximum(spans[0], begin), np.minimum(spans[1], end)
    keep = ends > starts
    return starts[keep], ends[keep]


def complement(spans: Spans, begin: int, end: int) -> Spans:
    """The time between two moments that `spans` do not cover."""
    starts, ends = clip(spans, begin, end)
    a, b = np.concatenate(([begin], ends)), np.concatenate((starts, [end]))
    keep = b > a
    return a[keep], b[keep]


def intersection(left: Spans, right: Spans) -> Spans:
    """The time that is in both."""
    if not len(left[0]) or not len(right[0]):
        return NOTHING
    begin, end = min(left[0][0], right[0][0]), max(left[1][-1], right[1][-1])
    a, b = complement(left, begin, end), complement(right, begin, end)
    return complement(union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1]))), begin, end)


def length(spans: Spans) -> int:
    """Total length."""
    return int((spans[1] - spans[0]).sum())


def inside(spans: Spans, times: Times) -> NDArray[np.bool_]:
    """For each moment, whether it lies in a span (its start included, its end not)."""
    place = np.searchsorted(spans[0], times, side="right") - 1
    if not len(spans[0]):
        return np.zeros(len(times), bool)
    return (place >= 0) & (times < spans[1][np.maximum(place, 0)])


def before(spans: Spans, times: NDArray[Any]) -> NDArray[np.float64]:
    """How much of the spans lies before each moment: flat outside them, steep inside."""
    if not len(spans[0]):
        return np.zeros(len(times))
    done = np.cumsum(spans[1] - spans[0])
    edges = np.stack(spans, 1).ravel()
    return np.interp(times, edges, np.stack((done - (spans[1] - spans[0]), done), 1).ravel())
