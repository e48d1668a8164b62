"""Honest mistakes, as JupyterLab writes them to disk: split, copied, merged, moved, converted and emptied cells.

Each case changes the released notebook of lesson 01, rightly answered, as JupyterLab 4.6 does at a keystroke or a
click. tests/long/honest_mistakes.py does them again in a real JupyterLab and compares. What it was found to do:

- Ctrl+Shift+Minus copies all metadata to each part; the last part keeps the id.
- A pasted or duplicated cell keeps nbgrader's metadata and loses ``deletable``; its id is new.
- A cell that is not deletable cannot be deleted. Cutting it copies it, and the copy takes the id with it.
- It can be merged into the text above it, and then it is text.
- Merged cells get a new id, and type and metadata of the one that was active.
- A converted cell keeps metadata and id. Tests can be neither edited, split, merged nor converted; but copied and moved.
"""

import copy
import itertools
from collections.abc import Callable
from pathlib import Path

from tests.corpus.cases import Case, Cell, Notebook, code, graded, place, plain, saved

STUB = "raise NotImplementedError()  # your answer"


def edited(change: Callable[[Notebook], None]) -> Callable[[Notebook, Path, str], None]:
    """The notebook, changed, saved under its own name."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        made = plain(notebook)
        change(made)
        saved(made, folder / f"{name}.ipynb")

    return write


# --- what JupyterLab does ---------------------------------------------------------------------------------------------

_new = itertools.count()


def fresh(cell: Cell, **changes: object) -> Cell:
    """A copy with an id of its own."""
    return copy.deepcopy(cell) | {"id": f"new-{next(_new)}"} | changes


def cell_of(notebook: Notebook, grade_id: str) -> Cell:
    cell: Cell = notebook["cells"][place(notebook, grade_id)]
    return cell


def split(notebook: Notebook, grade_id: str, *starts: str) -> None:
    """Ctrl+Shift+Minus, with the cursor where each of these texts begins."""
    at = place(notebook, grade_id)
    last = notebook["cells"].pop(at)
    text, parts = last["source"], []
    for start in starts:
        first, start, rest = text.partition(start)
        parts.append(first)
        text = start + rest
    trimmed = [part.strip("\n") for part in [*parts, text]]
    cells = [fresh(last, source=part) for part in trimmed[:-1]]
    notebook["cells"][at:at] = [*cells, last | {"source": trimmed[-1]}]


def pasted(notebook: Notebook, grade_id: str, at: int, **changes: object) -> None:
    """A copy of a cell, pasted at a place."""
    cell = fresh(cell_of(notebook, grade_id), **changes)
    cell["metadata"].pop("deletable", None)
    notebook["cells"].insert(at, cell)


def merged(notebook: Notebook, first: int, active: int) -> None:
    """The cell at ``first`` and the next one as one; ``active`` of them stays."""
    cells = notebook["cells"]
    source = cells[first]["source"] + "\n\n" + cells[first + 1]["source"]
    cells[first : first + 2] = [fresh(cells[active], source=source)]


def converted(cell: Cell, kind: str) -> None:
    cell["cell_type"] = kind
    if kind != "code":
        cell.pop("outputs")
        cell.pop("execution_count")


def stub(notebook: Notebook, grade_id: str) -> str:
    """The exercise as it was given, near enough: signatures, docstrings, and no answer."""
    lines, keep, closing = [], True, False
    for line in cell_of(notebook, grade_id)["source"].splitlines():
        if line and not line[0].isspace():
            keep, closing = True, False
        if keep:
            lines.append(line)
        if line.strip().endswith('"""') and (closing or line.count('"""') == 2):
            lines += [f"    {STUB}", "", ""]
            keep = False
        closing = closing or '"""' in line
    return "\n".join(lines).strip("\n")


# --- split ------------------------------------------------------------------------------------------------------------


def split_and_tried(notebook: Notebook) -> None:
    """Split between two functions, and a cell to try the first one put between."""
    split(notebook, "windows", "def diagonal_blocks")
    at = place(notebook, "windows")
    notebook["cells"].insert(at + 1, code("print(windows(torch.arange(6.0), 2))", "new-tried"))


def split_without_marks(notebook: Notebook) -> None:
    """Split, and then through a converter that drops metadata and ids."""
    split(notebook, "is_contiguous", "    wanted = 1")
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id")


# --- copied -----------------------------------------------------------------------------------------------------------


