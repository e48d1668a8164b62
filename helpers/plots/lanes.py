"""Who worked when: a host lane, GPU lanes, launches, and what each way of timing reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.seconds import approx, format_seconds

from . import style
from .picture import Picture, drawn

_LANE, _BAR, _SPAN = 0.62, 0.38, 0.34
_COLOURS = (*style.SERIES[:-1], style.MUTED)
_OTHERS = "other names"
_PALE = (style.PURPLE, style.ORANGE, style.SKY)
Row = tuple[str, str, float, float]
"""(name, lane, start in seconds, end in seconds)"""


def lanes_of(rows: Sequence[Row]) -> list[str]:
    """Lanes from the top down: in order of first appearance."""
    return list(dict.fromkeys(lane for _, lane, _, _ in rows))


def links_of(rows: Sequence[Row]) -> list[tuple[int, int]]:
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


def rows_of(gpu: Any, since_s: float = 0.0) -> list[Row]:
    """Rows of a simulated GPU: its `host` records on lane "CPU", its `kernels` on one lane a stream.

    Only what began at `since_s` or later (seconds on the simulated clock) is kept.
    """
    rows = [(r.name, "CPU", r.start_ns / 1e9, r.end_ns / 1e9) for r in gpu.host]
    lanes = {k.stream: f"GPU stream {k.stream}" for k in gpu.kernels}
    lanes |= {k.stream: f"communication {k.stream}" for k in gpu.kernels if k.kind == "collective"}
    rows += [(k.name, lanes[k.stream], k.start_ns / 1e9, k.end_ns / 1e9) for k in gpu.kernels]
    return [row for row in rows if row[2] >= since_s - 1e-12]


@drawn
def timeline(
    rows: Any,
    *,
    since_s: float = 0.0,
    evidence: str,
    spans: Mapping[str, tuple[float, float]] | None = None,
    marks: Mapping[str, float] | None = None,
    links: bool = True,
    title: str = "Who works when",
) -> Picture:
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
    lanes = lanes_of(rows)
    names = list(dict.fromkeys(name for name, _, _, _ in rows))
    times = (
        [t for _, _, a, b in rows for t in (a, b)]
        + [t for span in spans.values() for t in span]
        + [*marks.values()]
    )
    begin, end = min(times), max(times)
    scale, unit = style.time_unit(end - begin)
    known = {name: _COLOURS[min(i, len(_COLOURS) - 1)] for i, name in enumerate(names)}
    scratch, _ = style.figure(1.0, evidence=evidence)
    left = max(style.text_width(scratch, lane, style.TEXT, "bold") for lane in lanes) + 0.3
    inch = ((end - begin) * scale or 1.0) / (style.WIDTH - left - 0.25)  # data units in an inch
    told = {name for name, _, a, b in rows if _fits(scratch, name, (b - a) * scale / inch)}
    key = _key(scratch, [name for name in names[: len(_COLOURS) - 1] if name not in told], len(names), left)
    plot = 0.12 + _LANE * len(lanes) + _SPAN * len(spans) + (0.26 if marks else 0)
    low = 0.5 + 0.24 * len(key)  # under the axes: ticks, label, key
    fig, header = style.figure(plot + low, evidence=evidence, title=title)
    fig.set_layout_engine("none")
    tall = plot + low + header
    ax = fig.add_axes((left / style.WIDTH, low / tall, 1 - (left + 0.25) / style.WIDTH, plot / tall))
    ax.set_xlim(0, 1.002 * ((end - begin) * scale or 1.0))
    ax.set_ylim(plot, 0)
    ax.set_yticks([])
    ax.set_xlabel(f"time, {unit}")
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    top = 0.26 if marks else 0.04

    def at(seconds: float) -> float:
        return (seconds - begin) * scale

    middle = {lane: top + _LANE * (i + 0.5) for i, lane in enumerate(lanes)}
    for lane, y in middle.items():
        ax.axhspan(y - _BAR / 2, y + _BAR / 2, color="#f4f5f6", zorder=0.5)
        ax.text(-0.1 * inch, y, lane, ha="right", va="center", fontweight="bold")
    _bars(ax, fig, rows, at, middle, known, inch)
    if links and len(lanes) > 1:
        for i, j in links_of(rows):
            y0, y1 = middle[rows[i][1]] + _BAR / 2, middle[rows[j][1]] - _BAR / 2
            ax.plot([at(rows[i][3]), at(rows[j][2])], [y0, y1], color=style.MUTED, linewidth=0.9, zorder=2)
    _marks(ax, fig, {label: at(t) for label, t in marks.items()}, top + _LANE * len(lanes), inch)
    _spans(ax, fig, spans, at, top + _LANE * len(lanes), inch, evidence)
    for i, line in enumerate(key):
        y = (0.24 * (len(key) - 1 - i) + 0.12) / tall
        for x, name in line:
            fig.text(
                x / style.WIDTH, y, "■", color=known.get(name, style.MUTED), va="center", fontsize=style.TEXT
            )
            fig.text((x + 0.17) / style.WIDTH, y, name, va="center", fontsize=style.SMALL)
    alt = f"{title}: " + ", ".join(f"{lane} {sum(r[1] == lane for r in rows)} bars" for lane in lanes)
    return Picture(fig, evidence, alt + (f"; spans: {', '.join(spans)}" if spans else ""))


def _fits(fig: Figure, name: str, inches: float) -> bool:
    return style.text_width(fig, name, 8.5, "bold") + 0.08 < inches


def _key(fig: Figure, names: list[str], total: int, left: float) -> list[list[tuple[float, str]]]:
    """Lines of (x in inches, name) for names that fit into none of their bars; one more for all grey ones."""
    lines: list[list[tuple[float, str]]] = []
    x = style.WIDTH
    for name in [*names, *([_OTHERS] if total >= len(_COLOURS) else [])]:
        width = 0.17 + style.text_width(fig, name, style.SMALL) + 0.22
        if x + width > style.WIDTH:
            lines.append([])
            x = min(left, 1.2)
        lines[-1].append((x, name))
        x += width
    return lines


def _bars(ax: Axes, fig: Figure, rows: Sequence[Row], at: Any, middle: Any, known: Any, inch: float) -> None:
    for name, lane, a, b in rows:
        x, width, y = at(a), max(at(b) - at(a), 0.012 * inch), middle[lane]
        line: dict[str, Any] = {
            "facecolor": known[name],
            "edgecolor": style.PAPER,
            "linewidth": 0.6,
            "zorder": 3,
        }
        ax.broken_barh([(x, width)], (y - _BAR / 2, _BAR), **line)
        if _fits(fig, name, width / inch):
            colour = style.INK if known[name] in _PALE else style.PAPER
            look: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "color": colour, "zorder": 4}
            ax.text(x + width / 2, y, name, ha="center", va="center", **look)


def _marks(ax: Axes, fig: Figure, marks: dict[str, float], bottom: float, inch: float) -> None:
    right = ax.get_xlim()[1]
    for label, x in marks.items():
        ax.plot([x, x], [0.22, bottom], color=style.INK, linestyle=(0, (4, 2)), linewidth=1.2, zorder=5)
        half = style.text_width(fig, label, style.SMALL) / 2 * inch
        ax.text(min(max(x, half), right - half), 0.11, label, ha="center", va="center", fontsize=style.SMALL)


def _spans(ax: Axes, fig: Figure, spans: Any, at: Any, top: float, inch: float, evidence: str) -> None:
    right = ax.get_xlim()[1]
    for i, (label, (start, end)) in enumerate(spans.items()):
        a, b, text = at(start), at(end), f"{label}: {approx(evidence)}{format_seconds(end - start)}"
        y = top + _SPAN * (i + 0.5)
        for x in (a, b):
            ax.plot([x, x], [y - 0.08, y + 0.08], color=style.INK, linewidth=1.4, zorder=5)
        ax.plot([a, b], [y, y], color=style.INK, linewidth=1.4, zorder=5)
        wide = (style.text_width(fig, text, style.SMALL) + 0.12) * inch
        box: dict[str, Any] = {"boxstyle": "square,pad=0.15", "facecolor": style.PAPER, "edgecolor": "none"}
        if wide + 0.3 * inch < b - a:
            x, side = (a + b) / 2, "center"
        elif b + wide < right:
            x, side = b + 0.08 * inch, "left"
        else:
            x, side = a - 0.08 * inch, "right"
        ax.text(x, y, text, ha=side, va="center", fontsize=style.SMALL, bbox=box, zorder=6)
