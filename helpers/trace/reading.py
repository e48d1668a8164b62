"""The one reader of Kineto traces: a file (plain or gzip), a dict, a profile, a simulated GPU → Trace.

The format is Chrome's "Trace Event Format" as torch.profiler writes it (pytorch/kineto,
libkineto/src/output_json.cpp): complete events (ph "X") with `ts` and `dur` in microseconds.
"""

from __future__ import annotations

import gc
import gzip
import json
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from helpers.text.evidence import recorded
from helpers.text.terminal import printable

from .columns import Trace
from .names import DROPPED, KIND_OF, KINDS, WORK_KINDS

_AGAIN = (
    "write it again with prof.export_chrome_trace(path) after the `with profile(…) as prof:` block has ended"
)

_DAY = 86_400


class TraceError(ValueError):
    """What was given cannot be read as a trace: the message says what, where, and what to do.

    >>> trace.read({})
    Traceback (most recent call last):
    helpers.trace.reading.TraceError: the dict is not a trace: it has no list 'traceEvents'; it has no keys. ...
    """


def read(source: Any, evidence: str | None = None) -> Trace:
    """The trace in `source`: a path (.json, .json.gz), its dict, a torch.profiler.profile, or a simulated GPU.

    `evidence`: where it comes from, e.g. "recorded (H100, 2026-01)"; None: "simulated (…)" where the file says
    so, or "recorded (…)" where its events are more than a day old; else "live (GPU)" or "live (CPU)" by what is
    in it. FileNotFoundError for no such file; TraceError for a broken, empty, truncated or different one.

    >>> trace.read(profile).evidence
    'simulated (H100)'
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return _of_file(Path(source), Path(source).name, evidence)
    if isinstance(source, Mapping | list):
        return _trace(source, "the dict", evidence)
    return _from_live(source, evidence)


def _of_file(path: Path, where: str, evidence: str | None) -> Trace:
    """A file's trace. The garbage collector rests meanwhile: it would look at every new event again and again."""
    resting = gc.isenabled()
    gc.disable()
    try:
        return _trace(_load(path), printable(where), evidence)
    finally:
        if resting:
            gc.enable()


# What profiles held when they were read: torch lets a profile be exported once. With it, the results it came from,
# which are others after the next cycle of a schedule.
_exported: WeakKeyDictionary[Any, tuple[Any, Trace]] = WeakKeyDictionary()


def _from_live(source: Any, evidence: str | None) -> Trace:
    """The trace of a profile that can export itself, or of a simulated GPU that can tell what it did."""
    if not callable(getattr(source, "export_chrome_trace", None)):
        if callable(getattr(source, "trace", None)):
            return _trace(source.trace(), "the GPU", evidence)
        raise TypeError(
            "trace.read() takes a path, a dict, a torch.profiler.profile or a simulated GPU, not "
            f"{type(source).__name__}"
        )
    results = getattr(getattr(source, "profiler", None), "kineto_results", None)
    before = _exported.get(source)
    if results is not None and before is not None and before[0] is results:
        trace = before[1]
        return replace(trace, evidence=evidence) if evidence else trace
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        try:
            source.export_chrome_trace(str(path))
        except (AssertionError, RuntimeError, AttributeError) as error:
            if "already saved" in str(error):
                raise TraceError(
                    "this profile was exported before, and torch writes a profile once: read the file that it "
                    "was written to, trace.read(path)"
                ) from error
            raise TraceError(
                f"the profile has nothing to export yet ({error or type(error).__name__}): read it after its "
                "`with` block, and with a schedule after at least one active step"
            ) from error
        trace = _of_file(path, "the profile", evidence)
    if results is not None:
        _exported[source] = results, trace
    return trace


def _load(path: Path) -> Any:
    """The content of a .json or .json.gz file. FileNotFoundError, or TraceError for what is none."""
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.name.endswith((".json", ".json.gz")))
        raise TraceError(
            f"{path} is a folder; give one of its files" + (f", e.g. {inside[0]}" if inside else "")
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
                f"file again, or {_AGAIN}"
            ) from error
    if not raw.strip():
        raise TraceError(f"{path.name} is empty: {_AGAIN}")
    return _parse(raw, path.name)


