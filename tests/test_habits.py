"""What people do to a notebook in JupyterLab, Colab and VS Code: the visible test's word there is the grade.

Each habit is a whole notebook: its cells are run in order in IPython, then its file is taken in and graded.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from helpers.classroom import build
from helpers.classroom.engine import grade
from helpers.classroom.runner import Runner
from helpers.classroom.submission import clean, steps_of
from tests.corpus.cases import Notebook, code, place, plain, written
from tests.test_intake import LESSON, answered

EXERCISE = "is_contiguous"
HELPER = "def grown(wanted, n):\n    return wanted * n"
ANSWER = """def is_contiguous(shape, stride):
    if 0 in shape:
        return True
    wanted = 1
    for n, s in reversed(list(zip(shape, stride))):
        if n > 1 and s != wanted:
            return False
        wanted = grown(wanted, n)
    return True"""
BODY = ANSWER.partition("\n")[2]


def calling(what: str) -> str:
    """The answer with another text where it calls its helper."""
    return ANSWER.replace("grown(wanted, n)", what)


def indented(source: str, by: str = "    ") -> str:
    return "\n".join(by + line for line in source.splitlines())


@dataclass
class Habit:
    """Cells above the exercise's, its answer, cells between that and its test, and below both; what the course's own cell
    above it has more; what happens to the file. words: of both tests where the answer earns nothing."""

    above: tuple[str, ...] = (HELPER,)
    answer: str = ANSWER
    between: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    experiment: str = ""
    change: Callable[[Notebook], object] = lambda notebook: None
    saved: Callable[[str], bytes] = str.encode
    words: str = ""


def every(change: Callable[[dict], object]) -> Callable[[Notebook], None]:  # type: ignore[type-arg]
    return lambda notebook: [change(cell) for cell in notebook["cells"]] and None


def older(notebook: Notebook) -> None:
    """As an editor of before 2021 saves it."""
    notebook["nbformat_minor"] = 4
    every(lambda cell: cell.pop("id"))(notebook)


def colab(notebook: Notebook) -> None:
    notebook["nbformat_minor"] = 0
    notebook["metadata"] = {
        "colab": {"provenance": []},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
    }
    for i, cell in enumerate(notebook["cells"]):
        del cell["id"]
        cell["metadata"] |= {"id": f"Xy_{i}", "colab": {"base_uri": "https://localhost:8080/"}}


def vs_code(notebook: Notebook) -> None:
    every(lambda cell: cell["metadata"].update(vscode={"languageId": "python"}))(notebook)
    notebook["metadata"]["language_info"] = {"name": "python"}


def to_the_end(notebook: Notebook) -> None:
    """The exercise's cell with its two tests and the helper above it, dragged down."""
    at = place(notebook, EXERCISE)
    notebook["cells"] += [notebook["cells"].pop(at - 1) for _ in range(4)]


def text_between(notebook: Notebook) -> None:
    text = {
        "cell_type": "markdown",
        "id": "note",
        "metadata": {},
        "source": "# My way\n\n    from back to front",
    }
    notebook["cells"].insert(place(notebook, EXERCISE), text)


def renamed(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        cell["id"] = "my-" + cell["id"][:40]


def all_run(notebook: Notebook) -> None:
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            cell["execution_count"] = i
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["done\n"]}]


