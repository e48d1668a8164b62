"""Grade a class: everybody in submitted/*/LESSON, in parallel, from where it was left.

    python -m helpers.classroom.grade 01 --jobs 2          (make grade LESSON=01 JOBS=2)

Verdicts are reached by several judges at once, each with a sandbox (here, or on the workers of a Dask scheduler); one
writer enters them with nbgrader's own converter, and makes the feedback. Killed at any moment, it goes on from there:
verdicts lie in the journal, and a submission is done when its note is written.
"""

import dataclasses
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import local
from typing import Any

from helpers.classroom import exports, journal
from helpers.classroom.bench import Bench, Done
from helpers.classroom.settings import ROOT, odd_id, parser, references, the_lesson
from helpers.classroom.step import Step
from helpers.text.terminal import lenient

#: files of a submission whose time and size tell whether it is new
MOST_FILES = 1000
_own = local()


@dataclasses.dataclass
class Class:
    """One lesson's submissions. course: the folder that holds submitted/, solutions/ and the gradebook."""

    course: Path
    name: str

    @property
    def reference(self) -> Path:
        return self.course / "solutions" / self.name / f"{self.name}.ipynb"

    def handed_in(self) -> list[str]:
        """The names of all folders with a submission, those that are no student's id among them."""
        return sorted(p.parent.name for p in (self.course / "submitted").glob(f"*/{self.name}") if p.is_dir())

    def students(self) -> list[str]:
        return [name for name in self.handed_in() if not odd_id(name)]

    def folder(self, student: str) -> Path:
        return self.course / "submitted" / student / self.name

    def note(self, student: str) -> Path:
        """Where it is noted what was graded of a student."""
        named = hashlib.sha256(os.fsencode(student)).hexdigest()[:32]
        return self.course / journal.FOLDER / self.name / f"{named}.json"

    def look(self, student: str) -> list[Any]:
        """What tells a new submission, or a new edition of the lesson, from what was graded: names, sizes, times."""
        entries: list[Any] = [[self.name, *_stat(self.reference), os.environ.get("GRADEBOOK", "")]]
        for folder, _, files in os.walk(self.folder(student)):
            entries += [[name, *_stat(Path(folder) / name)] for name in sorted(files)]
            if len(entries) > MOST_FILES:
                break
        return entries

    def is_done(self, student: str, noted: dict[str, Any]) -> bool:
        graded = self.course / "autograded" / student / self.name / f"{self.name}.ipynb"
        return noted.get("look") == self.look(student) and graded.exists()


def _stat(path: Path) -> tuple[int, int]:
    about = path.lstat()
    return about.st_size, about.st_mtime_ns


def judged(lesson: str, steps: list[Step]) -> Done:
    """The verdicts of a notebook's steps, by this thread's own judge, which may be far away."""
    if not hasattr(_own, "bench"):
        _own.bench = Bench()
    done: Done = _own.bench.grade(lesson, steps)
    return done


def _reach(room: Class, student: str, again: bool, far: Any) -> None:
    """See to it that the journal holds the verdicts of a student's submission."""
    from helpers.classroom.submission import GRADING, clean, key_of, steps_of

    nb = clean(room.folder(student), room.reference)
    if nb.metadata[GRADING]["not_gradable"]:
        return
    key = key_of(nb)
    if not again and journal.recall(room.course, key) is not None:
        return
    steps = steps_of(nb)
    done = far.submit(judged, room.name, steps, pure=False).result() if far else judged(room.name, steps)
    journal.keep(room.course, key, done)


def _reached(
    room: Class, students: Sequence[str], jobs: int, scheduler: str, again: bool
) -> Iterator[tuple[str, str]]:
    """(student, "" or why there are no verdicts), as they come."""
    far: Any = None
    if scheduler:
        from distributed import Client

        far = Client(scheduler, set_as_default=False)
        jobs = max(1, 2 * sum(far.nthreads().values()))  # a few wait at each worker
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting: dict[Future[None], str] = {pool.submit(_reach, room, s, again, far): s for s in students}
        for done in as_completed(waiting):
            problem = done.exception()
            yield waiting[done], f"{type(problem).__name__}: {problem}" if problem else ""
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if far is not None:
            far.close()


class Writer:
    """The one that writes to the gradebook, by nbgrader's own converters."""

    def __init__(self, room: Class) -> None:
        import logging

        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config

        from helpers.classroom.grading import configure
        from helpers.classroom.release import release

        self.room = room
        config = Config()
        configure(config, room.course)
        self._api = NbGraderAPI(config=config)
        self._api.log.setLevel(logging.ERROR)
        release(room.reference, self._api.coursedir.db_url)  # the gradebook knows its cells and points

    def write(self, student: str) -> str:
        """Enter a student's verdicts and make the feedback; "" or what went wrong."""
        for command in (self._api.autograde, self._api.generate_feedback):
            outcome = command(self.room.name, student)
            if not outcome["success"]:
                return str(outcome.get("error") or outcome.get("log"))[-2000:]
        return ""

    def read(self) -> Any:
        """Everybody's grades, as :func:`helpers.classroom.exports.read` gives them."""
        return exports.read(self._api.coursedir, self.room.name)

    def graded(self, student: str) -> dict[str, Any]:
        """What grading said of a student: see :mod:`helpers.classroom.submission`."""
        import nbformat

        from helpers.classroom.submission import GRADING

        path = self.room.course / "autograded" / student / self.room.name / f"{self.room.name}.ipynb"
        return dict(nbformat.read(path, as_version=4).metadata[GRADING])


