"""Values of a collective where every rank holds what this one holds: for `simulate(..., values=True)`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["fill"]

Tensors = list[torch.Tensor]


def fill(kind: str, given: dict[str, Any], ins: Tensors, outs: Tensors, n: int, place: int) -> None:
    """Write what rank `place` of `n` equal ranks would have. ins, outs: the same tensors where it works in place.

    A sum is n times the value, a product its n-th power; means, maxima and minima are the value itself. What is
    received from one other rank is left as it was, since that rank's program is not known.
    """
    if kind in ("send", "recv", "broadcast", "barrier") or not outs:
        return
    reduction = _reduction(given.get("reduce_op"))
    with _disable_current_modes(), torch.no_grad():
        if kind in ("all_reduce", "reduce"):
            for one, out in zip(ins, outs, strict=True):
                out.copy_(_reduced(one, reduction, n))
        elif kind == "all_to_all" and len(outs) > 1:
            for out in outs:
                out.copy_(ins[place])
        elif len(ins) == len(outs):
            for one, out in zip(ins, outs, strict=True):
                if kind == "all_gather":
                    out.view(n, -1).copy_(one.reshape(1, -1))
                elif kind == "reduce_scatter":
                    out.copy_(_reduced(one.reshape(n, -1)[place].view_as(out), reduction, n))
                elif kind == "all_to_all" and one.numel() == out.numel() and not one.numel() % n:
                    out.view(n, -1).copy_(one.reshape(n, -1)[place].clone())
        elif kind in ("all_gather", "gather"):
            for out in outs:
                out.copy_(ins[0])
        else:  # reduce_scatter and scatter, from lists
            outs[0].copy_(_reduced(ins[place], reduction, n))


def _reduced(one: torch.Tensor, reduction: str, n: int) -> torch.Tensor:
    return one * n if reduction == "sum" else one**n if reduction == "product" else one


def _reduction(given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    number, kinds = int(given.op()), dist.ReduceOp.RedOpType
    return next((name.lower() for name in ("SUM", "PRODUCT") if int(getattr(kinds, name)) == number), "")
