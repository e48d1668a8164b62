"""The reference repair: every rung trains alike, the kept figures are those of today's programs, a repair pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers import reference_repair, simulate
from helpers.recordings import registry, running
from helpers.reference_repair import inductor, shown
from helpers.reference_repair.models import TASKS, rungs_of
from helpers.reference_repair.steps import one

#: how far the losses of a rung may be from the plain step's, as a share: fp32, and with bf16
TOLERANCE = {False: 1e-4, True: 1e-2}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `reduced`, and smaller: these tests read no clock."""
    sizes = dict(layers=2, width=64, heads=2, vocabulary=512, context=32, batch=2)
    monkeypatch.setattr("helpers.reference_repair.models.Task.reduced", lambda task: replace(task, **sizes))


@pytest.mark.parametrize("name", shown.NAMES)
def test_every_rung_trains_as_the_plain_step_does(name: str) -> None:
    plain = reference_repair.losses(name, 0)
    for i, rung in enumerate(rungs_of(TASKS[name])):
        if not rung.way.compiled or rung.way.graphed:  # compiled: in tests/long/reference_repair.py
            same = pytest.approx(plain, rel=TOLERANCE[rung.way.bf16])
            assert reference_repair.losses(name, i) == same, rung.says


def test_the_kept_figures_are_those_of_these_programs() -> None:
    assert shown.kept()["from"] == shown.digest(), "run python -m helpers.reference_repair.shown"
    task = TASKS["gpt2"]
    plain, *_, last = rungs_of(task)
    rows = {row["rung"]: row for row in shown.kept()["gpt2"]}
    with simulate(shown.CARD) as gpu:
        found = one(task, plain.way, gpu)
    assert found["seconds"] == pytest.approx(rows[plain.says]["seconds"], rel=1e-6)
    assert found["peak_bytes"] == rows[plain.says]["peak_bytes"]


@pytest.mark.parametrize("name", shown.NAMES)
def test_the_repair_is_past_what_the_sources_promise(name: str) -> None:
    first, *_, last = reference_repair.scored(name)
    assert first.step_s >= 10 * last.step_s and last.peak_bytes <= first.peak_bytes / 2


def test_the_experiment_records_every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dry run of the recorder does; what Inductor wrote has fewer kernels, forward and backward, a graph one launch."""
    task = TASKS["bert"].reduced()
    monkeypatch.setitem(TASKS, "bert", task)
    given = running.run_simulated(registry.find("17/bert"), "H100")
    assert running.pack_all(given)
    assert [row["rung"] for row in given["table"]] == [rung.says for rung in rungs_of(task)]
    *_, before, compiled, graphed = (rung.way for rung in rungs_of(task))
    ran = []
    for way in (before, compiled, graphed):
        with simulate("H100") as gpu:
            one(task, way, gpu)
        ran.append(gpu)
    assert len(ran[1].kernels) < len(ran[0].kernels) and ran[2].launches < ran[1].launches
    block, last, leave = parts = inductor.parts_of(task, inductor.reduced_way(compiled))
    assert all(len(part.graphs) == 2 for part in parts) and last is not block
    names = {kernel.name for kernel in ran[1].kernels}
    assert {
        work.name for p in parts for g in p.graphs for works in g.works.values() for work in works
    } <= names


def test_the_table_says_what_was_promised_and_how_far_it_may_be_off() -> None:
    said = repr(reference_repair.table("bert"))
    assert "source says" in said and "3.75×" in said and "4.00×" in said and "64%" in said
    assert "fp32 steps" in said and "compiled steps" in said and "[simulated (H100)" in said
    assert "GPT-2" in reference_repair.ladders().alt and reference_repair.ladder("gpt2").alt
    with pytest.raises(KeyError, match="there are bert, gpt2"):
        reference_repair.scored("t5")
