"""The walk of a tensor through its storage: plain integers, computed apart from any drawing.

Source of the formula: PyTorch's strided layout, element (i0, i1, …) lies at offset + i0·stride0 +
i1·stride1 + …, counted in elements and not in bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_VISITS = 1024
"""Most elements whose walk is followed; more could not be told apart in a picture."""


def visited(shape: Sequence[int], stride: Sequence[int], offset: int = 0) -> tuple[int, ...]:
    """Storage cells in the order in which a walk over all indices (last one fastest) meets them.

    `shape` and `stride` have equal length; all in elements. An empty shape is a scalar: one cell.
    ValueError if the lengths differ.
    """
    if len(shape) != len(stride):
        given = f"shape {tuple(shape)} has {len(shape)} dimensions"
        raise ValueError(f"{given} and stride {tuple(stride)} has {len(stride)}")
    cells = [offset]
    for length, step in zip(shape, stride, strict=True):
        cells = [cell + i * step for cell in cells for i in range(length)]
    return tuple(cells)


_SHIFT = 1_000_000


@dataclass(frozen=True)
class Walk:
    """What a picture of the storage needs to know about one expression."""

    name: str
    shape: tuple[int, ...]
    """Shape, stride and offset are the tensor's own, whatever storage its cells are drawn in."""
    stride: tuple[int, ...]
    offset: int
    cells: tuple[int, ...]
    """Cells visited, in order: of this tensor's storage, or of the base's for an expression that copies."""
    size: int
    """Cells in that storage."""
    kind: str = ""
    """"view", "copy", or "" where there is no base to compare with."""
    reads: str = ""
    """Name of the source, where a copy is drawn over the cells that it read: not its own storage."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Cell → what stands in it."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """Cell → number of its colour, where cells are coloured by an index."""
    dimension: int | None = None
    """The dimension whose index the colours show."""

    @property
    def owns(self) -> bool:
        """A copy that is drawn in its own storage."""
        return self.kind == "copy" and not self.reads

    @property
    def steps(self) -> dict[int, int]:
        """Step from one visited cell to the next → how often; commonest first, of equals the earlier."""
        return dict(Counter(b - a for a, b in pairwise(self.cells)).most_common())

    @property
    def counts(self) -> dict[int, int]:
        """Cell → number of visits."""
        return dict(Counter(self.cells))

    def describe(self) -> str:
        """One sentence: the picture's text alternative."""
        steps = ", ".join(f"{step:+d} ×{n}" for step, n in self.steps.items()) or "none"
        layout = f"shape {self.shape}, stride {self.stride}"
        named = f"{self.name + ': ' if self.name else ''}{self.kind + ', ' if self.kind else ''}"
        cells = f"{len(self.counts)} of {self.size} cells"
        if self.reads:
            return (
                f"{named}its {len(self.cells)} elements are read from {cells} of {self.reads} in steps {steps}; "
                f"result: own storage, {layout}"
            )
        return (
            f"{named}{'its own storage, ' if self.owns else ''}{layout}, offset {self.offset}; "
            f"{len(self.cells)} elements visit {cells}; steps {steps}"
        )


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _strided(tensor: torch.Tensor, name: str) -> None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name or 'this'} is {type(tensor).__name__}, not a tensor")
    which = name or "this tensor"
    if tensor.layout != torch.strided:
        raise ValueError(f"{which} has layout {tensor.layout}: only a strided tensor walks one storage")
    if tensor.numel() > MAX_VISITS:
        raise ValueError(
            f"{which} has {tensor.numel():,} elements; a walk is drawn for at most {MAX_VISITS:,}: start small, the "
            "pattern is the same"
        )


def walk_of(tensor: torch.Tensor, name: str = "", base: torch.Tensor | None = None) -> Walk:
    """The walk of `tensor` through its own storage; with `base`, also whether it is a view of base's."""
    _strided(tensor, name)
    shape, stride, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    kind = "" if base is None else "view" if _storage(tensor) == _storage(base) else "copy"
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return Walk(name, shape, stride, offset, visited(shape, stride, offset), size, kind)


def walk_of_expression(
    function: Callable[[torch.Tensor], torch.Tensor], name: str, base: torch.Tensor
) -> Walk:
    """The walk of `function(base)` over base's storage, also where the result is a copy (`reads` is then set).

    The function is called on a tensor of base's own shape, stride and offset whose numbers are cell
    numbers: what comes out says which cell each element was read from. ValueError if it computes new
    numbers.
    """
    import torch

    _strided(base, "base")
    size = base.untyped_storage().nbytes() // base.element_size()
    probe = torch.arange(size).as_strided(tuple(base.shape), tuple(base.stride()), int(base.storage_offset()))
    result = function(probe)
    _strided(result, name)
    cells = tuple(int(v) for v in result.reshape(-1).tolist())
    # Called again on shifted numbers: what only moves elements gives the same numbers, shifted.
    again = function(probe + _SHIFT)
    moved = result.dtype == torch.int64 and torch.equal(again, result + _SHIFT)
    other = result.dtype == torch.int64 and again.shape != result.shape
    chosen = other and torch.equal(base.to(torch.int64), probe)
    if not (moved or chosen):
        raise ValueError(
            f"{name}: it computes new numbers, or chooses by value where x does not hold its own cell "
            "numbers, so its elements have no known place in the storage of x"
        )
    copied = _storage(result) != _storage(probe)
    layout = tuple(result.shape), tuple(result.stride()), int(result.storage_offset())
    reads = _source(function) if copied else ""
    return Walk(name, *layout, cells, size, "copy" if copied else "view", reads)


def _source(function: Callable[..., object]) -> str:
    """What the function calls the tensor that it is applied to: "x" for lambda x: x.t()."""
    code = getattr(function, "__code__", None)
    return code.co_varnames[0] if code and code.co_argcount else "its source"


def walks(views: object, base: torch.Tensor | None = None) -> list[Walk]:
    """A Walk for each of `views`: a tensor, {name: tensor or function of base}, or expressions in x.

    ValueError if a function or an expression comes without `base`, or if there is nothing to draw.
    """
    import torch

    if isinstance(views, torch.Tensor):
        return [walk_of(views, "", base)]
    if isinstance(views, str):
        views = [views]
    if isinstance(views, Sequence):
        # The lesson's own source text, as it stands in its prediction: x is the base, torch is torch.
        views = {code: eval(f"lambda x: {code}", {"torch": torch}) for code in views}
    if not isinstance(views, Mapping) or not views:
        raise ValueError(
            "give a tensor, a dict of name → tensor (or function of base), or a list of expressions in x"
        )
    found = []
    for name, view in views.items():
        if not callable(view) or isinstance(view, torch.Tensor):
            found.append(walk_of(view, name, base))
        elif base is None:
            raise ValueError(
                f"{name}: to follow an expression it needs base=, the tensor that it is applied to"
            )
        else:
            found.append(walk_of_expression(view, name, base))
    return found
