"""Tests of lesson 06: AdamW parameter by parameter, on lists and inside backward, and how long its step takes."""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from helpers import check, simulate
from helpers.check.compare import difference
from helpers.check.judges import each, own_work, predicted
from helpers.lessons.optimizers.recorded import WAYS

Tensors = list[Tensor]
Named = dict[str, Tensors]
#: for each forward the weights that it uses, in order
Plan = list[list[int]]

_FORMULA = "the four lines of the formula, above exercise 6.1"
_THREE_WAYS = "1 · Three ways to the same numbers"


def _exactness(case: check.Case, float64: float = 1e-9, float32: float = 1e-4) -> check.Match:
    """How exact the numbers must be: by the dtype of the case's first list of tensors."""
    rtol = float64 if case.args[0][0].dtype == torch.float64 else float32
    return check.Match(rtol=rtol, atol=rtol / 10)


# --- 6.1 adamw_loop, 6.2 adamw_foreach ----------------------------------------------------------------------------


def stepping(
    shapes: Sequence[Any],
    step: int,
    single: bool = False,
    fresh: bool = False,
    odd: bool = False,
    **options: Any,
) -> check.Case:
    """A call: random params, grads, means and squares of these shapes, and options.

    single: float32 in place of float64. fresh: both means are zeros. odd: every third four has the other dtype, all
    lie with gaps in a larger storage, and every second gradient is one number expanded, as of a sum.
    """
    dtypes = [torch.float32 if single != (odd and i % 3 == 2) else torch.float64 for i in range(len(shapes))]
    g = torch.Generator().manual_seed(step)
    of = list(zip(shapes, dtypes, strict=True))
    params, grads, means, squares = ([torch.randn(s, generator=g, dtype=d) for s, d in of] for _ in range(4))
    means = [m * (not fresh) for m in means]
    squares = [v.square() * (not fresh) for v in squares]
    if odd:
        params, grads, means, squares = ([_scattered(t) for t in x] for x in (params, grads, means, squares))
        for i, t in list(enumerate(grads))[::2]:
            grads[i] = torch.tensor(1e15 / (i + 1), dtype=t.dtype).expand(t.shape)
    return check.case(params, grads, means, squares, step, **options)


def _scattered(t: Tensor) -> Tensor:
    """The same numbers with gaps between them, in a larger storage, and a matrix by columns."""
    gaps = torch.stack([t.mT if t.dim() > 1 else t] * 9, -1)[..., 4]
    return gaps.mT if t.dim() > 1 else gaps


def _step(adamw: Callable[..., None], *lists_and_step: Any, **options: Any) -> Named:
    """One call; what all four lists hold afterwards."""
    adamw(*lists_and_step, **options)
    return _by_name(*lists_and_step)


def _by_name(params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, *_: int) -> Named:
    return {"grads": grads, "means": means, "squares": squares, "params": params}


def _by_torch(params: Tensors, *others: Any, temp_bytes: int | None = None, **options: Any) -> Named:
    """The same by torch's own AdamW."""
    grads, means, squares, step = others
    parameters = [nn.Parameter(p) for p in params]
    optimizer = torch.optim.AdamW(parameters, foreach=False, **options)
    for p, g, m, v in zip(parameters, grads, means, squares, strict=True):
        p.grad = g
        optimizer.state[p] = {"step": torch.tensor(step - 1.0), "exp_avg": m, "exp_avg_sq": v}
    optimizer.step()
    return _by_name([p.detach() for p in parameters], grads, means, squares)


def _rooted(report: check.Report) -> str | None:
    if not any("sqrt" in op or "pow" in op for op in report.counts["by_operator"]):
        return "no operator that takes a root was seen: the step must be made of torch's operators, which are counted"
    return None


_WRITTEN_OUT = own_work("fused"), _rooted


def _stepped(report: check.Report) -> str | None:
    """Right; lists that nothing was written into have a sentence of their own."""
    before = _by_name(*report.args)
    for name in ("params", "means", "squares"):
        if all(map(torch.equal, report.value[name], before[name])):
            return (
                f"{name} hold what they held before. `p = p * 0.9` makes a new tensor and only moves the name p; "
                "`p.mul_(0.9)` changes the tensor that the caller has"
            )
    match = _exactness(report.case)
    want = _by_torch(*copy.deepcopy(report.args), **report.kwargs)
    if odd := difference(report.value, want, match.rtol, match.atol):
        given = "".join(f", {name}={value}" for name, value in report.kwargs.items())
        return f"step={report.args[4]}{given}: {odd}"
    return None