PROD = calling("prod([wanted, n])")
HABITS = {
    "as it is": Habit(),
    # the nine that lost their points once
    "a star import": Habit(("from math import *",), PROD),
    "a table that grows": Habit(("TABLE = {}", 'TABLE["f"] = lambda a, b: a * b'), calling('TABLE["f"](wanted, n)')),
    "an attribute set elsewhere": Habit((HELPER, "grown.by = 1"), calling("grown(wanted, n) * grown.by")),
    "a helper that is timed": Habit((f"%%time\n{HELPER}",)),
    "a helper below a magic": Habit((f"%matplotlib inline\n{HELPER}",)),
    "a helper that logs": Habit((f"import logging\n{HELPER}",), words="`grown`, which .* Line 1 imports `logging`"),
    "a helper that opens a file": Habit((f"{HELPER}\nopen('/tmp/log', 'a')",), words="`grown`, which .* Line 3 uses `open`"),
    "a helper in an experiment": Habit((), experiment=HELPER),
    "a cell indented as a whole": Habit((indented(HELPER),), indented(ANSWER, "  ")),
    # Colab, VS Code, older and newer files
    "Colab's file": Habit(change=colab),
    "Colab's form": Habit((f"#@title Helper {{ display-mode: 'form' }}\none = 1 #@param {{type: 'integer'}}\n{HELPER}",)),
    "Colab's drive": Habit(("try:\n    from google.colab import drive\n    drive.mount('/content/drive')\nexcept ImportError:\n    pass", HELPER)),
    "VS Code's file": Habit(change=vs_code),
    "VS Code's cell marks": Habit((f"# %% helper\n{HELPER}",), f"# %%\n{ANSWER}"),
    "a file of before cell ids": Habit(change=older),
    "a file of a later minor": Habit(change=lambda notebook: notebook.update(nbformat_minor=9)),
    "other cell ids": Habit(change=renamed),
    "Windows line ends in cells": Habit(change=every(lambda cell: cell.update(source=cell["source"].replace("\n", "\r\n")))),
    "Windows line ends in the file": Habit(saved=lambda text: text.replace("\n", "\r\n").encode("utf-8-sig")),
    "outputs cleared": Habit(change=every(lambda cell: cell.pop("outputs", None) and cell.update(outputs=[], execution_count=None))),
    "outputs of a run": Habit(change=all_run),
    "metadata lost": Habit(change=every(lambda cell: cell.update(metadata={}))),
    # cells moved and added; split ones, which no kernel runs, tests/corpus/honest.py has
    "moved to the end": Habit(change=to_the_end),
    "text between": Habit(change=text_between),
    "an empty cell between": Habit(between=("", "\n\n")),
    "tries below": Habit(between=("is_contiguous((2, 3), (3, 1))", "is_contiguous?"), below=("assert not is_contiguous((2, 3), (1, 2))\nprint('fine')", "1 / 0")),
    "a helper above the lesson's imports": Habit((), change=lambda notebook: notebook["cells"].insert(0, code(HELPER, "first"))),
    "a helper between the answer and its test": Habit((), between=(HELPER,)),
    "a helper written again": Habit(("def grown(wanted, n):\n    return 0", HELPER)),
    "another value below": Habit(("ONE = 1", HELPER), ANSWER.replace("wanted = 1", "wanted = ONE"), below=("ONE = 2", "ONE += 1")),
    "another helper below": Habit(below=("def grown(wanted, n):\n    return 0",)),
    "a helper of three cells": Habit(("def times(a, b):\n    return a * b", "def grown(wanted, n):\n    return times(wanted, n)")),
    # commands
    "installs above": Habit((f"!pip install einops\n%pip install einops\n{HELPER}",)),
    "autoreload": Habit(("%load_ext autoreload\n%autoreload 2", HELPER)),
    "a captured cell": Habit((f"%%capture out\n{HELPER}",)),
    "timed itself": Habit(answer=f"%%time\n{ANSWER}"),
    "timed below its lines": Habit(answer=f"{ANSWER}\n%timeit -n 1 -r 1 is_contiguous((2, 3), (3, 1))"),
    "a helper read by %run": Habit(("%run -i /tmp/nothing-of-this-name.py", HELPER)),
    "a file that is written and imported": Habit((f"%%writefile grown_up.py\n{HELPER}", "from grown_up import grown"), words="`grown`, which .* Line 1 imports `grown_up"),
    "another magic's cell": Habit((f"%%prun -q\n{HELPER}", HELPER)),
    # Python as people write it
    "type hints": Habit(answer=f"from __future__ import annotations\nfrom typing import Sequence\n\ndef is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:\n{BODY}"),
    "prints": Habit(answer=ANSWER.replace("    wanted = 1", "    print('shape', shape)\n    wanted = 1")),
    "a dataclass": Habit(("from dataclasses import dataclass\n\n@dataclass\nclass Walk:\n    wanted: int = 1\n    def grow(self, n):\n        self.wanted *= n\n        return self.wanted",), ANSWER.replace("wanted = 1", "walk, wanted = Walk(), 1").replace("grown(wanted, n)", "walk.grow(n)")),
    "imports at the bottom": Habit((), f"{calling('math.prod((wanted, n))')}\n\nimport math"),
    "imports in the function": Habit((), ANSWER.replace("    wanted = 1", "    from math import prod\n    wanted = 1").replace("grown(wanted, n)", "prod((wanted, n))")),
    "another name": Habit(answer=f"{ANSWER.replace('def is_contiguous', 'def walks_on')}\n\nis_contiguous = walks_on"),
    "a lambda": Habit((), "is_contiguous = lambda shape, stride: 0 in shape or all(n == 1 or s == math.prod(shape[i + 1:]) for i, (n, s) in enumerate(zip(shape, stride)))\nimport math"),
    "a decorator": Habit((HELPER, "from functools import lru_cache, wraps\n\ndef shown(f):\n    @wraps(f)\n    def inside(*given):\n        return f(*given)\n    return inside"), f"@shown\n@lru_cache\n{ANSWER}"),
    "a global that is changed": Habit((HELPER, "calls = 0"), ANSWER.replace("    wanted = 1", "    global calls\n    calls += 1\n    wanted = 1")),
    "only when it is the program": Habit(answer=f"{ANSWER}\n\nif __name__ == '__main__':\n    print(is_contiguous((2, 3), (3, 1)))"),
    "NumPy in a helper": Habit(("import numpy as np\n\ndef grown(wanted, n):\n    return np.ones((1, 2)).shape[0] * wanted * n",)),
    "tabs": Habit((HELPER.replace("    ", "\t"),), ANSWER.replace("    ", "\t")),
    "a helper written again below the visible test": Habit(change=lambda notebook: notebook["cells"].insert(place(notebook, f"{EXERCISE}__test") + 1, code("def grown(wanted, n):\n    return 0", "again"))),
    "hints that nothing imports": Habit(("from __future__ import annotations", HELPER), ANSWER.replace("(shape, stride)", "(shape: Shape, stride: Stride) -> Yes", 1)),
    "a return in no function": Habit((f"{HELPER}\n\nreturn grown",)),
    "a line that is updated": Habit((f"line = display('working', display_id=True)\n{HELPER}",)),
    "a command's answer, not used": Habit((f"files = !ls\n{HELPER}",)),
    "a command's answer": Habit((f"files = !ls\nprint(files[:1])\n{HELPER}",), words="`files`, which .* by IPython alone"),
    "a time that is kept": Habit((f"took = %timeit -n 1 -r 1 -o sum(range(9))\nprint(took)\n{HELPER}",), words="`took`, which .* by IPython alone"),
    "what was captured": Habit((f"%%capture out\nprint(1)\n{HELPER}", "ONE = len(out.stdout) - 1"), ANSWER.replace("wanted = 1", "wanted = ONE"), words="`out`, which .* by IPython alone"),
    "what was typed": Habit((HELPER, "ONE = len(_ih[:1])"), ANSWER.replace("wanted = 1", "wanted = ONE"), words="`_ih`, which .* by IPython alone"),
    "a number that is asked for": Habit((HELPER, "ONE = 1 if True else int(input('one? '))"), ANSWER.replace("wanted = 1", "wanted = ONE"), words="`ONE`, which .* Line 1 uses `input`"),
    "a parameter that is called input": Habit(("def grown(input, n):\n    return input * n",)),
    "another default dtype": Habit((f"torch.set_default_dtype(torch.float64)\n{HELPER}",), words="has changed the default dtype"),
    "no gradients any more": Habit((f"torch.set_grad_enabled(False)\n{HELPER}",), words="has changed whether gradients are made"),
    "a missing helper": Habit((), words="name 'grown' is not defined"),
    "a wrong answer": Habit(answer=calling("wanted + n"), words="is_contiguous"),
    "not begun": Habit((), "def is_contiguous(shape, stride):\n    raise NotImplementedError()", words="not written yet"),
}  # fmt: skip


