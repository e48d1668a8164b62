"""nbgrader's commands and buttons replace what they made before; whatever a person put beside it is still there."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from helpers.classroom import grading
from helpers.classroom.bench import Done
from helpers.classroom.grading import configure
from helpers.classroom.step import Step, Verdict
from tests.small_course import LESSON, laid_out

STUB = "raise NotImplementedError()"

pytestmark = pytest.mark.timeout(600)


def command(course: Path, name: str, *arguments: str) -> bool:
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", name, *arguments, "--force"],
        cwd=course,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return run.returncode == 0


def button(course: Path, name: str, *arguments: str) -> bool:
    """The formgrader's buttons call this; they always pass `force`."""
    config = Config()
    configure(config, course)
    return bool(getattr(NbGraderAPI(config=config), name)(*arguments)["success"])


@pytest.fixture
def course(tmp_path: Path) -> Path:
    return laid_out(tmp_path)


def put(folder: Path) -> dict[Path, str]:
    """What a person may have in a folder: each file and what is in it."""
    files = {
        folder / f"{LESSON}.answers-20261122-120000.ipynb": '{"cells": []}',
        folder / "my experiments.ipynb": "{ not even a notebook",
        folder / "data" / "numbers.csv": "1,2",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


def holds(files: dict[Path, str]) -> bool:
    return all(path.read_text() == text for path, text in files.items())


@pytest.mark.parametrize("press", [command, button])
def test_generate_spares_what_a_person_has_there(press: Callable[..., bool], course: Path) -> None:
    folder = course / "notebooks" / LESSON
    notebook = folder / f"{LESSON}.ipynb"
    assert button(course, "generate_assignment", LESSON)
    fresh = notebook.read_text()
    files, here = put(folder), folder.stat().st_ino
    notebook.write_text(fresh.replace(STUB, "return x + 41"))
    assert press(course, "generate_assignment", LESSON)
    assert holds(files) and notebook.read_text() == fresh
    assert folder.stat().st_ino == here, "a kernel that runs here keeps its folder"
    (kept,) = set(folder.glob("*.answers-*")) - set(files)
    assert "return x + 41" in kept.read_text()
    if press is button:  # the rest costs a command's start each time, and is the same code
        assert press(course, "generate_assignment", LESSON)
        assert set(folder.glob("*.answers-*")) - set(files) == {kept}, "nothing new was written into it"
        reference = course / "solutions" / LESSON / f"{LESSON}.ipynb"
        reference.write_text(reference.read_text().replace("### END SOLUTION", ""))
        notebook.write_text(fresh.replace(STUB, "return x + 42"))
        assert not press(course, "generate_assignment", LESSON), "a solution without an end"
        assert holds(files) and "return x + 41" in kept.read_text()
        assert any("return x + 42" in path.read_text() for path in folder.glob("*.answers-*"))


class Quick:
    """A judge that finds nothing right, at once: what is written where does not depend on it."""

    def grade(self, lesson: str, steps: list[Step]) -> Done:
        return Done({step.grade_id: Verdict(False, "no") for step in steps if step.grade_id}, {}, 0.0)


def test_grading_and_feedback_spare_what_a_teacher_put_there(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "bench", Quick)
    assert button(course, "generate_assignment", LESSON)
    submitted = course / "submitted" / "ada" / LESSON
    submitted.mkdir(parents=True)
    nb = nbformat.read(course / "notebooks" / LESSON / f"{LESSON}.ipynb", as_version=4)
    nbformat.write(nb, submitted / f"{LESSON}.ipynb")
    graded, pages = (course / name / "ada" / LESSON for name in ("autograded", "feedback"))
    files = put(graded) | put(pages)
    assert button(course, "autograde", LESSON, "ada")
    assert button(course, "generate_feedback", LESSON, "ada")
    assert (graded / f"{LESSON}.ipynb").exists() and (pages / f"{LESSON}.html").exists()
    assert holds(files)
    assert (graded / "data" / "numbers.csv").stat().st_mode & 0o200, "still hers to write"
    (submitted / f"{LESSON}.ipynb").write_text("{ not a notebook")
    button(course, "autograde", LESSON, "ada")
    assert holds(files), "nor does a submission that cannot be graded cost a file"


def test_a_new_gradebook_says_the_version_that_nbgrader_gives_it() -> None:
    code = (
        "import nbgrader.api; print(nbgrader.api.get_alembic_version())"  # this process has the course's own
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == grading.gradebook_version()
