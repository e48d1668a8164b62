"""Segments and blocks that change event by event, by the allocator's own rules: what history is rebuilt on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace

from helpers.simulator.allocator.conf import SMALL, SMALL_SEGMENT, Conf

from .snapshot import ALLOCATED, FREE, PENDING, Block, Event, Frame, Segment, Snapshot


def _block_size(conf: Conf, nbytes: int, room: int | None, expandable: bool = False) -> int:
    """Size of the block that a request of `nbytes` gets at the start of a free block of `room` bytes.

    What remains is split off where the allocator would. Without `room`, or with too little: the rounded request.
    """
    size = conf.round_size(nbytes)
    remains = (room or 0) - size
    return size if remains < 0 or conf.splits(size, remains, size <= SMALL or expandable) else size + remains


def pool_of(size: int) -> str:
    """The pool of a segment of that size, for events, which do not name it.

    The small pool asks CUDA for 2 MiB, and nothing else asks for so little (`get_allocation_size`); pages of a small
    expandable segment are as large.
    """
    return "small" if size <= SMALL_SEGMENT else "large"


@dataclass(slots=True)
class Live:
    """A block in use. born: index of the event that allocated it, -1 if that was before the first one."""

    size: int
    requested: int
    frames: tuple[Frame, ...]
    born: int = -1
    state: str = ALLOCATED


@dataclass(frozen=True, slots=True)
class Span:
    """A segment without its blocks."""

    address: int
    size: int
    stream: int
    pool: str
    expandable: bool = False
    pool_id: tuple[int, int] = (0, 0)


def _grows(span: Span, event: Event) -> bool:
    return span.expandable and span.stream == event.stream


@dataclass
class Heap:
    """Spans and blocks in use by address, and their sums: allocated, pending and reserved bytes."""

    spans: dict[int, Span] = field(default_factory=dict)
    live: dict[int, Live] = field(default_factory=dict)
    allocated: int = 0
    pending: int = 0
    reserved: int = 0
    _starts: list[int] = field(default_factory=list)
    _used: list[int] = field(default_factory=list)

    def copy(self) -> Heap:
        live = {address: replace(block) for address, block in self.live.items()}
        return replace(self, spans=dict(self.spans), live=live, _starts=[*self._starts], _used=[*self._used])

    def add_span(self, span: Span) -> None:
        old = self.spans.get(span.address)
        if old is None:
            insort(self._starts, span.address)
        self.reserved += span.size - (old.size if old else 0)
        self.spans[span.address] = span

    def remove_span(self, address: int) -> Span | None:
        span = self.spans.pop(address, None)
        if span is not None:
            self.reserved -= span.size
            self._starts.pop(bisect_left(self._starts, address))
        return span

    def map(self, event: Event, pool: str) -> None:
        """An expandable segment grows: the range joins what it touches, of the same stream and pool."""
        start, end = event.address, event.address + event.size
        at = bisect_left(self._starts, start)
        before = self.spans[self._starts[at - 1]] if at else None
        if before and before.address + before.size == start and _grows(before, event):
            self.remove_span(before.address)
            start, pool = before.address, before.pool
        after = self.spans.get(end)
        if after and _grows(after, event):
            self.remove_span(end)
            end += after.size
        self.add_span(Span(start, end - start, event.stream, pool, True))

    def unmap(self, address: int, size: int) -> None:
        """An expandable segment gives pages back, and may fall in two."""
        span = self.span_of(address)
        if span is None:
            return
        self.remove_span(span.address)
        end = span.address + span.size
        if span.address < address:
            self.add_span(replace(span, size=address - span.address))
        if address + size < end:
            self.add_span(replace(span, address=address + size, size=end - address - size))

    def span_of(self, address: int) -> Span | None:
        at = bisect_right(self._starts, address)
        span = self.spans[self._starts[at - 1]] if at else None
        return span if span and address < span.address + span.size else None

    def room(self, address: int) -> int | None:
        """Bytes from `address` to the next block in use or the segment's end; None outside every segment."""
        span = self.span_of(address)
        if span is None:
            return None
        at = bisect_left(self._used, address)
        end = span.address + span.size
        return min(end, self._used[at] if at < len(self._used) else end) - address

    def put(self, address: int, block: Live) -> None:
        self.drop(address)
        insort(self._used, address)
        self.live[address] = block
        self._sum(block, 1)

    def drop(self, address: int) -> Live | None:
        block = self.live.pop(address, None)
        if block is not None:
            self._used.pop(bisect_left(self._used, address))
            self._sum(block, -1)
        return block

    def mark(self, address: int, state: str) -> None:
        block = self.live.get(address)
        if block is not None:
            self._sum(block, -1)
            block.state = state
            self._sum(block, 1)

    def _sum(self, block: Live, sign: int) -> None:
        if block.state == ALLOCATED:
            self.allocated += sign * block.size
        else:
            self.pending += sign * block.size

    def apply(self, event: Event, conf: Conf, size: int | None = None) -> None:
        """Do what the event says. size: the block's exact size where it is known, else it is worked out."""
        match event.action:
            case "alloc":
                if size is None:
                    span = self.span_of(event.address)
                    room = self.room(event.address)
                    size = _block_size(conf, event.size, room, span is not None and span.expandable)
                self.put(event.address, Live(size, event.size, event.frames, event.index))
            case "free_requested":
                self.mark(event.address, PENDING)
            case "free_completed":
                self.drop(event.address)
            case "segment_alloc":
                self.add_span(Span(event.address, event.size, event.stream, pool_of(event.size)))
            case "segment_free":
                self.remove_span(event.address)
            case "segment_map":
                self.map(event, pool_of(event.size))
            case "segment_unmap":
                self.unmap(event.address, event.size)

    def segments(self) -> tuple[Segment, ...]:
        """As a snapshot would list them: segments by address, their blocks, the free ones between them."""
        segments = []
        for start in self._starts:
            span = self.spans[start]
            end, at, blocks = start + span.size, start, []
            for address in self._used[bisect_left(self._used, start) : bisect_left(self._used, end)]:
                block = self.live[address]
                if address > at:
                    blocks.append(Block(at, address - at))
                if address >= at:
                    size = min(block.size, end - address)
                    blocks.append(Block(address, size, block.requested, block.state, block.frames))
                    at = address + size
            if at < end:
                blocks.append(Block(at, end - at, 0, FREE))
            kind = span.expandable, span.pool_id
            segments.append(Segment(start, span.size, span.stream, span.pool, tuple(blocks), *kind))
        return tuple(segments)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Heap:
        """The heap of a snapshot's final state."""
        heap = cls()
        for part in snapshot.segments:
            kind = part.expandable, part.pool_id
            heap.add_span(Span(part.address, part.size, part.stream, part.pool, *kind))
            for block in part.blocks:
                if block.state != FREE:
                    heap.put(block.address, Live(block.size, block.requested, block.frames, -1, block.state))
        return heap