def _loop_budget(params: Tensors, *rest: Any, **options: Any) -> dict[str, int]:
    return {
        "operators": 8 * len(params),
        "peak_live_bytes": 2 * max(p.nbytes for p in params) + 1024,
        "syncs": 0,
    }


def _check_by_torch(name: str, cases: Sequence[check.Case], budget: Any, look: str, note: str) -> None:
    judge = each(*_WRITTEN_OUT)
    for case in cases:
        known: dict[str, Any] = {"match": _exactness(case), "budget": budget, "look": look, "note": note}
        check.function(name, [case], _by_torch, drive=_step, verify=judge, **known)


def check_adamw_loop(*cases: check.Case, costs: bool = False, note: str = "") -> None:
    """costs: the operators and the bytes alive are counted too."""
    if costs:
        note = "8 for each parameter: operators that end in an underscore, and one that makes the root of v. Too "
        note += "many bytes: a list of roots keeps all of them alive, and so does a second name."
        _check_by_torch("adamw_loop", cases, _loop_budget, _THREE_WAYS, note)
    else:
        known: dict[str, Any] = {"budget": {"syncs": 0}, "look": _FORMULA, "note": note}
        check.function("adamw_loop", cases, drive=_step, verify=each(_stepped, *_WRITTEN_OUT), **known)


def _groups_budget(params: Tensors, *rest: Any, temp_bytes: int | None = None, **_: Any) -> dict[str, int]:
    sizes = [p.nbytes for p in params]
    groups = 1 if temp_bytes is None else 1 + 2 * sum(sizes) // temp_bytes
    most = sum(sizes) if temp_bytes is None else max(temp_bytes, *sizes)
    return {"operators": 8 * groups, "peak_live_bytes": most + 1024, "syncs": 0}


def check_adamw_foreach(*cases: check.Case) -> None:
    note = (
        "Only the last lists' values off: is the last, unfinished group handed over? Too many operators: one "
        "for the whole group. Too many bytes: are sizes in bytes (p.nbytes), groups cut by what they hold and not "
        "by how many, every operator but the root in place, and the last group's roots without a name?"
    )
    _check_by_torch("adamw_foreach", cases, _groups_budget, f"{_FORMULA}; {_THREE_WAYS}", note)


# --- 6.3 step_in_backward -----------------------------------------------------------------------------------------


def net(
    widths: Sequence[int], batch: int, plan: Plan, single: bool = False, ends: bool = False, **options: Any
) -> check.Case:
    """A net's weights, a batch, and what is to be done.

    single: float32 in place of float64. ends: the hooks are removed afterwards.
    """
    dtype = torch.float32 if single else torch.float64
    g = torch.Generator().manual_seed(len(widths))
    pairs = zip(widths, widths[1:], strict=False)
    weights = [torch.randn(a, b, generator=g).to(dtype) / a**0.5 for a, b in pairs]
    x = torch.randn(batch, widths[0], generator=g).to(dtype)
    return check.case(weights, x, plan, ends, **options)


def _backward(params: list[nn.Parameter], x: Tensor, used: list[int]) -> None:
    h = x
    for i in used:
        h = torch.tanh(h @ params[i])
    h.square().mean().backward()


def _train(
    step_in_backward: Any, weights: Tensors, x: Tensor, plan: Plan, ends: bool, **options: Any
) -> dict[str, Any]:
    """Only backward, as often as planned: the weights, and how many gradients are left; then without the hooks."""
    params = [nn.Parameter(w) for w in weights]
    kept = 0
    for _ in range(1 + ends):  # the second time anew, where the first has ended
        handles = list(step_in_backward(params, **options))
        for i, used in enumerate(plan):
            if ends and i == 1:  # another net begins, and is never trained
                handles += step_in_backward([nn.Parameter(torch.zeros(1))], **options)
            _backward(params, x, used)
        left = sum(p.grad is not None for p in params)
        for handle in handles if ends else ():
            handle.remove()
    if ends:
        for p in params:  # one after the other: what lives at once is counted
            p.sum().backward()
            kept += p.grad is not None
            p.grad = None
    return _trained(left, params, kept)


def _trained(left: int, params: list[nn.Parameter], kept: int) -> dict[str, Any]:
    weights = [p.detach() for p in params]
    return {"gradients left": left, "weights": weights, "gradients kept after remove": kept}


