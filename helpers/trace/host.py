"""What a host thread was doing at each moment: calls nest, and the innermost one counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import names as words
from .columns import Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Nest:
    """start_ns, end_ns, row: pieces of time, disjoint and in order, and the innermost event in each.

    parent: for every row of the trace, the row that encloses it on its thread; -1 for none.
    """

    start_ns: Ints
    end_ns: Ints
    row: Ints
    parent: Ints

    def outermost(self, row: int, t: Trace, kind: str) -> int:
        """The outermost row of that kind around `row` (itself included); -1 for none."""
        found, at = -1, row
        while at >= 0:
            found = at if words.KINDS[t.kind[at]] == kind else found
            at = int(self.parent[at])
        return found

    def nearest(self, row: int, t: Trace, kind: str) -> int:
        """The nearest row of that kind around `row` (itself included); -1 for none."""
        while row >= 0 and words.KINDS[t.kind[row]] != kind:
            row = int(self.parent[row])
        return row


def nest(t: Trace, threads: Ints | None = None, kinds: tuple[str, ...] = ("operator",)) -> Nest:
    """The nesting of events of these kinds on these threads (None: all). Pieces of several threads overlap."""
    chosen = t.of(*kinds)
    if threads is not None:
        chosen &= np.isin(t.thread, threads)
    rows = np.flatnonzero(chosen)
    parent = np.full(len(t), -1, np.int64)
    pieces: list[tuple[int, int, int]] = []
    by_thread = rows[np.argsort(t.thread[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(t.thread[by_thread])) + 1
    for part in np.split(by_thread, cuts):
        _nest_thread(t, part, parent, pieces)
    table = np.array(sorted(pieces), np.int64).reshape(-1, 3)
    return Nest(table[:, 0], table[:, 1], table[:, 2], parent)


def _nest_thread(t: Trace, rows: Ints, parent: Ints, pieces: list[tuple[int, int, int]]) -> None:
    """One thread's events, already in order of start with the longer first."""
    stack: list[tuple[int, int]] = []  # (row, end), innermost last
    now = 0
    for row, start, end in zip(
        rows.tolist(), t.start_ns[rows].tolist(), t.end_ns[rows].tolist(), strict=True
    ):
        while stack and stack[-1][1] <= start:
            inner, stop = stack.pop()
            if stop > now:
                pieces.append((now, stop, inner))
                now = stop
        if stack:
            if start > now:
                pieces.append((now, start, stack[-1][0]))
            parent[row] = stack[-1][0]
            end = min(end, stack[-1][1])  # clocks are rounded: a child never outlives its parent
        now = max(now, start)
        stack.append((row, end))
    while stack:
        inner, stop = stack.pop()
        if stop > now:
            pieces.append((now, stop, inner))
            now = stop
