"""Tests of lesson 17: what a repaired script costs, counter by counter, if it still learns the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
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
TIED = asdict(
    Run(
        side=32, width=32, heads=scores.LARGE["heads"], layers=scores.LARGE["layers"], batch=scores.LARGE["batch"],
        parts=scores.LARGE["parts"], steps=scores.WARM_UP + scores.STEPS, files=scores.PICTURES, ranks=scores.RANKS,
    )
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


def _measure(
    answer: Callable[[Script], Any], source: str, area: str, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the repaired script learns in these runs, what a step of it takes, and what it did while that was counted."""
    after = _repaired(answer, source, area)
    learned = [scores.trained(after, Run(**one)) for one in [*runs, TIED]]
    _, work, loaded = scores.counted(after)
    return {"learned": learned, "score": scores.score(after).as_dict(), "work": work, "loaded": loaded}


def _learns_the_same(report: check.Report) -> str | None:
    source, _, runs = report.args
    for one, learned in zip([*runs, TIED], report.value["learned"], strict=True):
        asked = Run(**one)
        want = scores.trained(Script(source), asked)
        tolerance = scores.ROUNDED if asked.autocast else scores.CLOSE
        if odd := scores.apart(want, learned, tolerance):
            return f"{asked}: {odd}. It has to learn the same."
    return None


def _did_it_while_counted(report: check.Report) -> str | None:
    """Counted steps have no values: what they do is held against a run that has them, and against the script as it was."""
    before = Script(report.args[0])
    _, was, loaded = scores.counted(before)
    was_tied, tied = scores.trained(before, Run(**TIED))["work"], report.value["learned"][-1]["work"]
    work = report.value["work"]
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
        got = report.value["score"][counter]
        if got <= limit * (1 + 1e-9):
            return None
        was = scores.score(Script(source)).as_dict()[counter]
        return f"it learns the same; {said}: {form(got)} a step, wanted at most {form(limit)}; it was {form(was)}"

    case = check.case(source, area, [asdict(one) for one in runs or (Run(),)])
    judge, note = (
        each(_learns_the_same, _did_it_while_counted, too_much),
        "capstone.compare(script, yours) shows every counter.",
    )
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
