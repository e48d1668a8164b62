"""Submissions of real lessons: the whole notebook in the sandbox."""

import ast
import copy
import re
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from helpers.classroom import build, wording
from helpers.classroom import master as masters
from helpers.classroom.engine import grade
from helpers.classroom.master import Master
from helpers.classroom.sandbox import Warm, available
from helpers.classroom.submission import GRADING, clean, steps_of
from tests.test_odd_answers import cpu_s

SUBMISSIONS = Path(__file__).parent / "submissions"
LESSONS = [masters.read(p) for p in build.find([])]
#: here a wrong answer, or one that is not run, spoils a right one that comes after it; the fast runner takes the earlier ones from the master
BUILD_ON_EARLIER = {"13_quantization", "17_capstone"}
#: seconds of processor time that all answers and tests of a lesson may take: a busy machine changes little of it
MOST = 30
#: … of the lesson whose exercises are tested by whole trainings, some at full size
MOST_OF_ALL = {"17_capstone": 120}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """The sandbox that submissions are run in; without one where there is none, and test_sandbox.py is skipped too."""
    with Warm(sandboxed=not available()) as running:
        yield running


def fill(released: NotebookNode, written: dict[str, str]) -> NotebookNode:
    nb = copy.deepcopy(released)
    for cell in nb.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in written:
            cell.source = written[grade_id]
    return nb


def hand_in(root: Path, master: Master, student: str, nb: NotebookNode) -> Path:
    folder = root / "submitted" / student / master.name
    folder.mkdir(parents=True)
    nbformat.write(nb, folder / f"{master.name}.ipynb")
    return folder


def imports(cell: str) -> str:
    """What a cell imports: who writes an answer into it leaves that there, and later exercises may name it."""
    found = (node for node in ast.parse(cell).body if isinstance(node, ast.Import | ast.ImportFrom))
    return "".join(f"{ast.unparse(node)}\n" for node in found)


def told(warm: Warm, folder: Path, master: Master) -> dict[str, str]:
    """What each test says of a submission in the sandbox, by grade_id; "" of those that it passes."""
    nb = clean(folder, build.reference_path(master))
    assert not nb.metadata[GRADING]["not_gradable"]
    events = grade(warm, steps_of(nb), master.name)
    return {e["verdict"]: "" if e["passed"] else e["text"] for e in events if "verdict" in e}


def passed(warm: Warm, folder: Path, master: Master) -> set[str]:
    return {name for name, why in told(warm, folder, master).items() if not why}


@pytest.mark.parametrize("master", LESSONS, ids=lambda m: m.name)
def test_the_references_earn_all_points(warm: Warm, tmp_path: Path, master: Master) -> None:
    """The whole notebook in the sandbox, without any experiment, in seconds: the first exercise answered by the reference
    and no other; and the first wrongly, by what tests/test_submissions.py has, and all others by the reference.

    A lesson can go wrong in what its notebook is cut into, in what one answer leaves to the next, and in what the sandbox
    keeps from it (a compiler, processes, memory). From the verdicts to the gradebook all lessons go one way, which is
    taken with lesson 01 in tests/test_class.py; that notebooks are released as they are built,
    tests/test_references.py says.
    """
    given = nbformat.read(build.NOTEBOOKS / master.name / f"{master.name}.ipynb", as_version=4)
    references = {c.grade_id: c.source for c in master.cells if c.kind == "exercise"}
    worth = {c.grade_id: c.points for c in master.cells if c.kind in ("test", "hidden")}
    assert sum(worth.values()) == sum(e.points for e in master.exercises)
    first = master.exercises[0].id
    of_first = {c.grade_id for c in master.cells if c.exercise == first and c.grade_id in worth}
    wrong = (
        imports(references[first]) + min((SUBMISSIONS / master.name / first).glob("wrong_*.py")).read_text()
    )
    said = re.search(r"^# .*: earns (\d+)$", wrong, re.MULTILINE)
    assert said is not None
    began, before, sandbox = time.process_time(), cpu_s(warm), warm.pid
    if master.name in BUILD_ON_EARLIER:
        all_right = hand_in(tmp_path, master, "all", fill(given, references))
        assert passed(warm, all_right, master) == set(worth)
    else:
        alone = hand_in(tmp_path, master, "first", fill(given, {first: references[first]}))
        said_alone = told(warm, alone, master)
        assert {name for name, why in said_alone.items() if not why} == of_first
        others_said = [said_alone[name] for name in worth.keys() - of_first]
        assert all("not written yet" in why for why in others_said), "of what the learner is given"
        others = passed(
            warm, hand_in(tmp_path, master, "others", fill(given, references | {first: wrong})), master
        )
        assert others - of_first == set(worth) - of_first
        assert sum(worth[name] for name in others & of_first) == int(said[1])
    assert warm.pid == sandbox, "it has swept up after each notebook, and was not made anew"
    took = time.process_time() - began + cpu_s(warm) - before
    assert took < MOST_OF_ALL.get(master.name, MOST), f"{took:.0f} s of processor time"


def test_a_failed_hidden_test_keeps_the_help_that_its_lesson_wrote() -> None:
    text = "✗ clip(17, seed=3): wrong\n  no element of that tensor lies in that cell\n  the answer printed 17"
    said = wording.discreetly(text, "01_storage_and_stride").splitlines()
    assert said[1:] == ["no element of that tensor lies in that cell"]
    assert "lies in that cell" not in wording.discreetly(text, "08_memory_pools")
