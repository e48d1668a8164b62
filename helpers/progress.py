"""What a learner has done in which lesson: exercises that pass, predictions and what came of them, boards.

One small file a user. One that cannot be read is put aside, never written over.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import keeping
from helpers.text.tables import Table, table

__all__ = [
    "STATES", "Damaged", "begin", "begun", "came_out", "current", "index", "keep_board", "kept", "predicted", "progress",
    "record", "remember", "solved", "status",
]  # fmt: skip

_INDEX = Path(__file__).with_name("lessons.json")
_current: str | None = None
#: in a lesson's part of the file, beside the names of its checks: question → answer; question → what came out;
#: title → a table and a ladder
_PREDICTIONS, _OUTCOMES, _BOARDS = _WITHIN = ("predictions", "outcomes", "boards")

#: of an exercise
STATES = ("passes", "fails", "not written yet", "not run yet")

State = dict[str, dict[str, Any]]


class Damaged(ValueError):
    """The file with the progress is not what was written there."""


def begin(lesson: str) -> None:
    """From now on this kernel works on ``lesson``, a folder's name."""
    global _current
    _current = lesson


def current() -> str | None:
    """The lesson that was begun last in this kernel, by its folder's name."""
    return _current


def record(name: str, passed: bool | None) -> None:
    """Remember that the visible test of ``name`` passed or failed (None: there was no answer yet). Silent while building
    and grading."""
    _change(lambda own: own.update({name: passed}))


def remember(question: str, answer: Any) -> None:
    """Remember a prediction, so that it is still there after a restart. Silent while building and grading."""
    _change(lambda own: own.setdefault(_PREDICTIONS, {}).update({question: answer}))


def predicted() -> Mapping[str, Any]:
    """The predictions that were made in this lesson: question → answer."""
    predictions: dict[str, Any] = _read().get(_current or "", {}).get(_PREDICTIONS, {})
    return predictions


def came_out(outcomes: Mapping[str, Mapping[str, Any]]) -> None:
    """Remember what came of predictions: question → said (None: looked at unanswered), measured, right, choices,
    evidence. What was seen first stands: an answer given after the result is no prediction.
    """
    seen = _read().get(_current or "", {}).get(_OUTCOMES, {})
    if fresh := {question: dict(one) for question, one in outcomes.items() if question not in seen}:
        _change(lambda own: own.setdefault(_OUTCOMES, {}).update(fresh))


def keep_board(title: str, board: Table, rungs: Sequence[tuple[str, float, float, bool]] = ()) -> None:
    """Keep a board for the learner's report; the last of a title stands. Silent while building and grading.

    rungs: its ladder: name, seconds of a step, peak bytes, and whether the next rung builds on it.
    """
    about: dict[str, Any] = {"columns": board.columns, "rows": board.rows, "evidence": board.label}
    about |= {"caption": board.caption, "rungs": [list(rung) for rung in rungs], "drawn": "simulated (H100)"}
    _change(lambda own: own.setdefault(_BOARDS, {}).update({title: about}))


def index() -> dict[str, Any]:
    """The lessons as built: name → title, question, minutes, exercises with the names that their tests check."""
    lessons: dict[str, Any] = json.loads(_INDEX.read_text(encoding="utf-8"))
    return lessons


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
        rows = [(e["title"], e["minutes"], status(e, own)) for e in lessons[chosen]["exercises"]]
        afresh = (
            f"to start this lesson afresh: `make reset LESSON={chosen[:2]}` (your answers are kept in a copy)"
        )
        return table(rows, columns, evidence="your own runs", caption=afresh)
    return solved(list(lessons))


def solved(names: Sequence[str]) -> Table:
    """How many exercises pass their visible tests in each of these lessons."""
    lessons, state, rows = index(), _read(), []
    for name in names:
        asked = lessons[name]["exercises"]
        done = sum(status(e, state.get(name, {})) == "passes" for e in asked)
        bar = "█" * done + "░" * (len(asked) - done)
        rows.append((lessons[name]["title"], f"{done} of {len(asked)}", bar))
    caption = "an exercise counts when its visible test passes"
    return table(rows, ["lesson", "solved", "so far"], evidence="your own runs", caption=caption)


def status(exercise: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Of an exercise of the index, by its lesson's part of the file: one of STATES."""
    results = [state[n] for n in exercise["checks"] if n in state]
    if any(passed is False for passed in results):
        return "fails"
    if None in results:
        return "not written yet"
    return "passes" if results and len(results) == len(exercise["checks"]) else "not run yet"


def _file() -> Path:
    """Beside the course's own state, never inside a notebook folder that is handed in."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "pytorch-performance-measured" / "progress.json"


def kept() -> State:
    """All that is kept: lesson → name of a check → whether it passed, and the lesson's predictions, outcomes and boards.

    In the order in which they were worked in. {} where nothing is. :class:`Damaged` where the file cannot be read, or holds what nobody wrote there.
    """
    if os.environ.get("COURSE_BUILD"):  # a reference shows a lesson that nobody has begun
        return {}
    path = _file()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise Damaged(f"{path} cannot be read ({problem})") from None
    try:
        state = json.loads(text)
    except ValueError as problem:
        raise Damaged(f"{path} cannot be read ({problem})") from None
    if not isinstance(state, dict) or not all(map(_is_whole, state.values())):
        raise Damaged(f"{path} cannot be read (it is JSON, but no progress)")
    return state


def _is_whole(own: Any) -> bool:
    return isinstance(own, dict) and all(isinstance(own.get(part, {}), dict) for part in _WITHIN)


def begun() -> State:
    """As `kept`, the lesson that was worked in last at the end; {} where the file cannot be read, which is printed."""
    return _read()


def _read() -> State:
    try:
        return kept()
    except Damaged as problem:
        print(f"progress: {problem}; starting afresh. Your answers are in the notebooks and are safe.")
        return {}


def _change(change: Callable[[dict[str, Any]], Any]) -> None:
    """Write down what changes in the part of the lesson that was begun. Nothing is while building and grading."""
    grading = os.environ.get("NBGRADER_EXECUTION") == "autograde"
    if _current is None or grading or os.environ.get("COURSE_BUILD"):
        return
    path = _file()
    try:
        try:
            state = kept()
        except Damaged as problem:
            aside = next(
                p for n in range(1, 1000) if not (p := path.with_suffix(f".damaged-{n}.json")).exists()
            )
            path.replace(aside)
            print(f"progress: {problem}. It is kept as {aside.name}; a new one begins.")
            state = {}
        state[_current] = state.pop(_current, {})  # the last is the one that was worked in last
        change(state[_current])
        keeping.write(path, json.dumps(state, indent=1))
    except OSError as problem:
        print(f"progress: could not write {path} ({problem}); what is shown here stands.")
