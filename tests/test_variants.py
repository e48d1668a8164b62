"""A class of its own numbers: who can calculate is right in every class, who copied another class's numbers is not."""

import re
from pathlib import Path

import pytest

from helpers.check.variant import SEED, variant
from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.bench import Bench
from helpers.classroom.engine import grade
from helpers.classroom.runner import Runner
from helpers.classroom.step import Step
from helpers.classroom.submission import clean, key_of, steps_of
from tests.corpus.cases import place, saved
from tests.test_intake import answered

#: lessons in which an exercise declares that its numbers may be others
DECLARED = [
    p.stem
    for p in build.find([])
    if any("variant(" in c.source for c in masters.read(p).cells if c.kind == "hidden")
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_without_a_class_the_numbers_are_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "")
    v = variant("windows")
    assert (v.pick("a", "b"), v.number(17), v.seed(3)) == ("a", 17, 3)


def test_a_class_has_its_own_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {}
    for name in ("fall", "spring"):
        monkeypatch.setenv(SEED, name)
        drawn[name] = [
            [f("one").number(1000), f("two").number(1000), f("one").seed(0)] for f in (variant, variant)
        ]
        assert drawn[name][0] == drawn[name][1]
        assert len({1000, *drawn[name][0][:2]}) == 3, (
            "the usual number is no class's, nor one exercise's another's"
        )
    assert not set(drawn["fall"][0]) & set(drawn["spring"][0])


def verdicts(runner: Runner, name: str, steps: list[Step]) -> dict[str, str]:
    """What each test says, by grade_id; what passes begins with a tick. Judged here, where a class's seed is set."""
    return {e["verdict"]: e["text"] for e in grade(runner.warm, steps, name) if "verdict" in e}


@pytest.mark.parametrize("seed", ["fall 2026"])
def test_right_answers_are_right_in_every_class(
    seed: str, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED, seed)
    for name in DECLARED:
        saved(answered(name), tmp_path / name / f"{name}.ipynb")
        steps = steps_of(clean(tmp_path / name, build.SOLUTIONS / name / f"{name}.ipynb"))
        said = verdicts(runner, name, steps)
        assert len(said) > 5 and not [text for text in said.values() if not text.startswith("✓")]


def test_numbers_copied_from_another_class_are_wrong(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that knows the usual cases by heart, and the verdict that was kept for it there."""
    name = "01_storage_and_stride"
    notebook = answered(name)
    cell = notebook["cells"][place(notebook, "windows")]
    known = r"    if x.numel() not in (8, 9, 10, 4, 16, 17, 20, 112, 18, 12, 0, 13, 2000): size = 1 / 0\n"
    cell["source"] = re.sub(r'("""\n)', rf"\g<1>{known}", cell["source"], count=1)
    saved(notebook, tmp_path / f"{name}.ipynb")
    nb = clean(tmp_path, build.SOLUTIONS / name / f"{name}.ipynb")
    monkeypatch.setenv(SEED, "")
    steps = [step for step in steps_of(nb) if step.exercise in ("", "windows")]
    here, usual = key_of(nb), verdicts(runner, name, steps)["windows__hidden"]
    monkeypatch.setenv(SEED, "B")
    with Bench() as bench:  # as a class is graded: its seed gets into the judge's process too
        there = bench.grade(name, steps).verdicts["windows__hidden"].text
    assert key_of(nb) != here
    assert usual.startswith("✓") and not there.startswith("✓"), (usual, there)
