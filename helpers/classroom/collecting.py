"""From the executed references to helpers/lessons/sources_on_trial/kept.json: every verdict that a lesson keeps, which lesson, on what evidence."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.lesson import VERDICTS_MIME
from helpers.lessons.sources_on_trial.verdicts import HERE

#: the last line of a table as text: "[live (CPU); how far off] caption"
_LABEL = re.compile(r"^\[([^\];]+)", re.MULTILINE)


def collect(references: Iterable[Path]) -> dict[str, dict[str, str]]:
    """id → the claim's row, with its lesson and its evidence. references: executed notebooks; the last lesson's is passed over.

    ValueError: two lessons keep a verdict of one id.
    """
    claims: dict[str, dict[str, str]] = {}
    for path in sorted(references):
        for table in tables(path) if path.stem != HERE and path.exists() else ():
            label = _LABEL.findall("".join(table["text/plain"]))[-1]
            for row in table[VERDICTS_MIME]["claims"]:
                name = row["id"]
                if name in claims:
                    raise ValueError(f"{path.stem}: {claims[name]['lesson']} keeps a verdict {name!r} too")
                about = {k: row[k] for k in ("source", "claim", "measured", "experiment", "verdict")}
                claims[name] = about | {"evidence": label, "lesson": path.stem}
    return claims


def tables(path: Path) -> list[dict[str, Any]]:
    """The outputs of a notebook that carry verdicts."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return [mime for mime in data if VERDICTS_MIME in mime]


def text(references: Iterable[Path]) -> str:
    """What kept.json has to hold."""
    return json.dumps(collect(references), indent=1, ensure_ascii=False) + "\n"
