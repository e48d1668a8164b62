"""Grades as files: by exercise, read from the gradebook, which is not written to; and as Canvas and Moodle import them.

python -m helpers.classroom.exports grades-01_storage_and_stride.csv exported.csv --to import.csv

The first is what `make grade` writes, the second what the system itself exports (Canvas: Grades > Export; Moodle: Grades >
Export > Plain text file). It says who is who there: one of its columns holds the names of the folders in submitted/. What
is written has its columns about people and one of grades, for Canvas's Grades > Import and Moodle's Grades > Import > CSV
file. A student without a score, or with one that waits for a person, is left out, because both take an empty cell for
"no grade" and would clear one that is there; the command says who that is, and why.

Formats. Canvas: "How do I import grades in the Gradebook?",
https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807, and its reader,
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb: the columns Student, ID, SIS User ID, SIS
Login ID, Section, then assignments, each as "name (its number in Canvas)" or by a name that makes a new one; a row
"Points Possible". Moodle: "Grade import", https://docs.moodle.org/405/en/Grade_import: a header line, one column that
identifies a user (ID number, e-mail address or username), one a grade item; which is which is chosen while importing.
"""

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.classroom import sheet
from helpers.classroom.sanitise import visible
from helpers.classroom.settings import parser

GRADED, NOT_GRADABLE, WAITS = "graded", "not gradable", "waits for a person"
UNGRADED, MISSING = "not graded yet", "nothing handed in"
#: columns about people, as Canvas and Moodle call them
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
MOODLE = ["First name", "Last name", "ID number", "Email address", "Username"]
_POSSIBLE = "Points Possible"


@dataclass(frozen=True)
class Row:
    """One student's grades in one lesson. exercises: id → points, ``None`` where there are none yet.

    total: after a penalty for lateness; ``None`` unless the state is "graded". note: why, or what a person should know.
    """

    student: str
    state: str
    exercises: dict[str, float | None]
    total: float | None
    note: str = ""
    last_name: str = ""
    first_name: str = ""


@dataclass
class Lesson:
    """The rows of one lesson, the names of its exercises (id → ``1.3 title``), and the points that there are."""

    name: str
    exercises: dict[str, str]
    possible: float
    rows: list[Row] = field(default_factory=list)


def read(coursedir: Any, lesson: str) -> Lesson:
    """The grades of a lesson (its folder's name), which the gradebook has to know.

    coursedir: nbgrader's CourseDirectory, which knows where the gradebook and the graded notebooks are.
    """
    from nbgrader.api import Gradebook

    folder = Path(coursedir.format_path(coursedir.source_directory, ".", lesson))
    asked = sheet.read(folder / f"{lesson}.ipynb")
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        assignment = gradebook.find_assignment(lesson)
        possible: dict[str, float] = {}
        for cell in (cell for notebook in assignment.notebooks for cell in notebook.grade_cells):
            key = sheet.exercise_of(cell.name)
            possible[key] = possible.get(key, 0.0) + cell.max_score
        names = {e.id: e.name for e in asked.exercises} if asked else {}
        order = [id_ for id_ in names if id_ in possible] + [id_ for id_ in possible if id_ not in names]
        grades = Lesson(lesson, {id_: names.get(id_, id_) for id_ in order}, sum(possible.values()))
        submissions = {s.student.id: s for s in assignment.submissions}
        for student in sorted(gradebook.students, key=lambda student: student.id):
            graded, handed_in = (
                Path(coursedir.format_path(step, student.id, lesson))
                for step in (coursedir.autograded_directory, coursedir.submitted_directory)
            )
            about = _report(graded / f"{lesson}.ipynb"), handed_in.exists()
            grades.rows.append(_row(student, submissions.get(student.id), order, *about))
    return grades


def _row(
    student: Any,
    submission: Any,
    order: list[str],
    report: dict[str, Any],
    handed_in: bool,
) -> Row:
    who = {k: getattr(student, k) or "" for k in ("last_name", "first_name")}
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
    elif None in points.values() or any(g.needs_manual_grade for g in grades):
        state = WAITS  # also where there are points, and a doubt
    total = None
    if state == GRADED:
        penalty = sum(n.late_submission_penalty or 0.0 for n in submission.notebooks)
        total = max(0.0, sum(p or 0.0 for p in points.values()) - penalty)
        if penalty:
            notes.append(f"{_points(penalty)} taken off for lateness")
    note = why if state == NOT_GRADABLE else "; ".join(notes)
    return Row(student.id, state, points, total, note, **who)


