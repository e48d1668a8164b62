"""What the tests of several lessons do with the simulated GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from helpers.simulator.timeline import Timeline


@contextmanager
def closed() -> Iterator[None]:
    """Within this block nothing can be simulated: for answers that are to follow from their arguments."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the simulated GPU is closed here: the answer follows from the arguments")

    with mock.patch.multiple(Timeline, spend=refuse, enqueue=refuse, __init__=refuse):
        yield
