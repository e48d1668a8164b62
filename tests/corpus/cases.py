"""What the two halves of the corpus have in common: a case, and a notebook's cells as plain dictionaries."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Notebook = dict[str, Any]
Cell = dict[str, Any]


class Case(NamedTuple):
    """One submission.

    write: called with the released notebook in which every exercise is answered rightly, an empty folder and the
    lesson's name; it fills the folder. earns: "full", "nothing", "not gradable", or the points of the exercises that
    do not earn theirs, {exercise: points}. human: whether a person is asked to look.
    """

    write: Callable[[Notebook, Path, str], None]
    earns: str | dict[str, int] = "full"
    human: bool = False


def plain(notebook: Notebook) -> Notebook:
    """A copy that may be changed; sources as one text, as nbformat reads them."""
    made: Notebook = json.loads(json.dumps(notebook))
    for cell in made["cells"]:
        cell["source"] = "".join(cell["source"])
    return made


def written(notebook: Notebook) -> str:
    """The text that JupyterLab saves: sources as lists of lines, one blank a level."""
    made = copy.deepcopy(notebook)
    for cell in made["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def saved(notebook: Notebook, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(notebook), encoding="utf-8")


def place(notebook: Notebook, grade_id: str) -> int:
    """Where the cell with this ``grade_id`` stands."""
    return next(
        i
        for i, c in enumerate(notebook["cells"])
        if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id
    )


def graded(notebook: Notebook, mark: str) -> list[str]:
    """The grade_ids of the cells whose nbgrader metadata say ``mark``: "solution", "grade" or "locked"."""
    marks = [c["metadata"].get("nbgrader", {}) for c in notebook["cells"]]
    return [m["grade_id"] for m in marks if m.get(mark)]


def code(source: str, name: str, **metadata: Any) -> Cell:
    """A code cell that was added."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": metadata,
        "outputs": [],
        "source": source,
    }