@cache
def course() -> tuple[str, frozenset[str]]:
    """The released notebook with all answers, and the texts of its experiments and of other exercises."""
    made = answered(LESSON)
    texts = (
        cell["source"]
        for cell in made["cells"]
        if {"experiment", "exercise", "test"} & set(cell["metadata"].get("tags", ()))
        and not cell["metadata"].get("nbgrader", {}).get("grade_id", "").startswith(EXERCISE)
    )
    return json.dumps(made), frozenset(texts)


def handed_in(habit: Habit, folder: Path) -> nbformat.NotebookNode:
    """The notebook as this habit leaves it, and what an editor makes of its file."""
    made = plain(json.loads(course()[0]))
    cells, at = made["cells"], place(made, EXERCISE)
    cells[at]["source"] = habit.answer
    if habit.experiment:
        earlier = next(c for c in reversed(cells[:at]) if "experiment" in c["metadata"].get("tags", ()))
        earlier["source"] = f"{habit.experiment}\n\n\n{earlier['source']}"
    for where, sources in ((at + 3, habit.below), (at + 1, habit.between), (at, habit.above)):
        cells[where:where] = [code(source, f"own-{where}-{i}") for i, source in enumerate(sources)]
    habit.change(made)
    path = folder / f"{LESSON}.ipynb"
    path.write_bytes(habit.saved(written(made)))
    return nbformat.reads(path.read_bytes().decode("utf-8-sig"), as_version=4)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    (tmp_path / "kernel").mkdir()
    monkeypatch.chdir(tmp_path / "kernel")
    made = InteractiveShell.instance()
    monkeypatch.setattr(made, "system", lambda *_: None)  # nothing is installed
    monkeypatch.setattr(made, "enable_gui", lambda *_: None)  # a kernel's has one
    yield made
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    made.restore_sys_module_state()
    InteractiveShell.clear_instance()


