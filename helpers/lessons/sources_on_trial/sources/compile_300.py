"""The article on torch.compile: what it claims, section by section."""

from __future__ import annotations

import torch

from helpers import compiling
from helpers.lessons.sources_on_trial import snippets
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested


def graph_then_code() -> Outcome:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2).sin()

    with compiling.watch("eager") as watched:
        torch.compile(chain)(torch.rand(4))
    written = compiling.kernels(chain, torch.rand(4))
    return (
        f"captured: {len(watched.graphs)} graph of {watched.operators} operators; written for this CPU: {written.count} kernel",
        "confirmed" if written.count < watched.operators else "refuted",
    )


def _compilations() -> list[int]:
    """How many graphs there are after torch.compile(…), a call, the same call, a call with another size, a third size."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    fn, counts = torch.compile(lambda x: torch.relu(x * 2), backend=backend), [len(graphs)]
    for n in (8, 8, 16, 24):
        fn(torch.rand(n))
        counts.append(len(graphs))
    return counts


def before_training() -> Outcome:
    counts = _compilations()
    return (
        f"compilations after torch.compile(…): {counts[0]}; after the first call: {counts[1]}; after another size: {counts[3]}",
        "refuted: nothing is compiled before the first call" if counts[0] == 0 else "confirmed",
    )


def steady_latency() -> Outcome:
    counts = _compilations()
    return (
        f"compilations so far, call by call: {', '.join(map(str, counts[1:]))} (the third call has a new size)",
        "partly: holds when all sizes were seen; the first call compiles, and so may a new size"
        if counts[1] == counts[2] < counts[3]
        else "refuted",
    )


def flattening() -> Outcome:
    written, should = snippets.outcome("compile-300/network")
    wrong = "(4, 10)" in written
    return (
        f"as written: {written}; with `flatten(1)`: {should}",
        "partly: holds when pictures have this one size; of others it makes several rows each, without an error"
        if wrong
        else "confirmed",
    )


def amp_names() -> Outcome:
    written, _ = snippets.outcome("compile-300/amp")
    return (
        written,
        "partly: it runs, and both names are deprecated" if "deprecated" in written else "confirmed",
    )


def max_autotune() -> Outcome:
    written, should = snippets.outcome("compile-300/max-autotune")
    return (
        f"{written}; max-autotune-no-cudagraphs: {should}",
        "partly: it tunes, and switches CUDA graphs on as well"
        if "cudagraphs=True" in written
        else "confirmed",
    )


CLAIMS = (
    untested("1.1", "a vision model on an A100: 800 ms a step, the GPU used by less than 45 %", "the model, its batch and its code are not given"),
    untested("1.1", "a Transformer takes more than 12 GB in training, and often runs out of memory", "the model and its batch are not given"),
    untested("1.1", "moving a model from training to inference takes days of fusing and quantizing by hand", "days of whose work, on which model, is not said"),
    kept("1.2", "00-percent-table"),
    kept("1.2", "11-300-percent"),
    kept("1.2", "17-compile"),
    untested("1.2", "torch.compile raises the GPU's utilization from 45 to 90 %", "the model is not given, and utilization says little (lesson 03)"),
    tried("1.2, 8.1", "torch_compile.half_the_memory"),
    tried("2.1", graph_then_code, "a graph is captured as FX, optimised, and turned into code for the machine"),
    tried("2.1", "torch_compile.three_steps"),
    tried("2.2.1", "torch_compile.one_kernel"),
    untested("2.2.2", "the best memory layout is chosen by itself", "Inductor chooses layouts for convolutions on a GPU, and there is none here"),
    kept("2.2.2", "12-memory-format"),
    tried("2.2.3, 3.3.1", "torch_compile.tensorrt"),
    kept("2.2.3", "11-options-dynamic"),
    tried("2.3", before_training, "torch.compile compiles before training, and adapts while it runs"),
    tried("2.3", steady_latency, "unlike a JIT, whose first run is slow, torch.compile has a steady low latency"),
    tried("3.1.2", "torch_compile.is_there"),
    tried("3.2.1", flattening, "`x.view(-1, 16 * 16 * 16)` flattens each picture"),
    tried("3.3.2", max_autotune, 'mode="max-autotune" tunes as far as it goes'),
    kept("3.3.2", "11-reduce-overhead"),
    tried("4.1.1", amp_names, "mixed precision is torch.cuda.amp.autocast() and GradScaler()", evidence="simulated (H100)"),
    tried("4.1.2", "mixed_precision.half_by_name"),
    kept("4.2.1", "08-pool-allocator"),
    kept("4.2.2", "08-fraction"),
    tried("4.3.1", "torch_compile.negative_size"),
    tried("4.3.2", "torch_compile.shape_options"),
    tried("5.2", "torch_compile.pipe"),
    kept("6.1.1", "03-utilization"),
    kept("6.1.1", "08-monitor"),
    kept("6.1.1", "00-event-kernel-time"),
    kept("6.2.1", "03-cuda-time-total"),
    kept("6.2.2", "03-nsys-memory"),
    kept("8.1", "00-300-percent-faster"),
)  # fmt: skip
