"""Formulas for the FLOPs of an operator: those of torch.utils.flop_counter, but for a grouped convolution's backward."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
# Their FLOPs follow from the shapes of their tensors alone.
_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}


def formula(func: Any) -> Callable[..., int] | None:
    """What gives an operator's FLOPs by its arguments and `out_val`, its result; None where there is no formula."""
    if func._overloadpacket is aten.convolution_backward:
        return _convolution_backward
    formula_of: Callable[..., int] | None = flop_registry.get(func._overloadpacket)  # type: ignore[assignment]
    return (
        _remembered(formula_of)
        if formula_of is not None and func._overloadpacket in _PRODUCTS
        else formula_of
    )


def _convolution_backward(*args: Any, out_val: Any = None) -> int:
    """Each gradient that is asked for costs what the forward pass did: every output element (every input element
    where the convolution is transposed) meets one filter. torch's formula (2.13) lets each channel of the input meet
    each of the output for the weight's gradient, as if there were one group."""
    grad, given, weight, *_, transposed, _, groups, mask = args
    if groups == 1:
        return int(flop_registry[aten.convolution_backward](*args, out_val=out_val))  # type: ignore[operator]
    return 2 * (given if transposed else grad).numel() * prod(weight.shape[1:]) * sum(mask[:2])


def _remembered(found: Callable[..., int]) -> Callable[..., int]:
    """The same formula, asked once for the same shapes: torch goes through the arguments as through any nest of them."""
    known: dict[Any, int] = {}

    def flops(*args: Any, **kwargs: Any) -> int:
        given = (*args, *kwargs.values())
        shapes = tuple([value.shape for value in given if isinstance(value, torch.Tensor)])
        if shapes not in known:
            known[shapes] = found(*args, **kwargs)
        return known[shapes]

    return flops
