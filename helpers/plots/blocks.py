"""Segments as rows to scale, with the blocks inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.memory.analysis import fragmentation
from helpers.memory.sizes import size_text
from helpers.memory.snapshot import ALLOCATED, FREE, PENDING, Block, Segment, Snapshot
from helpers.memory.source import read

from . import legend, style
from .picture import Picture, drawn, message
from .strip import LEFT

ROW, BAR = 0.44, 0.3
TEXT = 8.5
FILLS = {ALLOCATED: style.BLUE, PENDING: style.ORANGE, FREE: "#eef0f2"}
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
        return message(
            "no memory is held from CUDA: there is no segment", evidence=snapshot.evidence, title=title
        )
    chosen = sorted(snapshot.segments, key=lambda s: -s.size)[:most]
    shown = sorted(chosen, key=lambda s: (s.pool != "large", s.stream, s.address))
    drawn_at = {s.address for s in chosen}
    rest = [s for s in snapshot.segments if s.address not in drawn_at]
    labels = [name_of(s, snapshot) for s in shown]
    scratch, _ = style.figure(1.0, evidence=snapshot.evidence)
    left = LEFT + max(style.text_width(scratch, words, TEXT) for pair in labels for words in pair) + 0.15
    scale = (style.WIDTH - left - 0.2) / max(s.size for s in shown)
    rows = Rows(tuple((s.address, s.address + s.size) for s in shown), left, scale)
    lines = legend.flow(scratch, key_of([b.state for s in shown for b in s.blocks]))
    scattered = fragmentation(snapshot)
    note = (
        f"allocated {size_text(snapshot.allocated)} · reserved {size_text(snapshot.reserved)} · free inside "
        f"{size_text(snapshot.inactive)}, the largest piece {size_text(scattered.largest)}"
    )
    if rest:
        free = sum(s.bytes(FREE) for s in rest)
        total = sum(s.size for s in rest)
        note += (
            f" · not drawn: {len(rest)} smaller segments, {size_text(total)}, {size_text(free)} of it free"
        )
    body = 0.06 + ROW * len(shown) + 0.1 + legend.height(lines)
    fig, header = style.figure(body, evidence=snapshot.evidence, title=title, note=note)
    fig.set_layout_engine("none")
    ax = body_axes(fig, header)
    for i, (segment, label) in enumerate(zip(shown, labels, strict=True)):
        put_labels(ax, label, rows, i)
        put_blocks(ax, fig, segment, rows, i)
    legend.draw(ax, ROW * len(shown) + 0.1, lines)
    return Picture(fig, snapshot.evidence, f"{title}: {len(shown)} segments; {note}")


def body_axes(fig: Figure, header: float) -> Axes:
    ax = style.inches_axes(fig)
    height = fig.get_size_inches()[1]
    ax.set_ylim(height - header, -header)  # 0 is where the body begins
    return ax


def name_of(segment: Segment, snapshot: Snapshot) -> tuple[str, str]:
    kind = "expandable" if segment.expandable else segment.pool
    return f"{kind}, {size_text(segment.size)}", snapshot.stream_name(segment.stream)


def put_labels(ax: Axes, words: tuple[str, str], rows: Rows, row: int) -> None:
    for text, shift, look in ((words[0], -0.075, style.INK), (words[1], 0.075, style.MUTED)):
        ax.text(LEFT, rows.y(row) + shift, text, fontsize=TEXT, color=look, va="center")


def outline(ax: Axes, rows: Rows, row: int, start: int, end: int) -> None:
    """A dashed frame: there is a segment here at some step, not now."""
    place, wide = (rows.x(row, start), rows.y(row) - BAR / 2), max((end - start) * rows.scale, 0.03)
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": style.FAINT, "linestyle": (0, (3, 2))}
    ax.add_patch(Rectangle(place, wide, BAR, linewidth=0.9, **look))


def put_blocks(ax: Axes, fig: Figure, segment: Segment, rows: Rows, row: int) -> None:
    y = rows.y(row)
    ax.add_patch(
        Rectangle(
            (rows.x(row, segment.address), y - BAR / 2), max(segment.size * rows.scale, 0.03), BAR,
            facecolor=style.PAPER, edgecolor="none", zorder=1.5,
        )
    )  # fmt: skip
    for block in segment.blocks:
        x, wide = rows.x(row, block.address), block.size * rows.scale
        look: dict[str, Any] = {"facecolor": FILLS[block.state], "edgecolor": style.PAPER, "zorder": 2}
        # A white edge parts neighbours; on a block of a pixel it would be all there is.
        look |= {
            "linewidth": 0.8 if wide > 0.05 else 0.0,
            "hatch": "////" if block.state == PENDING else None,
        }
        ax.add_patch(Rectangle((x, y - BAR / 2), max(wide, 0.012), BAR, **look))
        words = _fitting(fig, block, wide - 0.06)
        if words:
            ax.text(x + wide / 2, y, words, fontsize=TEXT, color=_INKS[block.state], ha="center", va="center", zorder=4,
                    bbox=_plate(block))  # fmt: skip
    x, wide = rows.x(row, segment.address), max(segment.size * rows.scale, 0.03)
    edge: dict[str, Any] = {"facecolor": "none", "edgecolor": style.MUTED, "linewidth": 0.9, "zorder": 3}
    ax.add_patch(Rectangle((x, y - BAR / 2), wide, BAR, **edge))


def _plate(block: Block) -> dict[str, Any] | None:
    """Ground for words on hatching."""
    if block.state != PENDING:
        return None
    return {"boxstyle": "square,pad=0.12", "facecolor": FILLS[PENDING], "edgecolor": "none"}


def _fitting(fig: Figure, block: Block, width: float) -> str:
    """The longest of a few ways to name a block that fits."""
    size, site = size_text(block.size), block.site
    ways = [f"{site} · {size}", f"{site.split(' ')[0]} · {size}", size] if site else [size]
    if block.state == FREE:
        ways = [f"free {size}", size]
    elif site:
        ways += [site.split(" ")[0]]
    return next((words for words in ways if style.text_width(fig, words, TEXT) <= width), "")


def key_of(states: Sequence[str] | set[str]) -> list[legend.Entry]:
    words = {
        ALLOCATED: "allocated: in use by a tensor", PENDING: "freed, but another stream may still use it",
        FREE: "free: reserved from CUDA, in no use",
    }  # fmt: skip
    return [([FILLS[state]], text) for state, text in words.items() if state in states]
