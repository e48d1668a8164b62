"""A window of a trace, close up: host threads with their operators and calls, the streams, why nothing computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers.text.seconds import approx, format_seconds
from helpers.trace import Trace, idle, read

from . import trace_lanes as parts
from .gantt import Gantt, Lane
from .picture import Picture, drawn

_BAR, _PITCH, _SPACE = 0.23, 0.27, 0.14
_LINKS = 40


@drawn
def zoom(
    source: Any, start_s: float | None = None, end_s: float | None = None, *, title: str = "Close up"
) -> Picture:
    """What every host thread and every stream did from `start_s` to `end_s`, by name where a bar has room.

    `source`: a Trace, or what `trace.read` takes; times in seconds of its clock (None: its first and last
    event). From top to bottom: named spans, Python as far as recorded, operators (three levels), CUDA calls, then the
    streams, and why nothing computes. Thin lines join a launch to its work where there are few. ValueError for an
    empty window.
    """
    t = read(source)
    begin = 0 if start_s is None else round(start_s * 1e9)
    end = int(t.end_ns.max()) if end_s is None else round(end_s * 1e9)
    if not begin < end:
        raise ValueError(f"zoom: the window from {begin / 1e9} s to {end / 1e9} s is empty")
    hosts, left_out = parts.host_lanes(t, begin, end)
    streams = parts.stream_lanes(t, begin, end) if t.has_gpu else []
    gaps = idle(t, begin / 1e9, end / 1e9) if t.has_gpu else None
    lanes = [*hosts, *streams, *([parts.idle_lane(gaps, named=True)] if gaps else [])]
    gantt = Gantt(lanes, begin / 1e9, end / 1e9, bar=_BAR, pitch=_PITCH, space=_SPACE, clock=True)

    about = approx(t.evidence)
    note = f"{about}{format_seconds((end - begin) / 1e9)} of {about}{format_seconds(t.span_s)}"
    if gaps is not None:
        note += f" · GPU computes {about}{gaps.busy:.0%} of it"
    if left_out:
        note += f" · {left_out} more thread(s) not drawn"
    if gantt.has_columns:
        note += " · where bars are too short to see: height is their share of the time"
    used = {colour for lane in (*hosts, *streams) for row in lane.rows for colour in row.colours}
    key = parts.key_of(gantt, {
        "host": [(c, parts.HOST_SAID[kind]) for kind, c in parts.HOST.items() if c in used],
        "streams": [(c, parts.FAMILY_SAID[family]) for family, c in parts.FAMILY.items() if c in used],
        "idle": parts.idle_said(gaps, about) if gaps else [],
    })  # fmt: skip
    gantt.draw(t.evidence, title, note, key=key, rules=True)
    gantt.links(_launches(t, hosts, streams, begin, end), linewidth=0.8, alpha=0.8)
    alt = f"{title}: " + ", ".join(lane.label for lane in lanes)
    return gantt.picture(t.evidence, alt if about else f"{alt}; {note}")


def _launches(
    t: Trace, hosts: Sequence[Lane], streams: Sequence[Lane], begin: int, end: int
) -> list[tuple[float, float, float, float]]:
    """Lines from launch calls to the work they launched; none where they are too many to follow."""
    high, low = (
        {int(i): row.y for lane in side for row in lane.rows for i in row.ids} for side in (hosts, streams)
    )
    launches = []
    for call, row in zip(t.work.launch_row.tolist(), t.work.row.tolist(), strict=True):
        if call in high and row in low:
            launched, started = max(t.start_ns[call], begin) / 1e9, min(t.start_ns[row], end) / 1e9
            launches.append((launched, high[call] + _BAR, started, low[row]))
    return launches if len(launches) <= _LINKS else []