def _score(grade: Any) -> float | None:
    return None if grade.auto_score is None and grade.manual_score is None else float(grade.score)


def _report(path: Path) -> dict[str, Any]:
    """What grading wrote into a graded notebook; ``{"graded": …}`` of one without such a report, empty without one."""
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(metadata.get("course_grading") or {"lesson": path.stem})


# --- what a re-grade changed --------------------------------------------------------------------------------------


def changed(before: Iterable[Row], after: Iterable[Row], names: Mapping[str, str]) -> list[str]:
    """Whose points in which exercise differ between two readings, a sentence each. names: of exercises, by their ids.

    Students who were not there before count as new.
    """
    old = {row.student: row.exercises for row in before}
    return [
        f"{visible(row.student)}: {names[exercise]}: {_points(was)} → {_points(points)}"
        for row in after
        for exercise, points in row.exercises.items()
        if (was := old.get(row.student, {}).get(exercise)) != points
    ]


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
    points, who = list(lesson.exercises.values()), ["student", "last name", "first name", "lesson", "state"]
    lines: list[list[object]] = [[*who, *points, "total", "max", "note"]]
    for row in lesson.rows:
        names = (row.student, row.last_name, row.first_name, lesson.name, row.state)
        scores = [row.exercises.get(id_) for id_ in lesson.exercises]
        lines.append([*names, *scores, row.total, lesson.possible, row.note])
    return lines


def write(lines: list[list[object]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([cell(value) for value in line] for line in lines)


# --- what another system imports ----------------------------------------------------------------------------------

Lines = list[dict[str, str]]


def into(table: Lines, roster: Lines, column: str = "") -> tuple[list[list[object]], list[str]]:
    """The lines of a file to import, and a sentence for each student of the table who is not in it.

    table: as :func:`by_exercise` makes it. column: the heading of the scores; without one the roster's that is called as
    the lesson is (and its number in Canvas), or a new one.
    """
    lesson = table[0]["lesson"]
    students = {row["student"]: row for row in table}
    # the column that knows the most of them
    columns = [{line[name].strip(): line for line in roster} for name in roster[0]]
    people = max(columns, key=lambda known: len(students.keys() & known.keys()))
    scores: dict[int, str] = {}
    missing = []
    for student, row in students.items():
        if not row["total"]:
            missing.append(f"{student}: {row['state']}{': ' if row['note'] else ''}{row['note']}")
        elif student not in people:
            missing.append(f"{student}: nobody is called so there")
        else:
            scores[id(people[student])] = row["total"]
    scores |= {id(line): table[0]["max"] for line in roster if line.get("Student", "").strip() == _POSSIBLE}
    own = [name for name in roster[0] if name.partition(" (")[0].strip() == lesson]
    who = [name for name in roster[0] if name in CANVAS + MOODLE]
    lines: list[list[object]] = [[*who, column or (own[0] if own else lesson)]]
    lines += [[*(line[c] for c in who), scores[id(line)]] for line in roster if id(line) in scores]
    return lines, missing


def main(arguments: list[str] | None = None) -> int:
    asks = parser("exports", __doc__)
    asks.add_argument("table", type=Path, help="the grades by exercise")
    asks.add_argument("people", type=Path, help="a CSV file that says who is who")
    asks.add_argument("--to", type=Path, default=Path("import.csv"), help="the file to write (import.csv)")
    asks.add_argument("--column", default="", help="the heading of the grades' column (the lesson's name)")
    asked = asks.parse_args(arguments)
    try:
        lines, missing = into(_read(asked.table), _read(asked.people), asked.column)
        write(lines, asked.to)
    except (OSError, ValueError) as problem:
        print(f"exports: {problem}", file=sys.stderr)
        return 2
    print("\n".join([*(f"not in the file: {student}" for student in missing), f"{asked.to} is written"]))
    return 0


def _read(path: Path) -> Lines:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.DictReader(file))
    if not lines:
        raise ValueError(f"{path} has no lines below its heading")
    return [{str(k): v or "" for k, v in line.items() if k is not None} for line in lines]


if __name__ == "__main__":
    sys.exit(main())
