"""What the widgets have in common: in a notebook they show themselves, as a widget where they can and else a picture."""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from typing import Any

from helpers.plots.picture import Picture

from . import STATIC

__all__ = ["Movable"]


class Movable(ABC):
    """A picture that can be moved. `_build` makes `_widget`, the ipywidgets box, when it is first asked for."""

    kind: str
    how = "run this cell to move it"
    _widget: Any = None

    @abstractmethod
    def static(self) -> Picture:
        """The picture of what is set now."""

    @abstractmethod
    def _build(self, ipywidgets: Any) -> None:
        """Make the controls, and of them `_widget`."""

    @abstractmethod
    def _told(self) -> tuple[str, str]:
        """The kind of evidence, and what the picture shows, in one line."""

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

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        png, about = self.static()._repr_png_()
        data: dict[str, Any] = {"text/plain": repr(self), "image/png": base64.b64encode(png).decode("ascii")}
        if not os.environ.get(STATIC) and self.widget is not None:
            data |= {k: v for k, v in self.widget._repr_mimebundle_().items() if k != "text/plain"}
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
