"""What the simulated GPU did, as the Chrome JSON that torch.profiler writes: Perfetto, HTA and helpers.trace open it.

The format was read off traces of torch.profiler (torch/csrc/profiler and Kineto's output_json.cpp): complete
events ("ph": "X") with `ts` and `dur` in µs; `args.correlation` joins a CUDA call with the work it launched,
`args["External id"]` joins both with their operator. What a simulator cannot know is left out: grids,
blocks, registers, occupancy.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.pytorch.waiting import OPERATORS_WAIT_IN, WAITS_IN
from helpers.simulator.machine import Machine
from helpers.simulator.timeline import Host, Kernel

_CALLS = WAITS_IN | {  # what the host waits in or calls outside operators → CUDA's name for it
    "stream.query": "cudaStreamQuery",
    "event.query": "cudaEventQuery",
    "event.record": "cudaEventRecord",
    "stream.wait_event": "cudaStreamWaitEvent",
    "work.wait": "cudaStreamWaitEvent",
}
_FIRST_USE = {
    "CUDA context": "cuCtxCreate",
    "cuBLAS": "cublasCreate",
    "cuSOLVER": "cusolverDnCreate",
    "cuDNN": "cudnnCreate",
}
_CALL_NS = 2_500  # an operator's last moments are the driver's: the length that is drawn for them


@dataclass
class Annotation:
    """A named span on the host: record_function, or a profiler's step. end_ns None: not over yet."""

    name: str
    start_ns: int
    end_ns: int | None = None


def trace(machine: Machine, first: int, annotations: Sequence[Annotation]) -> dict[str, Any]:
    """The trace of gpu.host[first:] and of all that these calls launched."""
    line, card, rank = machine.line, machine.card, machine.rank
    launched: dict[int, list[Kernel]] = defaultdict(list)
    for kernel in line.kernels:
        launched[kernel.call].append(kernel)
    last, writer = len(line.host), Writer()
    for group in _groups(line.host, first):
        _emit(writer, line.host, group, launched)
    kernels = [k for i in range(first, last) for k in launched.get(i, ())]
    begin = line.host[first].start_ns if first < last else line.host_ns
    end = line.host[last - 1].end_ns if first < last else begin
    for number, mark in enumerate(annotations):
        _annotate(writer, mark, number, kernels, end)
    # Of two spans that are as long, viewers nest the later one in the earlier: an annotation comes first.
    spans = sorted(
        writer.events, key=lambda e: (e["ts"], -e.get("dur", 0.0), not e["cat"].endswith("user_annotation"))
    )
    streams = sorted({stream_shown(k.stream) for k in kernels} | {stream_shown(0)})
    return {
        "schemaVersion": 1,
        "simulated": card.name,
        "deviceProperties": [
            {"id": 0, "name": f"SIMULATED {card.name}", "totalGlobalMem": card.memory_bytes}
        ],
        "distributedInfo": {"rank": rank[0], "world_size": rank[1]} if rank else {"rank": 0},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceEvents": [*lane_names(card.name, streams, begin / 1e3), *spans],
        "traceName": f"simulated {card.name}",
    }


def write(data: dict[str, Any], path: str | Path) -> None:
    """Write a trace as JSON, compressed where the name ends in .gz. Equal traces are equal files."""
    text = json.dumps(data, separators=(",", ":")).encode()
    Path(path).write_bytes(gzip.compress(text, mtime=0) if str(path).endswith(".gz") else text)


def _groups(host: Sequence[Host], first: int) -> list[list[int]]:
    """Places of the records that belong to one operator (or to one call outside any)."""
    groups: list[list[int]] = []
    open_name, waiting = "", list[int]()
    for i in range(first, len(host)):
        record = host[i]
        if record.kind == "warm-up" and not record.name.startswith("cuda"):  # before what needs it
            waiting.append(i)
            continue
        mine = record.name in (open_name, f"stage {open_name}")
        if record.kind != "operator" and mine and not waiting:
            groups[-1].append(i)
            continue
        open_name = record.name if record.kind == "operator" else ""
        groups.append([*waiting, i])
        waiting = []
    return groups + ([waiting] if waiting else [])


