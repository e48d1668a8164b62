"""Submissions of real lessons: the whole notebook in the sandbox, and the round trip with nbgrader, honest and dishonest."""

import ast
import copy
import csv
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.apps import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from helpers.classroom import build, grading, wording
from helpers.classroom import master as masters
from helpers.classroom.engine import grade
from helpers.classroom.master import Master
from helpers.classroom.sandbox import Warm, available
from helpers.classroom.submission import GRADING, clean, steps_of
from tests.test_odd_answers import cpu_s

SUBMISSIONS = Path(__file__).parent / "submissions"
LESSONS = [masters.read(p) for p in build.find([])]
CHEATED = "01_storage_and_stride"
#: here a wrong answer, or one that is not run, spoils a right one that comes after it; the fast runner takes the earlier ones from the master
BUILD_ON_EARLIER = {"13_quantization", "17_capstone"}
#: seconds of processor time that all answers and tests of a lesson may take: a busy machine changes little of it
MOST = 30
#: … of the lesson whose exercises are tested by whole trainings, some at full size
MOST_OF_ALL = {"17_capstone": 120}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def nbgrader(course: Path, *command: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", *command],
        cwd=course,
        capture_output=True,
        text=True,
        timeout=15 * 60,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
    return run.stdout + run.stderr


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """The sandbox that submissions are run in; without one where there is none, and test_sandbox.py is skipped too."""
    with Warm(sandboxed=not available()) as running:
        yield running


def texts(name: str, kind: str) -> dict[str, str]:
    """For each exercise of a lesson an answer of this kind: "right" or "wrong"."""
    return {f.name: min(f.glob(f"{kind}_*.py")).read_text() for f in (SUBMISSIONS / name).iterdir()}


def fill(released: NotebookNode, written: dict[str, str]) -> NotebookNode:
    nb = copy.deepcopy(released)
    for cell in nb.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in written:
            cell.source = written[grade_id]
    return nb


def graded(nb: NotebookNode) -> list[NotebookNode]:
    return [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade")]


# --- what a submission may try --------------------------------------------------------------------------------


def tags_everything(nb: NotebookNode) -> None:
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.metadata["tags"] = ["skip-execution", "experiment"]


def says_not_graded(nb: NotebookNode) -> None:
    for cell in graded(nb):
        cell.metadata.nbgrader["grade"] = False


def says_more_points(nb: NotebookNode) -> None:
    for cell in graded(nb):
        cell.metadata.nbgrader["points"] = 100


def deletes_tests(nb: NotebookNode) -> None:
    nb.cells = [c for c in nb.cells if not c.metadata.get("nbgrader", {}).get("grade")]


def empties_tests(nb: NotebookNode) -> None:
    for cell in graded(nb):
        cell.source = "pass"


REDEFINES = """
import helpers, helpers.counters, helpers.check, helpers.check.judge
from helpers import check
nothing = lambda *args, **kwargs: None
check.function = check.value = nothing
helpers.check.judge.function = helpers.check.judge.value = nothing
helpers.counters.count = helpers.count = nothing
helpers.check.judge.CheckFailed = type("CheckFailed", (Warning,), {})
"""
TRANSFORMS = """
import ast
class Nothing(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Pass()
    visit_Assert = visit_Expr
get_ipython().ast_transformers.append(Nothing())
"""
BLINDS = """
import torch, weakref, helpers.check.probe as probe
import torch.utils._python_dispatch as dispatch
one = torch.zeros(1).untyped_storage()
torch.Tensor.untyped_storage = lambda self: one
torch.equal = torch.allclose = torch.testing.assert_close = lambda *args, **kwargs: True
weakref.finalize = lambda *args, **kwargs: None
dispatch.TorchDispatchMode.__enter__ = lambda self: self
dispatch._push_mode = lambda mode: None
probe._count = probe._run = probe.answer = None
"""
EQUAL = """
class Yes:
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __bool__(self): return True
"""


def in_first_exercise(code: str) -> Callable[[NotebookNode], None]:
    def change(nb: NotebookNode) -> None:
        cell = next(c for c in nb.cells if c.metadata.get("nbgrader", {}).get("solution"))
        cell.source = code + "\n" + cell.source

    return change


def adds_a_refused_cell(nb: NotebookNode) -> None:
    """What no answer needs costs nothing."""
    nb.cells.insert(1, new_code_cell("import subprocess"))


def always_equal(nb: NotebookNode) -> None:
    for cell in nb.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("solution"):
            cell.source = EQUAL + f"\n{meta['grade_id']} = Yes()"


#: name -> (how the submission is made from a notebook, the answers that it starts from, what it may earn)
TRICKS: dict[str, tuple[Callable[[NotebookNode], None], str | None, str]] = {
    "tags": (tags_everything, None, "nothing"),
    "not-graded": (says_not_graded, "right", "full"),
    "more-points": (says_more_points, None, "nothing"),
    "deleted": (deletes_tests, "right", "full"),
    "emptied": (empties_tests, None, "nothing"),
    "redefines": (in_first_exercise(REDEFINES), None, "nothing"),
    "transforms": (in_first_exercise(TRANSFORMS), None, "nothing"),
    "blinds": (in_first_exercise(BLINDS), "wrong", "no more"),
    "equal": (always_equal, None, "nothing"),
    "exits": (in_first_exercise("import os; os._exit(0)"), "right", "but the first"),
    "added": (adds_a_refused_cell, "right", "full"),
    "stderr": (
        in_first_exercise("import sys, warnings; print('noise', file=sys.stderr); warnings.warn('noise')"),
        "right",
        "full",
    ),
    "untouched": (lambda nb: None, None, "nothing"),
}


def hand_in(root: Path, master: Master, student: str, nb: NotebookNode) -> Path:
    folder = root / "submitted" / student / master.name
    folder.mkdir(parents=True)
    nbformat.write(nb, folder / f"{master.name}.ipynb")
    return folder


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A class graded by nbgrader: a right, a wrong and many dishonest submissions of one lesson.

    By its buttons: with the same course, its commands are in tests/test_class.py, and here for what comes after.
    """
    root = tmp_path_factory.mktemp("course")
    master = next(m for m in LESSONS if m.name == CHEATED)
    (root / "solutions" / CHEATED).mkdir(parents=True)
    shutil.copy(build.ROOT / "nbgrader_config.py", root)
    shutil.copy(build.reference_path(master), root / "solutions" / CHEATED)
    buttons = NbGraderAPI(config=PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config())
    said = buttons.generate_assignment(CHEATED)
    assert said["success"], said
    starts = {kind: texts(CHEATED, kind) for kind in ("right", "wrong")}
    given = nbformat.read(root / "notebooks" / CHEATED / f"{CHEATED}.ipynb", as_version=4)
    students = {kind: fill(given, starts[kind]) for kind in starts}
    for name, (change, start, _) in TRICKS.items():
        students[name] = fill(given, starts[start] if start else {})
        change(students[name])
    folders = {student: hand_in(root, master, student, nb) for student, nb in students.items()}
    shadow = folders["tags"] / "helpers"  # a file that shadows the course's package
    shadow.mkdir()
    (shadow / "__init__.py").write_text(
        "class Any:\n    def __getattr__(self, n): return lambda *a, **k: None\ncheck = lesson = count = Any()\n"
    )
    for student in students:
        said = buttons.autograde(CHEATED, student)
        assert said["success"], said
    grading.bench().end()
    nbgrader(root, "export")
    yield root


def scores(course: Path, assignment: str) -> dict[str, tuple[float, float]]:
    with (course / "grades.csv").open() as file:
        return {
            r["student_id"]: (float(r["score"]), float(r["max_score"]))
            for r in csv.DictReader(file)
            if r["assignment"] == assignment
        }


def imports(cell: str) -> str:
    """What a cell imports: who writes an answer into it leaves that there, and later exercises may name it."""
    found = (node for node in ast.parse(cell).body if isinstance(node, ast.Import | ast.ImportFrom))
    return "".join(f"{ast.unparse(node)}\n" for node in found)


def passed(warm: Warm, folder: Path, master: Master) -> set[str]:
    """The tests, by grade_id, that a submission passes in the sandbox."""
    nb = clean(folder, build.reference_path(master))
    assert not nb.metadata[GRADING]["not_gradable"]
    return {e["verdict"] for e in grade(warm, steps_of(nb), master.name) if e.get("passed")}


@pytest.mark.parametrize("master", LESSONS, ids=lambda m: m.name)
def test_the_references_earn_all_points(warm: Warm, tmp_path: Path, master: Master) -> None:
    """The whole notebook in the sandbox, without any experiment, in seconds: the first exercise answered by the reference
    and no other; and the first wrongly, by what tests/test_submissions.py has, and all others by the reference.

    A lesson can go wrong in what its notebook is cut into, in what one answer leaves to the next, and in what the sandbox
    keeps from it (a compiler, processes, memory). From the verdicts to the gradebook all lessons go one way, which is
    taken with lesson 01, here and in tests/test_class.py; that notebooks are released as they are built,
    tests/test_references.py says.
    """
    given = nbformat.read(build.NOTEBOOKS / master.name / f"{master.name}.ipynb", as_version=4)
    references = {c.grade_id: c.source for c in master.cells if c.kind == "exercise"}
    worth = {c.grade_id: c.points for c in master.cells if c.kind in ("test", "hidden")}
    assert sum(worth.values()) == sum(e.points for e in master.exercises)
    first = master.exercises[0].id
    of_first = {c.grade_id for c in master.cells if c.exercise == first and c.grade_id in worth}
    wrong = imports(references[first]) + texts(master.name, "wrong")[first]
    said = re.search(r"^# .*: earns (\d+)$", wrong, re.MULTILINE)
    assert said is not None
    began, before, sandbox = time.process_time(), cpu_s(warm), warm.pid
    if master.name in BUILD_ON_EARLIER:
        all_right = hand_in(tmp_path, master, "all", fill(given, references))
        assert passed(warm, all_right, master) == set(worth)
    else:
        alone = hand_in(tmp_path, master, "first", fill(given, {first: references[first]}))
        assert passed(warm, alone, master) == of_first
        others = passed(
            warm, hand_in(tmp_path, master, "others", fill(given, references | {first: wrong})), master
        )
        assert others - of_first == set(worth) - of_first
        assert sum(worth[name] for name in others & of_first) == int(said[1])
    assert warm.pid == sandbox, "it has swept up after each notebook, and was not made anew"
    took = time.process_time() - began + cpu_s(warm) - before
    assert took < MOST_OF_ALL.get(master.name, MOST), f"{took:.0f} s of processor time"


@pytest.mark.parametrize("name", TRICKS)
def test_no_unearned_points(course: Path, name: str) -> None:
    earned, possible = scores(course, CHEATED)[name]
    honest = scores(course, CHEATED)["wrong"][0]
    first = next(m for m in LESSONS if m.name == CHEATED).exercises[0].points
    wanted = {"full": possible, "nothing": 0, "no more": honest, "but the first": possible - first}
    assert earned == wanted[TRICKS[name][2]]


def test_feedback_is_made(course: Path) -> None:
    nbgrader(course, "generate_feedback", CHEATED, "--student", "wrong")  # of everybody: tests/test_class.py
    page = (course / "feedback" / "wrong" / CHEATED / f"{CHEATED}.html").read_text()
    assert "CheckFailed" not in page.split("</style>")[0]
    assert "✗" in page, "the learner reads what was measured and what was wanted"


def test_a_failed_hidden_test_keeps_the_help_that_its_lesson_wrote() -> None:
    text = "✗ clip(17, seed=3): wrong\n  no element of that tensor lies in that cell\n  the answer printed 17"
    said = wording.discreetly(text, "01_storage_and_stride").splitlines()
    assert said[1:] == ["no element of that tensor lies in that cell"]
    assert "lies in that cell" not in wording.discreetly(text, "08_memory_pools")
