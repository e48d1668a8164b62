"""Many requests in few slots: when each of them runs, if a batch is filled once, or whenever a slot is free."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.plots import style
from helpers.plots.gantt import Gantt, Lane, Row
from helpers.plots.picture import Picture, drawn
from helpers.widgets.movable import Explorer

EVIDENCE = "arithmetic"
POLICIES = ("static", "continuous")
_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.SKY, style.PURPLE, style.VERMILLION)
_IDLE = "#e4e7eb"


@dataclass(frozen=True)
class Stay:
    """A request's stay in a slot, in steps: it makes a token in each of them, from `start` up to `end`."""

    request: int
    slot: int
    start: int
    end: int


@dataclass(frozen=True)
class Run:
    """Who was where. Nobody came later than step 0, so a request's start is also how long it waited."""

    stays: tuple[Stay, ...]
    slots: int

    @property
    def steps(self) -> int:
        return max(stay.end for stay in self.stays)

    @property
    def tokens(self) -> int:
        return sum(stay.end - stay.start for stay in self.stays)

    @property
    def used(self) -> float:
        """The share of all slots' steps in which a token was made."""
        return self.tokens / (self.steps * self.slots)

    @property
    def mean_end(self) -> float:
        """The step at which a request has its last token, on average."""
        return sum(stay.end for stay in self.stays) / len(self.stays)


def lengths(n: int, seed: int = 0, mean: int = 24) -> list[int]:
    """How many tokens each of n requests makes: many short ones, few long ones."""
    draw = random.Random(seed)
    return [max(1, min(6 * mean, round(draw.expovariate(1 / mean)))) for _ in range(n)]


def batched(tokens: Sequence[int], slots: int, policy: str) -> Run:
    """All requests wait at step 0 and go in one after the other. policy: one of POLICIES. ValueError for another."""
    if policy not in POLICIES:
        raise ValueError(f"policy is one of {POLICIES}, not {policy!r}")
    free, stays = [0] * slots, []
    for i, n in enumerate(tokens):
        if policy == "static" and i % slots == 0:
            free = [max(free)] * slots
        slot = i % slots if policy == "static" else min(range(slots), key=lambda s: free[s])
        stays.append(Stay(i, slot, free[slot], free[slot] + n))
        free[slot] += n
    return Run(tuple(stays), slots)


def reserved(tokens: Sequence[int], block: int, most: int) -> int:
    """Places of a cache that sequences hold, added up over all their steps: in each they have one token more, up to `most`.

    block: places that are handed out together. With 1 these are the places used; with `most`, room for all from the beginning.
    """
    return sum(-(-n // block) * block for length in tokens for n in range(1, min(length, most) + 1))


@drawn
def timeline(run: Run, *, title: str, end: int | None = None) -> Picture:
    """A lane a slot, a bar a request. end: how far the axis goes, so that two pictures compare."""
    lanes = []
    for slot in range(run.slots):
        stays = [stay for stay in run.stays if stay.slot == slot]
        start, until = (np.array([float(getattr(stay, at)) for stay in stays]) for at in ("start", "end"))
        colours = [_COLOURS[stay.request % len(_COLOURS)] for stay in stays]
        row = Row(start, until, colours, texts=_numbers(stays), bold=False)
        lanes.append(Lane(f"slot {slot}", [row], ground=_IDLE))
    gantt = Gantt(lanes, 0.0, float(end or run.steps), bar=0.22, space=0.06, unit="steps")
    note = f"{run.steps} steps for {run.tokens} tokens · {run.used:.0%} of the slots' steps make one"
    key: list[Any] = [((_COLOURS[0], _COLOURS[1]), "a request, with its number"), ((_IDLE,), "an empty slot")]
    marks = {"the last one ends": float(run.steps)} if end and end > run.steps else None
    gantt.draw(EVIDENCE, title, note, key=gantt.key(key), marks=marks, grid=False)
    return gantt.picture(EVIDENCE, f"{title}: {run.slots} slots; {note}")


def _numbers(stays: Sequence[Stay]) -> Callable[[int], Sequence[str]]:
    """What stands in a bar: its request's number."""
    return lambda i: (str(stays[i].request),)


class BatchingExplorer(Explorer):
    """Controls for a batch of requests; a widget if live, else a picture.

    `settings`: policy, slots, requests, seed; `set` changes them; `run` what they make; `static()` the picture; `widget`
    the ipywidgets box (None without ipywidgets).
    """

    kind = "batching timeline"
    run: Run
    end: int
    """Steps of the longer policy: both pictures have one axis."""

    def _compute(self) -> None:
        s = self.settings
        runs = {policy: batched(lengths(s["requests"], s["seed"]), s["slots"], policy) for policy in POLICIES}
        self.run, self.end = runs[s["policy"]], max(run.steps for run in runs.values())

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        run = self.run
        return (
            f"{self.settings['policy']}: {len(run.stays)} requests, {run.slots} slots · {run.steps} steps · {run.used:.0%} of "
            f"the slots' steps make a token · a request has all its tokens after {run.mean_end:.0f} steps on average"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        return timeline(self.run, title=f"{self.settings['policy'].capitalize()} batching", end=self.end)

    def _build(self, ipywidgets: Any) -> None:
        s, slider, still = self.settings, ipywidgets.IntSlider, {"continuous_update": False}
        self._control(ipywidgets.Dropdown, "policy", "batching", s["policy"], options=POLICIES)
        self._control(slider, "slots", "slots", s["slots"], min=1, max=12, **still)
        self._control(slider, "requests", "requests", s["requests"], min=1, max=48, **still)
        self._control(slider, "seed", "other lengths", s["seed"], min=0, max=20, **still)
        self._stack([list(self.controls.values())])

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.facts


def batching_explorer(
    policy: str = "continuous", slots: int = 4, requests: int = 16, seed: int = 0
) -> BatchingExplorer:
    """A movable batch: which policy, how many slots and requests. ValueError for settings out of range."""
    if policy not in POLICIES or not (1 <= slots <= 12 and 1 <= requests <= 48 and 0 <= seed <= 20):
        raise ValueError(f"policy: one of {POLICIES}; slots: 1 to 12; requests: 1 to 48; seed: 0 to 20")
    return BatchingExplorer(policy=policy, slots=slots, requests=requests, seed=seed)
