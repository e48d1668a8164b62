"""Simulated GPUs as the tests of several lessons want them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from helpers import simulate
from helpers.simulator.timeline import Timeline

#: a GPU that is warm: no costs of setting up
_WARM: dict[str, Any] = {"context_s": 0.0, "library_s": 0.0, "kernel_load_s": 0.0}
#: so slow that small tensors with true numbers take as long as large ones without
_SLOW: dict[str, Any] = {"flop_share": 2.5e-6, "bandwidth_share": 1e-4}


def warm(card: str, **options: Any) -> Any:
    """A simulated GPU without costs of setting up; "values" is a slow H100 on which tensors have true numbers."""
    slow: dict[str, Any] = _SLOW if card == "values" else {}
    return simulate("H100" if card == "values" else card, **_WARM, **slow, **options)


@contextmanager
def closed() -> Iterator[None]:
    """Within this block nothing can be simulated: for answers that are to follow from their arguments."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the simulated GPU is closed here: the answer follows from the arguments")

    with mock.patch.multiple(Timeline, spend=refuse, enqueue=refuse, __init__=refuse):
        yield
