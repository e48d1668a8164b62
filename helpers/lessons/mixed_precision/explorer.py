"""The float-format explorer: flip a bit, type a value, step to its neighbours; see it in every format at once."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from helpers.lessons.mixed_precision.float_formats import FORMATS, named
from helpers.lessons.mixed_precision.format_picture import float_bits, shown
from helpers.plots.picture import Picture
from helpers.plots.style import INK
from helpers.widgets.movable import Movable


class FloatFormatExplorer(Movable):
    """A value, and a format whose bits can be flipped; a widget if live, else a picture.

    `value` is what is shown (what was typed, or what the flipped bits mean), `format` the chosen one; `widget`
    the ipywidgets box (None without ipywidgets); `static()` the picture.
    """

    kind = "float-format explorer"
    how = "run this cell to flip its bits"

    def __init__(self, value: float, name: str) -> None:
        super().__init__()
        self.value, self.format = value, named(name)
        self.bits = self.format.encode(value)
        self.entry: Any = None
        self.choice: Any = None
        self.flips: list[Any] = []

    def static(self) -> Picture:
        """The bits of the present value in every format: what to show next to the widget, or in its place."""
        return float_bits(self.value, chosen=self.format.name)

    def set(self, value: float) -> None:
        """Show this value: bits, picture and text follow."""
        self.value, self.bits = value, self.format.encode(value)
        self._draw()

    def choose(self, name: str) -> None:
        """Flip the bits of this format from now on. ValueError for an unknown one."""
        self.format = named(name)
        self.bits = self.format.encode(self.value)
        self._draw()

    def flip(self, place: int) -> None:
        """Flip one bit of the chosen format, counted from the sign (0) to the last of the mantissa."""
        if not 0 <= place < self.format.bits:
            raise ValueError(f"{self.format.name} has bits 0 to {self.format.bits - 1}, not {place}")
        self._show_bits(self.bits ^ 1 << self.format.bits - 1 - place)

    def step(self, by: int) -> None:
        """Go `by` values up (or down, if negative) in magnitude, as far as there are bits for it."""
        sign = self.bits & 1 << self.format.bits - 1
        most = (1 << self.format.bits - 1) - 1
        self._show_bits(sign | min(max((self.bits ^ sign) + by, 0), most))

    def facts(self) -> str:
        """One line: the formula with its numbers, and how far off the neighbours are."""
        f, bits = self.format, self.bits
        (s, e, m), got = f.fields(bits), f.decode(bits)
        minus, magnitude = "−" if s else "", bits & (1 << f.bits - 1) - 1
        if got != got or got in (float("inf"), float("-inf")):
            return f"{f.name} · exponent {e} and mantissa {m} stand for {shown(got)}"
        lead, power = ("1", e - f.bias) if e else ("0", 1 - f.bias)
        kind = "" if e else " (zero)" if not m else " (subnormal)"
        below, above = (abs(f.decode(max(magnitude + d, 0))) for d in (-1, 1))
        return (
            f"{f.name} · {minus}2^({power}) · ({lead} + {m} ÷ {1 << f.mantissa}) = {shown(got)}{kind} · "
            f"neighbours in magnitude {shown(below)} and {shown(above)}"
        )

    def _show_bits(self, bits: int) -> None:
        self.bits, self.value = bits, self.format.decode(bits)
        self._draw()

    def _build(self, ipywidgets: Any) -> None:
        narrow = {"description_width": "4em"}
        self.entry = ipywidgets.Text(
            value=repr(self.value), description="value", continuous_update=False, style=narrow,
            layout=ipywidgets.Layout(width="20em"),
        )  # fmt: skip
        self.entry.observe(self._moved, names="value")
        self.choice = ipywidgets.ToggleButtons(options=list(FORMATS), value=self.format.name, style=narrow)
        self.choice.style.button_width = "5em"
        self.choice.observe(self._chose, names="value")
        for place in range(max(f.bits for f in FORMATS.values())):
            flip = ipywidgets.Button(layout=ipywidgets.Layout(width="1.6em", padding="0", margin="0 1px"))
            flip.style.text_color = INK  # the buttons are pale in the dark theme too
            flip.on_click(lambda _, place=place: self.flip(place))
            self.flips.append(flip)
        actions: dict[str, Callable[[], None]] = {
            "one value down": lambda: self.step(-1),
            "one value up": lambda: self.step(1),
            "largest": lambda: self.set(self.format.largest),
            "smallest normal": lambda: self.set(self.format.smallest_normal),
            "smallest": lambda: self.set(self.format.smallest),
            "next after 1": lambda: self.set(1 + self.format.eps),
        }
        buttons = [self._button(name, action) for name, action in actions.items()]
        self._stack([[self.entry, self.choice], self.flips, buttons])

    def _moved(self, change: Any) -> None:
        if self._busy:
            return
        try:
            self.set(float(change["new"]))
        except ValueError:
            typed = escape(change["new"])
            self._text.value = f"<code>{typed} is not a number; 0.1, 1e-8, inf and nan are</code>"

    def _chose(self, change: Any) -> None:
        if not self._busy:
            self.choose(change["new"])

    def _draw(self) -> None:
        if self._widget is None:
            return
        with self._following():
            self.entry.value, self.choice.value = repr(self.value), self.format.name
        f = self.format
        digits = f"{self.bits:0{f.bits}b}"
        colours = ["#F1DDE8"] + ["#FBE3D3"] * f.exponent + ["#D6E8F5"] * f.mantissa
        for place, flip in enumerate(self.flips):
            used = place < f.bits
            flip.layout.display = None if used else "none"
            if used:
                flip.description, flip.style.button_color = digits[place], colours[place]
        super()._draw()

    def _told(self) -> tuple[str, str]:
        return "arithmetic", self.facts()


def float_format_explorer(value: float = 0.1, format: str = "fp16") -> FloatFormatExplorer:
    """A value in six float formats, and the bits of one of them to flip.

    format: "fp32", "tf32", "bf16", "fp16", "e5m2" or "e4m3"; ValueError for another.
    """
    return FloatFormatExplorer(float(value), format)
