"""What is known of a compilation, in small records, and the table of it."""

from dataclasses import dataclass, field
from typing import Any

from helpers.text.tables import ShownAsTable, Table, table

from .generated import Kernels

#: characters of a line or a reason that a table shows
SHOWN = 90


@dataclass(frozen=True)
class Graph:
    """An FX graph that Dynamo handed to the backend.

    operators: what it calls, in order: ``torch.relu``, ``mul`` (for ``*``), ``Tensor.view``.
    code: the graph as Python, each value with its dtype, shape and strides, each group with its source line.
    id: the compilation that made it, e.g. ``"0/0"``. See :func:`explain`.
    """

    operators: tuple[str, ...]
    code: str
    id: str = ""


@dataclass(frozen=True)
class Break:
    """A place where the graph had to end and Python go on.

    where, line: the place, and the source line there. reason: what Dynamo met, in its words. skipped: Dynamo could not
    go on after it (in a loop, in a ``try``), and left the whole function to Python. See :func:`explain`.
    """

    where: str
    line: str
    reason: str
    skipped: bool = False


@dataclass(frozen=True)
class Guard:
    """What must hold for the compiled code to be used again.

    kind: torch's name, e.g. ``TENSOR_MATCH``. about: whose property (``x``, ``self.weight``); "" for what
    holds everywhere (grad mode, threads). check: the condition. line: the source line that made it necessary.

    >>> guard = compiling.explain(double, x).guards[0]
    >>> guard.about, guard.kind
    ('x', 'TENSOR_MATCH')
    """

    kind: str
    about: str
    check: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.about}: {self.check}" if self.about else self.check


@dataclass(frozen=True)
class Recompile:
    """A function compiled again, since of each earlier compilation some guard failed.

    reasons: that guard, for each of them, the newest first, in torch's words. reason: the first of these.
    See :func:`watch`.
    """

    where: str
    reasons: tuple[str, ...]
    id: str = ""

    @property
    def reason(self) -> str:
        return self.reasons[0] if self.reasons else ""


@dataclass(frozen=True)
class Compilation:
    """One run of the compiler over one function, or over the rest of one after a graph break.

    id: torch's own, ``frame/compilation``: ``1/0`` is the second function's first. operators: in its graph (0: it
    had none). failed: why nothing came of it (the function then runs as plain Python), else "".

    >>> [made.id for made in compiling.explain(double, x).compilations]
    ['0/0', '1/0']
    """

    id: str
    function: str
    where: str
    operators: int
    failed: str = ""


@dataclass(repr=False)
class Report(ShownAsTable):
    """What the compiler did. ``counts()`` gives the numbers; every part can be read on its own.

    runs: how often a compiled graph ran, where the backend was given to :func:`watch`; else None.

    >>> compiling.explain(double, x).counts()["graph_breaks"]
    1
    """

    compilations: list[Compilation] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    runs: int | None = None
    result: Any = None

    @property
    def operators(self) -> int:
        """Calls in all graphs together."""
        return sum(len(graph.operators) for graph in self.graphs)

    @property
    def failures(self) -> list[Compilation]:
        """Compilations of which nothing came: that function ran as plain Python."""
        return [c for c in self.compilations if c.failed]

    def counts(self) -> dict[str, Any]:
        """Plain numbers. ``compilations``: those that had a graph. ``kernels`` and what follows: Inductor only."""
        return {
            "compilations": sum(1 for c in self.compilations if c.operators),
            "graphs": len(self.graphs),
            "operators": self.operators,
            "graph_breaks": len(self.breaks),
            "recompiles": len(self.recompiles),
            "failures": len(self.failures),
            "runs": self.runs,
            **self.kernels.counts(),
        }

    def table(self) -> Table:
        """What happened, a line each."""
        rows = [["compilation", c.id, f"{c.function} ({c.where})", _said(c)] for c in self.compilations]
        rows += [["graph break", "", f"{b.where}: `{_short(b.line)}`", _short(b.reason)] for b in self.breaks]
        rows += [["recompile", r.id, r.where, _short(r.reason)] for r in self.recompiles]
        if self.kernels.sources:
            rows.append(["kernels", "", self.kernels.summary(), ""])
        if self.guards:
            own = [str(g) for g in self.guards if g.about]
            rows.append(["guards", str(len(self.guards)), _short("; ".join(own[:3])), "all: .guards"])
        summary = f"{_n(len(self.graphs), 'graph')}, {_n(len(self.breaks), 'graph break')}, "
        summary += f"{_n(self.operators, 'operator')}, {_n(len(self.recompiles), 'recompile')}"
        if not self.compilations:
            summary = "nothing was compiled here: was what torch.compile returned called in this block?"
        gpu = any("cuda:" in graph.code for graph in self.graphs)
        columns = ["what", "id", "where", "says"]
        return table(rows, columns, evidence="live (GPU)" if gpu else "live (CPU)", caption=summary)


def _said(compilation: Compilation) -> str:
    if compilation.failed:
        return "not compiled: " + _short(compilation.failed)
    return _n(compilation.operators, "operator") if compilation.operators else "no graph"


def _n(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
