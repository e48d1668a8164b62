"""What the allocator did, one call of the program at a time, in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from .rebuild import History
from .sizes import conf_of, size_text
from .snapshot import FREE, PENDING, Block, Event, Segment

__all__ = ["Move", "calls", "move", "moves"]


@dataclass(frozen=True, slots=True)
class Move:
    """Events start … end - 1: what one call did. text: the same in words. touched: address and size of what it is about.

    kind: "start", "malloc", "free", "release", "map", "oom" or "other".
    """

    start: int
    end: int
    kind: str
    text: str
    touched: tuple[int, int] | None = None


def moves(found: History) -> tuple[Move, ...]:
    """Every call of the history in words, after a first move that is the state before them all.

    A malloc takes the cudaMalloc, cudaFree or mapping that it caused with it; a free its completion, where that
    follows at once.
    """
    return tuple(move(found, start, end) for start, end in [(0, 0), *calls(found)])


def calls(found: History) -> list[tuple[int, int]]:
    """Where the calls begin and end: event numbers start … end - 1 of each."""
    events, done, start = found.snapshot.events, [], 0
    for i, event in enumerate(events):
        after = events[i + 1] if i + 1 < len(events) else None
        if event.action.startswith("segment_") and _ends_in_alloc(events, i + 1):
            continue
        if (
            event.action == "free_requested"
            and after is not None
            and (after.action == "free_completed" and after.address == event.address)
        ):
            continue
        if event.action != "snapshot":
            done.append((start, i + 1))
        start = i + 1
    return done


def _ends_in_alloc(events: tuple[Event, ...], i: int) -> bool:
    """Whether the segment events that end before event i lead up to an alloc or an out-of-memory error."""
    while i < len(events) and events[i].action.startswith("segment_"):
        i += 1
    needed = events[i - 1].action in ("segment_alloc", "segment_map")
    return i < len(events) and (events[i].action == "oom" or (events[i].action == "alloc" and needed))


def move(found: History, start: int, end: int) -> Move:
    """One call in words; (0, 0) is the state before the first."""
    if end == 0:
        first = "an empty allocator" if found.complete else "the state before the first recorded event"
        return Move(0, 0, "start", first)
    event = found.snapshot.events[end - 1]
    match event.action:
        case "alloc":
            return _malloc(found, start, end, event)
        case "free_requested":
            text = f"free of {size_text(event.size)}: another stream may still use the block, so it waits"
            return Move(start, end, "free", text, _block_at(found, end, event.address))
        case "free_completed":
            return _free(found, start, end, event)
        case "segment_alloc" | "segment_map":
            text = f"{size_text(event.size)} from CUDA, and nothing in it yet"
            return Move(start, end, "map", text, (event.address, event.size))
        case "segment_free" | "segment_unmap":
            sizes = [e.size for e in found.snapshot.events[start:end] if e.action.startswith("segment_")]
            what = (
                f"{len(sizes)} pieces, {size_text(sum(sizes))} in all, go"
                if len(sizes) > 1
                else f"{size_text(sizes[0])} go"
            )
            how = "cudaFree" if event.action == "segment_free" else "unmapped"
            return Move(start, end, "release", f"{how}: {what} back to CUDA", (event.address, event.size))
        case "oom":
            text = f"out of memory: {size_text(event.size)} asked for"
            if event.device_free is not None:
                text += f", CUDA has {size_text(event.device_free)} left"
            largest = max(
                (b.size for s in found.segments(end) for b in s.blocks if b.state == FREE), default=0
            )
            text += f"; the largest free block has {size_text(largest)}" if largest else "; no block is free"
            return Move(start, end, "oom", text)
    return Move(start, end, "other", event.action)


def _malloc(found: History, start: int, end: int, event: Event) -> Move:
    before = [
        (s, b) for s in found.segments(end - 1) for b in s.blocks
    ]  # after cudaMalloc, before the block is taken
    room = next(
        (b for s, b in before if b.state == FREE and b.address <= event.address < b.address + b.size), None
    )
    segment, block = _find(found.segments(end), event.address)
    touched = (event.address, block.size if block else event.size)
    asked = f"malloc of {size_text(event.size)}"
    rounded = conf_of(found.snapshot.settings).round_size(event.size)
    if size_text(rounded) != size_text(event.size):
        asked += f" (rounded up to {size_text(rounded)})"
    new = [e for e in found.snapshot.events[start : end - 1] if e.action in ("segment_alloc", "segment_map")]
    gone = [
        e for e in found.snapshot.events[start : end - 1] if e.action in ("segment_free", "segment_unmap")
    ]
    back = [e for e in found.snapshot.events[start : end - 1] if e.action == "free_completed"]
    parts = []
    if back:
        parts.append(f"{size_text(sum(e.size for e in back))} that waited for another stream are free again")
    if gone:
        parts.append(f"{size_text(sum(e.size for e in gone))} of free segments go back to CUDA")
    if new:
        size = size_text(sum(e.size for e in new))
        mapped = new[0].action == "segment_map"
        parts.append(
            f"no free block fits: {f'{size} more are mapped' if mapped else f'cudaMalloc of a segment of {size}'}"
        )
    elif segment is not None:
        parts.append(f"a free block of {size_text(room.size) if room else '?'} fits, no call to CUDA")
    if room is not None and block is not None:
        parts.append(_split(room, block, rounded))
    return Move(start, end, "malloc", f"{asked}: " + "; ".join(parts), touched)


def _split(room: Block, block: Block, rounded: int) -> str:
    remains = room.size - block.size
    if remains > 0:
        return f"split: {size_text(block.size)} used, {size_text(remains)} remain"
    if block.size > rounded:
        return f"not split: the {size_text(block.size - rounded)} left over stay inside the block"
    return "used whole"


def _free(found: History, start: int, end: int, event: Event) -> Move:
    was = _block_at(found, end - 1, event.address)
    size = was[1] if was else event.size
    segment, block = _find(found.segments(end), event.address)
    text = f"free of {size_text(size)}"
    if end - start == 1:
        text = f"the other stream is done with the {size_text(size)} that waited"
    if segment is None or block is None:
        return Move(start, end, "free", text, was)
    before, after = block.address < event.address, block.address + block.size > event.address + size
    joined = {
        (True, True): "blocks on both sides",
        (True, False): "block before it",
        (False, True): "block after it",
    }.get((before, after))
    if joined:
        text += f": merged with the free {joined}, {size_text(block.size)} free in one piece"
    elif block.size < segment.size:
        text += ": its neighbours are in use, nothing to merge with"
    if block.size == segment.size:
        text += f"{',' if joined else ':'} the whole segment is free, and stays reserved"
    return Move(start, end, "free", text, was)


def _find(segments: tuple[Segment, ...], address: int) -> tuple[Segment | None, Block | None]:
    for segment in segments:
        if segment.address <= address < segment.address + segment.size:
            return segment, next(
                (b for b in segment.blocks if b.address <= address < b.address + b.size), None
            )
    return None, None


def _block_at(found: History, k: int, address: int) -> tuple[int, int] | None:
    _, block = _find(found.segments(k), address)
    return (block.address, block.size) if block and block.state in ("allocated", PENDING) else None
