"""One submission on its way through grading: a clean notebook, the steps that are run of it, the verdicts put into it.

The notebook carries everything: ``metadata["course"]`` of a cell says what it is, and ``metadata["course_grading"]`` of
the notebook what came out: lesson, digest of the file, not_gradable (why, or ""), notes, human, verdicts by grade_id.
"""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from helpers.check.variant import class_seed
from helpers.classroom import sheet
from helpers.classroom.bench import Done
from helpers.classroom.intake import NotGradable, take
from helpers.classroom.matching import Matched
from helpers.classroom.step import Step

#: where a notebook keeps what grading says of it
GRADING = "course_grading"
_RUN = ("setup", "experiment", "exercise", "added", "edited", "test", "hidden")


def clean(folder: Path, reference: Path) -> NotebookNode:
    """What can be graded of a folder of anything. Of nothing gradable: a notebook without answers that says why."""
    name, master = reference.stem, sheet.built(reference)
    why = ""
    try:
        taken = take(folder, master, name)
        nb = taken.notebook
    except NotGradable as odd:
        why = str(odd)
        nb = nbformat.from_dict(master | {"cells": [c for c in master.cells if "nbgrader" in c.metadata]})
        for cell in nb.cells:
            cell.update(source="", outputs=[], execution_count=None)
        nb.cells.insert(0, new_markdown_cell(f"**Not gradable:** {why}"))
        taken = Matched(nb, 0)
    nb.metadata[GRADING] = {
        "lesson": name,
        "digest": taken.digest,
        "not_gradable": why,
        "notes": taken.notes,
        "human": taken.human,
        "verdicts": {},
    }
    return nb


def steps_of(nb: NotebookNode) -> list[Step]:
    """What is run and what is judged of a clean notebook."""
    steps = []
    for place, cell in enumerate(nb.cells):
        about = cell.metadata.get("course", {})
        if cell.cell_type == "code" and about.get("role") in _RUN:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            role = "added" if about["role"] == "edited" else about["role"]
            steps.append(Step(place, role, cell.source, grade_id, about.get("exercise", "")))
    return steps


def key_of(nb: NotebookNode) -> str:
    """What the verdicts depend on, as a hash: the cells that are run and judged, the course's code and seed, PyTorch's."""
    steps = [(s.role, s.source, s.grade_id, s.exercise) for s in steps_of(nb)]
    built = nb.metadata.get("course", {}).get("built_from", "")
    text = json.dumps([nb.metadata[GRADING]["lesson"], steps, built, version("torch"), class_seed()])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def enter(nb: NotebookNode, done: Done) -> None:
    """Put what came out into the notebook: a test's verdict and a cell's prints as their outputs, all in its metadata."""
    for place, (printed, error, ended) in done.ran.items():
        cell = nb.cells[place]
        cell.outputs = [NotebookNode(output_type="stream", name="stdout", text=printed)] if printed else []
        if error:
            kind, text, lines = error
            cell.outputs.append(
                NotebookNode(output_type="error", ename=kind, evalue=text, traceback=lines.splitlines())
            )
        if ended:
            cell.outputs.append(_said("NotRun", ended))
    for cell in nb.cells:
        about: dict[str, Any] = cell.metadata.get("nbgrader", {})
        if not about.get("grade"):
            continue
        verdict = done.verdicts[about["grade_id"]]
        cell.outputs = [
            NotebookNode(output_type="stream", name="stdout", text=verdict.text)
            if verdict.passed
            else _said("CheckFailed", verdict.text)
        ]
        cell.execution_count = 1
        points = float(about["points"]) if verdict.passed else 0.0
        nb.metadata[GRADING]["verdicts"][about["grade_id"]] = asdict(verdict) | {"points": points}


def _said(kind: str, text: str) -> NotebookNode:
    return NotebookNode(output_type="error", ename=kind, evalue=text, traceback=["✗ " + text])
