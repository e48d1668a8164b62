"""By hand: the capstone for ten seeds, and every one of its faults. About ten minutes on one core.

python -m pytest tests/long/capstone.py
python -m pytest tests/long/capstone.py -k "spring and same_each_time"     # on busy cores: beside `yes > /dev/null`
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers.lessons.capstone import build, given, scores
from helpers.lessons.capstone.catalogue import FAULTS, Fault
from tests import test_capstone as short


@pytest.mark.parametrize("seed", short.SEEDS)
def test_a_seed(seed: str) -> None:
    slow, fast = build.slow(seed), build.fast()
    for run in (*scores.BOARD_RUNS, scores.Run(side=24, batch=15, parts=3, seed=5)):
        assert scores.apart(scores.trained(fast, run), scores.trained(slow, run)) is None
    rounded = scores.Run(autocast=True)
    odd = scores.apart(scores.trained(fast, rounded), scores.trained(slow, rounded), scores.ROUNDED)
    assert odd is None, odd
    limits = given.made(seed)["limits"]
    short.check_whole(seed, limits)
    short.check_alone(seed, limits)
    short.check_left(seed, limits)
    assert not (said := short.clean(slow.source)), said
    after = [scores.score(build.repaired(seed, area)).as_dict() for area in build.GRADED]
    before = scores.score(slow).as_dict()
    for best, counters in zip(after, build.GRADED.values(), strict=True):
        for name in counters:
            one_less = name in given.LEFT_OF and before[name] - best[name] >= 1
            assert best[name] <= 0.9 * before[name] or one_less, name


def counted(seed: str) -> list[dict[str, Any]]:
    for cached in (scores.score, scores.counted, scores.trained):
        cached.cache_clear()
    return [scores.score(one).as_dict() for one in (build.slow(seed), build.repaired(seed, "data", "model"))]


@pytest.mark.parametrize("seed", short.SEEDS)
def test_counts_are_the_same_each_time(seed: str) -> None:
    assert counted(seed) == counted(seed)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_alone(fault: Fault) -> None:
    """It raises the counters that it names, it learns the same, and its text is clean."""
    fast, slow = build.fast(), build.with_faults((fault,))
    for run in scores.BOARD_RUNS:
        assert scores.apart(scores.trained(fast, run), scores.trained(slow, run)) is None
    before, after = scores.score(fast).as_dict(), scores.score(slow).as_dict()
    for name in (fault.counter, *fault.also):
        assert after[name] > before[name], name
    assert not (said := short.clean(slow.source)), said
