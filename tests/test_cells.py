"""What the visible test says is what grading does: the same text of the same cells, whatever IPython lets one write."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell

from helpers import check
from helpers.check import judge
from helpers.check.cells import as_run, bound, changed, needs, own_part, reads
from helpers.classroom.build import ROOT
from helpers.classroom.engine import grade
from helpers.classroom.matching import match
from helpers.classroom.reading import Written
from helpers.classroom.runner import Runner
from helpers.classroom.step import Step
from helpers.classroom.submission import steps_of
from helpers.lesson import earlier

LESSON = "01_storage_and_stride"
TEST = "from helpers import check\ncheck.function('twice', [check.case(3)], [6])"
TWICE = "def twice(x):\n    return double(x)"
DOUBLE = "def double(x):\n    return 2 * x"
#: what is handed in, cell by cell; the last is the exercise's
RIGHT = {
    "a star": ["from math import *", "def twice(x):\n    return prod([2, x])"],
    "a star over a builtin": ["from math import *", "def twice(x):\n    return str(pow(x, 1)) == '3.0' and 2 * x"],
    "a star of what the grader has not loaded": ["from graphlib import *", "def twice(x):\n    TopologicalSorter\n    return 2 * x"],
    "timed": [f"%%time\n{DOUBLE}", TWICE],
    "timed answer": [DOUBLE, f"%%time\n{TWICE}"],
    "counted": [f"%%count\n{DOUBLE}", TWICE],
    "commands": [f"%matplotlib inline\n!ls\nfiles = !ls\n%time two = 2\n{DOUBLE.replace('2', 'two')}", TWICE],
    "help": [f"{DOUBLE}\ndouble?", TWICE],
    "indented": ["    def double(x):\n        return 2 * x", "  def twice(x):\n      return double(x)"],
    "a table": ["TABLE = {}", "TABLE['f'] = lambda x: 2 * x", "def twice(x):\n    return TABLE['f'](x)"],
    "a table that grows": ["TABLE = {}", "TABLE.update(f=lambda x: 2 * x)", "def twice(x):\n    return TABLE['f'](x)"],
    "an attribute": ["def helper():\n    pass", "helper.x = 2", "def twice(x):\n    return helper.x * x"],
    "a refused cell that nothing needs": ["import logging", DOUBLE, TWICE],
    "a refused cell that was written anew": [f"import logging\n{DOUBLE}", DOUBLE, TWICE],
    "a refused change that was undone": ["TABLE = {}\nTABLE['g'] = open", "TABLE = {}", "TABLE['f'] = 2", "def twice(x):\n    return TABLE['f'] * x"],
}  # fmt: skip
#: … and the words of both
WRONG = {
    "logging": ([f"import logging\n{DOUBLE}", TWICE], "`double`, which .* Line 1 imports `logging`"),
    "a file": ([f"%%time\n{DOUBLE}\n    open('x')", TWICE], "`double`, which .* Line 4 uses `open`"),
    "two cells away": (
        ["def first(x):\n    return eval(x)", "def double(x):\n    return first('2') * x", TWICE],
        "`first`, which .* Line 2 uses `eval`",
    ),
    "a refused change": (
        ["TABLE = {}", "TABLE['f'] = print and open", "def twice(x):\n    return TABLE.get('g', 2) * x"],
        "makes or changes `TABLE`, which .* Line 1 uses `open`",
    ),
    "a star of os": (["from os import *", "def twice(x):\n    return cpu_count() and 2 * x"], "`os"),
    "what a star brings": (["from torch import *", "def twice(x):\n    return load(x)"], "Line 2 uses `torch.load`"),
    "another magic": ([f"%%writefile double.py\n{DOUBLE}", TWICE], "name 'double' is not defined"),
}  # fmt: skip


def visible(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the test's cell says in a notebook where these cells were run; "" if it passes."""
    typed = [TransformerManager().transform_cell(cell) for cell in cells]
    names: dict[str, Any] = {"_ih": ["", *typed]}
    for cell in typed:
        exec(as_run(cell), names)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(**names))  # type: ignore[arg-type]
    monkeypatch.setattr("helpers.check.judge.current", lambda: LESSON)
    monkeypatch.setattr("helpers.check.judge.record", lambda *_, **__: None)
    try:
        check.function("twice", [check.case(3)], [6])
    except check.CheckFailed as failed:
        return str(failed)
    return ""


