"""Grades as files: right for each student, empty where there is no grade, and harmless in a spreadsheet."""

import csv
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from helpers.classroom import exports
from tests.small_course import LESSON, POINTS, Course, graded

WHY = "the notebook is not JSON: it ends in the middle of a cell"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    made = Course(tmp_path_factory.mktemp("course"))
    made.add("ada", graded({}), dict(POINTS), first_name="Ada", last_name="Lovelace")
    made.add("bob", graded({"clip__hidden": "no"}), POINTS | {"clip__hidden": 0.0})
    made.add("cy", graded({}, not_gradable=WHY), {})
    made.add("dan", None, None)
    made.add("fay", None, {})
    (made.root / "submitted" / "fay" / LESSON).mkdir(parents=True)
    made.add("eve", graded({}, human=["=two cells define windows"]), POINTS | {"windows__hidden": None})
    made.add(
        "@SUM(1+1)", graded({}), dict.fromkeys(POINTS, 0.0), last_name="=cmd|' /C calc'!A0", first_name="\t+1"
    )
    return made


@pytest.fixture(scope="module")
def lesson(course: Course) -> exports.Lesson:
    before = (course.root / "gradebook.db").read_bytes()
    read = exports.read(directory(course), LESSON)
    assert (course.root / "gradebook.db").read_bytes() == before
    return read


def directory(course: Course) -> CourseDirectory:
    settings = {
        "root": str(course.root),
        "source_directory": "solutions",
        "course_id": "pytorch-performance-measured",
    }
    return CourseDirectory(config=Config(CourseDirectory=settings))


def rows(lines: list[list[object]], path: Path) -> dict[str, dict[str, str]]:
    exports.write(lines, path)
    with path.open(newline="", encoding="utf-8") as file:
        return {next(iter(row.values())): row for row in csv.DictReader(file)}


def test_by_exercise(lesson: exports.Lesson, tmp_path: Path) -> None:
    read = rows(exports.by_exercise(lesson), tmp_path / "grades.csv")
    walk, copies = "1.3 the same numbers, a different walk", "1.5 four copies, or one"
    assert {name: (row["state"], row[walk], row[copies], row["total"]) for name, row in read.items()} == {
        "ada": ("graded", "5", "5", "10"),
        "bob": ("graded", "5", "2", "7"),
        "cy": ("not gradable", "", "", ""),
        "dan": ("nothing handed in", "", "", ""),  # stock nbgrader exports 0.0
        "fay": ("not graded yet", "", "", ""),
        "eve": ("waits for a person", "", "5", ""),
        "'@SUM(1+1)": ("graded", "0", "0", "0"),
    }
    assert {row["max"] for row in read.values()} == {"10"}
    assert read["cy"]["note"] == WHY


def test_no_cell_is_a_formula(lesson: exports.Lesson, tmp_path: Path) -> None:
    for lines in (
        exports.by_exercise(lesson),
        exports.for_canvas(lesson, []),
        exports.for_moodle(lesson, []),
    ):
        exports.write(lines, tmp_path / "file.csv")
        with (tmp_path / "file.csv").open(newline="", encoding="utf-8") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert not [cell for cell in cells if cell.lstrip(" \t\r\n")[:1] in tuple("=+-@")]
    assert exports.cell("\r=1") == "' =1" and exports.cell(-1.5) == "-1.5" and exports.cell("a-b") == "a-b"


def test_canvas(lesson: exports.Lesson, tmp_path: Path) -> None:
    roster = [
        {"Student": "    Points Possible", "ID": "", "SIS Login ID": "", "01 · Storage and stride (77)": "10"},
        {"Student": "Lovelace, Ada", "ID": "4711", "SIS Login ID": "ada", "Section": "A", "01 · Storage and stride (77)": ""},
        {"Student": "Cy", "ID": "4712", "SIS Login ID": "cy", "Section": "A", "01 · Storage and stride (77)": "3"},
    ]  # fmt: skip
    lines = exports.for_canvas(lesson, roster)
    assert lines[0] == [
        "Student",
        "ID",
        "SIS User ID",
        "SIS Login ID",
        "Section",
        "01 · Storage and stride (77)",
    ]
    assert lines[1] == ["    Points Possible", "", "", "", "", 10.0]
    assert lines[2:] == [["Lovelace, Ada", "4711", "", "ada", "A", 10.0]]  # an empty cell would clear Cy's 3
    assert exports.unmatched(lesson, roster) == ["@SUM(1+1)", "bob"]


def test_moodle(lesson: exports.Lesson) -> None:
    roster = [
        {"First name": "Ada", "ID number": "9", "Email address": "ada@example.org"},
        {"First name": "Bob", "ID number": "bob", "Email address": "bob@example.org"},
    ]
    assert exports.for_moodle(lesson, roster) == [
        ["ID number", "Email address", "01 · Storage and stride"],
        ["bob", "bob@example.org", 7.0],
    ]
    assert ["ada", 10.0] in exports.for_moodle(lesson, [])


def test_what_a_regrade_changed(lesson: exports.Lesson) -> None:
    before = [exports.Row("bob", LESSON, "graded", {"windows": 5.0, "clip": 5.0}, 10.0, 10.0)]
    changes = exports.changed(before, [row for row in lesson.rows if row.student in ("bob", "cy", "ada")])
    assert sorted(map(str, changes)) == ["ada: clip: – → 5", "ada: windows: – → 5", "bob: clip: 5 → 2"]


def test_the_command(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(course.root)
    assert exports.main(["01", "--format", "canvas"]) == 0
    said = capsys.readouterr().out
    assert f"not in the file: cy: not gradable: {WHY}" in said and "3 of 7 students have a score" in said
    assert (course.root / f"grades-{LESSON}-canvas.csv").exists()
    assert exports.main(["99"]) == 2
    assert f"does not know '99'; it knows {LESSON}" in capsys.readouterr().err
