"""Triton's interpreter, made to tell each load and store and to stay within the tensors of a launch.

All that the course knows of Triton's inside stands in this file; tests/test_kernels.py says what of it is gone.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import cache, partial, partialmethod
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, ClassVar

import torch

from helpers.kernels import language
from helpers.kernels.compiled import program
from helpers.kernels.memory import Memory, OutOfBounds, Region, reach, regions
from helpers.kernels.traffic import Launch, Moved, tell

HOW = "make lab EXTRAS=kernels"
OLDEST = (3, 7)
"""The first Triton whose interpreter is made as this file knows it; pyproject.toml asks for it too."""

_INTERPRETER = "triton.runtime.interpreter"


class NeedsTriton(RuntimeError):
    """A kernel cannot be launched: Triton is not installed, or too old. See :func:`available`."""


class _Running:
    """The launch that runs now, where its pointers may reach, which program stored at an address, and whether the load that runs
    now has an `other`."""

    launch: Launch | None = None
    within: tuple[Region, ...] = ()
    storer: ClassVar[dict[int, Any]] = {}
    with_other: bool = False


def available() -> bool:
    """Whether Triton is installed, and no older than OLDEST: torch 2.11 brings 3.6.

    >>> kernels.available()
    True
    """
    spec = find_spec("triton")
    if spec is None or spec.origin is None:  # a folder of this name is no package
        return False
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2]) >= OLDEST
    except PackageNotFoundError:  # it came with a package of another name
        return True


def load() -> tuple[Any, Any]:
    """``triton`` and ``triton.language``, kernels run by the interpreter; stand-ins where Triton is not installed.

    From then on the interpreter runs all kernels of this process, also Inductor's for a GPU.

    >>> triton, tl = kernels.load()
    >>> triton.cdiv(100, 32)
    4
    """
    if not available():
        return _Absent("triton"), _Absent("triton.language")
    if _INTERPRETER in sys.modules and not sys.modules[_INTERPRETER]:  # closed
        del sys.modules[_INTERPRETER]
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, and at each @triton.jit
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_told_to_the_course"):
        _interpret_all(interpreter, tl)
        _listen(interpreter, tl)
        interpreter._told_to_the_course = True
    return triton, tl


def close() -> None:
    """Until :func:`load` Triton interprets nothing in this process, where it was not loaded yet: as it comes, its interpreter runs
    texts as code.

    >>> kernels.close()
    """
    if _INTERPRETER not in sys.modules:
        sys.modules[_INTERPRETER] = None  # type: ignore[assignment]  # an import of it fails


class _Absent:
    """In place of a module of Triton: kernels can be written down with it, and say what is missing when launched."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")

    def __getitem__(self, grid: Any) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._name == "triton.jit" and len(args) == 1 and callable(args[0]):
            return _Absent(args[0].__name__)
        if self._name == "triton.jit":
            return self
        raise NeedsTriton(
            f"`{self._name}` needs Triton, which is not installed here, or is older than 3.7: {HOW} (1 GB)"
        )


def _interpret_all(interpreter: Any, tl: Any) -> None:
    """What Triton itself has written in its language (tl.sum, …), where torch has loaded it for the compiler before."""
    from triton.runtime.jit import JITFunction

    made = dict[int, Any]()
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "triton"]
    for owner in (*modules, tl.tensor):
        for name, value in list(vars(owner).items()):
            if isinstance(value, JITFunction):
                ours = made.setdefault(id(value), interpreter.InterpretedFunction(value.fn))
                # block.sum(0) hands the block on
                setattr(owner, name, partialmethod(ours) if owner is tl.tensor else ours)


