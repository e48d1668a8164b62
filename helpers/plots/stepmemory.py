"""What a training step holds, phase by phase; or the peaks of several steps side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.memory.estimating import WORDS, Estimate, StepTimeline
from helpers.memory.meter import KINDS
from helpers.text.sizes import size_text, size_unit

from . import key as keys
from . import staircase, style
from .picture import Picture, drawn

_PLOT, _BAR = 2.9, 0.46
_LEFT = 0.85
# Static memory in blues and greys, what comes and goes in warm colours; gradients between them in green.
_COLOURS = {
    "parameters": style.BLUE, "buffers": "#003f63", "inputs": "#7f8a96", "optimizer": style.SKY,
    "gradients": style.GREEN, "activations": style.ORANGE, "recomputed": style.YELLOW, "output": "#8a5a2b", "temporary": style.PURPLE,
}  # fmt: skip
_WIDTHS = {"forward": 3.0, "backward": 4.0, "step": 2.0}


@drawn
def memory_model(
    estimates: Estimate | Mapping[str, Estimate], *, budget: int | None = None, title: str = ""
) -> Picture:
    """One `memory.estimate`: its memory over forward, backward and step, stacked by kind, with the peak.

    A dict of name → estimate: a bar for each, its peak by kind. budget: bytes, drawn as a line. Each phase has a width of
    its own, whatever the number of its events: the picture has no clock. ValueError for no estimates, for more than 12,
    or where they come from different evidence.
    """
    if isinstance(estimates, Estimate):
        return _over_time(estimates, budget, title or "Memory of one training step")
    if not 1 <= len(estimates) <= 12:
        raise ValueError(f"{len(estimates)} estimates: from 1 to 12 bars can be read")
    kinds = {one.evidence for one in estimates.values()}
    if len(kinds) > 1:
        raise ValueError(f"these estimates are of {' and '.join(sorted(kinds))}: draw each on its own")
    return _bars(dict(estimates), budget, title or "The peak of one training step")


def _over_time(found: Estimate, budget: int | None, title: str) -> Picture:
    line = found.timeline
    shown = [kind for i, kind in enumerate(KINDS) if line.bytes[:, i].any()]
    note = f"peak {size_text(found.peak_bytes)} in {found.peak_phase}"
    note += f", when {found.peak_operator} asked for more" if found.peak_operator else ""
    body = _PLOT + 0.62 + staircase.LINE * (len(shown) + 1)
    fig, header = style.figure(body, evidence=found.evidence, title=title, note=note, placed=True)
    tall, low = body + header, body - _PLOT - 0.1
    ax = fig.add_axes((_LEFT / style.WIDTH, low / tall, 1 - (_LEFT + 0.25) / style.WIDTH, _PLOT / tall))
    top = max(found.peak_bytes, budget or 0, 1)
    factor, unit = size_unit(top)
    x, edges = _places(line)
    total = line.total
    keep = staircase.thin(total)
    layers = [(line.bytes[keep, i] / factor, _COLOURS[kind]) for i, kind in enumerate(KINDS) if kind in shown]
    staircase.stack(ax, x[keep], layers)
    ax.set_xlim(0, edges[-1])
    ax.set_ylim(0, 1.2 * top / factor)
    _phases(ax, line, edges, 1.2 * top / factor)
    row = int(total.argmax())
    staircase.peak(ax, float(x[row]), found.peak_bytes / factor, size_text(found.peak_bytes))
    if budget is not None:
        ax.axhline(budget / factor, color=style.VERMILLION, linestyle=(0, (4, 2)), linewidth=1.4)
        ax.text(
            0.01 * edges[-1], budget / factor, f"budget {size_text(budget)}", va="bottom",
            fontsize=style.SMALL, color=style.VERMILLION, fontweight="bold",
        )  # fmt: skip
    ax.set_ylabel(unit)
    _key(fig, found, shown, header + _PLOT + 0.52)
    most = ", ".join(f"{phase} up to {size_text(size)}" for phase, size in found.peaks.items())
    return Picture(fig, found.evidence, f"{title}: {note}; {most}; at the peak {_words(found)}")


def _places(line: StepTimeline) -> tuple[np.ndarray, list[float]]:
    """Where each row is drawn, and where phases begin and end."""
    x, edges = np.zeros(len(line.bytes)), [0.0]
    for name, start, end in line.phases:
        width = _WIDTHS.get(name, 1.0)
        x[start : end + 1] = edges[-1] + np.linspace(0, width, end - start + 1)
        edges.append(edges[-1] + width)
    return x, edges


def _phases(ax: Axes, line: StepTimeline, edges: list[float], top: float) -> None:
    ax.set_xticks([])
    ax.grid(visible=False, axis="x")
    for place, (name, start, end) in enumerate(line.phases):
        if place:
            ax.axvline(edges[place], color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))
        middle = (edges[place] + edges[place + 1]) / 2
        ax.text(middle, 0.985 * top, name, ha="center", va="top", fontsize=style.TEXT, fontweight="bold")
        ax.annotate(
            f"{end - start:,} events", (middle, 0), xytext=(0, -5), textcoords="offset points",
            ha="center", va="top", fontsize=style.SMALL, color=style.MUTED, annotation_clip=False,
        )  # fmt: skip


def _key(fig: Figure, found: Estimate, shown: list[str], top: float) -> None:
    """The key, in the order of the stack, with what each kind holds at the peak."""
    rows = []
    for kind in reversed(shown):
        size = found.at_peak.get(kind, 0)
        said, share = size_text(size) if size else "nothing", f"{size / max(found.peak_bytes, 1):.1%}"
        rows.append((_COLOURS[kind], (WORDS[kind], said, share, _ABOUT[kind])))
    places = ((0.23, "left"), (3.0, "right"), (3.7, "muted right"), (3.95, "muted"))
    staircase.table(fig, top, "held at the peak", rows, [(_LEFT + x, side) for x, side in places])


_ABOUT = {
    "parameters": "always there", "buffers": "always there", "optimizer": "there after the first step",
    "inputs": "the batch and its targets", "gradients": "from backward to zero_grad",
    "activations": "saved in forward for backward", "recomputed": "made again in backward (checkpoints)",
    "output": "held by a variable; backward does not need it", "temporary": "gone as soon as it has been used",
}  # fmt: skip


def _bars(estimates: dict[str, Estimate], budget: int | None, title: str) -> Picture:
    top = max(max(one.peak_bytes for one in estimates.values()), budget or 0, 1)
    factor, unit = size_unit(top)
    evidence = next(iter(estimates.values())).evidence
    # a kind too thin to be seen in any bar has no place in the key
    shown = [k for k in KINDS if any(one.at_peak.get(k, 0) > 0.002 * top for one in estimates.values())]
    tall_plot = _BAR * len(estimates) + 0.2
    entries: list[keys.Entry] = [((_COLOURS[kind],), WORDS[kind]) for kind in shown]
    if budget is not None:
        entries.append(((style.VERMILLION,), f"dashed: budget {size_text(budget)}"))
    key = keys.lines(entries, 0.3)
    body = tall_plot + 0.55 + keys.height(key)
    fig, header = style.figure(body, evidence=evidence, title=title, placed=True)
    tall, low = body + header, body - tall_plot
    names = {name: style.wrap(name, style.SMALL, 2.0)[:2] for name in estimates}
    left = 0.3 + max(style.text_width(line, style.SMALL) for lines in names.values() for line in lines)
    ax = fig.add_axes((left / style.WIDTH, low / tall, 1 - (left + 0.3) / style.WIDTH, tall_plot / tall))
    for row, one in enumerate(estimates.values()):
        start = 0.0
        for kind in KINDS:
            wide = one.at_peak.get(kind, 0) / factor
            ax.barh(row, wide, left=start, height=0.62, color=_COLOURS[kind], linewidth=0)
            start += wide
        text, line = f"{size_text(one.peak_bytes)}, in {one.peak_phase}", (budget or 0) / factor
        wide = 1.2 * style.text_width(text, style.SMALL) / (style.WIDTH - left - 0.3) * 1.28 * top / factor
        ax.text(  # behind the line of the budget where that would run through it
            (line if start < line < start + wide else start) + 0.008 * top / factor, row, text,
            va="center", fontsize=style.SMALL, fontweight="bold",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": style.PAPER, "linewidth": 0},
        )  # fmt: skip
    ax.set_yticks(range(len(estimates)), ["\n".join(lines) for lines in names.values()])
    ax.set_ylim(len(estimates) - 0.5, -0.5)
    ax.set_xlim(0, 1.28 * top / factor)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(unit)
    if budget is not None:
        ax.axvline(budget / factor, color=style.VERMILLION, linestyle=(0, (4, 2)), linewidth=1.4)
    keys.draw(fig, key, tall - keys.height(key) - 0.06)
    peaks = "; ".join(f"{name} {size_text(one.peak_bytes)}" for name, one in estimates.items())
    return Picture(fig, evidence, f"{title}: {peaks}")


def _words(found: Estimate) -> str:
    return ", ".join(f"{WORDS[kind]} {size_text(n)}" for kind, n in found.at_peak.items())
