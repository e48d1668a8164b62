"""Tests of lesson 17: what a repaired script costs, counter by counter, if it still learns the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from helpers import capstone, check
from helpers.capstone import scores
from helpers.capstone.given import sent_bytes
from helpers.capstone.parts import AREAS, PARTS, Script
from helpers.capstone.scores import Run
from helpers.exercises._judge import each

_LOOK = {
    "data": "1 · The data",
    "model": "2 · The model",
    "step": "3 · The step",
    "run": "4 · The run",
    "all": "5 · The whole",
}
_FORMS = {key: (name, form) for key, name, form in scores.ROWS}


def run(**fields: Any) -> Run:
    """A run for which the losses have to stay: see :class:`helpers.capstone.Run`."""
    return Run(**fields)


@lru_cache(maxsize=8)
def _repaired(answer: Callable[[Script], Any], source: str, area: str) -> Script:
    """The script that an answer made of the one that it was given. (The tests of one exercise ask for the same.)"""
    before = Script(source)
    after = answer(before)
    if not isinstance(after, Script):
        raise TypeError(f"returned {type(after).__name__}, wanted a script: script.replace(…)")
    if after.source != source:
        raise ValueError("returned another script, wanted the one that it was given with parts replaced")
    if foreign := [name for name, _ in after.replaced if name not in AREAS.get(area, PARTS)]:
        raise ValueError(f"replaces {', '.join(foreign)}; this exercise is about {', '.join(AREAS[area])}")
    return after


def _measure(
    answer: Callable[[Script], Any], source: str, area: str, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the repaired script learns in these runs, and what a step of it takes."""
    after = _repaired(answer, source, area)
    learned = [scores.trained(after, Run(**one)) for one in runs]
    return {"learned": learned, "score": scores.score(after).as_dict()}


def _learns_the_same(report: check.Report) -> str | None:
    source, _, runs = report.args
    for one, learned in zip(runs, report.value["learned"], strict=True):
        asked = Run(**one)
        want = scores.trained(Script(source), asked)
        tolerance = scores.ROUNDED if asked.autocast else scores.CLOSE
        if odd := scores.apart(want, learned, tolerance):
            return f"{asked}: {odd}. It has to learn the same."
    if report.value["score"]["sent_bytes"] < 0.45 * sent_bytes():
        return "fewer bytes are sent between the ranks than half of what the gradients have"
    return None


def _check(name: str, area: str, counter: str, runs: tuple[Run, ...]) -> None:
    limit, source = capstone.budget()[area][counter], capstone.script().source
    said, form = _FORMS[counter]

    def too_much(report: check.Report) -> str | None:
        got = report.value["score"][counter]
        if got <= limit * (1 + 1e-9):
            return None
        was = scores.score(Script(source)).as_dict()[counter]
        return f"it learns the same; {said}: {form(got)} a step, wanted at most {form(limit)}; it was {form(was)}"

    case = check.case(source, area, [asdict(one) for one in runs or (Run(),)])
    judge, note = each(_learns_the_same, too_much), "capstone.compare(script, yours) shows every counter."
    check.function(name, [case], drive=_measure, verify=judge, look=_LOOK[area], note=note)


def check_repair_data(counter: str, *runs: Run) -> None:
    """counter: read_s, stall_s, copied_bytes or syncs. runs: in which it has to learn the same."""
    _check("repair_data", "data", counter, runs)


def check_repair_model(counter: str, *runs: Run) -> None:
    """counter: launches, saved_bytes, busy_s or compilations."""
    _check("repair_model", "model", counter, runs)


def check_repair_step(counter: str, *runs: Run) -> None:
    """counter: launches, syncs, collectives or peak_bytes."""
    _check("repair_step", "step", counter, runs)


def check_repair_run(counter: str, *runs: Run) -> None:
    """counter: syncs, growth_bytes, copied_bytes or saved_bytes."""
    _check("repair_run", "run", counter, runs)


def check_repair(counter: str, *runs: Run) -> None:
    """The whole script. counter: any field of a Score."""
    _check("repair", "all", counter, runs)
