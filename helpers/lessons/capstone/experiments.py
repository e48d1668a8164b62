"""Lesson 17: what an unknown script does on the simulated GPU, on other machines too; repairs tried, rung by rung."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from typing import Any, NamedTuple
from unittest import mock

from helpers import plots, progress
from helpers.check.probe import describe
from helpers.lesson import patience
from helpers.lessons import capstone
from helpers.lessons.capstone import finding, given, reference_repair, scores
from helpers.lessons.capstone.parts import AREAS, WHOLE, Script
from helpers.lessons.gpu_queue.experiments import machine
from helpers.plots.ladders import Rung
from helpers.simulator import simulate
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

SIMULATED = scores.SIMULATED
#: what is told of the whole script beside what is graded
_TOO = ("launches_but_casts", "syncs")
Repair = Callable[[Script], Script]
#: functions that the last row of a ladder names
NAMED = 3

# --- 1, the script, and which part of the machine ------------------------------------------------------------------


def parts() -> Table:
    """The functions that may be replaced, by area."""
    rows = [(area, ", ".join(f"`{name}`" for name in names)) for area, names in AREAS.items()]
    return table(rows, ["area", "functions that you may replace"], evidence="arithmetic")


def gains(script: Script) -> dict[str, float]:
    """Part of the machine → how many times as fast a step is when that part is twice as fast."""
    step_s = scores.counted(script)[0]["step_s"]  # a whole score would compile, too
    twice = {"CPU": (2, 1, 1, 1), "GPU": (1, 2, 1, 1), "copies": (1, 1, 2, 1), "loading": (1, 1, 1, 2)}
    speedups = {}
    for name, (*parts, loading) in patience.bar(list(twice.items()), "a faster CPU, GPU …"):
        rates = {"REQUEST_S": 1 / loading, "READ_BYTES_PER_S": loading, "MAKE_BYTES_PER_S": loading}
        faster = {constant: getattr(scores, constant) * rate for constant, rate in rates.items()}
        with mock.patch.multiple(scores, **faster):
            numbers, *_ = scores.counted_on(script, simulate(machine(*parts)).world(scores.RANKS))
        speedups[name] = step_s / numbers["step_s"]
    return speedups


def of_the_machine(speedups: Mapping[str, float]) -> Table:
    """`gains` as a table."""
    rows = [(name, f"{gain:.2f}×") for name, gain in speedups.items()]
    return table(rows, ["twice as fast", "makes a step faster"], evidence=SIMULATED)


def computes(script: Script) -> str:
    """How much of a step the GPU computes, in the words of lesson 03."""
    numbers = scores.counted(script)[0]
    share = numbers["busy_s"] / numbers["step_s"]
    return "over 80 %" if share >= 0.8 else "40 to 80 %" if share >= 0.4 else "under 40 %"


def kernels_and_step(script: Script) -> Table:
    """What that follows from."""
    numbers = scores.counted(script)[0]
    busy, step = numbers["busy_s"], numbers["step_s"]
    row = (format_seconds(step), format_seconds(busy), f"{busy / step:.0%}")
    return table([row], ["a step", "its kernels", "of the step"], evidence=SIMULATED)


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
        rows.append((f'`"{key}"`', name, form(now), _limit(key, limit, form), over, finding.LESSONS[key]))
    columns = ["counter", "a step of the script", "now", "budget", "now ÷ budget", "lessons"]
    size = ", ".join(f"{name}={value}" for name, value in scores.LARGE.items())
    note = (
        f"means of four steps with Size({size}); two validations and one checkpoint are in them: a real run has both far more "
        f"rarely; {_of_a_budget(limits['step_s'])}"
    )
    return table(rows, columns, evidence=SIMULATED, caption=note)


def _of_a_budget(limit: float) -> str:
    """How the budget of a step's time is made, in words."""
    was = scores.counted(given.script())[0]["step_s"]
    best = (limit - given.LEFT * was) / (1 - given.LEFT)
    return (
        f'the budget of "step_s": {format_seconds(best)} with all repairs, and a fifth of the {format_seconds(was - best)} '
        "that they save"
    )


def _limit(key: str, limit: float, form: Callable[[float], str]) -> str:
    """A budget as text: of what is counted one by one to the last digit."""
    return f"{limit:g}" if key in given.LEFT_OF else form(limit)


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


def tried(script: Script, area: str, *repairs: Repair) -> Table | str:
    """The graded counters of an exercise and the time, before and after these repairs, beside the budget; a word where no
    repair is written, or where the repaired script fails."""
    limits = given.budget()[area]
    if area == "all":
        limits = {key: limits[key] for key in (*WHOLE, *_TOO)}
    try:
        after = repaired(script, *repairs)
        if after is script:
            return f"for later: this cell wants your {repairs[0].__name__}"
        board = capstone.compare(script, after)
    except Exception as problem:  # 50 lines of the course's own frames would hide the one that matters
        report = describe(problem)
        where = f" ({report['where']})" if report["where"] else ""
        return f"the repaired script fails: {report['type']}: {report['text']}{where}"
    before, after_it = board.before.as_dict(), board.after.as_dict()
    rows = [] if board.same else [board.ANOTHER]
    for key, name, form in scores.ROWS:
        limit = limits.get(key)
        if limit is None and key != "step_s":
            continue
        met = board.same and limit is not None and after_it[key] <= limit * (1 + 1e-9)
        kept = "" if limit is None else "✓" if met else "not yet"
        asked = "not graded" if limit is None else _limit(key, limit, form)
        rows.append((f'`"{key}"`: {name}', form(before[key]), form(after_it[key]), asked, kept))
    columns = ["a step of the script", "before", "after", "at most", ""]
    return table(rows, columns, evidence=SIMULATED, caption=board.table().caption.partition("; ")[0])


