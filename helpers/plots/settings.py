"""What the stride explorer shows, as plain data: a tensor's shape, stride and offset, and what PyTorch says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .picture import Picture, message
from .walk import visited, walk_of

if TYPE_CHECKING:
    import torch

EVIDENCE = "live (CPU)"
LONGEST = 12
"""Most rows or columns."""


@dataclass(frozen=True)
class Settings:
    """What the sliders say: a tensor of shape (rows, columns) in a storage; strides and offset in elements.

    With `dims` 1 it has columns only: shape (columns,), stride (stride1,).
    """

    rows: int
    columns: int
    stride0: int
    stride1: int
    offset: int
    dims: int = 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)[-self.dims :]

    @property
    def stride(self) -> tuple[int, ...]:
        return (self.stride0, self.stride1)[-self.dims :]

    @property
    def call(self) -> str:
        """The call that makes this tensor from a 1-D tensor `x` that owns the storage."""
        return f"x.as_strided({self.shape}, {self.stride}, {self.offset})"

    def cells(self) -> tuple[int, ...]:
        """Storage cells in the order visited; they may lie outside the storage."""
        return visited(self.shape, self.stride, self.offset)

    def trouble(self, size: int) -> str:
        """Why PyTorch would refuse this, in words; "" if it would not."""
        if min(*self.shape, self.offset) < 0:
            return f"{self.call}: lengths and the offset cannot be negative."
        if min(self.stride) < 0:
            return f"{self.call} raises: PyTorch has no negative strides. x.flip(0) makes a copy instead."
        last = max(self.cells(), default=0)
        if last >= size:
            return (
                f"{self.call} raises: its last element would lie in cell {last}, but the storage ends at "
                f"cell {size - 1}. Fewer rows or columns, a smaller stride or a smaller offset fit."
            )
        return ""

    def tensor(self, size: int) -> torch.Tensor:
        """The tensor itself, over a storage of `size` cells. RuntimeError where `trouble` says so."""
        import torch

        return torch.empty(size).as_strided(self.shape, self.stride, self.offset)

    def facts(self, size: int) -> str:
        """One line about the tensor, or why there is none."""
        problem = self.trouble(size)
        if problem:
            return problem
        tensor = self.tensor(size)
        return (
            f"shape {tuple(tensor.shape)} · stride {tensor.stride()} · offset {tensor.storage_offset()} · "
            f"is_contiguous() {tensor.is_contiguous()} · "
            f"{visits(self.cells())} · {self.call}"
        )

    def picture(self, size: int) -> Picture:
        """The path through the storage, or the reason why there is none, as a picture of its own."""
        problem = self.trouble(size)
        if problem:
            return message(problem, evidence="arithmetic", title="No such tensor")
        from .storage import paths

        walk = walk_of(self.tensor(size), self.call)
        return paths([walk], evidence=EVIDENCE, title="The walk through the storage")


def visits(cells: Sequence[int]) -> str:
    """How often a walk meets its cells: "18 elements visit each of 6 distinct cells 3 times"."""
    counts = Counter(cells)
    fewest, most = min(counts.values(), default=0), max(counts.values(), default=0)
    elements = f"{len(cells)} element{'s visit' if len(cells) != 1 else ' visits'}"
    distinct = f"{len(counts)} distinct cell{'s' if len(counts) != 1 else ''}"
    if len(counts) < 2:
        return f"{elements} {distinct}"
    if fewest < most:
        return f"{elements} {distinct}, {fewest} to {most} times each"
    return f"{elements} each of {distinct} {'once' if most == 1 else f'{most} times'}"


def presets(size: int, rows: int, columns: int) -> dict[str, Settings]:
    """Named settings for `size` cells that begin as a rows × columns matrix; each of them fits."""
    window = min(4, size, LONGEST)
    side = min(rows, columns)
    found = {
        "row-major": Settings(rows, columns, columns, 1, 0),
        "transpose": Settings(columns, rows, 1, columns, 0),
        "every second row": Settings(-(-rows // 2), columns, 2 * columns, 1, 0),
        "sliding windows": Settings(min(size - window + 1, LONGEST), window, 1, 1, 0),
        "broadcast": Settings(rows, columns, 0, 1, 0),
        "diagonal": Settings(1, side, 0, columns + 1, 0, dims=1),
    }
    return {name: settings for name, settings in found.items() if not settings.trouble(size)}
