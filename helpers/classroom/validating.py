"""nbgrader's Validate button with the result first: how many exercises are solved, and what each of the others says.

``make lab`` loads this extension in place of nbgrader's own (``etc/jupyter/``). What runs is nbgrader's.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from jupyter_server.utils import url_path_join
from nbgrader.server_extensions.validate_assignment import handlers

#: how the build begins a visible test: `build.TEST_NOTE`
TEST = re.compile(r"# Test of exercise (?P<name>.+): run this cell\.")
NOT_WRITTEN = "not written yet"


class Validate(handlers.ValidateAssignmentHandler):
    """Answers the button. The dialog shows what it gets in the order in which it gets it."""

    def validate_notebook(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = super().validate_notebook(path)
        value = answer["value"]
        if answer["success"] and isinstance(value, dict) and value.get("failed"):
            cells = nbformat.read(Path(self.root_dir) / path, as_version=4).cells
            value["failed"] = told([cell.source.strip() for cell in cells], value["failed"])
        return answer


def told(sources: Sequence[str], failed: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """What the dialog shows of a notebook with these cells: first the sum, then each test that an answer failed, under its
    exercise's name. An exercise that is not written stands in the sum alone."""
    said = {each["source"]: each["raw_error"].strip() for each in failed}
    tests = {source: found["name"] for source in sources if (found := TEST.match(source))}
    if not tests:
        return [dict(each) for each in failed]
    lines = [f"{sum(source not in said for source in tests)} of {len(tests)} exercises solved", ""]
    for source, name in tests.items():
        lines.append(f"✗ {name}: {_briefly(said[source])}" if source in said else f"✓ {name}")
    begun = [each for each in failed if not (each["source"] in tests and NOT_WRITTEN in each["raw_error"])]
    below = [dict(each) | {"source": tests.get(each["source"], each["source"])} for each in begun]
    return [{"source": "\n".join(lines), "error": "", "raw_error": ""}, *below]


def _briefly(text: str) -> str:
    return NOT_WRITTEN if NOT_WRITTEN in text else text.split("\n")[0].removeprefix("✗ ")


def _load_jupyter_server_extension(app: Any) -> None:
    app.web_app.settings["root_dir"] = app.root_dir
    own = {handlers.ValidateAssignmentHandler: Validate}
    base = app.web_app.settings["base_url"]
    routes = [
        (url_path_join(base, pattern), own.get(kind, kind)) for pattern, kind in handlers.default_handlers
    ]
    app.web_app.add_handlers(".*$", routes)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]
