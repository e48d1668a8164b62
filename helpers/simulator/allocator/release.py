"""Giving cached memory back to the device: on request, when cudaMalloc fails, by garbage collection."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, FreeList, PoolId
from helpers.simulator.allocator.conf import UNLIMITED
from helpers.simulator.allocator.expandable import Expandable

__all__ = ["Release"]


class Release(Expandable):
    """cudaFree, and when it is called."""

    def _synchronize_events(self, pool: PoolId | None = None) -> None:
        raise NotImplementedError

    def _release_all(self, pool: PoolId = DEFAULT_POOL) -> bool:
        """Every segment without a block in use goes back (release_cached_blocks)."""
        if pool == DEFAULT_POOL and not self.captures:
            self._synchronize_events()
            self._release_list(self.large)
            self._release_list(self.small)
        for owner, private in list(self.freeable.items()):
            if pool not in (DEFAULT_POOL, owner):
                continue
            if pool != DEFAULT_POOL:
                self._synchronize_events(owner)
            self._release_list(private.small)
            self._release_list(private.large)
            if private.segments <= 0:
                del self.private[owner], self.freeable[owner]
        return True

    def _release_list(self, free: FreeList) -> None:
        expandable = []
        for block in free:
            if block.expandable is not None:
                expandable.append(block)
            elif not block.split:
                self._release_block(block)
        for block in expandable:
            self._unmap(block)

    def _release_block(self, block: Block) -> None:
        """cudaFree of one whole segment (release_block)."""
        pool = block.pool
        self._note("segment_free", block.address, block.size, block.stream, pool.owner, block.segment_frames)
        pool.remove(block)
        self.driver.release(block.size)
        if pool.owner in self.private:
            self.private[pool.owner].segments -= 1
        self.stats_.change(self.stats_.segment, pool.small, -1)
        self._grow(pool.small, -block.size)
        if block.size >= self.conf.max_split_size:
            oversize = self.stats_.oversize["oversize_segments"]
            oversize[0] -= 1
            oversize[3] += 1

    def _release_oversize(self, pool: FreeList, stream: int, size: int) -> bool:
        """With max_split_size: free just enough blocks at or above it (release_available_cached_blocks)."""
        limit = self.conf.max_split_size
        if limit == UNLIMITED:
            return False
        wanted = max(size, limit)
        row: list[Any] = pool.blocks.get(stream, [])
        place = bisect_left(row, (wanted, 0))
        if place < len(row) and row[place][2].expandable is None:
            self._release_block(row[place][2])
            return True
        released = 0
        for _, _, block in reversed(row[:place]):  # the largest first
            if released >= wanted or block.size < limit:
                break
            if block.expandable is None:
                released += block.size
                self._release_block(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Free old whole segments of the large pool, above the threshold (garbage_collect_cached_blocks)."""
        assert self.allowed is not None
        target = self.taken - int(self.conf.garbage_collection_threshold * self.allowed)
        if target <= 0:
            return
        age = {id(b): self.large.searches - b.gc_base for b in self.large if not b.split}
        total, count = sum(age.values()), len(age)
        reclaimed, freed = 0, True
        while reclaimed < target and freed and count > 0:
            threshold, freed = total / count, False
            for block in self.large:
                if not block.split and block.expandable is None and age[id(block)] >= threshold:
                    freed = True
                    reclaimed += block.size
                    total -= age[id(block)]
                    count -= 1
                    self._release_block(block)
