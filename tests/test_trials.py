"""Claims on trial whose experiments stand in no cell: each one runs by itself, and its row can be shown."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import lesson, lessons

MODULES = lessons.modules("claims")


def trials() -> Iterator[Any]:
    """Of each module its functions that return a row and take nothing; the others get a lesson's own measurements."""
    for name in MODULES:
        module = importlib.import_module(name)
        for one, function in inspect.getmembers(module, inspect.isfunction):
            returns = inspect.signature(function).return_annotation
            own = function.__module__ == module.__name__ and not inspect.signature(function).parameters
            if own and returns in ("Claim", lesson.Claim):
                yield pytest.param(function, id=f"{name.split('.')[-2]}.{one}")


@pytest.mark.parametrize("trial", [*trials()])
def test_a_claim_on_trial_has_its_row(trial: Callable[[], lesson.Claim]) -> None:
    claim = trial()
    assert "≈" not in claim.measured and claim.measured, "what a clock gave is in no verdict"
