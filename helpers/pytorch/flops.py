"""Formulas for the FLOPs of an operator: those of torch.utils.flop_counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
# Their FLOPs follow from the shapes of their tensors alone.
_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}


def formula(func: Any) -> Callable[..., int] | None:
    """What gives an operator's FLOPs by its arguments and `out_val`, its result; None where there is no formula."""
    found: Callable[..., int] | None = flop_registry.get(func._overloadpacket)  # type: ignore[assignment]
    return _remembered(found) if found is not None and func._overloadpacket in _PRODUCTS else found


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
