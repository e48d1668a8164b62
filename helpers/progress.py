"""What a learner has done in which lesson: exercises that pass, predictions that were made. One small file a user."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.tables import Table, table

__all__ = ["begin", "current", "index", "predicted", "progress", "record", "remember"]

_INDEX = Path(__file__).with_name("lessons.json")
_current: str | None = None
#: in a lesson's part of the file, beside the names of its checks: question → answer
_PREDICTIONS = "predictions"


def begin(lesson: str) -> None:
    """From now on this kernel works on ``lesson``, a folder's name."""
    global _current
    _current = lesson


def current() -> str | None:
    """The lesson that was begun last in this kernel, by its folder's name."""
    return _current


def record(name: str, passed: bool) -> None:
    """Remember that the visible test of ``name`` passed or failed. Silent while building and grading."""
    _note(name, passed)


def remember(question: str, answer: Any) -> None:
    """Remember a prediction, so that it is still there after a restart. Silent while building and grading."""
    _note(question, answer, _PREDICTIONS)


def predicted() -> Mapping[str, Any]:
    """The predictions that were made in this lesson: question → answer."""
    found = _read().get(_current or "", {}).get(_PREDICTIONS, {})
    return found if isinstance(found, dict) else {}


def index() -> dict[str, Any]:
    """The lessons as built: name → title, question, minutes, exercises with the names that their tests check."""
    found: dict[str, Any] = json.loads(_INDEX.read_text(encoding="utf-8"))
    return found


def progress(lesson: str | None = None) -> Table:
    """Which exercises pass their visible tests: of one lesson (default: the one that was started), or of all (``"all"``)."""
    lessons, state = index(), _read()
    chosen = lesson or _current
    if chosen and chosen != "all":
        matches = [n for n in lessons if n == chosen or n.startswith(f"{chosen}_")]
        if not matches:
            raise ValueError(f"no lesson {chosen!r}; there are {', '.join(lessons)}")
        chosen = matches[0]
        own, columns = state.get(chosen, {}), ["exercise", "minutes", "visible test"]
        rows = [(e["title"], e["minutes"], _status(e, own)) for e in lessons[chosen]["exercises"]]
        afresh = (
            f"to start this lesson afresh: `make reset LESSON={chosen[:2]}` (your answers are kept in a copy)"
        )
        return table(rows, columns, evidence="your own runs", caption=afresh)
    rows = []
    for name, about in lessons.items():
        done = sum(_status(e, state.get(name, {})) == "passes" for e in about["exercises"])
        total = len(about["exercises"])
        rows.append((about["title"], f"{done} of {total}", "█" * done + "░" * (total - done)))
    caption = "an exercise counts when its visible test passes"
    return table(rows, ["lesson", "solved", ""], evidence="your own runs", caption=caption)


def _status(exercise: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    results = [state.get(n) for n in exercise["checks"]]
    if results and all(results):
        return "passes"
    return "fails" if False in results else "not run yet"


def _file() -> Path:
    """Beside the course's own state, never inside a notebook folder that is handed in."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "pytorch-performance-measured" / "progress.json"


def _read() -> dict[str, dict[str, Any]]:
    if os.environ.get("COURSE_BUILD"):  # a reference shows a lesson that nobody has begun
        return {}
    path = _file()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        safe = "starting afresh. Your answers are in the notebooks and are safe."
        print(f"progress: {path} cannot be read ({problem}); {safe}")
        return {}


def _note(name: str, value: Any, within: str = "") -> None:
    grading = os.environ.get("NBGRADER_EXECUTION") == "autograde"
    if _current is None or grading or os.environ.get("COURSE_BUILD"):
        return
    state = _read()
    place = state.setdefault(_current, {})
    if within:
        place = place.setdefault(within, {})
    place[name] = value
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
        fresh.replace(path)
    except OSError as problem:
        print(f"progress: could not write {path} ({problem}); what is shown here stands.")
