"""What is known of an operator without running it: does it view, copy, wait, compute?"""

import functools
import sys
from collections.abc import Callable
from itertools import islice
from traceback import walk_stack
from types import CodeType
from typing import Any, NamedTuple

import torch

from helpers.pytorch import private_torch
from helpers.pytorch.flops import formula
from helpers.pytorch.waiting import operator_waits

COPIES: frozenset[str] = frozenset(
    """
    clone _to_copy copy copy_ _foreach_copy _foreach_copy_ _pin_memory _reshape_copy cat stack repeat
    index _unsafe_index index_select gather take masked_select embedding roll flip rot90
    index_put index_put_ _index_put_impl_ _unsafe_index_put index_copy index_copy_ put put_
    scatter scatter_ masked_scatter masked_scatter_ slice_scatter select_scatter diagonal_scatter
    as_strided_scatter slice_backward select_backward diagonal_backward unfold_backward
    constant_pad_nd diag_embed pixel_shuffle pixel_unshuffle channel_shuffle im2col
    alias_copy as_strided_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy
    slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy
    unsqueeze_copy view_copy
    """.split()
)
"""aten operators whose only work is to put elements elsewhere, unchanged but for ``_to_copy``'s dtype.
Filling with a constant, as ``x[i] = 0.0`` does, is not copying."""

# Neither start a kernel nor make a storage (torch.tensor(...) made the one that lift_fresh passes on).
BOOKKEEPING = frozenset({"aten.detach", "aten.lift_fresh", "aten.lift", "aten.alias"})

# Not to look into: they have nothing in them, or are messages to other processes.
_CLOSED = frozenset({"aten", "prim", "profiler", "c10d", "_c10d_functional", "_c10d_functional_autograd"})

_DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Operator(NamedTuple):
    """What never changes about one overload."""

    name: str  # "aten.add"
    counts: bool  # an aten operator that is more than bookkeeping
    view: bool
    mutable: bool  # writes into an argument
    written: tuple[tuple[int, str], ...]  # which: its place and its name
    copy: bool
    composite: bool  # made of other operators only
    custom: bool  # from torch.library: its kernel calls operators of its own
    data_dependent: bool  # its value, or its result's size, must be known to the CPU
    flops: Callable[..., int] | None


@functools.cache
def operator(func: Any) -> Operator:
    """The facts about an OpOverload."""
    name = str(func._overloadpacket)
    has_kernel = private_torch.has_kernel
    runs_on = private_torch.runs_on
    return Operator(
        name=name,
        counts=func.namespace == "aten" and name not in BOOKKEEPING,
        view=func.is_view,
        mutable=func._schema.is_mutable,
        written=_written(func),
        copy=name.removeprefix("aten.") in COPIES and not func._overloadname.startswith("value"),
        composite=has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "CPU"),
        custom=func.namespace not in _CLOSED and runs_on(func.name(), "CPU"),
        data_dependent=not _DATA_DEPENDENT.isdisjoint(func.tags),
        flops=_CPU_ATTENTION.get(name) or formula(func),
    )


def _written(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = func._schema.arguments
    if func.namespace == "c10d" and func._schema.name.endswith("_"):  # a collective's schema does not say so
        return ((0, arguments[0].name),)
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> int:
    """QKᵀ and PV: 2·S·T·D each, a batch and query head. As in flop_counter, a causal mask deducts nothing."""
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _attention_backward(
    grad: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
) -> int:
    """QKᵀ once more, then dP, dV, dQ, dK: what flop_counter counts for a GPU's flash attention."""
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1])


_CPU_ATTENTION: dict[str, Callable[..., int]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}


def filled(op: Operator, args: tuple[Any, ...]) -> torch.Tensor | None:
    """What ``x[i] = value`` writes into x."""
    return {"aten.copy_": args[1:2], "aten.index_put_": args[2:3]}.get(op.name, (None,))[0]


def waits(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Must the CPU know what this operator computes (a value, or its result's size) before it goes on?"""
    if op.name == "aten._local_scalar_dense" and _running(private_torch.optimizer_reads.__code__):
        return False
    return operator_waits(op.name, op.data_dependent, args, kwargs)


def _running(code: CodeType | None) -> bool:
    """Is this function among the callers? (Our own frames come first, a few for each nested count.)"""
    return any(frame.f_code is code for frame, _ in islice(walk_stack(sys._getframe()), 40))
