"""The allocator itself: malloc, free, statistics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Any

from helpers.simulator.allocator import message
from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, FreeList, PoolId
from helpers.simulator.allocator.conf import MIN_BLOCK, SMALL, Conf, parse
from helpers.simulator.allocator.core import PrivatePool
from helpers.simulator.allocator.crossing import Crossing
from helpers.simulator.allocator.record import Record
from helpers.simulator.allocator.snapshot import segments, settings

__all__ = ["CachingAllocator"]


class CachingAllocator(Crossing):
    """PyTorch's CUDA caching allocator without CUDA: the same blocks for the same calls.

    capacity_bytes: the device's memory; conf: the text of PYTORCH_ALLOC_CONF; context_bytes: what the CUDA
    context keeps for itself. history: whether `events` are kept from the start.

        allocator = CachingAllocator(8 << 30)
        a = allocator.malloc(1)          # an address; 512 bytes of it, in a segment of 2 MiB
        allocator.free(a)
        allocator.stats()["reserved_bytes.all.current"]     # 2097152

    Streams are numbers. A block freed with uses recorded on other streams can be handed out again when what
    is in those streams now is done: `finish(stream)` says so, unless a device with a clock is bound to it.
    """

    def __init__(
        self, capacity_bytes: int, conf: str | Conf = "", *, context_bytes: int = 0, history: bool = True
    ) -> None:
        super().__init__(capacity_bytes, parse(conf) if isinstance(conf, str) else conf, context_bytes)
        self._ticks = 0
        self.clock: Callable[[], int] = self._tick
        self.record_history(history)

    # ------------------------------------------------------------------------------------ malloc

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId | int = 0, where: Any = "") -> int:
        """The address of a block of at least nbytes (0 for none). OutOfMemory where it cannot be had.

        pool: a private pool's id (made at its first use); 0 is the shared pools, or the pool of a capture
        under way. where: what the history says about the place, a text or frames.
        """
        if nbytes <= 0:
            return 0
        if not self.captures:
            self._process_events()
        conf = self.conf
        size = conf.round_size(nbytes)
        free = self._pool(size, stream, pool)
        block = self._take(free, stream, size) or self._fetch(free, stream, size, where)
        if block is None:
            raise self._out_of_memory(size, stream, free.owner, where)
        remaining = block.size - size
        if free.small or conf.expandable_segments:
            split = remaining >= MIN_BLOCK
        else:
            split = size < conf.max_split_size and remaining > SMALL
        return self._hand_out(block, size, nbytes, split, where).address

    def _pool(self, size: int, stream: int, pool: PoolId | int) -> FreeList:
        owner = (pool, 0) if isinstance(pool, int) else pool
        if owner == DEFAULT_POOL:
            owner = next((p for p, wants in reversed(self.captures) if wants(stream)), DEFAULT_POOL)
        if owner == DEFAULT_POOL:
            return self.small if size <= SMALL else self.large
        if owner not in self.private:
            self.private[owner] = PrivatePool(owner)
        private = self.private[owner]
        return private.small if size <= SMALL else private.large

    def _take(self, free: FreeList, stream: int, size: int) -> Block | None:
        """The smallest cached block of the stream that fits (get_free_block)."""
        conf = self.conf
        if self.allowed is not None and conf.garbage_collection_threshold:
            free.searches += 1
        row: list[Any] = free.blocks.get(stream, [])
        place = bisect_left(row, (size, 0))
        if place == len(row):
            return None
        block: Block = row[place][2]
        if block.expandable is not None:
            if conf.expandable_segments:
                # A block that can grow counts with what it can grow to.
                while (
                    block.expandable is not None
                    and place + 1 < len(row)
                    and _reach(row[place + 1][2]) < _reach(block)
                ):
                    place += 1
                    block = row[place][2]
            else:
                place = next((i for i in range(place, len(row)) if row[i][2].expandable is None), len(row))
                if place == len(row):
                    return None
                block = row[place][2]
        limit = conf.max_split_size
        if (size < limit <= block.size) or (
            size >= limit and block.size >= size + conf.max_non_split_rounding
        ):
            return None
        del row[place]
        return block

    def _fetch(self, free: FreeList, stream: int, size: int, where: Any) -> Block | None:
        """A new segment, if need be after giving cached ones back."""
        if self.allowed is not None and self.conf.garbage_collection_threshold:
            self._collect_garbage()
        block = self._segment(free, stream, size, where)
        if block is None and self._release_oversize(free, stream, size):
            block = self._segment(free, stream, size, where)
        if block is None and not self.captures:
            self._release_all()
            self.stats_.counts["num_alloc_retries"] += 1
            block = self._segment(free, stream, size, where)
        return block

    def _segment(self, free: FreeList, stream: int, size: int, where: Any) -> Block | None:
        """cudaMalloc, or more pages for an expandable segment (alloc_block)."""
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
            self.stats_.change(self.stats_.segment, free.small, 1)
            self._grow(free.small, wanted)
            if wanted >= self.conf.max_split_size:
                self._oversize("oversize_segments", 1)
            block.segment_frames = where
            self._note("segment_alloc", block.address, wanted, stream, free.owner, where)
        return block

    def _hand_out(self, block: Block, size: int, nbytes: int, split: bool, where: Any) -> Block:
        """Cut the block if it is to be cut, and mark it as used (alloc_found_block)."""
        stats, free = self.stats_, block.pool
        was_split, plain = block.split, block.expandable is None
        if split:
            rest = block
            block = Block(rest.stream, size, free, rest.address)
            block.expandable, block.segment_frames = rest.expandable, rest.segment_frames
            block.prev, block.next = rest.prev, rest
            if block.prev is not None:
                block.prev.next = block
            rest.prev = block
            rest.address += size
            rest.size -= size
            free.add(rest)
            if plain and was_split:
                stats.change(stats.inactive_bytes, free.small, -size)
            elif plain:
                stats.change(stats.inactive_bytes, free.small, rest.size)
                stats.change(stats.inactive, free.small, 1)
        elif plain and was_split:
            stats.change(stats.inactive_bytes, free.small, -block.size)
            stats.change(stats.inactive, free.small, -1)
        block.allocated, block.requested = True, nbytes
        if self.record is not None:
            block.frames = where
            self.record.add("alloc", block.address, nbytes, block.stream, free.owner, where)
        self.active[block.address] = block
        stats.taken(free.small, block.size, nbytes)
        if block.size >= self.conf.max_split_size:
            self._oversize("oversize_allocations", 1)
        return block

    def _oversize(self, name: str, amount: int) -> None:
        stat = self.stats_.oversize[name]
        stat[0] += amount
        stat[1] = max(stat[:2])
        stat[2 if amount > 0 else 3] += abs(amount)

    def _out_of_memory(self, size: int, stream: int, pool: PoolId, where: Any) -> message.OutOfMemory:
        driver, stats = self.driver, self.stats_
        self._note("oom", driver.free, size, stream, pool, where)
        stats.counts["num_ooms"] += 1
        allocated, reserved = stats.allocated[0][0], stats.reserved[0][0]
        private = sum(b.size for p in self.private.values() for free in (p.small, p.large) for b in free)
        in_use = driver.context + driver.used
        tried = self.conf.segment_size(size)
        said = message.text(
            tried, driver.total, driver.free, in_use, self.allowed, allocated, private, reserved
        )
        return message.OutOfMemory(said, tried, driver.total, driver.free, allocated, reserved)

    # ------------------------------------------------------------------------------------ free

    def free(self, address: int, where: Any = None) -> None:
        """Give a block back. With uses recorded on other streams it is free once those have been reached."""
        if not address:
            return
        block = self._of(address)
        self._free_requested(block, where)
        if not block.uses:
            self._give_back(block, where)
        elif self.captures:
            self._deferred[block] = None
        else:
            self._insert_events(block)

    def _free_requested(self, block: Block, where: Any = None) -> None:
        block.allocated = False
        stats, own = self.stats_, 1 if block.pool.small else 2
        for array, amount in ((stats.allocation, 1), (stats.allocated, block.size)):
            for stat in (array[0], array[own]):
                stat[0] -= amount
                stat[3] += amount
        if self.record is not None:
            where = where or block.frames
            self._note(
                "free_requested", block.address, block.requested, block.stream, block.pool.owner, where
            )
        if block.size >= self.conf.max_split_size:
            self._oversize("oversize_allocations", -1)

    # ------------------------------------------------------------------------------------ statistics

    def empty_cache(self, pool: PoolId = DEFAULT_POOL) -> None:
        """Give every segment without a block in use back to the device."""
        self._release_all(pool)

    def stats(self) -> dict[str, Any]:
        """The names and figures of torch.cuda.memory_stats()."""
        return self.stats_.flat()

    def reset_peak_stats(self) -> None:
        self.stats_.reset_peaks()

    def reset_accumulated_stats(self) -> None:
        self.stats_.reset_accumulated()

    # ------------------------------------------------------------------------------------ history, snapshot

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def record_history(
        self, on: bool, limit: int | None = None, clear: bool = False, skip: Collection[str] = (),
        places: bool = True,
    ) -> None:  # fmt: skip
        """Keep the last `limit` events (None: all), or stop and forget them. places: with their frames."""
        old = self.record.events if self.record is not None and not clear else ()
        self.record = Record(lambda: self.clock(), limit, skip, places) if on else None
        if self.record is not None:
            self.record.events.extend(old)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened, in order, in the form of a snapshot's device_traces."""
        return list(self.record.events) if self.record is not None else []

    def segments(self) -> list[dict[str, Any]]:
        """Every segment with its blocks, in the form of torch.cuda.memory.memory_snapshot()."""
        return segments(self)

    def snapshot(self) -> dict[str, Any]:
        """What torch.cuda.memory._snapshot() returns, in its exact form."""
        found = self.segments()
        self._note("snapshot", 0, sum(s["active_size"] for s in found), 0)
        return {
            "segments": found,
            "device_traces": [self.events],
            "allocator_settings": settings(self.conf),
            "external_annotations": [],
        }


def _reach(block: Block) -> int:
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)
