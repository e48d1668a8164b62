"""A CUDA graph being captured: its nodes, the streams that take part, and what CUDA refuses meanwhile.

Sources: CUDA Programming Guide, "Creating a Graph Using Stream Capture" (cross-stream dependencies, prohibited
and unhandled operations, invalidation); the texts are cudaGetErrorString's. PyTorch, CUDA semantics, "CUDA
Graphs", Constraints. Where CUDA refuses, PyTorch raises at once and the graph is lost; here it becomes a fault,
and the rest of the capture goes on, so that one run names everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helpers.simulator.timeline import Lane, Node

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.streams import Mark

__all__ = ["Capture"]

_SYNC = "operation not permitted when stream is capturing"  # cudaErrorStreamCaptureUnsupported
_UNJOINED = "capturing stream has unjoined work"  # cudaErrorStreamCaptureUnjoined
_ISOLATION = "dependency created on uncaptured work in another stream"  # cudaErrorStreamCaptureIsolation
_EVENT = "operation not permitted on an event last recorded in a capturing stream"  # cudaErrorCapturedEvent
# cudaErrorStreamCaptureImplicit
_LEGACY = "operation would make the legacy stream depend on a capturing blocking stream"


class Capture:
    """The work put into one stream, and into those that wait for it, from begin to end."""

    def __init__(self, gpu: SimGPU, origin: Lane, values: Any = None) -> None:
        self.gpu, self.origin, self.values = gpu, origin, values
        self.nodes: list[Node] = []
        self.lanes = [origin]
        self._front: dict[int, tuple[int, ...]] = {origin.number: ()}
        self._strangers: set[int] = set()
        self.faults: list[str] = []  # of this capture
        self._refused = ""  # the copy that was just refused: its wait is not told as well
        self.open = True
        origin.capture = self

    def takes(
        self, lane: Lane, name: str, kind: str, seconds: float, flops: int, nbytes: int, pageable: bool,
        blocking: bool,
    ) -> bool:  # fmt: skip
        """Work for a stream: a node of the graph, if that stream is captured."""
        if lane.capture is not self:
            if lane.number not in self._strangers:
                self._strangers.add(lane.number)
                self._fault(
                    f"{name} was put into stream {lane.number} during a capture that this stream takes no part "
                    "in: it runs now, once, and no replay repeats it (PyTorch: 'No non-captured CUDA work may "
                    "run in this process while capture is underway'). Fork it first: "
                    "side.wait_stream(gpu.current_stream()), and join it before the capture ends"
                )
            return False
        stream = None if lane is self.origin else lane.number
        after = self._front[lane.number]
        self.nodes.append(Node(name, kind, seconds, stream, after, flops, nbytes, pageable, blocking))
        self._front[lane.number] = (len(self.nodes) - 1,)
        self._refused = ""
        if pageable and kind.startswith("copy"):
            self._refused = name
            self._fault(
                f"{name}: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU "
                "tensor is pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True. "
                "(What every replay copies is what lies at that address then.)"
            )
        return True

    def frontier(self, lane: Lane) -> tuple[int, ...]:
        """The nodes that a mark put into the stream now comes after."""
        return self._front[lane.number]

    def joins(self, lane: Lane, mark: Mark) -> bool:
        """A stream waits for a mark, and at least one of the two is captured. Whether CUDA lets it."""
        if mark.capture is None:
            self.refuse(
                f"stream {lane.number}.wait_event",
                _ISOLATION,
                "The event was recorded outside the graph. Record it in a captured stream, or wait for it "
                "before the capture begins",
            )
        elif not mark.capture.open:
            self.refuse(f"stream {lane.number}.wait_event", _EVENT)
        elif lane.number == 0:
            self.refuse("default_stream.wait_event", _LEGACY, "The default stream cannot be captured")
        elif lane.capture is None:
            lane.capture = self
            self.lanes.append(lane)
            self._front[lane.number] = mark.after
            return True
        else:
            self._front[lane.number] = tuple(sorted({*self._front[lane.number], *mark.after}))
            return True
        return False

    def refuses_wait(self, name: str, lane: Lane | None) -> bool:
        """The host is about to wait for a stream (None: for the device). A fault if that is captured."""
        if lane is not None and lane.capture is None:
            return False
        if name == self._refused:
            return True
        what = "asks the device for an answer" if "query" in name else "makes the host wait for the device"
        self.refuse(
            name, _SYNC, f"It {what}, and nothing runs while a graph is captured. Take it out of the graph"
        )
        return True

    def refuse(self, what: str, error: str, advice: str = "") -> None:
        """CUDA's own words, and what to do."""
        advice = advice or "An event recorded in a graph belongs to the graph: record another one outside"
        self._fault(f"{what}: CUDA error: {error}. {advice}")

    def end(self) -> None:
        """Every stream that took part must have come back to the first one."""
        self.open = False
        for lane in self.lanes:
            lane.capture = None
        inside, todo = set[int](), list(self._front[self.origin.number])
        while todo:
            i = todo.pop()
            if i not in inside:
                inside.add(i)
                todo += self.nodes[i].after
        lost = [i for i in range(len(self.nodes)) if i not in inside]
        for stream in sorted({self.nodes[i].stream or 0 for i in lost}):
            last = [self.nodes[i].name for i in lost if (self.nodes[i].stream or 0) == stream][-1]
            self.refuse(
                "capture_end",
                _UNJOINED,
                f"{last} in stream {stream} is the last of it: let the capturing stream wait before the end, "
                "gpu.current_stream().wait_stream(side)",
            )

    def _fault(self, text: str) -> None:
        self.faults.append(text)
        self.gpu.faults.append(f"graph capture: {text}")
