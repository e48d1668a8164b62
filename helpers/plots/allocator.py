"""The caching allocator's segments as rows to scale, with the blocks inside them: all at once, or call by call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.memory.analysis import fragmentation
from helpers.memory.calls import Steps
from helpers.memory.reading import read
from helpers.memory.snapshot import ALLOCATED, FREE, PENDING, Block, Segment, Snapshot
from helpers.text.sizes import size_text

from . import key as keys
from . import style
from .picture import Picture, drawn, message
from .strip import LEFT

ROW, BAR = 0.44, 0.3
TEXT = 8.5
FILLS = {ALLOCATED: style.BLUE, PENDING: style.ORANGE, FREE: "#eef0f2"}
_MOST_ROWS = 12
_INKS = {ALLOCATED: style.PAPER, PENDING: style.INK, FREE: style.MUTED}


@dataclass(frozen=True)
class Rows:
    """Where rows stand: address ranges from the top down, and what an inch means. All x in inches."""

    ranges: tuple[tuple[int, int], ...]
    left: float
    scale: float  # inches a byte

    def y(self, row: int) -> float:
        return ROW * (row + 0.5)

    def row(self, address: int) -> int | None:
        return next((i for i, (a, b) in enumerate(self.ranges) if a <= address < b), None)

    def x(self, row: int, address: int) -> float:
        return self.left + (address - self.ranges[row][0]) * self.scale


@drawn
def segments(source: Any, *, most: int = 16, title: str = "Segments and the blocks inside them") -> Picture:
    """The memory held from CUDA: a row a segment, all to one scale, blocks coloured by their state.

    source: a Snapshot, or anything that `memory.read` reads. Of more than `most` segments the largest are drawn and
    the others counted.
    """
    snapshot = read(source)
    if not snapshot.segments:
        nothing = "no memory is held from CUDA: there is no segment"
        return message(nothing, evidence=snapshot.evidence, title=title)
    chosen = sorted(snapshot.segments, key=lambda s: -s.size)[:most]
    shown = sorted(chosen, key=lambda s: (s.pool != "large", s.stream, s.address))
    drawn_at = {s.address for s in chosen}
    rest = [s for s in snapshot.segments if s.address not in drawn_at]
    labels = [_name_of(s, snapshot) for s in shown]
    left = LEFT + max(style.text_width(words, TEXT) for pair in labels for words in pair) + 0.15
    scale = (style.WIDTH - left - 0.2) / max(s.size for s in shown)
    rows = Rows(tuple((s.address, s.address + s.size) for s in shown), left, scale)
    key = keys.lines(_key({b.state for s in shown for b in s.blocks}), LEFT)
    scattered = fragmentation(snapshot)
    note = (
        f"allocated {size_text(snapshot.allocated)} · reserved {size_text(snapshot.reserved)} · free inside "
        f"{size_text(snapshot.inactive)}, the largest piece {size_text(scattered.largest)}"
    )
    if rest:
        free, total = size_text(sum(s.bytes(FREE) for s in rest)), size_text(sum(s.size for s in rest))
        note += f" · not drawn: {len(rest)} smaller segments, {total}, {free} of it free"
    body = 0.06 + ROW * len(shown) + 0.1 + keys.height(key)
    fig, header = style.figure(body, evidence=snapshot.evidence, title=title, note=note, placed=True)
    ax = _body_axes(fig, header)
    for i, (segment, label) in enumerate(zip(shown, labels, strict=True)):
        _labels(ax, label, rows, i)
        _blocks(ax, segment, rows, i)
    keys.draw(fig, key, header + ROW * len(shown) + 0.1)
    return Picture(fig, snapshot.evidence, f"{title}: {len(shown)} segments; {note}")


def _body_axes(fig: Figure, header: float) -> Axes:
    ax = style.inches_axes(fig)
    height = fig.get_size_inches()[1]
    ax.set_ylim(height - header, -header)  # 0 is where the body begins
    return ax


def _name_of(segment: Segment, snapshot: Snapshot) -> tuple[str, str]:
    kind = "expandable" if segment.expandable else segment.pool
    return f"{kind}, {size_text(segment.size)}", snapshot.stream_name(segment.stream)


def _labels(ax: Axes, words: tuple[str, str], rows: Rows, row: int) -> None:
    for text, shift, look in ((words[0], -0.075, style.INK), (words[1], 0.075, style.MUTED)):
        ax.text(LEFT, rows.y(row) + shift, text, fontsize=TEXT, color=look, va="center")


def _outline(ax: Axes, rows: Rows, row: int, start: int, end: int) -> None:
    """A dashed frame: there is a segment here at some step, not now."""
    place, wide = (rows.x(row, start), rows.y(row) - BAR / 2), max((end - start) * rows.scale, 0.03)
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": style.FAINT, "linestyle": (0, (3, 2))}
    ax.add_patch(Rectangle(place, wide, BAR, linewidth=0.9, **look))


def _blocks(ax: Axes, segment: Segment, rows: Rows, row: int) -> None:
    y, start = rows.y(row), rows.x(row, segment.address)
    whole = (start, y - BAR / 2), max(segment.size * rows.scale, 0.03), BAR
    ax.add_patch(Rectangle(*whole, facecolor=style.PAPER, edgecolor="none", zorder=1.5))
    for block in segment.blocks:
        x, wide = rows.x(row, block.address), block.size * rows.scale
        fill, waits = FILLS[block.state], block.state == PENDING
        # A white edge parts neighbours; on a block of a pixel it would be all there is.
        edge = 0.8 if wide > 0.05 else 0.0
        look: dict[str, Any] = {
            "edgecolor": style.PAPER,
            "linewidth": edge,
            "hatch": "////" if waits else None,
        }
        ax.add_patch(Rectangle((x, y - BAR / 2), max(wide, 0.012), BAR, facecolor=fill, zorder=2, **look))
        if words := _fitting(block, wide - 0.06):
            put: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": TEXT, "zorder": 4}
            put["bbox"] = style.ground(0.12, fill) if waits else None
            ax.text(x + wide / 2, y, words, color=_INKS[block.state], **put)
    ax.add_patch(Rectangle(*whole, facecolor="none", edgecolor=style.MUTED, linewidth=0.9, zorder=3))


def _fitting(block: Block, width: float) -> str:
    """The longest of a few ways to name a block that fits."""
    size, site = size_text(block.size), block.site
    ways = [f"{site} · {size}", f"{site.split(' ')[0]} · {size}", size] if site else [size]
    if block.state == FREE:
        ways = [f"free {size}", size]
    elif site:
        ways += [site.split(" ")[0]]
    return next((words for words in ways if style.text_width(words, TEXT) <= width), "")


def _key(states: Collection[str]) -> list[keys.Entry]:
    words = {
        ALLOCATED: "allocated: in use by a tensor", PENDING: "freed, but another stream may still use it",
        FREE: "free: reserved from CUDA, in no use",
    }  # fmt: skip
    return [((FILLS[state],), text) for state, text in words.items() if state in states]


@drawn
def allocator_step(steps: Steps, step: int) -> Picture:
    """The allocator after `step` calls: rows, what the last call touched in a frame, what it did in words.

    steps: a program's, from `memory.steps_of`. Rows keep their place and
    scale from step to step. IndexError for a step that is not there.
    """
    move = steps.move(step)
    state = steps.found.segments(move.end)
    line = steps.lines[step - 1] if step else ""
    head = f"Step {step} of {len(steps)}" + (f": {line}" if line else "")
    expandable = any(span.expandable for k in _ends(steps) for span in steps.found.heap(k).spans.values())
    widest = "expandable, 1000 MiB" if expandable else "default stream"
    left = LEFT + style.text_width(widest, TEXT) + 0.2
    ranges = _ranges(steps, move.end)
    scale = (style.WIDTH - left - 0.2) / max((b - a for a, b in ranges), default=1)
    rows = Rows(ranges, left, scale)
    states = {b.state for s in state for b in s.blocks} | {ALLOCATED, FREE}
    key = keys.lines(_key(states), LEFT)
    tall = ROW * max(1, len(ranges))
    body = 0.06 + tall + 0.1 + keys.height(key)
    held, free = steps.found, max((b.size for s in state for b in s.blocks if b.state == FREE), default=0)
    sums = (
        f"allocated {size_text(int(held.allocated[move.end]))}, reserved {size_text(int(held.reserved[move.end]))}, "
        f"largest free block {size_text(free)}"
    )
    note = f"{move.text} · {sums}"
    fig, header = style.figure(body, evidence=steps.evidence, title=head, note=note, placed=True)
    ax = _body_axes(fig, header)
    snapshot = steps.found.snapshot
    for i, (start, end) in enumerate(ranges):
        here = [s for s in state if start <= s.address < end]
        _labels(ax, _name_of(here[0], snapshot) if here else ("", ""), rows, i)
        _outline(ax, rows, i, start, end)
        for segment in here:
            _blocks(ax, segment, rows, i)
    if not ranges:
        ax.text(style.WIDTH / 2, tall / 2, "no segment yet", ha="center", va="center", color=style.MUTED)
    if move.touched:
        _frame(ax, rows, *move.touched)
    keys.draw(fig, key, header + tall + 0.1)
    return Picture(fig, steps.evidence, f"{head}. {move.text}. {sums}")


def _ranges(steps: Steps, now: int) -> tuple[tuple[int, int], ...]:
    """Address ranges that hold segments at any step, by address; those of now only, where they are many."""
    spans = (s for k in _ends(steps) for s in steps.found.heap(k).spans.values())
    ranges = _joined({(s.address, s.address + s.size) for s in spans})
    if len(ranges) > _MOST_ROWS:
        ranges = _joined({(s.address, s.address + s.size) for s in steps.found.segments(now)})[:_MOST_ROWS]
    return tuple(ranges)


def _ends(steps: Steps) -> list[int]:
    """How many events lie behind step 0, 1, …"""
    return [0, *(end for _, end in steps.bounds)]


def _joined(spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if ranges and start < ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return ranges


def _frame(ax: Axes, rows: Rows, address: int, size: int) -> None:
    row = rows.row(address)
    if row is not None:
        x, y, wide = rows.x(row, address), rows.y(row) - BAR / 2 - 0.03, max(size * rows.scale, 0.03)
        box = Rectangle((x - 0.02, y), wide + 0.04, BAR + 0.06, facecolor="none", edgecolor=style.VERMILLION)
        box.set(linewidth=2.0, zorder=5)
        ax.add_patch(box)
