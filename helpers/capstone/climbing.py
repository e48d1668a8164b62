"""The ladder: what each repair of a script bought, rung by rung, on the simulated H100."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.capstone.parts import Script
from helpers.capstone.scores import Score, score
from helpers.plots.ladders import Rung


def climbed(
    with_some: Callable[[Sequence[str]], Script], names: Sequence[str], single: int = 8
) -> list[Rung]:
    """A rung a repair, in order of what it buys alone, upon those before it. It takes about a second a repair.

    with_some(names): the script with these repairs. names: of all of them. single: so many have a rung of their own; the
    others share the last.
    """
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
