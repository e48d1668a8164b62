"""Tests of lesson 16: a split MLP, 1F1B's order, stages that are balanced in a memory, axes laid over a machine."""

import gc
import itertools
import math
import os
import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from helpers import check, count, ranks
from helpers.check.judges import each_value
from helpers.check.on_ranks import check_ranks, on_ranks
from helpers.check.reference import reference
from helpers.simulator.world.pipeline import order, pipeline

_BETWEEN_LAYERS = "2 · Split between the layers"
_RATE = 0.1

# --- 16.3 ParallelMLP ---------------------------------------------------------------------------------------------


def whole(shape: Sequence[int], hidden: int, biases: Sequence[bool], seed: int) -> list[Any]:
    """An MLP with `hidden` units, its first and second layer with a bias or not, for x of this shape."""
    return [list(shape), hidden, list(biases), seed]


def _inputs(
    shape: list[int], hidden: int, biases: list[bool], seed: int
) -> tuple[torch.Tensor, torch.Tensor, nn.Linear, nn.Linear]:
    """x, the gradient of y, and the two whole layers."""
    dice, width = torch.Generator().manual_seed(seed), shape[-1]
    x, grad = torch.randn(*shape, generator=dice), torch.randn(*shape, generator=dice)
    first = nn.Linear(width, hidden, bias=biases[0])
    second = nn.Linear(hidden, width, bias=biases[1])
    with torch.no_grad():
        for p in (*first.parameters(), *second.parameters()):
            p.copy_(torch.randn(p.shape, generator=dice) / p.shape[-1] ** 0.5)
    return x, grad, first, second


@on_ranks
def _split(kind: Any, cases: list[list[Any]]) -> list[Any]:
    return [_split_one(kind, *case) for case in cases]


def _split_one(kind: Any, shape: list[int], hidden: int, biases: list[bool], seed: int) -> Any:
    """What this rank holds once the whole layers are gone, and of two steps the values and what was sent."""
    gc.freeze()  # only what is made from now on is looked at
    # what a graph's nodes keep is no tensor of Python's: only what was made and has not gone tells
    with count() as alive:
        x, grad, first, second = _inputs(shape, hidden, biases, seed)
        params = [*first.parameters(), *second.parameters()]
        before = [p.detach().clone() for p in params]
        with ranks.sent() as making:
            try:
                made = kind(first, second)
            except ValueError:
                return "ValueError"
        read_only = all(p.shape == q.shape and torch.equal(p, q) for p, q in zip(params, before, strict=True))
        del first, second, params, before
        gc.collect()
    observed: dict[str, Any] = {
        "held": max(alive.live_bytes, _bytes_held()) - x.nbytes - grad.nbytes,
        "steps": [],
        "read_only": read_only,
    }
    observed |= {"making": making.as_dict()["counts"], "rate": _RATE, "alone": _alone(kind)}
    given_back = []
    for _ in range(2):
        x = x.detach().clone().requires_grad_()
        with ranks.sent() as forward:
            y = made(x)
        with ranks.sent() as backward:
            y.backward(grad)
        if not biases[1] and not observed["steps"]:
            # a rate that no other rank knows: what a rank computes must come from what it holds
            observed["rate"] = 0.05 + int.from_bytes(os.urandom(2), "big") / 2**19
        for p in made.parameters():
            if p.grad is not None:
                p.data -= observed["rate"] * p.grad
                p.grad = None
        plain = (y + 0).detach() if type(y).__name__ == "Tensor" else None
        given_back.append((y, plain))
        step: dict[str, Any] = {
            "kind": type(y).__name__,
            "values": (plain, plain if plain is None else x.grad),
        }
        for way, record in (("forward", forward), ("backward", backward)):
            step[way] = [(c.kind, c.bytes, c.reduction, c.operator) for c in record.calls]
        observed["steps"].append(step)
    y, plain = given_back[0]
    observed["first y changed"] = plain is not None and not torch.equal(y.detach(), plain)
    observed["shared"] = _shared(kind, [shape, hidden, biases, seed])
    return observed


def _shared(kind: Any, case: list[Any]) -> list[str]:
    """Which of the given weights change where what was made of them is trained."""
    _, _, first, second = _inputs(*case)
    given = [*first.named_parameters("first"), *second.named_parameters("second")]
    before = [p.detach().clone() for _, p in given]
    for p in kind(first, second).parameters():
        p.data += 1
    return [name for (name, p), was in zip(given, before, strict=True) if not torch.equal(p, was)]


