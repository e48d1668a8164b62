"""From a file, a dict or a device to a Snapshot: one reader for live, recorded and simulated memory.

A pickle is a program: loading one from somewhere else with `pickle.load` runs whatever its author liked. A snapshot
needs none of that power, so the loader here finds no class and no function, and calls nothing.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.text.evidence import check_evidence, recorded
from helpers.text.terminal import printable

from .snapshot import ALLOCATED, FREE, PENDING, Block, Event, Frame, Segment, Snapshot, frame_of

MAX_BYTES = 256 << 20
"""Largest file, unpacked: some 600,000 events. A snapshot of more says less."""
MAX_PARTS = 2_000_000
"""Most segments, blocks and events together; also stops a small file that names one list a million times."""
MAX_FRAMES = 512
MAX_SIZE = 1 << 42
"""Largest block, segment or request, bytes: 4 TiB, more than any card has; the sum of MAX_PARTS such fits 64 bits."""

_LARGEST = (1 << 63) - 1
# "active_awaiting_free" is what torch's docstring says, "active_pending_free" what its C++ writes.
_STATES = {
    "active_allocated": ALLOCATED, "active_pending_free": PENDING, "active_awaiting_free": PENDING, "inactive": FREE,
}  # fmt: skip


class SnapshotError(ValueError):
    """This is no memory snapshot that can be read; the message says why.

    >>> memory.read(b"")
    Traceback (most recent call last):
    helpers.memory.reading.SnapshotError: empty: was _dump_snapshot interrupted?
    """


def read(
    source: Any,
    *,
    evidence: str | None = None,
    device: int | None = None,
) -> Snapshot:
    """A memory snapshot from wherever it is.

    source: a file (pickle of torch.cuda.memory._dump_snapshot; plain or gzip), its bytes, the dict of
    `_snapshot()`, or something that has one: a simulated GPU, a real one, torch.cuda, an allocator model.
    evidence: the label; by default "simulated (…)" where the snapshot says so, "live (GPU)" for torch.cuda, and for
    a file "recorded (GPU not named, …)", with the month of its events where they have a time. device: which one, where the snapshot holds several. SnapshotError, with the file's path, for what is broken, too large, or no snapshot;
    FileNotFoundError where there is no file.

    >>> memory.read(gpu).evidence
    'simulated (H100)'
    """
    if isinstance(source, Snapshot):
        return source
    if not isinstance(source, (str, os.PathLike)):
        return _snapshot(*_raw(source), evidence, device)
    try:
        return _snapshot(_plain(_content(Path(source))), None, evidence, device)
    except SnapshotError as error:
        raise SnapshotError(f"{printable(os.fspath(source))}: {error}") from None


def _snapshot(raw: Any, found: str | None, evidence: str | None, device: int | None) -> Snapshot:
    """Plain data, checked. found: the evidence label that its origin gives it."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("segments"), list):
        raise SnapshotError(
            "this is no memory snapshot: it has no list 'segments'. torch.cuda.memory._snapshot() makes one"
        )
    if raw.get("simulated") and evidence and not evidence.startswith("simulated"):
        raise SnapshotError(
            f"this snapshot was simulated ({raw['simulated']}): it cannot be labelled {evidence!r}"
        )
    label = evidence or (f"simulated ({raw['simulated']})" if raw.get("simulated") else None) or found
    label = label or recorded("GPU not named", _began(raw))
    return _Reader(raw).snapshot(_checked(label), device)


def _began(raw: Mapping[str, Any]) -> float | None:
    """When the first event was that has a time, in seconds since 1970. (Which fields are sound is told later.)"""
    traces = raw.get("device_traces")
    events = (
        (e for trace in traces if isinstance(trace, list) for e in trace) if isinstance(traces, list) else ()
    )
    times = (e.get("time_us") for e in events if isinstance(e, dict))
    first = next((t for t in times if isinstance(t, (int, float)) and 0 < t < 1 << 63), None)
    return None if first is None else first / 1e6


def _checked(label: str) -> str:
    if label in ("arithmetic", "live (GPU)") or re.fullmatch(r"simulated \([\w .+-]{1,40}\)", label):
        return label
    return check_evidence(label)


