"""Grades as files: by exercise, for Canvas, and for Moodle. Read from the gradebook, which is not written to.

python -m helpers.classroom.exports 01                                     grades-01_storage_and_stride.csv
python -m helpers.classroom.exports 01 --format canvas --ids canvas.csv    for Canvas: Grades > Import
python -m helpers.classroom.exports 01 --format moodle --ids moodle.csv    for Moodle: Grades > Import > CSV file

``--ids`` is what the system itself exports (Canvas: Grades > Export; Moodle: Grades > Export > Plain text file). It says
who is who there: one of its columns holds the names of the folders in submitted/. A student without a score is left out
of what Canvas and Moodle import, because both take an empty cell for "no grade" and would clear one that is there; the
command says who that is, and why.

Formats. Canvas: "How do I import grades in the Gradebook?",
https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807, and its reader,
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb: the columns Student, ID, SIS User ID, SIS
Login ID, Section, then assignments, each as "name (its number in Canvas)" or by a name that makes a new one; a row
"Points Possible". Moodle: "Grade import", https://docs.moodle.org/405/en/Grade_import: a header line, one column that
identifies a user (ID number, e-mail address or username), one a grade item; which is which is chosen while importing.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.classroom import sheet
from helpers.classroom.sanitise import visible

GRADED, NOT_GRADABLE, WAITS = "graded", "not gradable", "waits for a person"
UNGRADED, MISSING = "not graded yet", "nothing handed in"
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
#: Moodle's exports name them so; the first that a roster has identifies
MOODLE = ("ID number", "Email address", "Username")


@dataclass(frozen=True)
class Row:
    """One student's grades in one lesson. exercises: id → points, ``None`` where there are none yet.

    total: after a penalty for lateness; ``None`` unless the state is "graded". note: why, or what a person should know.
    """

    student: str
    lesson: str
    state: str
    exercises: dict[str, float | None]
    total: float | None
    possible: float
    note: str = ""
    last_name: str = ""
    first_name: str = ""
    email: str = ""


@dataclass(frozen=True)
class Change:
    """What a re-grade changed for one student in one exercise; ``None``: no points, before or after."""

    student: str
    lesson: str
    exercise: str
    before: float | None
    after: float | None

    def __str__(self) -> str:
        return f"{visible(self.student)}: {self.exercise}: {_points(self.before)} → {_points(self.after)}"


@dataclass
class Lesson:
    """The rows of one lesson, and the names of its exercises: id → ``1.3 title``."""

    name: str
    title: str
    exercises: dict[str, str]
    rows: list[Row] = field(default_factory=list)

    @property
    def possible(self) -> float:
        return max((row.possible for row in self.rows), default=0.0)


def read(coursedir: Any, lesson: str) -> Lesson:
    """The grades of a lesson (its folder's name). Raises ``ValueError`` where the gradebook does not know it.

    coursedir: nbgrader's CourseDirectory, which knows where the gradebook and the graded notebooks are.
    """
    from nbgrader.api import Gradebook, MissingEntry

    if (path := _sqlite(coursedir.db_url)) and not path.exists():
        raise ValueError(f"there is no gradebook at {path}: grade first")
    folder = Path(coursedir.format_path(coursedir.source_directory, ".", lesson))
    asked = sheet.read(folder / f"{lesson}.ipynb")
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        try:
            assignment = gradebook.find_assignment(lesson)
        except MissingEntry:
            raise ValueError(
                f"the gradebook does not know {lesson!r}; it knows {', '.join(a.name for a in gradebook.assignments)}"
            ) from None
        possible: dict[str, float] = {}
        for cell in (cell for notebook in assignment.notebooks for cell in notebook.grade_cells):
            key = sheet.exercise_of(cell.name)
            possible[key] = possible.get(key, 0.0) + cell.max_score
        names = {e.id: e.name for e in asked.exercises} if asked else {}
        order = [id_ for id_ in names if id_ in possible] + [id_ for id_ in possible if id_ not in names]
        grades = Lesson(lesson, asked.title if asked else lesson, {id_: names.get(id_, id_) for id_ in order})
        submissions = {s.student.id: s for s in assignment.submissions}
        for student in sorted(gradebook.students, key=lambda student: student.id):
            graded, handed_in = (
                Path(coursedir.format_path(step, student.id, lesson))
                for step in (coursedir.autograded_directory, coursedir.submitted_directory)
            )
            about = _report(graded / f"{lesson}.ipynb"), handed_in.exists()
            grades.rows.append(_row(student, submissions.get(student.id), lesson, order, possible, *about))
    return grades


def _row(
    student: Any,
    submission: Any,
    lesson: str,
    order: list[str],
    possible: dict[str, float],
    report: dict[str, Any],
    handed_in: bool,
) -> Row:
    who = {k: getattr(student, k) or "" for k in ("last_name", "first_name", "email")}
    grades = [] if submission is None else [g for n in submission.notebooks for g in n.grades]
    points: dict[str, float | None] = dict.fromkeys(order)
    for name in order:
        scores = [_score(g) for g in grades if sheet.exercise_of(g.name) == name]
        if scores and None not in scores:
            points[name] = sum(s for s in scores if s is not None)
    why = str(report.get("not_gradable", ""))
    notes = [str(n) for n in (*report.get("notes", []), *report.get("human", []))]
    state = GRADED
    if not any(_score(g) is not None for g in grades):
        state = NOT_GRADABLE if why else WAITS if report else UNGRADED if handed_in else MISSING
    elif None in points.values():
        state = WAITS
    elif any(g.needs_manual_grade for g in grades):
        notes.append("a person should look at it")
    total = None
    if state == GRADED:
        penalty = sum(n.late_submission_penalty or 0.0 for n in submission.notebooks)
        total = max(0.0, sum(p or 0.0 for p in points.values()) - penalty)
        if penalty:
            notes.append(f"{_points(penalty)} taken off for lateness")
    note = why if state == NOT_GRADABLE else "; ".join(notes)
    return Row(student.id, lesson, state, points, total, sum(possible.values()), note, **who)


def _score(grade: Any) -> float | None:
    return None if grade.auto_score is None and grade.manual_score is None else float(grade.score)


def _report(path: Path) -> dict[str, Any]:
    """What grading wrote into a graded notebook; ``{"graded": …}`` of one without such a report, empty without one."""
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(metadata.get("course_grading") or {"lesson": path.stem})


def _sqlite(url: str) -> Path | None:
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


# --- what a re-grade changed --------------------------------------------------------------------------------------


def changed(before: Iterable[Row], after: Iterable[Row]) -> list[Change]:
    """Whose points in which exercise differ between two readings; students who were not there before count as new."""
    old = {(row.student, row.lesson): row.exercises for row in before}
    changes = []
    for row in after:
        was = old.get((row.student, row.lesson), {})
        for exercise, points in row.exercises.items():
            if was.get(exercise) != points:
                changes.append(Change(row.student, row.lesson, exercise, was.get(exercise), points))
    return changes


# --- the files ----------------------------------------------------------------------------------------------------


def _points(points: float | None) -> str:
    return "–" if points is None else f"{points:.2f}".rstrip("0").rstrip(".")


def cell(value: object) -> str:
    """What stands in a cell: a number, or text that no spreadsheet takes for a formula.

    Text that begins with = + - @ or a character that is not seen gets a ' in front, as OWASP's "CSV Injection" asks.
    """
    if value is None:
        return ""
    if isinstance(value, int | float):
        return _points(value)
    text = visible(value).replace("\t", " ").replace("\n", " ")
    return f"'{text}" if text.lstrip(" ")[:1] in (*"=+-@", *"＝＋－＠") else text


def by_exercise(lesson: Lesson) -> list[list[object]]:
    """A line a student: who, state, points by exercise, total, and why there is none."""
    names = list(lesson.exercises.values())
    head: list[object] = [
        "student",
        "last name",
        "first name",
        "lesson",
        "state",
        *names,
        "total",
        "max",
        "note",
    ]
    lines = [head]
    for row in lesson.rows:
        points = [row.exercises.get(id_) for id_ in lesson.exercises]
        who = (row.student, row.last_name, row.first_name, row.lesson, row.state)
        lines.append([*who, *points, row.total, row.possible, row.note])
    return lines


def for_canvas(lesson: Lesson, roster: list[dict[str, str]], column: str = "") -> list[list[object]]:
    """What Canvas's *Import* takes. column: the assignment's heading there; found in the roster if it begins alike."""
    known = [
        name for name in (roster[0] if roster else ()) if name.partition(" (")[0].strip() == lesson.title
    ]
    lines: list[list[object]] = [[*CANVAS, column or (known[0] if known else lesson.title)]]
    lines.append(["    Points Possible", "", "", "", "", lesson.possible])
    return lines + [[*(line.get(c, "") for c in CANVAS), row.total] for row, line in _graded(lesson, roster)]


def for_moodle(lesson: Lesson, roster: list[dict[str, str]], column: str = "") -> list[list[object]]:
    """What Moodle's *Import > CSV file* takes: who, and one grade."""
    ids = [name for name in MOODLE if roster and name in roster[0]] or ["Username"]
    lines: list[list[object]] = [[*ids, column or lesson.title]]
    return lines + [[*(line.get(c, "") for c in ids), row.total] for row, line in _graded(lesson, roster)]


def _graded(lesson: Lesson, roster: list[dict[str, str]]) -> Iterator[tuple[Row, dict[str, str]]]:
    """The rows with a score, each with its student's line of the roster, or what is known without a roster."""
    people = _people(lesson, roster)
    for row in lesson.rows:
        if row.total is not None and (not roster or row.student in people):
            name = f"{row.last_name}, {row.first_name}".strip(", ") or row.student
            unlisted = {"Student": name, "SIS Login ID": row.student, "Username": row.student}
            yield row, people.get(row.student, unlisted)


def _people(lesson: Lesson, roster: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Student → line of the roster, by the column that knows the most of the lesson's students."""
    students = {row.student for row in lesson.rows}
    columns = [
        {line[name].strip(): line for line in roster if (line.get(name) or "").strip()}
        for name in (roster[0] if roster else ())
    ]
    return max(columns, key=lambda people: len(students & people.keys()), default={})


def unmatched(lesson: Lesson, roster: list[dict[str, str]]) -> list[str]:
    """Students with a score whom the roster does not name; they are not in the file."""
    people = _people(lesson, roster)
    return [r.student for r in lesson.rows if roster and r.total is not None and r.student not in people]


def write(lines: list[list[object]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([cell(value) for value in line] for line in lines)


# --- the command --------------------------------------------------------------------------------------------------


def course() -> Any:
    """nbgrader's CourseDirectory of the folder that we are in."""
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import PyFileConfigLoader

    return CourseDirectory(config=PyFileConfigLoader("nbgrader_config.py", path=".").load_config())


def _lesson_name(coursedir: Any, begins: str) -> str:
    folders = Path(coursedir.format_path(coursedir.source_directory, ".", "x")).parent.glob(f"{begins}*")
    lessons = sorted(folder.name for folder in folders if folder.is_dir())
    return lessons[0] if len(lessons) == 1 else begins


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.classroom.exports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="its number or its folder's name")
    parser.add_argument("--format", choices=("csv", "canvas", "moodle"), default="csv")
    parser.add_argument("--ids", type=Path, help="a CSV file that says who is who")
    parser.add_argument("--column", default="", help="the heading of the grades' column")
    parser.add_argument("--to", type=Path, help="the file to write")
    asked = parser.parse_args(arguments)
    coursedir = course()
    try:
        lesson = read(coursedir, _lesson_name(coursedir, asked.lesson))
        roster = _roster(asked.ids) if asked.ids else []
    except (OSError, ValueError) as problem:
        print(f"exports: {problem}", file=sys.stderr)
        return 2
    suffix = "" if asked.format == "csv" else f"-{asked.format}"
    path = asked.to or Path(f"grades-{lesson.name}{suffix}.csv")
    if asked.format == "csv":
        write(by_exercise(lesson), path)
    else:
        lines = (for_canvas if asked.format == "canvas" else for_moodle)(lesson, roster, asked.column)
        write(lines, path)
        for row in (row for row in lesson.rows if row.total is None):
            print(
                f"not in the file: {visible(row.student)}: {row.state}{': ' if row.note else ''}{visible(row.note)}"
            )
        for student in unmatched(lesson, roster):
            print(f"not in the file: {visible(student)}: {asked.ids} does not name this student")
    graded = sum(row.total is not None for row in lesson.rows)
    print(f"{path}: {graded} of {len(lesson.rows)} students have a score in {lesson.title}")
    return 0


def _roster(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.DictReader(file))
    if not lines:
        raise ValueError(f"{path} has no lines below its heading")
    return [{str(k): v or "" for k, v in line.items() if k is not None} for line in lines]


if __name__ == "__main__":
    sys.exit(main())
