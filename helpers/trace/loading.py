"""A trace's file → its JSON; and for every way in which a file can be broken, what to do about it."""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

AGAIN = (
    "write it again with prof.export_chrome_trace(path) after the `with profile(…) as prof:` block has ended"
)


class TraceError(ValueError):
    """What was given cannot be read as a trace: the message says what, where, and what to do."""


def load(path: Path) -> Any:
    """The content of a .json or .json.gz file. FileNotFoundError, or TraceError for what is none."""
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.name.endswith((".json", ".json.gz")))
        raise TraceError(
            f"{path.name} is a folder; give one of its files" + (f", e.g. {inside[0]}" if inside else "")
        )
    if not path.exists():
        raise FileNotFoundError(f"no trace at {path}: run the cell that records it, or check the path")
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, zlib.error, OSError) as error:
            raise TraceError(
                f"{path.name}: the gzip data is cut off or damaged after {len(raw):,} bytes ({error}): copy the "
                f"file again, or {AGAIN}"
            ) from error
    if not raw.strip():
        raise TraceError(f"{path.name} is empty: {AGAIN}")
    return _parse(raw, path.name)


def _parse(raw: bytes, where: str) -> Any:
    """The file's JSON. The garbage collector rests meanwhile: it would look at every new event again and again."""
    if raw[:1] == b"\x80":
        raise TraceError(
            f"{where} is a pickle, not a trace: a memory snapshot is read with helpers.memory.read(path)"
        )
    text = raw.decode("utf-8-sig", errors="replace")
    resting = gc.isenabled()
    gc.disable()
    try:
        # strict=False: kernel names of old profilers hold raw tabs and line ends
        return json.loads(text, strict=False)
    except RecursionError as error:
        raise TraceError(f"{where} is not a trace: its lists are nested thousands deep") from error
    except json.JSONDecodeError as error:
        if text.lstrip()[:1] not in "{[":
            raise TraceError(
                f"{where} is not JSON: it begins with {text.lstrip()[:24]!r}. Give the .json or .json.gz that "
                "export_chrome_trace wrote"
            ) from error
        left = len(text) - error.pos
        seen = text.count('"ph"', 0, error.pos)
        if left < 2 or error.msg.startswith("Unterminated") or not text.rstrip().endswith(("}", "]")):
            raise TraceError(
                f"{where} is cut off at character {error.pos:,} (line {error.lineno:,}), after {seen:,} events: the "
                f"writer was stopped, or the copy is not whole; {AGAIN}"
            ) from error
        raise TraceError(
            f"{where} is broken at line {error.lineno:,}, column {error.colno} ({error.msg}), after {seen:,} "
            f"events, near {text[max(error.pos - 20, 0) : error.pos + 20]!r}: {AGAIN}"
        ) from error
    finally:
        if resting:
            gc.enable()
