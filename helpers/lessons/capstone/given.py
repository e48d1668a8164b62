"""What a class is given: its script, and what each exercise may cost.

All of it follows from the class's seed. A student's copy has it as data (given.json), and not what it was made from.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.check.variant import class_seed
from helpers.keeping import write
from helpers.lessons.capstone.parts import WHOLE, Script
from helpers.recordings import registry

HERE = Path(__file__).parent
#: what :func:`made` returned for one seed: in a student's copy for its class, else for the usual script
GIVEN = HERE / "given.json"
#: the same for this machine's class, written at its first use
CLASS = HERE / "given_class.json"
#: what a student's copy has not: the answers
KEPT_BACK = tuple(
    HERE / name for name in ("fast.py", "catalogue.py", "build.py", "given.json", "given_class.json")
)
#: what it follows from
SOURCES = tuple(
    HERE / name for name in ("fast.py", "catalogue.py", "build.py", "scores.py", "parts.py", "files.py")
)
#: how much of what an exercise's repairs save may be left
LEFT = 0.2
#: of what is counted one by one, a tenth of it, and at most so many: a repair that forgets one place is to be seen
LEFT_ONE_BY_ONE, LEFT_OF = 0.1, {"syncs": 1.5, "collectives": 0.5, "compilations": 0.0}
#: of a graded counter, the repairs have to save this share; of what is counted one by one so many a step (counts are exact)
SAVED, SAVED_OF = 0.05, 0.5


def _kept(seed: str) -> dict[str, Any] | None:
    """What is on disk of :func:`made`, if it is up to date."""
    for path in (GIVEN, CLASS):
        if path.exists():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if stored["seed"] == seed and stored["of"] in (fingerprint(), ""):
                return stored
    return None


@lru_cache(maxsize=8)
def _given(seed: str) -> dict[str, Any]:
    if data := _kept(seed):
        return data
    data = made(seed)
    if seed == class_seed() != "":
        with contextlib.suppress(OSError):  # a course that nobody may write to works it out each time
            write(CLASS, text_of(data))
    return data


def handed_out() -> dict[str, Any]:
    """What a student's copy has of it."""
    return _given(class_seed()) | {"of": ""}


def text_of(given: dict[str, Any]) -> str:
    return json.dumps(given, indent=1, sort_keys=True) + "\n"


def fingerprint() -> str:
    """Of the files that what is given follows from; "" in a student's copy."""
    if not all(path.exists() for path in SOURCES):
        return ""
    return digest(*(path.read_text(encoding="utf-8") for path in SOURCES))


@lru_cache(maxsize=8)  # to read six programs takes a tenth of a second, and every test asks for the script
def digest(*programs: str) -> str:
    """16 hex digits of these texts that no import at their top, docstring, comment or white space changes."""
    hashed = hashlib.sha256()
    for text in programs:
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                end = node.end_lineno or node.lineno
                lines[node.lineno - 1 : end] = [""] * (end - node.lineno + 1)
        hashed.update(registry.code_hash("\n".join(lines), "").encode())
    return hashed.hexdigest()[:16]


def made(seed: str) -> dict[str, Any]:
    """source: the script's text. limits: exercise → counter → the most that it may cost. sent_bytes: of the gradients.

    LookupError in a student's copy.
    """
    from helpers.lessons.capstone import scores

    build = builder()
    slow, fast = (scores.score(version).as_dict() for version in (build.slow(seed), build.fast()))
    limits: dict[str, dict[str, float]] = {}
    for area, counters in build.GRADED.items():
        best = scores.score(build.repaired(seed, area)).as_dict()
        limits[area] = {name: _limit(name, slow, best) for name in counters}
    limits["all"] = {name: _limit(name, slow, fast, graded=name in WHOLE) for name in scores.FIELDS}
    source = build.slow(seed).source
    about = {"seed": seed, "of": fingerprint(), "source": source}
    return about | {"limits": limits, "sent_bytes": fast["sent_bytes"]}


def _limit(name: str, slow: dict[str, float], best: dict[str, float], graded: bool = True) -> float:
    """The most that a counter may be. ValueError for a graded one that the repairs hardly lower: who did nothing would
    be given the point, or nobody could have it."""
    saved = slow[name] - best[name]
    if graded and saved < (SAVED_OF if name in LEFT_OF else SAVED * slow[name]):
        raise ValueError(f"{name}: {slow[name]:g} before the repairs, {best[name]:g} after them")
    if name in LEFT_OF:
        return best[name] + min(LEFT_OF[name], LEFT_ONE_BY_ONE * max(0.0, saved))
    return best[name] + LEFT * max(0.0, saved)


def builder() -> ModuleType:
    """What scripts are made by. LookupError in a student's copy, which has not got it."""
    try:
        return importlib.import_module("helpers.lessons.capstone.build")
    except ModuleNotFoundError:
        raise LookupError(
            "the faults and their repairs are kept back: a student's copy has its own class's script and limits"
        ) from None


def script(seed: str | None = None) -> Script:
    """The class's script; with a seed, another class's, which a student's copy has not (LookupError)."""
    seed = class_seed() if seed is None else seed
    stored = _kept(seed)
    own: Script = Script(stored["source"]) if stored else builder().slow(seed)
    return own


def budget(seed: str | None = None) -> dict[str, dict[str, float]]:
    """Exercise → counter → the most that the script may cost after it: the best of it, and a fifth of what that saves.

    Exercises: "data", "model", "step", "run" (each with the others' parts as they were), "all".
    """
    limits: dict[str, dict[str, float]] = _given(class_seed() if seed is None else seed)["limits"]
    return limits


def sent_bytes() -> float:
    """Bytes that a step has to send to other ranks: the gradients, once."""
    sent: float = _given(class_seed())["sent_bytes"]
    return sent


# python -m helpers.lessons.capstone.given: the usual script's, after a change of SOURCES
if __name__ == "__main__":
    write(GIVEN, text_of(made("")))
    sys.stdout.write(f"{GIVEN.name} is written\n")