def copy_answered(notebook: Notebook) -> None:
    """The given cell is left as it was; the answer is in a copy below it."""
    at = place(notebook, "windows")
    pasted(notebook, "windows", at + 1)
    notebook["cells"][at]["source"] = stub(notebook, "windows")


def first_attempt_above(notebook: Notebook) -> None:
    """An earlier attempt was kept in a copy above."""
    attempt = "def is_contiguous(shape, stride):\n    return stride == tuple(sorted(stride, reverse=True))"
    pasted(notebook, "is_contiguous", place(notebook, "is_contiguous"), source=attempt)


def second_attempt_below(notebook: Notebook) -> None:
    """The first attempt stands in the exercise's cell; the right one in a copy below, and the test below that passed."""
    at = place(notebook, "is_contiguous")
    pasted(notebook, "is_contiguous", at + 1)
    notebook["cells"][at]["source"] = "def is_contiguous(shape, stride):\n    return stride[-1] == 1"


def copy_for_trying(notebook: Notebook) -> None:
    """A copy of an exercise's cell, emptied and used to try something that fails."""
    at = place(notebook, "windows")
    pasted(notebook, "windows", at + 1, source="%timeit windows(torch.arange(1000.0), 10)\nwindows(None, 3)")


def everything_twice(notebook: Notebook) -> None:
    """Ctrl+A, C, V."""
    copies = [fresh(cell) for cell in notebook["cells"]]
    for cell in copies:
        cell["metadata"].pop("deletable", None)
    notebook["cells"] += copies


def cut_and_pasted(notebook: Notebook) -> None:
    """X, which leaves a cell that is not deletable where it is, and V two cells further up. The copy gets the id."""
    at = place(notebook, "windows")
    pasted(notebook, "windows", at - 1, id="windows")
    notebook["cells"][at + 1]["id"] = "new-left"


# --- moved, converted, merged -----------------------------------------------------------------------------------------


def moved_to_the_end(notebook: Notebook) -> None:
    notebook["cells"].append(notebook["cells"].pop(place(notebook, "flat_index")))


def exercises_in_reverse(notebook: Notebook) -> None:
    places = [place(notebook, grade_id) for grade_id in graded(notebook, "solution")]
    cells = [notebook["cells"][at] for at in places]
    for at, cell in zip(places, reversed(cells), strict=True):
        notebook["cells"][at] = cell


def moved_up(notebook: Notebook) -> None:
    at = place(notebook, "windows")
    notebook["cells"].insert(at - 1, notebook["cells"].pop(at))


def dragged_below_its_test(notebook: Notebook) -> None:
    at = place(notebook, "windows")
    notebook["cells"].insert(at + 1, notebook["cells"].pop(at))


def merged_with_text(notebook: Notebook) -> None:
    at = place(notebook, "windows")
    merged(notebook, at - 1, at)


def merged_into_text(notebook: Notebook) -> None:
    """The text above was chosen and merged with the cell below it: the exercise is text now."""
    at = place(notebook, "windows")
    merged(notebook, at - 1, at - 1)


def merged_into_edited_text(notebook: Notebook) -> None:
    notebook["cells"][place(notebook, "windows") - 1]["source"] += (
        "\n\n**My plan**\n\nsize = a window's length"
    )
    merged_into_text(notebook)


def merged_with_an_import(notebook: Notebook) -> None:
    """An added cell, merged into the exercise's."""
    at = place(notebook, "windows")
    notebook["cells"].insert(at, code("import math", "new-import"))
    merged(notebook, at, at + 1)


def merged_elsewhere(notebook: Notebook) -> None:
    """By an editor that knows of no locks: exercise, both tests and the next text in one cell."""
    at = place(notebook, "is_contiguous")
    for _ in range(3):
        merged(notebook, at, at)


def merged_into_test(notebook: Notebook) -> None:
    """As above, and the metadata that stayed are the test's."""
    at = place(notebook, "is_contiguous")
    merged(notebook, at, at + 1)


def two_answers_in_one_cell(notebook: Notebook) -> None:
    first, second = cell_of(notebook, "flat_index"), cell_of(notebook, "is_contiguous")
    first["source"] += "\n\n\n" + second["source"]
    second["source"] = stub(notebook, "is_contiguous")


def swapped(notebook: Notebook) -> None:
    """Two answers, each in the other's cell."""
    first, second = cell_of(notebook, "windows"), cell_of(notebook, "is_contiguous")
    first["source"], second["source"] = second["source"], first["source"]


# --- gone, or elsewhere -----------------------------------------------------------------------------------------------


