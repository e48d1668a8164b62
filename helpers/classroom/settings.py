"""What grading, building and releasing have to agree on."""

import argparse
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions"
NOTEBOOKS = ROOT / "notebooks"
#: in a student's copy: the notebooks as they were handed out
FRESH = ROOT / "etc" / "fresh"
#: what nbgrader and its exchange call the course
COURSE_ID = "pytorch-performance-measured"
#: names the exchange's folder; unset: one in the course
EXCHANGE = "EXCHANGE"
#: cells with this tag are for the reader; grading and validating pass over them
EXPERIMENT_TAG = "experiment"
#: seconds that one cell of a lesson may take
CELL_TIMEOUT = 120
#: set to 1: grade without a sandbox, at one's own risk
UNSANDBOXED = "GRADE_WITHOUT_SANDBOX"
#: what a kernel that grades or builds is told: processes share the cores already, and threads that wait for one another
#: would burn four times the time
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: a kernel on this machine's loopback need not warn, for every submission, that it is not encrypted
QUIET_KERNEL = ["--IPKernelApp.log_level=40"]
#: what stands in a learner's notebook where the master has a solution
STUB = "raise NotImplementedError()  # your answer"
#: … and where the answer is in no function: a cell that raises would end Run All
OPEN_STUB = "# your answer: in place of what stands above"


def exercises_of(lesson: str) -> Path:
    """The module of a lesson's tests. lesson: its folder's name, which is its room's with the number."""
    return ROOT / "helpers" / "lessons" / lesson[3:] / "exercises.py"


def references() -> list[Path]:
    """The lessons' notebooks as built; none in a student's copy."""
    return sorted(p for p in SOLUTIONS.glob("[0-9][0-9]_*/*.ipynb") if p.stem == p.parent.name)


def the_lesson(command: str, asked: str, there: Iterable[Path]) -> Path:
    """Of these notebooks the one whose name begins as was asked. Raises ValueError where that is none, or several.

    command: of `make`, which was asked.
    """
    names = {path.stem: path for path in there}
    found = [name for name in names if asked and name.startswith(asked)]
    if len(found) != 1:
        some = min(names, default="01")[:2]
        raise ValueError(
            f"which lesson? {asked!r} names {len(found)}; say e.g. make {command} LESSON={some}. "
            f"There are {', '.join(names)}."
        )
    return names[found[0]]


def parser(command: str, about: str | None) -> argparse.ArgumentParser:
    """What `python -m helpers.classroom.<command>` is asked. about: in lines as they are shown."""
    return argparse.ArgumentParser(
        prog=f"python -m helpers.classroom.{command}",
        description=about,
        formatter_class=argparse.RawTextHelpFormatter,
    )


def odd_id(student: str) -> str:
    """Why a folder's name cannot be a student's id, in a sentence; "" where it can. nbgrader takes ids for patterns, and cuts
    blanks off their ends: work under such a name would be entered for another student."""
    if set(student) & set("*?[]"):
        why = "`*`, `?`, `[` and `]` would stand for the names of others"
    elif not student.isprintable() or student != student.strip():
        why = "it holds a line's end, a control character, or a blank at an end"
    else:
        return ""
    return f"its folder's name is no student's id: {why}. Rename the folder"
