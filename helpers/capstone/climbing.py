"""The ladder: what each repair of a script bought, rung by rung, on the simulated H100."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers import plots
from helpers.capstone.parts import Script
from helpers.capstone.scores import SIMULATED, Score, score
from helpers.plots.ladders import Rung


def rungs(before: Script, after: Script, single: int = 8) -> list[Rung]:
    """Each function that `after` replaces, in order of what it buys alone, upon those before it.

    single: so many have a rung of their own; the others share the last.
    """
    changed = {name: part for name, part in after.replaced if dict(before.replaced).get(name) is not part}
    return climbed(
        lambda names: before.replace(**{name: changed[name] for name in names}), list(changed), single
    )


def climbed(
    with_some: Callable[[Sequence[str]], Script], names: Sequence[str], single: int = 8
) -> list[Rung]:
    """with_some(names): the script with these repairs. names: of all of them."""
    start = score(with_some(()))
    alone = {name: score(with_some((name,))).step_s for name in names}
    order = sorted(names, key=alone.__getitem__)
    found = [_rung("as it was", start)]
    for i in range(1, min(single, len(order)) + 1):
        found.append(_rung(order[i - 1], score(with_some(order[:i]))))
    if rest := order[single:]:
        said = rest[0] if len(rest) == 1 else f"{len(rest)} more"
        found.append(_rung(said, score(with_some(order))))
    return found


def _rung(name: str, scored: Score) -> Rung:
    return Rung(name, scored.step_s, scored.peak_bytes)


def ladder(before: Script, after: Script, single: int = 8) -> plots.Picture:
    """The picture of :func:`rungs`. It takes about a second a function that was replaced."""
    return plots.ladder(
        rungs(before, after, single), evidence=SIMULATED, title="The script, repair by repair"
    )
