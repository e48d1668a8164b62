"""The events of a simulated trace: how spans, calls, kernels and the names of lanes are written down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from helpers.simulator.timeline import Kernel

__all__ = ["Writer", "lane_names", "stream_shown"]

_HOST = 1  # process and thread of the host: always the same, so that equal runs are equal files


@dataclass
class Writer:
    """One trace in the making."""

    external: int = 0
    correlation: int = 100_000  # as large as real ones: HTA keeps small ones in one byte, and then fails
    events: list[dict[str, Any]] = field(default_factory=list)

    def span(self, cat: str, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Any) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start_ns / 1e3,
                "dur": (end_ns - start_ns) / 1e3,
                "args": args,
            }
        )

    def host(self, cat: str, name: str, start_ns: int, end_ns: int, args: Any) -> None:
        self.span(cat, name, _HOST, _HOST, start_ns, end_ns, args)

    def call(self, name: str, start_ns: int, end_ns: int, kernels: Iterable[Kernel] = ()) -> None:
        """A CUDA runtime call and the work it put into queues."""
        self.correlation += 1
        number = self.correlation
        join = {"External id": self.external, "correlation": number}
        self.host("cuda_runtime", name, start_ns, end_ns, dict(join))
        for place, kernel in enumerate(kernels):
            stream = stream_shown(kernel.stream)
            args: dict[str, Any] = dict(join, device=0, context=1, stream=stream)
            if kernel.graph:
                args["graph id"] = kernel.graph
            cat, shown = _device_name(kernel)
            if cat == "gpu_memcpy":
                args["bytes"] = kernel.bytes
                args["memory bandwidth (GB/s)"] = kernel.bytes / max(1, kernel.end_ns - kernel.start_ns)
            else:
                args["simulated flops"], args["simulated bytes"] = kernel.flops, kernel.bytes
            self.span(cat, shown, 0, stream, kernel.start_ns, kernel.end_ns, args)
            if not place:  # the arrow from the call to its first piece of work
                arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
                self.events.append({"ph": "s", **arrow, "pid": _HOST, "tid": _HOST, "ts": start_ns / 1e3})
                self.events.append(
                    {"ph": "f", **arrow, "pid": 0, "tid": stream, "ts": kernel.start_ns / 1e3, "bp": "e"}
                )


def _device_name(kernel: Kernel) -> tuple[str, str]:
    memory = "Pageable" if kernel.pageable else "Pinned"
    if kernel.kind == "copy h2d":
        return "gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)"
    if kernel.kind == "copy d2h":
        return "gpu_memcpy", f"Memcpy DtoH (Device -> {memory})"
    return "kernel", kernel.name.replace(".", "::")


def stream_shown(lane: int) -> int:
    """The number that the profiler shows: PyTorch's default stream is CUDA's 7; side streams come behind."""
    return 7 + 6 * bool(lane) + 4 * max(0, lane - 1)


def lane_names(card: str, streams: list[int], ts: float) -> list[dict[str, Any]]:
    """Names and order of the lanes. The word SIMULATED is in what Perfetto shows at the left edge."""
    events: list[dict[str, Any]] = []

    def meta(kind: str, pid: int, tid: int, **args: Any) -> None:
        events.append({"ph": "M", "name": kind, "ts": ts, "pid": pid, "tid": tid, "args": args})

    meta("process_name", _HOST, 0, name="python: SIMULATED host")
    meta("process_labels", _HOST, 0, labels="CPU")
    meta("process_sort_index", _HOST, 0, sort_index=_HOST)
    meta("thread_name", _HOST, _HOST, name=f"thread {_HOST} (python)")
    meta("thread_sort_index", _HOST, _HOST, sort_index=_HOST)
    meta("process_name", 0, 0, name=f"SIMULATED {card}")
    meta("process_labels", 0, 0, labels="GPU 0")
    meta("process_sort_index", 0, 0, sort_index=5_000_000)
    for stream in streams:
        meta("thread_name", 0, stream, name=f"stream {stream}")
        meta("thread_sort_index", 0, stream, sort_index=stream)
    return events
