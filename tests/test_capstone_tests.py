"""The tests of lesson 17 for another class, and the run that ties counted steps to trained ones."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.check import probe
from helpers.check.judge import through
from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.lessons.capstone import alone, build, exercises, given, scores, twins
from helpers.lessons.capstone.catalogue import FAULTS, Fault
from helpers.lessons.capstone.parts import AREAS, WHOLE

SEED = "spring"
#: places of faults that lie in a part which is called by itself
ALONE = {"attention", "activation", "layout", "cost", "scale", "clip", "optimizer", "average"}


def test_the_reference_earns_all_points_in_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = build.slow(SEED), build.fast()
    before, best = scores.counted(slow)[0], scores.counted(fast)[0]
    limits = {
        name: best[name] + given.LEFT_OF.get(name, given.LEFT) * (before[name] - best[name]) for name in WHOLE
    }
    found = {"source": slow.source, "limits": {"all": limits}, "sent_bytes": best["sent_bytes"]}
    monkeypatch.setattr(given, "_given", lambda seed: found)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in masters.read(next(path for path in find(["17"]))).cells:
        if cell.kind == "exercise":
            exec(
                "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n" + cell.source,
                names,
            )  # noqa: S102
    with through(lambda request: probe.answer(request, names)):
        for counter in WHOLE:
            exercises.check_repair(counter, scores.Run(side=24, batch=15, parts=3))


@pytest.mark.parametrize("seed", ["", SEED])
def test_a_run_with_true_values_learns_what_the_cpu_does(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, whatever autocast makes of it, and to the last digits: `twins` computes the same operators."""
    monkeypatch.setattr(twins, "OTHERS", 1)  # the mean of equal gradients is the gradient
    run = scores.Run(steps=5, ranks=2)
    for script in (build.slow(seed), build.fast()):
        on_cpu, with_values = scores.trained(script, scores.Run(steps=5)), scores.trained(script, run)
        assert scores.apart(on_cpu, with_values, 1e-4) is None and with_values["work"]


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.place in ALONE], ids=lambda fault: fault.name)
def test_a_fault_changes_no_result_of_a_part(fault: Fault) -> None:
    """Whatever a script is handed out with, its repair gives the same, called by itself."""
    slow, fast = build.with_faults((fault,)), build.fast()
    changed = [name for name in alone.CALLS if slow.part(name) != fast.part(name)]
    assert changed
    for name in changed:
        assert alone.apart(name, alone.results(slow, name), alone.results(fast, name)) is None


def test_failures_send_readers_to_headings_of_the_lesson() -> None:
    text = "\n".join(cell.source for cell in masters.read(next(path for path in find(["17"]))).cells)
    assert set(exercises._LOOK) == {*AREAS, "all"}
    for heading in exercises._LOOK.values():
        assert re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE), heading
