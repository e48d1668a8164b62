"""The training step that the memory model goes through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from helpers.pytorch.tensors import tensors

from .memoryless import Place
from .meter import Meter


class Program:
    """Runs the phases of a step under a meter. gradients, states: the tensors that are there at its end."""

    def __init__(
        self, place: Place, meter: Meter, model: nn.Module, inputs: Any, loss: Any, target: Any,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:  # fmt: skip
        self.place, self.meter, self.model, self.optimizer = place, meter, model, optimizer
        self.inputs, self.loss, self.target = inputs, loss, target
        self.gradients: list[torch.Tensor] = []
        self.states: list[torch.Tensor] = []

    def run(self, autocast: torch.dtype | None, micro_batches: int, keep_output: bool) -> None:
        """All passes and the step. Phases that begin with "before" happen in the steps before this one."""
        with self.meter.watching():
            for parameter in self.model.parameters():
                self.meter._parameter(parameter)
            # From the second pass on gradients are there, and every later one is like it.
            kept: Any = None
            for _ in range(min(micro_batches, 2)):
                kept = None
                kept = self._pass(autocast, micro_batches, keep_output)
                self._classify()
            if self.optimizer is not None:
                # Gradients are still there: the same step twice, of which the first makes the states.
                self._step("before: ")
                self._step("")
            del kept

    def _pass(self, autocast: torch.dtype | None, micro_batches: int, keep_output: bool) -> tuple[Any, Any]:
        """Forward and backward; what the step's own variables hold, output and loss."""
        lower = torch.autocast(self.place.autocast, dtype=autocast) if autocast else nullcontext()
        with self.place.inside(), self.meter:
            self.meter.begin("forward")
            with lower:
                output = self._call()
                value = self._score(output)
            if not keep_output:
                output = None
            if micro_batches > 1:
                value = value / micro_batches
            # What backward keeps is an activation; the rest is there because variables hold it.
            self.meter.call("output", list(tensors((output, value))), only="temporary")
            self.meter.begin("backward")
            value.backward()
        return output, value

    def _call(self) -> Any:
        given = self.inputs
        with _told("estimate() called", self.model, given):
            if isinstance(given, dict):
                return self.model(**given)
            return self.model(*given) if isinstance(given, (tuple, list)) else self.model(given)

    def _score(self, output: Any) -> torch.Tensor:
        if self.loss is not None:
            with _told("estimate() called the loss on the output of", self.model, self.inputs):
                value = self.loss(output) if self.target is None else self.loss(output, self.target)
        elif isinstance(getattr(output, "loss", None), torch.Tensor):
            value = output.loss
        elif isinstance(output, torch.Tensor) and not output.dim():
            value = output
        else:
            parts = [t.sum() for t in tensors(output) if t.requires_grad]
            if not parts:
                raise ValueError("the output has no tensor that needs a gradient: is every parameter frozen?")
            value = sum(parts[1:], start=parts[0])
        if not (isinstance(value, torch.Tensor) and value.numel() == 1):
            what = (
                f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value)
            )
            raise ValueError(f"the loss is to be one number, and is {what}: average it")
        return value

    def _step(self, prefix: str) -> None:
        assert self.optimizer is not None
        self.meter.begin(f"{prefix}step")
        with self.meter:
            self.optimizer.step()
        self.states = list(tensors(list(self.optimizer.state.values())))
        self.meter.call("optimizer", self.states)

    def _classify(self) -> None:
        self.gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.meter.call("gradients", self.gradients)


@contextmanager
def _told(what: str, model: nn.Module, given: Any) -> Iterator[None]:
    """Adds to an error of the module what was tried."""
    try:
        yield
    except Exception as error:
        error.add_note(
            f"{what} {type(model).__name__} with {_shapes(given)}: tensors that have shapes and no values (a tuple of "
            "inputs is taken as arguments, a dict as named ones). Try the module itself on real ones first. If it works "
            "there, it asks for values here: .item(), `if tensor:`, a size that depends on data"
        )
        raise


def _shapes(given: Any) -> str:
    def one(value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return type(value).__name__
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"

    if isinstance(given, dict):
        return ", ".join(f"{name}={one(value)}" for name, value in given.items()) or "no inputs"
    return ", ".join(one(v) for v in (given if isinstance(given, (tuple, list)) else [given])) or "no inputs"
