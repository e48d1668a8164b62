"""The pipeline explorer: schedule, ranks, micro-batches and message time, and the bubble that they make."""

from __future__ import annotations

from html import escape
from typing import Any

from helpers.plots.picture import Picture, message
from helpers.plots.style import WIDTH
from helpers.simulator.pipeline import SCHEDULES, Pipeline, order, pipeline

from .movable import Movable

__all__ = ["PipelineExplorer", "pipeline_explorer"]

EVIDENCE = "arithmetic"
MOST_RANKS, MOST_MICROBATCHES, MOST_CHUNKS = 16, 32, 4


class PipelineExplorer(Movable):
    """Controls for a pipeline's schedule; a widget if live, else a picture.

    `settings`: schedule, ranks, microbatches, chunks (stages a rank; only interleaving has more than one), send
    (a message's time, as a share of one forward of a whole rank); `set` changes them; `run` what they make (None
    where they do not go together); `static()` the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "pipeline explorer"

    def __init__(self, schedule: str, ranks: int, microbatches: int, chunks: int, send: float) -> None:
        self.settings: dict[str, Any] = {}
        self.run: Pipeline | None = None
        self.controls: dict[str, Any] = {}
        self.image: Any = None
        self._trouble = ""
        self._text: Any = None
        self._busy = False
        self.set(schedule=schedule, ranks=ranks, microbatches=microbatches, chunks=chunks, send=send)

    def set(self, **settings: Any) -> None:
        """Show these settings: controls, picture and text follow. What does not go together says so."""
        self.settings |= settings
        s = self.settings
        chunks = s["chunks"] if s["schedule"] == SCHEDULES[2] else 1
        try:
            table = order(s["schedule"], s["ranks"], s["microbatches"], chunks)
            self.run, self._trouble = pipeline(table, {"F": 1.0 / chunks}, send_s=s["send"]), ""
        except ValueError as error:
            self.run, self._trouble = None, str(error)
        if self._widget is not None:
            self._busy = True
            try:
                for name, control in self.controls.items():
                    control.value = s[name]
            finally:
                self._busy = False
            self._draw()

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        if self.run is None:
            return self._trouble
        run, s = self.run, self.settings
        ideal = run.busy_s / run.ranks
        return (
            f"{s['schedule']}: {run.ranks} ranks, {run.microbatches} micro-batches · bubble {run.bubble:.1%} · "
            f"{run.seconds:.4g} forwards long, {ideal:.4g} without a bubble · most activations held: {max(run.peak)} of one "
            f"stage's, {max(run.peak) * run.ranks / run.stages:.3g} of a whole rank's"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        from helpers.plots import schedule

        title = self.settings["schedule"]
        if self.run is None:
            return message(self._trouble, evidence=EVIDENCE, title=title)
        return schedule(self.run, evidence=EVIDENCE, title=title, unit="forwards of a rank")

    def _build(self, ipywidgets: Any) -> None:
        wide = {"description_width": "11em"}
        box = ipywidgets.Layout(width="28em")
        s = self.settings
        make = {
            "schedule": ipywidgets.Dropdown(
                options=SCHEDULES, value=s["schedule"], description="schedule", style=wide, layout=box
            ),
        }
        for name, label, low, high in (
            ("ranks", "ranks", 1, MOST_RANKS), ("microbatches", "micro-batches", 1, MOST_MICROBATCHES),
            ("chunks", "stages a rank", 1, MOST_CHUNKS),
        ):  # fmt: skip
            make[name] = ipywidgets.IntSlider(
                value=s[name],
                min=low,
                max=high,
                description=label,
                style=wide,
                layout=box,
                continuous_update=False,
            )
        make["send"] = ipywidgets.FloatSlider(
            value=s["send"], min=0.0, max=1.0, step=0.05, description="message, in forwards", style=wide, layout=box,
            continuous_update=False,
        )  # fmt: skip
        self.controls = make
        for control in make.values():
            control.observe(self._moved, names="value")
        fit = ipywidgets.Layout(width="100%", max_width=f"{round(WIDTH * 96)}px")
        self.image = ipywidgets.Image(format="png", layout=fit)
        self._text = ipywidgets.HTML()
        row = ipywidgets.HBox(list(make.values()), layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._widget = ipywidgets.VBox([row, self.image, self._text])
        self._draw()

    def _moved(self, change: Any) -> None:
        if not self._busy:
            self.set(**{name: control.value for name, control in self.controls.items()})

    def _draw(self) -> None:
        self.controls["chunks"].disabled = self.settings["schedule"] != SCHEDULES[2]
        self.image.value = self.static().png()
        self._text.value = f"<code>{escape(self.facts)}</code>"

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.facts


def pipeline_explorer(
    schedule: str = "1F1B", ranks: int = 4, microbatches: int = 8, chunks: int = 2, send: float = 0.0
) -> PipelineExplorer:
    """A movable pipeline: which schedule, how many ranks and micro-batches, and how long messages take.

    Times are in forwards of a rank's whole part of the model; a backward takes two. chunks: stages a rank has when
    interleaved. send: a message's time. ValueError for settings out of range.
    """
    limits = (
        ("ranks", ranks, MOST_RANKS),
        ("microbatches", microbatches, MOST_MICROBATCHES),
        ("chunks", chunks, MOST_CHUNKS),
    )
    for name, value, most in limits:
        if not 1 <= value <= most:
            raise ValueError(f"{name}={value}: the explorer shows 1 to {most}")
    if schedule not in SCHEDULES or not 0 <= send <= 1:
        raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}; send, a share of a forward, 0 to 1")
    return PipelineExplorer(schedule, ranks, microbatches, chunks, send)
