"""The lines of a script, ranked by what their repair could buy.

A gain is a bound. It is found by replaying the records (`replay`) with what the repair would take away: a wait gone, Python's
time gone, twenty launches in place of one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from helpers.own_script import costs
from helpers.own_script.costs import Row
from helpers.own_script.kinds import ADVICE, NEVER_NEEDED
from helpers.own_script.places import Place
from helpers.own_script.replay import Tape
from helpers.simulator.devices import Device

#: rows whose order is found by trying each next; and what is too little to be worth a row
_ROUNDS, _LEAST_S = 15, 1e-6
LITTLE = 0.01  # of a step, or of the device's time in one


def rank(
    tape: Tape, card: Device, step_line: Place | None, recorded: Container[Place] = frozenset()
) -> list[Row]:
    """Rows for each line, the one whose repair buys most first: alone, or where another limit hides it, once that limit is
    gone. The limits are taken away one by one, at each turn the line that buys most then.

    recorded: lines that called a model with autograd on. step_line: where the step ends; a loop around it is the training
    loop, and no loop to be taken out. Rows that take under `_LEAST_S` of a step, or could buy less in any order, are left
    out, but for those that shorten a device's time which hides behind the host's.
    """
    whole = before = tape.step_ns()
    by_place: dict[Place | None, list[Row]] = defaultdict(list)
    for row in costs.of_lines(tape, card, step_line, recorded):
        if row.scale:
            by_place[row.place].append(replace(row, buys_s=(whole - tape.step_ns(row.scale)) / 1e9))
    open_ = [_joined(tape, rows, whole) for rows in by_place.values()]
    gone: dict[int, float] = {}
    ranked: list[Row] = []
    while open_ and len(ranked) < _ROUNDS:
        after, best = _best(tape, gone, open_, before)
        if (before - after) / 1e9 < _LEAST_S:
            break
        row = open_.pop(best)
        gone = _both(gone, row.scale)
        ranked.append(replace(row, next_s=(before - after) / 1e9))
        before = after
    rest = [replace(row, next_s=(before - tape.step_ns(_both(gone, row.scale))) / 1e9) for row in open_]
    rows = [
        row
        for row in _with_hidden(tape, [*ranked, *rest], LITTLE * whole / 1e9)
        if {row.kind, *row.also} & NEVER_NEEDED or max(row.buys_s, row.next_s, row.hidden_s) >= _LEAST_S
    ]
    return _behind(tape, in_order(rows, len(rows)))


def in_order(rows: Iterable[Row], most: int) -> list[Row]:
    """Rows as the table has them, `most` of them: what buys most first; last what buys nothing now and would on a faster host.

    Where there are more, those that buy least are left out, first of the host's own work; but no wait: no script needs one.
    """
    ordered = sorted(rows, key=lambda row: (row.hidden_s > 0, -max(row.next_s, row.buys_s, row.hidden_s)))
    crumbs = [row for row in ordered[::-1] if not row.hidden_s and not {row.kind, *row.also} & NEVER_NEEDED]
    crumbs.sort(key=lambda row: row.kind not in ("python", "torch", "loader"))
    left_out = {id(row) for row in crumbs[: max(0, len(ordered) - most)]}
    return [row for row in ordered if id(row) not in left_out]


def _with_hidden(tape: Tape, rows: list[Row], least_s: float) -> list[Row]:
    """Rows that buy less than that, each with what it would take off the device's time if the host took none."""
    hostless = {n: 0.0 for n, event in enumerate(tape.events) if event.lane is None}
    device = tape.step_ns(hostless)

    def hidden_s(row: Row) -> float:
        if max(row.buys_s, row.next_s) >= least_s or all(tape.events[n].lane is None for n in row.scale):
            return 0.0
        gain = device - tape.step_ns(_both(hostless, row.scale))
        return gain / 1e9 if gain > LITTLE * device else 0.0

    return [replace(row, hidden_s=hidden_s(row)) for row in rows]


def _best(tape: Tape, gone: dict[int, float], rows: list[Row], before: float) -> tuple[float, int]:
    """A step's time, and which row's repair brings it there: the one that buys most now. Rows that take less than one has
    bought already are not tried."""
    most = [(_most_ns(tape, row), n) for n, row in enumerate(rows)]
    after, best = before, most[0][1]
    for bound, n in sorted(most, key=lambda one: -one[0]):
        if before - bound >= after:
            break
        took = tape.step_ns(_both(gone, rows[n].scale))
        if took < after:
            after, best = took, n
    return after, best


def _most_ns(tape: Tape, row: Row) -> float:
    """What a row's repair can buy at most: all that it takes away. A wait that goes may set free more than it takes."""
    events = tape.events
    if any(events[n].wait is not None for n in row.scale):
        return math.inf
    return sum(events[n].ns * (1 - factor) for n, factor in row.scale.items()) / tape.steps


def _behind(tape: Tape, rows: Iterable[Row]) -> list[Row]:
    """The rows as they stand, each with what it buys once all above it are repaired."""
    before, gone, told = tape.step_ns(), dict[int, float](), list[Row]()
    for row in rows:
        gone = _both(gone, row.scale)
        after = tape.step_ns(gone) if _most_ns(tape, row) / 1e9 >= _LEAST_S else before
        told.append(replace(row, next_s=(before - after) / 1e9))
        before = after
    return told


def _joined(tape: Tape, rows: list[Row], whole: float) -> Row:
    """The rows of one line as one: what it is first of all, and what else."""
    first, *others = sorted(rows, key=lambda row: -max(row.buys_s, row.now_s / 1e3))
    scale = first.scale
    for row in others:
        scale = _both(scale, row.scale)
    now = sum(tape.events[number].ns for number in scale) / tape.all_steps / 1e9
    kinds = tuple(row.kind for row in others)
    said = "; ".join([first.evidence, *(f"{ADVICE[row.kind].what}: {row.evidence}" for row in others)])
    return Row(first.place, first.kind, now, said, scale, (whole - tape.step_ns(scale)) / 1e9, also=kinds)


def everywhere(tape: Tape, card: Device) -> list[Row]:
    """What no single line is to blame for, each row by itself, the largest gain first."""
    whole = tape.step_ns()
    rows = [
        replace(row, buys_s=(whole - tape.step_ns(row.scale)) / 1e9)
        for row in costs.of_no_line(tape, card)
        if row.scale
    ]
    return sorted(rows, key=lambda row: -row.buys_s)


def _both(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """What is left where two repairs are made: of what both shorten, the less."""
    both = dict(one)
    for number, factor in other.items():
        both[number] = min(factor, both.get(number, 1.0))
    return both
