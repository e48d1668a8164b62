"""Replay what an allocator was asked for: a recorded history through the model.

The history of a snapshot says when how many bytes were asked for and freed; where they are put, the model
decides. With the recorded options it must decide as PyTorch did; with other options it says what PyTorch would
have done. A history that begins in the middle is first rewound: from the snapshot's segments back to what was
there before the first event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from helpers.simulator.allocator import CachingAllocator, Conf, parse
from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, Driver, FreeList, PoolId
from helpers.simulator.allocator.restore import restore
from helpers.simulator.allocator.rewind import rewind

__all__ = ["replay"]

Event = Mapping[str, Any]
_UNLIMITED = 1 << 42  # a device on which nothing fails: what failed while recording is in the history


def replay(
    source: Mapping[str, Any] | Sequence[Event],
    conf: str | None = None,
    capacity_bytes: int | None = None,
    *,
    device: int | None = None,
) -> CachingAllocator:
    """The model after a history. source: a snapshot, or the events of one device.

    conf: other options than the recorded ones; capacity_bytes: another device. With either, what the device
    took back is the model's decision too, an allocation that failed is tried again, and OutOfMemory is raised
    where it fails; with neither, segments go back when they did. device: which one (the busiest).

        allocator = replay(snapshot)
        replay(snapshot, conf="expandable_segments:True", capacity_bytes=8 << 30)
    """
    events, segments, recorded = _parts(source, device)
    options = parse(conf) if conf is not None else recorded
    before, lowest = rewind(segments, events, recorded)
    what_if = conf is not None or capacity_bytes is not None
    allocator = _Replayed(capacity_bytes or _UNLIMITED, options)
    restore(allocator, before, lowest)
    allocator.reset_peak_stats()
    pools = {h.address: h.pool for h in before if h.pool != DEFAULT_POOL}
    _Player(allocator, what_if, capacity_bytes is not None, pools).play(events)
    return allocator


def _parts(source: Any, device: int | None) -> tuple[list[Event], list[Any], Conf]:
    if not isinstance(source, Mapping):
        return list(source), [], parse("")
    missing = {"segments", "device_traces"} - set(source)
    if missing:
        raise ValueError(f"not a memory snapshot: it has no {' and no '.join(sorted(missing))}")
    traces = source["device_traces"]
    if device is None:
        device = max(range(len(traces)), key=lambda i: len(traces[i]), default=0)
    events = list(traces[device]) if device < len(traces) else []
    text = source.get("allocator_settings", {}).get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return events, [s for s in source["segments"] if s.get("device", 0) == device], parse(text)


class _Recorded(Driver):
    """Gives the segments the addresses that they had, so that ties between equal blocks fall the same way."""

    hint: tuple[int, int | None] | None = None  # address, size (None: any)

    def reserve(self, size: int) -> int:
        if self.hint is not None and self.hint[1] in (size, None):
            address, self.hint = self.hint[0], None
            return address
        return super().reserve(size)


class _Replayed(CachingAllocator):
    """fresh: the next request is known to have gone to the driver, whatever is cached."""

    fresh = False

    def _take(self, free: FreeList, stream: int, size: int) -> Block | None:
        return None if self.fresh else super()._take(free, stream, size)


class _Player:
    def __init__(self, allocator: _Replayed, what_if: bool, limited: bool, pools: dict[int, PoolId]) -> None:
        self.allocator, self.what_if, self.limited, self.pools = allocator, what_if, limited, pools
        old, self.driver = allocator.driver, _Recorded(allocator.driver.total)
        self.driver.used = old.used
        allocator.driver = self.driver
        self.blocks: dict[int, Block] = dict(allocator.active)  # by recorded address

    def play(self, events: list[Event]) -> None:
        """One step an event; what the device took back in a row is one step too."""
        runs = [(freed, list(run)) for freed, run in groupby(events, key=_gives_back)]
        for place, (freed, run) in enumerate(runs):
            if not freed:
                for event in run:
                    getattr(self, event["action"], self.nothing)(event)
                continue
            following = runs[place + 1][1][0]["action"] if place + 1 < len(runs) else ""
            if not self.what_if:
                for event in run:
                    self.give_back(event)
                # cudaMalloc had failed, and is called again without another look at the cache, although
                # blocks that were waiting for other streams have come back meanwhile.
                self.allocator.fresh = following == "segment_alloc"
            elif following not in ("segment_alloc", "segment_map", "oom"):
                self.allocator.empty_cache()  # the program asked; else a malloc needed the room

    def nothing(self, event: Event) -> None:
        """An action without an effect on the state."""

    def alloc(self, event: Event) -> None:
        address = self.allocator.malloc(
            event["size"], event["stream"], self._pool(event), event.get("frames") or ""
        )
        self.driver.hint, self.allocator.fresh = None, False
        if address:
            self.blocks[event["addr"]] = self.allocator.active[address]

    def free_requested(self, event: Event) -> None:
        block = self.blocks.get(event["addr"])
        if block is not None and block.allocated:
            block.events += 1  # until the history says that it is complete
            self.allocator._free_requested(block)

    def free_completed(self, event: Event) -> None:
        block = self.blocks.pop(event["addr"], None)
        if block is not None:
            block.events = 0
            self.allocator._give_back(block)

    def segment_alloc(self, event: Event) -> None:
        pool = event.get("pool_id") or DEFAULT_POOL
        if pool != DEFAULT_POOL:
            self.pools[event["addr"]] = tuple(pool)
        if not self.what_if:
            self.driver.hint = (event["addr"], event["size"])

    def segment_map(self, event: Event) -> None:
        if not self.what_if and self.driver.hint is None:
            self.driver.hint = (event["addr"], None)

    def oom(self, event: Event) -> None:
        if self.limited:
            self.allocator.free(self.allocator.malloc(event["size"], event["stream"], self._pool(event)))

    def give_back(self, event: Event) -> None:
        """Do with this segment what was done with it, if the model has it free as well."""
        allocator, address = self.allocator, event["addr"]
        for free in allocator._lists():
            for _, _, block in list(free.blocks.get(event["stream"], ())):
                if block.address <= address < block.address + block.size:
                    if block.expandable is not None:
                        allocator._unmap(block)
                    elif not block.split:
                        allocator._release_block(block)
                    return

    def _pool(self, event: Event) -> PoolId:
        return tuple(event.get("pool_id") or DEFAULT_POOL)  # type: ignore[return-value]


def _gives_back(event: Event) -> bool:
    return event["action"] in ("segment_free", "segment_unmap")
