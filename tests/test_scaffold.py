"""What `make exercise` and `make lesson` lay down: it lints, builds and is graded as it says; bad input leaves nothing behind."""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.classroom import build, scaffold
from helpers.classroom.settings import ROOT

STREAMS = "05_streams_and_double_buffering"
#: prints for each answer of the course in which it runs: its name, its text, what it earns, of how much
GRADE = """
import json
from helpers.classroom import build, master as masters
from helpers.classroom.runner import Runner
from helpers.classroom.settings import ROOT
with Runner(bare=True) as runner:
    for path in build.find([]):
        master = masters.read(path)
        for answer in sorted((ROOT / "tests/submissions" / path.stem).glob("*/*.py")):
            score = runner.grade(master, answer.parent.name, answer.read_text(encoding="utf-8"))
            print(json.dumps([answer.stem, answer.read_text(encoding="utf-8"), score.earned, score.possible]))
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with one lesson, in which an exercise and a lesson were laid down."""
    copy = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "helpers", copy / "helpers")
    shutil.copytree(ROOT / "etc", copy / "etc")
    (copy / "docs").mkdir()
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "solutions" / STREAMS).mkdir(parents=True)
    shutil.copy(build.find(["05"])[0], copy / "solutions" / STREAMS)
    for lesson, name in (("05", "windows"), ("new", "attention")):
        made = run(copy, "-m", "helpers.classroom.scaffold", lesson, name)
        assert "README.md" in made and "make build" in made
    return copy


def run(course: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=course,
        env=os.environ | {"PYTHONPATH": str(course), "JUPYTER_CONFIG_PATH": str(course / "etc" / "jupyter")},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_answers_earn_what_they_say(course: Path) -> None:
    answers = [json.loads(line) for line in run(course, "-c", GRADE).splitlines()]
    assert len(answers) == 10
    for name, text, earned, possible in answers:
        said = re.match(r"# .*: earns (\d+)\n", text)
        assert (said is None) == name.startswith("right_")
        assert earned == (int(said[1]) if said else possible), (name, text)
        assert possible == 3 and earned < 3 or not said


@pytest.mark.slow
def test_a_lesson_builds(course: Path) -> None:
    said = run(course, "-m", "helpers.classroom.build", "06")
    assert "06_attention: built" in said
    learner = (course / "notebooks/06_attention/06_attention.ipynb").read_text(encoding="utf-8")
    assert "def total(" in learner and "return x.sum()" not in learner
    about = json.loads((course / "helpers/lessons.json").read_text(encoding="utf-8"))["06_attention"]
    assert [exercise["number"] for exercise in about["exercises"]] == ["6.1"]


def test_it_is_as_the_project_lints(course: Path) -> None:
    run(course, "-m", "ruff", "check", "--no-cache", ".")
    run(course, "-m", "ruff", "format", "--check", "--no-cache", ".")
    alone = ["--follow-imports=skip", "--ignore-missing-imports", f"--cache-dir={course / '.mypy_cache'}"]
    made = [str(p) for p in (course / "helpers/lessons").glob("*/*.py") if p.parent.name == "attention"]
    made += [f"helpers/lessons/{STREAMS[3:]}/exercises.py"]
    run(course, "-m", "mypy", *alone, *made)


@pytest.mark.parametrize("path", build.find([]), ids=lambda path: path.stem[:2])
def test_every_lesson_takes_an_exercise_and_keeps_what_it_has(path: Path) -> None:
    files, _ = scaffold.exercise(path.stem[:2], "an_exercise_of_this_name")
    before, after = path.read_text(encoding="utf-8"), files[path]
    lost = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith("- ")]
    assert not [line for line in lost if line.strip("- #")]
    place = after.index('# %% exercise="an_exercise_of_this_name"')
    assert "# ## Recap" not in after[:place] and "# ## Recap" in after[place:]
    texts = scaffold.exercises_of(path.stem)
    assert "def check_an_exercise_of_this_name(" in files[texts]
    assert len(files) == 7, "the master, the room's exercises, five answers"


@pytest.mark.parametrize(
    ("lesson", "name", "why"),
    [
        ("55", "windows", "there is no lesson '55'; there are 00_"),
        ("0", "windows", "there is no lesson '0'"),
        ("05", "two words", "'two words' cannot be the name"),
        ("05", "Windows", "'Windows' cannot be"),
        ("05", "", "'' cannot be the name"),
        ("05", "class", "'class' cannot be"),
        ("05", "sum", "'sum' cannot be the name: Python has it"),
        ("05", "x" * 41, "it is too long"),
        ("05", "prefetch", "'prefetch' is taken in 05_streams"),
        ("05", "two_queues", "'two_queues' is taken in 05_streams"),
        ("05", "batches", "Batches is there already"),
        ("05", "torch", "'torch' is taken in 05_streams"),
    ],
)
def test_what_cannot_be_an_exercise(
    lesson: str, name: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaffold, "write", lambda files: pytest.fail("something is written"))
    assert scaffold.main([lesson, name]) == 2
    said = capsys.readouterr().err
    assert said.startswith("make exercise: ") and why in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [("optimizers", "there is a lesson 'optimizers' already"), ("9to5", "'9to5' cannot be the name")],
)
def test_what_cannot_be_a_lesson(name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaffold.main(["new", name]) == 2
    assert capsys.readouterr().err.startswith(f"make lesson: {why}")
