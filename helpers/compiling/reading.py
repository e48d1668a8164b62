"""From events of the trace to the records of a report."""

import ast
import json
import re

from helpers.text.places import function, source, where

from .generated import Kernels
from .guarding import guards, plain
from .listening import Event
from .records import Break, Compilation, Graph, Recompile, Report

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift",
    ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor", ast.Invert: "invert", ast.Not: "not_",
    ast.USub: "neg", ast.UAdd: "pos", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le",
    ast.Gt: "gt", ast.GtE: "ge", ast.Is: "is_", ast.IsNot: "is_not", ast.In: "contains",
}  # fmt: skip


def read(events: list[Event], report: Report) -> None:
    """Put into the report all that the events tell."""
    reasons = {e.id: _reasons(e.text) for e in events if e.kind == "recompile_reasons"}
    last = {e.id: e.attempt for e in events if e.kind == "dynamo_output_graph"}
    sources = []
    for event in events:
        if event.kind == "dynamo_output_graph" and event.attempt == last[event.id]:
            report.graphs.append(Graph(operators(event.text), _located(event.text), event.id))
        elif event.kind == "dynamo_graph_break_reason":
            stop = broke(event.text)
            # A break in a function that was inlined is met again when that function is compiled on its own, and
            # once more with each recompilation: it is one place.
            if stop and all((stop.where, stop.reason) != (b.where, b.reason) for b in report.breaks):
                report.breaks.append(stop)
        elif event.kind == "dynamo_cpp_guards_str":
            report.guards += [g for g in guards(event.text) if g not in report.guards]
        elif event.kind == "inductor_output_code":
            sources.append(_same_everywhere(event.text))
        elif event.kind == "compilation_metrics":
            report.compilations.append(_compilation(event, report))
    report.kernels = Kernels(tuple(sources))
    report.recompiles = [
        Recompile(f"{c.function} ({c.where})", reasons[c.id], c.id)
        for c in report.compilations
        if c.id in reasons and not c.failed
    ]


def _located(code: str) -> str:
    """A graph's code with its source lines named as everywhere in a report: no path of this machine."""

    def place(found: re.Match[str]) -> str:
        return f"# {where(found['file'], int(found['line']))} in {function(found['name'])}, code:"

    return re.sub(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<name>.+?), code:", place, code).strip()


def _same_everywhere(code: str) -> str:
    """Generated code without its number among the graphs of this process, and without paths of this machine."""
    code = re.sub(r"\A\s*# AOT ID: .*\n", "", code)
    return re.sub(r'#include "/[^"]*/([^/"]+)"', r'#include "\1"', code)


def _compilation(event: Event, so_far: Report) -> Compilation:
    data = event.data
    file = str(data.get("co_filename") or "")
    place = where(file, int(data.get("co_firstlineno") or 0))
    name = function(str(data.get("co_name") or ""), file)
    if not name:  # the limit was reached before Dynamo looked at it: it is the one it has compiled before
        frame = event.id.partition("/")[0] + "/"
        before = next((c for c in so_far.compilations if c.id.startswith(frame)), None)
        name, place = (before.function, before.where) if before else ("?", "?")
    captured = sum(len(g.operators) for g in so_far.graphs if g.id == event.id)
    failed = _why(str(data.get("fail_type") or ""), str(data.get("fail_reason") or ""))
    return Compilation(event.id, name, place, captured, failed)


def _why(kind: str, text: str) -> str:
    """Why a compilation failed: what Dynamo met, and what it met on its way out of that."""
    if not kind:
        return ""
    blocks = text.split("*** While handling this graph break, another graph break occurred: ***")
    heads = [block.strip().splitlines()[0] for block in blocks if block.strip()]
    reason = ", then: ".join(heads)
    return reason if kind == "Unsupported" and reason else f"{kind}: {reason}"


def _reasons(text: str) -> tuple[str, ...]:
    """The guards that failed: without the compile ids they refer to and their source, names as the reader wrote them."""
    try:
        entries = json.loads(text)
    except ValueError:  # a single reason comes as it is
        entries = text
    lines = [str(part).strip() for part in (entries if isinstance(entries, list) else [entries])]
    return tuple(plain(re.sub(r"^\d+/\d+: |\s+# .*", "", line.partition("\n")[0])) for line in lines if line)


_PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.M)
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>\S+)', re.M)


def broke(text: str) -> Break | None:
    """A graph break from what Dynamo says of it."""
    place = _PLACE.search(text)
    if not place:
        return None
    file, line = place["file"], int(place["line"])
    notes = text.partition("Graph Break Reason: ")[2].partition("\nUser code traceback:")[0]
    # everything before the last blank-line block that starts at the margin is how Dynamo came to it
    notes = notes.partition("\n  Developer debug context:")[0]
    head = notes.partition("\n  Explanation:")[0]
    reason = [row for row in head.splitlines() if row.strip()][-1:] or [""]
    names = [f["name"] for f in _FRAME.finditer(text.partition("\nTraceback (most recent")[0])]
    at = where(file, line) + (f" in {function(names[-1])}" if names else "")
    skipped = "falling back to eager" in head or "skip the rest of the function" in head
    return Break(at, source(file, line), reason[0].strip(), skipped)


def operators(code: str) -> tuple[str, ...]:
    """The calls of a graph from its code, in order; methods as ``Tensor.view``, operators by their function's name."""
    try:
        tree = ast.parse(code.strip())
    except SyntaxError:
        return ()
    root = next((n for n in tree.body if isinstance(n, ast.ClassDef)), None)
    body = next((n for n in root.body if isinstance(n, ast.FunctionDef)), None) if root else None
    if body is None:
        return ()
    local = {a.arg for a in body.args.args}
    operators = []
    for step in body.body:
        if isinstance(step, ast.Return):
            continue
        target = step.targets[0] if isinstance(step, ast.Assign) else getattr(step, "target", None)
        value = getattr(step, "value", None)
        if isinstance(target, ast.Subscript):
            operators.append("setitem")
            continue
        if isinstance(step, ast.AugAssign):
            operators.append("i" + _OPERATORS.get(type(step.op), "op"))
        elif value is not None and (name := _called(value, local)):
            operators.append(name)
        if isinstance(target, ast.Name):
            local.add(target.id)
    return tuple(operators)


def _called(value: ast.expr, local: set[str]) -> str:
    """The name of what an expression calls; "" where it only names something."""
    if isinstance(value, ast.Call):
        base = value.func
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(value.func, ast.Attribute) and isinstance(base, ast.Name) and base.id in local:
            return value.func.attr if base.id == "self" else f"Tensor.{value.func.attr}"
        return ast.unparse(value.func)
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        constant = isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
        return "" if constant else _OPERATORS.get(type(value.op), "op")
    if isinstance(value, ast.Compare):
        return _OPERATORS.get(type(value.ops[0]), "compare")
    if isinstance(value, ast.Subscript):
        return "getitem"
    return ""
