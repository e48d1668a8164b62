"""Programs of mallocs and frees, run on the allocator model; what it did for each call, in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.text.sizes import size_text

from .reading import read
from .rebuild import History, history
from .snapshot import FREE, PENDING, Block, Event, Segment

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

    kind: "start", "malloc", "free", "release", "oom" or "other". See :func:`steps_of`.
    """

    start: int
    end: int
    kind: str
    text: str
    touched: tuple[int, int] | None = None


def _move(found: History, start: int, end: int) -> Move:
    """The call behind events start … end - 1 in words.

    A malloc takes the cudaMalloc, cudaFree or mapping that it caused with it; a free its completion, where that
    follows at once.
    """
    event = found.snapshot.events[end - 1]
    match event.action:
        case "alloc":
            return _malloc(found, start, end, event)
        case "free_requested":
            text = f"free of {size_text(event.size)}: another stream may still use the block, so it waits"
            return Move(start, end, "free", text, _block_at(found, end, event.address))
        case "free_completed":
            return _free(found, start, end, event)
        case "segment_free" | "segment_unmap":
            sizes = [e.size for e in found.snapshot.events[start:end] if e.action.startswith("segment_")]
            how, several = "cudaFree" if event.action == "segment_free" else "unmapped", len(sizes) > 1
            what = (
                f"{len(sizes)} pieces, {size_text(sum(sizes))} in all, go"
                if several
                else f"{size_text(sizes[0])} go"
            )
            return Move(start, end, "release", f"{how}: {what} back to CUDA", (event.address, event.size))
        case "oom":
            text = f"out of memory: {size_text(event.size)} asked for"
            if event.device_free is not None:
                text += f", CUDA has {size_text(event.device_free)} left"
            free = (b.size for s in found.segments(end) for b in s.blocks if b.state == FREE)
            largest = max(free, default=0)
            text += f"; the largest free block has {size_text(largest)}" if largest else "; no block is free"
            return Move(start, end, "oom", text)
    return Move(start, end, "other", event.action)


def _malloc(found: History, start: int, end: int, event: Event) -> Move:
    before = _find(found.segments(end - 1), event.address)[1]  # after cudaMalloc, before the block is taken
    room = before if before and before.state == FREE else None
    segment, block = _find(found.segments(end), event.address)
    touched = (event.address, block.size if block else event.size)
    asked = f"malloc of {size_text(event.size)}"
    rounded = found.snapshot.conf.round_size(event.size)
    if size_text(rounded) != size_text(event.size):
        asked += f" (rounded up to {size_text(rounded)})"
    caused, parts = found.snapshot.events[start : end - 1], []
    new = [e for e in caused if e.action in ("segment_alloc", "segment_map")]
    gone = [e for e in caused if e.action in ("segment_free", "segment_unmap")]
    back = [e for e in caused if e.action == "free_completed"]
    if back:
        parts.append(f"{size_text(sum(e.size for e in back))} that waited for another stream are free again")
    if gone:
        parts.append(f"{size_text(sum(e.size for e in gone))} of free segments go back to CUDA")
    if new:
        size = size_text(sum(e.size for e in new))
        mapped = new[0].action == "segment_map"
        how = f"{size} more are mapped" if mapped else f"cudaMalloc of a segment of {size}"
        parts.append(f"no free block fits: {how}")
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
    one = "block before it" if before else "block after it" if after else ""
    joined = "blocks on both sides" if before and after else one
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
            blocks = (b for b in segment.blocks if b.address <= address < b.address + b.size)
            return segment, next(blocks, None)
    return None, None


def _block_at(found: History, k: int, address: int) -> tuple[int, int] | None:
    _, block = _find(found.segments(k), address)
    return (block.address, block.size) if block and block.state in ("allocated", PENDING) else None


@dataclass(frozen=True)
class Steps:
    """Step 0 is the start; step i is the i-th call. lines: the program's text for each call. See :func:`steps_of`."""

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
        if not step:
            return Move(0, 0, "start", "an empty allocator")
        start, end = self.bounds[step - 1]
        if start < end:
            return _move(self.found, start, end)
        words = (words for name, words in _NOTHING.items() if name in self.lines[step - 1])
        return Move(start, end, "other", next(words, "nothing changes now"))


_NOTHING = {
    "empty_cache": "no segment is free as a whole, so nothing goes back to CUDA",
    "synchronize": "the host waited; blocks that waited for another stream come back at the next malloc",
    "record_stream": "noted: a free will wait for what is in that stream by then",
}


def steps_of(program: str | Iterable[str], conf: str = "", capacity: int = CAPACITY) -> Steps:
    """Run a program on the allocator model, and step through what it did.

    A program is text, a line (or what stands before a ";") a call, or a list of such lines: "a = 20 MiB", "a = 20 MiB
    on 1" (a stream), "free a", "a.record_stream(1)", "synchronize", "empty_cache". conf: PYTORCH_ALLOC_CONF;
    capacity: bytes of the card. ValueError for a line that cannot be read.

    >>> memory.steps_of("a = 20 MiB; free a").move(2).text
    'free of 20 MiB: the whole segment is free, and stays reserved'
    """
    model = CachingAllocator(capacity, conf)
    held: dict[str, int] = {}
    bounds, told, before = [], [], 0
    for number, text in enumerate(re.split(r"[\n;]", program) if isinstance(program, str) else program, 1):
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
    if match := _MALLOC.fullmatch(line):
        name, number, unit, stream = match.groups()
        if name in held:
            raise ValueError(f"{name} is allocated already: free it first, or take another name")
        nbytes = round(float(number.replace("_", "")) * _FACTOR[unit])
        held[name] = model.malloc(nbytes, int(stream or 0), where=name)
    elif match := _RECORD.fullmatch(line):
        model.record_stream(_of(held, match[1]), int(match[2]))
    elif line.rstrip("()") == "empty_cache":
        model.empty_cache()
    elif line.rstrip("()") == "synchronize":
        model.finish()
    elif match := _FREE.fullmatch(line):
        model.free(_of(held, match[1]))
        del held[match[1]]
    else:
        raise ValueError(f"cannot read it; a line is one of: {_FORMS}")


def _of(held: dict[str, int], name: str) -> int:
    if name not in held:
        raise ValueError(
            f"{name} is not allocated here (never, freed already, or its malloc ran out of memory)"
        )
    return held[name]
