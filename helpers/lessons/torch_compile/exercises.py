"""Tests of lesson 11: one graph, what recompiles, two compilations for many shapes, a backend, loop nests."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from helpers import check, compiling, count
from helpers.check.compare import difference
from helpers.check.judges import each_value
from helpers.pytorch import private_torch

Tensors = list[torch.Tensor]
_ONCE = "it is compiled, which takes seconds and depends on what was compiled before"
_ASSUMED = "2 · What is assumed"
#: n and length of each input
Shapes = Sequence[tuple[int, int]]


def _odd(got: torch.Tensor, want: torch.Tensor, at: str = "the result") -> str | None:
    """What is wrong with a shape or with numbers, of whatever width."""
    return difference(got.to(want.dtype), want, rtol=1e-4, atol=1e-5, at=at)


# --- 11.1 centre --------------------------------------------------------------------------------------------------


def _compile_and_call(answer: Any, *calls: tuple[Any, ...]) -> dict[str, Any]:
    """One compiled function, called again and again: what came out, and how often it was one graph that ran."""
    with compiling.watch("inductor") as w:
        fast = torch.compile(answer)
        given = [(x.clone(), *others) for x, *others in calls]
        values = [fast(*call) for call in given]
    changed = [not torch.equal(call[0], mine[0]) for call, mine in zip(calls, given, strict=True)]
    where = [f"{b.where.partition(' in ')[2]}: `{b.line}`: {b.reason}" for b in w.breaks]
    return {"values": values, "counts": w.counts(), "breaks": where, "changed": any(changed)}


def _one_graph(got: dict[str, Any], *calls: tuple[torch.Tensor, float]) -> str | None:
    counts = got["counts"]
    for (x, limit), value in zip(calls, got["values"], strict=True):
        if text := _not_centred(x, limit, value):
            return text
    if got["changed"]:
        return "values are right, but it changed x, which is the caller's"
    if got["breaks"]:
        return f"{len(got['breaks'])} graph breaks, wanted 0; the first in {got['breaks'][0]}"
    if counts["graphs"] != 1 or counts["runs"] != len(calls):
        return f"{counts['graphs']} graphs ran {counts['runs']} times in {len(calls)} calls: wanted 1 graph, run at each call"
    if counts["extern"]:
        return f"{counts['extern']} operators for which Inductor can write no kernel, wanted 0"
    return None


def _not_centred(x: torch.Tensor, limit: float, value: Any) -> str | None:
    if not isinstance(value, tuple | list) or len(value) != 3:
        return f"returned {value!r}, wanted (result, norm, number kept)"
    norm = x.norm()
    y = x * min(1.0, limit / norm.item())
    kept = y[y.abs() > 0.5 * limit / len(x)]
    want = [y - kept.mean(), norm, torch.tensor(len(kept))]
    at = f"x of {len(x)} numbers, norm {norm:.5g}"
    if len(x) <= 4:
        at = f"x {[round(v, 4) for v in x.tolist()]}"
    for name, a, b in zip(("result", "norm", "number kept"), value, want, strict=True):
        if not isinstance(a, torch.Tensor):
            return f"{name} is {a!r}, a Python number: wanted a 0-d tensor, which needs nothing read out"
        if name == "number kept" and a.dtype != torch.int64:
            return f"{name} is {a.dtype}, wanted int64"
        if limit < 0.01 and name != "number kept":  # in limits: small numbers are as exact as large ones
            a, b, name = a / limit, b / limit, f"{name} ÷ limit"
        if odd := _odd(a, b, name):
            return f"{odd} ({at}, limit {limit})"
    return None


def check_centre(*cases: check.Case, note: str = "") -> None:
    judge, look = each_value(_one_graph), "1 · What is captured"
    check.function("centre", cases, drive=_compile_and_call, verify=judge, look=look, note=note, once=_ONCE)


# --- 11.2 cache ---------------------------------------------------------------------------------------------------


def _say(answer: Any, *args: Any) -> dict[str, Any]:
    """The words, and how often the compiler was asked."""
    with compiling.watch() as w:
        words = answer(*args)
    return {"words": words, "compilations": len(w.compilations)}


@cache
def _done(sizes: tuple[int, ...], dynamic: bool | None, limit: int) -> list[str]:
    """What the compiler does at each call: compile, reuse, python."""
    happened, words = list[str](), list[str]()

    def backend(graph: torch.fx.GraphModule, inputs: Tensors) -> Callable[..., Any]:
        happened.append("compile")

        def run(*args: Any) -> Any:
            happened.append("reuse")
            return graph.forward(*args)

        return run

    with compiling.watch(backend):
        private_torch.dynamo_config.recompile_limit = limit
        fast = torch.compile(lambda x: x * 2, dynamic=dynamic)
        for n in sizes:
            happened.clear()
            fast(torch.ones(n, 1000))  # sizes that are equal would share a symbol
            words.append([*happened, "python"][0])
    return words


_DOING = {"compile": "compiles", "reuse": "reuses code", "python": "runs plain Python"}


def _as_the_compiler(value: dict[str, Any], sizes: list[int], dynamic: bool | None, limit: int) -> str | None:
    if value["compilations"]:
        return "the compiler was asked; the answer follows from the sizes"
    got, codes = value["words"], list[str]()
    if not isinstance(got, list) or len(got) != len(sizes):
        return f"wanted a list of {len(sizes)} words, got {got!r}"
    for i, (n, word, mine) in enumerate(zip(sizes, _done(tuple(sizes), dynamic, limit), got, strict=True)):
        want = word
        if word == "compile":
            exact = n == 1 or dynamic is False or (dynamic is None and not codes)
            want = f"n == {n}" if exact else "2 <= n"
        if mine != want:
            return (
                f"sizes {sizes[: i + 1]}, dynamic={dynamic}, limit {limit}: at the last of these the real compiler "
                f"{_DOING[word]}, wanted {want!r} (versions before it: {', '.join(codes) or 'none'}); you say {mine!r}"
            )
        codes += [want] if word == "compile" else []
    return None


def check_cache(*cases: check.Case) -> None:
    check.function("cache", cases, drive=_say, verify=each_value(_as_the_compiler), look=_ASSUMED, once=_ONCE)


# --- 11.3 serve ---------------------------------------------------------------------------------------------------

_WIDTH = 6


def _model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h = torch.tanh(x @ weight)
    return h / (1 + h.square().sum(-1, keepdim=True))


def _serve_shapes(serve: Any, shapes: Shapes) -> dict[str, Any]:
    """Answers to inputs of these shapes, and to the first with other numbers in it; what was compiled for them and ran."""
    weight, rows, compiling_now = torch.randn(_WIDTH, 5), list[int](), torch.compiler.is_compiling
    held = weight.clone()

    def model(x: torch.Tensor) -> torch.Tensor:
        if not compiling_now():
            raise RuntimeError(f"the model ran uncompiled, on x of {tuple(x.shape)}; wanted: never")
        return _model(x, weight)

    def backend(graph: torch.fx.GraphModule, inputs: Tensors) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            inputs = [
                a for a in args if isinstance(a, torch.Tensor) and a.dim() > 1 and a.shape[-1] == _WIDTH
            ]
            rows.append(sum(a.numel() // _WIDTH for a in inputs))
            weight.copy_(held)  # the model works in its compiled runs only
            out = graph.forward(*args)
            weight.zero_()
            return out

        return run

    weight.zero_()
    # of three, one lies transposed in memory, and one as a slice of wider rows
    xs = [torch.randn(n, length, _WIDTH + (i % 3 == 2))[..., :_WIDTH] for i, (n, length) in enumerate(shapes)]
    xs = [x.transpose(0, 1).contiguous().transpose(0, 1) if i % 3 == 1 else x for i, x in enumerate(xs)]
    kept = [x.clone() for x in xs]
    with compiling.watch(backend) as w:
        answer = serve(model)
        values = [answer(x) for x in xs]
        same = all(map(torch.equal, xs, kept))
        values.append(answer(xs[0].neg_()))  # whoever owns it fills it with the next batch
    return {
        "values": values,
        "wanted": [_model(x, held) for x in (*kept, -kept[0])],
        "same": same,
        "why": [r.reason for r in w.recompiles],
        "compilations": w.counts()["compilations"],
        "rows": sum(rows),
    }


def _two_compilations(got: dict[str, Any], shapes: Shapes) -> str | None:
    *values, again = zip(got["values"], got["wanted"], strict=True)
    for shape, (y, want) in zip(shapes, values, strict=True):
        if _odd(y, want):
            return f"answer of shape {tuple(y.shape)} to x {(*shape, _WIDTH)} is not model(x) {tuple(want.shape)}"
    if _odd(*again):
        return "the tensor of the first call was filled with other numbers, and its answer is not model(x) of these"
    if not got["same"]:
        return "x was changed"
    if got["compilations"] > 2:
        return (
            f"{got['compilations']} compilations for {len(shapes)} shapes, wanted 2 at most. Compiled again since these "
            f"failed: {'; '.join(got['why'][:4])}"
        )
    if not got["compilations"]:
        return "nothing was compiled"
    came = sum(n * length for n, length in (*shapes, shapes[0]))
    if not came <= got["rows"] <= 1.5 * came:
        return f"the compiled graphs took in {got['rows']} rows where {came} came; wanted {came} to {int(1.5 * came)}"
    return None


def check_serve(*cases: Shapes) -> None:
    cases_of_shapes = [check.case(shapes) for shapes in cases]
    check.function(
        "serve",
        cases_of_shapes,
        drive=_serve_shapes,
        verify=each_value(_two_compilations),
        look=_ASSUMED,
        once=_ONCE,
    )


# --- 11.4 addcmul_backend -----------------------------------------------------------------------------------------


def _rewrite(addcmul_backend: Any, program: str, *_: int) -> dict[str, Any]:
    """The program's numbers by the backend and as they are, for the inputs that it was captured with and for others; and the
    operators that the backend's took each time.
    """
    tensors = {name: torch.randn(5, 2) for name in "abcde"}
    tensors |= {"row": torch.randn(1, 2), "column": torch.randn(5, 1)}
    captured: list[Any] = []

    def keep(graph: torch.fx.GraphModule, example_inputs: Tensors) -> Callable[..., Any]:
        captured.extend((graph, example_inputs))

        def run(*args: Any) -> Any:
            captured.append(args)  # Dynamo's own order
            return torch.fx.Interpreter(graph).run(*args)

        return run

    plain = eval(f"lambda {', '.join(tensors)}: {program}", {"torch": torch})  # noqa: S307 - the test's own text
    with compiling.watch(keep):
        torch.compile(plain)(**tensors)
    graph, example_inputs, args = captured
    others = [torch.randn_like(arg) for arg in args]
    wants = [plain(**tensors), torch.fx.Interpreter(graph).run(*others)]  # which may be changed from here on
    run = addcmul_backend(graph, example_inputs)
    calls = []
    for inputs, want in zip((args, others), wants, strict=True):
        counted = count(run, *inputs)
        out = counted.result
        if not isinstance(out, tuple | list):
            kind = type(out).__name__
            raise AssertionError(f"the callable returned a {kind}; a compiled graph returns a tuple")
        outs, want = list(out), list(want) if isinstance(want, tuple) else [want]
        calls.append(
            {"outs": outs, "want": want, "operators": counted.operators, "by": dict(counted.by_operator)}
        )
    return {"calls": calls}


def _replaced(got: dict[str, Any], program: str, most: int, fused: int) -> str | None:
    for call, inputs in zip(got["calls"], ("", ", called with other inputs"), strict=True):
        if difference(call["outs"], call["want"], rtol=1e-4, atol=1e-5):
            return f"{program}{inputs}: the numbers changed (operators run: {call['by']})"
        if not 1 <= call["operators"] <= most or call["by"].get("aten.addcmul", 0) != fused:
            return f"{program}{inputs}: it ran {call['by']}; wanted {fused} addcmul, {most} operators in all"
    return None


def check_addcmul_backend(programs: Mapping[str, tuple[int, int]]) -> None:
    """programs: an expression of a, …, e, row and column → (operators in all, of which addcmul)."""
    cases = [check.case(program, *wanted) for program, wanted in programs.items()]
    judge, look = each_value(_replaced), "Further: What is made of it"
    note = "torch.compile(f, backend=addcmul_backend) tries it on your own f."
    check.function("addcmul_backend", cases, drive=_rewrite, verify=judge, look=look, note=note, once=_ONCE)


# --- 11.5 prepare -------------------------------------------------------------------------------------------------


def _few_nests(got: dict[str, Any], call: tuple[torch.Tensor]) -> str | None:
    (x,), (value,), counts = call, got["values"], got["counts"]
    y = x - x.min()
    y = F.silu(y / y.max()) * 2
    if odd := _odd(value, y + torch.cat([y[:, 1:], y[:, :1]], 1)):
        return f"{odd} (x of {tuple(x.shape)} from {x.min():.7g} to {x.max():.7g})"
    if got["changed"]:
        return "values are right, but it changed x, which is the caller's"
    if counts["graph_breaks"] or counts["graphs"] != 1 or counts["runs"] != 1:
        return f"{counts['graphs']} graphs, {counts['graph_breaks']} breaks, {counts['runs']} runs; wanted 1, 0, 1"
    if counts["extern"] or counts["loops"] > 3:
        return f"{counts['loops']} loop nests and {counts['extern']} library calls; wanted 3 and 0"
    return None


def check_prepare(*xs: torch.Tensor) -> None:
    cases, judge, look = [check.case((x,)) for x in xs], each_value(_few_nests), "3 · The kernel, read"
    note = "print(compiling.kernels(prepare, x).readable) shows the nests."
    check.function("prepare", cases, drive=_compile_and_call, verify=judge, look=look, note=note, once=_ONCE)
