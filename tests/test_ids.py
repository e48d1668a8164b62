"""Folders under names that are no student's id: refused with a sentence, and everybody else is as ever."""

import zipfile
from pathlib import Path

import nbformat
import pytest
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory

from helpers.classroom import grade as command
from helpers.classroom.formgrader import Api
from helpers.classroom.grading import Intake
from helpers.classroom.intake import NotGradable, take
from helpers.classroom.settings import odd_id
from tests.small_course import LESSON, Course, reference

FINE = ["ada", "b ob", "ünï", "-x", "{x}", "a%2f", "q'uo\"te", "<b>", "a+b.c@d", "x" * 200]
ODD = ["[ab]*", "a?", "*", "new\nline", "bell\a", "ada ", "\u202eada"]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    made = Course(tmp_path_factory.mktemp("course"))
    for student in FINE + ODD:
        folder = made.root / "submitted" / student / LESSON
        folder.mkdir(parents=True)
        nbformat.write(reference(), folder / f"{LESSON}.ipynb")
    return made


def test_the_formgrader_lists_everybody_else(course: Course) -> None:
    api = Api(config=course.api().config)
    assert api.get_submitted_students(LESSON) == set(FINE)
    assert {submission["student"] for submission in api.get_submissions(LESSON)} == set(FINE)


@pytest.mark.parametrize("asked", ["*", "[ab]*"])
def test_nbgraders_own_command_passes_them_over(course: Course, asked: str) -> None:
    """A pattern would otherwise be everybody whom it fits."""
    config = course.api().config
    config.CourseDirectory.assignment_id, config.CourseDirectory.student_id = LESSON, asked
    converter = Autograde(coursedir=CourseDirectory(config=config), config=config)
    converter.assignments = {}
    Intake(parent=converter)
    named = {Path(folder).parent.name for folder in converter.assignments}
    assert named == (set(FINE) if asked == "*" else {"ada", "b ob", "a%2f", "a+b.c@d"})


def test_the_command_names_them(
    course: Course, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.Class, "students", lambda _: [])  # else it would grade them
    assert command.grade(course.root, LESSON) == 3
    said = capsys.readouterr().out
    assert (
        f"{len(ODD)} need a person:" in said and "'new\\nline': not graded: its folder's name is no" in said
    )
    assert said.count("Rename the folder") == len(ODD)


def test_ids() -> None:
    assert not any(map(odd_id, FINE)) and all(map(odd_id, ODD))


@pytest.mark.parametrize("name", ["work.zip", "inner/Lesson 01.TAR.GZ"])
def test_what_is_packed_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(tmp_path / name, "w") as packed:
        packed.writestr(f"{LESSON}.ipynb", "{}")
    with pytest.raises(NotGradable, match=f"'{Path(name).name}' was handed in as it is packed: unpack it"):
        take(tmp_path, reference(), LESSON)
