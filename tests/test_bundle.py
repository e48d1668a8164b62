"""What students get: it holds no answer, it is the same each time, and a lesson is solved in it with nothing else."""

import ast
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_notebook

from helpers.classroom import build, bundle
from helpers.classroom import master as masters
from helpers.classroom.master import Master
from helpers.classroom.runner import Runner
from helpers.classroom.settings import ROOT

LESSONS = [masters.read(path) for path in build.find(["01", "16"])]
STORAGE, PARALLEL = (lesson.name for lesson in LESSONS)
SUBMISSIONS = ROOT / "tests" / "submissions"
#: in lesson 16: exercises whose reference is an answer, so that a student's copy has its results alone
TOLD = ("one_f_one_b", "balance", "layout")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def files(runner: Runner) -> dict[str, bytes]:
    """What the command packs, by the tests' one runner: a test below has the command itself pack the same bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "Runner", lambda: contextlib.nullcontext(runner))
        return bundle.contents(LESSONS)


@pytest.fixture(scope="module")
def copy(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's folder, with an environment that has everything but the course."""
    folder = tmp_path_factory.mktemp("student") / "course"
    bundle.write_folder(files, folder)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    inputs = [(folder / name).read_text() for name in ("pyproject.toml", "constraints.txt", "etc/triton.txt")]
    (folder / ".venv" / ".installed").write_text(f"{(folder / '.venv').resolve()}\n" + "".join(inputs))
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=400)


def right(lesson: str, exercise: str) -> str:
    return min((SUBMISSIONS / lesson / exercise).glob("right_*.py")).read_text()


def fill(notebook: Path, lesson: str, exercises: set[str]) -> nbformat.NotebookNode:
    nb = nbformat.read(notebook, as_version=4)
    for cell in nb.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in exercises:
            cell.source = right(lesson, name)
    return nb


def test_no_answer_and_no_hidden_test_is_in_it(files: dict[str, bytes]) -> None:
    hold_no_answer(files, LESSONS)


def test_nor_where_the_last_lessons_are() -> None:
    lessons = [masters.read(path) for path in build.find(["17", "18"])]
    hold_no_answer(bundle.contents(lessons), lessons)


def hold_no_answer(files: dict[str, bytes], lessons: list[Master]) -> None:
    assert not [
        name for name in files if name.startswith(("solutions/", "tests/", "docs/", ".", "etc/student"))
    ]
    for name, data in files.items():
        assert b"BEGIN SOLUTION" not in data and b"BEGIN HIDDEN TESTS" not in data, name
    grading = {name for name in files if name.startswith("helpers/classroom/")}
    assert (
        grading == {f"helpers/classroom/{name}" for name in bundle.CLASSROOM}
        and "helpers/check/told.json" in files
    )
    given = {name for name in files if name.endswith("/exercises.py")}
    wanted = {f"helpers/lessons/{lesson.name[3:]}/exercises.py" for lesson in lessons}
    assert given == wanted, "tests of other lessons are not"
    assert "helpers/lessons/a_kernel_of_your_own/on_gpu.py" not in files
    texts = [data.decode() for name, data in files.items() if not name.endswith(".gz")]
    shown = {"".join(line.split()) for text in texts for line in text.splitlines()}
    for lesson in lessons:
        visible = {
            "".join(line.split()) for c in lesson.cells if c.kind == "test" for line in c.source.splitlines()
        }
        for cell in lesson.cells:
            secret = cell.source if cell.kind == "hidden" else ""
            # the capstone's answers are lines that earlier lessons have shown: tests/test_capstone.py looks for its own
            if cell.kind == "exercise" and lesson.name != "17_capstone":
                secret = cell.source.partition("### BEGIN SOLUTION")[2].partition("### END SOLUTION")[0]
            lines = {"".join(line.split()) for line in secret.splitlines()} - visible
            leaked = {line for line in lines & shown if len(line) > 24 and not line.startswith("from")}
            assert not leaked, (lesson.where(cell), leaked)


