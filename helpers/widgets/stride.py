"""The stride explorer: sliders over shape, stride and offset, and the walk that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from helpers.plots.picture import Picture, message
from helpers.plots.walk import visited, walk_of

from .movable import Movable

if TYPE_CHECKING:
    import torch

EVIDENCE = "live (CPU)"
MAX_SIZE = 64
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
            f"is_contiguous() {tensor.is_contiguous()} · {visits(self.cells())} · {self.call}"
        )

    def picture(self, size: int) -> Picture:
        """The path through the storage, or the reason why there is none, as a picture of its own."""
        problem = self.trouble(size)
        if problem:
            return message(problem, evidence="arithmetic", title="No such tensor")
        from helpers.plots.storage import paths

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


class StrideExplorer(Movable):
    """Sliders over shape, stride and offset, and the path they make; a widget if live, else a picture.

    `settings` is what is shown now; `widget` the ipywidgets box (None without ipywidgets); `static()` the
    picture.
    """

    kind = "stride explorer"

    def __init__(self, size: int, settings: Settings, named: dict[str, Settings]) -> None:
        super().__init__()
        self.size, self.settings, self.named = size, settings, named

    def static(self) -> Picture:
        """The picture of the present settings: what to show next to the widget, or in its place."""
        return self.settings.picture(self.size)

    def set(self, settings: Settings) -> None:
        """Show these settings: sliders, picture and text follow. What does not fit says so."""
        self.settings = settings
        with self._following():
            for name, control in self.controls.items():
                control.value = getattr(settings, name)
        self._draw()

    def _build(self, ipywidgets: Any) -> None:
        dims = self._control(
            ipywidgets.ToggleButtons, ipywidgets, "dims", "dimensions", self.settings.dims,
            options=[("1", 1), ("2", 2)], tooltips=["columns only", "rows and columns"],
        )  # fmt: skip
        dims.style.button_width = "4em"
        for name, label, low, high in (
            ("rows", "rows", 1, LONGEST), ("columns", "columns", 1, LONGEST), ("stride0", "stride 0 (rows)", -1, LONGEST),
            ("stride1", "stride 1 (columns)", -1, LONGEST), ("offset", "offset", 0, self.size - 1),
        ):  # fmt: skip
            value = getattr(self.settings, name)
            ends = {"min": min(low, value), "max": max(high, value)}
            self._control(ipywidgets.IntSlider, ipywidgets, name, label, value, **ends)
        for name, settings in self.named.items():
            self._button(ipywidgets, name, partial(self.set, settings), settings.call)
        self._stack(ipywidgets, [list(self.buttons.values()), list(self.controls.values())])

    def _moved(self, change: Any) -> None:
        if not self._busy:
            self.settings = Settings(**{name: control.value for name, control in self.controls.items()})
            self._draw()

    def _draw(self) -> None:
        super()._draw()
        for name in ("rows", "stride0"):
            if name in self.controls:
                self.controls[name].disabled = self.settings.dims == 1

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.settings.facts(self.size)


def stride_explorer(
    size: int = 24, shape: Sequence[int] = (4, 6), stride: Sequence[int] | None = None, offset: int = 0
) -> StrideExplorer:
    """A movable walk: a storage of `size` cells, and sliders for rows, columns, their strides and the offset.

    `shape` (rows, columns), `stride` (None: row-major) and `offset`, in elements, are where it starts;
    settings that do not fit show why. ValueError if `size` is not 1…64, or shape or stride has not two
    numbers.
    """
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"size={size}: the storage has 1 to {MAX_SIZE} cells, so that each can be read")
    if len(shape) != 2 or (stride is not None and len(stride) != 2):
        given = f"shape={tuple(shape)}, stride={stride}"
        raise ValueError(f"{given}: the explorer shows two dimensions, rows and columns")
    rows, columns = (int(n) for n in shape)
    down, right = (columns, 1) if stride is None else (int(n) for n in stride)
    if not (0 < rows <= size and 0 < columns <= size and 0 <= offset < size):
        given = f"shape={tuple(shape)}, offset={offset}"
        raise ValueError(f"{given}: rows and columns are 1 to size, offset 0 to size - 1")
    start = Settings(rows, columns, down, right, int(offset))
    return StrideExplorer(size, start, presets(size, rows, columns))
