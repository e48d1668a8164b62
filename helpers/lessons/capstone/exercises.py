"""Tests of lesson 17: what a repaired script costs, counter by counter, if it still learns the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from inspect import isfunction
from typing import Any

from helpers import check
from helpers.check.judges import each
from helpers.lessons import capstone
from helpers.lessons.capstone import alone, scores
from helpers.lessons.capstone.given import sent_bytes
from helpers.lessons.capstone.parts import AREAS, PARTS, Script
from helpers.lessons.capstone.scores import LARGE, Run

#: headings of the lesson, by area
_LOOK = {
    **dict.fromkeys(("data", "model", "step"), "3 · Where is it?"),
    "run": "The run around the step",
    "all": "4 · Rank them, then repair one",
}
#: of an entry of :func:`helpers.lessons.capstone.scores.counted`'s work
FLOPS, BYTES = 1, 2
#: so many batches more than it has yielded may `send` take
AHEAD = 2
#: kernels whose work follows from the model alone
_PRODUCTS = re.compile("mm|convolution|attention")
_FORMS = {key: (name, form) for key, name, form in scores.ROWS}


#: a run for which the losses have to stay
run = Run
#: a run on the simulated GPU with true values, and otherwise as the steps are counted: only pictures and weights are smaller
TIED = Run(
    side=32, width=32, heads=LARGE["heads"], layers=LARGE["layers"], batch=LARGE["batch"],
    parts=LARGE["parts"], steps=scores.WARM_UP + scores.STEPS, files=scores.PICTURES, ranks=scores.RANKS,
)  # fmt: skip


@lru_cache(maxsize=8)
def _repaired(answer: Callable[[Script], Any], area: str) -> Script:
    """The script that an answer made of the class's. (The tests of one exercise ask for the same.)"""
    given = capstone.script()
    after = answer(given)
    if type(after) is not Script:
        raise TypeError(
            f"returned {_said(after)}, wanted the script with parts replaced: return script.replace(…)"
        )
    if after.source != given.source:
        raise ValueError(
            "returned a script of another text, wanted the one that it was given: return script.replace(…)"
        )
    own = AREAS.get(area, PARTS)
    if foreign := [name for name, _ in after.replaced if name not in own]:
        raise ValueError(f"replaces {', '.join(foreign)}; this exercise is about {', '.join(own)}")
    return given.replace(**dict(after.replaced))


def _said(value: Any) -> str:
    if value is None:
        return "None"
    return f"the function {value.__name__}" if isfunction(value) else f"a {type(value).__name__}"


