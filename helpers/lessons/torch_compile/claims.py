"""Lesson 11's claims on trial: by what its cells measured, recipes of a guide tried as they stand, and its figures for memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import compiling
from helpers.lesson.claim import Claim
from helpers.lessons.torch_compile.experiments import WAYS, Captures, Stream, chain, compiled_pipe, quiet
from helpers.pytorch import private_torch

HERE = "Sources on trial"


def on_trial(captures: Captures, streams: Mapping[str, Stream], bound: Mapping[str, float]) -> list[Claim]:
    """All claims that the lesson's cells test.

    captures: of section 1; streams: setting → calls, of section 2; bound: dtype → how many times as fast at most, of section 3.
    """
    return [_reduce_overhead(), _options_dynamic(streams), _faster(bound), _fullgraph(captures)]


def _rescale(x: Tensor) -> Tensor:
    x = x - x.min()
    return x / x.max()


def _reduce_overhead() -> Claim:
    sets = private_torch.list_mode_options()["reduce-overhead"]
    x = torch.rand(16, 16)
    plain, mode = (compiling.kernels(_rescale, x, mode=m).bodies() for m in ("default", "reduce-overhead"))
    return Claim(
        "11-reduce-overhead", "compile-300", 'mode="reduce-overhead" reduces compile time',
        f"it sets {', '.join(sets)}; the kernels for the CPU are {'the same' if plain == mode else 'others'} as without it",
        "refuted: the same code is written, and CUDA graphs come on top" if "triton.cudagraphs" in sets else "untested",
        "Further: Modes",
    )  # fmt: skip


def _options_dynamic(streams: Mapping[str, Stream]) -> Claim:
    outcome = _tried(lambda: torch.compile(_rescale, options={"dynamic": True})(torch.rand(3)))
    known = streams["dynamic=True"]
    return Claim(
        "11-options-dynamic", "compile-300", 'options={"dynamic": True} gives dynamic shapes',
        f"{outcome}; dynamic=True: {known.after[-1]} compilations for {len(set(known.sizes))} sizes",
        "refuted" if outcome != "ran" else "confirmed", "2 · What is assumed",
    )  # fmt: skip


def _faster(bound: Mapping[str, float]) -> Claim:
    shares = " and ".join(f"{1 / times:.0%} ({dtype})" for dtype, times in bound.items())
    most = " and ".join(f"{times:.1f} ({dtype})" for dtype, times in bound.items())
    return Claim(
        "11-300-percent", "compile-300", "training 300 % faster (72 h → 24 h), steps of 800 ms → 200 ms",
        f"72 ÷ 24 is {72 / 24:.0f} times, {72 / 24 - 1:.0%} faster, while its steps are {800 / 200:.0f} times; simulated: a Transformer layer "
        f"at most {most} times, since products take {shares} of it; a chain of six pointwise operators {chain().time:.1f} times",
        "partly: holds when products take at most a third of a step, and the rest costs next to nothing"
        if max(bound.values()) < 3 else "untested: the model is not given",
        "3 · The kernel, read",
    )  # fmt: skip


def _fullgraph(captures: Captures) -> Claim:
    kept = [name for name, (_, _, error) in captures.items() if error]
    return Claim(
        "11-fullgraph", "book-notes", "fullgraph=True gives the whole graph",
        f"of {len(captures)} functions with a break {len(captures) - len(kept)} in one graph; an error for: {', '.join(kept)}",
        "partly: holds when what breaks is a number or a size read from the data; else it raises" if kept else "confirmed",
        "1 · What is captured",
    )  # fmt: skip


def _tried(fn: Callable[[], Any]) -> str:
    """Either "ran", or what it raised, in few words."""
    try:
        with quiet(), compiling.watch():
            fn()
        return "ran"
    except Exception as problem:
        text = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        return text if len(text) <= 60 else text[:60].rpartition(" ")[0] + " …"


def _double(x: Tensor) -> Tensor:
    return torch.relu(x * 2)


def _recipe(id: str, claim: str, run: Callable[[], Any], why: str = "", by: str = "") -> Claim:
    """A recipe of the guide, run as it stands. why: what follows on "refuted". by: whose words the outcome is in."""
    outcome = _tried(run)
    verdict = "confirmed" if outcome == "ran" else f"refuted{why}"
    return Claim(id, "compile-300", claim, f"{by}{outcome}", verdict, HERE)


def tensorrt() -> Claim:
    """The claim "11-tensorrt"."""
    return _recipe(
        "11-tensorrt",
        'backend="tensorrt"',
        lambda: torch.compile(_double, backend="tensorrt")(torch.rand(3)),
        " for torch alone: another package, Torch-TensorRT, would have to register it",
    )


def shape_options() -> Claim:
    """The claim "11-min-opt-max": Inductor's answer to a TensorRT backend's options."""
    options: Any = {"min_shape": (1, 3), "opt_shape": (8, 3), "max_shape": (64, 3)}
    return _recipe(
        "11-min-opt-max",
        "options= min_shape, opt_shape and max_shape make dynamic sizes fast",
        lambda: torch.compile(_double, options=options)(torch.rand(8, 3)),
        " for torch alone: dynamic=True and mark_dynamic(x, 0, min=…, max=…) are its words for it",
        by="Inductor: ",
    )


def negative_size() -> Claim:
    """The claim "11-randn"."""
    claim = "torch.randn((-1, 3, 32, 32)) is a dynamic input"
    return _recipe("11-randn", claim, lambda: torch.randn((-1, 3, 32, 32)))


def three_steps() -> Claim:
    """The claim "11-three-steps"."""

    def steps() -> Any:
        traced = torch.fx.symbolic_trace(nn.Linear(4, 4))
        return torch.compile(private_torch.dynamo_optimize(traced))(torch.rand(2, 4))

    claim = "symbolic_trace, then _dynamo.optimize(traced), then torch.compile"
    return _recipe("11-three-steps", claim, steps, ": optimize takes a backend and gives no function")


def pipe() -> Claim:
    """The claim "11-pipe", on a stand-in: an object that calls its network in a loop."""
    (whole, _), (full, _), (inner, _) = (compiled_pipe(way, [4]) for way in WAYS[:3])
    eight, _ = compiled_pipe(WAYS[1], [8])
    (all_of_it, _), (net, _) = (compiled_pipe(way, [4, 4, 4]) for way in WAYS[1:3])
    return Claim(
        "11-pipe", "compile-300", "torch.compile(pipe) compiles a diffusion pipeline",
        f"stand-in: {len(whole.breaks)} break, {whole.operators} operators captured; fullgraph=True: {full.operators}, for 8 steps "
        f"{eight.operators}, {len(all_of_it.graphs)} graphs after 3 calls; its network alone: {inner.operators}, {len(net.graphs)} graph",
        "partly: holds when Python between the graphs is acceptable; compile the network inside"
        if full.operators > inner.operators else "confirmed",
        "Two models",
    )  # fmt: skip


def one_kernel() -> Claim:
    """The claim "11-one-kernel": convolution, ReLU and BatchNorm, training."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(8))
    with torch.no_grad():
        kernels = compiling.kernels(net, torch.rand(4, 3, 16, 16))
    call: Any = lambda: F.batch_norm(torch.rand(4, 8, 16, 16))  # type: ignore[call-arg]  # noqa: E731
    outcome = _tried(call)
    return Claim(
        "11-one-kernel", "compile-300", "convolution, ReLU and batch_norm(x) become one kernel",
        f"{len(kernels.extern)} library call (the convolution), {len(kernels.fused)} generated kernels with {kernels.loops} loop nests; F.batch_norm(x): {outcome}",
        "refuted" if kernels.count > 1 else "confirmed", "3 · The kernel, read",
    )  # fmt: skip


