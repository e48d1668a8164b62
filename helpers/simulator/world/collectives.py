"""Calls of torch.distributed as collectives: which tensors they read and write on this rank, and with which values.

Values, for `simulate(..., values=True)`, are those of a world in which every rank holds what this one holds; see :func:`fill`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from helpers.pytorch.dispatch_mode import Unseen
from helpers.pytorch.tensors import tensors
from helpers.ranks import collectives

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Collective:
    """One call. kind, bytes (the payload) and ranks as in `helpers.ranks.Call`. Times: simulated clock, ns.

    launch: the host called; arrival: this rank's stream had come to it; start: the last rank's had; end: done.
    """

    kind: str
    bytes: int
    ranks: tuple[int, ...]
    stream: int
    launch_ns: int
    arrival_ns: int
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """What it takes once everybody is there."""
        return (self.end_ns - self.start_ns) / 1e9


def sides(kind: str | None, given: dict[str, Any], group: Any) -> tuple[Tensors, Tensors]:
    """What a call reads on this rank, and what it writes."""
    if kind is None or kind == "barrier":
        return [], []
    reads, writes = (list(tensors(side)) for side in collectives.sides(given))
    if "tensors" in given:  # one list for both: some ranks do only one of the two
        if kind == "send" or (kind == "broadcast" and given.get("root_rank") == group.rank()):
            return reads, []
        if kind in ("recv", "broadcast"):
            return [], writes
    return reads, writes


def fill(
    kind: str, given: dict[str, Any], ins: Tensors, outs: Tensors, held: Sequence[int], place: int
) -> None:
    """Write what this rank, `place`, has afterwards. ins, outs: the same tensors where it works in place.

    held: of each rank, how many times it holds what this one holds (itself: 1). Where all hold the same, a sum is so many
    times the value, a product its power; means, maxima and minima are the value itself. What is received from one other
    rank is left as it was, since that rank's program is not known.
    """
    if kind in ("send", "recv", "broadcast", "barrier") or not outs:
        return
    reduction = _reduction(given.get("reduce_op"))
    n = len(held)
    with Unseen(), torch.no_grad():
        if kind in ("all_reduce", "reduce"):
            for one, out in zip(ins, outs, strict=True):
                out.copy_(_reduced(one, reduction, held))
        elif kind == "all_to_all" and len(outs) > 1:
            for out, times in zip(outs, held, strict=True):
                out.copy_(_times(ins[place], times))
        elif len(ins) == len(outs):
            for one, out in zip(ins, outs, strict=True):
                if kind == "all_gather":
                    for row, times in zip(out.view(n, -1), held, strict=True):
                        row.copy_(_times(one.reshape(-1), times))
                elif kind == "reduce_scatter":
                    out.copy_(_reduced(one.reshape(n, -1)[place].view_as(out), reduction, held))
                elif kind == "all_to_all" and one.numel() == out.numel() and not one.numel() % n:
                    part = one.reshape(n, -1)[place].clone()
                    for row, times in zip(out.view(n, -1), held, strict=True):
                        row.copy_(_times(part, times))
        elif kind in ("all_gather", "gather"):
            for out, times in zip(outs, itertools.cycle(held)):
                out.copy_(_times(ins[0], times))
        else:  # reduce_scatter and scatter, from lists
            outs[0].copy_(_reduced(ins[place], reduction, held))


def _times(one: torch.Tensor, times: int) -> torch.Tensor:
    return one if times == 1 else one * times


def _reduced(one: torch.Tensor, reduction: str, held: Sequence[int]) -> torch.Tensor:
    if reduction == "sum":
        return one * sum(held)
    if reduction == "product":
        return one ** len(held) * math.prod(held)
    if set(held) == {1}:
        return one
    each = torch.stack([_times(one, times) for times in held])
    return {"max": each.amax, "min": each.amin}.get(reduction, each.mean)(0)


def _reduction(given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    number, kinds = int(given.op()), dist.ReduceOp.RedOpType
    names = ("SUM", "PRODUCT", "MAX", "MIN")
    return next((name.lower() for name in names if int(getattr(kinds, name)) == number), "")


def copies(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator of torch.ops.fsdp, in the operators that it is made of (torch/distributed/fsdp/_fully_shard/
    _fsdp_collectives.py). NotImplemented for one that is not known."""
    name = str(func._schema.name).partition("::")[2]
    given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
    if name == "split_with_sizes_copy":
        whole, sizes = given["all_gather_output"], given["all_gather_input_split_sizes"]
        torch.split_with_sizes_copy(whole, sizes, dim=given.get("dim", 0), out=given["out"])
        return None
    if name == "chunk_cat":
        torch._chunk_cat(given["tensors"], given["dim"], given["num_chunks"], out=given["out"])
        return None
    if name != "all_gather_copy_in":
        return NotImplemented
    whole, length = given["all_gather_output"], given["all_gather_input_numel"]
    mine = whole.narrow(0, length * given["rank"], length)
    with torch.no_grad():
        torch._foreach_copy_(torch.split(mine, given["inp_split_sizes"]), given["all_gather_inputs"])
    return mine, whole
