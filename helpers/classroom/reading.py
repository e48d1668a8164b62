"""The bytes of a submitted notebook, as cells: encodings, older formats and damage are dealt with here.

Nothing is believed of a submission but the text of its cells and which of the master's cells they say they are.
Outputs are dropped at once: they are the largest part, and grading makes them anew.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from helpers.text.terminal import printable

#: characters of one cell; the longest answer of the course has a hundredth of it
LONGEST_CELL = 100_000
#: … of one that is text and no code; and blank lines one below the other. Pages draw both in time that grows with the square
LONGEST_TEXT, MOST_BLANK = 20_000, 50
#: cells of a notebook; the longest lesson has 90
MOST_CELLS = 3_000
#: characters of all cells together; the longest lesson has 70,000
LONGEST_NOTEBOOK = 1_500_000
#: brackets in a file, those in its texts apart: each becomes an object of about 100 bytes before outputs can be dropped
MOST_BRACKETS = 500_000
#: the last one may be open: else each quote in a broken file would be looked at to the file's end
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


class NotGradable(Exception):
    """A submission that no grade can be given to; the text is one sentence: what is wrong, where, what to do."""


@dataclass(frozen=True)
class Written:
    """One cell as it was handed in. kind: "code", "markdown" or "raw". id, grade_id: "" where it says none."""

    kind: str
    source: str
    id: str = ""
    grade_id: str = ""


def read(data: bytes, notes: list[str]) -> list[Written]:
    """The cells in ``data``; what had to be repaired is added to ``notes``. Raises :class:`NotGradable`."""
    if not data.strip(b"\0 \t\r\n"):
        raise NotGradable("the file is empty (0 cells): hand the notebook in again")
    if _brackets(data) > MOST_BRACKETS and _brackets(_TEXTS.sub(b"", data)) > MOST_BRACKETS:
        raise NotGradable(
            "the file holds more brackets than a notebook has: choose Edit > Clear Outputs of All Cells, save, "
            "and hand it in again"
        )
    notebook = _parsed(_text(data, notes), notes)
    cells = _cells(notebook)
    if len(cells) > MOST_CELLS:
        raise NotGradable(
            f"the notebook has {len(cells):,} cells, and at most {MOST_CELLS:,} are read: delete what is no part of the "
            "lesson, and hand it in again"
        )
    odd = sum(not isinstance(cell, dict) for cell in cells)
    if odd:
        notes.append(f"{odd} of its cells were no cells, and were passed over")
    written = [_written(cell, place, notes) for place, cell in enumerate(cells) if isinstance(cell, dict)]
    if (long := sum(len(cell.source) for cell in written)) > LONGEST_NOTEBOOK:
        raise NotGradable(
            f"the cells hold {long:,} characters, and at most {LONGEST_NOTEBOOK:,} are read: delete what is no part of "
            "the lesson, and hand it in again"
        )
    return written


def _brackets(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _text(data: bytes, notes: list[str]) -> str:
    encoding = json.detect_encoding(data)
    if encoding != "utf-8":
        notes.append(f"the file was {encoding.upper()} and not plain UTF-8, and was read as such")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if encoding not in ("utf-8", "utf-8-sig"):
            text = data.decode(encoding, "replace")
        else:
            text = data.decode("cp1252", "replace")
            notes.append("the file was not UTF-8, and was read as Latin-1")
    if "\0" in text:
        notes.append("the file was padded with NUL bytes, which were left out")
        text = text.replace("\0", "")
    return text.strip("\ufeff \t\r\n")


def _parsed(text: str, notes: list[str]) -> dict[str, Any]:
    try:
        notebook, end = json.JSONDecoder(strict=False, parse_int=float).raw_decode(text)
    except RecursionError:
        raise NotGradable(
            "the file is nested thousands of levels deep, which is no notebook: hand the lesson's notebook in again"
        ) from None
    except ValueError as problem:
        raise NotGradable(_why_no_json(text, problem)) from None
    rest = text[end:].strip("\0 \t\r\n")
    if not isinstance(notebook, dict):
        raise NotGradable(
            f"the file holds a {type(notebook).__name__} and no notebook: hand in the lesson's .ipynb file"
        )
    if rest:
        if '"cells"' in rest and '"cell_type"' in rest and rest.startswith("{"):
            raise NotGradable(
                "the file holds two notebooks, one after the other: hand in the one that shall be graded"
            )
        notes.append(f"after the notebook's end {len(rest):,} further characters stood, which were left out")
    return notebook


def _why_no_json(text: str, problem: ValueError) -> str:
    conflict = re.search(r"^(<{7}|>{7}|={7})( |$)", text, flags=re.MULTILINE)
    if conflict:
        line = text.count("\n", 0, conflict.start()) + 1
        return (
            f"line {line} of the file is a mark of a Git merge conflict ({conflict[1]}): resolve the conflict, open the "
            "notebook once in JupyterLab, and hand it in again"
        )
    start = text[:400].lower()
    if start.startswith("<"):
        return "the file is a web page and not the notebook: download the .ipynb file itself, and hand it in again"
    if start.startswith("pk\x03\x04"):
        return "the file is a zip archive and not the notebook: unpack it, and hand in the .ipynb file"
    if start.startswith("version https://git-lfs"):
        return "the file is only Git LFS's pointer to the notebook: fetch the real one, and hand it in again"
    if start.startswith(("{", "[")):
        line, column = getattr(problem, "lineno", 0), getattr(problem, "colno", 0)
        if getattr(problem, "pos", 0) >= len(text) - 1 or "Unterminated" in str(problem):
            return (
                f"the file breaks off in the middle, after line {text.count(chr(10)) + 1}, as a copy that was not "
                "finished does: save the notebook, and hand it in again"
            )
        return (
            f"line {line}, column {column} of the file is no JSON, as a notebook has to be: open it in JupyterLab; if "
            "that fails too, start from a fresh copy, and hand it in again"
        )
    return "the file is no notebook (a notebook begins with a brace): hand in the lesson's .ipynb file"


def _cells(notebook: dict[str, Any]) -> list[Any]:
    """The list of cells; in formats 1 to 3 it stood in sheets."""
    cells = notebook.get("cells")
    sheets = notebook.get("worksheets")
    if not isinstance(cells, list) and isinstance(sheets, list):
        lists = [s["cells"] for s in sheets if isinstance(s, dict) and isinstance(s.get("cells"), list)]
        if lists:
            return [cell for sheet in lists for cell in sheet]
    if not isinstance(cells, list):
        raise NotGradable(
            "the file is JSON but no notebook, for it has no list of cells: hand in the lesson's .ipynb file"
        )
    return cells


def _written(cell: dict[str, Any], place: int, notes: list[str]) -> Written:
    kind = cell.get("cell_type")
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    elif not isinstance(source, str):
        source = ""
    if kind == "heading":  # of format 3
        kind, source = "markdown", "# " + source
    if kind not in ("code", "markdown", "raw"):
        kind = "code" if "outputs" in cell else "raw"
        note = "cells of no known type were taken as code where they had outputs, and as text where they had none"
        if note not in notes:
            notes.append(note)
    source = printable(source).replace("\r\n", "\n").replace("\r", "\n")
    source = re.sub(rf"\n(?:[ \t\f\v]*\n){{{MOST_BLANK},}}", "\n" * MOST_BLANK, source)
    if len(source) > (LONGEST_CELL if kind == "code" else LONGEST_TEXT):
        notes.append(f"cell {place + 1} has {len(source):,} characters, and was left out")
        source = f"# left out: this cell had {len(source):,} characters" if kind == "code" else ""
    meta = cell.get("metadata")
    marks = meta.get("nbgrader") if isinstance(meta, dict) else None
    grade_id = marks.get("grade_id") if isinstance(marks, dict) else None
    return Written(kind, source, _name(cell.get("id")), _name(grade_id))


def _name(value: Any) -> str:
    """A cell's id or grade_id; "" for what cannot be one."""
    return value if isinstance(value, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", value) else ""
