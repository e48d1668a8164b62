"""Results as plain data: what a rank may hand back, and its way through a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .errors import CannotCarry
from .records import Call, Record

_PLAIN = (bool, int, float, complex, str, bytes)
_TORCH = (torch.dtype, torch.Size, torch.device)


@dataclass
class _Array:
    """A NumPy array on its way."""

    tensor: torch.Tensor


def save(value: Any, path: Path) -> None:
    """Write ``value`` so that :func:`load` reads it. CannotCarry names the part that is not plain data."""
    torch.save(_pack(value, "the result"), path)


def load(path: Path) -> Any:
    """What :func:`save` wrote. Nothing but plain data is made: no code of the rank's runs here."""
    with torch.serialization.safe_globals([_Array, Record, Call]):
        return _unpack(torch.load(path, weights_only=True))


def _pack(value: Any, at: str) -> Any:
    if value is None or type(value) in _PLAIN or isinstance(value, _TORCH):
        return value
    if isinstance(value, torch.Tensor):
        return _tensor(value, at)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _Array(torch.from_numpy(np.ascontiguousarray(value)))
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is Record:
        return value
    if isinstance(value, dict):
        return {_pack(k, f"a key of {at}"): _pack(v, f"{at}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [_pack(v, f"{at}[{i}]") for i, v in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, set | frozenset):
        return {_pack(v, f"a member of {at}") for v in value}
    hint = "return its state_dict()" if isinstance(value, torch.nn.Module) else "return plain data"
    raise CannotCarry(
        f"{at} is a {type(value).__name__}, which cannot be handed back: {hint} (numbers, strings, lists, dicts, "
        "tensors, arrays)"
    )


def _tensor(value: torch.Tensor, at: str) -> torch.Tensor:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        hint = "its to_local() or full_tensor()" if hasattr(value, "full_tensor") else "a plain tensor"
        raise CannotCarry(f"{at} is a {type(value).__name__}: return {hint}")
    value = value.detach().cpu()
    # a view would take the whole of its storage with it
    return value.clone() if value.untyped_storage().nbytes() != value.nbytes else value


def _unpack(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.tensor.numpy()
    if type(value) is dict:
        return {_unpack(k): _unpack(v) for k, v in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_unpack(v) for v in value)
    return value
