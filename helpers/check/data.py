"""Plain data: what may cross between the learner's code and the judge.

Numbers, strings, ``None``, lists, tuples, dicts, slices, dtypes, tensors and NumPy arrays are turned into
JSON-able values and back. Objects of any other class do not cross, so nothing that a class overrides
(``__eq__``, ``__torch_function__``, pickling hooks) can take part in a comparison.
"""

import base64
import re
from typing import Any

import numpy as np
import torch

#: field that marks an encoded value; plain dicts are encoded too, so no learner's dict can imitate one
KIND = "kind"
#: numbers and the like in what an answer returns: lists within lists can be worth more than there is memory
MOST = 500_000
#: types by their identity: a type of an answer's could have a hash, and an equality, of its own
_AS_IT_IS = frozenset(map(id, (type(None), bool, int, float, str)))
#: others, quantized ones among them, have no values that can be compared: torch ends the process that tries
_DTYPES = re.compile(r"bool|bfloat16|u?int(8|16|32|64)|float(16|32|64|8_\w+)|complex(32|64|128)")
_OF_NUMBERS: dict[str, Any] = {"slice": slice, "range": range, "complex": complex}


class NotPlain(TypeError):
    """The value holds an object that may not cross; the message says which."""


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    # contiguous() would keep a stride of 0 on a single element, and view(uint8) refuses it
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _encode_tensor(tensor: torch.Tensor, with_storage: bool) -> dict[str, Any]:
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        raise NotPlain(f"a {type(tensor).__name__}, a subclass of Tensor (wanted: a plain torch.Tensor)")
    # it would run here, where nobody counts
    if own := [name for name in vars(tensor) if hasattr(torch.Tensor, name)]:
        raise NotPlain(f"a tensor with {own[0]!r} of its own (wanted: a plain torch.Tensor)")
    if tensor.layout != torch.strided:
        raise NotPlain(f"a tensor of layout {tensor.layout} (wanted: a dense one)")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not _DTYPES.fullmatch(dtype):
        raise NotPlain(f"a tensor of dtype {dtype} (wanted: numbers of a plain dtype)")
    tensor = tensor.resolve_conj().resolve_neg()
    out: dict[str, Any] = {
        KIND: "tensor",
        "dtype": dtype,
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "device": tensor.device.type,
        "grad": tensor.requires_grad and tensor.is_leaf,
        "parameter": type(tensor) is torch.nn.Parameter,
        "storage": with_storage,
    }
    if tensor.device.type == "meta":
        return out
    if with_storage:  # an input keeps its stride and offset, and whatever else its storage holds
        raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        out["data"] = base64.b64encode(raw.numpy().tobytes()).decode()
    else:
        out["data"] = base64.b64encode(_tensor_bytes(tensor.cpu())).decode()
    return out


def _decode_tensor(item: dict[str, Any]) -> torch.Tensor:
    if not _DTYPES.fullmatch(item["dtype"]):
        raise ValueError(f"no plain dtype: {item['dtype']!r}")
    dtype = getattr(torch, item["dtype"])
    shape, stride = tuple(item["shape"]), tuple(item["stride"])
    if item["device"] == "meta":
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    else:
        data = bytearray(base64.b64decode(item["data"]))
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        # frombuffer shares memory that Python owns; a clone lives in torch's own storage, as a learner's would
        flat = flat.clone()
        tensor = (
            torch.as_strided(flat, shape, stride, item["offset"]) if item["storage"] else flat.reshape(shape)
        )
    if item["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=item["grad"])
    return tensor.requires_grad_() if item["grad"] else tensor


def encode(value: Any, with_storage: bool = False) -> Any:
    """``value`` as JSON-able data. ``with_storage``: tensors keep stride, offset and their whole storage.

    Raises :class:`NotPlain` for an object that may not cross, and for more than :data:`MOST` of them.
    """
    left = MOST

    def all_of(items: list[Any]) -> list[Any]:
        nonlocal left
        left -= len(items)
        if left <= 0:
            raise NotPlain(f"more than {MOST:,} values")
        # at the speed of C, since most lists are flat
        return items if _AS_IT_IS.issuperset(map(id, map(type, items))) else [one(item) for item in items]

    def one(value: Any) -> Any:
        if id(type(value)) in _AS_IT_IS:
            return value
        if isinstance(value, list):
            return all_of([*list.__iter__(value)])
        if isinstance(value, tuple):
            return {KIND: "tuple", "value": all_of([*tuple.__iter__(value)])}
        if isinstance(value, set):
            return {KIND: "set", "value": all_of([*set.__iter__(value)])}
        if isinstance(value, frozenset):
            return {KIND: "set", "value": all_of([*frozenset.__iter__(value)])}
        if isinstance(value, dict):
            return {KIND: "dict", "value": [all_of([k, v]) for k, v in dict.items(value)]}
        return _encode_one(value, with_storage)

    return one(value)


def _encode_one(value: Any, with_storage: bool) -> Any:
    """What holds no others."""
    if value is ...:  # a prediction that was not filled in
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    # what a subclass says it is would be worked out here, where nobody counts
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, np.integer | np.floating):
        return np.generic.item(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, with_storage)
    if isinstance(value, np.ndarray):
        return {KIND: "array", "value": _encode_tensor(torch.from_numpy(np.ascontiguousarray(value)), False)}
    if isinstance(value, slice | range):
        parts = [value.start, value.stop, value.step]
        return {KIND: type(value).__name__, "value": [_encode_part(part) for part in parts]}
    if isinstance(value, torch.dtype):
        return {KIND: "dtype", "value": str(value).removeprefix("torch.")}
    if isinstance(value, complex):
        return {KIND: "complex", "value": [complex.real.__get__(value), complex.imag.__get__(value)]}
    raise NotPlain(f"a {type(value).__name__} (wanted: numbers, strings, lists, tuples, dicts or tensors)")


def _encode_part(part: Any) -> int | None:
    """Of a slice: a number, as it is now. What else stands there would be asked when it is sent, where nobody counts."""
    if part is not None and not isinstance(part, int):
        raise NotPlain(f"a slice with a {type(part).__name__} in it (wanted: whole numbers)")
    return None if part is None else int.__int__(part)


def decode(item: Any) -> Any:
    """The value that :func:`encode` was given."""
    if isinstance(item, list):
        return _each(item)
    if not isinstance(item, dict):
        return item
    kind = item[KIND]
    if kind == "tensor":
        return _decode_tensor(item)
    value = item["value"]
    if kind == "array":
        return _decode_tensor(value).numpy()
    if kind == "tuple":
        return tuple(_each(value))
    if kind == "set":
        return frozenset(_each(value))
    if kind == "dict":
        return {decode(k): decode(v) for k, v in value}
    if kind == "dtype":
        return getattr(torch, value)
    if kind in _OF_NUMBERS:
        return _OF_NUMBERS[kind](*value)
    raise ValueError(f"unknown kind of encoded value: {kind!r}")


def _each(items: list[Any]) -> list[Any]:
    """Decoded, in a list of its own: what an answer does to it, the request does not see."""
    return [*items] if _AS_IT_IS.issuperset(map(id, map(type, items))) else [decode(item) for item in items]
