"""The learner's copy of a reference notebook, made by nbgrader; and a fresh copy that loses no answers.

python -m helpers.classroom.release 01        reset lesson 01 (what `make reset LESSON=01` runs)
"""

import logging
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from traitlets.config import Config

from helpers.classroom.settings import FRESH, NOTEBOOKS, parser, references, the_lesson
from helpers.keeping import copy_beside, write
from helpers.text.terminal import lenient

_one_at_a_time = threading.Lock()


def release(reference: Path, db_url: str = "") -> str:
    """The text of the learner's notebook for ``reference``, through nbgrader's own generate_assignment.

    It runs in a scratch course, so that nothing in ``notebooks/`` is touched. db_url: the gradebook that the lesson's
    cells and points are entered into; "": none.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    from helpers.classroom.grading import configure

    name = reference.stem
    with _one_at_a_time, tempfile.TemporaryDirectory() as scratch:
        course = Path(scratch)
        (course / "solutions" / name).mkdir(parents=True)
        shutil.copy(reference, course / "solutions" / name)
        config = Config()
        configure(config, course)
        config.CourseDirectory.assignment_id = name
        if db_url:
            config.CourseDirectory.db_url = db_url
        else:  # as `nbgrader generate_assignment --no-db` does
            config.SaveCells.enabled = False
            config.GenerateAssignment.no_database = True
        converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
        converter.log.setLevel(logging.ERROR)
        converter.start()
        return (course / "notebooks" / name / f"{name}.ipynb").read_text(encoding="utf-8")


def reset(lesson: str) -> int:
    """Give a lesson its fresh notebook again; the old one stays beside it."""
    built = references()
    there = built or sorted(FRESH.glob("[0-9][0-9]_*.ipynb"))
    if not there:
        print(
            "reset: this copy of the course was handed out without its solutions, from which a fresh notebook is made. "
            "Get the notebook again from where you got it; nothing was changed.",
            file=sys.stderr,
        )
        return 2
    try:
        source = the_lesson("reset", lesson, there)
    except ValueError as why:
        print(f"reset: {why}", file=sys.stderr)
        return 2
    target = NOTEBOOKS / source.stem / source.name
    kept = None
    try:
        fresh = release(source) if built else source.read_text(encoding="utf-8")
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = copy_beside(target) if target.exists() else None
        write(target, fresh)
    except OSError as problem:
        print(
            f"reset: {problem.strerror or problem}: {problem.filename or target}. Your notebook is as it was"
            + (f", and a copy of it is in {kept.name} beside it." if kept else "."),
            file=sys.stderr,
        )
        return 2
    print(
        f"{target.stem}: fresh."
        + (f" What you had is kept in notebooks/{target.stem}/{kept.name}" if kept else "")
    )
    return 0


def main(argv: list[str] | None = None) -> int:
    lenient()
    asks = parser("release", "A fresh copy of a lesson's notebook; the one that is there is kept beside it.")
    asks.add_argument("lesson", help="e.g. 01")
    return reset(asks.parse_args(argv).lesson)


if __name__ == "__main__":
    sys.exit(main())
