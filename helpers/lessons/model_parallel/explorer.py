"""The pipeline explorer: schedule, ranks, micro-batches and message time, and the bubble that they make."""

from __future__ import annotations

from typing import Any

from helpers.lessons.model_parallel.schedule_picture import schedule
from helpers.plots.picture import Picture, message
from helpers.simulator.world.pipeline import SCHEDULES, Pipeline, order, pipeline
from helpers.widgets.movable import Explorer

EVIDENCE = "arithmetic"
MOST = {"ranks": 16, "microbatches": 32, "chunks": 4}


class PipelineExplorer(Explorer):
    """Controls for a pipeline's schedule; a widget if live, else a picture.

    `settings`: schedule, ranks, microbatches, chunks (stages a rank; only interleaving has more than one), send
    (a message's time, as a share of one forward of a whole rank); `set` changes them; `run` what they make (None
    where they do not go together); `static()` the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "pipeline explorer"

    run: Pipeline | None = None
    _trouble = ""

    def _compute(self) -> None:
        s = self.settings
        chunks = s["chunks"] if s["schedule"] == SCHEDULES[2] else 1
        try:
            table = order(s["schedule"], s["ranks"], s["microbatches"], chunks)
            self.run, self._trouble = pipeline(table, {"F": 1.0 / chunks}, send_s=s["send"]), ""
        except ValueError as error:
            self.run, self._trouble = None, str(error)

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        if self.run is None:
            return self._trouble
        run, s = self.run, self.settings
        ideal = run.busy_s / run.ranks
        return (
            f"{s['schedule']}: {run.ranks} ranks, {run.microbatches} micro-batches · bubble {run.bubble:.1%} · "
            f"{run.seconds:.4g} forwards long, {ideal:.4g} without a bubble · most micro-batches held: "
            f"{max(run.peak) * run.ranks / run.stages:.3g}"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        title = self.settings["schedule"]
        if self.run is None:
            return message(self._trouble, evidence=EVIDENCE, title=title)
        return schedule(self.run, evidence=EVIDENCE, title=title, unit="forwards of a rank")

    def _build(self, ipywidgets: Any) -> None:
        s, menu, slider = self.settings, ipywidgets.Dropdown, ipywidgets.IntSlider
        self._control(menu, "schedule", "schedule", s["schedule"], options=SCHEDULES)
        still = {"continuous_update": False}
        for (name, most), label in zip(
            MOST.items(), ("ranks", "micro-batches", "stages a rank"), strict=True
        ):
            self._control(slider, name, label, s[name], min=1, max=most, **still)
        send = {"min": 0.0, "max": 1.0, "step": 0.05, **still}
        self._control(ipywidgets.FloatSlider, "send", "message, in forwards", s["send"], **send)
        self._stack([list(self.controls.values())])

    def _draw(self) -> None:
        super()._draw()
        if self._widget is not None:
            self.controls["chunks"].disabled = self.settings["schedule"] != SCHEDULES[2]

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.facts


def pipeline_explorer(
    schedule: str = "1F1B", ranks: int = 4, microbatches: int = 8, chunks: int = 2, send: float = 0.0
) -> PipelineExplorer:
    """A movable pipeline: which schedule, how many ranks and micro-batches, and how long messages take.

    Times are in forwards of a rank's whole part of the model; a backward takes two. chunks: stages a rank has when
    interleaved. send: a message's time. ValueError for settings out of range.
    """
    given = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    for name, value in given.items():
        if not 1 <= value <= MOST[name]:
            raise ValueError(f"{name}={value}: the explorer shows 1 to {MOST[name]}")
    if schedule not in SCHEDULES or not 0 <= send <= 1:
        raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}; send, a share of a forward, 0 to 1")
    return PipelineExplorer(schedule=schedule, send=send, **given)
