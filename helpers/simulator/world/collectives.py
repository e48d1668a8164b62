"""Calls of torch.distributed as collectives: which tensors they read and write on this rank, and with which values.

Values, for `simulate(..., values=True)`, are those of a world in which every rank holds what this one holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from helpers.dispatch_mode import Unseen
from helpers.ranks import collectives
from helpers.tensors import tensors

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


def fill(kind: str, given: dict[str, Any], ins: Tensors, outs: Tensors, n: int, place: int) -> None:
    """Write what rank `place` of `n` equal ranks would have. ins, outs: the same tensors where it works in place.

    A sum is n times the value, a product its n-th power; means, maxima and minima are the value itself. What is
    received from one other rank is left as it was, since that rank's program is not known.
    """
    if kind in ("send", "recv", "broadcast", "barrier") or not outs:
        return
    reduction = _reduction(given.get("reduce_op"))
    with Unseen(), torch.no_grad():
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
