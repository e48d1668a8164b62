"""What the allocator held after each event: rebuilt backwards from the final state, then played forwards.

A snapshot holds the final state in full and the last `max_entries` events. Undoing the events one by one from the
end gives the state before the first of them, so a history that was cut still adds up. Sizes in alloc and free events
are those asked for (`orig_size`, `requested_size` in CUDACachingAllocator.cpp); how much a block took is known for
blocks still there at the end, and is worked out for the others by the allocator's own rule for splitting.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .heap import Heap, Live, Span, pool_of
from .snapshot import ALLOCATED, PENDING, Frame, Segment, Snapshot

_STRIDE = 4096  # a copy of the heap every so many events, so that looking at one event costs few others

# The frames of a free are those of the line that freed (`context` "all", torch's default), so they do not tell who
# allocated what was there before.
_BEFORE = (Frame("", 0, "allocated before the recording"),)


@dataclass(repr=False)
class History:
    """Bytes before the first event and after each: arrays of n + 1 numbers for n events.

    allocated, reserved, pending: bytes. complete: whether the events reach back to an empty allocator. unmatched:
    events that do not fit what follows (0 in what torch writes). See :func:`history`.
    """

    snapshot: Snapshot
    allocated: np.ndarray
    reserved: np.ndarray
    pending: np.ndarray
    complete: bool
    unmatched: int
    sizes: dict[int, int] = field(default_factory=dict)
    _kept: list[Heap] = field(default_factory=list)
    _last: tuple[int, Heap] | None = None

    def __len__(self) -> int:
        return len(self.snapshot.events)

    def heap(self, k: int) -> Heap:
        """The heap after k events, 0 … n; not to be changed. IndexError outside."""
        if not 0 <= k <= len(self):
            raise IndexError(f"{k} events of {len(self)}: the state is known after 0 to {len(self)}")
        if self._last is None or not self._last[0] <= k < self._last[0] + _STRIDE:
            self._last = (k // _STRIDE * _STRIDE, self._kept[k // _STRIDE].copy())
        at, heap = self._last
        conf = self.snapshot.conf
        for event in self.snapshot.events[at:k]:
            heap.apply(event, conf, self.sizes.get(event.index))
        self._last = (k, heap)
        return heap

    def segments(self, k: int) -> tuple[Segment, ...]:
        """Segments and blocks after k events, by address."""
        return self.heap(k).segments()

    def __repr__(self) -> str:
        cut = "from an empty allocator" if self.complete else "cut: it begins with memory already in use"
        return f"{len(self)} events, {cut} · {self.snapshot.evidence}"


def history(snapshot: Snapshot) -> History:
    """The state after every event of the snapshot.

    >>> memory.history(snapshot).allocated.tolist()[-1] == snapshot.allocated
    True
    """
    start, sizes, unmatched = _backwards(snapshot)
    complete = not start.live and not start.spans
    heap, conf = start.copy(), snapshot.conf
    rows = [(heap.allocated, heap.reserved, heap.pending)]
    kept = [start]
    for i, event in enumerate(snapshot.events):
        heap.apply(event, conf, sizes.get(i))
        rows.append((heap.allocated, heap.reserved, heap.pending))
        if (i + 1) % _STRIDE == 0:
            kept.append(heap.copy())
    allocated, reserved, pending = np.array(rows, dtype=np.int64).T
    return History(snapshot, allocated, reserved, pending, complete, unmatched, sizes, kept)


def _backwards(snapshot: Snapshot) -> tuple[Heap, dict[int, int], int]:
    """The heap before the first event; the sizes of allocations that live to the end; events that do not fit."""
    heap, conf, unmatched = Heap.of(snapshot), snapshot.conf, 0
    sizes: dict[int, int] = {}
    final = set(heap.live)  # addresses whose block is still the one of the end
    for i in range(len(snapshot.events) - 1, -1, -1):
        event, at = snapshot.events[i], snapshot.events[i].address
        match event.action:
            case "alloc":
                block = heap.drop(at)
                if block is None:
                    unmatched += 1
                elif at in final:
                    sizes[i] = block.size
                    final.discard(at)
            case "free_completed":
                if at in heap.live:
                    unmatched += 1
                else:
                    heap.put(at, Live(conf.round_size(event.size), event.size, _BEFORE, -1, PENDING))
            case "free_requested":
                if at in heap.live:
                    heap.mark(at, ALLOCATED)
                else:
                    unmatched += 1
            case "segment_alloc":
                unmatched += heap.remove_span(at) is None
            case "segment_free":
                heap.add_span(Span(at, event.size, event.stream, pool_of(event.size)))
            case "segment_map":
                heap.unmap(at, event.size)
            case "segment_unmap":
                heap.map(event, pool_of(event.size))
    return heap, sizes, unmatched
