"""Record what this process sends, and how far backward had come when it did."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules import module as hooks

from helpers.pytorch import private_torch

from .listening import listening, release
from .records import Call, Record


@contextmanager
def sent(model: torch.nn.Module | None = None) -> Iterator[Record]:
    """Within the block, every collective, send and recv of this process is recorded, by whatever it is called.

    model: its parameters' gradients are what ``Call.reached`` counts and ``Record.gradients`` names. Hand
        over the model itself rather than its wrapper: names are then its own. (Where FSDP shards a model,
        autograd never sees these parameters: there ``reached`` stays 0, and ``phase`` and the order tell.)

    The record is filled when the block ends, also when it raises. Blocks may be nested.

    >>> with ranks.fake(8), ranks.sent() as record:
    ...     work = dist.all_reduce(torch.ones(1000))
    >>> [(call.kind, call.bytes) for call in record.calls]
    [('all_reduce', 4000)]
    """
    record, taker = Record(), _Taker()
    try:
        with ExitStack() as stack:
            if model is not None:
                taker.watch(model, stack)
            stack.enter_context(listening(taker))
            yield record
    finally:
        if dist.is_initialized():
            record.rank, record.world_size = dist.get_rank(), dist.get_world_size()
            record.fake = "fake" in dist.get_backend()
        record.calls[:], record.gradients[:] = taker.calls, taker.gradients
        record.passes[:] = taker.passes


class _Taker:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gradients: list[str] = []
        self.passes: list[int] = []
        self._graphs: list[int] = []
        self._last = (-1, "")  # the pass through the graph, and the parameter, of the newest gradient
        self._names: dict[int, str] = {}
        self._nodes: list[Any] = []
        self._running: list[str] = []  # modules whose forward has begun and not ended
        self._asked: dict[int, int] = {}  # call → gradients there were when somebody asked whether it is done
        self._thread = threading.get_ident()

    def watch(self, model: torch.nn.Module, stack: ExitStack) -> None:
        """Hear of the gradients of ``model``'s parameters and of its modules' forwards, until ``stack`` ends."""
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._names[id(parameter)] = name
                node = get_gradient_edge(parameter).node  # a tensor alone does not keep its node alive
                handle = node.register_prehook(functools.partial(self._gradient, name))
                stack.callback(handle.remove)
                self._nodes.append(node)
        modules = {id(m): name for name, m in model.named_modules()}

        def begins(module: torch.nn.Module, inputs: Any) -> None:
            if id(module) in modules:
                self._running.append(modules[id(module)])

        def ends(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if id(module) in modules and self._running:
                self._running.pop()

        # those of all modules run before a module's own, in which FSDP gathers
        stack.callback(hooks.register_module_forward_pre_hook(begins).remove)
        stack.callback(hooks.register_module_forward_hook(ends, always_call=True).remove)

    def _gradient(self, name: str, gradients: Any) -> None:
        release()
        self.gradients.append(name)
        graph = private_torch.current_graph_task()
        self._pass(graph)
        self.passes[-1] = len(self.gradients)
        self._last = (graph, name)

    def _pass(self, graph: int) -> None:
        if graph not in self._graphs:
            self._graphs.append(graph)
            self.passes.append(len(self.gradients))

    def call(self, heard: Call) -> int:
        number, reached = len(self.calls), len(self.gradients)
        phase, at = "forward", self._running[-1] if self._running else ""
        if (graph := private_torch.current_graph_task()) != -1:
            phase, at = "backward", self._at()
            self._pass(graph)
            # a hook on the tensor itself runs before those on its node, of which _gradient is one
            if at in self._names.values() and self._last != (graph, at):
                reached += 1
        elif threading.get_ident() != self._thread:
            phase, at = "thread", ""
        when = {"phase": phase, "passes": len(self.passes), "reached": reached, "at": at}
        self.calls.append(Call(**vars(heard) | {"index": number} | when))
        return number

    def _at(self) -> str:
        node: Any = private_torch.current_autograd_node()
        if node is None:
            return ""
        variable = getattr(node, "variable", None)
        return str(node.name()) if variable is None else self._names.get(id(variable), "")

    def poll(self, number: int) -> None:
        # asked again before the next gradient: whoever asks in a loop waits
        if self._asked.get(number) == len(self.gradients):
            self.wait(number)
        self._asked[number] = len(self.gradients)

    def wait(self, number: int) -> None:
        release()
        call = self.calls[number]
        if call.waited is None:
            self.calls[number] = dataclasses.replace(call, waited=max(len(self.gradients), call.reached))
