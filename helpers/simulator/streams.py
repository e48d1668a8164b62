"""Streams and events of the simulated GPU. Names and meaning are torch.cuda's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.timeline import Lane

__all__ = ["Event", "Stream"]


class Stream:
    """A queue of device work, in order; other streams' work may overlap. Names as torch.cuda.Stream."""

    def __init__(self, gpu: SimGPU, lane: Lane) -> None:
        self._gpu, self._lane = gpu, lane

    @property
    def stream_id(self) -> int:
        return self._lane.number

    def synchronize(self) -> None:
        """The host waits until everything in this stream is done."""
        self._gpu._need("stream.synchronize()")
        self._gpu._timeline.drain("stream.synchronize", self._lane)

    def query(self) -> bool:
        """Whether everything in this stream is done. Costs the host a moment."""
        line = self._gpu._need("stream.query()")
        line.spend("stream.query", "work", self._gpu.card.assumptions.event_s)
        return self._lane.ready_ns <= line.host_ns

    def wait_event(self, event: Event) -> None:
        """What is put into this stream from now on waits for the event; the host does not."""
        line = self._gpu._need("stream.wait_event()")
        line.spend("stream.wait_event", "work", self._gpu.card.assumptions.event_s)
        if (
            event._time_ns is not None
        ):  # as in CUDA, waiting for an event that was never recorded does nothing
            self._lane.ready_ns = max(self._lane.ready_ns, event._time_ns)

    def wait_stream(self, stream: Stream) -> None:
        """What is put into this stream from now on waits for all that is in the other one now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one if None is given) at this stream's end."""
        event = event or self._gpu.Event()
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<simulated {self._gpu.name} stream {self.stream_id}>"


class Event:
    """A mark in a stream, reached when all before it is done. Names as torch.cuda.Event."""

    def __init__(self, gpu: SimGPU, enable_timing: bool) -> None:
        self._gpu, self._timing = gpu, enable_timing
        self._time_ns: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of a stream (None: the current one)."""
        line = self._gpu._need("event.record()")
        line.spend("event.record", "work", self._gpu.card.assumptions.event_s)
        lane = (stream or self._gpu.current_stream())._lane
        # On an idle stream the mark is passed as soon as it arrives: the gap until the next launch counts
        # as well.
        self._time_ns = max(lane.ready_ns, line.arrival_ns)

    def wait(self, stream: Stream | None = None) -> None:
        """What is put into the stream from now on waits for this mark."""
        (stream or self._gpu.current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the mark has been reached. Costs the host a moment."""
        line = self._gpu._need("event.query()")
        line.spend("event.query", "work", self._gpu.card.assumptions.event_s)
        return self._time_ns is None or self._time_ns <= line.host_ns

    def synchronize(self) -> None:
        """The host waits for the mark."""
        line = self._gpu._need("event.synchronize()")
        line.wait_until("event.synchronize", self._time_ns or 0)

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