def _parse(raw: bytes, where: str) -> Any:
    """The file's JSON."""
    if raw[:1] == b"\x80":
        raise TraceError(
            f"{where} is a pickle, not a trace: a memory snapshot is read with helpers.memory.read(path)"
        )
    where, text = printable(where), raw.decode("utf-8-sig", errors="replace")
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
                f"writer was stopped, or the copy is not whole; {_AGAIN}"
            ) from error
        raise TraceError(
            f"{where} is broken at line {error.lineno:,}, column {error.colno} ({error.msg}), after {seen:,} "
            f"events, near {text[max(error.pos - 20, 0) : error.pos + 20]!r}: {_AGAIN}"
        ) from error
    except ValueError as error:
        raise TraceError(f"{where} is not a trace: a number in it has thousands of digits") from error


def _trace(content: Any, where: str, evidence: str | None) -> Trace:
    about: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    if "segments" in about and "device_traces" in about:
        raise TraceError(f"{where} is a memory snapshot: read it with helpers.memory.read(…)")
    events = about.get("traceEvents") if about or isinstance(content, Mapping) else content
    if not isinstance(events, list):
        has = f"its keys are {', '.join(map(repr, list(about)[:6]))}" if about else "it has no keys"
        raise TraceError(
            f"{where} is not a trace: it has no list 'traceEvents'; {has}. Give what export_chrome_trace wrote"
        )
    wanted, unread = _complete(events, where)
    if not wanted:
        kinds = f" (there are {', '.join(sorted(unread)[:6])})" if unread else ""
        raise TraceError(
            f"{where} has {len(events):,} events, and none that is an operator, a call or device work{kinds}: the "
            "profiler saw nothing; run the code inside its `with` block, and with a schedule call prof.step()"
        )
    made = _columns(wanted, where)
    simulated = printable(about.get("simulated") or "")
    devices = about.get("deviceProperties") or []
    known = devices if isinstance(devices, list) else []
    named = tuple(printable(d.get("name", "GPU")) for d in known if isinstance(d, Mapping))
    base = about.get("baseTimeNanoseconds")
    if isinstance(base, int) and abs(base) < 1 << 63:
        made["began"] += base / 1e9
    if evidence is None:
        on_gpu = np.isin(made["kind"], [KINDS.index(k) for k in WORK_KINDS]).any()
        then = recorded((named or ("",))[0] if on_gpu else "CPU", made["began"])
        old = "no date" not in then and made["began"] < time.time() - _DAY
        live = then if old else f"live ({'GPU' if on_gpu else 'CPU'})"
        evidence = f"simulated ({simulated})" if simulated else live
    return Trace(source=where, evidence=evidence, devices=named, unread=unread, **made)


