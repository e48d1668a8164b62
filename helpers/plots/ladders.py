"""A ladder of changes: what each left of the time and of the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    for ax, values, texts, colour in [
        (
            time,
            [r.seconds * factor for r in rungs],
            [f"{r.seconds * factor:.2f} {unit}" for r in rungs],
            style.BLUE,
        ),
        (memory, [r.nbytes / 2**20 for r in rungs], [size_text(r.nbytes) for r in rungs], style.GREEN),
    ]:
        for row, (value, text, rung) in enumerate(zip(values, texts, rungs, strict=True)):
            ax.barh(
                row, value, 0.62, color=colour if rung.kept else style.PAPER, edgecolor=colour, linewidth=1.4
            )
            ax.text(value, row, f" {text}", va="center", ha="left", fontsize=style.SMALL)
        ax.set_xlim(0, 1.2 * max(values))
        ax.grid(axis="y", visible=False)
    style.row_names(time, [rung.name for rung in rungs])
    memory.tick_params(axis="y", length=0)
    time.set_ylim(len(rungs) - 0.5, -0.5)
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
    names: list[str] = []
    for which, rows in rungs.items():
        names += [f"{which}: {rows[0].name}", *(row.name for row in rows[1:])]
    off = f" · {BESIDE[evidence]}" if evidence in BESIDE else ""
    dashes = ("--", ":", "-.")
    lines = [
        f"{style_} {name}: {times:.2f}×, {share:.0%}"
        for style_, (name, (times, share)) in zip(
            ("dashed,", "dotted,", "dash-dotted,"), promised.items(), strict=False
        )
    ]
    note = (f"promised elsewhere: {'; '.join(lines)}{off}") if lines else off.removeprefix(" · ")
    fig, _ = style.figure(
        0.55 + 0.3 * len(names) + 0.2 * len(rungs), evidence=evidence, title=title, note=note
    )
    time, memory = fig.subplots(1, 2, sharey=True)
    places: list[float] = []
    for number, rows in enumerate(rungs.values()):
        for row in rows:
            place = len(places) + 0.6 * number
            places.append(place)
            values = rows[0].seconds / row.seconds, row.nbytes / rows[0].nbytes
            colours = (style.BLUE, style.GREEN)
            for ax, value, colour, text in zip(
                (time, memory), values, colours, (f"{values[0]:.1f}×", f"{values[1]:.0%}"), strict=True
            ):
                ax.barh(place, value, 0.62, color=colour, edgecolor=colour)
                look = {"fontsize": style.SMALL, "va": "center", "bbox": style.ground(0.1)}
                ax.annotate(text, (value, place), (5, 0), textcoords="offset points", **look)
    for (times, share), dash in zip(promised.values(), dashes, strict=False):
        for ax, at in ((time, times), (memory, share)):
            ax.axvline(at, color=style.INK, linestyle=dash, linewidth=1.2)
    for ax, most in (
        (time, max(rows[0].seconds / row.seconds for rows in rungs.values() for row in rows)),
        (memory, max(row.nbytes / rows[0].nbytes for rows in rungs.values() for row in rows)),
    ):
        ax.set_xlim(0, 1.17 * most)
        ax.grid(axis="y", visible=False)
    time.set_yticks(places, names)
    time.set_ylim(places[-1] + 0.6, -0.6)
    memory.tick_params(axis="y", length=0)
    time.set_xlabel("times as fast as the first")
    memory.set_xlabel("share of the first one's peak memory")
    ends = [
        f"{which} {rows[0].seconds / rows[-1].seconds:.1f} times as fast with {rows[-1].nbytes / rows[0].nbytes:.0%} of the memory"
        for which, rows in rungs.items()
    ]
    return Picture(fig, evidence, f"{title}: {'; '.join(ends)}")
