"""The stride explorer: sliders over shape, stride and offset, and the walk that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from helpers.plots.picture import Picture, message
from helpers.plots.walk import visited, walk_of
from helpers.widgets.movable import Explorer

if TYPE_CHECKING:
    import torch

EVIDENCE = "live (CPU)"
SIZE = 24
"""Cells of the storage."""
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

    @property
    def trouble(self) -> str:
        """Why PyTorch would refuse this, in words; "" if it would not."""
        if min(self.stride) < 0:
            return f"{self.call} raises: PyTorch has no negative strides. x.flip(0) makes a copy instead."
        last = max(self.cells(), default=0)
        if last >= SIZE:
            return (
                f"{self.call} raises: its last element would lie in cell {last}, but the storage ends at "
                f"cell {SIZE - 1}. Fewer rows or columns, a smaller stride or a smaller offset fit."
            )
        return ""

    def tensor(self) -> torch.Tensor:
        """The tensor itself. RuntimeError where `trouble` says so."""
        import torch

        return torch.empty(SIZE).as_strided(self.shape, self.stride, self.offset)

    @property
    def facts(self) -> str:
        """One line about the tensor, or why there is none."""
        if self.trouble:
            return self.trouble
        tensor = self.tensor()
        return (
            f"shape {tuple(tensor.shape)} · stride {tensor.stride()} · offset {tensor.storage_offset()} · "
            f"is_contiguous() {tensor.is_contiguous()} · {visits(self.cells())} · {self.call}"
        )

    def picture(self) -> Picture:
        """The path through the storage, or the reason why there is none, as a picture of its own."""
        if self.trouble:
            return message(self.trouble, evidence="arithmetic", title="No such tensor")
        from helpers.lessons.storage_and_stride.storage_picture import paths

        walk = walk_of(self.tensor(), self.call)
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


PRESETS = {
    "row-major": Settings(4, 6, 6, 1, 0),
    "transpose": Settings(6, 4, 1, 6, 0),
    "every second row": Settings(2, 6, 12, 1, 0),
    "sliding windows": Settings(LONGEST, 4, 1, 1, 0),
    "broadcast": Settings(4, 6, 0, 1, 0),
    "diagonal": Settings(1, 4, 0, 7, 0, dims=1),
}
"""Layouts that have a name, of the storage that begins as a 4 × 6 matrix."""


class StrideExplorer(Explorer):
    """Sliders over shape, stride and offset, and the path they make; a widget if live, else a picture.

    `settings`: rows, columns, stride0, stride1, offset, dims; `set` changes them; `layout` what they say; `static()`
    the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "stride explorer"

    layout: Settings

    def _compute(self) -> None:
        self.layout = Settings(**self.settings)

    def static(self) -> Picture:
        """The picture of the present settings: what to show next to the widget, or in its place."""
        return self.layout.picture()

    def _build(self, ipywidgets: Any) -> None:
        dims = self._control(
            ipywidgets.ToggleButtons, "dims", "dimensions", self.layout.dims,
            options=[("1", 1), ("2", 2)], tooltips=["columns only", "rows and columns"],
        )  # fmt: skip
        dims.style.button_width = "4em"
        for name, label, low, high in (
            ("rows", "rows", 1, LONGEST), ("columns", "columns", 1, LONGEST), ("stride0", "stride 0 (rows)", -1, LONGEST),
            ("stride1", "stride 1 (columns)", -1, LONGEST), ("offset", "offset", 0, SIZE - 1),
        ):  # fmt: skip
            self._control(ipywidgets.IntSlider, name, label, self.settings[name], min=low, max=high)
        for name, layout in PRESETS.items():
            self._button(name, partial(self.set, **vars(layout)), layout.call)
        self._stack([list(self.buttons.values()), list(self.controls.values())])

    def _draw(self) -> None:
        super()._draw()
        for name in ("rows", "stride0"):
            if name in self.controls:
                self.controls[name].disabled = self.layout.dims == 1

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.layout.facts


def stride_explorer() -> StrideExplorer:
    """A movable walk: a storage of 24 cells, and sliders for rows, columns, their strides and the offset.

    It begins as a 4 × 6 matrix, row by row. Settings that do not fit show why.
    """
    return StrideExplorer(**vars(PRESETS["row-major"]))