def _emit(writer: Writer, host: Sequence[Host], group: list[int], launched: dict[int, list[Kernel]]) -> None:
    """One operator with the calls inside it; or a bare call."""
    writer.external += 1
    main = next((i for i in group if host[i].kind != "warm-up"), group[-1])
    operator = host[main]
    start, end = host[group[0]].start_ns, host[group[-1]].end_ns
    if operator.name.startswith("cuda"):  # a call that is no operator: cudaMalloc, the launch of a graph
        work = [k for i in group for k in launched.get(i, ())]
        writer.call(operator.name, operator.start_ns, end, work)
        group = [i for i in group if i < main]
    if operator.kind == "operator":
        name = operator.name.replace(".", "::")
        writer.host("cpu_op", name, start, end, {"External id": writer.external})
    for place, i in enumerate(group):
        record, kernels = host[i], launched.get(i, [])
        if record.kind == "warm-up":
            name = _FIRST_USE.get(record.name, "cuModuleLoadData")
            writer.host("cuda_driver", name, record.start_ns, record.end_ns, {"first use": record.name})
            continue
        behind = host[group[place + 1]] if place + 1 < len(group) else None
        if record.kind in ("operator", "launch"):
            if behind is not None and not kernels and behind.kind in ("queue full", "work"):
                continue  # the call goes on in the next record, which holds the launch
            if kernels:
                begin = max(record.start_ns, record.end_ns - _CALL_NS)
                _launch(writer, begin, record.end_ns, kernels, behind)
        elif record.kind in ("queue full", "work") and i != main:
            begin = max(operator.start_ns, record.start_ns - _CALL_NS)
            _launch(writer, begin, record.end_ns, kernels, behind)
        elif record.kind == "sync" and i != main:
            wait = _staged_until(record, launched.get(group[place - 1], []))
            if wait is not None:
                writer.call(OPERATORS_WAIT_IN, wait, record.end_ns)
        elif record.name in _CALLS:
            writer.call(_CALLS[record.name], record.start_ns, record.end_ns, kernels)
        elif record.name == "pin_memory":
            writer.host("cpu_op", "aten::pin_memory", start, end, {"External id": writer.external})
            writer.call("cudaHostAlloc", record.start_ns, record.end_ns)
        elif record.kind == "sync":
            writer.call(OPERATORS_WAIT_IN, record.start_ns, record.end_ns)
        else:
            writer.host("python_function", record.name, record.start_ns, record.end_ns, {})


def _launch(writer: Writer, start: int, end: int, kernels: list[Kernel], behind: Host | None) -> None:
    """The call that put these kernels into a queue. From pageable memory it returns when the copy is done."""
    copy = bool(kernels) and kernels[0].kind.startswith("copy")
    if copy and kernels[0].pageable and behind is not None and behind.kind == "sync":
        end = min(max(end, kernels[-1].end_ns), behind.end_ns)
        if not kernels[0].blocking:
            end = behind.end_ns
    writer.call("cudaMemcpyAsync" if copy else "cudaLaunchKernel", start, end, kernels)


def _staged_until(record: Host, kernels: list[Kernel]) -> int | None:
    """When the wait after a copy begins; None: the copy call itself was the wait (pageable, non_blocking)."""
    if not kernels or not kernels[0].pageable:
        return record.start_ns
    return min(max(record.start_ns, kernels[-1].end_ns), record.end_ns) if kernels[0].blocking else None


def _annotate(writer: Writer, mark: Annotation, number: int, kernels: list[Kernel], end_ns: int) -> None:
    """A span on the host, and over the work launched inside it on each stream."""
    end = end_ns if mark.end_ns is None else mark.end_ns
    args = {"External id": 1_000_000 + number}
    writer.host("user_annotation", mark.name, mark.start_ns, end, args)
    inside: dict[int, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if mark.start_ns < kernel.launch_ns <= end:
            inside[stream_shown(kernel.stream)].append(kernel)
    for stream, mine in sorted(inside.items()):
        begin, until = min(k.start_ns for k in mine), max(k.end_ns for k in mine)
        writer.span("gpu_user_annotation", mark.name, 0, stream, begin, until, args)


# --------------------------------------------------------------------------------- the events themselves

_HOST = 1  # process and thread of the host: always the same, so that equal runs are equal files


@dataclass
class Writer:
    """One trace in the making."""

    external: int = 0
    correlation: int = 100_000  # as large as real ones: HTA keeps small ones in one byte, and then fails
    events: list[dict[str, Any]] = field(default_factory=list)

    def span(self, cat: str, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Any) -> None:
        when = {"ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **when, "args": args}
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
                begin, end = start_ns / 1e3, kernel.start_ns / 1e3
                self.events.append({"ph": "s", **arrow, "pid": _HOST, "tid": _HOST, "ts": begin})
                self.events.append({"ph": "f", **arrow, "pid": 0, "tid": stream, "ts": end, "bp": "e"})


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
    lanes = [
        ("process", _HOST, 0, "python: SIMULATED host", "CPU", _HOST),
        ("thread", _HOST, _HOST, f"thread {_HOST} (python)", "", _HOST),
        ("process", 0, 0, f"SIMULATED {card}", "GPU 0", 5_000_000),
        *(("thread", 0, stream, f"stream {stream}", "", stream) for stream in streams),
    ]
    events: list[dict[str, Any]] = []
    for what, pid, tid, name, labels, order in lanes:
        for key, value in (("name", name), ("labels", labels), ("sort_index", order)):
            if value != "":
                at = {"ph": "M", "name": f"{what}_{key}", "ts": ts, "pid": pid, "tid": tid}
                events.append({**at, "args": {key: value}})
    return events
