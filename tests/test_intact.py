"""Whatever a submission changes of the course's own code is told: by words of memory where those tell, else by a look at all."""

import json
import sys

import pytest
import torch

from helpers import check
from helpers.check import compare, intact
from helpers.counters import Counts, count


def _replaced() -> int:
    return 0


CHANGES: dict[str, tuple[object, str, object]] = {
    "`torch.Tensor.stride`": (torch.Tensor, "stride", None),
    "`helpers.counters.counts.Counts.__reduce__`": (Counts, "__reduce__", None),
    "`helpers.check.compare.difference`": (compare, "difference", _replaced),
    "`json.dumps`": (json, "dumps", _replaced),
    "the inside of `helpers.check.compare.brief`": (compare.brief, "__code__", _replaced.__code__),
    "the inside of `helpers.check.compare.difference`": (compare.difference, "__defaults__", (None,)),
    "the inside of `helpers.check.judge.case`": (check.case, "__kwdefaults__", {}),
}


@pytest.mark.parametrize("words", [True, False], ids=["words", "looks"])
@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_told(monkeypatch: pytest.MonkeyPatch, name: str, words: bool) -> None:
    before = intact.Intact()
    if not words:
        before._words = None
    count(lambda: (torch.ones(3) * 2).tolist())  # puts stand-ins in torch's place, and takes them away
    assert before.changed() == ""
    monkeypatch.setattr(*CHANGES[name])
    told = before.changed()
    monkeypatch.undo()
    assert told == name
    assert before.changed() == ""


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="a dict's version is gone there: each look is the slow one"
)
def test_words_tell_on_this_python() -> None:
    """CPython 3.11 to 3.13; elsewhere each look costs twenty times as much, and nothing else."""
    assert intact._words_tell()
