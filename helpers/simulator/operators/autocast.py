"""torch.autocast("cuda") on the simulated GPU: CUDA's lists, its cache of cast weights, its casts in backward.

CUDA's own autocast kernels pass over tensors that are not on a CUDA device. So the same lists are registered
once more, under a dispatch key that no build uses (a Graphcore backend's), above autograd as CUDA's are; the
key is switched on while torch.autocast("cuda") is, inside `with gpu:`.

The lists, autocast.csv, are PyTorch's as torch 2.13 has them (2.11's: without rms_norm, and for named dimensions too);
the policies and the cache are those of autocast_mode.cpp, cached_cast().
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils import checkpoint

from helpers.pytorch import private_torch
from helpers.pytorch.tensors import tensors
from helpers.text.tables import read_rows

#: a row for each operator: what autocast does to it
LISTS = tuple(read_rows(Path(__file__).with_suffix(".csv")))
_KEY = "AutocastIPU"

_libraries: list[torch.library.Library] = []  # registrations last as long as these live
_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of a weight → the weight, its cast
_device = "meta"  # whose tensors are cast


def lower_precision(*values: Any) -> list[Any]:
    """The arguments as an operator of the lower-precision list would see them: cast, where autocast is on."""
    if not torch.is_autocast_enabled("cuda"):
        return list(values)
    return [_cast(torch.get_autocast_dtype("cuda"), value) for value in values]


def full_precision(*values: Any) -> list[Any]:
    """The arguments as an operator of the float32 list would see them."""
    if not torch.is_autocast_enabled("cuda"):
        return list(values)
    return [_cast(torch.float32, value) for value in values]


def cuda_autocast(device: torch.device) -> ExitStack:
    """Until the stack is closed, torch.autocast("cuda") and torch.amp.GradScaler("cuda") work on that device."""
    global _device
    _device = device.type
    _register()
    stack = ExitStack()
    enter, leave, clear = torch.autocast.__enter__, torch.autocast.__exit__, torch.clear_autocast_cache
    begin, infer = torch.autocast.__init__, private_torch.infer_device_type

    def made(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)  # gpu.device.type

    def inferred(*args: Any) -> str:
        found: str = infer(*args)
        return "cuda" if found == "meta" else found  # whose autocast is on when a segment is computed again

    def entered(self: torch.autocast) -> Any:
        result = enter(self)
        _switch()
        return result

    def left(self: torch.autocast, *error: Any) -> Any:
        result = leave(self, *error)
        _switch()
        return result

    def cleared() -> None:
        _casts.clear()
        clear()

    for owner, name, new in [
        (torch.autocast, "__init__", made),
        (torch.autocast, "__enter__", entered),
        (torch.autocast, "__exit__", left),
        (torch, "clear_autocast_cache", cleared),
        (checkpoint, "_infer_device_type", inferred),
        # Asked by torch.autocast and torch.amp.GradScaler before they agree to work.
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
    ]:
        stack.enter_context(mock.patch.object(owner, name, new))
    stack.callback(_casts.clear)
    return stack


def _switch() -> None:
    """The key is seen by every operator while autocast is on. (Autocast keys are excluded until they are asked for.)"""
    on = torch.is_autocast_enabled("cuda")
    private_torch.exclude_key(_KEY, not on)
    private_torch.include_key(_KEY, on)


def _eligible(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.device.type != _device:
        return False
    return value.is_floating_point() and value.dtype is not torch.float64


def _cast(dtype: torch.dtype, value: Any) -> Any:
    """Tensors in that type; float32 weights are cast once, as cached_cast() does, and kept until autocast ends."""
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(dtype, item) for item in value)
    if not _eligible(value) or value.dtype is dtype:
        return value
    lowered = value.dtype is torch.float32 and dtype is torch.get_autocast_dtype("cuda")
    weight = value.requires_grad and value.is_leaf and not value._is_view()
    if not (lowered and weight and torch.is_autocast_cache_enabled()):
        return value.to(dtype)
    if id(value) not in _casts:
        _casts[id(value)] = (value, value.to(dtype))
    return _casts[id(value)][1]


def _widest(values: Any) -> torch.dtype:
    seen = [v.dtype for v in tensors(values) if _eligible(v)]
    return torch.float32 if torch.float32 in seen else torch.get_autocast_dtype("cuda")


def _kernel(policy: str, op: Any, target: Any) -> Callable[..., Any]:
    """What one listed operator does under autocast: cast, then itself with autocast off."""
    off = private_torch.DispatchKeySet(getattr(private_torch.DispatchKey, _KEY))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with private_torch.ExcludeDispatchKeyGuard(off):
            if policy == "float32 result":
                if args and _eligible(args[0]) and kwargs.get("dtype") is None:
                    places = [a.name for a in op._schema.arguments]
                    at = places.index("dtype")
                    if len(args) > at:
                        args = (*args[:at], args[at] or torch.float32, *args[at + 1 :])
                    else:
                        kwargs["dtype"] = torch.float32
                return op(*args, **kwargs)
            if policy == "append":
                result = torch.float32 if _eligible(args[0]) else args[0].dtype
                return target(*args, **kwargs, dtype=result)
            if policy == "lower":
                dtype = torch.get_autocast_dtype("cuda")
            else:
                dtype = torch.float32 if policy == "float32" else _widest((args, kwargs))
            cast = [_cast(dtype, value) for value in args]
            return op(*cast, **{name: _cast(dtype, value) for name, value in kwargs.items()})

    return kernel


def _banned(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Leave out the sigmoid before it and use binary_cross_entropy_with_logits (BCEWithLogitsLoss)."
    )


def _register() -> None:
    """Put the lists under the key. Done once: the key is off everywhere else."""
    if _libraries:
        return
    others, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, _KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "these operators have other autocast kernels": that is the point
        for row in LISTS:
            ops = [_find(row["operator"]), _find(row["instead"] or row["operator"])]
            if None not in ops:  # an operator that this version lacks is not called either
                aten.impl(row["operator"], _kernel(row["policy"], *ops), _KEY)
        aten.impl("binary_cross_entropy", _banned, _KEY)
    _libraries.extend([others, aten])


def _find(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