def test_references_that_are_answers_have_no_text(files: dict[str, bytes]) -> None:
    source = files["helpers/lessons/model_parallel/exercises.py"].decode()
    bodies = {n.name: n.body for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    for name in ("_one_f_one_b", "_least", "_shortest"):
        assert ast.unparse(bodies[name][-1]) == "..." and len(bodies[name]) <= 2
        assert json.loads(files["helpers/check/told.json"])[f"model_parallel.{name}"]


def test_what_is_shipped_needs_nothing_that_is_not(files: dict[str, bytes]) -> None:
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files
        if name.endswith(".py")
    }
    for name, data in files.items():
        if name.startswith("helpers/") and name.endswith(".py"):
            for node in ast.walk(ast.parse(data)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers"):
                    assert node.module in modules or name == "helpers/classroom/release.py", (
                        name,
                        node.module,
                    )


def test_it_is_the_same_each_time(files: dict[str, bytes], tmp_path: Path) -> None:
    here, there = tmp_path / "here.zip", tmp_path / "there.zip"
    bundle.write_zip(files, here)
    command = [sys.executable, "-m", "helpers.classroom.bundle", "01", "16", "--to", str(there)]
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 lessons" in done.stdout, done.stderr
    assert here.read_bytes() == there.read_bytes()
    assert bundle.main(["01", "--to", str(there)]) == 2, "what is there is not written over"


def test_a_lesson_is_solved_in_it(copy: Path) -> None:
    python = str(copy / ".venv" / "bin" / "python")
    where = run(copy, python, "-c", "import helpers; print(helpers.__file__)").stdout
    assert where.startswith(str(copy)), "the course is the copy's own"
    notebook = copy / "notebooks" / STORAGE / f"{STORAGE}.ipynb"
    handed_out = notebook.read_text()
    said = run(copy, python, "-m", "nbgrader", "validate", str(notebook)).stdout
    assert "VALIDATION FAILED" in said and "solutions" not in said, "nothing is answered yet"
    assert "not written yet" in said, "Validate, which runs this command, says why"
    nbformat.write(fill(notebook, STORAGE, {e.id for e in LESSONS[0].exercises}), notebook)
    done = run(copy, python, "-m", "nbgrader", "validate", str(notebook))
    assert "Success! Your notebook passes all the tests." in done.stdout, done.stdout + done.stderr
    solved = notebook.read_text()
    done = run(copy, "make", "reset", "LESSON=01")
    assert done.returncode == 0 and "fresh" in done.stdout, done.stderr
    (kept,) = notebook.parent.glob("*.answers-*")
    assert notebook.read_text() == handed_out and kept.read_text() == solved
    done = run(copy, "make", "reset", "LESSON=07")
    assert done.returncode and f"There are {STORAGE}, {PARALLEL}" in done.stderr
    listed = run(copy, "make").stdout
    assert "make lab" in listed and "make grade" not in listed and "make test" not in listed


def test_visible_tests_know_what_their_references_said(copy: Path) -> None:
    """Right answers pass, a wrong one is told what was wanted, by results in place of the references' text."""
    python = str(copy / ".venv" / "bin" / "python")
    folder = copy / "notebooks" / PARALLEL
    nb = fill(folder / f"{PARALLEL}.ipynb", PARALLEL, set(TOLD))
    of = {*TOLD, *(f"{name}__test" for name in TOLD)}
    few = [c for c in nb.cells if c.id in of or "setup" in c.metadata.get("tags", [])]
    assert len(few) >= 2 * len(TOLD) + 1, [c.id for c in nb.cells]
    wrong = next(c for c in few if c.id == "balance").copy()
    wrong.id, wrong.source = "wrong", (SUBMISSIONS / PARALLEL / "balance" / "wrong_greedy.py").read_text()
    again = next(c for c in few if c.id == "balance__test").copy()
    again.id = "again"
    few[0].source += "\nimport helpers; print(helpers.__file__)"
    nbformat.write(new_notebook(cells=[*few, wrong, again], metadata=nb.metadata), folder / "few.ipynb")
    execute = "import nbformat, nbclient; nb = nbformat.read('few.ipynb', 4); nbclient.NotebookClient(nb, allow_errors=True).execute(); nbformat.write(nb, 'few.ipynb')"
    done = run(folder, python, "-c", execute)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = {
        c.id: json.dumps(c.outputs, ensure_ascii=False) for c in nbformat.read(folder / "few.ipynb", 4).cells
    }
    assert str(copy / "helpers") in outputs[few[0].id], "the kernel's course is the copy's own"
    for name in TOLD:
        assert "✓" in outputs[f"{name}__test"], outputs[f"{name}__test"]
    assert "✗" in outputs["again"] and "can be had" in outputs["again"], outputs["again"]
