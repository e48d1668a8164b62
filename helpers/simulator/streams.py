"""Streams and events of the simulated GPU. Names and meaning are torch.cuda's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.timeline import Lane, Timeline

__all__ = ["Event", "Mark", "Stream", "mark", "wait"]


@dataclass(frozen=True)
class Mark:
    """A place in a stream. time_ns: when it is passed; knows: what is done by then (a vector clock); inside
    a graph capture: which one, and the nodes that come before."""

    time_ns: int
    knows: list[int]
    capture: Any = None
    after: tuple[int, ...] = ()
    peers: Any = None  # when the other ranks pass it, where they differ


def mark(line: Timeline, lane: Lane) -> Mark:
    """The end of a stream as it is now."""
    # On an idle stream the mark is passed as soon as it arrives: the gap until the next launch counts too.
    time_ns, knows = max(lane.ready_ns, line.arrival_ns), line.races.mark(lane.number)
    if lane.capture is None:
        peers = line.peers.mark(lane.number, line.arrival_ns) if line.peers is not None else None
        return Mark(time_ns, knows, peers=peers)
    return Mark(time_ns, knows, lane.capture, lane.capture.frontier(lane))


def wait(line: Timeline, lane: Lane, place: Mark) -> None:
    """What is put into the stream from now on waits for the mark."""
    if place.capture is not None or lane.capture is not None:
        joined = (place.capture or lane.capture).joins(lane, place)
    else:
        lane.ready_ns, joined = max(lane.ready_ns, place.time_ns), True
        if line.peers is not None and place.peers is not None:
            line.peers.wait(lane.number, place.peers)
    if joined:
        line.races.waits(lane.number, place.knows)


class Stream:
    """A queue of device work, in order; other streams' work may overlap. Names as torch.cuda.Stream."""

    def __init__(self, gpu: SimGPU, lane: Lane) -> None:
        self._gpu, self._lane = gpu, lane

    @property
    def stream_id(self) -> int:
        """0 for the default stream, then 1, 2, … in the order in which streams were made."""
        return self._lane.number

    @property
    def priority(self) -> int:
        """-1 (high) or 0 (low), as in PyTorch. Simulated in a world of several ranks only."""
        return self._lane.priority

    def synchronize(self) -> None:
        """The host waits until everything in this stream is done."""
        self._gpu._need("stream.synchronize()")
        self._gpu._waits("stream.synchronize")
        self._gpu._timeline.drain("stream.synchronize", self._lane)

    def query(self) -> bool:
        """Whether everything in this stream is done. Costs the host a moment."""
        line = self._gpu._need("stream.query()")
        line.spend("stream.query", "work", self._gpu.card.assumptions.event_s)
        if line.capture is not None and line.capture.refuses_wait("stream.query", self._lane):
            return False
        if self._lane.ready_ns > line.host_ns:
            return False
        line.races.drained(self._lane.number)
        return True

    def wait_event(self, event: Event) -> None:
        """What is put into this stream from now on waits for the event; the host does not."""
        line = self._gpu._need("stream.wait_event()")
        line.spend("stream.wait_event", "work", self._gpu.card.assumptions.event_s)
        if event._mark is not None:  # as in CUDA, waiting for what was never recorded does nothing
            wait(line, self._lane, event._mark)

    def wait_stream(self, stream: Stream) -> None:
        """What is put into this stream from now on waits for all that is in the other one now."""
        if stream._lane is self._lane:
            self._gpu._timeline.races.self_waits.add(self._lane.number)
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one if None is given) at this stream's end."""
        event = event or self._gpu.Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._lane is other._lane

    def __hash__(self) -> int:
        return hash(id(self._lane))

    def __repr__(self) -> str:
        return f"<simulated {self._gpu.name} stream {self.stream_id}>"


class Event:
    """A mark in a stream, reached when all before it is done. Names as torch.cuda.Event."""

    def __init__(self, gpu: SimGPU, enable_timing: bool) -> None:
        self._gpu, self._timing = gpu, enable_timing
        self._mark: Mark | None = None

    @property
    def _time_ns(self) -> int | None:
        return None if self._mark is None or self._mark.capture is not None else self._mark.time_ns

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of a stream (None: the current one)."""
        line = self._gpu._need("event.record()")
        line.spend("event.record", "work", self._gpu.card.assumptions.event_s)
        self._mark = mark(line, (stream or self._gpu.current_stream())._lane)

    def wait(self, stream: Stream | None = None) -> None:
        """What is put into the stream from now on waits for this mark."""
        (stream or self._gpu.current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the mark has been reached. Costs the host a moment."""
        line = self._gpu._need("event.query()")
        line.spend("event.query", "work", self._gpu.card.assumptions.event_s)
        if self._mark is None:
            return True
        if self._captured("event.query") or self._mark.time_ns > line.host_ns:
            return False
        line.races.host_knows(self._mark.knows)
        return True

    def synchronize(self) -> None:
        """The host waits for the mark."""
        line = self._gpu._need("event.synchronize()")
        if self._mark is not None and self._captured("event.synchronize"):
            return
        line.wait_until("event.synchronize", self._time_ns or 0)
        if self._mark is not None:
            line.races.host_knows(self._mark.knows)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to the other. RuntimeError if not timed, recorded and reached."""
        if not (self._timing and end_event._timing):
            raise RuntimeError("both events must be made with enable_timing=True")
        if self._time_ns is None or end_event._time_ns is None:
            raise RuntimeError("both events must be recorded before their distance can be read")
        if max(self._time_ns, end_event._time_ns) > self._gpu._timeline.host_ns:
            raise RuntimeError(
                "device not ready: the GPU has not reached the event; call end.synchronize() first"
            )
        return (end_event._time_ns - self._time_ns) / 1e6

    def _captured(self, what: str) -> bool:
        """Whether the mark lies in a graph, where the host cannot ask for it: a fault."""
        if self._mark is None or self._mark.capture is None:
            return False
        self._mark.capture.refuse(
            what, "operation not permitted on an event last recorded in a capturing stream"
        )
        return True
