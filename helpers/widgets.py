"""The course's pictures made movable. ipywidgets is imported only to show a widget; without it, a picture is.

Set the environment variable HELPERS_STATIC_WIDGETS=1 to show pictures only: a built notebook then carries a
PNG and no widget model, whose random id would differ at every build and which says nothing once its kernel
is gone.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from helpers.plots.picture import Picture, message
from helpers.plots.style import WIDTH
from helpers.plots.walk import visited

if TYPE_CHECKING:
    import torch

__all__ = ["StrideExplorer", "stride_explorer"]

EVIDENCE = "live (CPU)"
MAX_SIZE = 64
_LONGEST = 12  # rows, columns
STATIC = "HELPERS_STATIC_WIDGETS"


@dataclass(frozen=True)
class Settings:
    """What the sliders say: a (rows, columns) tensor in a storage; strides and offset in elements."""

    rows: int
    columns: int
    stride0: int
    stride1: int
    offset: int

    @property
    def call(self) -> str:
        """The call that makes this tensor from a 1-D tensor `x` that owns the storage."""
        shape, stride = (self.rows, self.columns), (self.stride0, self.stride1)
        return f"x.as_strided({shape}, {stride}, {self.offset})"

    def cells(self) -> tuple[int, ...]:
        """Storage cells in the order visited; they may lie outside the storage."""
        return visited((self.rows, self.columns), (self.stride0, self.stride1), self.offset)

    def trouble(self, size: int) -> str:
        """Why PyTorch would refuse this, in words; "" if it would not."""
        if self.rows < 0 or self.columns < 0 or self.offset < 0:
            return f"{self.call}: lengths and the offset cannot be negative."
        if self.stride0 < 0 or self.stride1 < 0:
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

        shape, stride = (self.rows, self.columns), (self.stride0, self.stride1)
        return torch.empty(size).as_strided(shape, stride, self.offset)

    def facts(self, size: int) -> str:
        """One line about the tensor, or why there is none."""
        problem = self.trouble(size)
        if problem:
            return problem
        tensor = self.tensor(size)
        cells = self.cells()
        return (
            f"shape {tuple(tensor.shape)} · stride {tensor.stride()} · offset {tensor.storage_offset()} · "
            f"is_contiguous() {tensor.is_contiguous()} · "
            f"{len(cells)} elements visit {len(set(cells))} distinct cells · {self.call}"
        )

    def picture(self, size: int) -> Picture:
        """The path through the storage, or the reason why there is none, as a picture of its own."""
        problem = self.trouble(size)
        if problem:
            return message(problem, evidence="arithmetic", title="No such tensor")
        from helpers.plots.storage import paths
        from helpers.plots.walk import walk_of

        walk = walk_of(self.tensor(size), self.call)
        return paths([walk], evidence=EVIDENCE, title="The walk through the storage")


def presets(size: int, rows: int, columns: int) -> dict[str, Settings]:
    """Named settings for `size` cells that begin as a rows × columns matrix; each of them fits."""
    window = min(4, size, _LONGEST)
    side = min(rows, columns)
    found = {
        "row-major": Settings(rows, columns, columns, 1, 0),
        "transpose": Settings(columns, rows, 1, columns, 0),
        "every second row": Settings(-(-rows // 2), columns, 2 * columns, 1, 0),
        "sliding windows": Settings(min(size - window + 1, _LONGEST), window, 1, 1, 0),
        "broadcast": Settings(rows, columns, 0, 1, 0),
        "diagonal": Settings(1, side, 0, columns + 1, 0),
    }
    return {name: settings for name, settings in found.items() if not settings.trouble(size)}


class StrideExplorer:
    """Sliders over shape, stride and offset, and the path they make; a widget if live, else a picture.

    `settings` is what is shown now; `widget` the ipywidgets box (None without ipywidgets); `static()` the
    picture.
    """

    def __init__(self, size: int, settings: Settings, named: dict[str, Settings]) -> None:
        self.size, self.settings, self.named = size, settings, named
        self.image: Any = None
        self.sliders: dict[str, Any] = {}
        self.buttons: dict[str, Any] = {}
        self._text: Any = None
        self._widget: Any = None
        self._busy = False

    def static(self) -> Picture:
        """The picture of the present settings: what to show next to the widget, or in its place."""
        return self.settings.picture(self.size)

    def set(self, settings: Settings) -> None:
        """Show these settings: sliders, picture and text follow. What does not fit says so."""
        self.settings = settings
        if self._widget is None:
            return
        self._busy = True  # five sliders move, one picture is drawn
        try:
            for name, slider in self.sliders.items():
                slider.value = getattr(settings, name)
        finally:
            self._busy = False
        self._draw()

    @property
    def widget(self) -> Any:
        """The ipywidgets box, made at first use; None where ipywidgets is missing."""
        if self._widget is None:
            try:
                import ipywidgets
            except ImportError:
                return None
            self._build(ipywidgets)
        return self._widget

    def _build(self, ipywidgets: Any) -> None:
        limits = {
            "rows": ("rows", 1, _LONGEST),
            "columns": ("columns", 1, _LONGEST),
            "stride0": ("stride 0 (rows)", -1, _LONGEST),
            "stride1": ("stride 1 (columns)", -1, _LONGEST),
            "offset": ("offset", 0, self.size - 1),
        }
        wide = {"description_width": "11em"}
        for name, (label, low, high) in limits.items():
            value = getattr(self.settings, name)
            slider = ipywidgets.IntSlider(
                value=value, min=min(low, value), max=max(high, value), description=label, style=wide,
                layout=ipywidgets.Layout(width="28em"),
            )  # fmt: skip
            slider.observe(self._moved, names="value")
            self.sliders[name] = slider
        for name, settings in self.named.items():
            button = ipywidgets.Button(
                description=name, tooltip=settings.call, layout=ipywidgets.Layout(width="auto")
            )
            button.on_click(self._chooser(settings))
            self.buttons[name] = button
        # An Image and not an Output: its bytes are a trait, nothing flickers, no output area is involved.
        fit = ipywidgets.Layout(width="100%", max_width=f"{round(WIDTH * 96)}px")
        self.image = ipywidgets.Image(format="png", layout=fit)
        self._text = ipywidgets.HTML()
        wrap = ipywidgets.Layout(flex_flow="row wrap")
        rows = [ipywidgets.HBox(list(part.values()), layout=wrap) for part in (self.buttons, self.sliders)]
        self._widget = ipywidgets.VBox([*rows, self.image, self._text])
        self._draw()

    def _chooser(self, settings: Settings) -> Callable[[Any], None]:
        return lambda _: self.set(settings)

    def _moved(self, change: Any) -> None:
        if not self._busy:
            self.settings = Settings(**{name: slider.value for name, slider in self.sliders.items()})
            self._draw()

    def _draw(self) -> None:
        self.image.value = self.static().png()
        self._text.value = f"<code>{escape(self.settings.facts(self.size))}</code>"

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        picture = self.static()
        png, about = picture._repr_png_()
        data: dict[str, Any] = {"text/plain": repr(self), "image/png": base64.b64encode(png).decode("ascii")}
        if not os.environ.get(STATIC) and self.widget is not None:
            data |= {k: v for k, v in self.widget._repr_mimebundle_().items() if k != "text/plain"}
        return data, {"image/png": about}

    def __repr__(self) -> str:
        try:
            import ipywidgets  # noqa: F401
        except ImportError:
            how = "(ipywidgets is not installed here, so this is a picture that cannot be moved)"
        else:
            how = "(run this cell to move it)"
        return f"[stride explorer, {EVIDENCE}] {self.settings.facts(self.size)} {how}"


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
        raise ValueError(
            f"shape={tuple(shape)}, stride={stride}: the explorer shows two dimensions, rows and columns"
        )
    rows, columns = (int(n) for n in shape)
    down, right = (columns, 1) if stride is None else (int(n) for n in stride)
    if not (0 < rows <= size and 0 < columns <= size and 0 <= offset < size):
        raise ValueError(
            f"shape={tuple(shape)}, offset={offset}: rows and columns are 1 to size, offset 0 to size - 1"
        )
    return StrideExplorer(
        size, Settings(rows, columns, down, right, int(offset)), presets(size, rows, columns)
    )
