"""Backends of torch.compile that count; of them, Inductor up to its last step: it writes its code, and builds nothing.

torch._inductor.utils.get_code does the same, but what it returns cannot be run: a function with a graph break, or a
backward pass, gets no further than its first graph.
"""

import copy
import importlib
import inspect
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch

from helpers.pytorch import private_torch

from .torches import CannotCompile


class _Nothing:
    """In place of the module that would have been built."""

    def call(self, *_: Any) -> None:
        raise AssertionError("this code was only written, not built")


#: no cache is asked and none written (force_disable_caches would leave a folder behind for each graph)
_NO_CACHE = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
#: one thread, no vectors: code that is the same on every machine (an option that a later torch drops is left out)
_PLAIN = {"cpp.threads": 1, "cpp.simdlen": 1}
#: C++ loops called from Python: the code that ``generated`` can read
_READABLE = {"cpp_wrapper": False, "cpu_backend": "cpp"}
_WHICH_COMPILER = ("is_gcc", "is_clang", "is_apple_clang", "is_msvc_cl", "is_intel_compiler")


def _of_torch(fn: Any) -> bool:
    code = getattr(inspect.unwrap(getattr(fn, "func", fn)), "__code__", None)
    return code is None or code.co_filename.startswith(os.path.dirname(torch.__file__))


def write(
    graph: Any, inputs: list[Any], mode: str | None = None, vectors: bool = False,
    seen: Callable[[Any, str], None] = lambda lowered, text: None,
) -> Callable[..., Any]:  # fmt: skip
    """A backend of torch.compile. What was written is in the structured trace, as if Inductor had done it all.

    The graph runs on ATen's kernels. mode: as torch.compile takes it.

    vectors: write for this machine's vector instructions and threads; which ones it has, Inductor finds out by
    building a little program. Otherwise for one thread of a CPU without any.

    seen: is handed each graph as Inductor has it (a GraphLowering with its scheduler), and the Python it wrote.
    """
    try:
        lowering, generate = private_torch.GraphLowering, private_torch.GraphLowering.codegen
        config, lowerings = private_torch.inductor_config, private_torch.lowerings
        cpp_builder, cpu_vec_isa = private_torch.cpp_builder, private_torch.cpu_vec_isa
    except AttributeError as problem:
        raise CannotCompile(str(problem)) from problem

    def written(self: Any) -> Any:
        wrapper, kernels = self.codegen_with_cpp_wrapper() if self.cpp_wrapper else generate(self)
        seen(self, str(getattr(wrapper, "value", wrapper)))
        for part in (wrapper, kernels):
            if text := getattr(part, "value", part):
                tell(str(text))
        return _Nothing()

    def inner(part: Any, part_inputs: Any, **how: Any) -> Any:
        # Inductor's passes change the graph they are given; its constants are fake tensors, which cannot be copied
        shared = {id(held): held for held in vars(part).values() if isinstance(held, torch.Tensor)}
        shared |= {id(held): held for held in part.buffers()}
        runs = copy.deepcopy(part, shared)
        with ExitStack() as stack:  # the backward pass comes here too, later
            stack.enter_context(mock.patch.object(lowering, "compile_to_module", written))
            for module, name, instead in [] if vectors else no_machine:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, instead))
            private_torch.compile_fx_inner(part, part_inputs, **how)
        return private_torch.make_boxed_func(runs.forward)

    # the questions about this machine for which Inductor runs its C++ compiler while it writes
    no_machine: list[tuple[Any, str, Any]] = [(cpu_vec_isa, "valid_vec_isa_list", list)]
    no_machine += [(cpp_builder, name, bool) for name in _WHICH_COMPILER]
    known: dict[str, Any] = config.get_config_copy()  # type: ignore[attr-defined]
    # the graph runs on ATen: what is written has to be written for that graph, by Inductor's own means
    own = {name: value for name, value in _READABLE.items() if name in known}
    own |= {name: None for name, value in known.items() if "_custom_p" in name and callable(value)}
    foreign = [str(op) for op, lowering in lowerings.items() if not _of_torch(lowering)]
    if foreign:
        raise CannotCompile(
            f"Inductor writes {foreign[0]} by code that is not PyTorch's; this helper reads its own"
        )
    plain = {} if vectors else {name: value for name, value in _PLAIN.items() if name in known}
    patches = own | (private_torch.list_mode_options(mode) if mode else {}) | plain | _NO_CACHE
    with config.patch(patches), private_torch.functorch_config.patch(enable_autograd_cache=False):
        compiled: Any = private_torch.compile_fx(graph, inputs, inner_compile=inner, config_patches=patches)
    run: Callable[..., Any] = compiled
    return run


def tell(text: str) -> None:
    """Put generated code into the structured trace, where Inductor itself puts it once it is built."""
    private_torch.trace_structured(
        "inductor_output_code", lambda: {"filename": ""}, payload_fn=lambda: text, expect_trace_id=False
    )


class Backend:
    """A backend of torch.compile by name or as a function, which counts how often its graphs run.

    ``"inductor"`` writes its code and builds none of it (see :func:`write`). So it needs no C++ compiler, no cache can
    change what it says, and it takes a fraction of the time.
    """

    def __init__(self, backend: str | Callable[..., Any]) -> None:
        self.graphs, self.runs = 0, 0
        if callable(backend):
            self.compile = backend
        elif backend == "inductor":
            self.compile = write
        else:
            registry = importlib.import_module("torch._dynamo.backends.registry")
            try:
                self.compile = registry.lookup_backend(backend)
            except Exception as problem:
                known = ", ".join(registry.list_backends(exclude_tags=()))
                raise CannotCompile(f"there is no backend {backend!r}: this torch knows {known}") from problem

    def __call__(self, graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        compiled = self.compile(graph, inputs)
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return compiled(*args)

        return run
