"""Blocks, the free lists they are kept in, private pools, and the driver that the segments come from."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class Expandable(NamedTuple):
    """A range of addresses, from `address` on, of which some pages are mapped. granularity: bytes a page."""

    address: int
    granularity: int


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """A piece of a segment. prev and next are its neighbours in the same segment. Sizes in bytes."""

    stream: int
    size: int
    pool: FreeList
    address: int
    expandable: Expandable | None = None  # the segment it lies in, if that is one that grows
    requested: int = 0  # bytes asked for
    allocated: bool = False
    mapped: bool = True  # False: addresses of an expandable segment without memory behind them
    prev: Block | None = None
    next: Block | None = None
    uses: set[int] = field(default_factory=set)  # other streams, from record_stream
    events: int = 0  # events still to be reached before a freed block can be used again
    frames: Any = None  # where it was allocated
    segment_frames: Any = None  # where its segment was

    @property
    def split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def free(self) -> bool:
        """Not handed out, and no other stream still uses it."""
        return not (self.allocated or self.events or self.uses)

    @property
    def reach(self) -> int:
        """Bytes that it has, or can grow to."""
        following = self.next
        return self.size + (following.size if following is not None and not following.mapped else 0)

    def place(self, before: Block | None, after: Block | None) -> None:
        """Put it between two neighbours."""
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self
        self.prev, self.next = before, after


class FreeList:
    """The cached blocks of one pool, small or large, sorted by (size, address) for each stream."""

    def __init__(self, small: bool, owner: PoolId = DEFAULT_POOL) -> None:
        self.small, self.owner = small, owner
        self.blocks: dict[int, list[tuple[Any, ...]]] = {}  # stream → (size, address, block)
        self.unmapped: dict[int, list[tuple[Any, ...]]] = {}  # stream → (address, block)

    def add(self, block: Block) -> None:
        if block.mapped:
            insort(self.blocks.setdefault(block.stream, []), (block.size, block.address, block))
        else:
            insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove(self, block: Block) -> None:
        # A key sorts before the entry that begins with it.
        if block.mapped:
            row = self.blocks[block.stream]
            del row[bisect_left(row, (block.size, block.address))]
        else:
            row = self.unmapped[block.stream]
            del row[bisect_left(row, (block.address,))]

    def from_size(self, stream: int, size: int) -> tuple[list[tuple[Any, ...]], int]:
        """The stream's cached blocks, and the place of the first that has at least `size` bytes."""
        row = self.blocks.get(stream, [])
        return row, bisect_left(row, (size, 0))

    def __iter__(self) -> Iterator[Block]:
        """By stream, then size, then address, as std::set<Block*, BlockComparatorSize>; a copy."""
        return iter([entry[2] for stream in sorted(self.blocks) for entry in self.blocks[stream]])


class PrivatePool:
    """Memory set apart, for CUDA graphs. uses: graphs that hold it; segments: what it has from the driver."""

    def __init__(self, pool: PoolId) -> None:
        self.uses, self.segments = 1, 0
        self.small, self.large = FreeList(True, pool), FreeList(False, pool)


class Driver:
    """cudaMalloc, cudaFree and cuMemMap of one device: a count of bytes, and addresses never given twice.

    used: by this process's segments. lifted: grant everything (the simulation of what follows an
    out-of-memory error); ends by itself once everything fits again.
    """

    ALIGN = 2 << 20

    def __init__(self, total: int, context: int = 0) -> None:
        self.total, self.context, self.used, self.lifted = total, context, 0, False
        self._next = 0x7F_0000_0000_00

    @property
    def free(self) -> int:
        return max(0, self.total - self.context - self.used)

    def malloc(self, size: int) -> int | None:
        """The address of a new segment, or None where the device is full."""
        return self.reserve(size) if self.map(size) else None

    def map(self, size: int) -> bool:
        """Take physical memory; False where there is not enough."""
        if not self.lifted and size > self.total - self.context - self.used:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size
        if self.used + self.context <= self.total:
            self.lifted = False

    def reserve(self, size: int) -> int:
        """Addresses, without memory."""
        address = self._next
        self._next += -(-size // self.ALIGN) * self.ALIGN
        return address
