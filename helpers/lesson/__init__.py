"""What every lesson says and keeps: its set-up line, predictions, verdicts on the sources, and progress."""

import logging
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.lesson import sources
from helpers.lesson.claim import Claim
from helpers.lesson.earlier import watch_names
from helpers.lesson.predictions import predict, spelled
from helpers.progress import begin, current, index, progress, record
from helpers.text.tables import Table, table
from helpers.text.terminal import lenient

if TYPE_CHECKING:
    from helpers.lesson.report_page import Report

__all__ = [
    "Claim", "Table", "current", "index", "keep", "predict", "progress", "record", "report", "spelled",
    "start", "table", "verdicts",
]  # fmt: skip

VERDICTS_MIME = "application/vnd.pytorch-performance.verdicts+json"
KEPT_MIME = "application/vnd.pytorch-performance.kept+json"


def start(name: str, evidence: Sequence[str]) -> None:
    """Begin a lesson: print what this machine is and which evidence the lesson will show.

    name: the lesson's folder, e.g. ``"01_storage_and_stride"``. evidence: labels such as ``"live (CPU)"``.
    """
    _check_python()
    lenient()
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_news)
    # the profiler's library writes time-stamped lines of its own into the notebook otherwise
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    begin(name)
    watch_names(name)
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none (and none needed)"
    version, python = torch.__version__.partition("+")[0], ".".join(platform.python_version_tuple()[:2])
    print(f"torch {version} · Python {python} · CPU threads: {torch.get_num_threads()} · GPU: {gpu}")
    print("evidence in this lesson: " + " · ".join(evidence))


def _is_news(line: logging.LogRecord) -> bool:
    """False for what a torch built for CUDA logs, on a machine without a GPU, whenever something loads its C++ tools."""
    return not line.getMessage().startswith("No CUDA runtime is found")


def _check_python() -> None:
    if missing := [name for name in ("torch", "numpy", "matplotlib") if find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"this kernel's Python ({sys.executable}) has no {', '.join(missing)}. The course runs in its own environment: "
            "start it with `make lab`, then choose Kernel > Change Kernel… > Python 3 (ipykernel)."
        )


def verdicts(claims: Sequence[Claim], *, evidence: str, shown: Sequence[str] = ()) -> "VerdictTable":
    """The lesson's sources on trial: a table to read, and the same as data for the last lesson.

    shown: ids of the claims in the table, in their order (default: all). The others are kept as data. ValueError for an
    id that no claim has.
    """
    by_id = {claim.id: claim for claim in claims}
    if unknown := set(shown) - set(by_id):
        raise ValueError(f"shown: no claim {sorted(unknown)}; there are {sorted(by_id)}")
    return VerdictTable(claims, evidence, [by_id[name] for name in shown] or claims)


class VerdictTable:
    """Shows as a table; carries its claims as JSON in the notebook's output."""

    def __init__(self, claims: Sequence[Claim], evidence: str, shown: Sequence[Claim]) -> None:
        self.claims = claims
        rows = [
            asdict(claim) | {"source": sources.signed(claim.source), "measured here": claim.measured}
            for claim in shown
        ]
        columns = ["claim", "source", "measured here", "verdict", "experiment"]
        self.table = table(rows, columns, evidence=evidence)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/plain": repr(self.table),
            "text/html": self.table._repr_html_(),
            VERDICTS_MIME: {"lesson": current(), "claims": [asdict(claim) for claim in self.claims]},
        }


def keep(**values: Any) -> None:
    """Keep numbers and words for the text, under a name each; shows nothing. Where the master's text says
    ``{{step_ms:.1f}}``, the build writes what ``keep(step_ms=…)`` was given.

    Numbers are kept to nine digits. Round one yourself whose last digits another processor computes otherwise. What a clock gave
    belongs in no text: a word with "≈" raises ValueError, as does what is neither a number nor a word.
    """
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    for name, value in plain.items():
        if not isinstance(value, int | float | str) or "≈" in str(value):
            raise ValueError(
                f"keep({name}=…) takes a number or a word that is the same on every run, not {value!r}"
            )
        if isinstance(value, float):
            plain[name] = float(f"{value:.9g}")
    if os.environ.get("COURSE_BUILD"):
        from IPython.display import display

        display({KEPT_MIME: plain}, raw=True)


def report(to: str = "report.html", name: str = "") -> "Report | None":
    """Write one page of what you solved, predicted and repaired, to show to a colleague; None where there is nothing yet.

    to: the file, beside the notebook. name: whose it is. ValueError where what is kept cannot be read, FileExistsError
    where a file of another kind stands in the way.
    """
    from helpers.lesson import report_page as reports  # pictures, which few cells need

    try:
        return reports.write(Path(to), name)
    except reports.NothingYet as nothing:
        print(nothing)
        return None