def _learn(answer: Callable[[Script], Any], area: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """alone: what the repaired script's parts give, called one by one; runs: what it learns in these."""
    after = _repaired(answer, area)
    parts = {name: alone.results(after, name) for name, _ in after.replaced if name in alone.CALLS}
    return {"alone": parts, "runs": [scores.trained(after, Run(**fields)) for fields in runs]}


def _measure(answer: Callable[[Script], Any], area: str, compiles: bool) -> dict[str, Any]:
    """What a step of it takes, what it did while that was counted, and what it learns and does with true values."""
    after = _repaired(answer, area)
    numbers, work, loaded, ahead = scores.counted(after)
    measured = {"score": numbers, "work": work, "loaded": loaded, "ahead": ahead}
    measured["tied"] = scores.trained(after, TIED)
    return measured | {"compiled": scores.trained(after, scores.COMPILED)} if compiles else measured


def _gives_the_same(report: check.Report) -> str | None:
    before, given_back = capstone.script(), report.value["alone"]
    odds = (alone.apart(name, alone.results(before, name), given_back[name]) for name in given_back)
    odd = next(filter(None, odds), None)
    return f"{odd}. It has to compute the same." if odd else None


def _learns_the_same(report: check.Report) -> str | None:
    _, runs = report.args
    odds = (_odd(Run(**fields), learned) for fields, learned in zip(runs, report.value["runs"], strict=True))
    return next(filter(None, odds), None)


def _odd(asked: Run, learned: dict[str, Any]) -> str | None:
    tolerance = scores.ROUNDED if asked.autocast else scores.CLOSE
    odd = scores.apart(scores.trained(capstone.script(), replace(asked, compiled=False)), learned, tolerance)
    return f"{asked}: {odd}. It has to learn the same." if odd else None


def _did_it_while_counted(report: check.Report) -> str | None:
    """Counted steps have no values: what they do is held against a run that has them, and against the script as it was."""
    before, work, tied = capstone.script(), report.value["work"], report.value["tied"]["work"]
    ran = [(TIED, report.value["tied"])]
    if "compiled" in report.value:
        ran.append((scores.COMPILED, report.value["compiled"]))
    if odd := next(filter(None, (_odd(*pair) for pair in ran)), None):
        return odd
    _, was, loaded, _ = scores.counted(before)
    was_tied = scores.trained(before, TIED)["work"]
    if (ahead := report.value["ahead"]) > AHEAD:
        return f"send takes {ahead} batches more than it has yielded, wanted at most {AHEAD}"
    problem = "a step does something else where it is counted than where its losses are compared"
    # one may be a batch ahead
    if any(_far(a, b) for a, b in zip(loaded, report.value["loaded"], strict=False)):
        return f"{problem}: it loads other pictures"
    for name, (times, _, _) in tied.items():
        missing = times - _of(work, name)[0]
        if missing > max(0, _of(was_tied, name)[0] - _of(was, name)[0]):
            return f"{problem}: {missing} times {name.split(' ', 1)[1]} are left out"
    # sizes grow from one run to the other: by how much, is the same for the script as it was
    products = [name for name in tied if name in was_tied and _PRODUCTS.search(name)]
    for names, place, least in [
        *(([name], FLOPS, 0.95) for name in products),
        ([name for name in {**work, **was} if name.startswith("kernel")], FLOPS, 0.8),
        ([name for name in {**work, **was} if name.startswith("copy h2d")], BYTES, 0.95),
    ]:
        if _growth(names, place, tied, work) < least * _growth(names, place, was_tied, was):
            return f"{problem}: it computes or sends less ({', '.join(sorted(names)[:3])})"
    # the same picture may be drawn twice, and two batches be there ahead; all else a step reads for itself
    batch_s = LARGE["batch"] * 3 * LARGE["side"] ** 2 / scores.READ_BYTES_PER_S
    if (read_s := report.value["score"]["read_s"]) < batch_s / 2:
        return f"a step reads for {read_s * 1e6:.0f} µs, and its batch takes {batch_s * 1e6:.0f}: the rest was read before anybody counts. Pictures of other steps are not kept"
    if report.value["score"]["sent_bytes"] < 0.45 * sent_bytes():
        return "fewer bytes are sent between the ranks than half of what the gradients have"
    return None


def _of(work: dict[str, list[int]], name: str) -> list[int]:
    return work.get(name, [0, 0, 0])


def _growth(names: list[str], place: int, small: dict[str, list[int]], large: dict[str, list[int]]) -> float:
    return sum(_of(large, name)[place] for name in names) / max(
        1, sum(_of(small, name)[place] for name in names)
    )


def _far(means: list[float], others: list[float]) -> bool:
    # pictures of nan are near no others
    return len(means) != len(others) or not all(
        abs(a - b) <= 1e-3 for a, b in zip(means, others, strict=True)
    )


def _check(name: str, area: str, counter: str, runs: tuple[Run, ...]) -> None:
    limit = capstone.budget()[area][counter]
    called, form = _FORMS[counter]
    each_step = "" if counter in ("compilations", "peak_bytes") else " a step"

    def takes(report: check.Report) -> float:
        found: float = (report.value["score"] | report.value.get("compiled", {}))[counter]
        return found

    def too_much(report: check.Report) -> str | None:
        got = takes(report)
        if got <= limit * (1 + 1e-9):
            return None
        before = capstone.script()
        was = (scores.trained(before, scores.COMPILED) if compiles else scores.counted(before)[0])[counter]
        return f"it learns the same; {called}: {form(got)}{each_step}, wanted at most {form(limit)}; it was {form(was)}"

    def learned(reports: list[check.Report]) -> str:
        return f"learns the same in {len(wanted_runs)} run{'s' if len(wanted_runs) > 1 else ''}"

    def spared(reports: list[check.Report]) -> str:
        return f"{called}: {form(takes(reports[0]))}{each_step} (at most {form(limit)})"

    compiles = counter == "compilations"
    note = f"In a cell of its own, capstone.compare(script, {name}(script)) shows every counter."
    how: dict[str, Any] = {"call": f"{name}(script)", "look": _LOOK[area], "note": note, "counters": False}
    how["once"] = "a whole training, which takes seconds"
    default = asdict(Run())
    wanted_runs = [
        {k: v for k, v in asdict(each_run).items() if v != default[k]} for each_run in runs or (Run(),)
    ]
    learns = check.case(area, wanted_runs)  # asked first: most of what is wrong shows here, and soon
    same = each(_gives_the_same, _learns_the_same)
    check.function(name, [learns], drive=_learn, verify=same, passed=learned, **how)
    costs = check.case(area, compiles)
    cheap = each(_did_it_while_counted, too_much)
    check.function(name, [costs], drive=_measure, verify=cheap, passed=spared, **how)


def check_repair_data(counter: str, *runs: Run) -> None:
    """counter: read_s, stall_s, copied_bytes or syncs. runs: in which it has to learn the same."""
    _check("repair_data", "data", counter, runs)


def check_repair_model(counter: str, *runs: Run) -> None:
    """counter: launches_but_casts, saved_bytes, busy_s or compilations."""
    _check("repair_model", "model", counter, runs)


def check_repair_step(counter: str, *runs: Run) -> None:
    """counter: launches_but_casts, syncs, collectives or peak_bytes."""
    _check("repair_step", "step", counter, runs)


def check_repair_run(counter: str, *runs: Run) -> None:
    """counter: syncs, growth_bytes, copied_bytes or saved_bytes."""
    _check("repair_run", "run", counter, runs)


def check_repair(counter: str, *runs: Run) -> None:
    """The whole script. counter: any field of a Score."""
    _check("repair", "all", counter, runs)
