"""A pipeline's schedule: a lane a rank, a box an action, its micro-batch's number in it, messages as thin lines."""

from __future__ import annotations

from typing import Any

from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Rectangle

from helpers.seconds import format_seconds

from . import style
from .picture import Picture, drawn

_COLOURS = {"F": style.BLUE, "B": style.ORANGE, "I": style.ORANGE, "W": style.GREEN}
_SAID = {"F": "forward", "B": "backward", "I": "backward of the input", "W": "backward of the weights"}
_MESSAGES = 400
"""More of them than this are left out: nobody could follow one."""


_SECONDS = ("s", "ms", "µs", "ns")
_SMALLEST = 6.0
"""Points of a micro-batch's number; one that does not fit at that is left out."""


@drawn
def schedule(
    run: Any, *, evidence: str = "arithmetic", title: str = "A pipeline's schedule", messages: bool = True,
    unit: str | None = None,
) -> Picture:  # fmt: skip
    """What `helpers.simulator.pipeline.pipeline` returns: who works on which micro-batch when, and who waits.

    Numbers are micro-batches; odd ones are paler; a rank's second stage (and third, …) is drawn lower in its lane. At
    the right the most activations that each rank held at once. messages: lines from the end of a send to its
    arrival, where it takes time. unit: what the run's times are in, if not seconds.
    """
    if not run.steps:
        raise ValueError("schedule: nothing ran")
    chunks = [sorted({s.stage for s in run.steps if s.rank == r}) for r in range(run.ranks)]
    deep = max(map(len, chunks))
    lane = max(0.22, min(0.46, 4.6 / run.ranks)) if deep == 1 else max(0.3, min(0.62, 5.2 / run.ranks))
    bar = lane * 0.84
    scale, unit = style.time_unit(run.seconds) if unit is None else (1.0, unit)
    long = format_seconds(run.seconds) if unit in _SECONDS else f"{run.seconds:.4g} {unit}"
    scratch, _ = style.figure(1.0, evidence=evidence)
    word = f"rank {run.ranks - 1}"
    left, right = style.text_width(scratch, word, style.TEXT, "bold") + 0.3, 0.62
    plot, low = 0.26 + lane * run.ranks, 0.78
    peak = f"{min(run.peak)}" if min(run.peak) == max(run.peak) else f"{min(run.peak)} to {max(run.peak)}"
    said = f"{long} · bubble {run.bubble:.1%} of the ranks' time · activations held at once: {peak}"
    fig, header = style.figure(plot + low, evidence=evidence, title=title, note=said)
    fig.set_layout_engine("none")
    tall = plot + low + header
    wide = style.WIDTH - left - right
    ax = fig.add_axes((left / style.WIDTH, low / tall, wide / style.WIDTH, plot / tall))
    ax.set_xlim(0, run.seconds * scale)
    ax.set_ylim(plot, 0)
    ax.set_yticks([])
    ax.set_xlabel(f"time, {unit}")
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    inch = run.seconds * scale / wide
    ax.text(
        run.seconds * scale + 0.08 * inch, 0.12, "peak", va="center", fontsize=style.SMALL, color=style.MUTED
    )
    middle = [0.26 + lane * (r + 0.5) for r in range(run.ranks)]
    for rank, y in enumerate(middle):
        ax.axhspan(y - bar / 2, y + bar / 2, color="#eceef1", zorder=0.5)
        ax.text(-0.1 * inch, y, f"rank {rank}", ha="right", va="center", fontweight="bold")
        ax.text(run.seconds * scale + 0.08 * inch, y, str(run.peak[rank]), va="center", fontsize=style.TEXT)
    boxes: dict[Any, list[Rectangle]] = {}
    room = max(s.end_s - s.start_s for s in run.steps) * scale / inch
    widest = str(run.microbatches - 1)
    size = min(8.5, 72 * bar / deep * 0.72)
    while size > _SMALLEST and style.text_width(fig, widest, size) + 0.02 > room:
        size -= 0.5
    widths = {str(m): style.text_width(fig, str(m), size) + 0.02 for m in range(run.microbatches)}
    for step in run.steps:
        level, y = chunks[step.rank].index(step.stage), middle[step.rank] - bar / 2
        high = bar / deep
        box = Rectangle((step.start_s * scale, y + level * high), (step.end_s - step.start_s) * scale, high)
        pale = (
            style.blend(_COLOURS[step.kind], style.PAPER, 0.42)
            if step.microbatch % 2
            else _COLOURS[step.kind]
        )
        boxes.setdefault(pale, []).append(box)
        text, width = str(step.microbatch), (step.end_s - step.start_s) * scale / inch
        if widths[text] < width:
            dark = step.kind in "FW" and not step.microbatch % 2
            ax.text(
                (step.start_s + step.end_s) / 2 * scale, y + (level + 0.52) * high, text, ha="center", va="center",
                fontsize=size, color=style.PAPER if dark else style.INK, zorder=4,
            )  # fmt: skip
    for colour, patches in boxes.items():
        ax.add_collection(
            PatchCollection(patches, facecolor=colour, edgecolor=style.PAPER, linewidth=0.5, zorder=3),
            autolim=False,
        )
    sent = [m for m in run.messages if m.end_s > m.start_s] if messages else []
    if 0 < len(sent) <= _MESSAGES:
        lines = [
            [
                (m.start_s * scale, middle[m.source] + (bar / 2 if m.target > m.source else -bar / 2)),
                (m.end_s * scale, middle[m.target] - (bar / 2 if m.target > m.source else -bar / 2)),
            ]
            for m in sent
        ]
        ax.add_collection(
            LineCollection(lines, color=style.INK, linewidth=0.7, alpha=0.75, zorder=5), autolim=False
        )
    x = min(left, 1.2)
    kinds = [k for k in "FBIW" if any(s.kind == k for s in run.steps)]
    for colour, text in [(_COLOURS[k], _SAID[k]) for k in kinds] + [("#d5d9df", "bubble: nothing to do")]:
        fig.text(x / style.WIDTH, 0.13 / tall, "■", color=colour, va="center", fontsize=style.TEXT)
        fig.text((x + 0.17) / style.WIDTH, 0.13 / tall, text, va="center", fontsize=style.SMALL)
        x += 0.17 + style.text_width(fig, text, style.SMALL) + 0.22
    return Picture(fig, evidence, f"{title}: {run.ranks} ranks, {run.microbatches} micro-batches; {said}")
