"""Who worked when: a host lane, GPU lanes, launches, and what each way of timing reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import style
from .gantt import Gantt, Lane, Row
from .picture import Picture, drawn

_BAR, _SPACE = 0.38, 0.24
_COLOURS = (*style.SERIES[:-1], style.MUTED)
_OTHERS = "other names"
Work = tuple[str, str, float, float]
"""(name, lane, start in seconds, end in seconds)"""


def lanes_of(rows: Sequence[Work]) -> list[str]:
    """Lanes from the top down: in order of first appearance."""
    return list(dict.fromkeys(lane for _, lane, _, _ in rows))


def links_of(rows: Sequence[Work]) -> list[tuple[int, int]]:
    """Launch and work: indexes of a name's k-th row in the first lane and its k-th in any other."""
    lanes = lanes_of(rows)
    queues: dict[str, list[int]] = {}
    for i, (name, lane, _, _) in enumerate(rows):
        if lane != lanes[0]:
            queues.setdefault(name, []).append(i)
    links = []
    for i, (name, lane, _, _) in enumerate(rows):
        if lane == lanes[0] and queues.get(name):
            links.append((i, queues[name].pop(0)))
    return links


def rows_of(gpu: Any) -> list[Work]:
    """Rows of a simulated GPU: its `host` records on lane "CPU", its `kernels` on one lane a stream."""
    rows = [(r.name, "CPU", r.start_ns / 1e9, r.end_ns / 1e9) for r in gpu.host]
    lanes = {k.stream: f"GPU stream {k.stream}" for k in gpu.kernels}
    lanes |= {k.stream: f"communication {k.stream}" for k in gpu.kernels if k.kind == "collective"}
    rows += [(k.name, lanes[k.stream], k.start_ns / 1e9, k.end_ns / 1e9) for k in gpu.kernels]
    return rows


@drawn
def timeline(
    rows: Any, *, since_s: float = 0.0, evidence: str, spans: Mapping[str, tuple[float, float]] | None = None,
    marks: Mapping[str, float] | None = None, links: bool = True, title: str = "Who works when",
) -> Picture:  # fmt: skip
    """Bars on lanes over time. `rows`: (name, lane, start_s, end_s); lanes come in order of first appearance.

    Or a simulated GPU (`rows_of` makes the rows). What began before `since_s` is left out.

    `spans`: label → (start_s, end_s), drawn as brackets under the lanes: what a timer read. `marks`: label
    → time in seconds, a dashed line through all lanes. `links` joins the k-th bar of a name in the first
    lane (the launch) to the k-th of that name in another (the work). ValueError if there is no row, or one
    that ends before it starts.
    """
    rows = rows_of(rows) if hasattr(rows, "kernels") else list(rows)
    rows = [row for row in rows if row[2] >= since_s - 1e-12]
    if not rows:
        raise ValueError("timeline: no rows; give (name, lane, start_s, end_s) for each bar")
    for name, _, start, end in rows:
        if not start <= end:
            raise ValueError(f"timeline: {name} ends at {end} s, before it starts at {start} s")
    spans, marks = dict(spans or {}), dict(marks or {})
    names = list(dict.fromkeys(name for name, _, _, _ in rows))
    colours = {name: _COLOURS[min(i, len(_COLOURS) - 1)] for i, name in enumerate(names)}
    of_lane = {label: [row for row in rows if row[1] == label] for label in lanes_of(rows)}
    lanes = {label: _lane(label, mine, colours) for label, mine in of_lane.items()}
    times = [t for span in (*(row[2:] for row in rows), *spans.values(), marks.values()) for t in span]
    gantt = Gantt([*lanes.values()], min(times), max(times), bar=_BAR, space=_SPACE)
    told = {name for name, _, start, end in rows if gantt.fits(name, end - start)}
    untold = set(names) - told  # where the key is needed, it names every colour
    key = [((colours[name],), name) for name in names[: len(_COLOURS) - 1] if untold]
    if len(names) >= len(_COLOURS):
        key.append(((style.MUTED,), _OTHERS))
    gantt.draw(evidence, title, key=gantt.key(key), marks=marks, brackets=spans, grid=False)
    if links and len(lanes) > 1:
        joined = [(rows[i], rows[j]) for i, j in links_of(rows)]
        gantt.links([
            (launch[3], lanes[launch[1]].rows[0].y + _BAR, work[2], lanes[work[1]].rows[0].y)
            for launch, work in joined
        ])  # fmt: skip
    alt = f"{title}: " + ", ".join(f"{label} {len(lane.rows[0].start)} bars" for label, lane in lanes.items())
    return gantt.picture(evidence, alt + (f"; spans: {', '.join(spans)}" if spans else ""))


def _lane(label: str, rows: Sequence[Work], colours: Mapping[str, str]) -> Lane:
    start, end = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    bars = Row(start, end, [colours[row[0]] for row in rows], texts=lambda i: (rows[i][0],))
    return Lane(label, [bars])
