"""What if a line had cost less? The same records once more, on the same clocks, with some of them shorter or gone.

The host goes from record to record; what it launches starts when the launch has arrived, its stream is free, and what it
waited for is done; the host waits where it waited. So a gain that another limit hides is no gain: on a GPU that is always
busy, the host's time is worth nothing, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from helpers.own_script.places import Place
from helpers.simulator import SimGPU
from helpers.simulator.cost.roofline import Work


class Cost(NamedTuple):
    """What a record belongs to: a line, and what kind of thing it did there (see `costs`). backward: in its backward pass.
    wide: on float64. within: the line that it was for, which called the model or asked the loader."""

    place: Place
    kind: str
    backward: bool = False
    wide: bool = False
    within: Place | None = None


class Event(NamedTuple):
    """One record. ns: its time, of the host's where it has neither `wait` nor `lane`. lane: of the device, the stream that it
    runs in, and engine, what it has to itself there ("": nothing)."""

    cost: Cost
    ns: int
    name: str
    wait: int | None = None  # the lane that the host waits for, -1 for all
    lane: int | None = None
    engine: str = ""
    behind: int | None = None  # the event of another lane that it waited for
    work: Work | None = None


@dataclass(frozen=True)
class Tape:
    """The records of `steps` steps and of one before them, `warm` of them, which fills the queues. latency_ns: from a launch to its arrival; sync_ns: for the host to notice an end."""

    events: Sequence[Event]
    warm: int
    steps: int
    latency_ns: int
    sync_ns: int

    def step_ns(self, scale: Mapping[int, float] | None = None) -> float:
        """A step's time. scale: number of an event → what its time is multiplied by; a wait with 0 is left out."""
        host, begun, scale = 0.0, 0.0, scale or {}
        lanes: dict[int, float] = {}
        engines: dict[str, float] = {}
        ends: dict[int, float] = {}
        watched = self._watched
        get = scale.get
        for number, (_, ns, _, wait, lane, engine, behind, _) in enumerate(self.events):
            if number == self.warm:
                begun = max([host, *lanes.values()])
            factor = get(number, 1.0)
            if wait is not None:
                if factor:
                    until = max(lanes.values(), default=0.0) if wait < 0 else lanes.get(wait, 0.0)
                    host = max(host, until) + self.sync_ns
            elif lane is None:
                host += ns * factor
            elif factor or not ns:
                start = max(host + self.latency_ns, lanes.get(lane, 0.0))
                if engine:
                    start = max(start, engines.get(engine, 0.0))
                if behind is not None:
                    start = max(start, ends.get(behind, 0.0))
                end = start + ns * factor
                lanes[lane] = end
                if engine:
                    engines[engine] = end
                if number in watched:
                    ends[number] = end
        return (max([host, *lanes.values()]) - begun) / self.steps

    @property
    def all_steps(self) -> int:
        """How many steps the events are of."""
        return self.steps + 1

    @cached_property
    def mixed(self) -> bool:
        """Whether some products are of half precision: that others are not is then a line's matter."""
        kinds = (event.work.kind for event in self.events if event.work is not None)
        return any(kind in ("bf16", "fp16") for kind in kinds)

    @cached_property
    def _watched(self) -> set[int]:
        return {event.behind for event in self.events if event.behind is not None}


def tape(
    gpu: SimGPU, costs: Sequence[Cost], kernel_costs: Sequence[Cost], works: Mapping[int, Work],
    span: tuple[int, int, int, int], warm: int, steps: int,
) -> Tape:  # fmt: skip
    """The records from host[span[0]] to host[span[1]] and from kernels[span[2]] to kernels[span[3]] as a tape.

    costs, kernel_costs: whose each of these is, from the span's first on. works: by a kernel's number. warm: the
    host's record that the first of the `steps` begins with.
    """
    line, a = gpu._machine.line, gpu.card.assumptions
    first, last, first_kernel, last_kernel = span
    launched: dict[int, list[int]] = {}
    for k in range(first_kernel, last_kernel):
        launched.setdefault(line.kernels[k].call, []).append(k)
    events: list[Event] = []
    by_end: dict[int, int] = {}  # when something ended → its event
    lane_ends: dict[int, int] = {}
    before = 0
    for i in range(first, last):
        if i == warm:
            before = len(events)
        record, cost = line.host[i], costs[i - first]
        if record.kind == "sync":
            until = record.end_ns - round(a.sync_s * 1e9)
            lane = next((number for number, end in lane_ends.items() if end == until), 0)
            everything = record.name in ("synchronize", "cudaFree")
            events.append(
                Event(cost, record.end_ns - record.start_ns, record.name, wait=-1 if everything else lane)
            )
        elif record.kind != "queue full":
            events.append(Event(cost, record.end_ns - record.start_ns, record.name))
        for k in launched.get(i, ()):
            kernel, took = line.kernels[k], line.kernels[k].end_ns - line.kernels[k].start_ns
            small = kernel.kind == "kernel" and took <= a.kernel_floor_s * 1e9
            arrival = max(kernel.launch_ns + round(a.launch_latency_s * 1e9), lane_ends.get(kernel.stream, 0))
            behind = by_end.get(kernel.start_ns) if kernel.start_ns > arrival else None
            engine = "" if small else kernel.kind
            events.append(Event(kernel_costs[k - first_kernel], took, kernel.name, None, kernel.stream, engine, behind, works.get(k)))  # fmt: skip
            by_end[kernel.end_ns] = len(events) - 1
            lane_ends[kernel.stream] = kernel.end_ns
    return Tape(events, before, steps, round(a.launch_latency_s * 1e9), round(a.sync_s * 1e9))
