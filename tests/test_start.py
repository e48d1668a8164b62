"""The start page: roads, where a learner is, what a file of one's own needs; and Validate's words."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers import progress, start
from helpers.classroom import build, validating

INDEX = progress.index()


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for variable in ("COURSE_BUILD", "NBGRADER_EXECUTION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(progress, "_current", None)


def test_the_page_has_every_lesson_and_a_road_for_every_time() -> None:
    cells = start.page(INDEX)
    text = "\n".join(source for _, source in cells)
    assert all(
        f"({name}/{name}.ipynb)" in text and about["question"] in text for name, about in INDEX.items()
    )
    for words in (
        "**one\N{NO-BREAK SPACE}hour**",
        "**a\N{NO-BREAK SPACE}day**",
        "18_sources_on_trial.ipynb), one or two a week",
    ):
        assert words in text
    assert build.start_page(INDEX).cells[1].source == "from helpers import start\n\nstart.last()"


def test_lessons_that_come_later_and_lessons_that_are_left_out() -> None:
    more = dict(INDEX) | {"19_attention": INDEX["11_torch_compile"] | {"title": "19 · Attention"}}
    text = start.page(more)[-1][1]
    assert text.index("optional, after 11") < text.index("19 · Attention")
    assert "optional" not in start.page({n: a for n, a in INDEX.items() if n < "19"})[-1][1]
    few = {name: INDEX[name] for name in list(INDEX)[1:3]}  # as a teacher hands out
    first = start.page(few)[0][1]
    assert "| you have |" not in first and "00_measure_first" not in first


def test_a_road_goes_over_what_each_lesson_stands_on() -> None:
    """A lesson's first cell names those before it; a day's road has them earlier."""
    numbers, _ = start.ROADS["a day"]
    before = {"03": {"00"}, "02": {"00", "01"}, "06": {"00", "01", "02"}, "10": {"00", "01", "02", "06"}}
    for place, number in enumerate(numbers):
        assert before.get(number, set()) <= set(numbers[:place])


def test_where_a_learner_is(learner: None) -> None:
    here = start.last()
    assert "not begun" in here.says and here.name == "00_measure_first" and here.solved is None
    names = list(INDEX)
    for name in (names[3], names[1]):
        progress.begin(name)
        for exercise in INDEX[name]["exercises"]:
            for check in exercise["checks"]:
                progress.record(check, passed=True)
    here = start.last()
    assert here.name == names[2] and f"Next: {INDEX[names[2]]['title']}" in here.says
    assert here.solved is not None and [row[0][:2] for row in here.solved.rows] == ["01", "03"]
    progress.begin(names[3])
    exercise = INDEX[names[3]]["exercises"][1]
    progress.record(exercise["checks"][0], passed=None)
    here = start.last()
    assert here.name == names[3] and f"“{exercise['title']}” (not written yet)" in here.says
    assert f'href="{names[3]}/{names[3]}.ipynb"' in here._repr_html_()


def test_what_a_file_needs(tmp_path: Path) -> None:
    from helpers import simulate
    from helpers.simulator.written import kineto

    assert not start.mine("").lessons
    with pytest.raises(FileNotFoundError, match="check the path"):
        start.mine(tmp_path / "none.json")
    with simulate("H100") as gpu:
        import torch

        x = torch.ones(64, 64, device=gpu.device)
        for _ in range(50):
            x = x @ x
            x.sum().item()
    kept = tmp_path / "trace.json"
    kineto.write(gpu.trace(), kept)
    needs = start.mine(kept)
    assert needs.lessons[0] == "03_gpu_queue" and needs.says.startswith("CPU-bound")
    assert '<a href="03_gpu_queue/03_gpu_queue.ipynb">03 · ' in needs._repr_html_()


def test_a_script_is_run_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run is `python -m helpers run`; tests/test_any_script.py runs it."""
    script, asked = tmp_path / "train.py", []
    script.touch()
    said = "its own line\n\ntrain.py · simulated (H100) · 20 steps\n- waits: … (lesson 03)\n- copies: … (lesson 04)\n"

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        asked.append((command[1:], how["cwd"]))
        return subprocess.CompletedProcess(
            command, len(asked) - 1, said, "train.py: line 1: no step was taken"
        )

    monkeypatch.setattr(subprocess, "run", run)
    needs = start.mine(script)
    assert asked == [(["-m", "helpers", "run", "train.py"], tmp_path)]
    assert needs.says.startswith("train.py · simulated (H100)")
    assert needs.lessons == ["03_gpu_queue", "04_data_loading"]
    with pytest.raises(ValueError, match="no step was taken"):
        start.mine(script)


def test_validate_begins_with_the_sum() -> None:
    tests = [f"# Test of exercise 1.{n}, {name}: run this cell.\ncheck()" for n, name in enumerate("abc", 1)]
    failed = [
        {
            "source": tests[1],
            "error": "<b>",
            "raw_error": "✗ b(3): returned 4, wanted 6\n  look again at: Round 1",
        },
        {"source": tests[2], "error": "<b>", "raw_error": "✗ c(): not written yet. Replace …"},
    ]
    total, only = validating.told(["x = 1", *tests], failed)
    assert total["source"].splitlines() == [
        "1 of 3 exercises solved", "", "✓ 1.1, a", "✗ 1.2, b: b(3): returned 4, wanted 6", "✗ 1.3, c: not written yet",
    ]  # fmt: skip
    assert only == failed[0] | {"source": "1.2, b"}
    assert validating.told(["x = 1"], failed) == failed, "of a notebook that is none of ours"
    assert validating.TEST.match(build.TEST_NOTE.format(number="1.1", title="a"))
