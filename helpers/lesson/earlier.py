"""Which cell of a notebook makes a name that is not there yet: a cell was passed over, and a later one wants it."""

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from helpers.text.names import names

_ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = _ROOT / "notebooks"


def watch_names(lesson: str) -> None:
    """From now on a NameError in this kernel says which cell of ``lesson`` makes the name. Nothing outside a kernel."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if shell is None or shell.custom_exceptions not in ((), (NameError,)):
        return  # not a notebook, or someone else's handler is there

    def tell(
        shell: Any,
        kind: type[BaseException],
        problem: NameError,
        trace: TracebackType | None,
        tb_offset: int | None = None,
    ) -> None:
        if kind is NameError and _in_a_cell(trace) and (hint := made_by(lesson, problem.name or "")):
            problem.args = (f"{problem}. {hint}",)
        shell.showtraceback((kind, problem, trace), tb_offset=tb_offset)

    shell.set_custom_exc((NameError,), tell)


def _in_a_cell(trace: TracebackType | None) -> bool:
    """Whether it was raised by what the notebook defines, and not inside a library."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "__main__"


def made_by(lesson: str, name: str) -> str | None:
    """A sentence on the first cell of ``lesson`` that makes ``name``; ``None`` where there is none."""
    for path in _places(lesson):
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        heading = ""
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                heading = (re.findall(r"^#+ +(.+)$", source, flags=re.MULTILINE) or [heading])[-1]
            elif cell["cell_type"] == "code" and name in _made_in(source):
                first = next(line.strip() for line in source.splitlines() if line.strip())
                under = f" under “{heading}”" if heading else ""
                return (
                    f"The cell{under} that begins with `{first[:60]}` makes it: run that one first, or all above "
                    "this one (Run > Run All Above Selected Cell)."
                )
    return None


def _places(lesson: str) -> Iterator[Path]:
    """Where the notebook of this kernel may be: JupyterLab tells its path, and kernels start in its folder."""
    if told := os.environ.get("JPY_SESSION_NAME"):
        yield Path(told)
    yield Path.cwd() / f"{lesson}.ipynb"
    yield NOTEBOOKS / lesson / f"{lesson}.ipynb"


def handed_out(lesson: str) -> dict[str, str]:
    """The cells of ``lesson`` that are no answers, as learners get them: a text → "setup" or "experiment". Empty where its
    notebook is not here."""
    return {text: tag for text, tag in _tagged(lesson).items() if tag in ("setup", "experiment")}


def visible_tests(lesson: str) -> list[str]:
    """The texts of the visible tests of ``lesson``; none where its notebook is not here."""
    return [text for text, tag in _tagged(lesson).items() if tag == "test"]


@cache
def _tagged(lesson: str) -> dict[str, str]:
    # a learner writes into the one in notebooks/: where a course has one that nobody writes into, it is that
    untouched = (
        _ROOT / "etc" / "fresh" / f"{lesson}.ipynb",
        _ROOT / "solutions" / lesson / f"{lesson}.ipynb",
    )
    path = next((path for path in untouched if path.exists()), NOTEBOOKS / lesson / f"{lesson}.ipynb")
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        tagged = [("".join(c["source"]), tag) for c in cells for tag in c["metadata"].get("tags", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {text: tag for text, tag in tagged if tag in ("setup", "experiment", "test") and text.strip()}


def _made_in(source: str) -> frozenset[str]:
    try:
        return names(source).made
    except SyntaxError:  # a magic, or not finished
        return frozenset()
