"""Tests of lesson 02: operators, bytes saved for backward, graphs that stay, gradients sample by sample."""

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from helpers import check
from helpers.check.judges import each_value, first_of_two

# --- 2.1 few_operators --------------------------------------------------------------------------------------------


def layer(
    n: int,
    k: int,
    d: int,
    dtype: torch.dtype = torch.float32,
    trained: bool = False,
    data: bool = False,
    frozen: int = 0,
    **options: Any,
) -> check.Case:
    """Inputs of block for n rows of k numbers, d of them afterwards. trained: all of them want gradients.

    data: x and residual are data: they want none, and lie by columns. frozen: nor do the first so many.
    """
    g = torch.Generator().manual_seed(n)
    shapes = ((n, k), (d, k), (d,), (d,), (n, d), (d,), (d,))
    tensors = [torch.randn(s, generator=g).to(dtype) for s in shapes]
    if data:
        tensors = [t.t().contiguous().t() if t.dim() > 1 else t for t in tensors]
    wants = [trained and not (data and len(s) > 1 and s[0] == n) for s in shapes]
    wants = [want and i >= frozen for i, want in enumerate(wants)]
    return check.case(*(t.requires_grad_(w) for t, w in zip(tensors, wants, strict=True)), **options)


def _plain_block(x: torch.Tensor, *others: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    w, b, gate, residual, gamma, beta = others
    h = residual + gate * (x @ w.t() + b)
    mean = h.mean(-1, keepdim=True)
    h = (h - mean) / torch.sqrt(((h - mean) ** 2).mean(-1, keepdim=True) + eps) * gamma + beta
    return h * torch.sigmoid(h)


def _few_operators(x: torch.Tensor, *others: torch.Tensor, **options: float) -> dict[str, int]:
    trained = any(t.requires_grad for t in (x, *others))
    return {"operators": 7 if trained else 6, "syncs": 0}


def check_block(*cases: check.Case, gradients: bool = False) -> None:
    """Values within the budget of operators, or, of inputs that want gradients, these."""
    match, look = check.Match(rtol=1e-4, atol=1e-5), "3 · Operators that exist already"
    known: dict[str, Any] = {"match": match, "budget": _few_operators, "look": look}
    if gradients:
        exact = all(case.args[0].dtype == torch.float64 for case in cases)
        match = check.Match(grads=True, rtol=1e-9 if exact else 1e-3, atol=1e-9 if exact else 1e-4)
        note = "block is part of a network that is being trained: gradients must come back through it."
        known = {"match": match, "look": "Further · What a node keeps", "note": note}
    check.function("block", cases, _plain_block, **known)


# --- 2.3 lean_function --------------------------------------------------------------------------------------------


def _safe_tanhexp(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.exp(x.clamp(max=20)))


def _keep(tanhexp: Callable[[torch.Tensor], torch.Tensor], n: int, count: Any) -> dict[str, Any]:
    """What is saved for backward, and alive after forward; and the gradient, if x changes in between."""
    leaf = torch.linspace(-3, 3, n, requires_grad=True)
    x = leaf * 1.0
    # what a first call imports and keeps for ever is not meant; its gradient comes transposed
    torch.autograd.grad(tanhexp(leaf.view(2, -1) * 1.0).t(), leaf, torch.ones(n // 2, 2))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with count() as c:
            y = tanhexp(x)
        in_python = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    saved, live = c.saved_bytes, c.live_bytes
    with torch.no_grad():
        x.add_(1.0)
    try:
        y.sum().backward()
    except RuntimeError:
        leaf.grad = None  # it raised, which is fine
    return {"saved": saved, "live": live, "in_python": in_python, "gradient": leaf.grad}


def _gradient(
    tanhexp: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, incoming: float
) -> torch.Tensor:
    """That of x, where `incoming` comes into backward for each element."""
    y = tanhexp(x)
    return torch.autograd.grad(y, x, torch.full_like(y, incoming))[0]


@cache
def _unchanged_gradient(n: int) -> torch.Tensor:
    x = torch.linspace(-3, 3, n).double().requires_grad_()
    return torch.autograd.grad(_safe_tanhexp(x).sum(), x)[0].float()


def _lean(got: dict[str, Any], n: int) -> str | None:
    limit, saved, live, gradient = 4 * n, got["saved"], got["live"], got["gradient"]
    if saved > limit:
        return f"it saved {saved:,} bytes for backward; wanted at most {limit:,}: one tensor like x."
    if live > 2 * limit:
        return (
            f"after forward {live:,} bytes are alive; wanted {2 * limit:,}: the result, and one tensor like "
            "x. What a ctx attribute or a closure holds counts, too."
        )
    if live + got["in_python"] > 2 * limit + limit // 2:  # Python's own small objects are far from a half
        return (
            f"after forward {live:,} bytes of tensors and {got['in_python']:,} bytes elsewhere in Python are "
            f"alive; wanted {2 * limit:,} in all."
        )
    if gradient is not None and not torch.allclose(gradient, _unchanged_gradient(n), atol=1e-5):
        none = "" if saved else "it saved 0 bytes for backward, and yet a gradient came out; and "
        return (
            f"{none}when x was changed in place before backward, the gradient came out wrong with no error. "
            "What sits on an attribute of ctx or in a closure has no version check; what save_for_backward "
            "keeps has one."
        )
    return None


def check_tanhexp(
    *inputs: torch.Tensor,
    tolerance: float | None = None,
    incoming: float | None = None,
    kept_of: Sequence[int] = (),
) -> None:
    """Values and gradients of the inputs; and for so many numbers what is kept from forward to backward.

    tolerance: relative and absolute; otherwise that of the dtype. incoming: of the inputs only the gradients, where this
    number comes into backward for each element.
    """
    if incoming is not None:
        # of the reference only where 1 comes in: autograd, too, multiplies by x first; for x > 20 clamp makes that 0
        slopes = [_gradient(_safe_tanhexp, x.requires_grad_(), 1.0) for x in inputs]
        known: dict[str, Any] = {"drive": _gradient, "look": "Further · What a node keeps"}
        known["note"] = f"{incoming:g} comes into backward for each element: what is it multiplied by first?"
        cases = [check.case(x, incoming) for x in inputs]
        check.function("tanhexp", cases, [incoming * slope for slope in slopes], call="the gradient", **known)
        return
    match, look = check.Match(grads=True, rtol=tolerance, atol=tolerance), "Further · What a node keeps"
    huge = "These x are huge. Which step makes an inf, and what does inf · 0 give?"
    for note in ("", huge):
        cases = [check.case(x.requires_grad_()) for x in inputs if (note == huge) == bool((x > 20).any())]
        if cases:
            check.function("tanhexp", cases, _safe_tanhexp, match=match, look=look, note=note)
    if kept_of:
        many, budget = [check.case(n) for n in kept_of], {"syncs": 0}
        look = f"Further · In place, and what it breaks; {look}"
        check.function("tanhexp", many, drive=_keep, budget=budget, verify=each_value(_lean), look=look)
        known = {"match": check.Match(grads=True), "drive": first_of_two, "look": look}
        known["note"] = (
            "tanhexp was called twice before the first call's backward: what a call keeps is on its own ctx."
        )
        x = torch.linspace(-3, 3, 7, requires_grad=True)
        check.function("tanhexp", [check.case(x)], _safe_tanhexp, **known)


# --- 2.2 graph_keeper ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """One training of the two-layer net: sizes of its tensors, and the learning rate."""

    steps: int
    batch: int
    k: int
    width: int
    out: int
    lr: float = 0.1
    dtype: torch.dtype = torch.float32

    def case(self) -> check.Case:
        g = torch.Generator().manual_seed(self.steps)
        data = (self.steps, self.batch)
        shapes = ((self.k, self.width), (self.width, self.out), (*data, self.k), (*data, self.out))
        return check.case(*[torch.randn(s, generator=g).to(self.dtype) / 8 for s in shapes], lr=self.lr)

    def most_bytes(self) -> int:
        """6 matrices of (batch, width), 4 copies of the weights and 4 × the result."""
        weights = self.width * (self.k + self.out)
        result = self.steps * (self.width + 2) + 1 + weights
        return 4 * (6 * self.batch * self.width + 4 * weights + 4 * result)


@cache
def _trained(asked: Training) -> dict[str, torch.Tensor]:
    """What train_leaky returns; it keeps the matrices that the rows are views of."""
    w1, w2, inputs, targets = asked.case().args
    w1, w2, rows, smooth = w1.requires_grad_(), w2.requires_grad_(), [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        rows.append((loss.detach(), torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()), hidden[0].detach()))
        with torch.no_grad():
            w1 -= asked.lr * g1
            w2 -= asked.lr * g2
    loss, norm, row = (torch.stack(v) for v in zip(*rows, strict=True))
    assert smooth is not None
    return {"loss": loss, "norm": norm, "row": row, "smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}


_NO_GRAPH: dict[str, Any] = {"tensors with a graph": "none"}
_MATCH = check.Match(rtol=1e-4, atol=1e-6)


def _with_graphs_named(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = answer(*args, **kwargs)
    if isinstance(result, torch.Tensor):
        result = {"norms": result}
    if not isinstance(result, dict):
        return result
    graphs = [name for name, v in result.items() if getattr(v, "requires_grad", False)]
    return result | {"tensors with a graph": ", ".join(graphs) or "none"}


def _growth(few: Training, many: Training, peaks: tuple[int, int]) -> str | None:
    """What is wrong with the peaks of two trainings that differ in their steps only."""
    matrix, most = 4 * many.batch * many.width, 16 * (many.width + 2)
    grew = (peaks[1] - peaks[0]) / (many.steps - few.steps)
    if grew > most:
        return (
            f"values are right, but the peak grew by {grew:,.0f} bytes per step; wanted at most {most:,}. "
            f"That is {grew / matrix:.1f} × one (batch, width) matrix: something of each step stays alive, a "
            "graph, or a storage that a view holds."
        )
    if peaks[1] > many.most_bytes():
        return (
            f"values are right, but the peak is {peaks[1]:,} bytes; wanted at most {many.most_bytes():,}: 6 matrices "
            "of (batch, width), 4 copies of the weights and 4 × the result. What is held from the start counts, too."
        )
    return None


def check_train(*trainings: Training, costs: bool = True, graphs: bool = True) -> None:
    """Values. costs: of trainings in pairs, few steps and many, the growth and the peak, and no syncs.

    graphs: none of the returned tensors has one.
    """

    def cheap(reports: list[check.Report]) -> str | None:
        peaks = [report.counts["peak_live_bytes"] for report in reports]
        few, many = slice(0, None, 2), slice(1, None, 2)
        pairs = zip(trainings[few], trainings[many], zip(peaks[few], peaks[many], strict=True), strict=True)
        return next((text for pair in pairs if (text := _growth(*pair))), None)

    known: dict[str, Any] = {"look": "4 · What keeps a graph alive", "match": _MATCH}
    known["note"] = "Keep the numbers as tensors, without a graph; read them when the training is over."
    known |= {"budget": {"syncs": 0}, "verify": cheap} if costs else {}
    want = [_trained(training) for training in trainings]
    if graphs:
        want, known["drive"] = [result | _NO_GRAPH for result in want], _with_graphs_named
    check.function("train", [training.case() for training in trainings], want, **known)


# --- 2.4 per_sample -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """A batch and the two-layer net it goes through; shrink: by what its random weights are divided.

    parameters: the weights want gradients, as a net's own do.
    """

    batch: int
    k: int
    width: int
    classes: int
    dtype: torch.dtype = torch.float32
    shrink: float = 4
    parameters: bool = False

    def tensors(self) -> list[torch.Tensor]:
        """x, y, w1, b1, w2, b2."""
        g = torch.Generator().manual_seed(self.batch)
        shapes = ((self.width, self.k), (self.width,), (self.classes, self.width), (self.classes,))
        weights = [(torch.randn(s, generator=g) / self.shrink).to(self.dtype) for s in shapes]
        weights = [w.requires_grad_(self.parameters) for w in weights]
        x = torch.randn(self.batch, self.k, generator=g).to(self.dtype)
        return [x, torch.randint(self.classes, (self.batch,), generator=g), *weights]


@cache
def _one_by_one(net: Net) -> torch.Tensor:
    x, y, *weights = net.tensors()
    norms, four = [], [w.requires_grad_() for w in weights]
    for sample, label in zip(x, y, strict=True):
        out = four[2] @ torch.tanh(four[0] @ sample + four[1]) + four[3]
        grads = torch.autograd.grad(functional.cross_entropy(out, label), four)
        norms.append(torch.stack([g.pow(2).sum() for g in grads]).sum().sqrt())
    return torch.stack(norms)


_OPERATORS = {"operators": 128}


def _operators_and_peak(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> dict[str, int]:
    (batch, k), (classes, width) = x.shape, weights[2].shape
    arrays, parameters = batch * (k + width + classes), sum(w.numel() for w in weights)
    return _OPERATORS | {"peak_live_bytes": 4 * (8 * arrays + 2 * parameters)}


def _same_for_every_batch(reports: list[check.Report]) -> str | None:
    """Batches of the first net's sizes and dtype took as many operators as its own."""
    w1 = reports[0].args[2]
    same = [r for r in reports if r.args[2].shape == w1.shape and r.args[2].dtype == w1.dtype]
    numbers, batches = [r.counts["operators"] for r in same], [len(r.args[0]) for r in same]
    if len(set(numbers)) > 1:
        return f"batches of {batches} took {numbers} operators; wanted the same number for each"
    return None


def check_grad_norms(
    *nets: Net, memory: bool = False, graphs: bool = True, expect: Callable[..., torch.Tensor] | None = None
) -> None:
    """Values and the number of operators. memory: the peak, too. graphs: the result has none.

    expect: a faster reference, where one sample after the other would take seconds.
    """
    want: list[Any] = [expect(*net.tensors()) if expect else _one_by_one(net) for net in nets]
    known: dict[str, Any] = {"look": "Further · From a loop over samples to one batch", "match": _MATCH}
    known |= {"budget": _OPERATORS, "verify": _same_for_every_batch}
    note = "Each too small by the batch? cross_entropy takes a mean unless told. A little too small? Biases, too."
    if memory:
        known["budget"] = _operators_and_peak
        note = (
            "A gradient of every sample is batch × width × k numbers, and as many pieces for every batch grow with it; "
            "batch × batch numbers grow faster. The length needs far fewer."
        )
    if graphs:
        want, known["drive"] = [{"norms": norms} | _NO_GRAPH for norms in want], _with_graphs_named
    cases = [check.case(*net.tensors()) for net in nets]
    check.function("grad_norms", cases, want, note=note, **known)