def _alone(kind: Any) -> list[float]:
    """Of ones: y after summed_forward(y); x's gradient in x + summed_backward(x), whose summands get the same tensor."""
    names, y, x = kind.forward.__globals__, torch.ones(1), torch.ones(1, requires_grad=True)
    names.get("summed_forward", torch.relu)(y)
    both = x + names.get("summed_backward", torch.relu)(x)
    return [y.item(), torch.autograd.grad(both, x, torch.ones(1))[0].item()]


def _bytes_held() -> int:
    """Of the storages of all tensors that are alive."""
    held: dict[int, int] = {}
    for t in gc.get_objects():
        if isinstance(t, torch.Tensor):
            try:
                at, size = t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()
            except RuntimeError:  # sparse ones; wrappers have none either, and what they wrap is listed too
                plain = type(t) in (torch.Tensor, nn.Parameter)
                at, size = id(t), t.numel() * t.element_size() if plain else 0
            held[at] = max(held.get(at, 0), size)
    return sum(held.values())


def _steps_of(rates: list[float], case: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The unsplit MLP, its hidden units trained with their rank's rate: (y, x's gradient) of each step."""
    _, hidden, biases, _ = case
    x, grad, first, second = _inputs(*case)
    by_unit = torch.tensor(rates).repeat_interleave(hidden // len(rates))
    steps, params = [], [*first.parameters(), *second.parameters()]
    for _ in range(2):
        x = x.detach().clone().requires_grad_()
        y = second(nn.functional.gelu(first(x)))
        gradients = torch.autograd.grad(y, [x, *params], grad)
        steps.append((y.detach(), gradients[0]))
        with torch.no_grad():
            for p, g in zip(params, gradients[1:], strict=True):
                rate: Any = _RATE if biases[1] else by_unit[:, None] if p is first.weight else by_unit
                p.sub_(rate * g)
    return steps


def _split_as_whole(observed: list[Any], n: int, cases: list[list[Any]]) -> str | None:
    for case, *every in zip(cases, *observed, strict=True):
        rates = [_RATE if got == "ValueError" else got["rate"] for got in every]
        for rank, got in enumerate(every):
            if text := _rank_wrong(n, case, rank, got, rates):
                return f"{n} ranks, x of {tuple(case[0])}, {case[1]} hidden units: {text}"
    return None


def _rank_wrong(n: int, case: list[Any], rank: int, got: Any, rates: list[float]) -> str | None:
    shape, hidden, biases, _ = case
    if hidden % n or got == "ValueError":
        fine = hidden % n and got == "ValueError"
        return None if fine else "raised ValueError" if got == "ValueError" else "wanted ValueError"
    for step in got["steps"]:
        if step["kind"] != "Tensor" or any("functional" in c[3] for c in step["forward"] + step["backward"]):
            return f"y's type is {step['kind']}: by torch.distributed.tensor or a functional collective; write it with dist.all_reduce"
    most = 4 * ((2 * shape[-1] + biases[0]) * hidden // n + biases[1] * shape[-1]) + 256
    if got["held"] > most:
        return f"rank {rank} holds {got['held']:,} bytes of tensors; wanted at most {most:,} (a view keeps the whole matrix, and so does a graph that was made of it)"
    if not got["read_only"]:
        return "first and second have changed; they are only to be read"
    if got["shared"]:
        return (
            f"training writes into {got['shared'][0]}, which is only to be read: is each parameter a clone?"
        )
    kept, passed = got["alone"]
    if kept != 1 or passed not in (2, 1 + n):
        return (
            f"of y = 1 summed_forward(y) left {kept:g}, wanted 1; of x + summed_backward(x) x's gradient is {passed:g}, "
            f"wanted {1 + n}. Was y, or the gradient that came (which the other summand gets too), summed in place?"
        )
    if got["making"]:
        return f"__init__ sent {got['making']}, wanted nothing"
    for i, (step, right) in enumerate(zip(got["steps"], _steps_of(rates, case), strict=True)):
        after = " after a step of SGD" + (", a rate for each rank," * (not biases[1])) if i else ""
        if text := _step_wrong(step, right, after, rank, 4 * torch.Size(shape).numel(), biases[1] and not i):
            return text
    if got["first y changed"]:
        return "values are right, but the first call's y has changed in the second: it is a tensor of its own"
    return None


def _step_wrong(
    step: dict[str, Any], right: tuple[torch.Tensor, ...], after: str, rank: int, size: int, biased: bool
) -> str | None:
    calls, ways = [tuple(c)[:3] for c in step["forward"] + step["backward"]], ("forward", "backward")
    messages = [", ".join(f"{k} of {b:,} bytes" for k, b, *_ in step[w]) or "nothing" for w in ways]
    sent = f"sent forward: {messages[0]}, backward: {messages[1]}; wanted each way one all_reduce (sum) of {size:,} bytes"
    for name, mine, want in zip(("y", "x's gradient"), step["values"], right, strict=True):
        if mine is None or mine.shape != want.shape:
            return f"rank {rank} has {name} {mine if mine is None else tuple(mine.shape)}, wanted {tuple(want.shape)}"
        most_of, off = float(want.abs().max()), mine - want
        if not (odd := float(off.abs().max())) < 1e-3 + 1e-4 * most_of:
            flat = biased and name == "y" and want.dim() > 1
            flat = flat and float((off - off.flatten(0, -2)[0]).abs().max()) < 1e-4
            bias = "; by the same in every row: how often is the second bias in it?" if flat else ""
            return f"{name}{after} is off by up to {odd:.2g} on rank {rank}, of values up to {most_of:.2g}{bias}; {sent}"
    if calls != [("all_reduce", size, "sum")] * 2 or len(step["forward"]) != 1:
        return f"values are right, but {sent}"
    return None


def check_ParallelMLP(n: int, *cases: list[Any]) -> None:
    look = "1 · Split a matrix product"
    check_ranks("ParallelMLP", _split, _split_as_whole, n, list(cases), look=look)


# --- 16.1 one_f_one_b ---------------------------------------------------------------------------------------------


@reference
def _one_f_one_b(p: int, m: int, most: int | None = None) -> list[list[str]]:
    """A rank that may keep `most` micro-batches does what that rank does which keeps so many without a limit."""
    rows, first = order("1F1B", p, m), 0 if most is None else max(0, p - most)
    return [[f"{r}{action.lstrip('0123456789')}" for action in rows[max(r, first)]] for r in range(p)]


def _table_wrong(table: Any, p: int, m: int, most: int | None = None) -> str | None:
    right, rows = _one_f_one_b(p, m, most), [list(map(str, row)) for row in table]
    where = f"{p} stage{'s' * (p > 1)}, {m} micro-batches{'' if most is None else f', most={most}'}: "
    if len(rows) != p or sorted(sum(rows, [])) != sorted(sum(right, [])):
        return f"{where}wanted {p} rows that hold each of {2 * p * m} actions once; there are {len(rows)} rows, {len(sum(rows, []))} actions"
    try:
        ran, best = pipeline(rows), pipeline(right)
    except ValueError as stop:
        return f"{where}{stop}"
    if any(a > b for a, b in zip(ran.peak, best.peak, strict=True)):
        return (
            f"{where}the ranks hold {list(ran.peak)} micro-batches at their peaks, wanted {list(best.peak)}"
        )
    if ran.seconds > best.seconds:
        return f"{where}it takes {ran.seconds:g} forwards, bubble {ran.bubble:.1%}; wanted {best.seconds:g}, bubble {best.bubble:.1%}"
    if other := [r for r in range(p) if rows[r] != right[r]]:
        begins = " ".join(rows[other[0]][:9])
        return f"{where}bubble and peaks are right, but rank {other[0]}'s order is not 1F1B's: {begins} …"
    return None


def check_one_f_one_b(*cases: list[int], refused: Sequence[list[int]]) -> None:
    """cases, refused: [stages, micro-batches] or [stages, micro-batches, most]; those refused raise ValueError."""
    asked = [check.case(*case) for case in cases] + [check.case(*case, raises=ValueError) for case in refused]
    check.function("one_f_one_b", asked, verify=each_value(_table_wrong), look=_BETWEEN_LAYERS)


# --- 16.4 balance -------------------------------------------------------------------------------------------------

Layers = tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]  # seconds, weights, activations


@reference
@cache
def _least(of: Layers, stages: int, microbatches: int, memory: int) -> float:
    """The slowest stage of the best cut, by going through all that can be."""
    seconds, weights, activations = of
    layers = len(seconds)

    @cache
    def rest(begin: int, stage: int) -> float:
        if stage == stages:
            return 0.0 if begin == layers else float("inf")
        alive, least = min(stages - stage, microbatches), float("inf")
        for end in range(begin + 1, layers + 1):
            if sum(weights[begin:end]) + alive * sum(activations[begin:end]) <= memory:
                least = min(least, max(sum(seconds[begin:end]), rest(end, stage + 1)))
        return least

    return rest(0, 0)


#: numbers that a call may read from the three lists. 60 layers have 60 · 61 ÷ 2 parts of 21 layers on average: who sums every
#: part anew for each of 12 stages reads 3 · 12 · 1,830 · 21 of them, 1.4 million; who tries all cuts reads 180 for each
MOST_READ = 10_000_000


class _TooManyRead(RuntimeError):
    """A call has read more than :data:`MOST_READ` numbers."""


def _cut(
    balance: Any, seconds: list[float], weights: list[int], activations: list[int], *rest: int
) -> dict[str, Any]:
    """What the answer returned, how many numbers it read from the lists, and whether they are as they were."""
    read = 0

    def note(n: int) -> None:
        nonlocal read
        read += n
        if read > MOST_READ:
            raise _TooManyRead(f"{read:,} numbers read from the lists; wanted at most {MOST_READ:,}")

    class Listed(list[Any]):
        """A list that notes how much of it is read."""

        def __getitem__(self, at: Any) -> Any:
            part = list.__getitem__(self, at)
            note(len(part) if isinstance(at, slice) else 1)
            return part

        def __iter__(self) -> Iterator[Any]:
            note(len(self))
            return list.__iter__(self)

    before: list[list[Any]] = [seconds, weights, activations]
    handed = [Listed(numbers) for numbers in before]
    try:
        cut = balance(*handed, *rest)
    except _TooManyRead:
        cut = None
    return {"cut": cut, "read": read, "as it was": handed == before}


def _not_balanced(value: dict[str, Any], *given: Any) -> str | None:
    seconds, weights, activations, stages, microbatches, memory = given
    where = f"{len(seconds)} layers on {stages} stages: "
    if value["read"] > MOST_READ:
        cuts = math.comb(len(seconds) - 1, stages - 1)
        return f"{where}more than {MOST_READ:,} numbers were read from the lists; there are {cuts:,} cuts, too many to try"
    if not value["as it was"]:
        return f"{where}a list that was given has changed; the caller still needs it"
    got = list(value["cut"])
    if len(got) != stages or min(got) < 1 or sum(got) != len(seconds):
        return f"{where}returned {got}; wanted {stages} numbers of layers, each at least 1, {len(seconds)} together"
    times, begin = [], 0
    for stage, n in enumerate(got):
        part = slice(begin, begin + n)
        held = sum(weights[part]) + min(stages - stage, microbatches) * sum(activations[part])
        if held > memory:
            return f"{where}{got}: stage {stage} holds {held:,} bytes, and there are {memory:,}"
        times.append(sum(seconds[part]))
        begin += n
    best = _least((tuple(seconds), tuple(weights), tuple(activations)), stages, microbatches, memory)
    if max(times) > best * (1 + 1e-9):
        return f"{where}{got} fits, but its slowest stage takes {max(times):g} s, and {best:g} s can be had"
    return None


def layers(seed: int, many: int, stages: int, microbatches: int, tight: float) -> check.Case:
    """Random layers, with `tight` times about the least memory that they fit into."""
    dice = random.Random(seed)
    seconds = [dice.randint(1, 40) / 8 for _ in range(many)]
    weights = [dice.randint(1, 50) for _ in range(many)]
    activations = [dice.randint(1, 20) for _ in range(many)]
    memory, parts = 1, (tuple(seconds), tuple(weights), tuple(activations))
    while _least(parts, stages, microbatches, memory) == float("inf"):
        memory = memory * 5 // 4 + 1
    return check.case(seconds, weights, activations, stages, microbatches, int(memory * tight))


def check_balance(*cases: check.Case) -> None:
    judge = each_value(_not_balanced)
    check.function("balance", cases, drive=_cut, verify=judge, look="Balance the stages")


# --- 16.2 layout --------------------------------------------------------------------------------------------------

NVLINK, INFINIBAND, ETHERNET, PCIE = [3.4e-6, 450e9], [9.6e-6, 50e9], [9.6e-6, 12.5e9], [5.7e-6, 63e9]
_AXES = ("tp", "pp", "dp")


def _seconds_of(
    model: dict[str, int], network: dict[str, Any], sizes: dict[str, int], order: Sequence[str]
) -> float | None:
    """A layout's step, or None where it is not allowed or does not fit."""
    L, h, s, B = model["layers"], model["width"], model["tokens"], model["sequences"]
    tp, pp, dp = (sizes[axis] for axis in _AXES)
    if h % tp or L % pp or B % dp:
        return None
    P, a, m = 12 * L * h**2, 2 * s * h, B // dp
    if 16 * P / (tp * pp) + min(pp, m) * 34 * s * h * L / (pp * tp) > network["memory"]:
        return None
    stride, link = 1, {}
    for axis in reversed(order):
        stride *= sizes[axis]
        link[axis] = network["inside"] if stride <= network["per_node"] else network["between"]

    def ring(n: int, size: float, axis: str) -> float:
        return float(2 * (n - 1) * (link[axis][0] + size / (n * link[axis][1])))

    slot = 6 * s * P / (pp * tp) / network["flops"] + 4 * L / pp * ring(tp, a, "tp")
    slot += 2 * (link["pp"][0] + a / link["pp"][1]) if pp > 1 else 0
    return float((m + pp - 1) * slot + ring(dp, 2 * P / (tp * pp), "dp"))


