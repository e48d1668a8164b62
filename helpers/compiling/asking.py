"""Ask the compiler: run something under its eyes and report."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from helpers.pytorch.tensors import tensors

from .backends import Backend, write
from .generated import Kernels
from .listening import listen
from .reading import read
from .records import Report
from .torches import CannotCompile, alone, explained, original


@contextmanager
def watch(backend: str | Callable[..., Any] | None = None) -> Iterator[Report]:
    """Report on all that is compiled in a block: ``with compiling.watch() as w: torch.compile(f)(x)``.

    backend: compile with this one, whatever the program asks for: ``"eager"`` (graphs, breaks, guards and
    recompiles only, the fastest), ``"aot_eager"`` (the backward graph too), ``"inductor"`` (its code is written and
    not built), or a function. The program's own ``fullgraph=True`` then does nothing: it raises no error (its breaks
    are in the report), captures no ``.item()`` and no ``x[mask]``, and what comes behind a break stays Python. To
    see what it does, give the backend to torch.compile itself. None: each as asked for.

    The report is filled when the block ends, also when it raises. What was compiled before is forgotten at the start,
    what was compiled inside at the end. Counters and other dispatch modes see nothing of the block: Dynamo does not
    compile while one is on, so they stand aside. Settings of ``torch._dynamo.config`` that are changed inside hold
    until the end of the block.

    Raises :class:`CannotCompile` with a remedy where there is one (no C++ compiler), else what the block raised.

    >>> with compiling.watch("eager") as report:
    ...     compiled = torch.compile(torch.relu)
    ...     y = compiled(x), compiled(torch.ones(8))
    >>> report.counts()["recompiles"]
    1
    """
    report = Report()
    with explained(), alone(), ExitStack() as stack:
        counted = None if backend is None else Backend(backend)
        if counted is not None:
            stack.enter_context(torch.compiler.set_stance(force_backend=counted))
        events = stack.enter_context(listen())
        try:
            yield report
        finally:
            read(events, report)
            if counted is not None:
                report.runs = counted.runs
                told_of_all(counted, report)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile ``fn`` for these arguments and say what Dynamo made of it. ``fn`` runs once, for real.

    fn: a function or a module; what torch.compile returned is taken for what it was made from.
    The graphs run as they are (backend ``"eager"``), so this takes tenths of a second. The result is ``.result``.

    >>> report = compiling.explain(double, x)
    >>> len(report.graphs), report.graphs[0].operators, len(report.breaks)
    (2, ('Tensor.relu', 'add', 'Tensor.sum', 'gt'), 1)
    """
    with watch("eager") as report:
        report.result = torch.compile(original(fn))(*args, **kwargs)
    return report


def kernels(
    fn: Callable[..., Any], *args: Any, mode: str | None = None, vectors: bool = False, **kwargs: Any
) -> Kernels:
    """The code that Inductor writes for ``fn`` with these arguments: kernels, in the order of their calls.

    mode: as in torch.compile. vectors: write for this machine's threads and vector instructions, as torch.compile
    would (needs a C++ compiler to find out which); by default for one thread of a CPU without any, which is easier to
    read and the same everywhere. Nothing is built and no cache is asked: the answer is the same with caches full
    or empty. ``fn`` runs once, on ATen's kernels, and backward if a result requires grad; the gradients that this
    leaves are taken away again.

    >>> compiling.kernels(lambda x: x.relu() + 1, x).fused
    ['cpp_fused_add_relu_0']
    """
    plain, backend = original(fn), Backend(partial(write, mode=mode, vectors=vectors))
    with watch() as report:
        result = torch.compile(plain, backend=backend)(*args, **kwargs)
        own = list(plain.parameters()) if isinstance(plain, torch.nn.Module) else []
        _backward(result, [*tensors((args, kwargs)), *own])
    told_of_all(backend, report)
    if not backend.graphs:
        why = "; ".join(c.failed for c in report.failures) or "there is no tensor operation in it"
        raise CannotCompile(f"nothing of {getattr(fn, '__name__', fn)} was compiled: {why}")
    return report.kernels


def _backward(result: Any, inputs: list[torch.Tensor]) -> None:
    outputs = [t for t in tensors(result) if t.requires_grad]
    kept = [(t, t.grad) for t in inputs if t.requires_grad and t.is_leaf]
    try:
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    finally:
        for leaf, grad in kept:
            leaf.grad = grad


def told_of_all(backend: Backend, report: Report) -> None:
    """Raise if the trace is silent on graphs that the backend was given: an unknown torch, or its logger was cut off."""
    if backend.graphs > len(report.graphs):
        raise CannotCompile(
            f"torch {torch.__version__} compiled {backend.graphs} graphs and its structured trace (the logger "
            f"torch.__trace) tells of {len(report.graphs)}; this helper reads the trace of torch 2.11 to 2.14"
        )
