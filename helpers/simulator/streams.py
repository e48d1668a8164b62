"""Streams and events of the simulated GPU. Names and meaning are torch.cuda's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from helpers.simulator.machine import Machine
from helpers.simulator.timeline import Lane, Mark


class Stream:
    """A queue of device work, in order; other streams' work may overlap. Names as torch.cuda.Stream."""

    __slots__ = ("_lane", "_machine")  # no __dict__, by which an answer would come to the machine

    def __init__(self, machine: Machine, lane: Lane) -> None:
        self._machine, self._lane = machine, lane

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
        self._machine.need("stream.synchronize()")
        self._machine.waits("stream.synchronize")
        self._machine.line.drain("stream.synchronize", self._lane)

    def query(self) -> bool:
        """Whether everything in this stream is done. Costs the host a moment."""
        line = self._machine.need("stream.query()")
        line.spend("stream.query", "work", self._machine.card.assumptions.event_s)
        if line.capture is not None and line.capture.refuses_wait("stream.query", self._lane):
            return False
        if self._lane.ready_ns > line.host_ns:
            return False
        line.races.drained(self._lane.number)
        return True

    def wait_event(self, event: Event) -> None:
        """What is put into this stream from now on waits for the event; the host does not."""
        line = self._machine.need("stream.wait_event()")
        line.spend("stream.wait_event", "work", self._machine.card.assumptions.event_s)
        if event._mark is not None:  # as in CUDA, waiting for what was never recorded does nothing
            line.wait(self._lane, event._mark)

    def wait_stream(self, stream: Stream) -> None:
        """What is put into this stream from now on waits for all that is in the other one now."""
        if stream._lane is self._lane:
            self._machine.line.races.self_waits.add(self._lane.number)
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one if None is given) at this stream's end."""
        event = event or Event(self._machine)
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._lane is other._lane

    def __hash__(self) -> int:
        return hash(id(self._lane))

    def __repr__(self) -> str:
        return f"<simulated {self._machine.card.name} stream {self.stream_id}>"


class Event:
    """A mark in a stream, reached when all before it is done. Names as torch.cuda.Event."""

    __slots__ = ("_machine", "_mark", "_timing")

    def __init__(self, machine: Machine, enable_timing: bool = False) -> None:
        self._machine, self._timing = machine, enable_timing
        self._mark: Mark | None = None

    @property
    def _time_ns(self) -> int | None:
        return None if self._mark is None or self._mark.capture is not None else self._mark.time_ns

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of a stream (None: the current one)."""
        line = self._machine.need("event.record()")
        line.spend("event.record", "work", self._machine.card.assumptions.event_s)
        self._mark = line.mark(stream._lane if stream is not None else self._machine.current)

    def wait(self, stream: Stream | None = None) -> None:
        """What is put into the stream from now on waits for this mark."""
        (stream or Stream(self._machine, self._machine.current)).wait_event(self)

    def query(self) -> bool:
        """Whether the mark has been reached. Costs the host a moment."""
        line = self._machine.need("event.query()")
        line.spend("event.query", "work", self._machine.card.assumptions.event_s)
        if self._mark is None:
            return True
        if self._captured("event.query") or self._mark.time_ns > line.host_ns:
            return False
        line.races.host_knows(self._mark.knows)
        return True

    def synchronize(self) -> None:
        """The host waits for the mark."""
        line = self._machine.need("event.synchronize()")
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
        if max(self._time_ns, end_event._time_ns) > self._machine.line.host_ns:
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


def new_stream(machine: Machine, device: Any = None, priority: int = 0) -> Stream:
    """torch.cuda.Stream(...). priority: -1 is high, 0 low; simulated in a world of several ranks only."""
    lane = machine.line.new_lane()
    lane.priority = min(0, max(-1, priority))
    return Stream(machine, lane)


@contextmanager
def current(machine: Machine, stream: Stream | None) -> Iterator[None]:
    """torch.cuda.stream(...): inside, operators are launched into that stream. None changes nothing."""
    if stream is not None and stream._machine is not machine:
        raise ValueError("that stream belongs to another simulated GPU")
    with machine.on(machine.current if stream is None else stream._lane):
        yield
