"""The ladder: what each repair of a script bought, rung by rung, on the simulated H100."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.lessons.capstone.parts import Script
from helpers.lessons.capstone.scores import counted
from helpers.plots.ladders import Rung


def climbed(
    with_some: Callable[[Sequence[str]], Script], names: Sequence[str], single: int = 8
) -> list[Rung]:
    """A rung a repair, in order of what it buys alone, upon those before it. It takes about a second a repair.

    with_some(names): the script with these repairs. names: of all of them. single: so many have a rung of their own; the
    others share the last.
    """
    start = _rung("as it was", with_some(()))
    alone = {name: _rung(name, with_some((name,))).seconds for name in names}
    order = sorted(names, key=alone.__getitem__)
    found = [start]
    for i in range(1, min(single, len(order)) + 1):
        found.append(_rung(order[i - 1], with_some(order[:i])))
    if rest := order[single:]:
        said = rest[0] if len(rest) == 1 else f"{len(rest)} more"
        found.append(_rung(said, with_some(order)))
    return found


def _rung(name: str, script: Script) -> Rung:
    found = counted(script)[0]  # a whole score would compile, too
    return Rung(name, found["step_s"], found["peak_bytes"])
