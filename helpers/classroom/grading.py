"""nbgrader's autograde, with the judge outside the learner's kernel.

Setup and exercise cells run in the kernel as in stock nbgrader. A test cell does not: its source, taken from the
gradebook, runs in the grader's process and asks the kernel for values and counters as plain data. Hidden tests and
expected values therefore never enter the process that the learner's code controls.
"""

import contextlib
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    Execute,
    IgnorePattern,
    LimitOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)

from helpers.check.screen import screen
from helpers.classroom import sparing
from helpers.classroom.feedback import FeedbackExporter
from helpers.classroom.judging import Verdict, judge
from helpers.classroom.sanitise import Sanitise
from helpers.classroom.settings import CELL_TIMEOUT, EXPERIMENT_TAG, ONE_THREAD, QUIET_KERNEL, ROOT, STUB

REPLY = "application/vnd.pytorch-performance.reply+json"

#: run in the kernel before the learner's cells; `helpers` is the installed one whatever lies beside the notebook
PRELUDE = """
def _prelude(nonce):
    import os, sys
    sys.path[:] = [p for p in sys.path if p not in ("", ".") and os.path.realpath(p) != os.path.realpath(os.getcwd())]
    import types
    import helpers.check.probe as probe
    probe.load()
    from IPython.display import display
    def reply(request, answer=probe.answer, space=get_ipython().user_ns, display=display, loads=__import__("json").loads):
        display({%r: answer(loads(request), space)}, raw=True)
    sys.modules[nonce] = types.SimpleNamespace(reply=reply)
_prelude(%r)
del _prelude
"""


def _graded(resources: ResourcesDict) -> dict[str, dict[str, Any]]:
    """What the gradebook knows of this notebook's cells: grade_id → grade, solution, locked, points, source."""
    about = resources["nbgrader"]
    with Gradebook(about["db_url"]) as gradebook:
        notebook = gradebook.find_notebook(about["notebook"], about["assignment"])
        cells: dict[str, dict[str, Any]] = {
            c.name: {
                "grade": False,
                "solution": False,
                "locked": c.locked,
                "source": c.source,
                "cell_type": c.cell_type,
            }
            for c in notebook.source_cells
        }
        for grade in notebook.grade_cells:
            cells[grade.name] |= {"grade": True, "points": grade.max_score}
        for solution in notebook.solution_cells:
            cells[solution.name]["solution"] = True
    return cells


