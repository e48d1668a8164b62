"""By hand, two minutes: compiled rungs train as the plain step does, the dry run with what Inductor writes now.

python -m pytest -n 0 tests/long/reference_repair.py
python -m tests.long.reference_repair     # keep what Inductor writes of the small model now, after a new torch
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import simulate
from helpers.lessons.capstone import reference_repair
from helpers.lessons.capstone.reference_repair import inductor, on_cpu
from helpers.lessons.capstone.reference_repair.models import TASKS, rungs_of
from helpers.lessons.capstone.reference_repair.steps import one
from helpers.recordings import registry, running

WRITTEN = Path(__file__).with_name("inductor_wrote.json")
SMALL = dict(layers=2, width=64, heads=2, vocabulary=512, context=32, batch=2)


def written_now() -> str:
    """What Inductor writes of the small decoder's block and of its end: outputs, then text, takes and works of its graphs."""
    task = replace(TASKS["gpt2"], **SMALL)
    way = next(rung.way for rung in rungs_of(task) if rung.way.compiled)
    block, _, leave = inductor.parts_of(task, inductor.reduced_way(way))
    found = []
    for part in (block, leave):
        graphs = []
        for graph in part.graphs:
            lines = [line for line in graph.text.splitlines() if not line.strip().startswith("#")]
            takes = [[shape, str(dtype).removeprefix("torch.")] for shape, dtype in graph.takes]
            works = {name: [work._asdict() for work in some] for name, some in graph.works.items()}
            graphs.append(["\n".join(lines), takes, works])
        found.append([part.outputs, *graphs])
    return json.dumps(found, indent=1) + "\n"


def test_what_the_suite_takes_for_inductors_is() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == written_now()


@pytest.mark.parametrize("name", TASKS)
def test_compiled_rungs_train_as_the_plain_step_does(name: str) -> None:
    plain, *others = on_cpu.rungs_here(name)
    same = pytest.approx(reference_repair.losses(name, plain), rel=1e-2)
    for rung in others:
        if rung.way.compiled:
            assert reference_repair.losses(name, rung) == same, rung.says


def test_a_dry_run_with_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder's last block is another than the rest; its kernels are those that Inductor wrote."""
    task = replace(TASKS["bert"], **SMALL)
    monkeypatch.setitem(TASKS, "bert", task)
    given = running.run_simulated(registry.find("17/bert"), "H100")
    assert [row["rung"] for row in given["table"]] == [rung.says for rung in rungs_of(task)]
    compiled = next(rung.way for rung in rungs_of(task) if rung.way.compiled)
    with simulate("H100") as gpu:
        one(task, compiled, gpu)
    block, last, _ = parts = inductor.parts_of(task, inductor.reduced_way(compiled))
    assert all(len(part.graphs) == 2 for part in parts) and last is not block
    works = [works for part in parts for graph in part.graphs for works in graph.works.values()]
    assert {work.name for some in works for work in some} <= {kernel.name for kernel in gpu.kernels}


if __name__ == "__main__":
    WRITTEN.write_text(written_now(), encoding="utf-8")
