"""The same cases once more, as a training script would go on: what holds for every exercise, without a line of its own.

An answer that passed is called again in the same process, its cases last first, with fresh inputs. This time

- memory that an operator takes and nobody writes holds NaN (integers: their largest), not what lies there by chance;
- results are kept, and read again after the last call: a later call writes into none of them;
- the gradients that come into a `backward` of an :class:`torch.autograd.Function` are as they were when it has ended;
- the inputs, what lists and dicts hold among it, are as they were, and no gradient was left in a tensor among the arguments (unless that is asked for);
- the same tensors (the first case's) with other numbers give what other tensors with these numbers give: nothing is kept by identity.

The judge then wants of the results what it wanted the first time.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from helpers.check.compare import difference

#: args, kwargs
Inputs = tuple[Any, Any]
#: calls with other numbers, after the last case and before the results are read again: as many as a ring may have places
OTHERS = 3


@contextlib.contextmanager
def filled(fill: bool = True) -> Iterator[None]:
    """Within this block, `torch.empty`, its like and `resize_` fill what they take: PyTorch does so in this mode only."""
    before = torch.get_deterministic_debug_mode()
    if fill:
        # torch.use_deterministic_algorithms does the same, and imports the compiler: two seconds
        torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def with_other_numbers(value: Any) -> tuple[Any, bool]:
    """An input with its floats and pixels in the other order, where it lies; and whether there were any.

    Numbers that are there already are such as the function is made for. Indices and lengths stay as they are.
    """
    if isinstance(value, torch.Tensor):
        if (
            value.is_meta
            or not (value.is_floating_point() or value.dtype == torch.uint8)
            or value.numel() < 2
        ):
            return value, False
        turned = value.detach().clone().flatten().flip(0).reshape(value.shape)
        with torch.no_grad():
            value.copy_(turned)
        return value, True
    if isinstance(value, list | tuple):
        pairs = [with_other_numbers(one) for one in value]
        return type(value)(one for one, _ in pairs), any(other for _, other in pairs)
    return value, False


def changed_input(now: Inputs, before: Inputs) -> str:
    """What has become of the first input that is no longer as it was; "" if all are."""
    (args, kwargs), (was_args, was_kwargs) = now, before
    named = [(f"input {i}", *both) for i, both in enumerate(zip(args, was_args, strict=True))]
    named += [(name, kwargs[name], was) for name, was in was_kwargs.items()]
    return next((odd for at, one, was in named if (odd := difference(one, was, 0.0, 0.0, at=at))), "")


def left_gradient(args: Any) -> str:
    """The first input that has a `.grad` now; "" if none has."""
    return next((f"input {i}" for i, one in enumerate(args) if getattr(one, "grad", None) is not None), "")


@contextlib.contextmanager
def backward_watched() -> Iterator[list[str]]:
    """Within this block, the names of an answer's Functions whose `backward` changes a gradient that comes in."""
    guilty: list[str] = []
    wrapped: dict[type, Any] = {}

    def watch(kind: type) -> None:
        own = vars(kind).get("backward")
        if kind in wrapped or not isinstance(own, staticmethod):
            return
        wrapped[kind] = own

        @functools.wraps(own.__func__)
        def backward(ctx: Any, *incoming: Any) -> Any:
            tensors = [g for g in incoming if isinstance(g, torch.Tensor)]
            versions = [g._version for g in tensors]
            grads = own.__func__(ctx, *incoming)
            if [g._version for g in tensors] != versions:
                guilty.append(kind.__name__)
            return grads

        type.__setattr__(kind, "backward", staticmethod(backward))

    apply = vars(torch.autograd.Function)["apply"]

    def watched(kind: type, *args: Any, **kwargs: Any) -> Any:
        if _is_an_answers(kind):
            watch(kind)
        return apply.__func__(kind, *args, **kwargs)

    for kind in _all_below(torch.autograd.Function):
        if _is_an_answers(kind):
            watch(kind)
    type.__setattr__(torch.autograd.Function, "apply", classmethod(watched))
    try:
        yield guilty
    finally:
        type.__setattr__(torch.autograd.Function, "apply", apply)
        for kind, own in wrapped.items():
            type.__setattr__(kind, "backward", own)


def _all_below(kind: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(kind)
    for one in below:
        yield one
        yield from _all_below(one)


def _is_an_answers(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in ("torch", "helpers", "triton")


def kept(results: list[tuple[int, Any, Any]], plain: Callable[[Any], Any]) -> list[int]:
    """The cases whose result no longer is what it was. results: case, the result itself, and what was read of it."""
    gone = []
    for i, value, read in results:
        try:
            same = plain(value) == read
        except Exception:  # what can no longer be read is not as it was
            same = False
        if not same:
            gone.append(i)
    return gone
