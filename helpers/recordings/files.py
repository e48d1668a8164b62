"""Recorded files: gzipped JSON, trimmed to what the readers use, without a word about the machine.

A recording travels with the course, so nothing in it may name a user, a host or a folder. Fields are copied
by a list of what is kept, never removed by a list of what is not; paths are cut to module-relative names; and
`check` refuses what still looks like a path before it is written.
"""

from __future__ import annotations

import getpass
import gzip
import hashlib
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST = 400 * 1024  # bytes of one packed file

_TRACE = ("schemaVersion", "displayTimeUnit", "record_shapes", "with_stack", "profile_memory", "simulated")
_DEVICE = (
    *("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms", "warpSize"),
    *("maxThreadsPerBlock", "maxThreadsPerMultiprocessor", "regsPerBlock", "sharedMemPerBlock"),
)
_EVENT = ("ph", "cat", "name", "ts", "dur", "id", "bp", "s")
_ARGS = (
    *("correlation", "stream", "device", "context", "bytes", "External id", "external id", "Input Dims"),
    *("Input type", "Sequence number", "Fwd thread id", "grid", "block", "est. achieved occupancy %"),
    *("Total Allocated", "Total Reserved", "Bytes", "Addr", "Device Id", "Device Type", "wait_on_stream"),
    *("wait_on_cuda_event_record_corr_id", "name", "labels", "sort_index", "graph id", "graph node id"),
)
_BLOCK = ("address", "size", "requested_size", "state")
_SEGMENT = (
    *("address", "device", "total_size", "allocated_size", "active_size", "requested_size", "stream"),
    *("segment_type", "segment_pool_id", "is_expandable"),
)
_ENTRY = ("action", "addr", "size", "stream", "device_free", "time_us")
_FRAMES = 8  # the innermost so many are kept

_ABSOLUTE = re.compile(r"(?<![\w./<])/(?:[\w.+@~-]+/)+[\w.+@~<>-]*|[A-Za-z]:\\[\w\\.+ -]+")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{9,}")


class MachineName(ValueError):
    """Something that is about to be written, or was read, names a machine, a user or a folder."""


def scrub(text: str) -> str:
    """The text with every absolute path cut to a module-relative name, and without object addresses."""
    return _ADDRESS.sub("", _ABSOLUTE.sub(lambda found: _relative(found.group(0)), text))


def _relative(path: str) -> str:
    plain = path.replace("\\", "/")
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in plain:
            return plain.rpartition(mark)[2]
    root = str(Path(__file__).resolve().parents[2]) + "/"
    if plain.startswith(root):
        return plain[len(root) :]
    library = re.search(r"/lib/python3\.\d+/(.+)", plain)
    return library.group(1) if library else plain.rstrip("/").rpartition("/")[2]


def trim_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A Kineto trace with the fields that are read, time from 0, and small process and thread numbers.

    ValueError if it has no events.
    """
    events = trace.get("traceEvents") or []
    timed = [float(e["ts"]) for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    if not timed:
        raise ValueError("the trace has no events: was anything run between the profiler's start and end?")
    start, numbers = min(timed), dict[int, int]()
    kept = {k: trace[k] for k in _TRACE if k in trace}
    devices = trace.get("deviceProperties", [])
    kept["deviceProperties"] = [{k: d[k] for k in _DEVICE if k in d} for d in devices]
    kept["traceEvents"] = [_event(e, start, numbers) for e in events if e.get("cat") != "Trace"]
    return kept


def _small(number: Any, known: dict[int, int]) -> Any:
    """A process or thread number as a small one, in order of appearance; those of devices and streams stay."""
    # Devices are processes 0, 1, … and streams small numbers in Kineto's traces; only the host's are large.
    if not isinstance(number, int) or number < 1000:
        return number
    return known.setdefault(number, 1000 + len(known))


def _event(event: Mapping[str, Any], start: float, numbers: dict[int, int]) -> dict[str, Any]:
    kept = {k: event[k] for k in _EVENT if k in event}
    kept["pid"], kept["tid"] = _small(event.get("pid", 0), numbers), _small(event.get("tid", 0), numbers)
    for key, zero in (("ts", start), ("dur", 0.0)):
        if key in kept:
            kept[key] = round(float(kept[key]) - zero, 3)
    if "name" in kept:
        kept["name"] = scrub(str(kept["name"]))
    args = {k: v for k, v in (event.get("args") or {}).items() if k in _ARGS}
    if args:
        kept["args"] = {k: _plain(v) for k, v in args.items()}
        if kept.get("ph") == "M" and "name" in args:  # "thread 4711 (python3)": the number is the machine's
            kept["args"]["name"] = re.sub(r"\d{4,}", "", kept["args"]["name"])
    return kept


def trim_snapshot(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """A memory snapshot (torch.cuda.memory._snapshot) with the fields that are read and short frames."""
    if "segments" not in snapshot:
        raise ValueError("that is no memory snapshot: it has no 'segments'")
    traces = snapshot.get("device_traces", [])
    start = min((e["time_us"] for trace in traces for e in trace if "time_us" in e), default=0)
    made: dict[str, Any] = {
        "segments": [
            _entry(s, _SEGMENT, start) | {"blocks": [_entry(b, _BLOCK, start) for b in s.get("blocks", [])]}
            for s in snapshot["segments"]
        ],
        "device_traces": [[_entry(e, _ENTRY, start) for e in trace] for trace in traces],
        "allocator_settings": _plain(snapshot.get("allocator_settings", {})),
    }
    return made | ({"simulated": snapshot["simulated"]} if "simulated" in snapshot else {})


def _entry(record: Mapping[str, Any], fields: tuple[str, ...], start: int) -> dict[str, Any]:
    kept = {k: _plain(record[k]) for k in fields if k in record}
    if "time_us" in kept:
        kept["time_us"] -= start
    if record.get("frames"):
        kept["frames"] = [_frame(f) for f in record["frames"][:_FRAMES]]
    return kept


def _frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    name, file = str(frame.get("name", "")), scrub(str(frame.get("filename", "")))
    return {"filename": file, "line": frame.get("line", 0), "name": name}


def _plain(value: Any) -> Any:
    """Plain data only; texts scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if hasattr(value, "item"):  # NumPy's and PyTorch's numbers
        return value.item()
    raise TypeError(f"a recording holds plain data, not {type(value).__name__}")


def plain_table(rows: Any) -> list[dict[str, Any]]:
    """A table as plain data. TypeError where it is not a list of dicts of plain values."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("a table is a list of dicts, one a row")
    return [_plain(row) for row in rows]


def check(text: str) -> None:
    """Raise MachineName if the text names this machine, its user, or any folder."""
    # A machine named "trace" or a user named "torch" tells nothing; those are words of every recording.
    names = [n for n in (socket.gethostname(), _user()) if len(n) > 7 or (len(n) > 4 and not n.isalpha())]
    named = next((n for n in names if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", text)), None)
    if named is None and (match := _ABSOLUTE.search(text)):
        named = match.group(0)
    if named is not None:
        raise MachineName(f"a recording must not name the machine, and this one says {named!r}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return ""


def pack(data: Any) -> bytes:
    """Compact gzipped JSON; the same data gives the same bytes. MachineName, or ValueError if too large."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    check(text)
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    if len(packed) > LARGEST:
        sizes = f"{len(packed) // 1024} KiB packed, and {LARGEST // 1024} KiB is the most"
        raise ValueError(f"{sizes}: record fewer steps or a smaller model")
    return packed


def unpack(packed: bytes) -> Any:
    """The data of a packed file."""
    return json.loads(gzip.decompress(packed))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
