"""What the allocator has reserved from the device: segments, and the cached blocks in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.simulator.allocator.blocks import Block, Driver, Expandable, FreeList, PoolId, PrivatePool
from helpers.simulator.allocator.conf import LARGE_SEGMENT, SMALL_SEGMENT, UNLIMITED, Conf
from helpers.simulator.allocator.reports import History, Stats


class Reserved:
    """Segments come from the driver and go back to it; free blocks are searched, grown, merged.

    taken: bytes from the driver; allowed: how many there may be (None: no limit). changed(nbytes) is called
    when the driver gave a segment, or pages, of that size; or, below 0, took them back.
    """

    def __init__(
        self, conf: Conf, driver: Driver, stats: Stats, history: History, changed: Callable[[int], None]
    ) -> None:
        self.conf, self.driver, self._changed = conf, driver, changed
        self._stats, self._history = stats, history
        self.small, self.large = FreeList(True), FreeList(False)
        self.private: dict[PoolId, PrivatePool] = {}
        self.taken = 0
        self.allowed: int | None = None

    def lists(self) -> list[FreeList]:
        """Every free list, in get_all_blocks' order."""
        return [self.small, self.large, *(x for p in self.private.values() for x in (p.small, p.large))]

    def _count(self, free: FreeList, nbytes: int) -> None:
        """The driver gave that many bytes, or took them back."""
        self.taken += nbytes
        self._stats.change(free.small, (self._stats.reserved, nbytes))
        self._stats.counts["num_device_alloc" if nbytes > 0 else "num_device_free"] += 1
        self._changed(nbytes)

    # ------------------------------------------------------------------------------------ cached blocks

    def find(self, free: FreeList, stream: int, size: int) -> Block | None:
        """Take the smallest cached block of the stream that fits (get_free_block)."""
        conf = self.conf
        row, place = free.from_size(stream, size)
        if place == len(row):
            return None
        block: Block = row[place][2]
        # A block that can grow counts with what it can grow to.
        while block.expandable is not None and place + 1 < len(row) and row[place + 1][2].reach < block.reach:
            place += 1
            block = row[place][2]
        limit = conf.max_split_size
        if (size < limit <= block.size) or (size >= limit and block.size >= size + LARGE_SEGMENT):
            return None
        del row[place]
        return block

    def merge(self, block: Block, other: Block | None) -> int:
        """Take a free neighbour in; how many bytes it had, 0 where it could not be taken (try_merge_blocks)."""
        if other is None or not other.free or other.mapped != block.mapped:
            return 0
        other.pool.remove(other)
        if block.prev is other:
            block.address, block.segment_frames = other.address, other.segment_frames
            block.place(other.prev, block.next)
        else:
            block.place(block.prev, other.next)
        block.size += other.size
        return other.size

    # ------------------------------------------------------------------------------------ from the driver

    def new_segment(self, free: FreeList, stream: int, size: int, where: Any) -> Block | None:
        """cudaMalloc, or more pages for an expandable segment; None where there is no room (alloc_block)."""
        wanted = self.conf.segment_size(size)
        if self.allowed is not None and self.taken + wanted > self.allowed and not self.driver.lifted:
            return None
        if self.conf.expandable_segments:
            block = self._expand(stream, free, size, where)
        else:
            address = self.driver.malloc(wanted)
            block = None if address is None else Block(stream, wanted, free, address)
        if block is None:
            return None
        if free.owner in self.private:
            self.private[free.owner].segments += 1
        if block.expandable is None:
            self._stats.change(free.small, (self._stats.segment, 1))
            self._count(free, wanted)
            block.segment_frames = where
            self._history.add("segment_alloc", block.address, wanted, stream, free.owner, where)
        return block

    def _expand(self, stream: int, free: FreeList, size: int, where: Any) -> Block | None:
        """A free block of at least `size` bytes, grown if need be (try_allocate_expandable_block).

        Of expandable segments there is one for each stream and pool, a range of addresses whose end is mapped
        page by page (Note [Expandable Segments]).
        """
        block = self._room(stream, free, size)
        if not block.mapped and not self._map(block, min(block.size, size), where):
            return None
        while block.size < size:
            following = block.next
            assert following is not None
            if not self._map(following, min(size - block.size, following.size), where):
                return None
            block = following  # which took the free block before it in
        free.remove(block)
        return block

    def _room(self, stream: int, free: FreeList, size: int) -> Block:
        """The lowest addresses where the request would fit, free or unmapped (find_expandable_block)."""
        for _, unmapped in free.unmapped.get(stream, ()):
            first: Block = unmapped.prev if unmapped.prev is not None and unmapped.prev.free else unmapped
            block: Block | None = first
            room = 0
            while room < size and block is not None and block.free:
                room += block.size
                block = block.next
            if room >= size:
                return first
        granularity = SMALL_SEGMENT if free.small else LARGE_SEGMENT
        # Addresses for 1 1/8 of the device's memory (ExpandableSegment's constructor).
        reach = -(-(self.driver.total + self.driver.total // 8) // granularity) * granularity
        address = self.driver.reserve(reach)
        block = Block(stream, reach, free, address, Expandable(address, granularity))
        block.mapped = False
        free.add(block)
        return block

    def _map(self, block: Block, size: int, where: Any) -> bool:
        """Put memory behind the beginning of an unmapped block (map_block); all of it, or nothing."""
        segment = block.expandable
        assert segment is not None
        size = -(-size // segment.granularity) * segment.granularity
        if not self.driver.map(size):
            return False
        free, address = block.pool, block.address
        free.remove(block)
        block.mapped = True
        if size < block.size:
            rest = Block(block.stream, block.size - size, free, address + size, segment)
            rest.mapped = False
            rest.place(block, block.next)
            free.add(rest)
            block.size = size
        self.merge(block, block.prev)
        self.merge(block, block.next)
        free.add(block)
        self._count(free, size)
        self._history.add("segment_map", address, size, block.stream, free.owner, where)
        if block.prev is None and not block.segment_frames:
            block.segment_frames = where
        return True

    # ------------------------------------------------------------------------------------ back to the driver

    def release(self, free: FreeList) -> None:
        """Every segment without a block in use goes back, and whole pages of those that grow."""
        for block in free:
            if block.expandable is not None:
                self._unmap(block)
            elif not block.split:
                self._release_segment(block)

    def _release_segment(self, block: Block) -> None:
        """cudaFree of one whole segment (release_block)."""
        free, stats = block.pool, self._stats
        self._history.add(
            "segment_free", block.address, block.size, block.stream, free.owner, block.segment_frames
        )
        free.remove(block)
        self.driver.release(block.size)
        if free.owner in self.private:
            self.private[free.owner].segments -= 1
        stats.change(free.small, (stats.segment, -1))
        self._count(free, -block.size)

    def _unmap(self, block: Block) -> None:
        """Return the whole pages of a free block to the device (unmap_block)."""
        segment, free = block.expandable, block.pool
        assert segment is not None
        unit = segment.granularity
        begin = segment.address + -(-(block.address - segment.address) // unit) * unit
        end = segment.address + (block.address + block.size - segment.address) // unit * unit
        if begin >= end:
            return
        free.remove(block)
        if before := begin - block.address:
            head = Block(block.stream, before, free, block.address, segment)
            head.place(block.prev, block)
            free.add(head)
        if after := block.address + block.size - end:
            tail = Block(block.stream, after, free, end, segment)
            tail.place(block, block.next)
            free.add(tail)
        block.address, block.size, block.mapped = begin, end - begin, False
        self.merge(block, block.prev)
        self.merge(block, block.next)
        free.add(block)
        self.driver.release(end - begin)
        self._count(free, begin - end)
        if free.owner in self.private:
            self.private[free.owner].segments -= 1
        self._history.add("segment_unmap", begin, end - begin, block.stream, free.owner, block.segment_frames)
        if not block.split:
            free.remove(block)

    def release_oversize(self, free: FreeList, stream: int, size: int) -> bool:
        """With max_split_size: free just enough blocks at or above it (release_available_cached_blocks)."""
        limit = self.conf.max_split_size
        if limit == UNLIMITED:
            return False
        wanted = max(size, limit)
        row, place = free.from_size(stream, wanted)
        if place < len(row) and row[place][2].expandable is None:
            self._release_segment(row[place][2])
            return True
        released = 0
        for _, _, block in reversed(row[:place]):  # the largest first
            if released >= wanted or block.size < limit:
                break
            if block.expandable is None:
                released += block.size
                self._release_segment(block)
        return released >= wanted
