"""A ladder of changes: what each left of the time and of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.seconds import format_seconds
from helpers.sizes import size_text
from helpers.tables import BESIDE

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
    off = f"; {BESIDE[evidence]}" if evidence in BESIDE else ""
    note = f"filled: the rows below build on it · hollow: tried, and taken out again{off}"
    fig, _ = style.figure(0.55 + 0.34 * len(rungs), evidence=evidence, title=title, note=note)
    time, memory = fig.subplots(1, 2, sharey=True)
    factor, unit = style.time_unit(max(rung.seconds for rung in rungs))
    for ax, values, said, colour in [
        (
            time,
            [r.seconds * factor for r in rungs],
            [f"{r.seconds * factor:.2f} {unit}" for r in rungs],
            style.BLUE,
        ),
        (memory, [r.nbytes / 2**20 for r in rungs], [size_text(r.nbytes) for r in rungs], style.GREEN),
    ]:
        for row, (value, text, rung) in enumerate(zip(values, said, rungs, strict=True)):
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
