"""torch.profiler's names on the simulated GPU: the same loop is profiled on both devices.

with gpu.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)) as prof:
    for batch in loader:
        step(batch)
        prof.step()
prof.export_chrome_trace("trace.json")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerAction

from helpers.simulator import kineto
from helpers.simulator.frames import frames

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["ProfileNames", "SimProfile", "real_profile"]

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class ProfileNames:
    """What profiling adds to SimGPU."""

    _annotations: list[kineto.Annotation]
    _notes: dict[int, dict[str, Any]]
    _noting: tuple[bool, bool] | None  # shapes, stacks; None: nobody asked

    def _init_profile(self) -> None:
        self._annotations, self._notes, self._noting = [], {}, None

    def _note(self, args: Any, kwargs: Any) -> None:
        """What a profiler asked to keep of the operator that comes next."""
        shapes, stacks = self._noting or (False, False)
        kept: dict[str, Any] = {}
        if shapes:
            values = [*args, *kwargs.values()]
            kept["Input Dims"] = [list(v.shape) if isinstance(v, torch.Tensor) else [] for v in values]
            kept["Input type"] = [str(v.dtype)[6:] if isinstance(v, torch.Tensor) else "" for v in values]
        if stacks:
            kept["Call stack"] = ";".join(f"{f['filename']}({f['line']}): {f['name']}" for f in frames())
        self._notes[len(self.host)] = kept  # type: ignore[attr-defined]

    def profile(
        self,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        with_stack: bool = False,
        profile_memory: bool = False,
    ) -> SimProfile:
        """As torch.profiler.profile with CPU and CUDA activities. No schedule: everything is recorded."""
        return SimProfile(self, schedule, on_trace_ready, record_shapes, with_stack)  # type: ignore[arg-type]

    def trace(self) -> dict[str, Any]:
        """Everything since this GPU was made, as torch.profiler's Chrome JSON (see kineto)."""
        return kineto.trace(self, 0, None, self._annotations, self._notes)  # type: ignore[arg-type]


class SimProfile:
    """A profiler of the simulated GPU. Recording costs no simulated time.

    As torch.profiler's: every step is annotated ProfilerStep#n, and the end of a recording waits for the
    device (torch/autograd/profiler.py, profile.__exit__).
    """

    def __init__(
        self,
        gpu: SimGPU,
        schedule: Callable[[int], ProfilerAction] | None,
        on_trace_ready: Callable[[Any], Any] | None,
        record_shapes: bool,
        with_stack: bool,
    ) -> None:
        self._gpu, self._schedule, self._ready = (
            gpu,
            schedule or (lambda step: ProfilerAction.RECORD),
            on_trace_ready,
        )
        self._shapes, self._stacks = record_shapes, with_stack
        self._action = ProfilerAction.NONE
        self._first = self._marks = 0
        self._step: kineto.Annotation | None = None
        self._trace: dict[str, Any] | None = None
        self.step_num = 0

    @property
    def evidence(self) -> str:
        return self._gpu.evidence

    def __enter__(self) -> SimProfile:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """As entering the `with` block."""
        self._gpu._need("profile")
        self._turn(self._schedule(self.step_num))
        self._open()

    def step(self) -> None:
        """The next step begins."""
        self._close()
        self.step_num += 1
        self._turn(self._schedule(self.step_num))
        self._open()

    def stop(self) -> None:
        """As leaving it: the recording ends, and waits for the device."""
        self._close()
        self._turn(None)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the last recording; a name that ends in .gz is compressed."""
        kineto.write(self.trace(), path)

    def trace(self) -> dict[str, Any]:
        """The last recording, as export_chrome_trace writes it. RuntimeError if nothing was recorded."""
        if self._trace is None:
            raise RuntimeError(
                "nothing was recorded yet: the schedule has not reached the end of an active span"
            )
        return self._trace

    def _turn(self, action: ProfilerAction | None) -> None:
        """From one step's action to the next: a recording ends after RECORD_AND_SAVE, and where it breaks off."""
        gpu, before = self._gpu, self._action
        self._action = action or ProfilerAction.NONE
        was, will = before in _RECORDING, self._action in _RECORDING
        ended = was and (not will or before is ProfilerAction.RECORD_AND_SAVE)
        if ended:
            if gpu._stack is not None:
                gpu._timeline.drain("synchronize")
            gpu._noting = None
            marks = gpu._annotations[self._marks :]
            self._trace = kineto.trace(gpu, self._first, None, marks, gpu._notes)
            # As torch.profiler: called after RECORD_AND_SAVE, and when the block ends while recording.
            if self._ready and (before is ProfilerAction.RECORD_AND_SAVE or action is None):
                self._ready(self)
        if will and (ended or not was):
            self._first, self._marks = len(gpu.host), len(gpu._annotations)
            gpu._noting = (self._shapes, self._stacks) if self._shapes or self._stacks else None

    def _open(self) -> None:
        self._step = kineto.Annotation(f"ProfilerStep#{self.step_num}", self._gpu._timeline.host_ns)
        self._gpu._annotations.append(self._step)

    def _close(self) -> None:
        if self._step is not None:
            self._step.end_ns = self._gpu._timeline.host_ns
            if (
                self._step.end_ns == self._step.start_ns
            ):  # nothing happened in it: the one after the last step
                self._gpu._annotations.remove(self._step)
            self._step = None


def real_profile(
    schedule: Callable[[int], ProfilerAction] | None = None,
    on_trace_ready: Callable[[Any], Any] | None = None,
    record_shapes: bool = False,
    with_stack: bool = False,
    profile_memory: bool = False,
) -> torch.profiler.profile:
    """torch.profiler on a real GPU, with steps annotated also where there is no schedule."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(
        activities=activities,
        schedule=schedule or (lambda step: ProfilerAction.RECORD),
        on_trace_ready=on_trace_ready,
        record_shapes=record_shapes,
        with_stack=with_stack,
        profile_memory=profile_memory,
    )