@reference
def _shortest(model: dict[str, int], network: dict[str, Any], gpus: int) -> float:
    """The step of the best layout, by trying all."""

    def layouts() -> Iterator[tuple[dict[str, int], Sequence[str]]]:
        for tp, pp in itertools.product([d for d in range(1, gpus + 1) if gpus % d == 0], repeat=2):
            if gpus % (tp * pp) == 0:
                for order in itertools.permutations(_AXES):
                    yield {"tp": tp, "pp": pp, "dp": gpus // (tp * pp)}, order

    return min(t for candidate in layouts() if (t := _seconds_of(model, network, *candidate)) is not None)


def _laid_out(got: Any, model: dict[str, int], network: dict[str, Any], gpus: int) -> str | None:
    where = f"{model} on {gpus} GPUs, {network}:\n  "
    sizes = {axis: got[axis] for axis in _AXES}
    axes = " · ".join(f"{axis} {sizes[axis]}" for axis in got["order"])
    whole = all(type(size) is int and size > 0 for size in sizes.values())
    three = whole and sorted(got["order"]) == sorted(_AXES)
    if not three or sizes["tp"] * sizes["pp"] * sizes["dp"] != gpus:
        return f"{where}{axes} are not three axes of {gpus} ranks"
    mine, best = _seconds_of(model, network, sizes, got["order"]), _shortest(model, network, gpus)
    if mine is None:
        return f"{where}{axes} is not allowed or does not fit"
    if not abs(got["step_s"] - mine) <= 1e-6 * mine:
        return f"{where}{axes} takes {mine:.6g} s by step_seconds, you say {got['step_s']:.6g} s"
    if mine > best * (1 + 1e-9):
        return f"{where}{axes} takes {mine:.4g} s, and {best:.4g} s can be had"
    return None


def net(
    *shape: int, links: list[list[float]], per_node: int = 8, memory: float = 80e9, gpus: int = 64
) -> list[Any]:
    """(layers, width, tokens, sequences) on `gpus` GPUs; links as [α, β], inside a node and between nodes."""
    model = dict(zip(("layers", "width", "tokens", "sequences"), shape, strict=True))
    network = {"per_node": per_node, "memory": memory, "flops": 5e14, "inside": links[0], "between": links[1]}
    return [model, network, gpus]


def check_layout(*nets: list[Any], refused: Sequence[list[Any]] = ()) -> None:
    """refused: those that fit nowhere, for which it raises ValueError."""
    cases = [check.case(*case) for case in nets] + [check.case(*case, raises=ValueError) for case in refused]
    check.function("layout", cases, verify=each_value(_laid_out), look="3 · Lay it over the machine")
