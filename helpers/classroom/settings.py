"""The course's nbgrader settings, one place for ``nbgrader_config.py`` and for the build."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions"
NOTEBOOKS = ROOT / "notebooks"
#: cells with this tag are for the reader; grading and validating pass over them
EXPERIMENT_TAG = "experiment"
#: seconds that one cell of a lesson may take
CELL_TIMEOUT = 120
#: what a kernel that grades or builds is told: processes share the cores already, and threads that wait for one another
#: would burn four times the time
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: a kernel on this machine's loopback need not warn, for every submission, that it is not encrypted
QUIET_KERNEL = ["--IPKernelApp.log_level=40"]


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
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "*.py", "*.pyc", "*.answers-*"]
    c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()  # your answer"}
    # a deleted test is put back and graded
    c.OverwriteCells.add_missing_cells = True
    # this replaces nbclient's default tag, so tagging a cell skip-execution does nothing
    c.NotebookClient.skip_cells_with_tag = EXPERIMENT_TAG
    c.Execute.extra_arguments = QUIET_KERNEL
    c.ExecutePreprocessor.timeout = CELL_TIMEOUT
    c.Execute.timeout = CELL_TIMEOUT
    from helpers.classroom import grading

    c.Autograde.sanitize_preprocessors = grading.SANITIZE
    c.Autograde.autograde_preprocessors = grading.AUTOGRADE
    c.GenerateFeedback.preprocessors = grading.FEEDBACK
    exchange = root / ".exchange"
    with contextlib.suppress(OSError):  # a course folder may be read-only; then formgrader says so
        exchange.mkdir(exist_ok=True)
    c.Exchange.root = str(exchange)