def _trained_by_torch(weights: Tensors, x: Tensor, plan: Plan, ends: bool, **options: Any) -> dict[str, Any]:
    params = [nn.Parameter(w) for w in weights]
    for _ in range(1 + ends):
        optimizer = torch.optim.AdamW(params, foreach=False, **options)
        for used in plan:
            _backward(params, x, used)
            optimizer.step()
            optimizer.zero_grad()
    return _trained(0, params, len(params) * ends)


def _training_budget(weights: Tensors, x: Tensor, *rest: Any, **options: Any) -> dict[str, int]:
    sizes = [w.nbytes for w in weights]
    activations = 2 * sum(sum(w.shape) for w in weights) * len(x) * x.element_size()
    return {"peak_live_bytes": 2 * sum(sizes) + 3 * max(sizes) + activations + 1024, "syncs": 0}


def check_step_in_backward(*cases: check.Case, costs: bool = False) -> None:
    """costs: the bytes alive are counted too, in nets where every forward uses each weight once."""
    budget, look = _training_budget if costs else None, "Further, When does a gradient die?"
    for case in cases:
        sizes, match = [w.nbytes for w in case.args[0]], _exactness(case, 1e-8, 1e-3)
        note = (
            "None left, and the weights are off? m, v and a step number per parameter live on from backward to "
            "backward; a weight may sit one backward out, or be used twice in one. An error about None? A hook that "
            "is defined in a loop sees the loop's last p: use the one that it is called with. "
            "Where hooks end, another net's are set up between the first backward and the second: does it keep its own state?"
        )
        if costs:
            note = f"{len(sizes)} weights of at most {max(sizes):,} bytes, m and v: {2 * len(sizes)} arrays live on. All "
            note += f"gradients at once would be {len(sizes)} more; wanted at most 3, and a little for activations."
        known: dict[str, Any] = {"match": match, "budget": budget, "look": look, "note": note}
        check.function("step_in_backward", [case], _trained_by_torch, drive=_train, **known)


# --- 6.4 step_time ------------------------------------------------------------------------------------------------


@cache
def _measured(
    sizes: tuple[int, ...], way: str, launch_s: float, latency_s: float, floor_s: float, bytes_per_s: float
) -> tuple[float, int, float]:
    """Of a step on the simulated GPU: seconds until its end, how many kernels, and the seconds of these."""
    gpu = simulate(
        "H100", operator_s=launch_s, launch_latency_s=latency_s, kernel_floor_s=floor_s,
        bandwidth_share=bytes_per_s / 3.35e12,
    )  # fmt: skip
    with gpu:
        params = [nn.Parameter(torch.empty(n, device=gpu.device)) for n in sizes]
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer = torch.optim.AdamW(params, **WAYS[way])
        optimizer.step()  # makes the state
        gpu.synchronize()
        began, before = gpu.clock_ns(), len(gpu.kernels)
        optimizer.step()
    kernels = gpu.kernels[before:]
    return (kernels[-1].end_ns - began) / 1e9, len(kernels), sum(k.duration_s for k in kernels)


def _as_measured(report: check.Report) -> str | None:
    if report.counts["operators"]:
        return "runs operators of PyTorch; wanted is a prediction from the numbers alone, before there is a GPU to ask"
    if not isinstance(report.value, int | float):
        return f"returned a {type(report.value).__name__}, wanted seconds, a number"
    sizes, way, launch_s, *rest = report.args
    truth, kernels, busy = _measured(tuple(sizes), way, launch_s, *rest)
    if not abs(report.value / truth - 1) <= 0.03:
        return (
            f"{way}, {len(sizes)} parameters, the first of {sizes[0]:,} weights and the last of {sizes[-1]:,}: "
            f"you say {report.value * 1e6:,.1f} µs, the simulated GPU took {truth * 1e6:,.1f} µs (3 % allowed). It "
            f"was {kernels} kernels: {kernels * launch_s * 1e6:,.1f} µs of launching, {busy * 1e6:,.1f} µs of "
            "work, partly at the same time"
        )
    return None


def check_step_time(*cases: check.Case) -> None:
    look, note = (
        "2 · Launches or bytes?; Further, How long will a step take?",
        "latency_s only delays a kernel for which the GPU is waiting.",
    )
    check.function("step_time", cases, drive=predicted, verify=each(_as_measured), look=look, note=note)
