"""The code that the guide names: a listing, and three names in its sentences."""

from __future__ import annotations

import textwrap
from typing import Any

import torch
from torch import nn

from helpers.lessons.sources_on_trial.snippets.running import (
    CPU,
    SIMULATED,
    Snippet,
    captured,
    counted,
    snippet,
)
from helpers.simulator import simulate


def _chain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2).sin()


def jit_script() -> str:
    scripted = torch.jit.script(_chain)
    return counted(len(list(scripted.graph.nodes())), "node") + " in its graph, constants among them"


def compiled_instead() -> str:
    return captured(lambda: torch.compile(_chain)(torch.rand(4)))


def cudagraphs_backend() -> str:
    x = torch.rand(4)
    same = torch.equal(torch.compile(_chain, backend="cudagraphs")(x), _chain(x))
    return f"no graph of CUDA on a CPU, and no message; the result is {'right' if same else 'wrong'}"


def cuda_graph() -> str:
    with simulate("H100") as gpu:
        x = torch.rand(4, device=gpu.device)
        _chain(x)
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            _chain(x)
        before, ran = gpu.launches, len(gpu.kernels)
        graph.replay()
        gpu.synchronize()
        return f"a replay is {counted(gpu.launches - before, 'launch')} for {counted(len(gpu.kernels) - ran, 'kernel')}"


def _autocast_listing(indent: str) -> str:
    with simulate("H100") as gpu:
        model, x = nn.Linear(16, 16, device=gpu.device), torch.rand(8, 16, device=gpu.device)
        names: dict[str, Any] = {"torch": torch, "model": model, "x": x}
        listing = f"with torch.autocast(device_type='cuda'):\n{textwrap.indent('y = model(x)', indent)}\n"
        exec(compile(listing, "snippet", "exec"), names)
        return f"the result is {str(names['y'].dtype).removeprefix('torch.')}"


def autocast_written() -> str:
    return _autocast_listing("")


def autocast_should() -> str:
    return _autocast_listing("    ")


def threads_written() -> str:
    torch.set_num_threads()  # type: ignore[call-arg]
    return "set"


def threads_should() -> str:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        return counted(torch.get_num_threads(), "thread")
    finally:
        torch.set_num_threads(before)


SNIPPETS: list[Snippet] = [
    snippet("guide/jit-script", "1", "jit.script", jit_script, compiled_instead, CPU),
    snippet("guide/cudagraphs", "2", "cudagraphs", cudagraphs_backend, cuda_graph, CPU, SIMULATED),
    snippet(
        "guide/autocast",
        "3",
        "with torch.autocast(device_type='cuda'):",
        autocast_written,
        autocast_should,
        SIMULATED,
    ),
    snippet("guide/threads", "5", "torch.set_num_threads()", threads_written, threads_should, CPU),
]
