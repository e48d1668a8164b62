"""How a widget shows itself in a cell's output."""

from typing import Any


def view(widget: Any) -> dict[str, Any]:
    """What a notebook draws the widget from. ipywidgets 7, which Colab has, offers no `_repr_mimebundle_`."""
    about = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"application/vnd.jupyter.widget-view+json": about}
