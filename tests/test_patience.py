"""The progress bar: every item once, a widget only where somebody looks, and none left behind."""

import sys

import ipykernel
import ipywidgets
import pytest

from helpers.lesson import patience


def test_outside_of_a_notebook_there_is_no_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ipykernel)
    monkeypatch.setattr(ipywidgets, "IntProgress", None)  # would fail where it is called
    for quiet in ("COURSE_BUILD", "NBGRADER_EXECUTION"):
        with monkeypatch.context() as only:
            only.setenv(quiet, "1")
            assert list(patience.bar([3, 1], "counting")) == [3, 1]
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert list(patience.bar([3, 1], "counting")) == [3, 1]


def test_the_bar_counts_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ipykernel)
    for quiet in ("COURSE_BUILD", "NBGRADER_EXECUTION"):
        monkeypatch.delenv(quiet, raising=False)
    shown: list[ipywidgets.IntProgress] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    counted = [(item, shown[0].value, shown[0].max) for item in patience.bar("ab", "counting")]
    assert counted == [("a", 0, 2), ("b", 1, 2)] and shown[0].description == "counting"
    assert shown[0].comm is None  # closed
    with pytest.raises(ZeroDivisionError):
        for _ in patience.bar("ab", "counting"):
            1 / 0  # noqa: B018
    assert shown[1].comm is None
