"""Accesses to memory: which an operator makes, whether two share a byte, and two that race in words.

The schema marks what is written (`Tensor(a!)`) and which results are views of arguments (`Tensor(a)`); a
result without a mark is new memory, which is written. Views touch nothing by themselves: the operator that
uses them does. A race is told with who, what, and what to add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

# Operators that write arguments without saying so: native_functions.yaml marks the running statistics of a
# batch norm only in _native_batch_norm_legit.
_UNTOLD = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4), "miopen_batch_norm": (3, 4)}
_LARGEST_MASK = 1 << 26  # elements; beyond that two interleaved views count as overlapping

# A tensor's bytes inside its storage: first byte, end, and, unless they are all its own, (shape, strides).
Place = tuple[Any, Any, tuple[tuple[int, ...], tuple[int, ...], int] | None]


@cache
def name_of(func: Any) -> str:
    """ "aten.add", of each of its overloads."""
    return str(func._overloadpacket)


class _Schema(NamedTuple):
    positions: frozenset[int]  # arguments that are written, by place
    names: frozenset[str]  # and by name
    untold: tuple[int, ...]
    new: tuple[int, ...]  # results that are new memory
    many: bool  # there is more than one result; otherwise the result stands alone


_schemas: dict[Any, _Schema] = {}


def accesses(func: Any, args: Any, kwargs: Any, out: Any) -> Iterator[tuple[torch.Tensor, bool]]:
    """(tensor, whether it is written) for every tensor that the operator's kernel touches. out: None if it has
    not run yet."""
    if func.is_view:
        return
    schema = _schemas.get(func) or _read(func)
    positions = schema.positions
    if schema.untold and len(args) > 5 and args[5]:  # in training mode only
        positions = positions | frozenset(schema.untold)
    for i, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            yield value, i in positions
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item, i in positions
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            yield value, name in schema.names
    for i in schema.new if out is not None else ():
        result = out[i] if schema.many else out
        for item in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(item, torch.Tensor):
                yield item, True


def _read(func: Any) -> _Schema:
    arguments, returns = func._schema.arguments, func._schema.returns
    marked = [(i, a) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    _schemas[func] = _Schema(
        frozenset(i for i, _ in marked),
        frozenset(a.name for _, a in marked),
        _UNTOLD.get(str(func._schema.name).partition("::")[2], ()),
        tuple(i for i, r in enumerate(returns) if r.alias_info is None),
        len(returns) > 1,
    )
    return _schemas[func]


def place(tensor: torch.Tensor) -> Place:
    """Where the tensor's elements lie in its storage, in bytes. An empty tensor lies nowhere: (0, 0, None)."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if tensor.is_contiguous():
        return start, start + tensor.numel() * size, None
    if not tensor.numel():
        return 0, 0, None
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    whole = last + 1 == tensor.numel() and 0 not in strides  # a permuted block has no holes either
    return start, start + (last + 1) * size, None if whole else (shape, strides, size)


def overlap(one: Place, two: Place) -> bool:
    """Whether two places in one storage share a byte: exact, also for interleaved columns."""
    low, high = max(one[0], two[0]), min(one[1], two[1])
    if low >= high:
        return False
    if one[2] is None and two[2] is None:
        return True
    unit = math.gcd(one[0] - low, two[0] - low, *_steps(one), *_steps(two)) or 1
    if (high - low) // unit > _LARGEST_MASK:
        return True
    return bool((_mask(one, low, high, unit) & _mask(two, low, high, unit)).any())


def _steps(where: Place) -> list[int]:
    """What every byte address in the place is a multiple of, counted from its start, in parts."""
    if where[2] is None:
        return [where[1] - where[0]]
    shape, strides, size = where[2]
    return [size, *(s * size for n, s in zip(shape, strides, strict=True) if n > 1)]


def _mask(where: Place, low: int, high: int, unit: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which units of [low, high) the place covers."""
    mask = np.zeros(-(-(high - low) // unit), dtype=bool)
    if where[2] is None:
        mask[max(0, (where[0] - low) // unit) : max(0, -(-(where[1] - low) // unit))] = True
        return mask
    shape, strides, size = where[2]
    first = np.array([(where[0] - low) // unit])
    for n, s in zip(shape, strides, strict=True):
        if s:
            first = (first[:, None] + np.arange(n) * (s * size // unit)).reshape(-1)
    for step in range(-(-size // unit)):
        inside = first + step
        mask[inside[(inside >= 0) & (inside < len(mask))]] = True
    return mask


# ------------------------------------------------------------------------------------------ in words


@dataclass(frozen=True)
class Access:
    """One side of a race. stream: its number, None for the host; tensor: e.g. "float32[64, 64]"; line: where
    in the program it was called, as far as known."""

    name: str
    stream: int | None
    tensor: str
    write: bool
    line: str = ""

    @property
    def lane(self) -> str:
        return "the host" if self.stream is None else f"stream {self.stream}"

    def __str__(self) -> str:
        return f"{self.name} on {self.lane}" + (f" ({self.line})" if self.line else "")


@dataclass
class Race:
    """Two accesses to the same memory with nothing that orders them. times: how often this pair was met.

    kind: "read after write", "write after read" or "write after write", in the order of the program; "memory
    reused" where the second owns memory that the first's tensor gave back.
    """

    first: Access
    second: Access
    kind: str
    what: str
    times: int = 1

    def __str__(self) -> str:
        return self.what


def advice(first: Access, second: Access, kind: str, home: int | None = None) -> str:
    """One race in words, with what would order it. home: the stream that reused memory belongs to."""
    if kind == "memory reused":
        return _reused(first, second, home)
    verb = "writes" if second.write else "reads"
    other = "still be writing" if first.write else "still be reading"
    text = f"race: {second} {verb} {second.tensor} while {first} may {other} it; nothing orders the two. "
    if second.stream is None:
        wait = "record an event in that stream after the copy and call event.synchronize()"
        if first.write:
            return f"{text}The copy to the host is asynchronous: {wait} (or stream.synchronize()) before you read it."
        return text + (
            f"The copy engine reads the pinned buffer later than the call: {wait} before you write it "
            "again, or take turns with a second buffer."
        )
    if first.stream is None:
        return text + "Let the host finish before the launch."
    if first.name.startswith("dist."):
        return (
            text
            + "A collective was called with async_op=True: call wait() on the Work that it returned first."
        )
    return text + (
        f"Let {second.lane} wait for {first.lane} before this (wait_stream), or record an event after "
        f"{first.name} and let {second.lane} wait for it."
    )


def _reused(first: Access, second: Access, home: int | None) -> str:
    text = (
        f"race: {second} uses memory ({second.tensor}) that the allocator took from a tensor ({first.tensor}) "
        f"which {first} may still be using; nothing orders the two. "
    )
    wait = f"let {second.lane} wait for {first.lane} first (wait_stream)"
    if first.stream == home:  # in its own stream the allocator hands memory on at once: order keeps that safe
        where = first.lane
        return f"{text}New memory of {where} is only safe in {where}, after what is queued there: {wait}."
    return text + (
        f"The tensor was dropped while {first.lane} still worked on it. Call tensor.record_stream(stream) with "
        f"{first.lane} before you drop it, or {wait}."
    )
