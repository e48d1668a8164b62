"""What the tests of several lessons do with the simulated GPU."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from helpers.simulator.timeline import Timeline


def predicted(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A drive: one call, while nothing can be simulated, of an answer that is to follow from its arguments."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the simulated GPU is closed here: the answer follows from the arguments")

    with mock.patch.multiple(Timeline, spend=refuse, enqueue=refuse, __init__=refuse):
        return answer(*args, **kwargs)
