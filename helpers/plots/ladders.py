"""A ladder of changes: what each left of the time and of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import BESIDE

from . import style
from .picture import Picture, drawn


@dataclass(frozen=True)
class Rung:
    """One row: its name, seconds and bytes; kept: whether the rows below build on it."""

    name: str
    seconds: float
    nbytes: float
    kept: bool = True


def _bar(ax: Axes, place: float, value: float, text: str, colour: str, filled: bool = True) -> None:
    """A bar with its number behind it."""
    ax.barh(place, value, 0.62, color=colour if filled else style.PAPER, edgecolor=colour, linewidth=1.4)
    look: dict[str, Any] = {"va": "center", "fontsize": style.SMALL, "bbox": style.ground(0.1)}
    ax.annotate(text, (value, place), (5, 0), textcoords="offset points", **look)


def _axes(time: Axes, memory: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """The rows' names, from the top down, and room for the numbers."""
    for ax in (time, memory):
        ax.set_xlim(0, 1.2 * max(bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    time.set_yticks(places, names)
    time.set_ylim(places[-1] + 0.5, -0.5)


@drawn
def ladder(rungs: Sequence[Rung], *, evidence: str, title: str = "What each change left") -> Picture:
    """Two bars a rung: the time of a step, and its peak memory. A rung that is not kept is drawn hollow.

    ValueError for no rungs.
    """
    if not rungs:
        raise ValueError("ladder: no rungs; give at least one")
    hollow = "filled: the rows below build on it · hollow: tried, and taken out again"
    beside = BESIDE.get(evidence, "")
    note = beside if all(rung.kept for rung in rungs) else "; ".join(filter(None, (hollow, beside)))
    fig, _ = style.figure(0.55 + 0.34 * len(rungs), evidence=evidence, title=title, note=note)
    time, memory = fig.subplots(1, 2, sharey=True)
    factor, unit = style.time_unit(max(rung.seconds for rung in rungs))
    for row, rung in enumerate(rungs):
        _bar(time, row, rung.seconds * factor, f"{rung.seconds * factor:.2f} {unit}", style.BLUE, rung.kept)
        _bar(memory, row, rung.nbytes / 2**20, size_text(rung.nbytes), style.GREEN, rung.kept)
    _axes(time, memory, range(len(rungs)), [rung.name for rung in rungs])
    time.set_xlabel(f"time of a step, {unit}")
    memory.set_xlabel("peak memory, MiB")
    first, last = rungs[0], rungs[-1]
    alt = (
        f"{title}: from {first.name} with {format_seconds(first.seconds)} and {size_text(first.nbytes)} "
        f"to {last.name} with {format_seconds(last.seconds)} and {size_text(last.nbytes)}, in {len(rungs)} rows"
    )
    return Picture(fig, evidence, alt)


@drawn
def ladder_shares(
    rungs: Mapping[str, Sequence[Rung]], promised: Mapping[str, tuple[float, float]] = {}, *,
    evidence: str, title: str = "What each change left, against the first",
) -> Picture:  # fmt: skip
    """Several ladders below each other: how many times as fast as its first rung each is, and what share of its memory.

    promised: a name → times as fast and share of the memory, drawn as lines. ValueError for no ladders, or one without rungs.
    """
    if not rungs or not all(rungs.values()):
        raise ValueError("ladder_shares: no rungs; give at least one ladder with one")
    off = [BESIDE[evidence]] if evidence in BESIDE else []
    dashes = {"dashed": "--", "dotted": ":", "dash-dotted": "-."}
    lines = [
        f"{word}, {name}: {times:.2f}×, {share:.0%}"
        for word, (name, (times, share)) in zip(dashes, promised.items(), strict=False)
    ]
    note = " · ".join([*([f"promised elsewhere: {'; '.join(lines)}"] if lines else []), *off])
    count = sum(map(len, rungs.values()))
    fig, _ = style.figure(0.55 + 0.3 * count + 0.2 * len(rungs), evidence=evidence, title=title, note=note)
    time, memory = fig.subplots(1, 2, sharey=True)
    names: list[str] = []
    places: list[float] = []
    for number, (which, rows) in enumerate(rungs.items()):
        names += [f"{which}: {rows[0].name}", *(row.name for row in rows[1:])]
        for row in rows:
            places.append(len(places) + 0.6 * number)
            times, share = rows[0].seconds / row.seconds, row.nbytes / rows[0].nbytes
            _bar(time, places[-1], times, f"{times:.1f}×", style.BLUE)
            _bar(memory, places[-1], share, f"{share:.0%}", style.GREEN)
    _axes(time, memory, places, names)
    for (times, share), dash in zip(promised.values(), dashes.values(), strict=False):
        for ax, at in ((time, times), (memory, share)):
            ax.axvline(at, color=style.INK, linestyle=dash, linewidth=1.2)
    time.set_xlabel("times as fast as the first")
    memory.set_xlabel("share of the first one's peak memory")
    ends = [
        f"{which} {rows[0].seconds / rows[-1].seconds:.1f} times as fast with {rows[-1].nbytes / rows[0].nbytes:.0%} of the memory"
        for which, rows in rungs.items()
    ]
    return Picture(fig, evidence, f"{title}: {'; '.join(ends)}")
