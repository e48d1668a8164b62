"""What the widgets have in common: a picture under controls, which shows itself as a widget where it can."""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from helpers.plots.picture import Picture
from helpers.plots.style import WIDTH

from .view import view

STATIC = "HELPERS_STATIC_WIDGETS"
"""Environment variable: with 1, pictures only."""


class Movable(ABC):
    """A picture that can be moved. `_build` makes `_widget`, the ipywidgets box, when it is first asked for."""

    kind: str
    how = "run this cell to move it"
    image: Any = None
    """The widget that holds the picture: an Image and not an Output, so that nothing flickers."""
    _kit: Any = None
    """ipywidgets, once it has been asked for."""
    _text: Any = None
    _widget: Any = None
    _busy = False

    def __init__(self) -> None:
        self.controls: dict[str, Any] = {}
        self.buttons: dict[str, Any] = {}

    @abstractmethod
    def static(self) -> Picture:
        """The picture of what is set now."""

    @abstractmethod
    def _build(self, ipywidgets: Any) -> None:
        """Make the controls, and of them `_widget`."""

    @abstractmethod
    def _told(self) -> tuple[str, str]:
        """The kind of evidence, and what the picture shows, in one line."""

    def _stack(self, rows: Sequence[Sequence[Any]]) -> None:
        """Make `_widget`: rows of controls, the picture and the line of facts; and draw."""
        wrap = self._kit.Layout(flex_flow="row wrap")
        # as wide as the picture where there is room for it; ipywidgets adds a margin of 2 pixels on both sides
        fit = self._kit.Layout(width="calc(100% - 4px)", max_width=f"{round(WIDTH * 96)}px")
        self.image = self._kit.Image(format="png", layout=fit)
        self._text = self._kit.HTML()
        above = [self._kit.HBox(list(row), layout=wrap) if len(row) > 1 else row[0] for row in rows]
        self._widget = self._kit.VBox([*above, self.image, self._text])
        self._draw()

    def _button(
        self, name: str, action: Callable[[], Any], tip: str | None = None, width: str = "auto"
    ) -> Any:
        """A button that does this when it is clicked."""
        self.buttons[name] = button = self._kit.Button(description=name, tooltip=tip or "")
        button.layout.width = width
        button.on_click(lambda _: action())
        return button

    def _control(self, make: Any, name: str, label: str, value: Any, **options: Any) -> Any:
        """A control of class `make`, which is called `label`; `_moved` hears of its changes."""
        look = {"style": {"description_width": "11em"}, "layout": self._kit.Layout(width="28em")}
        self.controls[name] = control = make(value=value, description=label, **look, **options)
        control.observe(self._moved, names="value")
        return control

    @abstractmethod
    def _moved(self, change: Any) -> None:
        """A control has another value."""

    def _draw(self) -> None:
        """Show the present picture and its facts; nothing before there is a widget."""
        if self._widget is not None:
            self.image.value = self.static().png()
            self._text.value = f"<code>{escape(self._told()[1])}</code>"

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Controls follow what is set, and must not set it: several move, one picture is drawn."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    @property
    def widget(self) -> Any:
        """The ipywidgets box, made at first use; None where ipywidgets is missing."""
        if self._widget is None:
            try:
                import ipywidgets
            except ImportError:
                return None
            self._kit = ipywidgets
            self._build(ipywidgets)
        return self._widget

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        png, about = self.static()._repr_png_()
        data: dict[str, Any] = {"text/plain": repr(self), "image/png": base64.b64encode(png).decode("ascii")}
        if not os.environ.get(STATIC) and self.widget is not None:
            data |= view(self.widget)
        return data, {"image/png": about}

    def __repr__(self) -> str:
        try:
            import ipywidgets  # noqa: F401
        except ImportError:
            how = "ipywidgets is not installed here, so this is a picture that cannot be moved"
        else:
            how = self.how
        evidence, facts = self._told()
        return f"[{self.kind}, {evidence}] {facts} ({how})"


class Explorer(Movable):
    """A Movable whose controls are settings: `settings` by name, `controls` by the same names, `set` changes them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}
        self.set(**settings)

    @abstractmethod
    def _compute(self) -> None:
        """What the settings make, before it is drawn."""

    def set(self, **settings: Any) -> None:
        """Show these settings: controls, picture and text follow."""
        self.settings |= settings
        self._compute()
        if self._widget is not None:
            with self._following():
                for name, control in self.controls.items():
                    control.value = self.settings[name]
            self._draw()

    def _moved(self, change: Any) -> None:
        if not self._busy:
            self.set(**{name: control.value for name, control in self.controls.items()})
