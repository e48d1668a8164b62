"""Across streams and captures: frees that must wait, and pools of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from helpers.simulator.allocator.blocks import Block, PoolId
from helpers.simulator.allocator.conf import Conf
from helpers.simulator.allocator.core import PrivatePool
from helpers.simulator.allocator.release import Release

__all__ = ["Crossing"]


class Crossing(Release):
    """record_stream, its events, and the private pools of CUDA graphs."""

    def __init__(self, capacity_bytes: int, conf: Conf, context_bytes: int) -> None:
        super().__init__(capacity_bytes, conf, context_bytes)
        self._waiting: dict[int, deque[tuple[Any, Block]]] = {}  # stream → (event, block)
        self._deferred: dict[Block, None] = {}  # freed during a capture, with uses on other streams
        self._capture_uses: dict[Block, set[int]] = {}
        self._finished: dict[int, int] = {}
        self._recorded: dict[int, int] = {}

    def _of(self, address: int) -> Block:
        block = self.active.get(address)
        if block is None or not block.allocated:
            raise ValueError(f"invalid device pointer: {address:#x}")
        return block

    def record_stream(self, address: int, stream: int) -> None:
        """The block is used on that stream too: do not hand it out before what is there now is done."""
        block = self._of(address)
        if stream != block.stream:
            block.uses.add(stream)
            if self.captures:
                self._capture_uses.setdefault(block, set()).add(stream)

    # ------------------------------------------------------------------------------------ other streams

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
        if not self._waiting:
            return
        for stream, row in list(self._waiting.items()):
            while row and self.reached(row[0][0]):
                self._passed(row.popleft()[1])
            if not row:
                del self._waiting[stream]

    def _passed(self, block: Block) -> None:
        block.events -= 1
        if not block.events:
            self._give_back(block)

    def _synchronize_events(self, pool: PoolId | None = None) -> None:
        self.stats_.counts["num_sync_all_streams"] += 1
        self._insert_deferred()
        for stream, row in list(self._waiting.items()):
            kept: deque[tuple[Any, Block]] = deque()
            for event, block in row:
                if pool is not None and block.pool.owner != pool:
                    kept.append((event, block))
                    continue
                self.wait(event)
                self._passed(block)
            if kept:
                self._waiting[stream] = kept
            else:
                del self._waiting[stream]

    # ------------------------------------------------------------------------------------ private pools

    def begin_pool(self, pool: PoolId, wants: Callable[[int], bool] = lambda stream: True) -> None:
        """From now on requests on the streams that `wants` accepts come from a private pool (a capture)."""
        if any(pool == p for p, _ in self.captures):
            raise ValueError("beginAllocateToPool: already recording to mempool_id")
        if pool in self.private:
            self.private[pool].uses += 1
        else:
            self.private[pool] = PrivatePool(pool)
        self.captures.append((pool, wants))

    def end_pool(self, pool: PoolId) -> None:
        """The capture is over. The pool keeps its memory."""
        self.captures = [entry for entry in self.captures if entry[0] != pool]

    def release_pool(self, pool: PoolId) -> None:
        """A graph that used the pool is gone; after the last one its segments may be given back."""
        private = self.private[pool]
        private.uses -= 1
        if private.uses <= 0:
            self.freeable[pool] = private
