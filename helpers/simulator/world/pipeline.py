"""A pipeline's schedule in time: when each stage works on which micro-batch, and what it keeps in memory for that.

    table = order("1F1B", ranks=4, microbatches=8)
    run = pipeline(table, {"F": 1e-3, "B": 2e-3}, send_s=50e-6)
    run.bubble, run.peak, run.seconds

A table has a row for each rank: its actions in order, as "2F0" (stage 2, forward, micro-batch 0) and "2B0" (its
backward). When an action begins is worked out and not read off the table.

An action begins when its rank has done what is before it in its row, and its input has arrived: a forward's from the
stage before, a backward's from the stage behind. A message takes send_s, one at a time between two ranks in each
direction; computing goes on meanwhile. Ranks are level otherwise.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

_ACTION = re.compile(r"(\d+)(F|B)(\d+)$")
Action = tuple[int, str, int]
"""(stage, kind, micro-batch)"""


@dataclass(frozen=True)
class Step:
    """An action, and when it ran, in seconds."""

    rank: int
    stage: int
    kind: str
    microbatch: int
    start_s: float
    end_s: float

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


@dataclass(frozen=True)
class Message:
    """What one rank sent to another: activations (kind "F") or their gradient ("B")."""

    source: int
    target: int
    kind: str
    microbatch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, repr=False)
class Pipeline:
    """What became of a table. steps: in order of start; peak: for each rank, the most activations (of one stage and
    micro-batch) that it held at once, from a forward's start to the end of its backward."""

    ranks: int
    stages: int
    microbatches: int
    steps: tuple[Step, ...]
    messages: tuple[Message, ...]
    peak: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return max((s.end_s for s in self.steps), default=0.0)

    @property
    def busy_s(self) -> float:
        """Seconds of work, all ranks together."""
        return sum(s.end_s - s.start_s for s in self.steps)

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they do nothing, 0…1."""
        return 1 - self.busy_s / (self.ranks * self.seconds) if self.seconds else 0.0

    def __repr__(self) -> str:
        return (
            f"pipeline: {self.ranks} ranks, {self.stages} stages, {self.microbatches} micro-batches; "
            f"bubble {self.bubble:.1%}, peak activations {list(self.peak)}"
        )


def pipeline(
    table: Sequence[Iterable[str]],
    times: Mapping[str, float | Sequence[float]] | None = None,
    send_s: float = 0.0,
) -> Pipeline:
    """Run a table.

    times: kind → seconds, one number or one for each stage; B is twice F where not given.
    send_s: seconds of one message between two ranks; stages of one rank hand over at once.
    ValueError for an action that cannot be read, appears twice, or can never begin: the message says who waits for what.
    """
    rows = [_read(row) for row in table]
    where = {action: rank for rank, row in enumerate(rows) for action in row}
    if len(where) != sum(map(len, rows)):
        twice = next(a for row in rows for a in row if sum(r.count(a) for r in rows) > 1)
        raise ValueError(f"{_name(twice)} is in the table twice")
    stages = 1 + max((stage for stage, _, _ in where), default=-1)
    lasts = _lasts(times or {"F": 1.0}, stages)
    done: dict[Action, Step] = {}
    free, link = [0.0] * len(rows), defaultdict[tuple[int, int], float](float)
    messages: dict[Action, Message] = {}
    steps, places = list[Step](), [0] * len(rows)

    def arrives(action: Action, rank: int) -> float:
        """When what an action made reaches a rank."""
        step = done[action]
        if step.rank == rank:
            return step.end_s
        if action not in messages:
            begin = max(step.end_s, link[step.rank, rank])
            messages[action] = Message(step.rank, rank, step.kind, step.microbatch, begin, begin + send_s)
            link[step.rank, rank] = begin + send_s
        return messages[action].end_s

    ready: list[tuple[float, int]] = []  # (when it can begin, rank), the first to begin on top
    waiting: dict[Action, list[int]] = defaultdict(list)  # an action → ranks whose next one needs it

    def look(rank: int) -> None:
        """Queue the rank's next action, or let it wait for the first of what it needs."""
        if places[rank] < len(rows[rank]):
            needs = _needs(rows[rank][places[rank]], stages)
            missing = next((a for a in needs if a not in done), None)
            if missing is None:
                heappush(ready, (max([free[rank], *(done[a].end_s for a in needs)]), rank))
            else:
                waiting[missing].append(rank)

    for rank in range(len(rows)):
        look(rank)
    while ready:  # the first to begin goes first, so that messages take their links in the order of time
        _, rank = heappop(ready)
        action = rows[rank][places[rank]]
        begin = max([free[rank], *(arrives(a, rank) for a in _needs(action, stages))])
        step = Step(rank, *action, begin, begin + lasts[action[1]][action[0]])
        done[action], free[rank] = step, step.end_s
        places[rank] += 1
        steps.append(step)
        for other in {rank, *waiting.pop(action, [])}:
            look(other)
    stuck = [(rank, row[places[rank]]) for rank, row in enumerate(rows) if places[rank] < len(row)]
    if stuck:
        reasons = "; ".join(_stuck(*place, stages, where, done) for place in stuck)
        raise ValueError(f"the schedule comes to a stop: {reasons}")
    return Pipeline(
        len(rows), stages, 1 + max((m for _, _, m in where), default=-1),
        tuple(sorted(steps, key=lambda s: (s.start_s, s.rank))), tuple(messages.values()),
        tuple(_peak([s for s in steps if s.rank == rank]) for rank in range(len(rows))),
    )  # fmt: skip


