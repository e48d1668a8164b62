"""From a snapshot's segments back to what was there before its history began."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from typing import Any

from helpers.simulator.allocator.blocks import DEFAULT_POOL, PoolId
from helpers.simulator.allocator.conf import MIN_LARGE, SMALL, SMALL_SEGMENT, Conf
from helpers.simulator.allocator.restore import Held, Used

__all__ = ["rewind"]

Event = Mapping[str, Any]
Range = tuple[int, bool, PoolId]  # stream, small, pool


def rewind(
    segments: Iterable[Mapping[str, Any]], events: list[Event], conf: Conf
) -> tuple[list[Held], dict[Range, int]]:
    """The segments before the first event, and the lowest address of each expandable range."""
    state = _State(segments, conf)
    for event in reversed(events):
        getattr(state, event["action"], state.nothing)(event)
    return list(state.held.values()), state.lowest


class _State:
    """Undoes one event after the other, the last one first."""

    def __init__(self, segments: Iterable[Mapping[str, Any]], conf: Conf) -> None:
        self.conf = conf
        self.held: dict[int, Held] = {}
        self.starts: list[int] = []
        self.lowest: dict[Range, int] = {}
        for segment in segments:
            held = Held(
                segment["address"],
                segment["total_size"],
                segment["stream"],
                segment["segment_type"] == "small",
                tuple(segment.get("segment_pool_id", DEFAULT_POOL)),
                bool(segment.get("is_expandable")),
            )
            place = held.address
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    asked = block.get("requested_size", block["size"])
                    held.used[place] = Used(place, block["size"], asked, block["state"] != "active_allocated")
                place += block["size"]
            self._add(held)

    def _add(self, held: Held) -> None:
        self.held[held.address] = held
        insort(self.starts, held.address)
        if held.expandable:
            key = (held.stream, held.small, held.pool)
            self.lowest[key] = min(self.lowest.get(key, held.address), held.address)

    def _drop(self, held: Held) -> None:
        del self.held[held.address]
        self.starts.remove(held.address)

    def _around(self, address: int) -> Held | None:
        place = bisect_right(self.starts, address) - 1
        held = self.held[self.starts[place]] if place >= 0 else None
        return held if held is not None and address < held.end else None

    # ------------------------------------------------------------------------------------ one event each

    def nothing(self, event: Event) -> None:
        """An action without an effect on the state."""

    def alloc(self, event: Event) -> None:
        held = self._around(event["addr"])
        if held is not None:
            held.used.pop(event["addr"], None)

    def free_completed(self, event: Event) -> None:
        held = self._around(event["addr"])
        if held is not None and event["addr"] not in held.used:
            self._used(held, event["addr"], event["size"])

    def free_requested(self, event: Event) -> None:
        held = self._around(event["addr"])
        if held is not None and event["addr"] in held.used:
            held.used[event["addr"]].pending = False

    def segment_alloc(self, event: Event) -> None:
        held = self.held.get(event["addr"])
        if held is not None:
            self._drop(held)

    def segment_free(self, event: Event) -> None:
        size = event["size"]
        pool = tuple(event.get("pool_id") or DEFAULT_POOL)
        # Segments of the small pool are 2 MiB, those of the large one never less than 10 MiB.
        small = size == SMALL_SEGMENT or size < MIN_LARGE
        self._add(Held(event["addr"], size, event["stream"], small, pool))

    def segment_map(self, event: Event) -> None:
        """Undone, the stretch is cut in up to two."""
        begin, end = event["addr"], event["addr"] + event["size"]
        held = self._around(begin)
        if held is None:
            return
        self._drop(held)
        key = (held.stream, held.small, held.pool)
        self.lowest[key] = min(self.lowest.get(key, begin), begin)
        for start, stop in ((held.address, begin), (end, held.end)):
            if stop > start:
                used = {a: u for a, u in held.used.items() if start <= a < stop}
                self._add(Held(start, stop - start, held.stream, held.small, held.pool, True, used))

    def segment_unmap(self, event: Event) -> None:
        """Undone, the stretch joins what it touches."""
        begin, end = event["addr"], event["addr"] + event["size"]
        left, right = self._around(begin - 1), self.held.get(end)
        near = left or right
        pool = near.pool if near else tuple(event.get("pool_id") or DEFAULT_POOL)
        small = near.small if near else event["size"] % self.conf.large_segment != 0
        used: dict[int, Used] = {}
        for each in (left, right):
            if each is not None and each.expandable:
                begin, end = min(begin, each.address), max(end, each.end)
                used.update(each.used)
                self._drop(each)
        self._add(Held(begin, end - begin, event["stream"], small, pool, True, used))

    # ------------------------------------------------------------------------------------ sizes

    def _used(self, held: Held, address: int, asked: int) -> None:
        """A block that is freed later. How long it was, its size and what lies around it tell.

        In the large pool a block is cut only where more than 1 MiB is left over, so no cached block there is
        that short: a shorter stretch between two blocks belongs to the first.
        """
        conf, size = self.conf, self.conf.round_size(asked)
        later = [a for a in held.used if a > address]
        until = min(later, default=held.end)
        if not held.small and not held.expandable:
            before = max((a for a in held.used if a < address), default=None)
            if before is not None:
                gap = address - (before + held.used[before].size)
                if 0 < gap <= SMALL:
                    held.used[before].size += gap
            if until - (address + size) <= SMALL or size >= conf.max_split_size:
                size = until - address
        held.used[address] = Used(address, min(size, until - address), asked, pending=True)
