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
    made.add("gus", graded({}, human=["=it is not the same"]), dict(POINTS), doubted="windows__hidden")
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


@pytest.fixture(scope="module")
def table(lesson: exports.Lesson, tmp_path_factory: pytest.TempPathFactory) -> exports.Lines:
    return list(rows(exports.by_exercise(lesson), tmp_path_factory.mktemp("table") / "grades.csv").values())


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
        "gus": ("waits for a person", "5", "5", ""),  # no total until somebody has looked
        "'@SUM(1+1)": ("graded", "0", "0", "0"),
    }
    assert {row["max"] for row in read.values()} == {"10"}
    assert read["cy"]["note"] == WHY


def test_no_cell_is_a_formula(lesson: exports.Lesson, table: exports.Lines, tmp_path: Path) -> None:
    roster = [{"Student": "=Ada", "ID": "ada"}, {"Student": "@Bob", "ID": "bob"}]
    for lines in (exports.by_exercise(lesson), exports.into(table, roster)[0]):
        exports.write(lines, tmp_path / "file.csv")
        with (tmp_path / "file.csv").open(newline="", encoding="utf-8") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert not [cell for cell in cells if cell.lstrip(" \t\r\n")[:1] in tuple("=+-@")]
    assert exports.cell("\r=1") == "' =1" and exports.cell(-1.5) == "-1.5" and exports.cell("a-b") == "a-b"


def test_canvas(table: exports.Lines) -> None:
    roster = [
        {"Student": "    Points Possible", "ID": "", "SIS Login ID": "", "Section": "", "01_storage_and_stride (77)": "10"},
        {"Student": "Lovelace, Ada", "ID": "4711", "SIS Login ID": "ada", "Section": "A", "01_storage_and_stride (77)": ""},
        {"Student": "Cy", "ID": "4712", "SIS Login ID": "cy", "Section": "A", "01_storage_and_stride (77)": "3"},
    ]  # fmt: skip
    lines, missing = exports.into(table, roster)
    assert lines == [
        ["Student", "ID", "SIS Login ID", "Section", "01_storage_and_stride (77)"],
        ["    Points Possible", "", "", "", "10"],
        ["Lovelace, Ada", "4711", "ada", "A", "10"],  # an empty cell would clear Cy's 3
    ]
    assert f"cy: not gradable: {WHY}" in missing and "bob: nobody is called so there" in missing
    assert "gus: waits for a person: '=it is not the same" in missing


def test_moodle(table: exports.Lines) -> None:
    roster = [
        {"First name": "Ada", "ID number": "9", "Email address": "ada@example.org"},
        {"First name": "Bob", "ID number": "bob", "Email address": "bob@example.org"},
    ]
    assert exports.into(table, roster, "Lesson 1")[0] == [
        ["First name", "ID number", "Email address", "Lesson 1"],
        ["Bob", "bob", "bob@example.org", "7"],
    ]
    assert exports.into(table, roster)[0][0][-1] == LESSON


def test_what_a_regrade_changed(lesson: exports.Lesson) -> None:
    before = [exports.Row("bob", "graded", {"windows": 5.0, "clip": 5.0}, 10.0)]
    rows = [row for row in lesson.rows if row.student in ("bob", "cy", "ada")]
    changes = exports.changed(before, rows, {"windows": "1.3 walk", "clip": "1.5 copies"})
    assert sorted(changes) == ["ada: 1.3 walk: – → 5", "ada: 1.5 copies: – → 5", "bob: 1.5 copies: 5 → 2"]


def test_the_command(lesson: exports.Lesson, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grades, people, to = (tmp_path / name for name in ("grades.csv", "people.csv", "to.csv"))
    exports.write(exports.by_exercise(lesson), grades)
    people.write_text("Username,ID number\nada,1\ncy,2\n", encoding="utf-8")
    assert exports.main([str(grades), str(people), "--to", str(to)]) == 0
    said = capsys.readouterr().out
    assert f"not in the file: cy: not gradable: {WHY}" in said and f"{to} is written" in said
    assert to.read_text(encoding="utf-8").splitlines() == [f"Username,ID number,{LESSON}", "ada,1,10"]
    people.write_text("Username\n", encoding="utf-8")
    assert exports.main([str(grades), str(people), "--to", str(to)]) == 2
    assert "people.csv has no lines below its heading" in capsys.readouterr().err
