"""Intake: whatever a folder holds, one clean notebook or one reason; answers stay, and all else is the master's."""

import ast
import copy
import dataclasses
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from helpers.classroom import build
from helpers.classroom.intake import NotGradable, take
from helpers.classroom.matching import Matched, as_given, owned
from helpers.classroom.reading import read
from helpers.classroom.step import Step
from helpers.classroom.submission import steps_of
from tests.corpus.broken import BROKEN
from tests.corpus.cases import Case, Notebook, graded, place, plain, saved
from tests.corpus.honest import HONEST

LESSON = "01_storage_and_stride"
LESSONS = [path.stem for path in build.find([])]
CORPUS: dict[str, Case] = BROKEN | HONEST
#: cases whose right answer to this exercise is worded otherwise
REWORDED = {"helper-in-another-cell": "is_contiguous", "left-the-raise": "is_contiguous"}
#: cases of which something else is run than of the right notebook: tests/test_class.py grades each of them. Of all
#: others that can be graded, the very same cells are run and judged, in the same order
RUN_OTHERWISE = {
    "halves-of-characters", "long-cell", "split-in-a-dictionary", "split-and-tried", "copy-for-trying",
    "merged-with-an-import", "emptied", "deleted", "tests-edited", "half-in-another-cell", "helper-in-another-cell",
    "left-the-raise", "tried-and-failed", "tried-without-end", "tried-no-python", "tried-what-is-refused",
    "merge-conflict-in-a-cell", "untouched", "latin-1", "experiments-changed",
}  # fmt: skip


def reference(name: str) -> NotebookNode:
    return nbformat.read(build.SOLUTIONS / name / f"{name}.ipynb", as_version=4)


def answered(name: str) -> Notebook:
    """The released notebook with the reference's answers, as a student would have written them."""
    notebook = plain(json.loads((build.NOTEBOOKS / name / f"{name}.ipynb").read_text(encoding="utf-8")))
    solved = reference(name)
    for grade_id in graded(notebook, "solution"):
        source = solved.cells[place(solved, grade_id)].source
        notebook["cells"][place(notebook, grade_id)]["source"] = re.sub(
            r"(?m)^ *### (BEGIN|END) SOLUTION\n?", "", source
        ).rstrip("\n")
    return notebook


def exercises(notebook: NotebookNode) -> dict[str, str]:
    return {
        c.metadata.course.exercise: c.source for c in notebook.cells if c.metadata.course.role == "exercise"
    }


def handed_in(folder: Path) -> dict[str, str]:
    """The exercises' cells as they were handed in."""
    notebook = plain(json.loads((folder / f"{LESSON}.ipynb").read_text(encoding="utf-8")))
    return {g: notebook["cells"][place(notebook, g)]["source"] for g in graded(notebook, "solution")}


def meaning(source: str) -> dict[str, str]:
    """The statements at code's top level, by the name that each defines; comments and blank lines mean nothing."""
    found: dict[str, str] = {}
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return found
    for node in statements:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        # of several definitions of a name the last one holds
        found[getattr(node, "name", getattr(target, "id", ast.dump(target)))] = ast.dump(node)
    return found


def taken_again(taken: Matched, folder: Path, solved: NotebookNode, name: str) -> Matched:
    again = folder.parent / f"{folder.name}-again"
    again.mkdir()
    nbformat.write(taken.notebook, again / f"{name}.ipynb")
    return take(again, solved, name)


def hold_clean(taken: Matched, solved: NotebookNode) -> None:
    """What is true of every clean notebook: valid, the master's cells in their order, nothing of a student's marks."""
    nbformat.validate(taken.notebook, relax_add_props=False)
    json.dumps(taken.notebook, ensure_ascii=False).encode()
    assert (taken.notebook.nbformat, taken.notebook.nbformat_minor) == (4, 5)
    assert taken.notebook.metadata.kernelspec == solved.metadata.kernelspec
    masters = {c.metadata.nbgrader.grade_id: c for c in solved.cells if "nbgrader" in c.metadata}
    marked = [c for c in taken.notebook.cells if "nbgrader" in c.metadata]
    assert [c.metadata.nbgrader.grade_id for c in marked] == list(masters)
    for cell in taken.notebook.cells:
        about = cell.metadata.course
        assert set(about) == {"role", "exercise"} and cell.get("outputs", []) == []
        if about.role == "added":
            assert set(cell.metadata) == {"course"}
            continue
        if "nbgrader" in cell.metadata:
            own = masters[cell.metadata.nbgrader.grade_id]
            assert cell.metadata == own.metadata | {"course": about} and cell.cell_type == "code"
            assert about.role == "exercise" or cell.source == own.source
        else:
            assert about.role in ("experiment", "edited", "text") and about.exercise == ""
    for sentence in (*taken.notes, *taken.human):
        assert sentence == sentence.strip() and len(sentence) < 400 and "\n" not in sentence


