"""nbgrader's own commands and buttons, on the course's intake, sandbox and judge.

``nbgrader autograde`` and the formgrader come in by nbgrader's extension points: the class that reads a notebook
(``Autograde.exporter_class``) and the steps that follow. No kernel is started. What a submission holds is taken in as
plain data, its cells run in a sandbox, and its tests are judged in a third process.
"""

import contextlib
import glob
import os
import re
import sys
import warnings
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import nbgrader.api
from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.apps import api
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.dbutil import ALEMBIC_DIR
from nbgrader.preprocessors import (
    AssignLatePenalties,
    ClearSolutions,
    NbGraderPreprocessor,
)
from nbgrader.utils import compute_checksum, is_grade, is_solution, is_task
from sqlalchemy import create_engine
from sqlalchemy.exc import SAWarning

from helpers.classroom import journal, sparing
from helpers.classroom.bench import Bench
from helpers.classroom.exchange import Collect, ReleaseFeedback, handed_in
from helpers.classroom.feedback import FeedbackExporter
from helpers.classroom.sanitise import Sanitise
from helpers.classroom.settings import (
    CELL_TIMEOUT,
    COURSE_ID,
    EXCHANGE,
    EXPERIMENT_TAG,
    OPEN_STUB,
    QUIET_KERNEL,
    ROOT,
    STUB,
    odd_id,
)
from helpers.classroom.submission import GRADING, clean, enter, key_of, steps_of


@cache
def gradebook_version() -> str:
    """What a new gradebook's tables are called: nbgrader starts `alembic heads` for it, and that loads for seconds."""
    from alembic.script import ScriptDirectory

    return str(ScriptDirectory(ALEMBIC_DIR).get_current_head())


def install() -> None:
    """Put the course's own in nbgrader's modules, where no setting does."""
    # a submission's way opens the gradebook eight times, and nbgrader makes an engine each time, which has then to
    # compile every statement anew; this one keeps them, and `Gradebook.close` still closes its connections
    if nbgrader.api.create_engine is create_engine:
        nbgrader.api.create_engine = cache(create_engine)
    nbgrader.api.get_alembic_version = gradebook_version
    api.Autograde = OneFolder


class Careful(CourseDirectory):
    """A course directory that takes from a submission its notebook alone, and the time in a timestamp.txt that is one.

    Stock nbgrader copies every other file too, through links, and ends where a time cannot be read.
    """

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        return handed_in(dest_path)


class Intake(NotebookExporter):
    """Reads a submission by way of :func:`helpers.classroom.submission.clean`; what it was cleaned to, as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._converter: Any = self.parent
        if not isinstance(self._converter, Autograde):
            return
        there = self._converter.coursedir
        course = Careful(
            parent=there.parent, **{name: getattr(there, name) for name in there.trait_names(config=True)}
        )
        course.ignore = ["*"]  # nothing but the notebook leaves a submission's folder
        self._converter.coursedir = course
        # whatever a folder holds, under any name; stock nbgrader passes over one without an .ipynb
        for folder in glob.glob(self._converter._format_source(course.assignment_id, course.student_id)):
            if os.path.isdir(folder):
                self._converter.assignments.setdefault(folder, [])
        for folder in list(self._converter.assignments):
            if why := odd_id(Path(folder).parent.name):
                self._converter.log.warning("%a is not graded: %s", folder, why)
                del self._converter.assignments[folder]
        for folder in self._converter.assignments:
            self._converter.assignments[folder] = [os.path.join(folder, f"{Path(folder).name}.ipynb")]
            self._forget(Path(folder))

    def from_filename(
        self, filename: str, resources: dict[str, Any] | None = None, **options: Any
    ) -> tuple[NotebookNode, dict[str, Any]]:
        if not self._converter._sanitizing:
            return super().from_filename(filename, resources, **options)
        return self.from_notebook_node(self._clean(Path(filename).parent), resources, **options)

    def _clean(self, folder: Path) -> NotebookNode:
        course, name = self._converter.coursedir, folder.name
        source = course.format_path(course.source_directory, ".", name)
        nb = clean(folder, Path(course.root, source, f"{name}.ipynb"))
        if os.path.lexists(folder / "timestamp.txt") and course.get_existing_timestamp(str(folder)) is None:
            nb.metadata[GRADING]["notes"].append("timestamp.txt holds no time, and counts as not late")
        return nb

    def _forget(self, folder: Path) -> None:
        """Remove what was made of an earlier submission, since nbgrader would pass over a newer one."""
        course, name = self._converter.coursedir, folder.name
        earlier = (
            Path(course.format_path(course.autograded_directory, folder.parent.name, name)) / f"{name}.ipynb"
        )
        if earlier.exists():
            graded = nbformat.read(earlier, as_version=4).metadata.get(GRADING, {})
            if graded.get("digest") != self._clean(folder).metadata[GRADING]["digest"]:
                earlier.unlink()


class OneFolder(Autograde):
    """What the formgrader's button runs: one student's folder, also where nothing in it is called .ipynb.

    Stock nbgrader stops there. Its button names the class in its module, and no setting does.
    """

    def init_notebooks(self) -> None:
        self.notebooks: list[str] = []
        folder = self._format_source(self.coursedir.assignment_id, self.coursedir.student_id)
        self.assignments: dict[str, list[str]] = {folder: []}


@cache
def bench() -> Bench:
    """This process's judge; it is kept, since starting one takes seconds."""
    return Bench()