def emptied(notebook: Notebook) -> None:
    cell_of(notebook, "windows")["source"] = ""


def deleted(notebook: Notebook) -> None:
    del notebook["cells"][place(notebook, "windows")]


def tests_deleted(notebook: Notebook) -> None:
    gone = set(graded(notebook, "grade"))
    cells = notebook["cells"]
    notebook["cells"] = [c for c in cells if c["metadata"].get("nbgrader", {}).get("grade_id") not in gone]


def tests_edited(notebook: Notebook) -> None:
    for grade_id in graded(notebook, "grade"):
        cell = cell_of(notebook, grade_id)
        cell["source"] = cell["source"].replace("(", "( ", 1) + "\nprint('done')"


def answer_below(notebook: Notebook) -> None:
    """The given cell is left as it was; the answer is in an added cell below it."""
    at = place(notebook, "windows")
    notebook["cells"].insert(at + 1, code(notebook["cells"][at]["source"], "new-answer"))
    notebook["cells"][at]["source"] = stub(notebook, "windows")


def answer_below_the_tests(notebook: Notebook) -> None:
    at = place(notebook, "windows")
    notebook["cells"].append(code(notebook["cells"][at]["source"], "new-answer"))
    notebook["cells"][at]["source"] = stub(notebook, "windows")


def answer_in_an_experiment(notebook: Notebook) -> None:
    """Written into the experiment's cell above the exercise."""
    at = place(notebook, "windows")
    before = next(
        c for c in reversed(notebook["cells"][:at]) if "experiment" in c["metadata"].get("tags", [])
    )
    before["source"] += "\n\n\n" + notebook["cells"][at]["source"]
    notebook["cells"][at]["source"] = stub(notebook, "windows")


def text_cut_and_pasted(notebook: Notebook) -> None:
    """Ctrl+A, Ctrl+X in the exercise's cell, Ctrl+V in a new one."""
    at = place(notebook, "windows")
    notebook["cells"].insert(at + 1, code(notebook["cells"][at]["source"], "new-answer"))
    notebook["cells"][at]["source"] = ""


def half_in_another_cell(notebook: Notebook) -> None:
    """One of two functions is written in a cell of its own; its given form stays where it was."""
    at = place(notebook, "windows")
    first, _, second = notebook["cells"][at]["source"].partition("def diagonal_blocks")
    given = stub(notebook, "windows").partition("def diagonal_blocks")[2]
    notebook["cells"][at]["source"] = first + "def diagonal_blocks" + given
    notebook["cells"].insert(at + 1, code("def diagonal_blocks" + second, "new-second"))


def helper_in_another_cell(notebook: Notebook) -> None:
    """An answer that rests on a function in an added cell above it."""
    at = place(notebook, "is_contiguous")
    source = notebook["cells"][at]["source"].replace("def is_contiguous", "def walks_on")
    notebook["cells"].insert(at, code(source, "new-helper"))
    notebook["cells"][at + 1]["source"] = (
        "def is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:\n    return walks_on(shape, stride)"
    )


# --- beside the answers -----------------------------------------------------------------------------------------------


def left_the_raise(notebook: Notebook) -> None:
    """The line that was to be replaced stands below the answer still."""
    cell_of(notebook, "view_or_copy")["source"] += f"\n{STUB}"
    cell_of(notebook, "is_contiguous")["source"] += f"\n    {STUB}"


def tried(source: str) -> Callable[[Notebook], None]:
    """A cell of the student's own between an exercise and its test, and one at the end."""

    def change(notebook: Notebook) -> None:
        at = place(notebook, "windows")
        notebook["cells"].insert(at + 1, code(source, "new-tried"))
        notebook["cells"].append(code(source, "new-tried-again"))

    return change


def run_and_folded(notebook: Notebook) -> None:
    """Run, with outputs, folded and tagged."""
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            cell["execution_count"] = i
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["✓ 4 cases\n"]}]
            cell["metadata"] |= {"collapsed": True, "jupyter": {"source_hidden": True}, "scrolled": True}
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), "done", "skip-execution"]


def experiments_changed(notebook: Notebook) -> None:
    """Predictions filled in, an experiment deleted, a text rewritten, another deleted."""
    experiments = [c for c in notebook["cells"] if "experiment" in c["metadata"].get("tags", [])]
    for cell in experiments:
        cell["source"] = cell["source"].replace(": ...", ": 1")
    texts = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    texts[3]["source"] = "My notes"
    notebook["cells"].remove(experiments[-1])
    notebook["cells"].remove(texts[2])