def graded(runner: Runner, cells: list[str]) -> str:
    *added, answer = cells
    steps = [Step(place, "added", source) for place, source in enumerate(added)]
    steps += [Step(50, "exercise", answer, "twice", "twice"), Step(51, "test", TEST, "twice__test", "twice")]
    (verdict,) = [event for event in grade(runner.warm, steps, LESSON) if "verdict" in event]
    return "" if verdict["passed"] else str(verdict["text"])


@pytest.mark.parametrize("what", RIGHT)
def test_what_the_visible_test_passes_is_graded_so(
    runner: Runner, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not graded(runner, RIGHT[what])
    assert not visible(RIGHT[what], monkeypatch)


@pytest.mark.parametrize("what", WRONG)
def test_what_grading_refuses_the_visible_test_says(
    runner: Runner, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, words = WRONG[what]
    text = graded(runner, cells)
    with pytest.raises(AssertionError, match=f"(?s){words}"):
        raise AssertionError(text)
    said = visible(cells, monkeypatch)
    assert said.splitlines()[0] == text.splitlines()[0]


def test_a_cell_that_failed_is_named(runner: Runner) -> None:
    text = graded(runner, [f"undefined\n{DOUBLE}", TWICE])
    assert "the cell that makes 'double' failed: name 'undefined' is not defined" in text


def test_experiments_run_where_an_answer_needs_them(runner: Runner) -> None:
    """The course's own are not screened; of one that a student has edited a step is "added"."""
    steps = [
        Step(0, "setup", "import math"),
        Step(1, "experiment", "raise SystemExit"),
        Step(2, "experiment", "import logging\ntwo = 2"),
        Step(3, "exercise", "def twice(x):\n    return two * x", "twice", "twice"),
        Step(4, "test", TEST, "twice__test", "twice"),
    ]
    *_, verdict, last = grade(runner.warm, steps, LESSON)
    assert verdict["passed"] and set(last["ran"]) == {0, 2, 3}


def reference() -> nbformat.NotebookNode:
    found = nbformat.read(ROOT / "solutions" / LESSON / f"{LESSON}.ipynb", as_version=4)
    found.cells = [cell for cell in found.cells if cell.source.strip()]
    return found


def test_intake_keeps_edited_experiments_and_dedents_cells() -> None:
    nb = reference()
    experiment = next(c for c in nb.cells if "experiment" in c.metadata.get("tags", ()))
    at = next(i for i, c in enumerate(nb.cells) if "exercise" in c.metadata.get("tags", ()))
    written = []
    for cell in [*nb.cells[: at + 1], new_code_cell("    def double(x):\n        return 2 * x"), *nb.cells[at + 1 :]]:  # fmt: skip
        source = f"{cell.source}\ndouble = 2" if cell is experiment else cell.source
        if cell is nb.cells[at]:
            source = "\n".join("  " + line for line in source.splitlines())
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        written.append(Written(cell.cell_type, source, cell.get("id", ""), grade_id))
    clean = match(written, nb, LESSON).notebook
    assert {s.role for s in steps_of(clean) if "double = 2" in s.source} == {"added"}
    roles = {c.source: c.metadata.course.role for c in clean.cells if "course" in c.metadata}
    assert roles[f"{experiment.source}\ndouble = 2"] == "edited"
    assert roles["def double(x):\n    return 2 * x"] == "added"
    assert sum(role == "experiment" for role in roles.values()) > 1
    (answer,) = [
        c.source for c in clean.cells if c.metadata.get("nbgrader") == nb.cells[at].metadata.nbgrader
    ]
    assert answer == nb.cells[at].source


def test_lines_keep_their_numbers() -> None:
    source = "%%time\n%matplotlib inline\n\né = 'é'; x = 1\ny = %time 1 / 0\n!ls"
    assert as_run(source).splitlines() == ["", "None", "", "é = 'é'; x = 1", "y = 1 / 0", "None"]
    for odd in ("def f(:", "'''", "(" * 500, "\0", "\ud800 = 1"):
        assert as_run(odd) == odd and not bound(odd) and not changed(odd) and not reads(odd)


def test_the_cells_of_a_name_are_the_last_that_makes_it_and_those_that_change_it() -> None:
    cells = ["a = 1", "a = b", "b = 2", "def f():\n    return a + c", "c = 3", "c"]
    assert needs(3, cells) == {1: "a", 4: "c", 2: "b"} and needs(3, cells, {"a"}) == {4: "c"}
    cells = ["a = {}", "a[1] = 0", "a = {}", "a[1] = b", "b = 2", "def f():\n    return a"]
    assert needs(5, cells) == {2: "a", 3: "a", 4: "b"}


def test_what_is_left_of_a_cell_is_what_a_student_wrote() -> None:
    """Also where the course's text is put into a string, and the student's own out of it."""
    ours = 'def f():\n    """What f is."""'
    assert own_part(f"a = 1\n{ours}\nb = 2", [ours]) == "a = 1\n\nb = 2"
    for cell in (
        f'"""{ours}\nopen("x")\n"""',
        f"a = (\n{ours}\n)",
        f"a = 1; {ours}",
        f"{ours}; b = 2",
        f"@print\n{ours}",
    ):
        assert own_part(cell, [ours]) == cell


def test_what_functions_change_is_read() -> None:
    assert reads("def f():\n    global n, m\n    n += 1\n    m = 2") == {"n", "m"}
    assert reads("m = 1\ndef f():\n    global n, m\n    n = m") == {"n"}
    assert needs(1, ["n = 0", "def f():\n    global n\n    n += 1"]) == {0: "n"}


def test_what_was_handed_out_does_not_follow_what_a_learner_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make lab` opens the notebook in notebooks/: a helper in its set-up cell is the learner's, also once it is saved."""
    made = json.loads((earlier.NOTEBOOKS / LESSON / f"{LESSON}.ipynb").read_text(encoding="utf-8"))
    for cell in made["cells"]:
        cell["source"] = [*cell["source"], "\nmine = 1"]
    (tmp_path / LESSON).mkdir()
    (tmp_path / LESSON / f"{LESSON}.ipynb").write_text(json.dumps(made))
    monkeypatch.setattr(earlier, "NOTEBOOKS", tmp_path)
    earlier._tagged.cache_clear()
    texts = [*earlier.handed_out(LESSON), *earlier.visible_tests(LESSON)]
    assert len(texts) > 20 and not [text for text in texts if "mine" in text]


def test_a_test_that_was_changed_says_so_beside_its_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.check.judge.current", lambda: LESSON)
    (whole, *_) = [text for text in earlier.visible_tests(LESSON) if "check_is_contiguous" in text]
    changed = whole.replace("check_is_contiguous(*ones", "# check_is_contiguous(*ones")
    for typed, said in ((whole, ""), (f"x = 1\n{whole}\n", ""), (changed, "that one counts"), ("1 + 1", "")):
        monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(_ih=["", typed]))  # type: ignore[arg-type]
        assert said in judge._own_test() and bool(said) == bool(judge._own_test())


def test_a_star_brings_no_module_over_a_name_that_is_there(runner: Runner) -> None:
    """The grader has loaded `torch.distributed.nn`, and a notebook that has `nn` of torch has not."""
    cells = [
        "import torch.distributed.nn",
        "from torch import nn",
        "from torch.distributed import *",
        "nn.Linear",
    ]
    with runner.notebook([*cells, "is_initialized"]) as learner:
        assert not [ran.error for ran in learner.ran.values() if ran.error]
