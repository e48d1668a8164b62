"""The allocator after each call of a program: the rows, what the call touched, and the sums over the steps."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from helpers.memory.sizes import size_text
from helpers.memory.snapshot import ALLOCATED, FREE
from helpers.memory.steps import Steps, steps_of

from . import legend, style
from .blocks import BAR, ROW, TEXT, Rows, body_axes, key_of, name_of, outline, put_blocks, put_labels
from .picture import Picture, drawn
from .strip import LEFT

_STRIP = 0.95  # inches: the small curve under the rows
_MOST_ROWS = 12


@drawn
def allocator_step(source: Any, step: int, *, conf: str = "", title: str = "") -> Picture:
    """The allocator after `step` calls: rows, what the last call touched in a frame, what it did in words.

    source: Steps, a program of mallocs and frees, or a snapshot (see `memory.steps_of`). Rows keep their place and
    scale from step to step. IndexError for a step that is not there.
    """
    steps = source if isinstance(source, Steps) else steps_of(source, conf)
    move = steps.move(step)
    state = steps.found.segments(move.end)
    line = steps.lines[step - 1] if step else ""
    head = title or (f"Step {step} of {len(steps)}" + (f": {line}" if line else ""))
    scratch, _ = style.figure(1.0, evidence=steps.evidence)
    expandable = any(span.expandable for k in _ends(steps) for span in steps.found.heap(k).spans.values())
    widest = "expandable, 1000 MiB" if expandable else "default stream"
    left = LEFT + style.text_width(scratch, widest, TEXT) + 0.2
    ranges = _ranges(steps, move.end)
    width = style.WIDTH - left - 0.2
    scale = width / max((b - a for a, b in ranges), default=1)
    rows = Rows(ranges, left, scale)
    states = {b.state for s in state for b in s.blocks} | {ALLOCATED, FREE}
    lines = legend.flow(scratch, key_of(states))
    tall = ROW * max(1, len(ranges))
    body = 0.06 + tall + 0.1 + legend.height(lines) + _STRIP + 0.35
    fig, header = style.figure(body, evidence=steps.evidence, title=head, note=move.text)
    fig.set_layout_engine("none")
    ax = body_axes(fig, header)
    snapshot = steps.found.snapshot
    for i, (start, end) in enumerate(ranges):
        held = [s for s in state if start <= s.address < end]
        put_labels(ax, name_of(held[0], snapshot) if held else ("", ""), rows, i)
        outline(ax, rows, i, start, end)
        for segment in held:
            put_blocks(ax, fig, segment, rows, i)
    if not ranges:
        ax.text(style.WIDTH / 2, tall / 2, "no segment yet", ha="center", va="center", color=style.MUTED)
    if move.touched:
        _frame(ax, rows, *move.touched)
    legend.draw(ax, tall + 0.1, lines)
    _curve(fig, steps, step, left, width)
    free = max((b.size for s in state for b in s.blocks if b.state == FREE), default=0)
    alt = (
        f"{head}. {move.text}. allocated {size_text(int(steps.found.allocated[move.end]))}, reserved "
        f"{size_text(int(steps.found.reserved[move.end]))}, largest free block {size_text(free)}"
    )
    return Picture(fig, steps.evidence, alt)


def _ranges(steps: Steps, now: int) -> tuple[tuple[int, int], ...]:
    """Address ranges that hold segments at any step, by address; those of now only, where they are many."""
    found = steps.found
    spans = {(s.address, s.address + s.size) for k in _ends(steps) for s in found.heap(k).spans.values()}
    ranges = _joined(spans)
    if len(ranges) > _MOST_ROWS:
        ranges = _joined({(s.address, s.address + s.size) for s in steps.found.segments(now)})[:_MOST_ROWS]
    return tuple(ranges)


def _ends(steps: Steps) -> list[int]:
    """How many events lie behind step 0, 1, …"""
    return [steps.bounds[0][0] if steps.bounds else 0, *(end for _, end in steps.bounds)]


def _joined(spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _frame(ax: Axes, rows: Rows, address: int, size: int) -> None:
    row = rows.row(address)
    if row is not None:
        x, y, wide = rows.x(row, address), rows.y(row) - BAR / 2 - 0.03, max(size * rows.scale, 0.03)
        look: dict[str, Any] = {
            "facecolor": "none",
            "edgecolor": style.VERMILLION,
            "linewidth": 2.0,
            "zorder": 5,
        }
        ax.add_patch(Rectangle((x - 0.02, y), wide + 0.04, BAR + 0.06, **look))


def _curve(fig: Figure, steps: Steps, step: int, left: float, width: float) -> None:
    """Allocated and reserved over the steps, and where we are."""
    total = fig.get_size_inches()[1]
    ax = fig.add_axes((left / style.WIDTH, 0.36 / total, width / style.WIDTH, (_STRIP - 0.1) / total))
    ends = _ends(steps)
    most = max(1, max(int(steps.found.reserved[end]) for end in ends))
    for values, colour, style_ in (
        (steps.found.reserved, style.MUTED, (0, (4, 2))),
        (steps.found.allocated, style.BLUE, "-"),
    ):
        heights = [int(values[end]) / most for end in [*ends, ends[-1]]]
        ax.plot(range(len(heights)), heights, drawstyle="steps-post", color=colour, linestyle=style_)
    ax.axvline(step, color=style.VERMILLION, linewidth=1.2)
    here = ends[step]
    for name, values, colour, y in (
        ("reserved", steps.found.reserved, style.MUTED, 0.62),
        ("allocated", steps.found.allocated, style.BLUE, 0.22),
    ):
        text = f"{name}\n{size_text(int(values[here]))}"
        fig.text(
            LEFT / style.WIDTH,
            (0.36 + (_STRIP - 0.1) * y) / total,
            text,
            fontsize=TEXT,
            color=colour,
            va="center",
        )
    ax.set_xlim(0, len(ends) - 0.6)
    ax.set_ylim(0, 1.08)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("step", labelpad=1)
