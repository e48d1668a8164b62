"""Verdicts that were reached before, so that grading goes on where it was killed and does nothing twice.

One file a verdict, named by the hash of all that it depends on (:func:`helpers.classroom.submission.key_of`); written
whole or not at all. Deleting the folder costs time and nothing else.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from helpers import keeping
from helpers.classroom.bench import Done
from helpers.classroom.step import Verdict

FOLDER = ".grading"


def recall(course: Path, key: str) -> Done | None:
    """What was found for ``key``; ``None`` if nothing was."""
    kept = load(course / FOLDER / f"{key}.json")
    if not kept:
        return None
    verdicts = {name: Verdict(**verdict) for name, verdict in kept["verdicts"].items()}
    return Done(verdicts, {int(place): ran for place, ran in kept["ran"].items()}, kept["seconds"])


def keep(course: Path, key: str, done: Done) -> None:
    """Write ``done`` under ``key``."""
    write(course / FOLDER / f"{key}.json", dataclasses.asdict(done))


def load(path: Path) -> dict[str, Any]:
    """What :func:`write` wrote; {} if there is nothing that can be read."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def write(path: Path, data: object) -> None:
    """``data`` as JSON, at once and whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keeping.write(path, json.dumps(data))