def _raw(source: Any) -> tuple[Any, str | None]:
    """The snapshot as plain data, and the evidence label that its origin gives it."""
    if isinstance(source, (bytes, bytearray)):
        return _plain(bytes(source)), None
    if isinstance(source, Mapping):
        return source, _here()
    if isinstance(source, list):  # torch.cuda.memory_snapshot() gives the segments alone
        return {"segments": source}, _here()
    for owner in (source, getattr(source, "memory", None)):
        take = getattr(owner, "_snapshot", None)
        if callable(take):
            return take(), getattr(source, "evidence", None) or "live (GPU)"
    if callable(getattr(source, "snapshot", None)):
        return source.snapshot(), getattr(source, "evidence", None) or "simulated (allocator)"
    raise SnapshotError(
        f"a {type(source).__name__} is no memory snapshot: give a path, the dict of _snapshot(), or a GPU"
    )


def _here() -> str:
    torch = sys.modules.get("torch")  # who has taken a snapshot here has loaded it
    return (
        "live (GPU)" if torch and torch.cuda.is_available() and torch.cuda.is_initialized() else "arithmetic"
    )


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise SnapshotError("this is a folder: give a file of torch.cuda.memory._dump_snapshot(path)")
    if not path.exists():
        raise FileNotFoundError(f"no snapshot at {path}: run the cell that dumps it, or check the path")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _plain(data: bytes) -> Any:
    """The plain objects in a pickle, packed or not."""
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            raise SnapshotError("the gzip data is broken or cut off: copy the file again") from None
    if len(data) > MAX_BYTES:
        raise SnapshotError(f"more than {MAX_BYTES:,} bytes unpacked: record with a smaller max_entries")
    if not data:
        raise SnapshotError("empty: was _dump_snapshot interrupted?")
    if data[:1] != pickle.PROTO:  # with which every pickle of protocol 2 and later begins
        raise SnapshotError(
            "this is no pickle of a memory snapshot: take one with torch.cuda.memory._dump_snapshot(path)"
        )
    try:
        return _PlainData(io.BytesIO(data)).load()
    except SnapshotError:
        raise
    # damage can look like anything: a wrong key, a text that is no text, no memory
    except Exception as error:
        what = f"cut off or damaged ({type(error).__name__} {error})"
        raise SnapshotError(f"the pickle is {what}: copy the file again, or take the snapshot anew") from None


class _PlainData(pickle._Unpickler):
    """dict, list, tuple, set, text, bytes, numbers, None: whatever else a pickle asks for, it must find by name.

    Python's own unpickler, not C's (pickle.Unpickler): that one keeps what it has seen in an array as long as the
    largest number in the file says, so five damaged bytes would take 32 GiB.
    """

    def find_class(self, module: str, name: str) -> Any:
        raise SnapshotError(
            f"refused: this pickle asks for {f'{module}.{name}'[:160]}. A memory snapshot holds numbers, text, lists "
            "and dicts only; whatever asks for more could run its author's code on your machine. Nothing of it was run"
        )


