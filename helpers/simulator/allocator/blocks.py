"""Blocks, the free lists they are kept in, and the driver that the segments come from."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

__all__ = ["DEFAULT_POOL", "Block", "Driver", "FreeList", "PoolId", "Segment"]

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class Segment:
    """An expandable segment: a range of addresses of which some pages are mapped. granularity: bytes a page."""

    __slots__ = ("address", "granularity", "size")

    def __init__(self, address: int, size: int, granularity: int) -> None:
        self.address, self.size, self.granularity = address, size, granularity


class Block:
    """A piece of a segment. prev and next are its neighbours in the same segment. Sizes in bytes."""

    __slots__ = (
        "address",
        "allocated",
        "events",
        "expandable",
        "frames",
        "gc_base",
        "mapped",
        "next",
        "pool",
        "prev",
        "requested",
        "segment_frames",
        "size",
        "stream",
        "uses",
    )

    def __init__(self, stream: int, size: int, pool: FreeList, address: int) -> None:
        self.stream, self.size, self.pool, self.address = stream, size, pool, address
        self.requested = 0  # bytes asked for
        self.allocated = False
        self.mapped = True  # False: addresses of an expandable segment without memory behind them
        self.prev: Block | None = None
        self.next: Block | None = None
        self.uses: set[int] = set()  # other streams, from record_stream
        self.events = 0  # events still to be reached before a freed block can be used again
        self.gc_base = 0
        self.expandable: Segment | None = None
        self.frames: Any = None  # where it was allocated
        self.segment_frames: Any = None  # where its segment was

    @property
    def split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def free(self) -> bool:
        """Not handed out, and no other stream still uses it."""
        return not (self.allocated or self.events or self.uses)


class FreeList:
    """The cached blocks of one pool, small or large, sorted by (size, address) for each stream."""

    def __init__(self, small: bool, owner: PoolId = DEFAULT_POOL) -> None:
        self.small, self.owner = small, owner
        self.blocks: dict[int, list[tuple[int, int, Block]]] = {}
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}  # by address
        self.searches = 0  # get_free_blocks_call_count, the clock of garbage collection

    def add(self, block: Block) -> None:
        block.gc_base = self.searches
        insort(self.blocks.setdefault(block.stream, []), (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        row = self.blocks[block.stream]
        # A pair sorts before the triple that begins with it.
        del row[bisect_left(row, (block.size, block.address))]  # type: ignore[type-var]

    def add_unmapped(self, block: Block) -> None:
        insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        row = self.unmapped[block.stream]
        del row[bisect_left(row, (block.address,))]  # type: ignore[type-var]

    def __iter__(self) -> Iterator[Block]:
        """By stream, then size, then address, as std::set<Block*, BlockComparatorSize>; a copy."""
        return iter([entry[2] for stream in sorted(self.blocks) for entry in self.blocks[stream]])


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
