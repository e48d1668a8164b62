"""The allocator itself: malloc and free, frees that wait for other streams, the private pools of CUDA graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from helpers.simulator.allocator import reports
from helpers.simulator.allocator.blocks import Block, Driver, FreeList, PoolId, PrivatePool
from helpers.simulator.allocator.conf import SMALL, Conf, parse
from helpers.simulator.allocator.reserved import Reserved


class CachingAllocator:
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
        self.conf = parse(conf) if isinstance(conf, str) else conf
        self.clock: Callable[[], int] = count(1).__next__
        self.stats_ = reports.Stats(self.conf.max_split_size)
        self.history = reports.History(lambda: self.clock())
        self.driver = Driver(capacity_bytes, context_bytes)
        self.reserved = Reserved(self.conf, self.driver, self.stats_, self.history, self._device_changed)
        self.active: dict[int, Block] = {}  # by address: handed out, or freed and still in use elsewhere
        self.captures: list[tuple[PoolId, Callable[[int], bool]]] = []
        self._freeable: list[PoolId] = []  # private pools that no graph holds any more
        self._waiting: dict[int, deque[tuple[Any, Block]]] = {}  # stream → (event, block)
        self._deferred: dict[Block, None] = {}  # freed during a capture, with uses on other streams
        self._capture_uses: dict[Block, set[int]] = {}
        self._finished: dict[int, int] = {}
        self._recorded: dict[int, int] = {}
        self.record_history(history)

    def set_memory_fraction(self, fraction: float) -> None:
        """Use at most this share of the device's memory; 1.0 lifts the limit. ValueError outside [0, 1]."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        self.reserved.allowed = None if fraction == 1 else int(fraction * self.driver.total)

    def _device_changed(self, nbytes: int) -> None:
        """A hook: the driver gave a segment, or pages, of that size; or, below 0, took them back."""

    # ------------------------------------------------------------------------------------ malloc

    def malloc(self, nbytes: int, stream: int = 0, where: Any = "") -> int:
        """The address of a block of at least nbytes (0 for none), from the pool of a capture that is under way on that
        stream, if there is one. OutOfMemory where it cannot be had. where: what the history says about the place, a
        text or frames.
        """
        if nbytes <= 0:
            return 0
        if not self.captures:
            self._process_events()
        conf = self.conf
        size = conf.round_size(nbytes)
        free = self._pool(size, stream)
        block = self.reserved.find(free, stream, size) or self._fetch(free, stream, size, where)
        if block is None:
            raise self._out_of_memory(size, stream, free.owner, where)
        split = conf.splits(size, block.size - size, free.small or conf.expandable_segments)
        return self._hand_out(block, size, nbytes, split, where).address

    def _pool(self, size: int, stream: int) -> FreeList:
        owner = next((p for p, wants in reversed(self.captures) if wants(stream)), None)
        lists = self.reserved if owner is None else self.reserved.private[owner]
        return lists.small if size <= SMALL else lists.large

    def _fetch(self, free: FreeList, stream: int, size: int, where: Any) -> Block | None:
        """A new segment, if need be after giving cached ones back."""
        reserved = self.reserved
        block = reserved.new_segment(free, stream, size, where)
        if block is None and reserved.release_oversize(free, stream, size):
            block = reserved.new_segment(free, stream, size, where)
        if block is None and not self.captures:
            self.empty_cache()
            self.stats_.counts["num_alloc_retries"] += 1
            block = reserved.new_segment(free, stream, size, where)
        return block

    def _hand_out(self, block: Block, size: int, nbytes: int, split: bool, where: Any) -> Block:
        """Cut the block if it is to be cut, and mark it as used (alloc_found_block)."""
        stats, free = self.stats_, block.pool
        was_split, plain = block.split, block.expandable is None
        if split:
            rest = block
            block = Block(rest.stream, size, free, rest.address, rest.expandable)
            block.segment_frames = rest.segment_frames
            block.place(rest.prev, rest)
            rest.address += size
            rest.size -= size
            free.add(rest)
            if plain and was_split:
                stats.change(free.small, (stats.inactive_bytes, -size))
            elif plain:
                stats.change(free.small, (stats.inactive_bytes, rest.size), (stats.inactive, 1))
        elif plain and was_split:
            stats.change(free.small, (stats.inactive_bytes, -block.size), (stats.inactive, -1))
        block.allocated, block.requested = True, nbytes
        if self.history.on:
            block.frames = where
            self.history.add("alloc", block.address, nbytes, block.stream, free.owner, where)
        self.active[block.address] = block
        stats.change(
            free.small, (stats.allocation, 1), (stats.active, 1), (stats.allocated, block.size),
            (stats.active_bytes, block.size), (stats.requested, nbytes),
        )  # fmt: skip
        return block

    def _out_of_memory(self, size: int, stream: int, pool: PoolId, where: Any) -> reports.OutOfMemory:
        driver, stats = self.driver, self.stats_
        self.history.add("oom", driver.free, size, stream, pool, where)
        stats.counts["num_ooms"] += 1
        private = sum(block.size for free in self.reserved.lists()[2:] for block in free)
        return reports.out_of_memory(
            self.conf.segment_size(size), driver, stats, self.reserved.allowed, private
        )

    # ------------------------------------------------------------------------------------ free

    def free(self, address: int, where: Any = None) -> None:
        """Give a block back. With uses recorded on other streams it is free once those have been reached."""
        if not address:
            return
        block = self._of(address)
        block.allocated = False
        stats = self.stats_
        stats.change(block.pool.small, (stats.allocation, -1), (stats.allocated, -block.size))
        self._note_free("free_requested", block, where)
        if not block.uses:
            self._give_back(block, where)
        elif self.captures:
            self._deferred[block] = None
        else:
            self._insert_events(block)

    def _of(self, address: int) -> Block:
        block = self.active.get(address)
        if block is None or not block.allocated:
            raise ValueError(f"invalid device pointer: {address:#x}")
        return block

    def _note_free(self, action: str, block: Block, where: Any) -> None:
        where = where or block.frames
        self.history.add(action, block.address, block.requested, block.stream, block.pool.owner, where)

    def _give_back(self, block: Block, where: Any = None) -> None:
        """A block that nobody uses any more becomes a cached one (free_block)."""
        self._note_free("free_completed", block, where)
        del self.active[block.address]
        block.frames = None
        stats, free, size = self.stats_, block.pool, block.size
        splits = merged = 0  # more cached blocks of cut segments, and their bytes
        for neighbour in (block.prev, block.next):
            if gained := self.reserved.merge(block, neighbour):
                splits -= 1
                merged -= gained
        free.add(block)
        if block.split:
            splits += 1
            merged += block.size
        gone = (stats.active, -1), (stats.active_bytes, -size), (stats.requested, -block.requested)
        stats.change(free.small, *gone)
        if block.expandable is None:
            stats.change(free.small, (stats.inactive, splits), (stats.inactive_bytes, merged))

    def empty_cache(self) -> None:
        """Give every segment without a block in use back to the device (release_cached_blocks)."""
        reserved = self.reserved
        if not self.captures:
            self._synchronize_events()
            reserved.release(reserved.large)
            reserved.release(reserved.small)
        for owner in list(self._freeable):
            private = reserved.private[owner]
            reserved.release(private.small)
            reserved.release(private.large)
            if private.segments <= 0:
                del reserved.private[owner]
                self._freeable.remove(owner)

    # ------------------------------------------------------------------------------------ other streams

    def record_stream(self, address: int, stream: int) -> None:
        """The block is used on that stream too: do not hand it out before what is there now is done."""
        block = self._of(address)
        if stream != block.stream:
            block.uses.add(stream)
            if self.captures:
                self._capture_uses.setdefault(block, set()).add(stream)

    def event(self, stream: int) -> Any:
        """Put a mark at the end of that stream. (A device with a clock replaces these three.)"""
        self._recorded[stream] = self._recorded.get(stream, 0) + 1
        return (stream, self._recorded[stream])

    def reached(self, event: Any) -> bool:
        """Whether the device has passed the mark."""
        return bool(self._finished.get(event[0], 0) >= event[1])

    def wait(self, event: Any) -> None:
        """The host waits for the mark."""
        self._finished[event[0]] = max(self._finished.get(event[0], 0), event[1])

    def finish(self, stream: int | None = None) -> None:
        """All that has been put into the stream (None: into every stream) is done."""
        for each in [stream] if stream is not None else list(self._recorded):
            self._finished[each] = self._recorded.get(each, 0)

    def _insert_events(self, block: Block) -> None:
        uses, block.uses = sorted(block.uses), set()
        for stream in uses:
            block.events += 1
            self._waiting.setdefault(stream, deque()).append((self.event(stream), block))

    def _insert_deferred(self) -> None:
        """Frees of a capture that has ended. Uses recorded during it are over when the capture is."""
        for block in list(self._deferred):
            block.uses -= self._capture_uses.pop(block, set())
            self._insert_events(block)
            if not block.events:
                self._give_back(block)
        self._deferred.clear()

    def _process_events(self) -> None:
        """Freed blocks whose other streams have been passed come back (process_events, at every malloc)."""
        if self._deferred:
            self._insert_deferred()
        for stream, row in list(self._waiting.items()):
            while row and self.reached(row[0][0]):
                self._passed(row.popleft()[1])
            if not row:
                del self._waiting[stream]

    def _passed(self, block: Block) -> None:
        block.events -= 1
        if not block.events:
            self._give_back(block)

    def _synchronize_events(self) -> None:
        """The host waits until all freed blocks have come back (synchronize_and_free_events)."""
        self.stats_.counts["num_sync_all_streams"] += 1
        self._insert_deferred()
        waiting, self._waiting = self._waiting, {}
        for event, block in (entry for row in waiting.values() for entry in row):
            self.wait(event)
            self._passed(block)

    # ------------------------------------------------------------------------------------ private pools

    def begin_pool(self, pool: PoolId, wants: Callable[[int], bool] = lambda stream: True) -> None:
        """From now on requests on the streams that `wants` accepts come from a private pool (a capture)."""
        if any(pool == p for p, _ in self.captures):
            raise ValueError("beginAllocateToPool: already recording to mempool_id")
        private = self.reserved.private
        if pool in private:
            private[pool].uses += 1
        else:
            private[pool] = PrivatePool(pool)
        self.captures.append((pool, wants))

    def end_pool(self, pool: PoolId) -> None:
        """The capture is over. The pool keeps its memory."""
        self.captures = [entry for entry in self.captures if entry[0] != pool]

    def release_pool(self, pool: PoolId) -> None:
        """A graph that used the pool is gone; after the last one its segments may be given back."""
        private = self.reserved.private[pool]
        private.uses -= 1
        if private.uses <= 0 and pool not in self._freeable:
            self._freeable.append(pool)

    # ------------------------------------------------------------------------------------ reports

    def stats(self) -> dict[str, Any]:
        """The names and figures of torch.cuda.memory_stats()."""
        return self.stats_.flat()

    def reset_peak_stats(self) -> None:
        self.stats_.reset_peaks()

    def record_history(
        self, on: bool, limit: int | None = None, clear: bool = False, places: bool = True
    ) -> None:
        """Keep the last `limit` events (None: all), or stop and forget them. places: with their frames."""
        if on:
            self.history.start(limit, clear, places)
        else:
            self.history.stop()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened, in order, in the form of a snapshot's device_traces."""
        return list(self.history.events)

    def segments(self) -> list[dict[str, Any]]:
        """Every segment with its blocks, in the form of torch.cuda.memory.memory_snapshot()."""
        cached = [block for free in self.reserved.lists() for block in free]
        return reports.segments([*cached, *self.active.values()])

    def snapshot(self) -> dict[str, Any]:
        """What torch.cuda.memory._snapshot() returns, in its exact form."""
        segments = self.segments()
        self.history.add("snapshot", 0, sum(s["active_size"] for s in segments), 0)
        return {
            "segments": segments,
            "device_traces": [self.events],
            "allocator_settings": reports.settings(self.conf),
            "external_annotations": [],
        }