def _read(row: Iterable[str]) -> list[Action]:
    """A row's actions."""
    actions: list[Action] = []
    for text in row:
        match = _ACTION.match(text)
        if match is None:
            raise ValueError(
                f"{text!r} is no action: write '2F0' for stage 2's forward of micro-batch 0 (F, B)"
            )
        actions.append((int(match[1]), match[2], int(match[3])))
    return actions


def _needs(action: Action, stages: int) -> list[Action]:
    """The actions whose results it waits for."""
    stage, kind, m = action
    if kind == "F":
        return [(stage - 1, "F", m)] if stage else []
    return [(stage, "F", m), *([(stage + 1, "B", m)] if stage + 1 < stages else [])]


def _stuck(rank: int, action: Action, stages: int, where: Any, done: Any) -> str:
    waits = []
    for a in (a for a in _needs(action, stages) if a not in done):
        place = f"behind it or waits too on rank {where[a]}" if a in where else "nowhere in the table"
        waits.append(f"{_name(a)}, which is {place}")
    return f"rank {rank} waits in {_name(action)} for {' and '.join(waits)}"


def _lasts(times: Mapping[str, float | Sequence[float]], stages: int) -> dict[str, list[float]]:
    def each(kind: str) -> list[float]:
        given = times[kind]
        values = [float(given)] * stages if isinstance(given, (int, float)) else [float(t) for t in given]
        if len(values) != stages or min(values, default=0.0) < 0:
            raise ValueError(
                f"times[{kind!r}]: one number of seconds, or one for each of {stages} stages, none negative"
            )
        return values

    unknown = set(times) - set("FB")
    if unknown or "F" not in times:
        wrong = ", ".join(sorted(unknown)) or "without F"
        raise ValueError(f"times has F and, if wanted, B: not {wrong}")
    forward = each("F")
    return {"F": forward, "B": each("B") if "B" in times else [2 * t for t in forward]}


def _peak(steps: list[Step]) -> int:
    """Most activations alive on a rank: kept from a forward's start until its backward is done."""
    changes = [(s.start_s, 1) if s.kind == "F" else (s.end_s, -1) for s in steps]
    alive = most = 0
    for _, change in sorted(changes):  # what is given back is given back before the next is taken
        alive += change
        most = max(most, alive)
    return most


def _name(action: Action) -> str:
    return "{}{}{}".format(*action)


# ---------------------------------------------------------------------------------------------- tables

SCHEDULES = ("GPipe", "1F1B", "Interleaved 1F1B")


def order(schedule: str, ranks: int, microbatches: int, chunks: int = 1) -> list[list[str]]:
    """The table of a schedule: one row a rank. chunks: stages a rank has (stage s is on rank s % ranks), for the
    interleaved one; 1 otherwise.

    GPipe: Huang et al., 2019; 1F1B and its interleaving: Narayanan et al., "Efficient large-scale language model
    training on GPU clusters using Megatron-LM", 2021 (arXiv 2104.04473), section 2.2. ValueError for what does not go.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    if min(ranks, microbatches, chunks) < 1 or (chunks > 1) != (schedule == SCHEDULES[2]):
        raise ValueError(
            "at least one rank and micro-batch; several stages a rank where it is interleaved, and only there"
        )
    if schedule == "GPipe":
        return [[f"{r}{kind}{m}" for kind in "FB" for m in range(microbatches)] for r in range(ranks)]
    rounds = max(1, microbatches // ranks)
    if chunks > 1 and microbatches % rounds:
        raise ValueError(
            f"{microbatches} micro-batches on {ranks} ranks: interleaving takes them in {rounds} equal rounds"
        )
    group = microbatches // rounds if chunks > 1 else 1
    return [_alternate(rank, ranks, microbatches, chunks, group) for rank in range(ranks)]


def _alternate(rank: int, ranks: int, microbatches: int, chunks: int, group: int) -> list[str]:
    total = microbatches * chunks
    hop = 1 if chunks == 1 else 2  # forwards ahead for each rank that comes behind
    ahead = min(total, (chunks - 1) * group + hop * (ranks - 1 - rank) + (chunks == 1))
    count: dict[str, int] = defaultdict(int)

    def nth(kind: str, i: int) -> str:
        """The i-th forward or backward of the rank: groups of micro-batches through one stage after another."""
        chunk = i // group % chunks
        stage = rank + ranks * (chunk if kind == "F" else chunks - 1 - chunk)
        name = f"{stage}{kind}"
        count[name] += 1
        return f"{name}{count[name] - 1}"

    row = [nth("F", i) for i in range(ahead)]
    for i in range(total):  # then always one backward, one forward; several stages: one forward, one backward
        pair = [("B", i)] if ahead + i >= total else [("B", i), ("F", ahead + i)]
        row += [nth(*one) for one in (pair if chunks == 1 else reversed(pair))]
    return row
