"""Judges that look at one call after the other; whose code ran; and a drive for answers that are a prediction."""

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from helpers.check import Report
from helpers.pytorch.dispatch_mode import Looking


def each(*wrongs: Callable[[Report], str | None], told: bool = False) -> Callable[[list[Report]], str | None]:
    """A judge: what the first of these functions finds wrong with a call, then what the next one finds.

    told: the call's case is named before it. Calls that raised, as they should, have nothing to look at.
    """

    def judge(reports: list[Report]) -> str | None:
        for wrong in wrongs:
            for report in reports:
                if report.error is None and (text := wrong(report)):
                    return f"{report.case}: {text}" if told else text
        return None

    return judge


def each_value(wrong: Callable[..., str | None]) -> Callable[[list[Report]], str | None]:
    """A judge: what `wrong(value, *inputs)` says of the first call that it finds wrong."""
    return each(lambda report: wrong(report.value, *report.args, **report.kwargs))


def own_work(word: str) -> Callable[[Report], str | None]:
    """For :func:`each`: finds fault with a call in which PyTorch's own answer ran, an operator with this word in its name."""

    def wrong(report: Report) -> str | None:
        ready = [op for op in report.counts["by_operator"] if word in op]
        return f"{ready[0]} is PyTorch's own: write it out this time" if ready else None

    return wrong


@contextmanager
def hearing_of(module: ModuleType, apart: Iterable[str] = ()) -> Iterator[Callable[[], bool]]:
    """Within this block of a drive: gives whether a function of this module was among the callers of any operator, told by its file.

    apart: names of its functions that may be used. What was heard is kept where an answer cannot write: not on what it is given,
    and need not call as it is.
    """
    heard, file, free = False, module.__file__, frozenset(apart)

    class Callers(Looking):
        def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
            nonlocal heard
            # (in a list: a generator that is left half-way keeps the frames, and so their tensors)
            codes = [frame.f_code for frame, _ in traceback.walk_stack(sys._getframe())]
            heard = heard or any(code.co_filename == file and code.co_name not in free for code in codes)

    with Callers():
        yield lambda: heard


def first_of_two(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A drive: what a call returned, after a second call for zeros of the same shapes: no two calls share anything."""
    result = answer(*args, **kwargs)
    zeros = [
        torch.zeros_like(a, requires_grad=a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args
    ]
    answer(*zeros, **kwargs)
    return result


def predicted(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A drive: one call, while nothing can be simulated, of an answer that is to follow from its arguments."""
    from helpers.simulator.timeline import Timeline  # which most lessons do without

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the simulated GPU is closed here: the answer follows from the arguments")

    with mock.patch.multiple(Timeline, spend=refuse, enqueue=refuse, __init__=refuse):
        return answer(*args, **kwargs)
