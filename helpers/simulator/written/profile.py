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
from typing import Any

import torch
from torch.profiler import ProfilerAction

from helpers.simulator.machine import Machine
from helpers.simulator.written import kineto

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class Notes:
    """What is kept for a trace beside the timeline. annotations: named spans on the host."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.annotations: list[kineto.Annotation] = []
        self._open: list[kineto.Annotation] = []

    def add(self, name: str) -> kineto.Annotation:
        """A span that begins now."""
        self.annotations.append(kineto.Annotation(name, self.machine.line.host_ns))
        return self.annotations[-1]

    def enter(self, name: str) -> None:
        """A span of the program's begins; spans nest."""
        self._open.append(self.add(name))

    def leave(self) -> None:
        """The innermost one ends."""
        if self._open:
            self._open.pop().end_ns = self.machine.line.host_ns

    def trace(self, first: int = 0, first_annotation: int = 0) -> dict[str, Any]:
        """What happened from these places on, as torch.profiler's Chrome JSON (see kineto)."""
        return kineto.trace(self.machine, first, self.annotations[first_annotation:])


class SimProfile:
    """A profiler of the simulated GPU, as torch.profiler.profile with CPU and CUDA activities. No schedule: everything
    is recorded. Recording costs no simulated time. more: what torch.profiler takes besides (record_shapes, with_stack,
    profile_memory) adds nothing here.

    As torch.profiler's: every step is annotated ProfilerStep#n, and the end of a recording waits for the
    device (torch/autograd/profiler.py, profile.__exit__).
    """

    def __init__(
        self, notes: Notes, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None, **more: bool,
    ) -> None:  # fmt: skip
        self._machine, self._notes, self._ready = notes.machine, notes, on_trace_ready
        self._schedule = schedule or _always
        self._action = ProfilerAction.NONE
        self._first = self._marks = 0
        self._step: kineto.Annotation | None = None
        self._trace: dict[str, Any] | None = None
        self.step_num = 0

    @property
    def evidence(self) -> str:
        return f"simulated ({self._machine.card.name})"

    def __enter__(self) -> SimProfile:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """As entering the `with` block."""
        self._machine.need("profile")
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
        machine, notes, before = self._machine, self._notes, self._action
        self._action = action or ProfilerAction.NONE
        was, will = before in _RECORDING, self._action in _RECORDING
        ended = was and (not will or before is ProfilerAction.RECORD_AND_SAVE)
        if ended:
            if machine.inside:
                machine.line.drain("synchronize")
            self._trace = notes.trace(self._first, self._marks)
            # As torch.profiler: called after RECORD_AND_SAVE, and when the block ends while recording.
            if self._ready and (before is ProfilerAction.RECORD_AND_SAVE or action is None):
                self._ready(self)
        if will and (ended or not was):
            self._first, self._marks = len(machine.line.host), len(notes.annotations)

    def _open(self) -> None:
        self._step = self._notes.add(f"ProfilerStep#{self.step_num}")

    def _close(self) -> None:
        if self._step is not None:
            self._step.end_ns = self._machine.line.host_ns
            if self._step.end_ns == self._step.start_ns:  # nothing in it: the one after the last step
                self._notes.annotations.remove(self._step)
            self._step = None


def real_profile(
    schedule: Callable[[int], ProfilerAction] | None = None, **how: Any
) -> torch.profiler.profile:
    """torch.profiler on a real GPU, with steps annotated also where there is no schedule. how: its other options."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=activities, schedule=schedule or _always, **how)


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD
