"""Lesson 11: recipes of a guide to torch.compile, tried as they stand, and its figures for memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from helpers import compiling
from helpers.lesson.claim import Claim
from helpers.lessons.torch_compile.experiments import WAYS, compiled_pipe, tried
from helpers.pytorch import private_torch

#: id, source, claim, measured, verdict, experiment
HERE = "Sources on trial"


def _double(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


def _refused(said: str, why: str = "") -> str:
    return f"refuted{why}" if said != "ran" else "confirmed"


def tensorrt() -> Claim:
    """The claim "11-tensorrt"."""
    said = tried(lambda: torch.compile(_double, backend="tensorrt")(torch.rand(3)))
    why = " for torch alone: another package, Torch-TensorRT, would have to register it"
    return Claim(
        "11-tensorrt",
        "compile-300",
        'backend="tensorrt"',
        said,
        _refused(said, why),
        HERE,
    )


def shape_options() -> Claim:
    """The claim "11-min-opt-max": Inductor's answer to a TensorRT backend's options."""
    options: Any = {"min_shape": (1, 3), "opt_shape": (8, 3), "max_shape": (64, 3)}
    said = tried(lambda: torch.compile(_double, options=options)(torch.rand(8, 3)))
    return Claim(
        "11-min-opt-max", "compile-300", "options= min_shape, opt_shape and max_shape make dynamic sizes fast", f"Inductor: {said}",
        _refused(said, " for torch alone: dynamic=True and mark_dynamic(x, 0, min=…, max=…) are its words for it"), HERE,
    )  # fmt: skip


def negative_size() -> Claim:
    """The claim "11-randn"."""
    said = tried(lambda: torch.randn((-1, 3, 32, 32)))
    return Claim(
        "11-randn",
        "compile-300",
        "torch.randn((-1, 3, 32, 32)) is a dynamic input",
        said,
        _refused(said),
        HERE,
    )


def three_steps() -> Claim:
    """The claim "11-three-steps"."""

    def steps() -> Any:
        traced = torch.fx.symbolic_trace(nn.Linear(4, 4))
        return torch.compile(private_torch.dynamo_optimize(traced))(torch.rand(2, 4))

    said = tried(steps)
    return Claim(
        "11-three-steps", "compile-300", "symbolic_trace, then _dynamo.optimize(traced), then torch.compile", said,
        _refused(said, ": optimize takes a backend and gives no function"), HERE,
    )  # fmt: skip


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
        found = compiling.kernels(net, torch.rand(4, 3, 16, 16))
    call: Any = lambda: F.batch_norm(torch.rand(4, 8, 16, 16))  # type: ignore[call-arg]  # noqa: E731
    said = tried(call)
    return Claim(
        "11-one-kernel", "compile-300", "convolution, ReLU and batch_norm(x) become one kernel",
        f"{len(found.extern)} library call (the convolution), {len(found.fused)} generated kernels with {found.loops} loop nests; F.batch_norm(x): {said}",
        "refuted" if found.count > 1 else "confirmed", "3 · The kernel, read",
    )  # fmt: skip


def is_there() -> Claim:
    """The claim "11-is-not-none": what the check says where no graph can be built."""
    with private_torch.inductor_config.patch("cpp.cxx", ("no-such-compiler",)):
        said = tried(lambda: torch.compile(_double)(torch.rand(5)))
    return Claim(
        "11-is-not-none", "compile-300", "`torch.compile is not None` shows that compiling works",
        f"{torch.compile is not None}, also where no C++ compiler is found; a compiled call there: {said}",
        "refuted: call a compiled function once" if said != "ran" else "untested: this call needed no C++ compiler", HERE,
    )  # fmt: skip


def saved_bytes(compiled: bool) -> int:
    """Bytes that autograd keeps for the backward pass of a chain of six pointwise operators on 4 KiB."""

    def six(x: torch.Tensor) -> torch.Tensor:
        return x.exp().neg().tanh().sigmoid().sin().relu()

    x, kept = torch.rand(1024, requires_grad=True), {}

    def pack(t: torch.Tensor) -> torch.Tensor:
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
    eager, compiled = saved_bytes(False), saved_bytes(True)
    return Claim(
        "11-half-memory", "compile-300", "torch.compile halves memory (12 GB → 6 GB)",
        f"saved for backward by a chain of six pointwise operators, beside its input: {eager:,} bytes, compiled {compiled:,}",
        "partly: fusion keeps fewer results between pointwise operators; weights, gradients and optimizer states are not fewer, and "
        "the source's model is not given" if compiled < eager else "refuted here", HERE,
    )  # fmt: skip
