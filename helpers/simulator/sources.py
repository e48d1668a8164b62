"""From what a tensor's numbers come, also where tensors have no numbers: the tensors that a drive names, and the products between.

    with Sources({"up": up, 0: batch}) as sources:
        result = plain(answer(...))
    sources.of(result)          # {"up", 0, Product("aten.mm", 2 · m · n · k, of={"up", 0})}

Memory is told by its bytes: two buffers may lie in one storage, and a copy into one of them ends what that one held.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.pytorch.dispatch_mode import Mode
from helpers.pytorch.flops import formula
from helpers.pytorch.tensors import tensors
from helpers.simulator.accesses import Place, accesses, name_of, overlap, place

#: in place, and nothing stays of what was there; so do operators that write into an `out`
_REPLACE = {"copy_", "fill_", "zero_", "normal_", "uniform_"}
#: as pointwise operators, these give an element to each, and one element to many where it is spread
_ALIKE = {"copy_", "fill_", "repeat"}

#: bytes up to which it is looked into how two parts lie in one another
_CLOSELY = 2**20
#: take no more than a shape and a dtype from a tensor
_LIKE = re.compile(r"(empty|zeros|ones|full|rand|new_)")


@dataclass(eq=False)
class Product:
    """One matrix product or the like, by an operator of this name. of: what its operands come from."""

    name: str
    flops: int
    of: frozenset[Any] = field(repr=False)


class Sources(Mode):
    """Within this block of a drive; `products`: in their order. A race is still told by the program's line.

    spread: the products of which fewer elements than it writes were read by an operator, such as the sum of one that is
    added to each element of another tensor.
    """

    def __init__(self, named: dict[Any, torch.Tensor]) -> None:
        super().__init__()
        self.products: list[Product] = []
        self.spread: set[Product] = set()
        #: storage → its written parts, each with what it comes from
        self._parts: dict[int, dict[Place, frozenset[Any]]] = {}
        for name, tensor in named.items():
            self._write(tensor, frozenset([name]))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._saw(func, args, kwargs or {}, result)
        return result

    def _saw(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        name, touched = func._schema.name.partition("::")[2], list(accesses(func, args, kwargs, result))
        read, there = frozenset[Any](), {_storage(tensor) for tensor in tensors([args, kwargs])}
        if not _LIKE.match(name):
            read = read.union(*(self.of(tensor) for tensor, written in touched if not written))
        if flops := formula(func):
            self.products.append(Product(name_of(func), flops(*args, **kwargs, out_val=result), read))
            read |= {self.products[-1]}
        replaces = name in _REPLACE or func._schema.overload_name.endswith("out")
        pointwise = torch.Tag.pointwise in func.tags
        for tensor in (tensor for tensor, written in touched if written):
            if pointwise or name in _ALIKE:
                self._spreads([of for of, written in touched if not written], tensor.numel())
            if _storage(tensor) not in there:  # it may lie at the address of one that is gone
                self._parts.pop(_storage(tensor), None)
                self._write(tensor, read)
            else:
                kept = {} if replaces else self._there(tensor)
                if not (pointwise and place(tensor)[2] is None):
                    read, kept = read.union(*kept.values()), {}
                self._write(tensor, read)
                for (first, end, within), sources in kept.items():  # in place, each part keeps its own
                    if within is None:
                        first, end = max(first, place(tensor)[0]), min(end, place(tensor)[1])
                    self._put(_storage(tensor), (first, end, within), read | sources)

    def _spreads(self, read: list[torch.Tensor], written: int) -> None:
        held = [(self.of(tensor), _elements(tensor)) for tensor in read]
        for product in frozenset[Any]().union(*(sources for sources, _ in held)):
            if isinstance(product, Product):
                if sum(size for sources, size in held if product in sources) < written:
                    self.spread.add(product)

    def _write(self, tensor: torch.Tensor, sources: frozenset[Any]) -> None:
        if tensor.numel():
            self._put(_storage(tensor), place(tensor), sources)

    def _put(self, storage: int, at: Place, sources: frozenset[Any]) -> None:
        (first, end, within), parts = at, self._parts.setdefault(storage, {})
        for old in [old for old in parts if within is None and old[0] < end and first < old[1]]:
            if old[2] is None:  # what lies before, what lies behind
                rest = [(old[0], first, None), (end, old[1], None)]
                parts |= {part: parts[old] for part in rest if part[0] < part[1]}
            if old[2] is None or first <= old[0] and old[1] <= end:
                del parts[old]
        parts[first, end, within] = sources

    def of(self, tensor: torch.Tensor) -> frozenset[Any]:
        """What any of its numbers comes from."""
        return frozenset[Any]().union(*self._there(tensor).values())

    def _there(self, tensor: torch.Tensor) -> dict[Place, frozenset[Any]]:
        at, parts = place(tensor), self._parts.get(_storage(tensor), {})
        return {part: sources for part, sources in parts.items() if _meet(part, at)}

    def written(self, tensor: torch.Tensor, wanted: set[Any]) -> int:
        """How many of its elements come from all of these; of parts that are no block, one that was written twice counts twice."""
        at, size = place(tensor), 0
        for part, sources in self._parts.get(_storage(tensor), {}).items():
            if not wanted <= sources or not _meet(part, at):
                continue
            if part[2] is None:
                size += min(part[1], at[1]) - max(part[0], at[0])
            else:
                shape, _, element = part[2]
                size += torch.Size(shape).numel() * element
        return int(size) // tensor.element_size()


def _elements(tensor: torch.Tensor) -> int:
    """Without those that are the same one, expanded."""
    return math.prod(n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step or n < 1)


def _meet(one: Place, two: Place) -> bool:
    """Whether they share a byte; of parts that are no blocks, and large, whether they lie beside each other."""
    low, high = max(one[0], two[0]), min(one[1], two[1])
    return low < high and (high - low > _CLOSELY or overlap(one, two))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
