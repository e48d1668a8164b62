"""expandable_segments:True: one growing range of addresses for each stream and pool (Note [Expandable Segments])."""

from __future__ import annotations

from typing import Any

from helpers.simulator.allocator.blocks import Block, FreeList, Segment
from helpers.simulator.allocator.conf import SMALL_SEGMENT
from helpers.simulator.allocator.core import Core

__all__ = ["Expandable"]


class Expandable(Core):
    """Mapping pages at the end of a segment, and unmapping empty ones."""

    def _expand(self, stream: int, pool: FreeList, size: int, where: Any) -> Block | None:
        """A free block of at least `size` bytes, grown if need be (try_allocate_expandable_block)."""
        block = self._room(stream, pool, size)
        if not block.mapped and not self._map(block, min(block.size, size), where):
            return None
        while block.size < size:
            following = block.next
            assert following is not None
            if not self._map(following, min(size - block.size, following.size), where):
                return None
            block = following  # which took the free block before it in
        pool.remove(block)
        return block

    def _room(self, stream: int, pool: FreeList, size: int) -> Block:
        """The lowest addresses where the request would fit, free or unmapped (find_expandable_block)."""
        for _, unmapped in pool.unmapped.get(stream, ()):
            first = unmapped.prev if unmapped.prev is not None and unmapped.prev.free else unmapped
            block: Block | None = first
            found = 0
            while found < size and block is not None and block.free:
                found += block.size
                block = block.next
            if found >= size:
                return first
        granularity = SMALL_SEGMENT if pool.small else self.conf.large_segment
        # Addresses for 1 1/8 of the device's memory (ExpandableSegment's constructor).
        pages = -(-(self.driver.total + self.driver.total // 8) // granularity)
        address = self.driver.reserve(pages * granularity)
        block = Block(stream, pages * granularity, pool, address)
        block.mapped = False
        block.expandable = Segment(address, block.size, granularity)
        pool.add_unmapped(block)
        return block

    def _map(self, block: Block, size: int, where: Any) -> bool:
        """Put memory behind the beginning of an unmapped block (map_block); all of it, or nothing."""
        segment = block.expandable
        assert segment is not None
        size = -(-size // segment.granularity) * segment.granularity
        if not self.driver.map(size):
            return False
        pool, address = block.pool, block.address
        pool.remove_unmapped(block)
        block.mapped = True
        if size < block.size:
            rest = Block(block.stream, block.size - size, pool, address + size)
            rest.mapped, rest.expandable = False, segment
            _splice(rest, block, block.next)
            pool.add_unmapped(rest)
            block.size = size
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.add(block)
        self._grow(pool.small, size)
        self._note("segment_map", address, size, block.stream, pool.owner, where)
        if block.prev is None and not block.segment_frames:
            block.segment_frames = where
        return True

    def _unmap(self, block: Block) -> None:
        """Return the whole pages of a free block to the device (unmap_block)."""
        segment, pool = block.expandable, block.pool
        assert segment is not None
        unit = segment.granularity
        begin = segment.address + -(-(block.address - segment.address) // unit) * unit
        end = segment.address + (block.address + block.size - segment.address) // unit * unit
        if begin >= end:
            return
        pool.remove(block)
        if before := begin - block.address:
            head = Block(block.stream, before, pool, block.address)
            head.expandable = segment
            _splice(head, block.prev, block)
            pool.add(head)
        if after := block.address + block.size - end:
            tail = Block(block.stream, after, pool, end)
            tail.expandable = segment
            _splice(tail, block, block.next)
            pool.add(tail)
        block.address, block.size, block.mapped = begin, end - begin, False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.add_unmapped(block)
        self.driver.release(end - begin)
        self._grow(pool.small, begin - end)
        if pool.owner in self.private:
            self.private[pool.owner].segments -= 1
        self._note("segment_unmap", begin, end - begin, block.stream, pool.owner, block.segment_frames)
        if not block.split:
            pool.remove_unmapped(block)


def _splice(block: Block, before: Block | None, after: Block | None) -> None:
    if before is not None:
        before.next = block
    if after is not None:
        after.prev = block
    block.prev, block.next = before, after