def run(taken: Matched) -> list[Step]:
    """What is run and judged, wherever it stands: verdicts depend on nothing else of a submission."""
    return [dataclasses.replace(step, place=0) for step in steps_of(taken.notebook)]


# --- every lesson ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LESSONS)
def test_right_answers_of_every_lesson_come_through(name: str, tmp_path: Path) -> None:
    solved, submission = reference(name), answered(name)
    released = json.loads((build.NOTEBOOKS / name / f"{name}.ipynb").read_text(encoding="utf-8"))
    for own, cell in zip(owned(solved), plain(released)["cells"], strict=True):
        assert own.role in ("experiment", "text") or as_given(own.stub) == cell["source"].strip(), (
            own.grade_id
        )
        assert own.asked or own.role != "exercise"
    saved(submission, tmp_path / f"{name}.ipynb")
    taken = take(tmp_path, solved, name)
    assert not taken.notes and not taken.human
    hold_clean(taken, solved)
    given = {g: submission["cells"][place(submission, g)]["source"] for g in graded(submission, "solution")}
    assert exercises(taken.notebook) == given
    assert len(taken.notebook.cells) == len(solved.cells)
    assert taken_again(taken, tmp_path, solved, name).notebook == taken.notebook
    saved(plain(released), tmp_path / f"{name}.ipynb")
    assert "no exercise was answered" in take(tmp_path, solved, name).notes[0]


def test_lessons_are_told_apart(tmp_path: Path) -> None:
    """One lesson's notebook handed in for another is refused and named, with its marks and without."""
    named = [name for name in LESSONS if name[:2] in ("05", "07", "17")]  # they share an exercise's name
    for name in named:
        notebook = answered(name)
        for marked in (True, False):
            if not marked:
                for cell in notebook["cells"]:
                    cell["metadata"] = {}
                    del cell["id"]
            saved(notebook, tmp_path / f"{name}-{marked}" / "mine.ipynb")
            for other in named:
                if other != name:
                    with pytest.raises(NotGradable, match=f"lesson {name} and not of {other}"):
                        take(tmp_path / f"{name}-{marked}", reference(other), other)


# --- the corpus -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lesson() -> tuple[NotebookNode, Notebook]:
    return reference(LESSON), answered(LESSON)


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(name: str, lesson: tuple[NotebookNode, Notebook], tmp_path: Path) -> None:
    solved, right = lesson
    case, folder = CORPUS[name], tmp_path / "submission"
    folder.mkdir()
    case.write(copy.deepcopy(right), folder, LESSON)
    if case.earns == "not gradable":
        with pytest.raises(NotGradable) as refused:
            take(folder, solved, LESSON)
        text = str(refused.value)
        assert "\n" not in text and len(text) < 300 and "hand" in text
        return
    taken = take(folder, solved, LESSON)
    hold_clean(taken, solved)
    assert bool(taken.human) == case.human, taken.human
    lost = case.earns if isinstance(case.earns, dict) else {}
    for exercise, source in exercises(taken.notebook).items():
        wanted = meaning(right["cells"][place(right, exercise)]["source"])
        if exercise == REWORDED.get(name):
            assert source == handed_in(folder)[exercise]
        elif exercise not in lost and case.earns != "nothing":
            found = meaning(source)
            assert {n: found.get(n) for n in wanted} == wanted, source
        else:
            assert not wanted.items() <= meaning(source).items(), source
    again = taken_again(taken, tmp_path, solved, LESSON)
    assert again.notebook == taken.notebook and set(again.human) <= set(taken.human)
    saved(plain(right), tmp_path / "right" / f"{LESSON}.ipynb")
    assert (run(taken) != run(take(tmp_path / "right", solved, LESSON))) == (name in RUN_OTHERWISE)


