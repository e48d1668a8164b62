"""What takes minutes or hours, and is run by hand; each prints what it found and fails where a grade is wrong.

python -m tests.long.classroom scale 01 --students 200 --stock 20   a class, against stock nbgrader for some of it
python -m tests.long.classroom kill 01 --students 40 --times 10     killed at random moments: the same grades
python -m tests.long.classroom references --times 100 --load 4      every lesson's reference, under load: full marks
python -m tests.long.classroom beside --times 50                    honest ones beside hostile ones, in drawn orders
python -m tests.long.classroom corpus --jobs 4                      the corpus, graded by the command with four judges
python -m tests.long.classroom corpus --dask                        the same on two workers of a local Dask scheduler
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nbgrader.api import Gradebook

from helpers.classroom import build
from helpers.classroom.bench import Bench
from helpers.classroom.submission import clean, steps_of
from tests import test_class
from tests.corpus.cases import graded, place, saved
from tests.small_course import laid_out
from tests.test_intake import answered

Scores = dict[str, dict[str, float | None]]


def name_of(lesson: str) -> str:
    return next(path.stem for path in build.find([]) if path.stem.startswith(lesson))


def is_honest(answer: Path) -> bool:
    return not answer.read_text(encoding="utf-8").startswith("# dishonest")


def begin(root: Path, name: str, students: int, seed: int = 0) -> Path:
    """A course in which each student has, in each exercise, one of the honest answers of tests/submissions, right or wrong.

    (nbgrader as it comes runs tests where answers run, so a dishonest one can change what it gives for the others.)
    """
    laid_out(root, name)
    dice, right = random.Random(seed), answered(name)
    answers = {
        g: [a for a in sorted((build.ROOT / "tests/submissions" / name / g).glob("*.py")) if is_honest(a)]
        for g in graded(right, "solution")
    }
    for i in range(students):
        for grade_id, found in answers.items():
            right["cells"][place(right, grade_id)]["source"] = dice.choice(found).read_text(encoding="utf-8")
        saved(right, root / "submitted" / f"student-{i:03}" / name / f"{name}.ipynb")
    return root


def scores(root: Path, name: str) -> Scores:
    found: Scores = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "pytorch-performance-measured") as book:
        for submission in book.assignment_submissions(name):
            grades = [g for nb in submission.notebooks for g in nb.grades]
            found[submission.student.id] = {g.name: g.auto_score for g in grades}
    return found


def command(course: Path, name: str, jobs: int) -> subprocess.Popen[bytes]:
    return test_class.command(course, f"jobs={jobs}", lesson=name)


def scale(lesson: str, students: int, stock: int, jobs: int) -> int:
    name = name_of(lesson)
    with tempfile.TemporaryDirectory() as folder:
        ours = begin(Path(folder, "ours"), name, students)
        began = time.monotonic()
        command(ours, name, jobs).wait()
        took = time.monotonic() - began
        again = time.monotonic()
        command(ours, name, jobs).wait()
        again = time.monotonic() - again
        theirs = begin(Path(folder, "stock"), name, stock)
        with (theirs / "nbgrader_config.py").open("a", encoding="utf-8") as config:
            # nbgrader as it comes: a kernel for each submission, in which the tests run too
            config.write(
                "\nfor made in (c.Autograde, c.GenerateFeedback):\n"
                "    for name in ('exporter_class', 'sanitize_preprocessors', 'autograde_preprocessors', 'preprocessors'):\n"
                "        made.pop(name, None)\n"
                "c.CourseDirectory.notebook_id = '*'\n"
            )
        test_class.nbgrader(theirs, "generate_assignment", name)
        began = time.monotonic()
        test_class.nbgrader(theirs, "autograde", name)
        test_class.nbgrader(theirs, "generate_feedback", name)
        stock_took = time.monotonic() - began
        found, other = scores(ours, name), scores(theirs, name)
    unlike = {s: (found[s], other[s]) for s in other if found[s] != other[s]}
    share = took / students / (stock_took / stock)
    print(f"{name}: {students} submissions with {jobs} judges: {took:.0f} s, {took / students:.2f} s each;")
    print(
        f"  nothing new: {again:.1f} s; stock nbgrader: {stock} in {stock_took:.0f} s, {stock_took / stock:.1f} s each;"
    )
    print(f"  share: {share:.3f}; scores unlike stock's: {unlike or 'none'}")
    return int(share > 0.1 or bool(unlike) or len(found) != students)


def kill(lesson: str, students: int, times: int, jobs: int) -> int:
    name, dice = name_of(lesson), random.Random()
    with tempfile.TemporaryDirectory() as folder:
        whole = begin(Path(folder, "whole"), name, students)
        began = time.monotonic()
        command(whole, name, jobs).wait()
        took = time.monotonic() - began
        killed = begin(Path(folder, "killed"), name, students)
        for i in range(times):
            running = command(killed, name, jobs)
            time.sleep(dice.uniform(0.5, 8 + took / times))
            ended = running.poll()
            os.killpg(running.pid, signal.SIGKILL) if ended is None else None
            running.wait()
            print(
                f"  {i + 1}: {'killed' if ended is None else 'had ended'}, {len(scores(killed, name))} entered"
            )
        command(killed, name, jobs).wait()
        same = scores(whole, name) == scores(killed, name)
    print(
        f"{name}: {students} submissions, killed up to {times} times: the grades are {'the same' if same else 'NOT the same'}"
    )
    return int(not same)


def references(times: int, load: int) -> int:
    """load: processes that keep the cores busy meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    wrong = 0
    try:
        with tempfile.TemporaryDirectory() as folder, Bench() as bench:
            for path in build.find([]):
                name = path.stem
                there = Path(folder, name)
                saved(answered(name), there / f"{name}.ipynb")
                steps = steps_of(clean(there, path.with_suffix(".ipynb")))
                full, began = 0, time.monotonic()
                for _ in range(times):
                    failed = {k: v.text for k, v in bench.grade(name, steps).verdicts.items() if not v.passed}
                    full += not failed
                    if failed:
                        print(f"  {failed}")
                print(
                    f"{name}: full marks {full} of {times} times, {(time.monotonic() - began) / times:.1f} s each",
                    flush=True,
                )
                wrong += times - full
    finally:
        for process in busy:
            process.kill()
    return int(wrong > 0)


