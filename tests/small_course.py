"""A course of one small lesson with a gradebook, made without running anything: for tests of what comes after grading."""

import shutil
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config, PyFileConfigLoader

from helpers.classroom.grading import configure

ROOT = Path(__file__).resolve().parents[1]
LESSON = "01_storage_and_stride"  # its tests' own words are looked up by this name
TASK = """**Exercise 1.3 — the same numbers, a different walk** (★★, 12 min)

Rows of $x_i$ that overlap.

<details><summary>Hint 1</summary>What does <code>as_strided</code> take?</details>"""
VISIBLE = "windows(float32 tensor (8,), 3): values are right, but it copied 2 times; wanted at most 1.\n  look again at: More elements than memory, as_strided: rows that overlap"
HIDDEN = "windows(float32 tensor (77, 78), 79): the result has shape (71,), wanted (72, 73)\n  look again at: More elements than memory, as_strided: rows that overlap"
POINTS = {"windows__test": 2.0, "windows__hidden": 3.0, "clip__test": 2.0, "clip__hidden": 3.0}


def laid_out(root: Path, lesson: str = LESSON) -> Path:
    """A course of one of the real lessons, not yet released."""
    (root / "solutions" / lesson).mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / lesson / f"{lesson}.ipynb", root / "solutions" / lesson)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    return root


def cell(grade_id: str, source: str) -> NotebookNode:
    graded = "__" in grade_id
    about = {
        "grade": graded, "grade_id": grade_id, "locked": graded, "schema_version": 3, "solution": not graded, "task": False,
    }  # fmt: skip
    if graded:
        about["points"] = POINTS[grade_id]
    return new_code_cell(source, id=grade_id, metadata={"nbgrader": about})


def reference() -> NotebookNode:
    return new_notebook(
        cells=[
            new_markdown_cell("# 01 · Storage and stride\n\n## The question?", id="title"),
            new_markdown_cell(TASK, id="task"),
            cell("windows", "def windows(x):\n    return x"),
            cell("windows__test", "check_windows(8)"),
            cell("windows__hidden", "### BEGIN HIDDEN TESTS\ncheck_windows(7777)\n### END HIDDEN TESTS"),
            new_markdown_cell("**Exercise 1.5 — four copies, or one** (★★★, 15 min)", id="task2"),
            cell("clip", "def clip(video):\n    return video"),
            cell("clip__test", "check_clip(8)"),
            cell("clip__hidden", "### BEGIN HIDDEN TESTS\ncheck_clip(8888)\n### END HIDDEN TESTS"),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


def graded(failed: dict[str, str], **report: Any) -> NotebookNode:
    """A notebook as grading leaves it. failed: grade_id → verdict; all other tests passed. report: more of it."""
    nb, verdicts = reference(), {}
    for name in POINTS:
        text = failed.get(name, "✓ windows: 2 cases, values right")
        verdicts[name] = {"passed": name not in failed, "text": text, "human": ""}
    about = {"lesson": LESSON, "not_gradable": "", "notes": [], "human": [], "verdicts": verdicts}
    nb.metadata["course_grading"] = about | report
    return nb


class Course:
    def __init__(self, root: Path) -> None:
        self.root = root
        configure(Config(), root)  # it also puts the commands that nbgrader runs on the PATH
        shutil.copy(ROOT / "nbgrader_config.py", root)
        (root / "solutions" / LESSON).mkdir(parents=True)
        nbformat.write(reference(), root / "solutions" / LESSON / f"{LESSON}.ipynb")
        with self.gradebook() as book:
            book.add_assignment(LESSON)
            book.add_notebook(LESSON, LESSON)
            for name, points in POINTS.items():
                book.add_grade_cell(name, LESSON, LESSON, max_score=points, cell_type="code")
            for name in ("windows", "clip"):
                book.add_solution_cell(name, LESSON, LESSON)

    def gradebook(self) -> Gradebook:
        return Gradebook(f"sqlite:///{self.root / 'gradebook.db'}", "pytorch-performance-measured")

    def add(
        self,
        student: str,
        nb: NotebookNode | None,
        scores: dict[str, float | None] | None,
        doubted: str = "",
        **who: str,
    ) -> str:
        """A student with a graded notebook and scores (``None``: not graded). doubted: a test whose points a person is to see. Returns the submission's id, or ""."""
        if nb is not None:
            folder = self.root / "autograded" / student / LESSON
            folder.mkdir(parents=True)
            nbformat.write(nb, folder / f"{LESSON}.ipynb")
        with self.gradebook() as book:
            book.add_student(student, **who)
            if scores is None:
                return ""
            book.add_submission(LESSON, student)
            for name in POINTS:
                grade = book.find_grade(name, LESSON, LESSON, student)
                grade.auto_score = scores.get(name)
                grade.needs_manual_grade = grade.auto_score is None or name == doubted
            book.db.commit()
            return str(book.find_submission_notebook(LESSON, LESSON, student).id)

    def api(self) -> NbGraderAPI:
        return NbGraderAPI(config=PyFileConfigLoader("nbgrader_config.py", path=str(self.root)).load_config())

    def feedback(self, student: str) -> Path:
        """The page that nbgrader's own button makes."""
        result = self.api().generate_feedback(LESSON, student, force=True)
        assert result["success"], result
        return self.root / "feedback" / student / LESSON / f"{LESSON}.html"
