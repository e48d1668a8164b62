"""The whole ladder in one picture."""

from __future__ import annotations

from helpers import plots
from helpers.plots.ladders import Rung
from helpers.running_example.rungs import RUNGS, after
from helpers.running_example.scores import SIMULATED, score


def ladder() -> plots.Picture:
    """Time and peak memory of a step on the simulated H100, rung by rung, from the plain script on."""
    last = list(RUNGS)[-1]
    kept = {last} | {rung.begins for rung in RUNGS.values()}
    rows = []
    for lesson, rung in RUNGS.items():
        scored = score(after(lesson))
        rows.append(Rung(f"{lesson} {rung.says}", scored.step_s, scored.peak_bytes, lesson in kept))
    return plots.ladder(rows, evidence=SIMULATED, title="The running example, lesson by lesson")