def visible(shell: InteractiveShell, nb: nbformat.NotebookNode) -> str:
    """What the exercise's visible test says where the cells that it may rest on were run in order."""
    said = ""
    for cell in nb.cells:
        if cell.cell_type != "code" or cell.source.replace("\r\n", "\n") in course()[1]:
            continue
        with capture_output() as captured:
            result = shell.run_cell(cell.source, store_history=True)
        if "check_is_contiguous" in cell.source:
            problem = result.error_in_exec or result.error_before_exec
            said = f"✗ {problem}" if problem else str(captured.stdout)
    return said


@pytest.mark.parametrize("what", HABITS)
def test_what_the_visible_test_says_is_the_grade(
    shell: InteractiveShell, runner: Runner, what: str, tmp_path: Path
) -> None:
    habit = HABITS[what]
    said = visible(shell, handed_in(habit, tmp_path))
    os.chdir(tmp_path)
    nb = clean(tmp_path, build.SOLUTIONS / LESSON / f"{LESSON}.ipynb")
    steps = [
        step for step in steps_of(nb) if step.exercise in ("", EXERCISE)
    ]  # no other exercise's takes time
    graded = {e["verdict"]: e for e in grade(runner.warm, steps, LESSON) if "verdict" in e}
    test, hidden = graded[f"{EXERCISE}__test"], graded[f"{EXERCISE}__hidden"]
    assert (said.startswith("✓"), test["passed"], hidden["passed"]) == (not habit.words,) * 3, (
        said,
        test,
        hidden,
    )
    if habit.words:
        with pytest.raises(AssertionError, match=f"(?s){habit.words}"):
            raise AssertionError(said)
        assert test["text"].splitlines()[0] == said.removeprefix("✗ ").splitlines()[0]
