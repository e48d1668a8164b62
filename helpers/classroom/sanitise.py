"""What a submission holds, made harmless before it is stored: text and pictures, nothing that a browser would run.

Cleaning HTML is a race with browsers. Nothing here needs it: what a learner prints is text, and figures are PNG. So
HTML, SVG, JavaScript, widgets and LaTeX among the outputs go, and a Markdown cell that is not the course's own is kept
word for word, shown as text. What the cells of a course say themselves is not touched.
"""

import base64
import binascii
import hashlib
import re
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from helpers.classroom import sheet

#: kinds of output that are kept, and how their bytes begin
PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
#: metadata that may stay on a notebook; the kernel's name is the master's by then
NOTEBOOK_KEYS = ("kernelspec", "course", "course_grading")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: Markdown without one of these marks makes no tag, link, picture, formula or diagram
_MARKS = re.compile(r"[<>&\[\]\\$]|```|~~~")
#: characters that turn the direction of a line or are not drawn, but a newline, a tab and the colours of a terminal
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def visible(text: object) -> str:
    """The text with every character that hides, or reorders its line, written out as ``\\u202e``."""
    plain = str(text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


def allowed(code: str) -> str:
    """What a page's policy says to let this style or handler through, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def literally(text: str) -> str:
    """Markdown that shows ``text`` as it was typed."""
    fence = "~" * max(3, 1 + max((len(run) for run in re.findall(r"~+", text)), default=0))
    return f"{fence}text\n{visible(text)}\n{fence}"


class Sanitise(NbGraderPreprocessor):
    """Keeps of a notebook what cannot run; to be used before a notebook of a student's is written anywhere."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        coursedir = getattr(self.parent and self.parent.parent, "coursedir", None)
        about = resources.get("nbgrader", {})
        known = coursedir is not None and "assignment" in about
        return harmless(
            nb, reference(coursedir, about["assignment"], about["notebook"]) if known else None
        ), resources


def reference(coursedir: Any, lesson: str, notebook: str) -> Path:
    """Where the lesson as built lies. coursedir: nbgrader's CourseDirectory."""
    return Path(coursedir.format_path(coursedir.source_directory, ".", lesson)) / f"{notebook}.ipynb"


def harmless(nb: NotebookNode, built: Path | None) -> NotebookNode:
    """The notebook without what could run. Markdown that also stands in the lesson as ``built`` stays as it is."""
    ours = set()
    if built is not None and built.exists():
        ours = {c.source for c in sheet.built(built).cells if c.cell_type == "markdown"}
    metadata = NotebookNode({k: nb.metadata[k] for k in NOTEBOOK_KEYS if k in nb.metadata})
    metadata["language_info"] = NotebookNode({"name": "python"})
    cells = [_cell(cell, place, ours) for place, cell in enumerate(nb.cells)]
    return NotebookNode(cells=cells, metadata=metadata, nbformat=4, nbformat_minor=5)


def _cell(cell: NotebookNode, place: int, ours: set[str]) -> NotebookNode:
    source = cell.get("source")
    source = source if isinstance(source, str) else "".join(map(str, source or ()))
    if cell.get("cell_type") == "code":
        count = cell.get("execution_count")
        # nbformat's new_code_cell holds each against the schema, which is done once, when the notebook is written
        clean = NotebookNode(
            cell_type="code",
            source=source,
            outputs=[kept for output in cell.get("outputs", []) if (kept := _output(output)) is not None],
            execution_count=count if isinstance(count, int) else None,
        )
    else:  # Markdown; and raw cells, which nbconvert would write into a page as they are
        harmless = source in ours or (cell.get("cell_type") == "markdown" and not _MARKS.search(source))
        clean = NotebookNode(cell_type="markdown", source=source if harmless else literally(source))
    known = cell.get("id")
    clean["id"] = known if isinstance(known, str) and _NAME.fullmatch(known) else f"cell-{place}"
    clean["metadata"] = _metadata(cell.get("metadata"))
    return clean


def _metadata(given: Any) -> NotebookNode:
    given = given if isinstance(given, dict) else {}
    kept: dict[str, Any] = {}
    grading = given.get("nbgrader")
    if isinstance(grading, dict) and _is_name(grading.get("grade_id")):
        kept["nbgrader"] = {
            k: v for k, v in grading.items() if isinstance(v, bool | int | float) or _is_name(v)
        }
    role = given.get("course")
    if isinstance(role, dict):
        kept["course"] = {k: v for k, v in role.items() if v == "" or _is_name(v)}
    if isinstance(tags := given.get("tags"), list):
        kept["tags"] = [tag for tag in tags if _is_name(tag)]
    return nbformat.from_dict(kept)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _output(output: Any) -> NotebookNode | None:
    kind = output.get("output_type") if isinstance(output, dict) else None
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return NotebookNode(output_type="stream", name=name, text=_text(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        return NotebookNode(
            output_type="error",
            ename=_text(output.get("ename")),
            evalue=_text(output.get("evalue")),
            traceback=[_text(line) for line in lines] if isinstance(lines, list) else [],
        )
    if kind not in ("display_data", "execute_result"):
        return None
    data = output.get("data") if isinstance(output.get("data"), dict) else {}
    sizes = output.get("metadata") if isinstance(output.get("metadata"), dict) else {}
    kept = {mime: data[mime] for mime, begins in PICTURES.items() if _is_picture(data.get(mime), begins)}
    if "text/plain" in data or not kept:
        other = f"(an output of the kind {', '.join(map(str, data))}; it is not kept: text and PNG are)"
        kept["text/plain"] = _text(data.get("text/plain", other))
    metadata = {mime: _size(sizes.get(mime)) for mime in kept if _size(sizes.get(mime))}
    return NotebookNode(output_type="display_data", data=kept, metadata=metadata)


def _size(given: Any) -> dict[str, int]:
    """The width and height of a picture. nbconvert writes them into its page without quotes: numbers only."""
    given = given if isinstance(given, dict) else {}
    return {k: given[k] for k in ("width", "height") if type(given.get(k)) is int}


def _text(value: Any) -> str:
    return visible(
        "".join(map(str, value)) if isinstance(value, list) else value if value is not None else ""
    )


def _is_picture(value: Any, begins: bytes) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return base64.b64decode("".join(value.split()), validate=True).startswith(begins)
    except (binascii.Error, ValueError):
        return False
