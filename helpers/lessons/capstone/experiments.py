"""Lesson 17: what an unknown script does on the simulated GPU, on other machines too; repairs tried, rung by rung."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from helpers import plots, progress
from helpers.check.probe import describe
from helpers.lesson import patience
from helpers.lessons import capstone
from helpers.lessons.capstone import finding, given, reference_repair, scores
from helpers.lessons.capstone.parts import AREAS, WHOLE, Script
from helpers.lessons.capstone.scores import Step, step_of
from helpers.lessons.gpu_queue.experiments import machine
from helpers.plots import ladders
from helpers.simulator import simulate
from helpers.text.tables import ShownAsTable, Table, table

SIMULATED = scores.SIMULATED
#: what is told of the whole script beside what is graded
_TOO = ("launches_but_casts", "syncs")
Repair = Callable[[Script], Script]

# --- 1, the script, and which part of the machine ------------------------------------------------------------------


def parts() -> Table:
    """The functions that may be replaced, by area."""
    rows = [(area, ", ".join(f"`{name}`" for name in names)) for area, names in AREAS.items()]
    return table(rows, ["area", "functions that you may replace"], evidence="arithmetic")


@functools.lru_cache(maxsize=64)
def a_step(script: Script, cpu: float = 1, gpu: float = 1, pcie: float = 1, loading: float = 1) -> Step:
    """A step on a machine of which a part is so many times as fast."""
    rates = {"REQUEST_S": 1 / loading, "READ_BYTES_PER_S": loading, "MAKE_BYTES_PER_S": loading}
    faster = {name: getattr(scores, name) * rate for name, rate in rates.items()}
    with mock.patch.multiple(scores, **faster):
        return step_of(script, simulate(machine(cpu, gpu, pcie)).world(scores.RANKS))


def gains(script: Script) -> dict[str, float]:
    """Part of the machine → how many times as fast a step is when that part is twice as fast."""
    plain = capstone.score(script).step_s
    parts = {"CPU": "cpu", "GPU": "gpu", "copies": "pcie", "loading": "loading"}
    some = patience.bar(list(parts.items()), "a faster CPU, GPU …")
    return {name: plain / a_step(script, **{key: 2}).seconds for name, key in some}


def of_the_machine(speedups: Mapping[str, float]) -> Table:
    """`gains` as a table."""
    rows = [(name, f"{gain:.2f}×") for name, gain in speedups.items()]
    return table(rows, ["twice as fast", "makes a step faster"], evidence=SIMULATED)


def computes(script: Script) -> str:
    """How much of a step the GPU computes, in the words of lesson 03."""
    score = capstone.score(script)
    share = score.busy_s / score.step_s
    return "over 80 %" if share >= 0.8 else "40 to 80 %" if share >= 0.4 else "under 40 %"


# --- 2, its scoreboard, and 3, which part of the script ------------------------------------------------------------


def scoreboard(script: Script) -> Table:
    """Of what is graded: what a step takes, what it may take when all is repaired, how far over it is, and where to look it up."""
    budget, score = given.budget(), capstone.score(script).as_dict()
    limits, graded = budget["all"], {*WHOLE}.union(*(of for area, of in budget.items() if area != "all"))
    rows = []
    for key, name, form in scores.ROWS:
        if key not in graded:
            continue
        now, limit = score[key], limits[key]
        over = "" if now <= limit else f"{now / limit:.1f}×" if limit else "should be 0"
        rows.append((f'`"{key}"`', name, form(now), form(limit), over, finding.LESSONS[key]))
    columns = ["counter", "a step of the script", "now", "budget", "now ÷ budget", "lessons"]
    size = ", ".join(f"{name}={value}" for name, value in scores.LARGE.items())
    note = f"means of four steps (two validations and one checkpoint are in them) with Size({size})"
    return table(rows, columns, evidence=SIMULATED, caption=note)


# --- repairs -------------------------------------------------------------------------------------------------------


def repaired(script: Script, *repairs: Repair) -> Script:
    """The script with these repairs, one on the other; those that are not written yet are left out."""
    for repair in repairs:
        try:
            after = repair(script)
        except NotImplementedError:
            continue
        if not isinstance(after, Script):
            raise TypeError(f"{repair.__name__} returned {after!r}, wanted return script.replace(…)")
        script = after
    return script


class Tried(ShownAsTable):
    """The graded counters of an exercise and the time, before and after, beside the budget."""

    def __init__(self, board: capstone.Board, limits: Mapping[str, float]) -> None:
        self.board, self.limits = board, limits

    def table(self) -> Table:
        before, after = self.board.before.as_dict(), self.board.after.as_dict()
        rows = [] if self.board.same else [self.board.ANOTHER]
        shown = [row for row in scores.ROWS if row[0] in self.limits]
        if "step_s" not in self.limits:
            shown.append(scores.ROWS[0])
        for key, name, form in shown:
            limit = self.limits.get(key)
            met = self.board.same and limit is not None and after[key] <= limit * (1 + 1e-9)
            kept = "" if limit is None else "✓" if met else "not yet"
            asked = "not graded" if limit is None else form(limit)
            rows.append((name, form(before[key]), form(after[key]), asked, kept))
        columns = ["a step of the script", "before", "after", "at most", ""]
        note = self.board.table().caption.partition("; ")[0]
        return table(rows, columns, evidence=SIMULATED, caption=note)


def tried(script: Script, area: str, *repairs: Repair) -> Tried | str:
    """The script before and after these repairs, beside the budget of the area's exercise; a word where none is written,
    or where the repaired script fails."""
    limits = given.budget()[area]
    try:
        after = repaired(script, *repairs)
        if after is script:
            return f"for later: this cell wants your {repairs[0].__name__}"
        board = capstone.compare(script, after)
    except Exception as problem:  # 50 lines of the course's own frames would hide the one that matters
        report = describe(problem)
        where = f" ({report['where']})" if report["where"] else ""
        return f"the repaired script fails: {report['type']}: {report['text']}{where}"
    return Tried(board, limits if area != "all" else {key: limits[key] for key in (*WHOLE, *_TOO)})


def left_out(board: capstone.Board) -> dict[str, str]:
    """What the board says of a script without its average."""
    changes = "the loss of step" in board.odd
    return {
        "the loss of a step changes": "yes" if changes else "no",
        "the board accepts it": "yes" if board.same else "no",
    }


def your_ladder(script: Script, *repairs: Repair) -> plots.Picture | str:
    """Time and peak memory of a step, repair by repair, function by function; a word where none is written."""
    after = repaired(script, *repairs)
    return "for later: this cell wants a repair of yours" if after is script else _ladder(script, after)


def _ladder(script: Script, after: Script) -> plots.Picture:
    """Time and peak memory of a step, function by function, first the one that cost the CPU or the GPU most.

    What changes both by less than 2 % has no row of its own.
    """
    new = {name: part for name, part in after.replaced if not _as_it_was(part, script.part(name))}
    cost = finding.spent(script)
    cost["loading"], cost["forward"] = (
        cost["send"],
        cost["Block.forward"],
    )  # who carries out what these set up
    order = sorted(new, key=lambda name: -max(cost[name]["step_s"], cost[name]["busy_s"]))
    start, end = capstone.score(script), capstone.score(after)
    rows, now = [("as it was", Step(start.step_s, int(start.peak_bytes)))], script
    for name in patience.bar(order, "function by function"):
        more = now.replace(**{name: new[name]})
        try:
            step, last = a_step(more), rows[-1][1]
        except Exception:  # it wants one that comes later, as `validate` does `held_out`
            continue  # the last row has it
        now = more
        if max(abs(a / b - 1) for a, b in zip(step, last, strict=True)) >= 0.02:
            rows.append((name, step))
    if rest := len(order) + 1 - len(rows):
        rows.append((f"{rest} more", Step(end.step_s, int(end.peak_bytes))))
    bars = [ladders.Rung(name, step.seconds, step.peak_bytes) for name, step in rows]
    if len(bars) > 1:
        board, kept = capstone.compare(script, after).table(), [(name, *step, True) for name, step in rows]
        progress.keep_board("The capstone: my repairs, one on the other", board, kept)
    return plots.ladder(bars, evidence=SIMULATED, title="Your repairs, one on the other")


def _as_it_was(part: Callable[..., Any], text: str) -> bool:
    """Whether a function does, word for word, what the script's own does."""
    try:
        mine = textwrap.dedent(inspect.getsource(part))
    except (OSError, TypeError):
        return False
    return _body(mine) == _body(text)


def _body(text: str) -> list[str]:
    """A function's statements and decorators, without annotations and docstring."""
    try:
        function = ast.parse(text).body[0]
    except SyntaxError:  # a lambda in the middle of a line
        return [text]
    if not isinstance(function, ast.FunctionDef):
        return [text]
    first = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.dump(node) for node in (*function.decorator_list, *first)]


# --- Further: the same for models of others' sizes -----------------------------------------------------------------


def climbed(name: str) -> dict[str, str]:
    """Of a reference ladder: how many times as fast its last rung is, in words; and the rung that bought most."""
    rungs = reference_repair.scored(name)
    times = rungs[0].seconds / rungs[-1].seconds
    bought = {now.name: last.seconds / now.seconds for last, now in itertools.pairwise(rungs)}
    how_much = "under 4 times" if times < 4 else "4 to 8 times" if times < 8 else "over 8 times"
    return {"all rungs together": how_much, "the rung that buys most": max(bought, key=bought.__getitem__)}
