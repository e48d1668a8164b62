"""The allocator stepper: a program of mallocs and frees, one call at a time, and what the allocator did."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from helpers.memory.calls import CAPACITY, Steps, steps_of
from helpers.plots.allocator import allocator_step
from helpers.plots.picture import Picture

from .movable import Movable


class AllocatorStepper(Movable):
    """Buttons and a slider over the steps of an allocator; a widget if live, else a picture.

    steps: what is stepped through; step: where we are, 0 … len(steps); `set(step)` goes there; `static()` is the
    picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "allocator stepper"

    def __init__(self, steps: Steps, step: int) -> None:
        super().__init__()
        self.steps, self.step = steps, min(max(step, 0), len(steps))
        self.slider: Any = None

    def static(self) -> Picture:
        """The picture of the present step: what to show next to the widget, or in its place."""
        return allocator_step(self.steps, self.step)

    def set(self, step: int) -> None:
        """Go to a step; past either end, to that end."""
        self.step = min(max(int(step), 0), len(self.steps))
        if self._widget is not None:
            if self.slider.value != self.step:
                self.slider.value = self.step  # its observer draws
            else:
                self._draw()

    def _go(self, by: int) -> None:
        self.set(self.step + by)

    def _build(self, ipywidgets: Any) -> None:
        moves = {"|◀ start": -1_000_000, "◀ back": -1, "step ▶": 1, "end ▶|": 1_000_000}
        buttons = [self._button(name, partial(self._go, by), width="7em") for name, by in moves.items()]
        wide, most = ipywidgets.Layout(width="22em"), len(self.steps)
        self.slider = ipywidgets.IntSlider(value=self.step, min=0, max=most, description="step", layout=wide)
        self.slider.observe(self._moved, names="value")
        self._stack([[*buttons, self.slider]])

    def _moved(self, change: Any) -> None:
        self.step = change["new"]
        self._draw()

    def facts(self) -> str:
        """One line: which step, the program's line, and what the allocator did."""
        line = self.steps.lines[self.step - 1] if self.step else ""
        place = f"step {self.step} of {len(self.steps)}" + (f", {line}" if line else "")
        return f"{place}: {self.steps.move(self.step).text}"

    def _told(self) -> tuple[str, str]:
        return self.steps.evidence, self.facts()


def allocator_stepper(
    program: str | Iterable[str], conf: str = "", *, capacity: int = CAPACITY, step: int | None = None
) -> AllocatorStepper:
    """Step through mallocs and frees: what is split, merged, kept, and given back.

    program: "a = 2 MiB", "free a", "empty_cache" …, see `memory.steps_of`. conf: PYTORCH_ALLOC_CONF; capacity: its
    card's bytes. step: where to begin (None: at the end). ValueError for a program that cannot be read.
    """
    steps = steps_of(program, conf, capacity)
    return AllocatorStepper(steps, len(steps) if step is None else step)
