"""The ladder: what each repair of a script bought, rung by rung, on the simulated H100."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from helpers.lessons.capstone import scores
from helpers.lessons.capstone.parts import Script
from helpers.plots.ladders import Rung


class Step(NamedTuple):
    """What a step takes, and the most memory that is in use meanwhile."""

    seconds: float
    peak_bytes: int


def step_of(script: Script, gpu: Any = None, size: Mapping[str, int] = scores.LARGE) -> Step:
    """The mean of the counted steps, on that GPU (default: the scoreboard's), at that size."""
    with scores.running(script, gpu, size) as (_, run, seen):
        seen.gpu.reset_peak_memory_stats()
        began = seen.gpu.clock()
        for _ in range(scores.STEPS):
            next(run)
        seen.gpu.synchronize()
        return Step((seen.gpu.clock() - began) / scores.STEPS, seen.gpu.max_memory_allocated())


#: so many repairs have a rung of their own; the others share the last
SINGLE = 8


def climbed(with_some: Callable[[Sequence[str]], Script], names: Sequence[str]) -> list[Rung]:
    """A rung a repair, in order of what it buys alone, upon those before it. It takes about a second a repair.

    with_some(names): the script with these repairs. names: of all of them.
    """
    start = _rung("as it was", with_some(()))
    alone = {name: _rung(name, with_some((name,))).seconds for name in names}
    order = sorted(names, key=alone.__getitem__)
    rungs = [start]
    for i in range(1, min(SINGLE, len(order)) + 1):
        rungs.append(_rung(order[i - 1], with_some(order[:i])))
    if rest := order[SINGLE:]:
        name = rest[0] if len(rest) == 1 else f"{len(rest)} more"
        rungs.append(_rung(name, with_some(order)))
    return rungs


def _rung(name: str, script: Script) -> Rung:
    step = scores.counted(script)[0]  # a whole score would compile, too
    return Rung(name, step["step_s"], step["peak_bytes"])