def is_there() -> Claim:
    """The claim "11-is-not-none": what the check says where no graph can be built."""
    with private_torch.inductor_config.patch("cpp.cxx", ("no-such-compiler",)):
        outcome = _tried(lambda: torch.compile(_double)(torch.rand(5)))
    return Claim(
        "11-is-not-none", "compile-300", "`torch.compile is not None` shows that compiling works",
        f"{torch.compile is not None}, also where no C++ compiler is found; a compiled call there: {outcome}",
        "refuted: call a compiled function once" if outcome != "ran" else "untested: this call needed no C++ compiler", HERE,
    )  # fmt: skip


def _saved_bytes(compiled: bool) -> int:
    """Bytes that autograd keeps for the backward pass of a chain of six pointwise operators on 4 KiB."""

    def six(x: Tensor) -> Tensor:
        return x.exp().neg().tanh().sigmoid().sin().relu()

    x, kept = torch.rand(1024, requires_grad=True), {}

    def pack(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with compiling.watch("inductor" if compiled else None):
        fn = torch.compile(six) if compiled else six
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            fn(x)
    kept.pop(x.untyped_storage().data_ptr(), None)
    return sum(kept.values())


def half_the_memory() -> Claim:
    """The claim "11-half-memory"."""
    eager, compiled = _saved_bytes(False), _saved_bytes(True)
    return Claim(
        "11-half-memory", "compile-300", "torch.compile halves memory (12 GB → 6 GB)",
        f"saved for backward by a chain of six pointwise operators, beside its input: {eager:,} bytes, compiled {compiled:,}",
        "partly: fusion keeps fewer results between pointwise operators; weights, gradients and optimizer states are not fewer, and "
        "the source's model is not given" if compiled < eager else "refuted here", HERE,
    )  # fmt: skip
