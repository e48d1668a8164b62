"""References that are the answer to an exercise: a student's copy has their results in place of their text.

The bundle (:mod:`helpers.classroom.bundle`) writes down what each gave for the visible tests, and takes its text away.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: in a student's copy: function → the repr of its arguments → its result
TOLD = Path(__file__).with_name("told.json")

#: what references were asked, and what they said; None: nobody is listening
heard: dict[str, dict[str, Any]] | None = None


def reference(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function of plain arguments and a plain result (numbers, words, lists of them) as an answer."""
    name = f"{function.__module__.split('.')[-2]}.{function.__qualname__}"

    @functools.wraps(function)
    def asked(*args: Any) -> Any:
        if TOLD.exists():
            if repr(args) not in _told()[name]:
                raise LookupError(
                    "this copy of the course knows what is wanted in the visible tests, as they were"
                )
            return _told()[name][repr(args)]
        result = function(*args)
        if heard is not None:
            heard.setdefault(name, {})[repr(args)] = result
        return result

    return asked


@functools.cache
def _told() -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = json.loads(TOLD.read_text(encoding="utf-8"))
    return results
