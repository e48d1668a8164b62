"""What an operator makes on meta tensors: worked out once for each kind of input.

PyTorch works out shapes of many operators in Python (torch/_refs, torch/_decomp), up to a millisecond each, and
a model asks the same question in every layer and step. So the answer is kept: function, shapes, strides,
types and numbers → shape, stride and type of each result. Of an operator in place: that its arguments fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch

from helpers.pytorch.dispatch_mode import Mode, Unseen
from helpers.pytorch.private_torch import modes_on, pop_mode, push_mode
from helpers.pytorch.tensors import CHANNELS_LAST, channels_last, tensors
from helpers.simulator.operators.cuda_kernels import only_writes

_META = torch.device("meta")
_KNOWN: dict[Any, Any] = {}
_MOST = 20_000  # answers kept
_MOST_ZEROS = 1 << 28  # bytes of host memory, to find out a shape
_REPEAT = torch.ops.aten.repeat_interleave.Tensor  # which PyTorch refuses on meta tensors in words of its own
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_CONVOLUTION, _CONVOLUTION_BACKWARD = (
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
)
# Their results share the input's memory although their schemas do not say so.
_SELF = "its first argument"  # what an operator in place returns
_SHARE = ("_unsafe_view", "_reshape_alias", "lift", "lift_fresh", "alias", "set_", "resize_")


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest of tuples, lists and dicts with every leaf changed."""
    if isinstance(tree, (list, tuple)):
        kind = type(tree)
        return kind([map_leaves(x, change) for x in tree]) if kind in (list, tuple) else tree
    if isinstance(tree, dict):
        return {k: map_leaves(v, change) for k, v in tree.items()}
    return change(tree)


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """func(*args, **kwargs), or its remembered result: fresh meta tensors of the same shapes."""
    try:
        return _as_cudnn_lays(func, args, _run(func, args, kwargs))
    except RuntimeError as error:
        if not isinstance(error, NotImplementedError) and func is not _REPEAT:
            raise
        return _on_zeros(error, func, args, kwargs)


def _as_cudnn_lays(func: Any, args: tuple[Any, ...], out: Any) -> Any:
    """A convolution's results lie as its input or its weight does (cudnn_conv_suggest_memory_format in
    aten/src/ATen/native/ConvUtils.h), which the rule for meta tensors asks of CUDA tensors only."""
    if func is _CONVOLUTION or func is _CONVOLUTION_BACKWARD:
        given = args[:2] if func is _CONVOLUTION else args[1:3]
        layout = next((order for order in map(channels_last, given) if order), None)
        if layout is not None:
            with Unseen(), torch.no_grad():
                return map_leaves(
                    out, lambda t: t.contiguous(memory_format=layout) if _has_channels(t) else t
                )
    return out


