"""Which lines of a script raise a counter: `own_script`'s `where` for the capstone's script, four warm steps of it.

    capstone.where(script, "syncs")        # the lines that make the CPU wait, and how often in a step
    capstone.by_part(script)               # what each function took, on the CPU and on the GPU

It says where, and not what to do about it: a line may cost what it has to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from helpers.lessons.capstone import scores
from helpers.lessons.capstone.parts import AREAS, Script, code_of
from helpers.own_script import counters
from helpers.own_script.counters import Charge, Lines, Noted
from helpers.own_script.listening import noting
from helpers.own_script.places import NOWHERE, Place, called_by, function_of
from helpers.text.tables import Table, number_text, table

#: the lessons that treat what raises a counter
LESSONS = {
    "step_s": "03", "busy_s": "01, 02, 09, 10", "stall_s": "04", "read_s": "04", "launches": "01, 02, 06",
    "launches_but_casts": "01, 02, 06",
    "operators": "01, 02", "syncs": "03, 05", "copied_bytes": "04, 08, 10", "collectives": "14", "sent_bytes": "14",
    "saved_bytes": "02, 09", "peak_bytes": "08, 09", "growth_bytes": "08", "compilations": "11",
}  # fmt: skip
#: rows of a table of lines; a function has one in the table of functions from so many seconds on
MOST, LEAST_S = 8, 1e-5
_FORMS = {key: (name, form) for key, name, form in scores.ROWS}
_AREA = {part: area for area, parts in AREAS.items() for part in parts}


def _area(function: str) -> str:
    """The exercise that a function belongs to; "" for what none repairs. The classes are the model's."""
    return _AREA.get(function, "model" if "." in function else "")


@lru_cache(maxsize=4)  # all records of a run
def _noted(script: Script) -> tuple[Noted, Any]:
    """Four steps of the script, warm: what they took, and a snapshot of the memory with its history."""
    within = partial(called_by, "train")
    heard: list[Noted] = []

    @contextmanager
    def beside(gpu: Any) -> Iterator[None]:
        gpu.memory._record_memory_history(context=None)
        with noting(gpu, within) as marks:
            heard.append(Noted(gpu, marks, within))
            yield

    with scores.running(script, beside=beside) as (_, run, seen), heard[0].saving():
        many = lambda pictures: "one picture" if pictures == 1 else f"{pictures} pictures"  # noqa: E731
        seen.told = lambda n, seconds: heard[0].tell("read_s", seconds, f"a request of {many(n)}")
        for _ in range(scores.STEPS):
            heard[0].begins()
            next(run)
        return heard[0], seen.gpu.memory._snapshot()


@lru_cache(maxsize=64)
def lines(script: Script, counter: str) -> Lines:
    """What each line of the script has of a counter in a step, functions named as those that they stand for."""
    noted, snapshot = _noted(script)
    parts = {function_of(code): part for part, made in script.replaced if (code := code_of(made))}

    def named(place: Place) -> Place:
        if place.function == "train" and place.text.startswith("optimizer."):
            return place._replace(function="make_optimizer")  # what it launches follows from how it was made
        return place._replace(function=parts.get(place.function, place.function))

    found = noted.lines(counter, snapshot if counter in counters.MEMORY else None)
    for charge in found.values():
        charge.within = {named(place or NOWHERE): share for place, share in charge.within.items()}
    return {named(place): charge for place, charge in found.items()}


# ---------------------------------------------------------------------------------------------------- as tables


def where(script: Script, counter: str, most: int = MOST) -> Table:
    """The lines that raise a counter most, `most` of them, and how much of it each is in a step. ValueError for no counter.

    counter: a field of a Score, such as "syncs". "step_s" is the CPU's time. A backward pass belongs to the lines whose
    forward pass made it, the optimizer's to make_optimizer. What is compiled is told in the words of lesson 11.
    """
    look = f"to look up: lesson {LESSONS[counters.known(counter, LESSONS)]}"
    if counter == "compilations":
        return _compiled(script, look)
    what, said = counters.COUNTERS["step_s"][:2] if counter == "step_s" else _FORMS[counter]
    also = {"area": lambda place, charge: _area(place.function), "train calls": _via}
    return counters.shown(
        lines(script, counter), what, said, most, evidence=scores.SIMULATED, caption=look, also=also
    )


def _via(place: Place, charge: Charge) -> str:
    whole, by_name = sum(charge.within.values()), defaultdict[str, float](float)
    for called, share in charge.within.items():
        by_name[called.function if called else ""] += share
    return ", ".join(
        f"{name} {share / whole:.0%}" if share < whole else name for name, share in counters.largest(by_name)
    )


def _compiled(script: Script, look: str) -> Table:
    """What a small run on the CPU compiles, line by line, and why again."""
    (_, report), rows = scores.watched(script, scores.COMPILED), []
    own = {
        code.co_name: (code.co_filename, part) for part, made in script.replaced if (code := code_of(made))
    }
    places = {c.where: c.function.partition(",")[0] for c in report.compilations}
    for where, name in places.items():
        script_s = where.startswith(f"{Path(script.file).name}:")  # else "cell, line 15"
        file, function = (script.file, name) if script_s else own.get(name, (script.file, name))
        place = Place(file, int(re.findall(r"\d+", where)[-1]), function)
        made = sum(c.where == where and bool(c.operators) for c in report.compilations)
        why = [
            f"the graph breaks: {b.reason}" for b in report.breaks if f"{b.where} ".startswith(f"{where} ")
        ]
        again = [r.reason for r in report.recompiles if f"({where})" in r.where]
        why += [f"again, since this was no longer so: {again[0]}"] if again else []
        rows.append((where, f"`{place.text}`", function, _area(function), made, "; ".join(why)))
    columns = ["compiled from this line on", "code", "in", "area", "compilations", "why"]
    return table(rows, columns, evidence="live (CPU)", caption=look)


def by_part(script: Script) -> Table:
    """What each function took in a step without those that it calls, backward pass included, the longest on CPU or GPU first; sums by area."""
    rows = [
        (f"`{name}`" if name in _AREA else name, _area(name), f"{1e3 * took['step_s']:.2f}",
         f"{1e3 * took['busy_s']:.2f}", _FORMS["launches"][1](took["launches"]), _FORMS["syncs"][1](took["syncs"]))
        for name, took in sorted(spent(script).items(), key=lambda item: -max(item[1]["step_s"], item[1]["busy_s"]))
        if max(took["step_s"], took["busy_s"]) >= LEAST_S
    ]  # fmt: skip
    columns = ["function", "area", "CPU, waits included (ms)", "its kernels (ms)", "launches", "syncs"]
    areas = {area: dict.fromkeys(("step_s", "launches", "syncs"), 0.0) for area in AREAS}
    for name, took in spent(script).items():
        for counter in (sums := areas.get(_area(name), {})):
            sums[counter] += took[counter]
    shares = [
        f"{area} {1e3 * of['step_s']:.1f} ms, {number_text(of['launches'])} and {number_text(of['syncs'])}"
        for area, of in areas.items()
    ]
    caption = f"CPU, launches and syncs by area: {'; '.join(shares)}"
    return table(rows, columns, evidence=scores.SIMULATED, caption=caption)


def spent(script: Script) -> dict[str, dict[str, float]]:
    """Function → counter → what it took in a step, its backward pass included."""
    functions: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for counter in ("step_s", "busy_s", "launches", "syncs"):
        for place, charge in lines(script, counter).items():
            functions[place.function][counter] += charge.amount
    return functions