# --- whatever comes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[NotebookNode, Notebook]:
    """The first two exercises of a lesson and what stands around them."""
    solved, right = reference(LESSON), answered(LESSON)
    last = place(solved, graded(solved, "solution")[1]) + 3
    start = place(solved, graded(solved, "solution")[0]) - 6
    chosen = [0, 1, *range(start, last)]
    for notebook in (solved, right):
        notebook["cells"] = [notebook["cells"][i] for i in chosen]
    return solved, right


def values(notebook: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a notebook's JSON."""
    for key in list(notebook) if isinstance(notebook, dict) else range(len(notebook)):
        yield notebook, key
        if isinstance(notebook[key], dict | list):
            yield from values(notebook[key])


ODD = [
    None, True, -1, 1e400, "", "\x00", "\ud800", "def flat_index(", "    return 1", "%%bash\nrm", "x" * 3000, [], {}, [[]],
    {"a": {"a": {}}}, ["a", None, 3], "windows", "flat_index__test", "flat_index", "raw", "markdown", "code",
    "(" * 5000, "-" * 20000 + "1", "a" + ".a" * 20000, "if 1:\n" * 300, '"""', "\\", "def flat_index(*a):\n  pass",
]  # fmt: skip


def mutated(notebook: Notebook, chance: random.Random) -> Notebook:
    """A notebook with one to six things in it replaced, removed, repeated, moved, split or joined."""
    made = copy.deepcopy(notebook)
    for _ in range(chance.randint(1, 6)):
        holder, key = chance.choice(list(values(made)))
        cells = made.get("cells")
        match chance.randrange(6):
            case 0 | 1:
                holder[key] = copy.deepcopy(chance.choice(ODD))
            case 2:
                del holder[key]
            case 3 if isinstance(cells, list) and cells:
                cells.insert(chance.randrange(len(cells)), copy.deepcopy(chance.choice(cells)))
            case 4 if isinstance(cells, list) and cells:
                cells.insert(chance.randrange(len(cells)), cells.pop(chance.randrange(len(cells))))
            case 5 if isinstance(cells, list) and len(cells) > 1:
                i = chance.randrange(len(cells) - 1)
                one, other = cells[i], cells[i + 1]
                if not isinstance(one, dict) or not isinstance(one.get("source"), str):
                    continue
                if chance.random() < 0.5 and isinstance(other, dict) and isinstance(other.get("source"), str):
                    one["source"] += "\n\n" + other["source"]
                    del cells[i + 1]
                else:
                    at = chance.randrange(len(one["source"]) + 1)
                    cells.insert(i + 1, copy.deepcopy(one) | {"source": one["source"][at:]})
                    one["source"] = one["source"][:at]
    return made


@pytest.mark.parametrize("seed", range(4))
def test_takes_anything_and_twice_is_once(
    seed: int, small: tuple[NotebookNode, Notebook], tmp_path: Path
) -> None:
    """Only NotGradable is ever raised, and a clean notebook that is handed in again is the same clean notebook."""
    solved, right = small
    chance = random.Random(seed)
    clean = 0
    for attempt in range(50):
        data = json.dumps(mutated(right, chance)).encode("utf-8", "replace")
        if attempt % 5 == 0:
            at = chance.randrange(len(data))
            data = data[:at] + chance.randbytes(chance.randrange(4)) + data[at + chance.randrange(3) :]
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / f"{LESSON}.ipynb").write_bytes(data)
        try:
            taken = take(folder, solved, LESSON)
        except NotGradable as why:
            assert "hand" in str(why)
            continue
        clean += 1
        hold_clean(taken, solved)
        assert taken_again(taken, folder, solved, LESSON).notebook == taken.notebook, (
            f"seed {seed}, {attempt}"
        )
    assert clean > 20


def test_brackets_that_were_printed_are_no_part_of_the_file_s_own() -> None:
    """A list of a million short lists, printed: its outputs are dropped, and the notebook is read."""
    made = answered(LESSON)
    made["cells"][-1]["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": '["\\"", [[1], [2]]]\n' * 200_000}
    ]
    assert len(read(json.dumps(made).encode(), [])) == len(made["cells"])