def _has_channels(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() in CHANNELS_LAST


def _on_zeros(error: Exception, func: Any, args: Any, kwargs: Any) -> Any:
    """An operator without a rule for the shape of its result: run it on zeros in host memory, and look."""
    given = list(tensors([args, kwargs]))
    plain = all(t.layout is torch.strided for t in given) and not func._schema.is_mutable
    if not plain or sum(t.nbytes for t in given) > _MOST_ZEROS:
        error.add_note(f"PyTorch has no rule for what {func._overloadpacket} makes on a simulated GPU")
        raise error
    fill = torch.ones if func is _REPEAT else torch.zeros  # each once

    def host(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_meta:
            return fill(leaf.shape, dtype=leaf.dtype)
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    with Unseen():
        out = func(*map_leaves(args, host), **map_leaves(kwargs, host))
        return map_leaves(out, lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if modes_on():  # another mode behind this one wants to see the call
        if not (_pure(func) or _in_place(func)):
            return func(*args, **kwargs)
        with _Behind():
            return func(*args, **kwargs)
    return _remembered(func, args, kwargs)


def _remembered(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    in_place = _in_place(func)
    if not in_place and not _pure(func):
        return None if only_writes(func, args) else func(*args, **kwargs)
    seen: list[torch.Tensor] = []
    call = (func, args, kwargs) if kwargs else (func, args)
    key = _key(call, seen)
    try:
        known = _KNOWN.get(key)
    except TypeError:  # something in it cannot be looked up
        key = None
    if key is None or not seen:
        return func(*args, **kwargs)
    if known is None:
        out = func(*args, **kwargs)
        if in_place:
            known = out is args[0] and _key(call, []) == key and (None, _SELF)
        else:
            known = _answer(out, seen)
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[key] = known
        return out
    if known is False:
        return func(*args, **kwargs)
    if known[1] is _SELF:  # its arguments fit, as before; on meta there is nothing to write
        return args[0]
    made = [_make(tensor) for tensor in known[1]]
    return made[0] if known[0] is None else known[0](made)


class _Remembering(Mode):
    """Behind all other modes, in place of PyTorch's rules: what they see comes from what is kept, too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _remembered(func, args, kwargs or {})


class _Behind:
    """Within this block, one call of one operator, answers come from :class:`_Remembering`: behind modes of the course's
    own. PyTorch's (fake tensors, functionalisation) have places of their own, and keep them."""

    _mode = _Remembering()

    def __enter__(self) -> None:
        behind = [pop_mode(None) for _ in range(modes_on())]
        self._put = [self._mode] if all(isinstance(mode, Mode) for mode in behind) else []
        self._place([*self._put, *reversed(behind)])

    def __exit__(self, *error: object) -> None:
        modes = [pop_mode(None) for _ in range(modes_on())]
        self._place([*reversed(modes)][len(self._put) :])

    @staticmethod
    def _place(modes: list[Any]) -> None:
        for mode in modes:
            push_mode(mode)


def _make(like: Any) -> Any:
    if like is None:
        return None
    shape, stride, dtype = like
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)


@cache
def _pure(func: Any) -> bool:
    """Whether it returns fresh tensors and nothing else, and writes nothing."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    plain = all(str(r.type) in ("Tensor", "List[Tensor]") and r.alias_info is None for r in schema.returns)
    return bool(
        plain and schema.returns and not schema.is_mutable and not func.is_view and name not in _SHARE
        and not any(a.alias_info for a in schema.arguments)
    )  # fmt: skip


@cache
def _in_place(func: Any) -> bool:
    """Whether its schema says that it writes its first argument, returns that, and makes no other view of it."""
    schema = func._schema
    marks = [a.alias_info for a in (*schema.arguments, *schema.returns)]
    return bool(
        schema.arguments and len(schema.returns) == 1 and [m for m in marks if m] == [marks[0], marks[-1]]
        and marks[0].is_write and str(schema.returns[0].type) == "Tensor" and func.namespace == "aten"
        and torch.Tag.inplace_view not in func.tags and schema.name.partition("::")[2] not in _SHARE
    )  # fmt: skip


def _key(values: Iterable[Any], seen: list[torch.Tensor]) -> tuple[Any, ...] | None:
    """A hashable stand-in for arguments; None where there is none (of a CPU tensor, a generator)."""
    parts: list[Any] = []
    for value in values:
        part: Any = None
        if isinstance(value, torch.Tensor):
            if value.is_meta and value.layout is torch.strided:
                seen.append(value)
                part = value.shape, value.stride(), value.dtype
        elif isinstance(value, _PLAIN):
            part = type(value), value  # 1, 1.0 and True are equal, and lead to different types
        elif isinstance(value, (list, tuple)):
            part = _key(value, seen)
        elif isinstance(value, dict):
            part = _key(value.items(), seen)
        elif callable(value):
            part = value
        if part is None:
            return None
        parts.append(part)
    return tuple(parts)


def _answer(out: Any, seen: list[torch.Tensor]) -> Any:
    """(type of the result's sequence, its parts), or False where a result is not simply fresh memory."""
    many = isinstance(out, (list, tuple))
    parts = list(out) if many else [out]
    taken = {t.untyped_storage()._cdata for t in seen}
    for t in parts:
        if t is None:
            continue
        if not isinstance(t, torch.Tensor) or not t.is_meta:
            return False
        if t.layout is not torch.strided or t.storage_offset():
            return False
        storage = t.untyped_storage()
        needs = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
        if storage._cdata in taken or storage.nbytes() != needs * t.element_size():
            return False
        taken.add(storage._cdata)
    shape = [None if t is None else (t.shape, t.stride(), t.dtype) for t in parts]
    return (type(out) if many else None), shape
