"""Modes that the compiler leaves alone, and that notice when they were taken off: what every mode of the course's own is built on;
and work unseen by all."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from helpers.pytorch import private_torch
from helpers.pytorch.private_torch import modes_on, pop_mode, push_mode


class Mode(private_torch.TorchDispatchMode):
    """A TorchDispatchMode that neither imports torch._dynamo nor is compiled by it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would make the first operator import the whole of torch._dynamo: three seconds

    @classmethod
    def hide_from_dynamo(cls) -> None:
        """Where torch._dynamo is loaded anyway: it shall not try to compile this class."""
        if "_hidden" not in vars(cls):
            cls.__torch_dispatch__ = private_torch.hidden_from_dynamo(cls.__torch_dispatch__)  # type: ignore[method-assign]
            cls._hidden = True

    _hidden: bool


class CallMode(TorchFunctionMode):
    """A TorchFunctionMode that notices when somebody has taken it off: leaving any other one, `torch.device("cpu")` for
    instance, takes off the one on top, whoever has put it there. RuntimeError at its end then."""

    def __exit__(self, *error: Any) -> None:
        on_top = private_torch.call_mode()
        super().__exit__(*error)
        if on_top is not self:
            raise RuntimeError(LEFT)


#: what is said where something was left that nobody had entered
LEFT = "something of PyTorch's was left that had not been entered, or entered and not left: use a `with` block for it"


class Looking(Mode):
    """Lets each operator run and then looks at it, by a subclass's `saw`, which may note in `seen` what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.saw(func, args, kwargs or {}, result)
        return result

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        raise NotImplementedError


class Unseen:
    """Within this block no dispatch mode sees what runs, and none of it is counted.

    torch's own block for it looks after torch.export's modes too, and takes several times as long as a small operator.
    """

    #: while PyTorch's profiler watches an answer: what it is told to find around the course's own unseen work
    told_as: ClassVar[str] = ""

    def __enter__(self) -> None:
        self._modes = [pop_mode(None) for _ in range(modes_on())]
        own = self.told_as and sys._getframe(1).f_globals.get("__name__", "").startswith("helpers.")
        self._range = torch.autograd.profiler.record_function(self.told_as) if own else nullcontext()
        self._range.__enter__()

    def __exit__(self, *error: object) -> None:
        self._range.__exit__(None, None, None)
        for mode in reversed(self._modes):
            push_mode(mode)


def unwraps(kind: type) -> bool:
    """A tensor subclass that does its own dispatch on the tensors it holds."""
    plain = private_torch.disabled_dispatch
    return kind is not torch.Tensor and getattr(kind, "__torch_dispatch__", plain) is not plain
