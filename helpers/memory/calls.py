"""What the allocator did, one call of the program at a time, in a sentence; and programs, run on the allocator model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.sizes import size_text

from .heap import Heap, conf_of
from .reading import read
from .rebuild import History, history
from .snapshot import FREE, PENDING, Block, Event, Segment, Snapshot

__all__ = ["CAPACITY", "Move", "Steps", "moves", "steps_of"]

CAPACITY = 256 << 20
"""Memory of the model's card, bytes: small, so that a program of a few lines can fill it."""
_FACTOR = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MALLOC = re.compile(
    r"(\w+)\s*=\s*(?:malloc\()?\s*([\d_]+(?:\.\d+)?)\s*([KMG]iB|B)?\s*\)?(?:\s+on\s+(?:stream\s+)?(\d+))?"
)
_FREE = re.compile(r"(?:free|del)\s*\(?\s*(\w+)\s*\)?")
_RECORD = re.compile(r"(\w+)\.record_stream\((\d+)\)")
_FORMS = "a = 20 MiB · a = 20 MiB on 1 (a stream) · free a · a.record_stream(1) · synchronize · empty_cache"


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
    return tuple(_move(found, start, end) for start, end in [(0, 0), *_calls(found)])


def _calls(found: History) -> list[tuple[int, int]]:
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


def _move(found: History, start: int, end: int) -> Move:
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


@dataclass(frozen=True)
class Steps:
    """Step 0 is the start; step i is the i-th call. lines: the program's text for each call, "" without one."""

    found: History
    bounds: tuple[tuple[int, int], ...]
    lines: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def evidence(self) -> str:
        return self.found.snapshot.evidence

    def move(self, step: int) -> Move:
        """What call `step` did, 0 … len(self). IndexError outside."""
        if not 0 <= step <= len(self):
            raise IndexError(f"step {step}: there are steps 0 to {len(self)}")
        start, end = self.bounds[step - 1] if step else (self._first, self._first)
        if step and start == end:
            return Move(start, end, "other", _nothing(self.lines[step - 1]))
        return (
            replace(_move(self.found, start, end), text=self._start())
            if not step
            else _move(self.found, start, end)
        )

    @property
    def _first(self) -> int:
        return self.bounds[0][0] if self.bounds else 0

    def _start(self) -> str:
        if self._first:
            return f"the state after {self._first} events"
        return "an empty allocator" if self.found.complete else "the state before the first recorded event"


def _nothing(line: str) -> str:
    known = next((words for name, words in _NOTHING.items() if name in line), "")
    return known or "nothing changes now"


_NOTHING = {
    "empty_cache": "no segment is free as a whole, so nothing goes back to CUDA",
    "synchronize": "the host waited; blocks that waited for another stream come back at the next malloc",
    "record_stream": "noted: a free will wait for what is in that stream by then",
}


def steps_of(source: Any, conf: str = "", capacity: int = CAPACITY, most: int = 300) -> Steps:
    """Steps of a program, of a list of events, or of anything that `memory.read` reads.

    A program is text, a line (or what stands before a ";") a call, or a list of such lines: "a = 20 MiB", "a = 20 MiB on 1" (a stream), "free a",
    "a.record_stream(1)", "synchronize", "empty_cache". It runs on the allocator model with PYTORCH_ALLOC_CONF `conf` on a card of `capacity` bytes. Of a long history
    the last `most` calls are taken. ValueError for a line that cannot be read.
    """
    if isinstance(source, History):
        found = source
    elif isinstance(source, str) and (re.search(r"[\n;]", source) or _MALLOC.fullmatch(source.strip())):
        return _run(re.split(r"[\n;]", source), conf, capacity)
    elif (
        isinstance(source, Sequence) and source and isinstance(source[0], str) and not isinstance(source, str)
    ):
        return _run(source, conf, capacity)
    elif isinstance(source, list) and source and isinstance(source[0], dict) and "action" in source[0]:
        found = history(_played(source))
    else:
        found = history(read(source))
    bounds = tuple(_calls(found)[-most:])
    return Steps(found, bounds, ("",) * len(bounds))


def _played(events: list[dict[str, Any]]) -> Snapshot:
    """A snapshot of what these events, from an empty allocator on, lead to."""
    snapshot = read({"segments": [], "device_traces": [events]}, evidence="simulated (allocator)")
    heap = Heap()
    for event in snapshot.events:
        heap.apply(event, conf_of({}))
    return replace(snapshot, segments=heap.segments())


def _run(lines: Iterable[str], conf: str, capacity: int) -> Steps:
    model = CachingAllocator(capacity, conf)
    held: dict[str, int] = {}
    bounds, told, before = [], [], 0
    for number, text in enumerate(lines, 1):
        line = text.split("#")[0].strip()
        if not line:
            continue
        try:
            _call(model, held, line)
        except OutOfMemory:
            pass  # an event of its own, and a step
        except (ValueError, KeyError) as error:
            raise ValueError(f"line {number} of the program, {line!r}: {error}") from None
        after = len(model.events)
        bounds.append((before, after))
        told.append(line)
        before = after
    snapshot = read(model)
    return Steps(history(snapshot), tuple(bounds), tuple(told))


def _call(model: Any, held: dict[str, int], line: str) -> None:
    if found := _MALLOC.fullmatch(line):
        name, number, unit, stream = found.groups()
        if name in held:
            raise ValueError(f"{name} is allocated already: free it first, or take another name")
        nbytes = round(float(number.replace("_", "")) * _FACTOR[unit])
        held[name] = model.malloc(nbytes, int(stream or 0), where=name)
    elif found := _RECORD.fullmatch(line):
        model.record_stream(_of(held, found[1]), int(found[2]))
    elif line.rstrip("()") == "empty_cache":
        model.empty_cache()
    elif line.rstrip("()") == "synchronize":
        model.finish()
    elif found := _FREE.fullmatch(line):
        model.free(_of(held, found[1]))
        del held[found[1]]
    else:
        raise ValueError(f"cannot read it; a line is one of: {_FORMS}")


def _of(held: dict[str, int], name: str) -> int:
    if name not in held:
        raise ValueError(
            f"{name} is not allocated here (never, freed already, or its malloc ran out of memory)"
        )
    return held[name]
