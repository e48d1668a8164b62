"""A pipeline's schedule: a lane a rank, a box an action, its micro-batch's number in it, messages as thin lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.plots import style
from helpers.plots.gantt import Gantt, Lane, Row
from helpers.plots.picture import Picture, drawn
from helpers.text.seconds import format_seconds

_COLOURS = {"F": style.BLUE, "B": style.ORANGE}
_SAID = {"F": "forward", "B": "backward"}
_BUBBLE = "#e4e7eb"
_MESSAGES = 400
"""More of them than this are left out: nobody could follow one."""
_SMALLEST = 6.0
"""Points of a micro-batch's number; one that does not fit at that is left out."""


@drawn
def schedule(
    run: Any, *, evidence: str = "arithmetic", title: str = "A pipeline's schedule", unit: str | None = None
) -> Picture:
    """What `helpers.simulator.world.pipeline.pipeline` returns: who works on which micro-batch when, and who waits.

    Numbers are micro-batches; odd ones are paler; a rank's second stage (and third, …) is drawn lower in its lane. At
    the right the most activations that each rank held at once, in micro-batches of all its layers. Lines: messages that
    take time. unit: what the run's times are in, if not seconds.
    """
    if not run.steps:
        raise ValueError("schedule: nothing ran")
    stages = [sorted({s.stage for s in run.steps if s.rank == rank}) for rank in range(run.ranks)]
    deep = max(map(len, stages))
    pitch = max(0.22, min(0.46, 4.6 / run.ranks)) if deep == 1 else max(0.3, min(0.62, 5.2 / run.ranks))
    bar = pitch * 0.84 / deep
    peaks = [peak * run.ranks / run.stages for peak in run.peak]
    lanes = []
    for rank, held in enumerate(stages):
        rows = [[s for s in run.steps if (s.rank, s.stage) == (rank, stage)] for stage in held]
        rows += [[]] * (deep - len(held))
        boxes = [_boxes(steps, bar) for steps in rows]
        lanes.append(Lane(f"rank {rank}", boxes, ground=_BUBBLE, right=f"{peaks[rank]:.3g}"))
    gantt = Gantt(lanes, 0.0, run.seconds, bar=bar, space=pitch * 0.16, unit=unit or "", heading="peak")
    _numbers_to_fit(gantt, run)
    long = f"{run.seconds:.4g} {unit}" if unit else format_seconds(run.seconds)
    peak = " to ".join(f"{peak:.3g}" for peak in sorted({min(peaks), max(peaks)}))
    summary = f"{long} · bubble {run.bubble:.1%} of the ranks' time · micro-batches held at once: {peak}"
    kinds = [k for k in "FB" if any(s.kind == k for s in run.steps)]
    key: list[Any] = [((_COLOURS[k], _odd(_COLOURS[k])), _SAID[k]) for k in kinds]
    key.append(((_BUBBLE,), "bubble: nothing to do"))
    gantt.draw(evidence, title, summary, key=gantt.key(key), grid=False)
    sent = [_message(m, lanes[m.source], lanes[m.target]) for m in run.messages if m.end_s > m.start_s]
    if len(sent) <= _MESSAGES:
        gantt.links(sent, color=style.INK, linewidth=0.7, alpha=0.75, zorder=5)
    return gantt.picture(evidence, f"{title}: {run.ranks} ranks, {run.microbatches} micro-batches; {summary}")


def _odd(colour: str) -> Any:
    return style.blend(colour, style.PAPER, 0.42)


def _boxes(steps: list[Any], bar: float) -> Row:
    colours = [_odd(_COLOURS[s.kind]) if s.microbatch % 2 else _COLOURS[s.kind] for s in steps]
    start, end = np.array([s.start_s for s in steps]), np.array([s.end_s for s in steps])
    look: dict[str, Any] = {"bold": False, "edge": 0.5, "pad": 0.02, "size": min(8.5, 72 * bar * 0.72)}
    return Row(start, end, colours, texts=lambda i: (str(steps[i].microbatch),), **look)


def _numbers_to_fit(gantt: Gantt, run: Any) -> None:
    """One size for all numbers: that at which the longest has room in the longest box."""
    room, widest = max(s.end_s - s.start_s for s in run.steps) / gantt.inch, str(run.microbatches - 1)
    rows = [row for lane in gantt.lanes for row in lane.rows]
    size = rows[0].size
    while size > _SMALLEST and style.text_width(widest, size) + rows[0].pad > room:
        size -= 0.5
    for row in rows:
        row.size = size


def _message(sent: Any, source: Lane, target: Lane) -> tuple[float, float, float, float]:
    """From one lane's edge to the other's."""
    a, b = source.rows[0].y, target.rows[0].y
    down = sent.target > sent.source
    return sent.start_s, a + source.height * down, sent.end_s, b + target.height * (not down)
