"""Torch as the compiler wants it: no modes, no hooks, a state of its own, and put back as it was."""

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from helpers.pytorch import private_torch

#: how to get a C++ compiler, which Inductor needs for CPU code
COMPILER = (
    "Inductor builds C++ for the CPU and found no C++ compiler that works. Install one: `apt install g++` (Debian, "
    "Ubuntu), `conda install -c conda-forge cxx-compiler` (conda), `xcode-select --install` (macOS). Graphs, breaks "
    "and guards need none: backend='eager' or 'aot_eager'; nor does compiling.kernels(), which only reads what "
    "Inductor writes."
)


class CannotCompile(RuntimeError):
    """The compiler cannot work here, and what to do about it.

    >>> issubclass(compiling.CannotCompile, RuntimeError)  # an `except` for where no C++ compiler is
    True
    """


def dynamo() -> Any:
    """``torch._dynamo``, imported on first use, the environment left as it is.

    (torch/_dynamo/package.py asks for Inductor's cache folder while it is imported, and asking puts the default one into
    TORCHINDUCTOR_CACHE_DIR.)
    """
    try:
        with mock.patch.dict(os.environ):
            return importlib.import_module("torch._dynamo")
    except Exception as problem:
        raise CannotCompile(
            f"torch {torch.__version__} cannot load its compiler on Python {sys.version.split()[0]}: "
            f"{type(problem).__name__}: {problem}"
        ) from problem


def preload() -> None:
    """Import what the first compilation in a process would; no operator runs and no thread starts.

    For a process that is forked for each answer to grade: its children then start to compile seconds earlier.
    """
    for name in _LOADED_LATE:
        with contextlib.suppress(ImportError):  # names come and go with torch's versions
            importlib.import_module(name)


_LOADED_LATE = """
    torch._dynamo torch._dynamo.backends.registry torch._dynamo.backends.debugging torch._dynamo.backends.inductor
    torch._dynamo.backends.cudagraphs torch._dynamo.backends.distributed torch._dynamo.repro.after_dynamo
    torch.export._trace torch.fx.experimental.validator torch._inductor.compile_fx torch._inductor.graph
    torch._inductor.choices torch._inductor.compiler_bisector torch._inductor.codegen.cpp
    torch._inductor.codegen.cpp_wrapper_cpu_array_ref torch._inductor.codegen.cpp_wrapper_gpu
    torch._inductor.codegen.halide torch._inductor.codegen.pallas torch._inductor.codegen.cuda_combined_scheduling
    torch._inductor.codegen.wrapper_fxir torch._inductor.fx_passes.fuse_attention torch._inductor.fx_passes.pad_mm
    torch._inductor.fx_passes.mkldnn_fusion torch._inductor.fx_passes.quantization
    torch._functorch._aot_autograd.subclass_codegen torch._inductor.runtime.caching
""".split()


@contextmanager
def alone() -> Iterator[None]:
    """A block in which the compiler works as if nothing else was going on, and which leaves nothing behind.

    With a dispatch mode on (a count, a profiler of operators), Dynamo runs everything eagerly; with saved-tensor
    hooks, it compiles them into the graph; what a count puts in the place of ``Tensor.tolist`` it tries to compile.
    All stand aside. What was compiled before is forgotten at the start, what
    was compiled inside at the end; changed settings of Dynamo and Inductor are put back.
    """
    compiler = dynamo()
    with ExitStack() as stack:
        stack.enter_context(_kept_settings())
        stack.enter_context(private_torch.disable_current_modes())
        stack.enter_context(_no_saved_tensor_hooks())
        stack.enter_context(_no_stand_ins())
        compiler.reset()
        stack.callback(compiler.reset)
        yield


@contextmanager
def _no_saved_tensor_hooks() -> Iterator[None]:
    autograd: Any = private_torch.saved_tensors_hooks
    stood: list[Any] = []
    while (hooks := autograd._top_saved_tensors_default_hooks(True)) is not None:
        stood.append(hooks)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(stood):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def _no_stand_ins() -> Iterator[None]:
    """Methods of torch as they are, where a count that is under way has put stand-ins (helpers/counters/standins.py).

    Told by their code: grading counts with a second copy of that module, which no name leads to.
    """
    stood: list[tuple[Any, str, Any]] = []
    for owner in (torch.Tensor, torch.nn.functional):
        for name, value in list(vars(owner).items()):
            code = getattr(value, "__code__", None)
            if code is not None and code.co_name == "stand_in" and code.co_filename.endswith("standins.py"):
                stood.append((owner, name, value))
                bases = getattr(owner, "__mro__", ())[1:]
                if any(vars(base).get(name) is value.__wrapped__ for base in bases):
                    delattr(owner, name)  # it is inherited
                else:
                    setattr(owner, name, value.__wrapped__)
    try:
        yield
    finally:
        for owner, name, value in stood:
            setattr(owner, name, value)


@contextmanager
def _kept_settings() -> Iterator[None]:
    names = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
    kept = [(m, m.get_config_copy()) for n in names if (m := sys.modules.get(n)) is not None]
    try:
        yield
    finally:
        for module, before in kept:
            now = module.get_config_copy()
            for name, value in before.items():
                if now.get(name) is not value and now.get(name) != value:
                    setattr(module, name, value)


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors of a compilation that have a remedy into :class:`CannotCompile`."""
    try:
        yield
    except Exception as problem:
        if remedy := _remedy(f"{type(problem).__name__}: {problem}"):
            raise CannotCompile(remedy) from problem
        raise


def _remedy(error: str) -> str | None:
    """What about this machine kept Inductor's C++ from being built, if that is known."""
    if "No working C++ compiler" in error or "InvalidCxxCompiler" in error:
        return COMPILER
    if "No space left on device" in error or "Disk quota exceeded" in error:
        return (
            f"The folder for temporary files, {tempfile.gettempdir()}, is full: Inductor builds its C++ there. Make "
            "room, or set TMPDIR to a folder that has some and restart the kernel."
        )
    if "CppCompileError" in error:
        cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        for path in (os.path.dirname(torch.__file__), tempfile.gettempdir(), cache):
            if re.search(r"[\s'\"\\]", path):
                return (
                    f"The path {path} holds a space, a quote or a backslash, and Inductor gives its paths to the C++ "
                    "compiler without quotes. Make the environment at a path without any (make lab VENV=/such/a/path); "
                    "for temporary files set TMPDIR to one."
                )
    return None


def original(fn: Any) -> Any:
    """What was given to torch.compile, if ``fn`` came out of it; else ``fn``."""
    if not callable(fn):
        raise TypeError(f"wanted a function or a module to compile, got {type(fn).__name__}: {str(fn)[:60]}")
    return getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn
