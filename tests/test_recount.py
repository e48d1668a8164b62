"""The second count: what passed is counted once more by PyTorch's own observers, with the screen out of the way.

That no right answer waits for a person for its sake: tests/test_submissions.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from helpers.check.recount import Seen, differs
from helpers.classroom import engine
from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.classroom.runner import Runner
from helpers.counters import count
from tests.corpus.hostile import IN_FOUR, LOWERED, MADE, UNSEEN_BY

MASTER = masters.read(find(["01"])[0])
#: work done while the counters are told that a tensor is printed
SILENT = """
from helpers.counters.watch import running
def clip(*args):
    out = made(*args)
    running.watches[-1].silent += 1
    fill(out, args)
    running.watches[-1].silent -= 1
    return out
"""
#: work done while the result is read
READ_LATER = """
class Late:
    def __init__(self, out, args):
        self.job = out, args
    def detach(self):
        fill(*self.job)
        return torch.Tensor.detach(self.job[0])
def clip(*args):
    out = made(*args)
    was = torch.Tensor.detach
    def detach(x):
        if x is out:
            torch.Tensor.detach = was
            fill(out, args)
        return was(x)
    torch.Tensor.detach = detach
    return out
"""


#: observers that are ended, and begun anew behind the work
ENDS = """
from torch.autograd.profiler_legacy import profile
from helpers.pytorch.dispatch_mode import Unseen
def clip(*args):
    out, p = made(*args), profile()
    p.entered = True
    try:
        p.__exit__(None, None, None)
    except Exception:
        p = None
    with Unseen():
        fill(out, args)
    if p:
        profile().__enter__()
    return out
"""
#: a range that is named like an operator, and hides those within
RANGE = """
from helpers.pytorch.dispatch_mode import Unseen
def clip(*args):
    out = made(*args)
    with Unseen(), torch.profiler.record_function("aten::copy_"):
        fill(out, args)
    return out
"""
#: the last case comes first, so it is counted once more, and does what it says
KNOWS = """
from helpers.pytorch.dispatch_mode import Unseen
first = []
def clip(*args):
    first.append(args[1])
    if first[0] == 3:
        return in_four(*args)
    out = made(*args)
    with Unseen():
        fill(out, args)
    return out
"""


@pytest.fixture
def open_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "screen", lambda *_: None)


@pytest.mark.usefixtures("open_screen")
@pytest.mark.parametrize("what", [w for w in UNSEEN_BY if w not in ("stdout", "typing evaluates")])
def test_work_that_no_counter_saw_is_seen(runner: Runner, what: str) -> None:
    """Each earned everything once; now it passes, and a person has both counts."""
    score = runner.grade(MASTER, "one_copy", f"import sys, torch\n{UNSEEN_BY[what]}")
    assert score.earned == 5 and score.doubts.keys() == score.verdicts.keys()
    for text in score.doubts.values():
        assert "the counters had aten.copy_ ×1" in text and "PyTorch's own observers aten.copy_ ×2" in text


@pytest.mark.usefixtures("open_screen")
def test_a_private_name_of_anothers_is_refused_before_it_hides_anything(runner: Runner) -> None:
    answer = f"import sys, torch\n{UNSEEN_BY['typing evaluates']}"
    score = runner.grade(MASTER, "one_copy", answer)
    assert score.earned == 0
    assert all("`_evaluate` is a private name of ForwardRef" in v.text for v in score.verdicts.values())


@pytest.mark.usefixtures("open_screen")
@pytest.mark.parametrize("source", [SILENT, READ_LATER], ids=["silent", "late"])
def test_a_watch_told_to_be_silent_and_work_when_a_result_is_read(runner: Runner, source: str) -> None:
    score = runner.grade(MASTER, "one_copy", f"import torch\n{IN_FOUR}{MADE}{source}")
    assert score.doubts or score.earned == 0


@pytest.mark.usefixtures("open_screen")
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ENDS, "counted once more"),
        (RANGE, "PyTorch's own observers aten.copy_ ×2"),
        (KNOWS, "its operators were"),
    ],
    ids=["ends the observers", "range", "knows"],
)
def test_what_knows_of_the_second_count_is_told(runner: Runner, source: str, said: str) -> None:
    score = runner.grade(MASTER, "one_copy", f"import torch\n{IN_FOUR}{MADE}{source}")
    assert score.earned == 5 and any(said in text for text in score.doubts.values()), score


def test_a_second_count_without_form_needs_a_person(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(learner: engine.Learner, request: dict[str, Any]) -> dict[str, Any]:
        return {"again": [3]} if request.get("again") else ask(learner, request)

    ask = engine.Learner.ask
    monkeypatch.setattr(engine.Learner, "ask", odd)
    score = runner.grade(MASTER, "one_copy", None)
    assert score.earned == 5 and "not the agreed form" in score.doubts["one_copy__test"]


def seen_in(work: Callable[[], Any]) -> tuple[dict[str, int], dict[str, int]]:
    with Seen() as seen, count() as counts:
        work()
    return counts.by_operator, dict(seen.operators(counts.by_operator.keys()))


def test_both_see_the_same_of_layers_and_their_backward() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU())
    counted, seen = seen_in(lambda: layers(torch.ones(2, 4)).sum().backward())
    assert {name: n for name, n in seen.items() if name in counted} == counted


def test_printing_waits_for_nobody(runner: Runner) -> None:
    """Left in an answer for finding faults, as people do."""
    master = masters.read(find(["02"])[0])
    cell = next(c for c in master.cells if c.kind == "exercise" and c.exercise == "per_sample")
    name = next(e for e in master.exercises if e.id == "per_sample").checks[0]
    source = f"{cell.source}\nwas = {name}\ndef {name}(*a, **k):\n    print(torch.rand(5) * 1e9)\n    return was(*a, **k)"
    assert runner.grade(master, "per_sample", f"import torch\n{source}").doubts == {}


def test_counts_that_are_no_sums_of_their_parts_are_told() -> None:
    with count() as counts:
        torch.ones(3) * 2
    report = {"counts": counts.as_dict()}
    assert differs([report], []) == ""
    report["counts"]["bytes_allocated"] = 0
    assert "no sums of their parts" in differs([report], [])


def test_a_lie_is_flagged_too(runner: Runner, open_screen: None) -> None:
    lies = f"import torch\n{LOWERED['a property on a class that was handed over']}{IN_FOUR}clip = in_four"
    score = runner.grade(MASTER, "one_copy", lies)
    assert score.earned == 0 or score.doubts