def _listen(interpreter: Any, tl: Any) -> None:
    """Wrap what loads, stores, compares and launches."""
    builder, function = interpreter.InterpreterBuilder, interpreter.InterpretedFunction
    semantic, whole_load = interpreter.TritonSemantic, interpreter.TritonSemantic.load
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas
    load, store = builder.create_masked_load, builder.create_masked_store
    comparing = [name for name in vars(builder) if name.startswith(("create_icmp", "create_fcmp"))]
    combining = interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan

    def moved(pointers: Any, mask: Any, verb: str, *ways: str) -> Any:
        """The handle of the addresses that are meant; what goes there is counted."""
        if _Running.launch is None:
            raise OutOfBounds("a load or a store outside of a launch")
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        active = mask.data if mask is not None else _all(pointers)
        where, counts = reach([*_Running.within], pointers.data, active, size, verb)
        _Running.launch.lanes += where.size if "loads" in ways else 0
        for way in ways:
            of = getattr(_Running.launch, way)
            for name, part in counts.items():
                of[name] = of.get(name, Moved()) + part
            if len(counts) == 1:
                of[min(counts)].lanes += where.size
        return interpreter.TensorHandle(where, pointers.dtype)

    def _all(pointers: Any) -> Any:
        return interpreter.np.ones_like(pointers.data, dtype=bool)

    def semantic_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        """Triton's own hands no `other` on where that is one number, and 0: there it counts as false."""
        _Running.with_other = other is not None
        try:
            return whole_load(self, pointers, mask, other, *rest)
        finally:
            _Running.with_other = False

    def masked_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        where = moved(pointers, mask, "loads", "loads")
        # Triton promises nothing of masked lanes; the 0 of its interpreter would hide what a GPU may show
        if other is None:
            of, np = pointers.get_element_ty(), interpreter.np
            kind = interpreter._get_np_dtype(of)
            fill = 0 if _Running.with_other else 0xFF  # NaN, as in a Memory
            bits = np.full(where.data.size * kind.itemsize, fill, np.uint8)
            other = interpreter.TensorHandle(bits.view(kind).reshape(where.data.shape), of)
        return load(self, where, mask, other, *rest)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        meant = moved(pointers, mask, "stores", "stores")
        active = interpreter.np.broadcast_to(mask.data, meant.data.shape) if mask is not None else _all(meant)
        program, launch = tuple(self.grid_idx), _Running.launch
        assert launch is not None  # `moved` has refused it
        for address in meant.data[active].tolist():
            if _Running.storer.setdefault(address, program) not in (program, None):
                launch.raced += 1
                _Running.storer[address] = None  # counted
        return store(self, meant, value, mask, *rest)

    def atomic_rmw(self: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return rmw(self, op, moved(pointers, mask, "changes", "loads", "stores"), value, mask, *rest)

    def atomic_cas(self: Any, pointers: Any, *rest: Any) -> Any:
        return cas(self, moved(pointers, None, "changes", "loads", "stores"), *rest)

    def compared(by: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
        """Triton's own has the type of what was compared: `mask & (row < rows)` then makes integers, and is no mask."""

        def run(self: Any, left: Any, right: Any) -> Any:
            return interpreter.TensorHandle(by(self, left, right).data, tl.int1)

        return run

    class Rewriter(ast.NodeTransformer):
        visit_Compare = interpreter.ASTTransformer.visit_Compare
        visit_Assign = interpreter.ASTTransformer.visit_Assign

    def is_kernel(value: Any) -> bool:
        return type(value) is function

    @cache
    def written(python: FunctionType) -> tuple[ast.FunctionDef, CodeType]:
        """A kernel's tree, and the code that is made of it: of this tree, and of no text."""
        tree = language.read(python)
        bare = deepcopy(tree)
        bare.decorator_list, bare.returns, given = [], None, bare.args
        given.defaults, given.kw_defaults = [], [None for _ in given.kw_defaults]
        for argument in ast.walk(given):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        module = ast.fix_missing_locations(ast.Module([Rewriter().visit(bare)], []))
        codes = compile(module, python.__code__.co_filename, "exec", dont_inherit=True).co_consts
        return tree, next(code for code in codes if isinstance(code, CodeType))

    def runs(kernel: Any) -> FunctionType:
        """What runs when a kernel does. Where only kernels may compute it is held, and knows no other names."""
        python = kernel.fn if is_kernel(kernel) else None
        if type(python) is not FunctionType:  # nor what passes for one
            raise language.NotTriton(f"a {type(kernel).__name__} is no kernel: write it under @triton.jit")
        tree, code = written(python)
        names = python.__globals__
        name = str(names.get("__name__"))
        # tl.sum and the like: functions of a module, and not of a namespace that says so
        of_triton = name.partition(".")[0] == "triton" and names is vars(sys.modules.get(name, ast))
        if not of_triton:
            names = language.hold(tree, names, tl, is_kernel) if Memory.entered() else dict(names)
            names["_tl"] = tl  # Triton looks for it, by no name
        for name in ("interpreter_semantic", "_InterpreterComparison"):  # a rewritten kernel uses these two
            names[name] = getattr(interpreter, name)
        made = FunctionType(code, names, code.co_name, python.__defaults__)
        made.__kwdefaults__, made.__annotations__ = python.__kwdefaults__, dict(python.__annotations__)
        return made

    def launched(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return
        made = runs(self)
        # options of the compiler, such as num_warps, are no arguments
        names = inspect.getcallargs(
            made, *args, **{name: value for name, value in kwargs.items() if name in self.arg_names}
        )
        shape = grid(dict(names)) if callable(grid) else grid
        shape = (shape,) if isinstance(shape, int) else tuple(int(along) for along in shape)
        if Memory.entered():
            if _Running.launch is None:
                _restore(classes)
            made = runs(self)  # now nothing but kernels runs until its end
            _hold(made.__name__, names, tl)
        before = _Running.launch, _Running.within, _Running.storer
        _Running.launch = Launch(made.__name__, shape)
        _Running.launch.program = partial(program, self.fn, dict(names), tl, is_kernel)
        _Running.within, _Running.storer = tuple(regions(names)), {}
        tell(_Running.launch)
        memory = Memory.entered()
        with memory.alone() if memory else nullcontext():
            try:
                interpreter.GridExecutor(made, [*names], shape)(**names)
            except interpreter.InterpreterError as problem:
                raise _cause(problem, interpreter) from None
            finally:
                _Running.launch, _Running.within, _Running.storer = before

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = runs(self)
        interpreter._patch_lang(made)
        try:
            return made(*args, **kwargs)
        except Exception as problem:
            raise interpreter.InterpreterError(repr(problem)) from problem

    def combined(by: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run(self: Any, blocks: Any) -> Any:
            self.combine_fn = SimpleNamespace(fn=runs(self.combine_fn))
            return by(self, blocks)

        return run

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
    semantic.load = semantic_load
    for name in comparing:
        setattr(builder, name, compared(getattr(builder, name)))
    function.run, function.__call__ = launched, called
    interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan = map(combined, combining)
    # Triton's own way cuts a text by lines that begin with "def ", also within texts
    del interpreter.FunctionRewriter.rewrite_ast, interpreter.FunctionRewriter._transform_ast
    del interpreter.FunctionRewriter._compile_and_exec, function.rewrite
    inside = interpreter, tl.core, sys.modules[interpreter.TritonSemantic.__module__]
    classes = {
        kind: dict(vars(kind))
        for module in inside
        for kind in vars(module).values()
        if isinstance(kind, type)
    }


def _restore(classes: Mapping[type, Mapping[str, Any]]) -> None:
    """Triton's classes as they were: a method that somebody gave them would be Python within kernels."""
    for kind, own in classes.items():
        for name, value in list(vars(kind).items()):
            if name[:2] == "__" or value is own.get(name, _restore):
                continue
            if name in own:
                setattr(kind, name, own[name])
            else:
                delattr(kind, name)


def _hold(kernel: str, arguments: Mapping[str, Any], tl: Any) -> None:
    """Where only kernels may compute, they are handed nothing that computes."""
    for name, value in arguments.items():
        if type(value) not in (torch.Tensor, torch.nn.Parameter) and not language.is_plain(value, tl):
            raise language.NotTriton(
                f"{kernel} was handed a {type(value).__name__} as `{name}`: wanted tensors and numbers"
            )


def _cause(problem: BaseException, interpreter: Any) -> BaseException:
    """What went wrong in a kernel, without the interpreter's envelopes."""
    while isinstance(problem, interpreter.InterpreterError) and problem.__cause__ is not None:
        problem = problem.__cause__
    return problem