def untouched(notebook: Notebook) -> None:
    """As it was handed out."""
    for grade_id in graded(notebook, "solution"):
        cell_of(notebook, grade_id)["source"] = "" if grade_id == "view_or_copy" else stub(notebook, grade_id)


def merge_conflict(notebook: Notebook) -> None:
    """Marks of a merge within a cell, as some tools leave them."""
    cell = cell_of(notebook, "windows")
    cell["source"] = f"<<<<<<< local\n{cell['source']}\n=======\ndef windows(): ...\n>>>>>>> remote"


def as_kind(grade_id: str, kind: str) -> Callable[[Notebook], None]:
    return lambda notebook: converted(cell_of(notebook, grade_id), kind)


HONEST: dict[str, Case] = {
    name: Case(edited(change), earns, human)
    for name, change, earns, human in [
        ("split-in-a-body", lambda n: split(n, "is_contiguous", "if 0 in shape"), "full", False),
        ("split-between-lines", lambda n: split(n, "is_contiguous", "    wanted = 1"), "full", False),
        ("split-in-a-line", lambda n: split(n, "flat_index", "+ sum("), "full", False),
        ("split-in-a-dictionary", lambda n: split(n, "view_or_copy", '"x.float()"'), "full", False),
        ("split-at-its-start", lambda n: split(n, "windows", "def windows"), "full", False),
        (
            "split-twice",
            lambda n: split(n, "windows", "raise ValueError", "def diagonal_blocks"),
            "full",
            False,
        ),
        ("split-and-tried", split_and_tried, "full", False),
        ("split-without-marks", split_without_marks, "full", False),
        ("copied", lambda n: pasted(n, "windows", place(n, "windows") + 1), "full", False),
        ("copy-answered", copy_answered, "full", False),
        ("first-attempt-above", first_attempt_above, "full", True),
        ("second-attempt-below", second_attempt_below, "full", True),
        ("copy-for-trying", copy_for_trying, "full", False),
        ("everything-twice", everything_twice, "full", False),
        ("cut-and-pasted", cut_and_pasted, "full", False),
        ("test-copied", lambda n: pasted(n, "windows__test", place(n, "windows__test") + 1), "full", False),
        ("moved-up", moved_up, "full", False),
        ("moved-to-the-end", moved_to_the_end, "full", False),
        ("exercises-in-reverse", exercises_in_reverse, "full", False),
        ("dragged-below-its-test", dragged_below_its_test, "full", False),
        ("to-markdown", as_kind("windows", "markdown"), "full", False),
        ("to-raw", as_kind("windows", "raw"), "full", False),
        ("merged-with-text", merged_with_text, "full", False),
        ("merged-into-text", merged_into_text, "full", False),
        ("merged-into-edited-text", merged_into_edited_text, "full", False),
        ("merged-with-an-import", merged_with_an_import, "full", False),
        ("merged-elsewhere", merged_elsewhere, "full", False),
        ("merged-into-test", merged_into_test, "full", False),
        ("two-answers-in-one-cell", two_answers_in_one_cell, "full", False),
        ("swapped", swapped, "full", False),
        ("emptied", emptied, {"windows": 0}, False),
        ("deleted", deleted, {"windows": 0}, False),
        ("tests-deleted", tests_deleted, "full", False),
        ("tests-edited", tests_edited, "full", False),
        ("answer-below", answer_below, "full", False),
        ("answer-below-the-tests", answer_below_the_tests, "full", False),
        ("answer-in-an-experiment", answer_in_an_experiment, "full", False),
        ("text-cut-and-pasted", text_cut_and_pasted, "full", False),
        ("half-in-another-cell", half_in_another_cell, "full", False),
        ("helper-in-another-cell", helper_in_another_cell, "full", False),
        ("left-the-raise", left_the_raise, "full", False),
        ("tried-and-failed", tried("print(windows(nothing_of_this_name))"), "full", False),
        ("tried-without-end", tried("while True:\n    pass"), "full", False),
        ("tried-no-python", tried("!pip list\nthis is a note to myself"), "full", False),
        ("tried-what-is-refused", tried("import subprocess\nsubprocess.run(['ls'])"), "full", False),
        ("run-and-folded", run_and_folded, "full", False),
        ("experiments-changed", experiments_changed, "full", False),
        ("merge-conflict-in-a-cell", merge_conflict, {"windows": 0}, True),
        ("untouched", untouched, "nothing", False),
    ]
}
