"""What stays: memory allocated in each step and never freed, and what changed between two snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .analysis import Holder, grouped, label
from .rebuild import history
from .sites import Frame
from .sizes import size_text
from .snapshot import ALLOCATED, Snapshot

__all__ = ["Diff", "Leak", "diff", "leaks", "survivors"]


@dataclass(frozen=True, repr=False)
class Leak:
    """A line of code whose memory stays. per_step: bytes of each step's allocations that are still in use.

    grows: it left something behind in every step after the first, which weights and caches do not.
    """

    site: str
    bytes: int
    blocks: int
    per_step: tuple[int, ...]

    @property
    def grows(self) -> bool:
        return len(self.per_step) > 1 and all(self.per_step[1:])

    def __str__(self) -> str:
        how = (
            "in every step"
            if self.grows
            else f"in {sum(map(bool, self.per_step))} of {len(self.per_step)} steps"
        )
        return f"{self.site}: {size_text(self.bytes)} in {self.blocks} blocks stay, {how}"

    __repr__ = __str__


def leaks(snapshot: Snapshot, steps: int | Sequence[int] = 4) -> tuple[Leak, ...]:
    """What was allocated in each step and is still in use at the end, by site: growing ones first, then by bytes.

    steps: event numbers where steps begin and the last one ends (`len(snapshot.events)` noted between steps), or
    how many equal parts to cut the recorded events into. What lived before the first event is left out. ValueError
    for steps out of order or out of range.
    """
    bounds = _bounds(len(snapshot.events), steps)
    rows: dict[str, list[tuple[int, int]]] = {}
    for born, frames, size in _alive(snapshot):
        step = next((i for i in range(len(bounds) - 1) if bounds[i] <= born < bounds[i + 1]), None)
        if step is not None:
            rows.setdefault(label(frames, size), []).append((step, size))
    found = []
    for site, parts in rows.items():
        each = tuple(sum(size for step, size in parts if step == i) for i in range(len(bounds) - 1))
        found.append(Leak(site, sum(each), len(parts), each))
    return tuple(sorted(found, key=lambda leak: (not leak.grows, -leak.bytes, leak.site)))


def survivors(snapshot: Snapshot, start: int = 0, end: int | None = None) -> tuple[Holder, ...]:
    """Who allocated in events start … end - 1 what is still in use at the end of the recording."""
    start, end = _bounds(len(snapshot.events), [start, len(snapshot.events) if end is None else end])
    return grouped((frames, size) for born, frames, size in _alive(snapshot) if start <= born < end)


def _alive(snapshot: Snapshot) -> list[tuple[int, tuple[Frame, ...], int]]:
    """(event that allocated it, frames, bytes) of every block in use at the end; event -1: before the first."""
    found = history(snapshot)
    heap = found.heap(len(found))
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
class Diff:
    """after minus before, bytes. sites: (site, bytes more or less in use), the largest change first.

    segments_new, segments_gone: how many segments came and went, by address and size.
    """

    allocated: int
    reserved: int
    inactive: int
    sites: tuple[tuple[str, int], ...]
    segments_new: int
    segments_gone: int
    evidence: str

    def __str__(self) -> str:
        def signed(nbytes: int) -> str:
            return ("+" if nbytes > 0 else "") + size_text(nbytes)

        lines = [
            f"allocated {signed(self.allocated)} · reserved {signed(self.reserved)} · free inside "
            f"{signed(self.inactive)} · segments +{self.segments_new} −{self.segments_gone} · {self.evidence}"
        ]
        return "\n".join([*lines, *(f"  {site}: {signed(nbytes)}" for site, nbytes in self.sites[:10])])

    __repr__ = __str__


def diff(before: Snapshot, after: Snapshot) -> Diff:
    """What changed between two snapshots of one device. ValueError if their evidence differs."""
    if before.evidence != after.evidence:
        raise ValueError(
            f"one snapshot is {before.evidence}, the other {after.evidence}: their difference means nothing"
        )
    sums: dict[str, int] = {}
    for snapshot, sign in ((before, -1), (after, 1)):
        for block in snapshot.blocks:
            if block.state == ALLOCATED:
                name = label(block.frames, block.size)
                sums[name] = sums.get(name, 0) + sign * block.size
    sites = sorted(((s, n) for s, n in sums.items() if n), key=lambda row: (-abs(row[1]), row[0]))
    old, new = ({(part.address, part.size) for part in one.segments} for one in (before, after))
    return Diff(
        after.allocated - before.allocated, after.reserved - before.reserved, after.inactive - before.inactive,
        tuple(sites), len(new - old), len(old - new), before.evidence,
    )  # fmt: skip
