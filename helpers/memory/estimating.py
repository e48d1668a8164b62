"""What a training step needs, before it runs: parameters, gradients, optimizer states, activations, and the peak.

    from helpers import memory

    found = memory.estimate(model, (images,), loss=nn.functional.cross_entropy, target=labels, optimizer="adamw")
    found.peak_bytes, found.peak_phase       # 1288490188, "backward"
    found.table()                            # static and dynamic, part by part
    memory.estimate(GPT2, tokens, device="H100", autocast=torch.bfloat16, checkpoint=Block)

The step is gone through with tensors that have shapes and no memory, so a model that does not fit can be asked too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from helpers.pytorch.tensors import tensors
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

from .memoryless import Twins, checkpointed, optimizer_of, place
from .meter import KINDS, Meter, storages
from .training_step import Program


@dataclass(frozen=True, repr=False)
class Estimate:
    """The memory of one training step, bytes. Storages are counted once, however many tensors share them.
    See :func:`estimate`.
    """

    parameters: int
    buffers: int
    inputs: int
    """The batch and its targets."""
    gradients: int
    """Gradients of parameters, all there when backward ends."""
    optimizer_states: int
    saved: int
    """What autograd keeps for backward when forward ends, parameters left out; `count(...).saved_bytes` of forward."""
    activations: int
    """That part of `saved` which the forward pass made: without the batch and buffers, which are there anyway."""
    temporary: int
    """At the peak, what is none of the others: results on their way, gradients of activations, work of the optimizer."""
    peak_bytes: int
    peak_phase: str
    """"forward", "backward" or "step"."""
    at_peak: dict[str, int]
    """Kind of memory → bytes when the peak is reached."""
    peaks: dict[str, int]
    """Phase → the most memory in it."""
    peak_operator: str
    """The operator that asked for the last of it, e.g. "aten.addmm"."""
    evidence: str
    timeline: StepTimeline = field(compare=False)

    @property
    def static_bytes(self) -> int:
        """What is there before, in and after every step: parameters, buffers, optimizer states."""
        return self.parameters + self.buffers + self.optimizer_states

    def table(self) -> Table:
        """Each part, its size, and what of it is there at the peak."""
        whole = {
            "parameters": self.parameters, "buffers": self.buffers, "optimizer": self.optimizer_states,
            "inputs": self.inputs, "gradients": self.gradients, "activations": self.activations,
        }  # fmt: skip
        rows = []
        for kind in KINDS:
            here = self.at_peak.get(kind, 0)
            size = size_text(whole[kind]) if kind in whole else "–"
            if here or whole.get(kind):
                rows.append([WORDS[kind], size, size_text(here), f"{here / max(self.peak_bytes, 1):.1%}"])
        static = size_text(self.static_bytes)
        rows.append(["static", static, static, f"{self.static_bytes / max(self.peak_bytes, 1):.1%}"])
        rows.append(["peak", "–", size_text(self.peak_bytes), "100.0%"])
        phases = ", ".join(f"{phase} up to {size_text(most)}" for phase, most in self.peaks.items())
        caption = f"peak in {self.peak_phase}, at {self.peak_operator or 'its start'}; {phases}"
        return table(rows, ["part", "size", "at the peak", "share"], evidence=self.evidence, caption=caption)

    def __repr__(self) -> str:
        parts = ", ".join(f"{WORDS[kind]} {size_text(n)}" for kind, n in self.at_peak.items() if n)
        return f"peak {size_text(self.peak_bytes)} in {self.peak_phase}: {parts} · {self.evidence}"


@dataclass(frozen=True, repr=False)
class StepTimeline:
    """The step, event by event: a storage made, or one gone.

    bytes: events + 1 rows, a column for each of `kinds`. phases: (name, first row, last row) in order.

    >>> step = memory.estimate(torch.nn.Linear(1000, 1000), torch.empty(8, 1000)).timeline
    >>> [name for name, first, last in step.phases]
    ['forward', 'backward', 'step']
    """

    kinds: tuple[str, ...]
    bytes: np.ndarray
    phases: tuple[tuple[str, int, int], ...]

    @property
    def total(self) -> np.ndarray:
        """Bytes before the first event and after each."""
        return self.bytes.sum(axis=1)

    def __len__(self) -> int:
        return len(self.bytes) - 1


WORDS = {
    "parameters": "parameters", "buffers": "buffers", "inputs": "batch", "optimizer": "optimizer states",
    "gradients": "gradients", "activations": "activations", "recomputed": "recomputed",
    "output": "output", "temporary": "temporary",
}  # fmt: skip


def estimate(
    module: nn.Module | Callable[[], nn.Module], inputs: Any, *, loss: Callable[..., Any] | None = None, target: Any = None,
    optimizer: Any = "adamw", foreach: bool | None = None, autocast: torch.dtype | bool | None = None,
    checkpoint: Any = None, micro_batches: int = 1, keep_output: bool = True, device: str = "cpu",
) -> Estimate:  # fmt: skip
    """The memory of this training step, whichever it is but the first (optimizer states are there already):

        optimizer.zero_grad()
        output = module(*inputs); value = loss(output, target)       # under autocast, if given
        value.backward(); optimizer.step()

    module: a module, which is not touched, or a function that builds one (then its weights need no memory). inputs:
    a tensor, a tuple of arguments, or a dict of named ones; only shapes and types matter, so torch.empty(…,
    device="meta") will do. loss: of output and, if given, target, to a number; without: the output if it is one
    number, its `.loss` if it has one, else the sum of all outputs. optimizer: a name in torch.optim, a class, a
    function of the parameters (partial(SGD, lr=0.1, momentum=0.9)), an optimizer of that module, or None. foreach:
    for the optimizer; None is what torch chooses on that device. autocast: a dtype (True: bfloat16). checkpoint: the
    submodules to compute again in backward: a class, or a function (name, module) → bool. micro_batches: the
    forward and backward passes before each step, `inputs` being one of them. keep_output: `output` lives until the
    step ends, as a variable in a loop does. device: "cpu", or a
    card that `simulate` knows ("H100"): other kernels, other autocast lists, foreach by default.

    Parameters, gradients and optimizer states are exact. Not in it: what no operator returns, such as temporary
    memory inside a kernel (cuDNN's and oneDNN's), cuBLAS workspaces (2 × 32 MiB on an H100) and the CUDA context;
    the allocator's rounding to 512 bytes and what it keeps unused; tensors that were there before and are no
    parameter, buffer or input; sparse gradients; GradScaler. An LSTM on the CPU asks oneDNN for the size of its
    workspace by running that one layer on zeros.

    What goes wrong in the module is raised as it is, with a note on what was tried.

    >>> step = memory.estimate(torch.nn.Linear(1000, 1000), torch.empty(8, 1000))
    >>> step.parameters, step.optimizer_states, step.peak_phase
    (4004000, 8008008, 'step')
    >>> set(step.timeline.kinds) <= set(memory.KINDS)
    True
    """
    if micro_batches < 1:
        raise ValueError(
            f"micro_batches={micro_batches}: at least one forward and backward pass makes a step"
        )
    if target is not None and loss is None:
        raise ValueError("target= is for loss(output, target): give loss= too, or put it into inputs")
    with torch.enable_grad(), place(device) as here:
        twins = Twins(here.kind)
        with here.inside():
            model = twins.module(module) if isinstance(module, nn.Module) else here.build(module)
            args, targets = twins.tree(inputs), twins.tree(target)
            score = twins.module(loss) if isinstance(loss, nn.Module) else loss
        checkpointed(model, checkpoint)
        made = optimizer_of(optimizer, model.parameters(), twins, foreach)
        known: set[int] = set()
        held = {
            "parameters": storages(model.parameters(), known, here.kind),
            "buffers": storages(model.buffers(), known, here.kind),
            "inputs": storages(list(tensors((args, targets))), known, here.kind),
        }
        if isinstance(score, nn.Module):
            held["buffers"] += storages([*score.parameters(), *score.buffers()], known, here.kind)
        meter = Meter(here.kind)
        program = Program(here, meter, model, args, score, targets, made)
        lower = torch.bfloat16 if autocast is True else autocast or None
        program.run(lower, micro_batches, keep_output)
        grads = storages(program.gradients, known, here.kind)
        held["optimizer"] = storages(program.states, known, here.kind)
        return _summed(meter, held, grads, here.evidence)


def _summed(meter: Meter, held: dict[str, int], gradients: int, evidence: str) -> Estimate:
    """From events to levels. What warm-up passes left behind was there before the step."""
    changes, phase_of = meter.changes()
    hidden = np.array([name.startswith("before") for name in meter.phases])[phase_of]
    left = changes[hidden].sum(axis=0)
    first = np.array([held.get(kind, 0) for kind in KINDS], dtype=np.int64) + left
    # All states are counted in `held`, those that the first step made among them.
    first[KINDS.index("optimizer")] = held["optimizer"]
    levels = np.vstack([first, first + np.cumsum(changes[~hidden], axis=0)])
    total, phase_of = levels.sum(axis=1), phase_of[~hidden]
    events = [event for event in meter.ordered() if not meter.phases[event.phase].startswith("before")]
    phases, start = [], 0
    for number, name in enumerate(meter.phases):
        if not name.startswith("before"):
            end = start + int((phase_of == number).sum())
            phases.append((name, start, end))
            start = end
    peaks: dict[str, int] = {}
    for name, start, end in phases:
        peaks[name] = max(peaks.get(name, 0), int(total[start : end + 1].max()))
    row = int(total.argmax())
    name = next(name for name, start, end in phases if start <= row <= end)
    # Saved in the first forward pass that is part of the step, and by it.
    end = phases[0][2]
    kept = int(levels[end, KINDS.index("activations")])
    at_peak = {kind: int(n) for kind, n in zip(KINDS, levels[row], strict=True) if n}
    return Estimate(
        parameters=held["parameters"], buffers=held["buffers"], inputs=held["inputs"], gradients=gradients,
        optimizer_states=held["optimizer"], saved=meter.saved_bytes, activations=kept, temporary=at_peak.get("temporary", 0),
        peak_bytes=int(total[row]), peak_phase=name, at_peak=at_peak, peaks=peaks,
        peak_operator=events[row - 1].operator if row else "", evidence=evidence,
        timeline=StepTimeline(KINDS, levels, tuple(phases)),
    )  # fmt: skip
