"""Lesson 11's claims on trial: by what its cells measured, recipes of a guide tried as they stand, and its figures for memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import compiling
from helpers.lesson.claim import Claim
from helpers.lessons.torch_compile.experiments import WAYS, Captures, Layer, chain, compiled_pipe
from helpers.pytorch import private_torch
from helpers.text.terminal import quiet

HERE = "Sources on trial"
#: read at commit d7f2062 of August 2026, and at v2.2.0, of the time of the source: the same in both
TORCH_TENSORRT = "Torch-TensorRT's source (github.com/pytorch/TensorRT, py/torch_tensorrt/dynamo)"


def on_trial(captures: Captures, bound: Mapping[str, float], layer: Layer) -> list[Claim]:
    """All claims that the lesson's cells test.

    captures: of section 1; bound: dtype → how many times as fast at most, layer: the recorded one, both of section 3.
    """
    return [_reduce_overhead(), _options_dynamic(), _faster(bound, layer), _fullgraph(captures)]


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
        "refuted: the same code is written, and CUDA graphs come on top" if "triton.cudagraphs" in sets else "confirmed",
        "Further: Modes",
    )  # fmt: skip


def _first_is_dynamic(**how: Any) -> bool:
    """Whether a backend is handed a first graph for any number of rows. how: to torch.compile."""
    symbols = []

    def backend(graph: torch.fx.GraphModule, inputs: Any, **_: Any) -> Any:
        symbols.append(
            any(isinstance(n, torch.SymInt) for x in inputs for n in (x, *getattr(x, "shape", ())))
        )
        return graph

    torch.compiler.reset()
    torch.compile(_rescale, backend=backend, **how)(torch.rand(8, 3))
    return symbols[0]


def _told(options: dict[str, Any]) -> tuple[str, bool]:
    """What such options change of the first graph that a backend is handed, in words; and whether they make it dynamic."""
    asked, told = _first_is_dynamic(dynamic=True), _first_is_dynamic(options=options)
    sizes = {True: "any size", False: "one size"}
    return (
        f"a stand-in for a backend is handed a first graph for {sizes[told]} with these options, for {sizes[asked]} with torch.compile(…, dynamic=True)",
        told,
    )


def _options_dynamic() -> Claim:
    told, dynamic = _told({"dynamic": True})
    return Claim(
        "11-options-dynamic", "compile-300", 'backend="tensorrt", options={"dynamic": True} takes inputs of dynamic shape',
        f"{TORCH_TENSORRT}: utils.py keeps of the options those that CompilationSettings has, and drops the others without a word; it has no `dynamic`. "
        f"Here {told}",
        "confirmed" if dynamic else "refuted: there is no such option; dynamic=True belongs to torch.compile itself",
        "2 · What is assumed",
    )  # fmt: skip


def _faster(bound: Mapping[str, float], layer: Layer) -> Claim:
    shares = " and ".join(f"{1 / times:.0%} ({dtype})" for dtype, times in bound.items())
    most = " and ".join(f"{times:.1f} ({dtype})" for dtype, times in bound.items())
    fused = " and ".join(f"{layer.fused(dtype):.1f} ({dtype})" for dtype in bound)
    return Claim(
        "11-300-percent", "compile-300", "training 300 % faster (72 h → 24 h), steps of 800 ms → 200 ms",
        f"72 ÷ 24 is {72 / 24:.0f} times, {72 / 24 - 1:.0%} faster, while its steps are {800 / 200:.0f} times; fusion alone, simulated: a Transformer layer "
        f"at most {most} times, since products and attention take {shares} of it; a chain of six pointwise operators (Further: Fewer walks) "
        f"{chain().time:.1f} times. Recorded, from a CUDA graph of eager kernels to one of compiled kernels: that layer {fused} times",
        "partly: by fusion alone, when products take at most a third of the GPU's time, and the rest costs next to nothing"
        if max(bound.values()) < 3 <= chain().time
        else "refuted" if chain().time < 3
        else "confirmed",
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
    """Either "ran", or what it raised, by the first sentence."""
    try:
        with quiet(), compiling.watch():
            fn()
        return "ran"
    except Exception as problem:
        # what follows are lists of all that is known, or advice
        text = re.split(r", known |\n|(?<=[^.]{9})\. ", str(problem), maxsplit=1)[0]
        return f"{type(problem).__name__}: {' '.join(text.split()).rstrip('.')}"


def _double(x: Tensor) -> Tensor:
    return torch.relu(x * 2)


def _recipe(id: str, claim: str, run: Callable[[], Any], why: str = "") -> Claim:
    """A recipe of the guide, run as it stands. why: what follows on "refuted"."""
    outcome = _tried(run)
    return Claim(
        id, "compile-300", claim, outcome, "confirmed" if outcome == "ran" else f"refuted{why}", HERE
    )


def tensorrt() -> Claim:
    """The claim "11-tensorrt"."""
    tried = _tried(lambda: torch.compile(_double, backend="tensorrt")(torch.rand(3)))
    outcome = tried.partition(", see")[0]  # which list the message names changes with PyTorch
    return Claim(
        "11-tensorrt", "compile-300", 'torch.compile(model, backend="tensorrt") uses TensorRT',
        f"as printed, without an import of Torch-TensorRT: {outcome}. {TORCH_TENSORRT}: backend/backends.py registers the name when `torch_tensorrt` "
        "is imported",
        "partly: holds once `import torch_tensorrt` has run, which is a package of its own and takes a GPU; the source has no such line"
        if outcome.startswith("InvalidBackend") else "confirmed" if outcome == "ran" else "refuted",
        HERE,
    )  # fmt: skip


def shape_options() -> Claim:
    """The claim "11-min-opt-max"."""
    told, dynamic = _told({"min_shape": (1, 3), "opt_shape": (8, 3), "max_shape": (64, 3)})
    return Claim(
        "11-min-opt-max", "compile-300", 'backend="tensorrt" with min_shape, opt_shape and max_shape optimises convolutions of dynamic size',
        f"{TORCH_TENSORRT}: CompilationSettings has none of the three, and utils.py drops them without a word. They are arguments of torch_tensorrt.Input, "
        f"for torch_tensorrt.compile; with torch.compile its guide has mark_dynamic(x, 0, min=…, max=…). Here {told}",
        "confirmed" if dynamic else "refuted: there are no such options",
        HERE,
    )  # fmt: skip


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
    return _recipe("11-three-steps", claim, steps, ": optimize takes a backend, and gives a decorator")


def pipe() -> Claim:
    """The claim "11-pipe", on a stand-in: an object that calls its network in a loop."""
    (whole, _), (full, _), (inner, _) = (compiled_pipe(way, [4]) for way in WAYS[:3])
    eight, _ = compiled_pipe(WAYS[1], [8])
    (all_of_it, _), (net, _) = (compiled_pipe(way, [4, 4, 4]) for way in WAYS[1:3])
    one_graph = (
        f"{full.operators}, for 8 steps {eight.operators}, {len(all_of_it.graphs)} graphs after 3 calls"
    )
    return Claim(
        "11-pipe", "compile-300", "torch.compile(pipe) compiles a diffusion pipeline",
        f"stand-in: {len(whole.breaks)} break, {whole.operators} operators captured; fullgraph=True: "
        f"{one_graph if full.graphs else 'an error'}; its network alone: {inner.operators}, {len(net.graphs)} graph",
        "partly: holds when Python between the graphs is acceptable; compile the network inside"
        if not full.graphs or full.operators > inner.operators else "confirmed",
        "Two models",
    )  # fmt: skip


def one_kernel() -> Claim:
    """The claim "11-one-kernel": convolution, ReLU and BatchNorm, training."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(8))
    with torch.no_grad():
        kernels = compiling.kernels(net, torch.rand(4, 3, 16, 16))
        inference = compiling.kernels(net.eval(), torch.rand(4, 3, 16, 16))
    call: Any = lambda: F.batch_norm(torch.rand(4, 8, 16, 16))  # type: ignore[call-arg]  # noqa: E731
    outcome = _tried(call)
    return Claim(
        "11-one-kernel", "compile-300", "convolution, ReLU and batch_norm(x) become one kernel",
        f"{len(kernels.extern)} library call (the convolution), {len(kernels.fused)} generated kernels with {kernels.loops} loop nests; in eval() {len(inference.extern)} and {len(inference.fused)}. F.batch_norm(x), as printed: {outcome}",
        "confirmed" if max(kernels.count, inference.count) == 1
        else "partly: activation and normalisation are fused; the convolution stays a library's call" if all(any("relu" in name and "batch_norm" in name for name in k.fused) for k in (kernels, inference))
        else "refuted",
        "3 · The kernel, read",
    )  # fmt: skip


def is_there() -> Claim:
    """The claim "11-is-not-none": what the check says where no graph can be built."""
    with private_torch.inductor_config.patch("cpp.cxx", ("no-such-compiler",)):
        outcome = _tried(lambda: torch.compile(_double)(torch.rand(5)))
    return Claim(
        "11-is-not-none", "compile-300", "`torch.compile is not None` shows that compiling works",
        f"{torch.compile is not None}, also where no C++ compiler is found; a compiled call there: {outcome}",
        "refuted: call a compiled function once" if outcome != "ran" else "confirmed", HERE,
    )  # fmt: skip