class Judge(NbGraderPreprocessor):
    """Puts the verdicts into a clean notebook: those that were found before, or new ones."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        about = nb.metadata[GRADING]
        if not about["not_gradable"]:
            course, key = Path(self.parent.parent.coursedir.root), key_of(nb)
            done = journal.recall(course, key)
            if done is None:
                done = bench().grade(about["lesson"], steps_of(nb))
                journal.keep(course, key, done)
            enter(nb, done)
        return nb, resources


class SaveVerdicts(NbGraderPreprocessor):
    """A test's points into the gradebook. What is not gradable has none, and waits for a person: it is not 0.

    nbgrader's own asks for each cell's row and commits it by itself; this does both once for a notebook.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        about, report = resources["nbgrader"], nb.metadata[GRADING]
        with Gradebook(about["db_url"]) as gradebook:
            kept = gradebook.find_submission_notebook(
                about["notebook"], about["assignment"], about["student"]
            )
            grades, comments = ({row.name: row for row in rows} for rows in (kept.grades, kept.comments))
            for cell in nb.cells:
                grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
                if is_grade(cell):
                    self._score(grades[grade_id], report["verdicts"].get(grade_id), report["human"])
                if is_solution(cell) or is_task(cell):
                    untouched = cell.metadata["nbgrader"].get("checksum") == compute_checksum(cell)
                    comments[grade_id].auto_comment = (
                        "No response." if untouched and not is_task(cell) else None
                    )
            gradebook.db.commit()
        return nb, resources

    @staticmethod
    def _score(grade: Any, verdict: dict[str, Any] | None, human: list[str]) -> None:
        before, grade.auto_score = grade.auto_score, verdict["points"] if verdict else None
        # what a person gave for another answer is confirmed by a person
        by_hand = grade.manual_score is not None and (grade.needs_manual_grade or before != grade.auto_score)
        if by_hand:
            human.append(f"{grade.name}: {grade.manual_score:g} points set by hand for an earlier submission")
        grade.needs_manual_grade = verdict is None or bool(verdict["human"]) or by_hand


class Clear(ClearSolutions):
    """nbgrader's own, but for an answer in no function: a comment stands in its place."""

    def _replace_solution_region(self, cell: NotebookNode, language: str) -> bool:
        replaced = bool(super()._replace_solution_region(cell, language))
        cell.source = re.sub(rf"(?m)^{re.escape(STUB)}$", OPEN_STUB, cell.source)
        return replaced


GENERATE = [Clear if kind is ClearSolutions else kind for kind in GenerateAssignment().preprocessors]
SANITIZE: list[type[NbGraderPreprocessor]] = [Sanitise]
# of each cell, nbgrader's metadata are the master's by now, and were checked when that was released
AUTOGRADE = [Judge, Sanitise, SaveVerdicts, AssignLatePenalties]


def configure(c: Any, root: Path = ROOT) -> None:
    """Set the course's layout, its grading steps and its time limits on the traitlets config ``c``."""
    install()
    # nbgrader runs `alembic` by name; find the one of this environment also where it is not activated
    own = str(Path(sys.executable).parent)
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", "")])
    # nbgrader's own way with its database, of which nothing follows for who grades
    warnings.filterwarnings("ignore", message="Object of type <Submitted", category=SAWarning)
    c.CourseDirectory.course_id = COURSE_ID
    c.CourseDirectory.root = str(root)
    if url := os.environ.get("GRADEBOOK"):
        c.CourseDirectory.db_url = url
    c.CourseDirectory.source_directory = "solutions"
    c.CourseDirectory.release_directory = "notebooks"
    sparing.spare(c)
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "*.py", "*.pyc", "*.answers-*"]
    c.ClearSolutions.code_stub = {"python": STUB}
    c.GenerateAssignment.preprocessors = GENERATE
    # when the learner validates: this replaces nbclient's default tag, so tagging a cell skip-execution does nothing
    c.NotebookClient.skip_cells_with_tag = EXPERIMENT_TAG
    c.Execute.extra_arguments = QUIET_KERNEL
    c.ExecutePreprocessor.timeout = CELL_TIMEOUT
    c.Execute.timeout = CELL_TIMEOUT
    c.Autograde.exporter_class = Intake
    c.Autograde.sanitize_preprocessors = SANITIZE
    c.Autograde.autograde_preprocessors = AUTOGRADE
    # the page asks the gradebook itself
    c.GenerateFeedback.preprocessors = []
    c.GenerateFeedback.exporter_class = FeedbackExporter
    exchange = Path(os.environ.get(EXCHANGE) or root / ".exchange")
    with contextlib.suppress(OSError):  # a course folder may be read-only; then formgrader says so
        exchange.mkdir(exist_ok=True)
    c.Exchange.root = str(exchange)
    c.ExchangeFactory.collect = Collect
    c.ExchangeFactory.release_feedback = ReleaseFeedback
