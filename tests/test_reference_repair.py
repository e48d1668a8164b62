"""The reference repair: every rung trains alike, the kept figures are those of today's programs, a repair pays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import simulate
from helpers.lessons.capstone import reference_repair
from helpers.lessons.capstone.reference_repair import inductor, on_cpu, shown, steps
from helpers.lessons.capstone.reference_repair.models import TASKS, Task, Way, rungs_of
from helpers.recordings import registry, running
from helpers.simulator.cost.roofline import Work

#: what Inductor wrote of the small decoder's block and end, made by tests/long/reference_repair.py
WRITTEN = Path(__file__).with_name("long") / "inductor_wrote.json"
SMALL = dict(layers=2, width=64, heads=2, vocabulary=512, context=32, batch=2)
#: how far the losses of a rung may be from the plain step's, as a share: fp32, and with bf16
TOLERANCE = {False: 1e-4, True: 1e-2}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `reduced`, and smaller: these tests read no clock."""
    monkeypatch.setattr(
        "helpers.lessons.capstone.reference_repair.models.Task.reduced", lambda task: replace(task, **SMALL)
    )


def written_once() -> list[inductor.Written]:
    """As `inductor.parts_of`: a block, the last one, and what comes behind it."""
    found = []
    for outputs, *graphs in json.loads(WRITTEN.read_text(encoding="utf-8")):
        part = inductor.Written(outputs=outputs)
        for text, takes, works in graphs:
            sizes = [(tuple(shape), getattr(torch, dtype)) for shape, dtype in takes]
            kernels = {name: [Work(**work) for work in some] for name, some in works.items()}
            part.graphs.append(inductor.Graph(text, sizes, kernels))
        found.append(part)
    block, leave = found
    return [block, block, leave]


@pytest.mark.parametrize("name", TASKS)
def test_every_rung_trains_as_the_plain_step_does(name: str) -> None:
    first, *others = rungs_of(TASKS[name])
    plain = reference_repair.losses(name, first)
    for rung in others:
        if not rung.way.compiled or rung.way.graphed:  # compiled: in tests/long/reference_repair.py
            same = pytest.approx(plain, rel=TOLERANCE[rung.way.bf16])
            assert reference_repair.losses(name, rung) == same, rung.says


def test_the_kept_figures_are_those_of_these_programs() -> None:
    assert shown.kept()["from"] == shown.digest(), (
        "run python -m helpers.lessons.capstone.reference_repair.shown"
    )
    plain = rungs_of(TASKS["gpt2"])[0]
    rows = {row["rung"]: row for row in shown.kept()["gpt2"]}
    with simulate(shown.CARD) as gpu:
        found = steps.one(TASKS["gpt2"], plain.way, gpu)
    assert found["seconds"] == pytest.approx(rows[plain.says]["seconds"], rel=1e-6)
    assert found["peak_bytes"] == rows[plain.says]["peak_bytes"]


@pytest.mark.parametrize("name", shown.NAMES)
def test_the_repair_is_past_what_the_sources_promise(name: str) -> None:
    first, *_, last = reference_repair.scored(name)
    times = max(times for _, times, _ in shown.HEADLINES)
    assert first.seconds >= times * last.seconds and last.nbytes <= first.nbytes / 2


@pytest.mark.parametrize("name", shown.SIZES)
def test_the_capstones_kept_figures_are_those_of_its_script_today(name: str) -> None:
    for now, kept in zip(shown.of_the_script(name), shown.kept()[name], strict=True):
        assert now.pop("rung") == kept.pop("rung") and now == pytest.approx(kept, rel=1e-6)


def test_the_experiment_records_every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dry run of the recorder does; what Inductor wrote has fewer kernels, forward and backward, a graph one launch.

    It takes Inductor six seconds to write it: here it is from `WRITTEN`, which tests/long/reference_repair.py checks.
    """
    task, one, ran = TASKS["gpt2"].reduced(), steps.one, list[tuple[set[str], int, int]]()
    monkeypatch.setitem(TASKS, "gpt2", task)
    monkeypatch.setattr(inductor, "parts_of", lambda task, way: written_once())

    def counted(task: Task, way: Way, gpu: Any) -> dict[str, Any]:
        kernels, launches = len(gpu.kernels), gpu.launches
        found = one(task, way, gpu)
        new = gpu.kernels[kernels:]
        ran.append(({kernel.name for kernel in new}, len(new), gpu.launches - launches))
        return found

    monkeypatch.setattr(steps, "one", counted)
    given = running.run_simulated(registry.find("17/gpt2"), "H100")
    assert running.pack_all(given)
    assert [row["rung"] for row in given["table"]] == [rung.says for rung in rungs_of(task)]
    (_, before, _), (names, kernels, launches), (_, _, graphed) = ran[-3:]
    assert kernels < before and graphed < launches
    works = [works for part in written_once() for graph in part.graphs for works in graph.works.values()]
    assert {work.name for some in works for work in some} <= names


@pytest.mark.parametrize(("name", "times"), [("gpt2", 3.0), ("bert", 2.0), ("capstone", 1.2)])
def test_what_two_cores_gave_is_kept(name: str, times: float) -> None:
    """It was measured once: no clock is read here."""
    kept = json.loads(on_cpu.KEPT.read_text(encoding="utf-8"))[name]
    rungs = (
        list(on_cpu.by_area("")[1]) if name == "capstone" else [r.says for r in on_cpu.rungs_here(name)[1:]]
    )
    assert [row["rung"] for row in kept["rungs"]] == rungs and kept["from"] == on_cpu.digest(name)
    assert f"[recorded ({kept['processor']}, 20" in repr(reference_repair.measured_once(name))
    last = kept["rungs"][-1]
    assert last["low"] >= times


def test_a_recorded_ladder_stands_beside_its_simulation() -> None:
    table, bert = reference_repair.table("bert"), reference_repair.scored("bert")
    assert table.evidence.startswith("recorded (H100, ") and table.evidence.endswith(" · simulated (H100)")
    assert [rung.name for rung in bert] == [rung.name for rung in reference_repair.simulated("bert")]
    assert "simulated: time" in table.columns and "ms (" in table.rows[0][-2]
    assert "GPT-2" in reference_repair.ladders().alt
    assert {"recorded", "simulated"} == {
        label.partition(" ")[0] for label in reference_repair.ladders().evidence.split(" · ")
    }
    with pytest.raises(KeyError, match="there are bert, gpt2, capstone"):
        reference_repair.scored("t5")