def grade(course: Path, name: str, jobs: int = 2, scheduler: str = "", again: bool = False) -> int:
    """Grade what is new; print who needs a person. The exit status: 0, or 3 if somebody does.

    again: grade everybody anew, and say what changed.
    """
    room, began = Class(course, name), time.monotonic()
    students = room.students()
    odd = {ascii(name): {"problem": why} for name in room.handed_in() if (why := odd_id(name))}
    if not students and not odd:
        print(f"grade: there is no folder submitted/<student>/{name} in {course.name}/.", file=sys.stderr)
        return 2
    notes = {student: journal.load(room.note(student)) for student in students}
    new = [s for s in students if again or not room.is_done(s, notes[s])]
    changes: list[str] | None = None
    table, book = course / f"grades-{name}.csv", course / "gradebook.db"
    if new:
        writer, anew = Writer(room), {s for s in new if notes[s]}
        before = writer.read().rows if anew else []
        for done, (student, problem) in enumerate(_reached(room, new, jobs, scheduler, again), 1):
            look = room.look(student)
            problem = problem or writer.write(student)
            notes[student] = _note(look, {} if problem else writer.graded(student), problem)
            journal.write(room.note(student), notes[student])
            _show(done, len(new), student, began)
        graded = writer.read()
        if anew:
            rows = [row for row in graded.rows if row.student in anew]
            changes = exports.changed(before, rows, graded.exercises)
        exports.write(exports.by_exercise(graded), table)
    elif not table.exists() or not book.exists() or book.stat().st_mtime > table.stat().st_mtime:
        exports.write(exports.by_exercise(Writer(room).read()), table)  # points were changed by hand
    notes |= odd
    print(_summary(name, students, new, changes, notes, time.monotonic() - began))
    return 3 if any(_needs(note) for note in notes.values()) else 0


def _note(look: list[Any], about: dict[str, Any], problem: str) -> dict[str, Any]:
    by_test = [v["human"] for v in about.get("verdicts", {}).values() if v["human"]]
    return {
        "look": None if problem else look,  # what failed is tried again
        "not_gradable": about.get("not_gradable", ""),
        "problem": problem,
        "human": [*about.get("human", []), *by_test],
        "notes": about.get("notes", []),
    }


def _needs(note: dict[str, Any]) -> list[str]:
    """Why a person should look at a submission."""
    first = [f"not graded: {note['problem'].strip().splitlines()[-1]}"] if note.get("problem") else []
    first += [f"not gradable: {note['not_gradable']}"] if note.get("not_gradable") else []
    return first + list(note.get("human", []))


def _summary(
    name: str,
    students: list[str],
    new: list[str],
    changes: list[str] | None,
    notes: dict[str, Any],
    seconds: float,
) -> str:
    refused = sum(bool(notes[student].get("not_gradable")) for student in new)
    now = f"{len(new) - refused} of them graded now" + f" and {refused} not gradable" * bool(refused)
    lines = [f"{name}: {len(students)} submissions, {now}, in {seconds:.0f} s."]
    if changes is not None:
        lines += [f"  changed: {change}" for change in changes] or ["  Nobody's points changed."]
    if mended := [student for student in new if notes[student].get("notes")]:
        named = ", ".join(mended[:5]) + " …" * (len(mended) > 5)
        lines.append(
            f"  Put right before grading, or odd about the file, as their pages say: {len(mended)} ({named})."
        )
    waiting = {student: _needs(note) for student, note in notes.items() if _needs(note)}
    if waiting:
        lines.append(f"  {len(waiting)} need{'s' * (len(waiting) == 1)} a person:")
        lines += [f"    {student}: {why}" for student, reasons in waiting.items() for why in reasons]
    else:
        lines.append("  Nobody needs a person.")
    return "\n".join(lines)


def _show(done: int, total: int, student: str, began: float) -> None:
    """How far it is, on one line of a terminal; nothing where there is none."""
    if sys.stderr.isatty():
        left_s = (time.monotonic() - began) / done * (total - done)
        text = f"{done} of {total}, about {left_s:.0f} s left, last {student}"
        print(f"\r{text[:100]:100}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    lenient()
    asks = parser("grade", "Grade a class.")
    asks.add_argument("lesson", help="e.g. 01")
    asks.add_argument("--jobs", type=int, default=2, help="judges at once on this machine (default 2)")
    asks.add_argument(
        "--scheduler", default="", help="address of a Dask scheduler, whose workers judge instead"
    )
    asks.add_argument("--again", action="store_true", help="everybody anew; says what changed and for whom")
    asked = asks.parse_args(argv)
    from helpers.classroom.sandbox import NoSandbox, require

    try:
        lesson = the_lesson("grade", asked.lesson, references()).stem
        require()
    except (ValueError, NoSandbox) as why:
        print(f"grade: {why}", file=sys.stderr)
        return 2
    return grade(ROOT, lesson, max(1, asked.jobs), asked.scheduler, asked.again)


if __name__ == "__main__":
    sys.exit(main())