def _complete(events: list[Any], where: str) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Events with a duration, of the kinds that are read; and how many there are of other kinds."""
    try:
        timed = [e for e in events if e.get("ph") == "X"]
        kinds = Counter(e.get("cat") for e in timed)
        unread = Counter(
            {printable(cat): n for cat, n in kinds.items() if cat not in KIND_OF and cat not in DROPPED}
        )
        return [e for e in timed if e.get("cat") in KIND_OF], unread
    except (AttributeError, TypeError):
        i = next((i for i, e in enumerate(events) if not isinstance(e, dict)), -1)
        if i < 0:
            raise TraceError(f"{where}: an event's cat is not a text") from None
        raise TraceError(
            f"{where}: event {i} of 'traceEvents' is {type(events[i]).__name__}, not an object with ph, ts and dur"
        ) from None


def _columns(events: Sequence[dict[str, Any]], where: str) -> dict[str, Any]:
    """Arrays from the events, which are not kept. One pass a column: quicker than one row at a time."""
    nothing: dict[str, Any] = {}
    args = [a if isinstance(a := e.get("args"), dict) else nothing for e in events]
    ts = _numbers([e.get("ts") for e in events], events, "ts", where)
    dur = _numbers([e.get("dur", 0) for e in events], events, "dur", where)
    first, last = (
        np.clip(ts, -1e18, 1e18),
        np.clip(ts + np.clip(dur, 0, 1e300), -1e18, 1e18),
    )  # sums stay finite
    span = last.max() - first.min()
    if span > 1e12:
        raise TraceError(
            f"{where}: its events lie {span / 8.64e10:,.0f} days apart: `ts` and `dur` want microseconds of one clock"
        )
    start = np.rint((ts - ts.min()) * 1e3).astype(np.int64)
    # Kineto itself writes no negative duration, but other writers give -1 for what did not end.
    end = start + np.rint(np.maximum(dur, 0) * 1e3).astype(np.int64)
    names: dict[str, int] = {}
    threads: dict[tuple[object, object], int] = {}
    name = [names.setdefault(str(e.get("name")), len(names)) for e in events]
    places = [(e.get("pid"), e.get("tid")) for e in events]
    try:
        thread = [threads.setdefault(p, len(threads)) for p in places]
    except TypeError:
        raise TraceError(f"{where}: an event's pid or tid is neither a number nor a text") from None
    code = {cat: KINDS.index(kind) for cat, kind in KIND_OF.items()}
    kind = np.array([code[e["cat"]] for e in events], np.int8)
    on_device = np.isin(kind, [KINDS.index(k) for k in (*WORK_KINDS, "gpu annotation")]).tolist()
    stream = [
        _whole(a.get("stream", p[1]), 0) if g else -1
        for a, p, g in zip(args, places, on_device, strict=True)
    ]  # fmt: skip
    device = [
        _whole(a.get("device", p[0]), 0, 31) if g else -1
        for a, p, g in zip(args, places, on_device, strict=True)
    ]  # fmt: skip
    order = np.lexsort((-end, start))
    values = {
        "kind": kind, "name": np.array(name, np.int32), "thread": np.array(thread, np.int32),
        "start_ns": start, "end_ns": end, "device": np.array(device, np.int32),
        "stream": np.array(stream, np.int64),
        "correlation": _whole_all(args, "correlation"), "bytes": _whole_all(args, "bytes"),
    }  # fmt: skip
    columns: dict[str, Any] = {key: column[order] for key, column in values.items()}
    printed = tuple(tuple(printable(i) if isinstance(i, str) else i for i in place) for place in threads)
    began = float(ts.min()) / 1e6
    return columns | {"names": tuple(map(printable, names)), "threads": printed, "began": began}


def _numbers(
    values: list[Any], events: Sequence[dict[str, Any]], key: str, where: str
) -> NDArray[np.float64]:
    try:
        numbers = np.array(values, np.float64)
        if numbers.shape != (len(values),):
            raise ValueError
        bad = np.flatnonzero(~np.isfinite(numbers))
        if not len(bad):
            return numbers
        i = int(bad[0])
    except (TypeError, ValueError, OverflowError):
        i = next(i for i, v in enumerate(values) if not _is_number(v))
    value = values[i]
    shown = "a huge number" if isinstance(value, int) and abs(value) >= 1 << 70 else repr(value)
    raise TraceError(
        f"{where}: event {str(events[i].get('name'))!r} has {key} = {shown}, not a number of microseconds"
    )


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError, OverflowError):
        return False


def _whole(value: Any, otherwise: int, bits: int = 63) -> int:
    try:
        return whole if abs(whole := int(value)) < 1 << bits else otherwise
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _whole_all(args: Iterable[Mapping[str, Any]], key: str) -> NDArray[np.int64]:
    values = [a.get(key, default) for a, default in zip(args, repeat(-1))]  # noqa: B905
    try:
        numbers = np.array(values, np.int64)
        if numbers.shape == (len(values),):
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_whole(v, -1) for v in values], np.int64)
