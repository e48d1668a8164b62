"""What is asked of a snapshot: the peak and who held it, what stays, how scattered the free part is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from helpers.text.sizes import size_text

from .rebuild import History, history
from .snapshot import ALLOCATED, FREE, Frame, Snapshot, site_of


@dataclass(frozen=True, repr=False)
class Holder:
    """What one line of code holds. site: "model.py:12 forward"; without frames, the blocks' size in words.
    See :func:`holders`.
    """

    site: str
    bytes: int
    blocks: int

    def __repr__(self) -> str:
        return f"{self.site}: {size_text(self.bytes)} in {self.blocks} block{'s' if self.blocks != 1 else ''}"


@dataclass(frozen=True, repr=False)
class Peak:
    """The most that was allocated, bytes; `after` how many events; and who held it, largest first. See :func:`peak`."""

    bytes: int
    after: int
    reserved: int
    holders: tuple[Holder, ...]
    complete: bool
    evidence: str
    before: int = 0
    """Bytes that were allocated already when the recording began."""

    def __repr__(self) -> str:
        reserved = size_text(self.reserved)
        lines = [
            f"peak {size_text(self.bytes)} after event {self.after} (reserved {reserved}) · {self.evidence}"
        ]
        if not self.complete:
            already = f"with {size_text(self.before)} already allocated"
            lines.append(f"  the recording begins {already}: an earlier peak would not be seen")
        return "\n".join([*lines, *(f"  {holder}" for holder in self.holders[:10])])


def holders(snapshot: Snapshot) -> tuple[Holder, ...]:
    """Who holds allocated memory, by site, largest first.

    >>> [(holder.bytes, holder.blocks) for holder in memory.holders(snapshot)]
    [(46137344, 4), (4194304, 1)]
    """
    return _grouped((b.frames, b.size) for b in snapshot.blocks if b.state == ALLOCATED)


def peak(snapshot: Snapshot) -> Peak:
    """The first moment at which most was allocated, and who held it. Without events, the present state.

    >>> memory.peak(snapshot).bytes == snapshot.allocated
    True
    """
    return peak_of(history(snapshot))


def peak_of(found: History) -> Peak:
    after = int(found.allocated.argmax())
    live = found.heap(after).live.values()
    held = _grouped((block.frames, block.size) for block in live if block.state == ALLOCATED)
    bytes_, reserved = int(found.allocated[after]), int(found.reserved[after])
    return Peak(
        bytes_, after, reserved, held, found.complete, found.snapshot.evidence, int(found.allocated[0])
    )


def by_site(found: History, sites: Sequence[str]) -> np.ndarray:
    """Allocated bytes of each of these sites and of all others: (len(sites) + 1) × (n + 1) numbers, as in History."""
    rows = {site: i for i, site in enumerate(sites)}
    held = np.zeros((len(sites) + 1, len(found) + 1), dtype=np.int64)
    heap = found.heap(0).copy()
    for block in heap.live.values():
        if block.state == ALLOCATED:
            held[rows.get(_label(block.frames, block.size), -1), 0] += block.size
    conf = found.snapshot.conf
    for event in found.snapshot.events:
        before = heap.live.get(event.address) if event.action == "free_requested" else None
        heap.apply(event, conf, found.sizes.get(event.index))
        changed, sign = (before, -1) if before else (heap.live.get(event.address), 1)
        if changed is not None and event.action in ("alloc", "free_requested"):
            held[rows.get(_label(changed.frames, changed.size), -1), event.index + 1] = sign * changed.size
    return np.cumsum(held, axis=1)


def _label(frames: tuple[Frame, ...], size: int) -> str:
    """The site of a stack; the size where there is no stack."""
    return site_of(frames) or f"blocks of {size_text(size)} (no frames)"


def _grouped(blocks: Iterable[tuple[tuple[Frame, ...], int]]) -> tuple[Holder, ...]:
    """Blocks (frames, bytes) added up by site: largest first, then by name."""
    sums: dict[str, list[int]] = {}
    for frames, size in blocks:
        entry = sums.setdefault(_label(frames, size), [0, 0])
        entry[0] += size
        entry[1] += 1
    found = (Holder(site, nbytes, count) for site, (nbytes, count) in sums.items())
    return tuple(sorted(found, key=lambda holder: (-holder.bytes, holder.site)))


@dataclass(frozen=True, repr=False)
class Leak:
    """A line of code whose memory stays. per_step: bytes of each step's allocations that are still in use.

    grows: it left something behind in every step after the first, which weights and caches do not. See :func:`leaks`.
    """

    site: str
    bytes: int
    blocks: int
    per_step: tuple[int, ...]

    @property
    def grows(self) -> bool:
        return len(self.per_step) > 1 and all(self.per_step[1:])

    def __repr__(self) -> str:
        some = f"from {sum(map(bool, self.per_step))} of {len(self.per_step)} steps"
        how = "from every step" if self.grows else some
        return f"{self.site}: {self.blocks} blocks stay, {size_text(self.bytes)} in all, {how}"


def leaks(snapshot: Snapshot, steps: int | Sequence[int] = 4) -> tuple[Leak, ...]:
    """What was allocated in each step and is still in use at the end, by site: growing ones first, then by bytes.

    steps: event numbers where steps begin and the last one ends (`len(snapshot.events)` noted between steps), or
    how many equal parts to cut the recorded events into. What lived before the first event is left out. ValueError
    for steps out of order or out of range.

    >>> [leak.blocks for leak in memory.leaks(snapshot, steps=3)]
    [4, 1]
    """
    bounds = _bounds(len(snapshot.events), steps)
    rows: dict[str, list[tuple[int, int]]] = {}
    for born, frames, size in _alive(snapshot):
        step = next((i for i in range(len(bounds) - 1) if bounds[i] <= born < bounds[i + 1]), None)
        if step is not None:
            rows.setdefault(_label(frames, size), []).append((step, size))
    found = []
    for site, parts in rows.items():
        each = tuple(sum(size for step, size in parts if step == i) for i in range(len(bounds) - 1))
        found.append(Leak(site, sum(each), len(parts), each))
    return tuple(sorted(found, key=lambda leak: (not leak.grows, -leak.bytes, leak.site)))


def _alive(snapshot: Snapshot) -> list[tuple[int, tuple[Frame, ...], int]]:
    """(event that allocated it, frames, bytes) of every block in use at the end; event -1: before the first."""
    past = history(snapshot)
    heap = past.heap(len(past))
    return [(b.born, b.frames, b.size) for _, b in sorted(heap.live.items()) if b.state == ALLOCATED]


def _bounds(count: int, steps: int | Sequence[int]) -> list[int]:
    if isinstance(steps, int):
        if steps < 1:
            raise ValueError(f"steps={steps}: cut the events into 1 or more parts, or give where steps begin")
        return [round(i * count / steps) for i in range(steps + 1)]
    bounds = [int(step) for step in steps]
    if len(bounds) < 2 or bounds != sorted(bounds) or bounds[0] < 0 or bounds[-1] > count:
        raise ValueError(
            f"steps={bounds}: give at least two event numbers from 0 to {count}, in order: where each step begins, "
            "and where the last one ends"
        )
    return bounds


@dataclass(frozen=True, repr=False)
class Fragmentation:
    """Free memory that PyTorch holds, bytes. scattered: 1 - largest / free, 0 where one block holds it all.

    free: in free blocks; largest: the largest of them, the most that one tensor could get without cudaMalloc;
    stuck: free bytes that empty_cache() cannot give back, because tensors live in the same segment.
    See :func:`fragmentation`.
    """

    free: int
    largest: int
    stuck: int
    blocks: int
    evidence: str

    @property
    def scattered(self) -> float:
        return 1 - self.largest / self.free if self.free else 0.0

    def __repr__(self) -> str:
        return (
            f"free {size_text(self.free)} in {self.blocks} blocks, the largest {size_text(self.largest)} "
            f"({self.scattered:.0%} is in the others) · {size_text(self.stuck)} in segments still in use · {self.evidence}"
        )


def fragmentation(snapshot: Snapshot) -> Fragmentation:
    """How scattered the free memory is. (Streams and pools share none of it: a sum over all of them.)

    >>> memory.fragmentation(snapshot).free
    4194304
    """
    free = [block.size for block in snapshot.blocks if block.state == FREE]
    stuck = sum(free) - snapshot.releasable
    return Fragmentation(sum(free), max(free, default=0), stuck, len(free), snapshot.evidence)
