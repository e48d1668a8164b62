"""Read by every `nbgrader` command and by JupyterLab's nbgrader buttons when they start in this folder."""

from pathlib import Path

from helpers.classroom.grading import configure

configure(get_config(), Path(__file__).resolve().parent)  # noqa: F821 - traitlets provides get_config
