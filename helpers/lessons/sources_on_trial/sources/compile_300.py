"""The article on torch.compile: what it claims, section by section."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

from helpers import compiling, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.pytorch import private_torch


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


def _result(flat: Callable[[torch.Tensor], torch.Tensor], side: int) -> str:
    """What a network for pictures of 3 × 32 × 32 makes of one picture of 3 × side × side. flat: how it gets its rows."""
    pooled = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))(
        torch.rand(1, 3, side, side)
    )
    try:
        return str(tuple(nn.Linear(16 * 16 * 16, 10)(flat(pooled)).shape))
    except RuntimeError as problem:
        return f"RuntimeError: {problem}"


def flattening() -> Outcome:
    written = [_result(lambda x: x.view(-1, 16 * 16 * 16), side) for side in (32, 64)]
    should = [_result(lambda x: x.flatten(1), side) for side in (32, 64)]
    ways = {"as written": written, "with `flatten(1)`": should}
    return (
        "; ".join(
            f"{way}: one picture of 32×32: {small}; of 64×64: {large}" for way, (small, large) in ways.items()
        ),
        "partly: holds when pictures have this one size; of others it makes several rows each, without an error"
        if written == ["(1, 10)", "(4, 10)"]
        else "confirmed",
    )


def amp_names() -> Outcome:
    with warnings.catch_warnings(record=True) as caught, simulate("H100") as gpu:
        warnings.simplefilter("always")
        model = nn.Linear(16, 4, device=gpu.device)
        optimizer, scaler = torch.optim.SGD(model.parameters()), torch.cuda.amp.GradScaler()
        for _ in range(2):
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                output = model(torch.rand(8, 16).to(gpu.device))
            scaler.scale(output.sum()).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
    messages = {str(w.message).partition(" is deprecated")[0] for w in caught if w.category is FutureWarning}
    deprecated = sorted(name for name in messages if "torch.cuda.amp" in name)
    return (
        f"2 steps run, the model's result is {str(output.dtype).removeprefix('torch.')}; deprecated: {', '.join(deprecated) or 'nothing'}",
        "partly: it runs, and both names are deprecated" if len(deprecated) == 2 else "confirmed",
    )


def max_autotune() -> Outcome:
    modes = ("max-autotune", "max-autotune-no-cudagraphs")
    options = [", ".join(f"{k}={v}" for k, v in private_torch.list_mode_options(m).items()) for m in modes]
    return (
        f"sets {options[0]}; {modes[1]}: sets {options[1]}",
        "partly: it tunes, and switches CUDA graphs on as well"
        if "cudagraphs=True" in options[0]
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
