"""The stride explorer: sliders over shape, stride and offset, and the walk that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from helpers.plots.picture import Picture
from helpers.plots.settings import EVIDENCE, LONGEST, Settings, presets
from helpers.plots.style import WIDTH

from .movable import Movable

__all__ = ["StrideExplorer", "stride_explorer"]

MAX_SIZE = 64


class StrideExplorer(Movable):
    """Sliders over shape, stride and offset, and the path they make; a widget if live, else a picture.

    `settings` is what is shown now; `widget` the ipywidgets box (None without ipywidgets); `static()` the
    picture.
    """

    kind = "stride explorer"

    def __init__(self, size: int, settings: Settings, named: dict[str, Settings]) -> None:
        self.size, self.settings, self.named = size, settings, named
        self.image: Any = None
        self.sliders: dict[str, Any] = {}
        self.buttons: dict[str, Any] = {}
        self._text: Any = None
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

    def _build(self, ipywidgets: Any) -> None:
        limits = {
            "rows": ("rows", 1, LONGEST),
            "columns": ("columns", 1, LONGEST),
            "stride0": ("stride 0 (rows)", -1, LONGEST),
            "stride1": ("stride 1 (columns)", -1, LONGEST),
            "offset": ("offset", 0, self.size - 1),
        }
        wide = {"description_width": "11em"}
        dims = ipywidgets.ToggleButtons(
            options=[("1", 1), ("2", 2)], value=self.settings.dims, description="dimensions", style=wide,
            tooltips=["columns only", "rows and columns"], layout=ipywidgets.Layout(width="28em"),
        )  # fmt: skip
        dims.style.button_width = "4em"
        dims.observe(self._moved, names="value")
        self.sliders["dims"] = dims
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
        for name in ("rows", "stride0"):
            self.sliders[name].disabled = self.settings.dims == 1
        self.image.value = self.static().png()
        self._text.value = f"<code>{escape(self.settings.facts(self.size))}</code>"

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
