"""Traces made by hand for tests: a host that launches, streams that work, and times one can add up in one's head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

GEMM, RELU, COPY, NCCL = (
    "gemm",
    "relu",
    "Memcpy HtoD (Pinned -> Device)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)


class Maker:
    """Collects events; times in µs. `work` adds a launch call and what it launched."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.number = 1000

    def event(
        self, cat: str, name: str, start: float, end: float, pid: Any = 1, tid: Any = 1, **args: Any
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args}
        )  # fmt: skip

    def op(self, name: str, start: float, end: float, tid: int = 1) -> None:
        self.event("cpu_op", name, start, end, tid=tid)

    def call(self, name: str, start: float, end: float, tid: int = 1) -> None:
        self.number += 1
        self.event("cuda_runtime", name, start, end, tid=tid, correlation=self.number)

    def span(self, name: str, start: float, end: float) -> None:
        self.event("user_annotation", name, start, end)

    def work(
        self, start: float, end: float, launch: float | None = None, *, name: str = GEMM, stream: int = 7,
        takes: float = 1.0, tid: int = 1, nbytes: int = 0,
    ) -> None:  # fmt: skip
        """Device work from start to end, launched by a call of `takes` µs at `launch` (None: 3 µs before)."""
        self.number += 1
        launch = start - 3 if launch is None else launch
        copy = name.startswith("Memcpy")
        call = "cudaMemcpyAsync" if copy else "cudaLaunchKernel"
        self.event("cuda_runtime", call, launch, launch + takes, tid=tid, correlation=self.number)
        cat = "gpu_memcpy" if copy else "kernel"
        more = {"bytes": nbytes} if copy else {}
        self.event(cat, name, start, end, 0, stream, correlation=self.number, stream=stream, device=0, **more)

    def done(self, **about: Any) -> dict[str, Any]:
        return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Test GPU"}], "traceEvents": self.events, **about}  # fmt: skip


def noise(seed: int, n: int = 60, streams: Sequence[int] = (7, 13)) -> dict[str, Any]:
    """A trace of random work on some streams, in whole µs; work of one stream does not overlap."""
    random = np.random.default_rng(seed)
    made = Maker()
    free, host = dict.fromkeys(streams, 0), 10
    names = [GEMM, RELU, COPY, NCCL, "Memcpy DtoD (Device -> Device)"]
    for _ in range(n):
        host += int(random.integers(1, 40))
        stream = int(random.choice(list(streams)))
        start = max(host + int(random.integers(1, 9)), free[stream])
        end = start + int(random.integers(1, 60))
        made.work(start, end, host, name=str(random.choice(names)), stream=stream)
        free[stream] = end
        if random.random() < 0.15:
            until = max(free.values())
            made.call("cudaDeviceSynchronize", host + 1, max(until, host + 1) + 2)
            host = max(until, host + 1) + 2
    return made.done()
