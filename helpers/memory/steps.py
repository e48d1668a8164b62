"""A program of mallocs and frees, run on the allocator model, and taken one call at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .heap import Heap
from .rebuild import History, history
from .sizes import conf_of
from .snapshot import Snapshot
from .source import read
from .words import Move, calls, move

__all__ = ["CAPACITY", "Steps", "steps_of"]

CAPACITY = 256 << 20
"""Memory of the model's card, bytes: small, so that a program of a few lines can fill it."""
_FACTOR = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MALLOC = re.compile(
    r"(\w+)\s*=\s*(?:malloc\()?\s*([\d_]+(?:\.\d+)?)\s*([KMG]iB|B)?\s*\)?(?:\s+on\s+(?:stream\s+)?(\d+))?"
)
_FREE = re.compile(r"(?:free|del)\s*\(?\s*(\w+)\s*\)?")
_RECORD = re.compile(r"(\w+)\.record_stream\((\d+)\)")
_FORMS = "a = 20 MiB · a = 20 MiB on 1 (a stream) · free a · a.record_stream(1) · synchronize · empty_cache"


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
            replace(move(self.found, start, end), text=self._start())
            if not step
            else move(self.found, start, end)
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
    bounds = tuple(calls(found)[-most:])
    return Steps(found, bounds, ("",) * len(bounds))


def _played(events: list[dict[str, Any]]) -> Snapshot:
    """A snapshot of what these events, from an empty allocator on, lead to."""
    snapshot = read({"segments": [], "device_traces": [events]}, evidence="simulated (allocator)")
    heap = Heap()
    for event in snapshot.events:
        heap.apply(event, conf_of({}))
    return replace(snapshot, segments=heap.segments())


def _run(lines: Iterable[str], conf: str, capacity: int) -> Steps:
    from helpers.simulator.allocator import CachingAllocator, OutOfMemory

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
