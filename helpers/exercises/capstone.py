"""Tests of lesson 17: what a repaired script costs, counter by counter, if it still learns the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from inspect import isfunction
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


#: a run on the simulated GPU with true values, and otherwise as the steps are counted: only pictures and weights are smaller
TIED = Run(
    side=32, width=32, heads=scores.LARGE["heads"], layers=scores.LARGE["layers"], batch=scores.LARGE["batch"],
    parts=scores.LARGE["parts"], steps=scores.WARM_UP + scores.STEPS, files=scores.PICTURES, ranks=scores.RANKS,
)  # fmt: skip


@lru_cache(maxsize=8)
def _repaired(answer: Callable[[Script], Any], source: str, area: str) -> Script:
    """The script that an answer made of the one that it was given. (The tests of one exercise ask for the same.)"""
    after = answer(Script(source))
    if type(after) is not Script:
        raise TypeError(
            f"returned {_said(after)}, wanted the script with parts replaced: return script.replace(…)"
        )
    if after.source != source:
        raise ValueError(
            "returned a script of another text, wanted the one that it was given: return script.replace(…)"
        )
    own = AREAS.get(area, PARTS)
    if foreign := [name for name, _ in after.replaced if name not in own]:
        raise ValueError(f"replaces {', '.join(foreign)}; this exercise is about {', '.join(own)}")
    return Script(source).replace(**dict(after.replaced))


def _said(value: Any) -> str:
    if value is None:
        return "None"
    return f"the function {value.__name__}" if isfunction(value) else f"a {type(value).__name__}"


def _learn(
    answer: Callable[[Script], Any], source: str, area: str, runs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What the repaired script learns in these runs."""
    return [scores.trained(_repaired(answer, source, area), Run(**one)) for one in runs]


def _measure(answer: Callable[[Script], Any], source: str, area: str, compiles: bool) -> dict[str, Any]:
    """What a step of it takes, what it did while that was counted, and what it learns and does with true values."""
    after = _repaired(answer, source, area)
    numbers, work, loaded = scores.counted(after)
    found = {"score": numbers, "work": work, "loaded": loaded, "tied": scores.trained(after, TIED)}
    return found | {"compiled": scores.trained(after, scores.COMPILED)} if compiles else found


def _learns_the_same(report: check.Report) -> str | None:
    source, _, runs = report.args
    for one, learned in zip(runs, report.value, strict=True):
        if odd := _odd(source, Run(**one), learned):
            return odd
    return None


def _odd(source: str, asked: Run, learned: dict[str, Any]) -> str | None:
    tolerance = scores.ROUNDED if asked.autocast else scores.CLOSE
    odd = scores.apart(scores.trained(Script(source), replace(asked, compiled=False)), learned, tolerance)
    return f"{asked}: {odd}. It has to learn the same." if odd else None


def _did_it_while_counted(report: check.Report) -> str | None:
    """Counted steps have no values: what they do is held against a run that has them, and against the script as it was."""
    before, work, tied = Script(report.args[0]), report.value["work"], report.value["tied"]["work"]
    if odd := _odd(before.source, TIED, report.value["tied"]):
        return odd
    if (compiled := report.value.get("compiled")) and (odd := _odd(before.source, scores.COMPILED, compiled)):
        return odd
    _, was, loaded = scores.counted(before)
    was_tied = scores.trained(before, TIED)["work"]
    said = "a step does something else where it is counted than where its losses are compared"
    if any(_far(a, b) for a, b in zip(loaded, report.value["loaded"], strict=True)):
        return f"{said}: it loads other pictures"
    for name, (times, _, _) in tied.items():
        missing = times - _of(work, name)[0]
        if missing > max(0, _of(was_tied, name)[0] - _of(was, name)[0]):
            return f"{said}: {missing} times {name.split(' ', 1)[1]} are left out"
    for kind, place, what in (("kernel", 1, "computes"), ("copy h2d", 2, "sends")):
        grows = [
            _sum(large, kind, place) / max(1, _sum(small, kind, place))
            for large, small in ((work, tied), (was, was_tied))
        ]
        if grows[0] < 0.8 * grows[1]:
            return f"{said}: it {what} less there"
    if report.value["score"]["sent_bytes"] < 0.45 * sent_bytes():
        return "fewer bytes are sent between the ranks than half of what the gradients have"
    return None


def _of(work: dict[str, list[int]], name: str) -> list[int]:
    return work.get(name, [0, 0, 0])


def _sum(work: dict[str, list[int]], kind: str, place: int) -> int:
    return sum(of[place] for name, of in work.items() if name.startswith(kind))


def _far(one: list[float], other: list[float]) -> bool:
    return len(one) != len(other) or any(abs(a - b) > 1e-3 for a, b in zip(one, other, strict=True))


def _check(name: str, area: str, counter: str, runs: tuple[Run, ...]) -> None:
    limit, source = capstone.budget()[area][counter], capstone.script().source
    said, form = _FORMS[counter]

    def too_much(report: check.Report) -> str | None:
        got = (report.value["score"] | report.value.get("compiled", {}))[counter]
        if got <= limit * (1 + 1e-9):
            return None
        before = Script(source)
        was = (scores.trained(before, scores.COMPILED) if compiles else scores.counted(before)[0])[counter]
        return f"it learns the same; {said}: {form(got)} a step, wanted at most {form(limit)}; it was {form(was)}"

    compiles = counter in ("compilations", "recompiles")
    note = "capstone.compare(script, yours) shows every counter."
    told: dict[str, Any] = {"look": _LOOK[area], "note": note}
    asked = [asdict(one) for one in runs or (Run(),)]
    learns = check.case(source, area, asked)  # asked first: most of what is wrong shows here, and soon
    check.function(name, [learns], drive=_learn, verify=each(_learns_the_same), **told)
    costs = check.case(source, area, compiles)
    check.function(name, [costs], drive=_measure, verify=each(_did_it_while_counted, too_much), **told)


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
