"""What both ways of getting memory share: statistics, history, merging, and giving a free block back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, Driver, FreeList, PoolId
from helpers.simulator.allocator.conf import Conf
from helpers.simulator.allocator.record import Record
from helpers.simulator.allocator.stats import Stats, decrease

__all__ = ["Core", "PrivatePool"]


class PrivatePool:
    """Memory set apart, for CUDA graphs. uses: graphs that hold it; segments: what it has from the driver."""

    def __init__(self, pool: PoolId) -> None:
        self.id, self.uses, self.segments = pool, 1, 0
        self.small, self.large = FreeList(True, pool), FreeList(False, pool)


class Core:
    """State and bookkeeping. The decisions are in expandable.py, release.py and caching.py."""

    conf: Conf
    driver: Driver

    def __init__(self, capacity_bytes: int, conf: Conf, context_bytes: int) -> None:
        self.conf = conf
        self.driver = Driver(capacity_bytes, context_bytes)
        self.stats_ = Stats(conf.max_split_size)
        self.record: Record | None = None
        self.small, self.large = FreeList(True), FreeList(False)
        self.private: dict[PoolId, PrivatePool] = {}
        self.freeable: dict[PoolId, PrivatePool] = {}  # no graph holds them any more
        self.captures: list[tuple[PoolId, Callable[[int], bool]]] = []
        self.active: dict[int, Block] = {}  # by address: handed out, or freed and still in use elsewhere
        self.taken = 0  # bytes from the driver
        self.allowed: int | None = None  # set_per_process_memory_fraction
        self.set_memory_fraction(conf.memory_fraction)

    def set_memory_fraction(self, fraction: float) -> None:
        """Use at most this share of the device's memory; 1.0 lifts the limit. ValueError outside [0, 1]."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        self.allowed = None if fraction == 1 else int(fraction * self.driver.total)

    def _device_freed(self, size: int) -> None:
        """A hook: the driver took a segment, or pages, of that size back."""

    def _device_gave(self, size: int) -> None:
        """A hook: the driver gave a segment, or pages, of that size."""

    def _note(
        self,
        action: str,
        address: int,
        size: int,
        stream: int,
        pool: PoolId = DEFAULT_POOL,
        where: Any = None,
    ) -> None:
        if self.record is not None:
            self.record.add(action, address, size, stream, pool, where)

    def _lists(self) -> list[FreeList]:
        """Every free list, in get_all_blocks' order."""
        return [self.small, self.large, *(x for p in self.private.values() for x in (p.small, p.large))]

    def _grow(self, small: bool, nbytes: int) -> None:
        self.taken += nbytes
        self.stats_.change(self.stats_.reserved, small, nbytes)
        self.stats_.counts["num_device_alloc" if nbytes > 0 else "num_device_free"] += 1
        if nbytes > 0:
            self._device_gave(nbytes)
        else:
            self._device_freed(-nbytes)

    def _merge(self, block: Block, other: Block | None) -> int:
        """Take a free neighbour in; how many bytes it had, 0 where it could not be taken (try_merge_blocks)."""
        if other is None or other.allocated or other.events or other.uses or other.mapped != block.mapped:
            return 0
        (other.pool.remove if other.mapped else other.pool.remove_unmapped)(other)
        if block.prev is other:
            block.address, block.prev = other.address, other.prev
            if block.prev:
                block.prev.next = block
            block.segment_frames = other.segment_frames
        else:
            block.next = other.next
            if block.next:
                block.next.prev = block
        block.size += other.size
        return other.size

    def _give_back(self, block: Block, where: Any = None) -> None:
        """A block that nobody uses any more becomes a cached one (free_block)."""
        if self.record is not None:
            where = where or block.frames
            self._note(
                "free_completed", block.address, block.requested, block.stream, block.pool.owner, where
            )
        del self.active[block.address]
        block.frames = None
        size, requested, pool = block.size, block.requested, block.pool
        splits = merged = 0
        for neighbour in (block.prev, block.next):
            if neighbour is not None and (gained := self._merge(block, neighbour)):
                splits -= 1
                merged -= gained
        pool.add(block)
        if block.prev is not None or block.next is not None:
            splits += 1
            merged += block.size
        stats, small = self.stats_, pool.small
        own = 1 if small else 2
        for array, amount in ((stats.active, 1), (stats.active_bytes, size), (stats.requested, requested)):
            decrease(array[0], amount)
            decrease(array[own], amount)
        if block.expandable is None:
            if splits:
                stats.change(stats.inactive, small, splits)
            if merged:
                stats.change(stats.inactive_bytes, small, merged)