def left(script: Script, *repairs: Repair) -> Table | str:
    """What each function takes after these repairs; a word where none is written, or where the repaired script fails."""
    try:
        after = repaired(script, *repairs)
        return "for later: this cell wants a repair of yours" if after is script else finding.by_part(after)
    except Exception:
        return "for later: the repaired script fails, as the cell above says"


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
    """Time and peak memory of a step, function by function: those of the data, then the one that cost the CPU or the GPU most.

    What changes both by less than 2 % has no row of its own.
    """
    new = {name: part for name, part in after.replaced if not _as_it_was(part, script.part(name))}
    cost = finding.spent(script)
    # who carries out what these set up
    cost["loading"], cost["forward"] = cost["send"], cost["Block.forward"]
    order = sorted(
        new, key=lambda name: (name not in AREAS["data"], -max(cost[name]["step_s"], cost[name]["busy_s"]))
    )
    rungs, now, own = [_rung("as it was", script)], script, set[str]()
    for name in patience.bar(order, "function by function"):
        more = now.replace(**{name: new[name]})
        try:
            rung, last = _rung(name, more), rungs[-1]
        except Exception:  # it wants one that comes later, as `validate` does `held_out`
            continue  # the last row has it
        now = more
        if max(abs(rung.seconds / last.seconds - 1), abs(rung.nbytes / last.nbytes - 1)) >= 0.02:
            rungs.append(rung)
            own.add(name)
    if rest := [name for name in order if name not in own]:
        rungs.append(_rung(", ".join(rest) if len(rest) <= NAMED else f"{len(rest)} more", after))
    if len(rungs) > 1:
        board, kept = capstone.compare(script, after).table(), [astuple(rung) for rung in rungs]
        progress.keep_board("The capstone: my repairs, one on the other", board, kept)
    return plots.ladder(rungs, evidence=SIMULATED, title="Your repairs, one on the other")


def _rung(name: str, script: Script) -> Rung:
    step = scores.counted(script)[0]
    return Rung(name, step["step_s"], step["peak_bytes"])


def _as_it_was(part: Callable[..., Any], text: str) -> bool:
    """Whether a function does, word for word, what the script's own does: annotations and docstrings apart."""
    try:
        mine = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    except (OSError, TypeError, SyntaxError):  # a lambda in the middle of a line
        return False
    return isinstance(mine, ast.FunctionDef) and _body(mine) == _body(ast.parse(text).body[0])


def _body(function: Any) -> list[str]:
    """Its decorators and statements."""
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.dump(node) for node in (*function.decorator_list, *statements)]


# --- Further: the same for models of others' sizes -----------------------------------------------------------------


def climbed(name: str) -> dict[str, str]:
    """Of a reference ladder: how many times as fast its last rung is, in words; and the rung that bought most."""
    rungs = reference_repair.scored(name)
    times = rungs[0].seconds / rungs[-1].seconds
    bought = {now.name: last.seconds / now.seconds for last, now in itertools.pairwise(rungs)}
    how_much = "under 4 times" if times < 4 else "4 to 8 times" if times < 8 else "over 8 times"
    return {"all rungs together": how_much, "the rung that buys most": max(bought, key=bought.__getitem__)}


class Head(NamedTuple):
    """Milliseconds of GPT-2's product with its vocabulary, 8,192 × 768 by 768 × 50,257: recorded in bfloat16 and in TF32, and in
    bfloat16 simulated with 50,304 tokens."""

    odd_ms: float
    odd_tf32_ms: float
    padded_ms: float


def launches_of_adamw_in_a_loop(name: str) -> int:
    """Launches of one step of AdamW(foreach=False) on all parameters of the model "bert" or "gpt2"."""
    import torch

    from helpers.lessons.capstone.reference_repair.models import TASKS, Net, Way

    with simulate("H100") as gpu:
        with torch.device(gpu.device):
            parameters = list(Net(TASKS[name], Way()).parameters())
        for p in parameters:
            p.grad = torch.empty_like(p)
        adamw = torch.optim.AdamW(parameters, foreach=False)
        adamw.step()  # makes its state
        before = len(gpu.kernels)
        adamw.step()
        return len(gpu.kernels) - before


def product_with_the_vocabulary() -> Head:
    from helpers.calibration import fit, measured
    from helpers.simulator.cost import roofline

    shapes = ((8192, 768), (768, 50257))
    by = {one.dtype: one for _, one in fit.recorded() if one.shapes == shapes}
    padded = replace(by["bfloat16"], shapes=((8192, 768), (768, 50304)))
    padded_s = roofline.seconds(measured.main_work(padded)[0], padded.device)
    return Head(1e3 * by["bfloat16"].seconds, 1e3 * by["tf32"].seconds, 1e3 * padded_s)