def corpus(jobs: int, over_dask: bool) -> int:
    from helpers.classroom.grade import grade

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        address = stack.enter_context(test_class.dask())[0] if over_dask else ""
        students = [*test_class.CORPUS, *test_class.CLEAN]
        root = test_class.begin(Path(folder), students)
        grade(root, test_class.LESSON, jobs=jobs, scheduler=address)
        found = test_class.scores(root)
    unlike = {
        s: (found.get(s), test_class.wanted(s)) for s in students if found.get(s) != test_class.wanted(s)
    }
    how = "two workers of Dask" if over_dask else f"{jobs} judges"
    print(f"{len(students)} submissions, {how}; unlike what is due: {unlike or 'none'}")
    return int(bool(unlike))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.long.classroom",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("scale", "kill", "references", "beside", "corpus"))
    parser.add_argument("lesson", nargs="?", default="01")
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--stock", type=int, default=20)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--load", type=int, default=4)
    parser.add_argument("--dask", action="store_true")
    asked = parser.parse_args(argv)
    if asked.what == "scale":
        return scale(asked.lesson, asked.students, asked.stock, asked.jobs)
    if asked.what == "kill":
        return kill(asked.lesson, asked.students, asked.times, asked.jobs)
    if asked.what == "beside":
        from tests.test_beside import beside

        return beside(asked.times)
    return (
        references(asked.times, asked.load) if asked.what == "references" else corpus(asked.jobs, asked.dask)
    )


if __name__ == "__main__":
    sys.exit(main())
