"""The tests of lesson 17 for another class, and the run that ties counted steps to trained ones."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.capstone import build, given, scores
from helpers.check import probe
from helpers.check.judge import through
from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.exercises import capstone as exercises

SEED = "spring"


def test_the_reference_earns_all_points_in_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = build.slow(SEED), build.fast()
    before, best = scores.counted(slow)[0], scores.counted(fast)[0]
    limits = {
        name: best[name] + given.LEFT_OF.get(name, given.LEFT) * (before[name] - best[name])
        for name in build.WHOLE
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
        for counter in build.WHOLE:
            exercises.check_repair(counter, scores.Run(side=24, batch=15, parts=3))


@pytest.mark.parametrize("seed", ["", SEED])
def test_a_run_with_true_values_learns_what_the_cpu_does(seed: str) -> None:
    """In float32, whatever autocast makes of it, and to the last digits: `twins` computes the same operators."""
    run = scores.Run(steps=5, ranks=2)
    for script in (build.slow(seed), build.fast()):
        on_cpu, with_values = scores.trained(script, scores.Run(steps=5)), scores.trained(script, run)
        assert scores.apart(on_cpu, with_values, 1e-4) is None and with_values["work"]