class RestoreMetadata(NbGraderPreprocessor):
    """A cell's role and points are the master's, whatever the submission's metadata say; tags skip nothing that counts."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        known = _graded(resources)
        for cell in nb.cells:
            meta = cell.metadata.get("nbgrader")
            if not isinstance(meta, dict):
                continue
            cell.metadata["tags"] = [t for t in cell.metadata.get("tags", []) if t != EXPERIMENT_TAG]
            if about := known.get(str(meta.get("grade_id"))):
                meta |= {k: about[k] for k in ("grade", "solution", "locked")} | {
                    "schema_version": 3,
                    "task": False,
                }
                meta.pop("points", None)
                if about["grade"]:
                    meta["points"] = about["points"]
        return nb, resources


class Judge(Execute):
    """Executes a submission; its test cells are judged here and not in the kernel."""

    def preprocess(
        self, nb: NotebookNode, resources: ResourcesDict, km: Any = None
    ) -> tuple[NotebookNode, ResourcesDict]:
        known = _graded(resources)
        self._tests = {name: about["source"] for name, about in known.items() if about["grade"]}
        self._masters = {name for name, about in known.items() if about["locked"]}
        self._nonce = f"_course_{secrets.token_hex(8)}"
        self._ready = False
        self._ended = ""
        # a cell's grade_id, or "" for one that the student added → why it is not run
        self._refused: dict[str, str] = {}
        done: tuple[NotebookNode, ResourcesDict] = super().preprocess(nb, resources, km)
        return done

    def setup_kernel(self, **kwargs: Any) -> Any:
        return super().setup_kernel(env=os.environ | ONE_THREAD, **kwargs)

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        if cell.cell_type != "code":
            return cell, resources
        if not self._ready:
            self._ready = True
            self._run(PRELUDE % (REPLY, self._nonce), index)
            self.nb.cells[index] = cell
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in self._tests:
            verdict = self._verdict(grade_id, index)
            cell.outputs = [_output(verdict)]
            cell.execution_count = 1  # it did run
            self.nb.cells[index] = cell  # nbclient has put the last request there
            return cell, resources
        if grade_id not in self._masters and EXPERIMENT_TAG not in cell.metadata.get("tags", []):
            if refused := screen(cell.source, resources["nbgrader"]["notebook"]):
                self._refused[grade_id or ""] = refused
                return cell, resources
        if not self._ended:
            try:
                self.execute_cell(cell, index, store_history=True)
            except DeadKernelError:
                self._ended = "an earlier cell ended the kernel"
        return cell, resources

    def _verdict(self, grade_id: str, index: int) -> Verdict:
        if refused := self._refused.get(grade_id.rpartition("__")[0]):
            return Verdict(False, refused)
        return judge(self._tests[grade_id], grade_id, lambda request: self._ask(request, index))

    def _run(self, code: str, index: int) -> list[NotebookNode]:
        cell = new_code_cell(code)
        try:
            self.execute_cell(cell, index, store_history=False)
        except DeadKernelError:
            self._ended = "the kernel ended while this test was running"
        except CellTimeoutError:
            self._ended = f"no answer within {self.timeout} s"
        outputs: list[NotebookNode] = cell.outputs
        return outputs

    def _ask(self, request: dict[str, Any], index: int) -> dict[str, Any]:
        if self._ended:
            return {"broken": self._ended}
        outputs = self._run(f"__import__({self._nonce!r}).reply({json.dumps(request)!r})", index)
        replies = [o.data[REPLY] for o in outputs if REPLY in o.get("data", {})]
        if replies:
            reply = dict(replies[-1])
            if reply.get("missing") and "" in self._refused:
                return {"broken": f"a cell before this one was not run: {self._refused['']}"}
            return reply
        ends = [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]
        return {"broken": self._ended or (f"it did not answer ({ends[0]})" if ends else "it did not answer")}


def _output(verdict: Verdict) -> NotebookNode:
    if verdict.passed:
        return new_output("stream", name="stdout", text=verdict.text)
    return new_output("error", ename="CheckFailed", evalue=verdict.text, traceback=["✗ " + verdict.text])


SANITIZE = [
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    RestoreMetadata,
    OverwriteCells,
    Sanitise,
    CheckCellMetadata,
]
AUTOGRADE = [
    *(
        Judge,
        Sanitise,
        IgnorePattern,
        ClearMetadataPreprocessor,
        LimitOutput,
        SaveAutoGrades,
        AssignLatePenalties,
    ),
    CheckCellMetadata,
]


def configure(c: Any, root: Path = ROOT) -> None:
    """Set the course's layout, its grading steps and its time limits on the traitlets config ``c``."""
    # nbgrader runs `alembic` by name; find the one of this environment also where it is not activated
    own = str(Path(sys.executable).parent)
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", "")])
    c.CourseDirectory.course_id = "pytorch-performance-measured"
    c.CourseDirectory.root = str(root)
    c.CourseDirectory.source_directory = "solutions"
    c.CourseDirectory.release_directory = "notebooks"
    sparing.spare(c)
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "*.py", "*.pyc", "*.answers-*"]
    c.ClearSolutions.code_stub = {"python": STUB}
    # a deleted test is put back and graded
    c.OverwriteCells.add_missing_cells = True
    # this replaces nbclient's default tag, so tagging a cell skip-execution does nothing
    c.NotebookClient.skip_cells_with_tag = EXPERIMENT_TAG
    c.Execute.extra_arguments = QUIET_KERNEL
    c.ExecutePreprocessor.timeout = CELL_TIMEOUT
    c.Execute.timeout = CELL_TIMEOUT
    c.Autograde.sanitize_preprocessors = SANITIZE
    c.Autograde.autograde_preprocessors = AUTOGRADE
    # the page asks the gradebook itself
    c.GenerateFeedback.preprocessors = []
    c.GenerateFeedback.exporter_class = FeedbackExporter
    exchange = root / ".exchange"
    with contextlib.suppress(OSError):  # a course folder may be read-only; then formgrader says so
        exchange.mkdir(exist_ok=True)
    c.Exchange.root = str(exchange)
