"""Ask the compiler: run something under its eyes and report."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import torch

from helpers import private_torch

from .generated import Kernels
from .listening import listen
from .reading import read
from .records import Report
from .timing import Seconds, timed
from .torches import Backend, CannotCompile, alone, explained, original


class watch(AbstractContextManager[Report]):  # noqa: N801 - used as a function
    """Report on all that is compiled in a block: ``with compiling.watch() as w: torch.compile(f)(x)``.

    backend: compile with this one, whatever the program asks for: ``"eager"`` (graphs, breaks, guards and
    recompiles only, the fastest), ``"aot_eager"`` (the backward graph too), ``"inductor"`` (its code is written and
    not built), or a function. The program's own ``fullgraph=True`` then does nothing: it raises no error (its breaks
    are in the report), captures no ``.item()`` and no ``x[mask]``, and what comes behind a break stays Python. To
    see what it does, give the backend to torch.compile itself. None: each as asked for.
    reset: forget at the start what was compiled before, and at the end what was compiled inside.

    The report is filled when the block ends, also when it raises. Counters and other dispatch modes see
    nothing of the block: Dynamo does not compile while one is on, so they stand aside. Settings of
    ``torch._dynamo.config`` that are changed inside hold until the end of the block.

    Raises :class:`CannotCompile` with a remedy where there is one (no C++ compiler), else what the block raised.
    """

    def __init__(self, backend: str | Callable[..., Any] | None = None, *, reset: bool = True) -> None:
        self.asked, self.reset = backend, reset

    def __enter__(self) -> Report:
        self.report = Report()
        with ExitStack() as stack:
            stack.enter_context(explained())
            stack.enter_context(alone(self.reset))
            self.backend = None if self.asked is None else Backend(self.asked)
            if self.backend is not None:
                stack.enter_context(torch.compiler.set_stance(force_backend=self.backend))
            stack.callback(self._fill, stack.enter_context(listen()))
            self.stack = stack.pop_all()
        return self.report

    def _fill(self, events: list[Any]) -> None:
        found = read(events)
        vars(self.report).update({k: v for k, v in vars(found).items() if k != "result"})
        if self.backend is not None:
            self.report.runs = self.backend.runs
            told_of_all(self.backend, found)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self.stack.__exit__(kind, error, trace)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile ``fn`` for these arguments and say what Dynamo made of it. ``fn`` runs once, for real.

    fn: a function or a module; what torch.compile returned is taken for what it was made from.
    The graphs run as they are (backend ``"eager"``), so this takes tenths of a second. The result is ``.result``.
    """
    with watch("eager") as report:
        report.result = torch.compile(original(fn))(*args, **kwargs)
    return report


def kernels(
    fn: Callable[..., Any],
    *args: Any,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    backward: bool | None = None,
    dynamic: bool | None = None,
    vectors: bool = False,
    **kwargs: Any,
) -> Kernels:
    """The code that Inductor writes for ``fn`` with these arguments: kernels, in the order of their calls.

    mode, options, dynamic: as in torch.compile. backward: generate the backward pass too (default: if some result
    requires grad). vectors: write for this machine's threads and vector instructions, as torch.compile would
    (needs a C++ compiler to find out which); by default for one thread of a CPU without any, which is easier to
    read and the same everywhere. Nothing is built and no cache is asked: the answer is the same with caches full
    or empty. ``fn`` runs once, on ATen's kernels; gradients that a backward pass leaves are taken away again.
    """
    backend = Backend("inductor")
    with watch() as report:
        given = {"mode": mode, "options": options, "vectors": vectors or None}
        compiled = torch.compile(original(fn), backend=_with(backend, given), dynamic=dynamic)
        result = compiled(*args, **kwargs)
        if backward or backward is None:
            _backward(result, [*args, *kwargs.values()], original(fn), required=bool(backward))
    told_of_all(backend, report)
    if not backend.graphs:
        why = "; ".join(c.failed for c in report.failures) or "there is no tensor operation in it"
        raise CannotCompile(f"nothing of {getattr(fn, '__name__', fn)} was compiled: {why}")
    return report.kernels


def counts(
    fn: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    backend: str | Callable[..., Any] = "eager",
    **options: Any,
) -> dict[str, Any]:
    """Call ``fn`` with each tuple of arguments and give :meth:`Report.counts`: plain numbers, the same everywhere.

    fn: compiled here, with ``options`` for torch.compile, unless torch.compile has made it; then its own options hold,
    apart from the backend. ``runs`` tells how many graphs ran: a call that went round the compiler ran none.
    """
    counted = Backend(backend)
    compiled = original(fn) is not fn
    with watch(counted if compiled else None) as report:
        if compiled:
            call = fn
        else:
            given = {name: options.pop(name, None) for name in ("mode", "options")}
            call = torch.compile(fn, backend=_with(counted, given), **options)
        for args in calls:
            call(*args)
    report.runs = counted.runs
    told_of_all(counted, report)
    return report.counts()


def told_of_all(backend: Backend, report: Report) -> None:
    """Raise if the trace is silent on graphs that the backend was given: an unknown torch, or its logger was cut off."""
    if backend.graphs > len(report.graphs):
        raise CannotCompile(
            f"torch {torch.__version__} compiled {backend.graphs} graphs and its structured trace (the logger "
            f"torch.__trace) tells of {len(report.graphs)}; this helper reads the trace of torch 2.11 to 2.14"
        )


def seconds(fn: Callable[..., Any], *args: Any, mode: str | None = None, **kwargs: Any) -> Seconds:
    """What compiling ``fn`` costs with empty caches, with the cache on disk, and what a call takes before and after.

    For the eye, not for grades. Builds real code in a temporary folder, so it takes seconds and needs a C++ compiler.
    """
    plain = original(fn)
    with explained(), alone():
        return timed(lambda: torch.compile(plain, mode=mode), plain, *args, **kwargs)


def _with(backend: Backend, given: dict[str, Any]) -> Callable[..., Any]:
    """``backend`` with a mode and options; torch.compile takes them for its own Inductor only."""
    given = {name: value for name, value in given.items() if value is not None}

    def compile_graph(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        return backend(graph, inputs, **given)

    return compile_graph


def _backward(result: Any, inputs: list[Any], module: Any, required: bool) -> None:

    outputs = [
        t for t in private_torch.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not outputs:
        if required:
            raise ValueError("backward=True, and no result requires grad: set requires_grad on an input")
        return
    leaves = [
        t
        for t in private_torch.tree_leaves(inputs)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf
    ]
    leaves += list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    kept = [(leaf, leaf.grad) for leaf in leaves]
    try:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    finally:
        for leaf, grad in kept:
            leaf.grad = grad
