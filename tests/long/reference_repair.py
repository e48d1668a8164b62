"""By hand: the compiled rungs train as the plain step does, and the lecture's compiled steps are what is kept. A minute."""

from __future__ import annotations

import pytest

from helpers import reference_repair
from helpers.reference_repair import shown
from helpers.reference_repair.models import TASKS, rungs_of


@pytest.mark.parametrize("name", shown.NAMES)
def test_a_compiled_rung_trains_as_the_plain_step_does(name: str) -> None:
    which = next(i for i, rung in enumerate(rungs_of(TASKS[name])) if rung.way.compiled)
    plain = reference_repair.losses(name, 0)
    assert reference_repair.losses(name, which) == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("what", shown.LECTURE)
def test_the_kept_errors_of_compiled_steps_are_todays(what: str) -> None:
    assert shown.lecture(what) == pytest.approx(shown.kept()["lecture"][what], abs=0.1)
