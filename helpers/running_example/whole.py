"""The script as each lesson left it, and the whole ladder in one picture."""

from __future__ import annotations

from collections.abc import Collection

from helpers import plots
from helpers.plots import ladders
from helpers.running_example.rungs import RUNGS
from helpers.running_example.scores import SIMULATED, score
from helpers.running_example.script import PLAIN, Rung, Script


def after(lesson: str) -> Script:
    """The script as that lesson left it: "00" to "10", "10+07", "14" to "16". KeyError for another."""
    rung = _rung(lesson)
    return after(rung.begins).replace(**rung.parts) if rung.begins else PLAIN


def _rung(lesson: str) -> Rung:
    if lesson in RUNGS:
        return RUNGS[lesson]
    from helpers.running_example.spread import SPREAD  # torch.distributed takes a second to load

    if lesson not in SPREAD:
        known = ", ".join(RUNGS | SPREAD)
        raise KeyError(f"lesson {lesson!r} left no script of its own; there are {known}")
    return SPREAD[lesson]


def ladder(lessons: Collection[str] | None = None) -> plots.Picture:
    """Time and peak memory of a step on the simulated H100, rung by rung, from the plain script on.

    lessons: those whose rungs are shown ("03"), beside the plain script; default: all.
    """
    last = list(RUNGS)[-1]
    kept = {last} | {rung.begins for rung in RUNGS.values()}
    rows = []
    for lesson, rung in RUNGS.items():
        if lessons is not None and lesson != "00" and lesson[:2] not in lessons:
            continue
        scored = score(after(lesson))
        rows.append(ladders.Rung(f"{lesson} {rung.says}", scored.step_s, scored.peak_bytes, lesson in kept))
    return plots.ladder(rows, evidence=SIMULATED, title="The running example, lesson by lesson")
