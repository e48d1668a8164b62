"""nbgrader replaces the files that it makes, and no others: nothing of a person's is deleted.

On its own it clears a lesson's whole folder before it writes one file into it again: the formgrader's *Generate*,
``autograde --force``, ``generate_feedback --force``, and each of them after a failure. Two of its settings end that.
"""

from pathlib import Path
from typing import Any

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment

from helpers.keeping import copy_beside, has_work

#: matches every notebook, as nbgrader's "*" does. But for "*", and only for that, nbgrader removes folders; asked for
#: some notebooks by name, it removes what it made of those and leaves everything else in the folder alone.
EVERY_NOTEBOOK = "?*"


class KeepsAnswers(NotebookExporter):
    """Before nbgrader makes a learner's notebook again, the one that is there is kept beside it, if a person wrote into it.

    nbgrader builds its exporter before it touches any file, and converts when the old file is gone. So the copy is
    made at the beginning, and taken back where the new notebook shows that there was nothing to keep.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._copies: dict[str, Path] = {}
        converter = self.parent
        # without `force` nbgrader passes over what is there
        if not isinstance(converter, GenerateAssignment) or not converter.force:
            return
        course = converter.coursedir
        for lesson, sources in converter.assignments.items():
            folder = Path(course.format_path(course.release_directory, ".", Path(lesson).name))
            for path in (folder / Path(source).name for source in sources):
                if path.exists():
                    self._copies[path.stem] = copy_beside(path)

    def from_filename(
        self, filename: str, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[NotebookNode, dict[str, Any]]:
        made, resources = super().from_filename(filename, resources=resources, **kw)
        if copy := self._copies.pop(Path(filename).stem, None):
            if has_work(copy.read_text(encoding="utf-8", errors="replace"), str(made)):
                self.log.warning("What was in %s is kept in %s", copy.parent, copy.name)
            else:
                copy.unlink()
        return made, resources


def spare(c: Any) -> None:
    """Have nbgrader's commands and buttons, configured by ``c``, spare every file that they did not make."""
    c.CourseDirectory.notebook_id = EVERY_NOTEBOOK
    c.GenerateAssignment.exporter_class = KeepsAnswers
    # of every file in a graded folder; with nbgrader's 444 a teacher's notes there could be read and not written on
    c.Autograde.permissions = 644