class _Reader:
    """Checks every field it takes, shares equal stacks, and counts what it builds."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw, self.parts = raw, 0
        self.stacks: dict[int, tuple[Frame, ...]] = {}  # by id(): `raw` keeps them alive meanwhile
        self.seen: dict[tuple[Any, ...], Frame] = {}

    def snapshot(self, evidence: str, device: int | None) -> Snapshot:
        segments: dict[int, list[Segment]] = {}
        for entry in self.raw["segments"]:
            number = _int(entry, "device", 0)
            segments.setdefault(number, []).append(self.segment(entry))
        traces = self.raw.get("device_traces") or []
        if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
            raise SnapshotError("'device_traces' is no list of lists of events")
        used = (i for i, trace in enumerate(traces) if any(_action(e) not in _ABOUT_NOTHING for e in trace))
        held = sorted({*segments, *used} if device is None else ())
        if device is None:
            if len(held) > 1:
                raise SnapshotError(
                    f"this snapshot holds memory of devices {held}: choose one, read(…, device={held[0]})"
                )
            device = held[0] if held else 0
        trace = traces[device] if 0 <= device < len(traces) else []
        events = tuple(self.event(i, entry) for i, entry in enumerate(trace))
        settings = self.raw.get("allocator_settings")
        ordered = sorted(segments.get(device, []), key=lambda segment: segment.address)
        kept = dict(settings) if isinstance(settings, Mapping) else {}
        return Snapshot(tuple(ordered), events, evidence, device, kept)

    def count(self) -> None:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise SnapshotError(
                f"more than {MAX_PARTS:,} segments, blocks and events: too large to read here"
            )

    def segment(self, entry: Any) -> Segment:
        self.count()
        size, at = _int(entry, "total_size", most=MAX_SIZE), _int(entry, "address")
        parts = entry.get("blocks")
        if not isinstance(parts, list):
            raise SnapshotError("a segment without a list 'blocks'")
        blocks, start = [], at
        for part in parts:
            blocks.append(self.block(part, at))
            at += blocks[-1].size
        if at - start != size:
            raise SnapshotError(
                f"the blocks of a segment sum to {at - start:,} bytes, and it has {size:,}: a damaged snapshot"
            )
        ids = entry.get("segment_pool_id")
        pool_id = tuple(ids) if isinstance(ids, (list, tuple)) and len(ids) == 2 else (0, 0)
        pool = "small" if entry.get("segment_type") == "small" else "large"
        stream, expandable = _int(entry, "stream", 0), bool(entry.get("is_expandable"))
        return Segment(start, size, stream, pool, tuple(blocks), expandable, pool_id)

    def block(self, entry: Any, at: int) -> Block:
        self.count()
        size, state = _int(entry, "size", most=MAX_SIZE), entry.get("state")
        if state not in _STATES:
            raise SnapshotError(f"a block in state {state!r}: known are {', '.join(_STATES)}")
        free = _STATES[state] == FREE
        # A free block's requested_size is what its last owner asked for.
        requested = 0 if free else _int(entry, "requested_size", size, MAX_SIZE)
        return Block(at, size, requested, _STATES[state], () if free else self.frames(entry))

    def event(self, index: int, entry: Any) -> Event:
        self.count()
        action = entry.get("action") if isinstance(entry, dict) else None
        if not isinstance(action, str):
            raise SnapshotError(f"event {index} has no 'action'")
        oom, time = action == "oom", entry.get("time_us")
        size = _int(entry, "size", 0, _LARGEST if oom else MAX_SIZE)
        return Event(
            index, printable(action), 0 if oom else _int(entry, "addr", 0), size, _int(entry, "stream", 0),
            time if isinstance(time, (int, float)) else None, self.frames(entry), _int(entry, "device_free", 0) if oom else None,
        )  # fmt: skip

    def frames(self, entry: dict[str, Any]) -> tuple[Frame, ...]:
        entries = entry.get("frames")
        if not entries:
            return ()
        if not isinstance(entries, list):
            raise SnapshotError("'frames' is no list")
        if id(entries) not in self.stacks:
            self.stacks[id(entries)] = tuple(self.frame(frame) for frame in entries[:MAX_FRAMES])
        return self.stacks[id(entries)]

    def frame(self, entry: Any) -> Frame:
        if not isinstance(entry, dict):
            raise SnapshotError("a frame is no dict")
        line = entry.get("line", 0)
        # a line of -1, in C++'s unsigned numbers: not known
        if type(line) is int and 1 << 63 <= line < 1 << 64:
            line = 0
        key = (
            printable(entry.get("filename", ""))[:500],
            _int({"line": line}, "line"),
            printable(entry.get("name", ""))[:200],
        )
        if key not in self.seen:
            self.seen[key] = frame_of(*key)
        return self.seen[key]


#: events without memory: taking a snapshot is one itself, and is noted for every GPU of the machine
_ABOUT_NOTHING = ("snapshot", "user_defined")


def _action(entry: Any) -> Any:
    return entry.get("action") if isinstance(entry, dict) else None


def _int(entry: Any, name: str, default: int | None = None, most: int = _LARGEST) -> int:
    if not isinstance(entry, dict):
        raise SnapshotError(f"a {type(entry).__name__} where a dict with {name!r} was expected")
    value = entry.get(name, default)
    if type(value) is int and (0 <= value <= most or (name == "line" and -most < value < 0)):
        return value
    shown = str(value)[:40] if not isinstance(value, int) or abs(value) < 1 << 70 else "a huge number"
    raise SnapshotError(f"{name!r} is {shown!r}: a whole number from 0 to {most:,} was expected")
