"""What an answer sheet asks: its exercises with their numbers, titles, tasks and tests, read from a built notebook."""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

_HEADING = re.compile(r"\*\*Exercise (?P<number>\d+\.\d+) — (?P<title>.+?)\*\*")


@dataclass
class Exercise:
    """number, title: as in its heading. task: its Markdown, hints included. tests: grade_id → source, hidden ones too."""

    id: str
    number: str = ""
    title: str = ""
    task: str = ""
    tests: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``1.3 the same numbers, a different walk``."""
        return f"{self.number} {self.title}".strip() or self.id


@dataclass
class Sheet:
    title: str
    exercises: list[Exercise]


def exercise_of(grade_id: str) -> str:
    """The exercise that a test belongs to: ``windows`` for ``windows__hidden``."""
    return grade_id.rpartition("__")[0] or grade_id


def is_hidden(grade_id: str) -> bool:
    return grade_id.rpartition("__")[2].startswith("hidden")


def of(notebook: NotebookNode, name: str) -> Sheet:
    """The sheet of a lesson's notebook called ``name``; texts that are missing stay empty, or are the name."""
    exercises: dict[str, Exercise] = {}
    title, heading, task = name, None, ""
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader", {})
        grade_id = str(about.get("grade_id", ""))
        if cell.cell_type == "markdown":
            if title == name and (first := re.match(r"# (.+)", cell.source)):
                title = first[1].strip()
            if named := _HEADING.search(cell.source):
                heading, task = named, cell.source
        elif about.get("solution"):
            exercise = exercises.setdefault(grade_id, Exercise(grade_id))
            if heading:
                exercise.number, exercise.title, exercise.task = heading["number"], heading["title"], task
            heading = None
        elif about.get("grade"):
            key = exercise_of(grade_id)
            exercises.setdefault(key, Exercise(key)).tests[grade_id] = cell.source
    return Sheet(title, [e for e in exercises.values() if e.tests])


def read(path: Path) -> Sheet | None:
    """The sheet of a notebook file; ``None`` where there is none."""
    return of(built(path), path.stem) if path.exists() else None


def built(path: Path) -> NotebookNode:
    """A lesson's notebook as built, read once for a whole class: not to be changed."""
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, changed: int) -> NotebookNode:
    return nbformat.read(path, as_version=4)
