"""Tests of lesson 10: bits of number formats, casts placed by hand, a scaler of losses, shapes padded to multiples."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F

from helpers import check, count
from helpers.check.judges import each, hearing_of, own_work
from helpers.check.results import plain
from helpers.lessons.mixed_precision.float_formats import Format
from helpers.pytorch import dispatch_mode
from helpers.pytorch.flops import contracts

Tensors = list[torch.Tensor]
#: bits of the exponent, bits of the mantissa
Form = tuple[int, int]


# --- 10.4 decode and encode ---------------------------------------------------------------------------------------


def _spelled(bits: int, exponent: int, mantissa: int) -> str:
    """0x7C01 = 0 11111 0000000001"""
    digits = f"{bits:0{1 + exponent + mantissa}b}"
    if bits < 0 or len(digits) > 1 + exponent + mantissa:
        return f"{bits}, which is not from 0 to {2 ** (1 + exponent + mantissa) - 1}"
    parts = digits[0], digits[1 : 1 + exponent], digits[1 + exponent :]
    return f"0x{bits:0{-(-len(digits) // 4)}X} = {' '.join(parts)}"


def _kind(x: float, exponent: int, mantissa: int) -> str:
    """One more line of help: what is special about the number x in this format."""
    if x == 0 or not math.isfinite(x):
        return "Zeros with their signs, infinities, NaN."
    form, size = Format("", exponent, mantissa), abs(x)
    if size > form.largest:
        return "Beyond the largest: from the middle between it and the next power of two on, infinity."
    bits, value = form.encode(size), form.rounded(size)
    other = form.decode(bits + (1 if size > value else -1))
    if size != value and size - value == other - size:
        return "Exactly between two neighbours: to the even one, not always up."
    if bits < 2**mantissa:
        apart = 2 - 2 ** (exponent - 1) - mantissa
        return f"No leading 1: subnormal numbers lie 2^{apart} apart, whatever their size."
    return "Normal numbers: the nearest one."


def _first_wrong(report: check.Report, wanted: Callable[..., float]) -> str | None:
    """Which number is the first that is not what `wanted` makes of it: a value of a pattern, or a pattern of a value."""
    (given, *form), got = report.args, report.value
    dtype = torch.int64 if given.is_floating_point() else torch.float64
    if not torch.is_tensor(got) or got.dtype != dtype or got.shape != given.shape:
        kind = f"{got.dtype}, {tuple(got.shape)}" if torch.is_tensor(got) else type(got).__name__
        return f"got {kind}, wanted a tensor of {dtype}, {tuple(given.shape)}"
    numbers = given.flatten().tolist()
    want = torch.tensor([wanted(number, *form) for number in numbers], dtype=dtype)
    off = got.flatten() != want  # isclose compares whole numbers in float32
    if dtype == torch.float64:
        off = ~torch.isclose(got.flatten(), want, rtol=1e-12, atol=0, equal_nan=True)
        off |= (want == 0) & (got.flatten().signbit() != want.signbit())
    if not off.any():
        return None
    at = int(off.nonzero()[0])
    three = numbers[at], want[at].item(), got.flatten()[at].item()
    x, y, z = (_spelled(v, *form) if isinstance(v, int) else repr(v) for v in three)
    about = _kind(next(v for v in three if isinstance(v, float)), *form)
    return f"{x} is {y}, got {z} ({int(off.sum())} of {off.numel()} differ)\n  A format of {form[0]} and {form[1]} bits. {about}"


def random_patterns(seed: int, form: Form, *shape: int) -> torch.Tensor:
    return torch.randint(0, 2 ** (1 + sum(form)), shape, generator=torch.Generator().manual_seed(seed))


def hard_numbers(seed: int, *shape: int) -> torch.Tensor:
    """Float32 numbers: a third of its whole range, a third from 2^-30 to 2^24, the others ties of coarse formats.

    Zeros, infinities, a negative and a signalling NaN, the smallest and the largest number, and the one just below 2^100
    (whose log2 is 100 in float32) come first.
    """
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2**31, shape, generator=g).to(torch.int32).view(torch.float32)
    usual = torch.exp2(torch.randint(-30, 24, shape, generator=g).float())
    ties = torch.randint(0, 4096, shape, generator=g).float() + 0.5
    ties *= torch.exp2(torch.randint(-20, 6, shape, generator=g).float())
    kind = torch.randint(0, 3, shape, generator=g)
    x = torch.where(kind == 0, x, torch.where(kind == 1, usual * torch.rand(shape, generator=g), ties))
    x *= torch.randn(shape, generator=g).sign()
    special = [0, -(2**31), 0x7F800000, 0x7F800000 - 2**31, -1]
    special += [0x7F800001, 1, 0x7F7FFFFF, 0x007FFFFF, 0x717FFFFF]
    x.view(-1)[: len(special)] = torch.tensor(special, dtype=torch.int32).view(torch.float32)
    return x


def _check_numbers(name: str, numbers: Mapping[Form, Any], wanted: Callable[..., float], look: str) -> None:
    def budget(some: torch.Tensor, *_: int) -> dict[str, int]:
        return {"operators": 60} | ({"syncs": 0} if some.dim() else {})  # a mask of a single number is read

    cases = [check.case(torch.as_tensor(some), *form) for form, some in numbers.items()]
    judge = each(partial(_first_wrong, wanted=wanted))
    check.function(name, cases, budget=budget, verify=judge, look=look)


@cache  # the same thousands of patterns for every answer
def _value(bits: int, exponent: int, mantissa: int) -> float:
    return Format("", exponent, mantissa).decode(bits)


def check_decode(patterns: Mapping[Form, Any]) -> None:
    """patterns: format → a tensor, or a list, of int64."""
    _check_numbers("decode", patterns, _value, "the table above the exercise")


def check_encode(numbers: Mapping[Form, Any]) -> None:
    """numbers: format → a tensor, or a list, of float32."""
    # of NaN there is one pattern, without a sign
    nearest = lambda x, *of: Format("", *of).encode(math.nan if math.isnan(x) else x)  # noqa: E731
    _check_numbers("encode", numbers, nearest, "1 · Range and precision")


# --- 10.1 mixed_loss ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StreamNet:
    """The arguments of plain_loss: its depth, and x, target and the four weights."""

    depth: int
    tensors: Tensors

    def __str__(self) -> str:
        x, target, _, w_up, *_ = self.tensors
        (n, d), u, o = x.shape, w_up.shape[1], target.shape[1]
        return f"n={n}, d={d}, u={u}, o={o}, depth={self.depth}"


@cache
def stream_net(
    n: int,
    d: int,
    u: int,
    o: int,
    depth: int,
    *,
    large: float = 300.0,
    small: float = 0.3,
    away: float = 0.5,
    turned: bool = False,
) -> StreamNet:
    """large: the numbers in the stream; small: the updates' share; away: how far targets lie from results.

    turned: x and the weights lie transposed in memory.
    """
    g = torch.Generator().manual_seed(n + depth)
    shapes = ((n, d), (d, d), (d, u), (u, d), (d, o))
    x, w_in, w_up, w_down, w_out = (torch.randn(a, b, generator=g) / a**0.5 for a, b in shapes)
    x, w_in, w_down = x * n**0.5, large * w_in, small * w_down
    if turned:
        x, w_in, w_up, w_down, w_out = (t.t().contiguous().t() for t in (x, w_in, w_up, w_down, w_out))
    target = x @ w_in @ w_out + away * torch.randn(n, o, generator=g)
    return StreamNet(depth, [x, target, w_in, w_up, w_down, w_out])


class _NoAutocast(dispatch_mode.CallMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("autocast is closed here: place the casts by hand")
        return func(*args, **(kwargs or {}))


class _CastsUnseen(dispatch_mode.Looking):
    """Notes operators that make fp16 of fp32, or copy one into the other, and are no cast by name."""

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = str(func)
        # a copy_ of one dtype lays a gradient out as its transposed weight
        if name.startswith("aten.copy_") and args[0].dtype != args[1].dtype:
            self.seen.append(name)
        if torch.is_tensor(result) and result.dtype == torch.float16 and not name.startswith("aten._to_copy"):
            wide = [a for a in args if torch.is_tensor(a) and a.dtype == torch.float32]
            if any(a.numel() == result.numel() for a in wide):
                self.seen.append(name)


def _forward_and_back(mixed_loss: Any, depth: int, tensors: Tensors) -> dict[str, Any]:
    """Loss and gradients of the weights, autocast closed."""
    weights = [t.requires_grad_() for t in tensors[2:]]
    try:
        with _NoAutocast(), _CastsUnseen() as unseen:
            loss = plain(mixed_loss(*tensors, depth))
            loss.backward()
    finally:
        torch.set_autocast_enabled("cpu", False)
    return {"loss": loss.detach(), "gradients": [w.grad for w in weights], "unseen": unseen.seen[:1]}


def _plain(depth: int, x: torch.Tensor, target: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    w_in, w_up, w_down, w_out = weights
    h = x @ w_in
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h / size) @ w_up) @ w_down
    loss = (h @ w_out - target).square().mean()
    loss.backward()
    return loss


@cache
def _exact(net: StreamNet, depth: int) -> tuple[float, Tensors]:
    """The loss in float64 after so many blocks, and the gradients of the weights."""
    wide = [t.double().requires_grad_(i > 1) for i, t in enumerate(net.tensors)]
    return _plain(depth, *wide).item(), [w.grad for w in wide if w.grad is not None]


@cache
def _costs(net: StreamNet) -> Any:
    """What plain_loss counts, in float32."""
    return count(_plain, net.depth, *(t.clone().requires_grad_(i > 1) for i, t in enumerate(net.tensors)))


def _bytes_of_products(allocations: Sequence[tuple[str, int]]) -> int:
    return sum(b for op, b in allocations if contracts(op) or "attention" in op)


def _right_and_cheap(report: check.Report) -> str | None:
    net, got, used = report.case, report.value, report.counts
    text = _wrong_loss(net, got["loss"]) or _wrong_gradients(net, got["gradients"])
    return text or _wrong_products(net, used) or _wrong_casts(net, got["unseen"], used)


def _wrong_loss(net: StreamNet, got: torch.Tensor) -> str | None:
    if got.dtype != torch.float32 or got.shape != ():
        return f"the loss is {got.dtype} of shape {tuple(got.shape)}, wanted a float32 scalar"
    (want, _), (bare, _) = _exact(net, net.depth), _exact(net, 0)
    loss, why = got.item(), ""
    off = abs(loss / want - 1)
    if off <= 0.03:
        return None
    if not abs(loss) < math.inf:
        why = ". A square above 65,504 is infinite in fp16, that of an error of 256 too"
    elif off > 0.5 and 0.5 < loss / bare < 2:
        why = f"; with no block at all it would be {bare:.4g}. h * h is infinite in fp16, a number divided "
        why += "by infinity is 0, and so each block adds 0, without a NaN"
    elif off < 0.5:
        why = f": off by {off:.0%}, so nothing is infinite, but something is too coarse. Is the stream h "
        why += "kept in 16 bits? It swallows its updates"
    return f"the loss is {loss:.4g}, float64's is {want:.4g}{why}"


def _wrong_gradients(net: StreamNet, gradients: list[torch.Tensor | None]) -> str | None:
    names, (_, wanted) = ("w_in", "w_up", "w_down", "w_out"), _exact(net, net.depth)
    for name, g, want in zip(names, gradients, wanted, strict=True):
        if g is None or g.dtype != torch.float32:
            return f"{name} has no float32 gradient: the graph back to it was cut"
        off = ((g.double() - want).norm() / want.norm()).item()
        if not off <= 0.08:
            return f"the loss is right, but the gradient of {name} is off by {off:.0%}"
        if off < 1e-4:
            return (
                f"the gradient of {name} is off by {off:.1e} only, and of inputs rounded to fp16 it is 1e-3 or "
                "more: its matmuls were made of fp32 inputs, wherever that was"
            )
    return None


def _wrong_products(net: StreamNet, used: dict[str, Any]) -> str | None:
    plain = _costs(net)
    if not 0.99 * plain.flops <= used["flops"] <= 1.01 * plain.flops:
        return f"{used['flops']:,} FLOPs in matmuls, plain_loss has {plain.flops:,}"
    taken, wanted = _bytes_of_products(used["allocations"]), _bytes_of_products(plain.allocations) // 2
    if taken > wanted:
        return (
            f"values right, but matmuls made {taken:,} bytes of results; in fp16, which is what their "
            f"inputs should be, it is {wanted:,}. Backward counts too: an fp32 input makes an fp32 gradient"
        )
    if taken < wanted:
        return f"matmuls made {taken:,} bytes of results, wanted {wanted:,}: into what do the others write?"
    return None


def _wrong_casts(net: StreamNet, unseen: list[str], used: dict[str, Any]) -> str | None:
    if odd := unseen + [op for op in used["by_operator"] if "_foreach_copy" in op]:
        return f"{odd[0]} casts unseen; use .to(), .half() or .float(), whose bytes are counted"
    taken = sum(b for op, b in used["allocations"] if op == "aten._to_copy")
    of_x, of_result, *of_w = (t.numel() for t in net.tensors)
    wide, plain = of_x * of_w[1] // of_w[0], _costs(net)
    limit = 2 * of_x + 6 * (sum(of_w) + 2 * of_x + of_result + net.depth * 2 * (of_x + wide))
    if taken > limit:
        return f"values right, but casts made {taken:,} bytes, wanted at most {limit:,}. Is a weight cast in each turn?"
    if used["operators"] > 1.5 * plain.operators:
        return f"{used['operators']:,} operators, plain_loss {plain.operators:,}"
    if used["bytes_allocated"] > 1.1 * plain.bytes_allocated:
        return f"{used['bytes_allocated']:,} bytes allocated, plain_loss {plain.bytes_allocated:,}"
    return None


def check_mixed_loss(*cases: StreamNet) -> None:
    judge, look = each(_right_and_cheap, told=True), "2 · What autocast casts"
    check.function("mixed_loss", cases, drive=_forward_and_back, budget={"syncs": 0}, verify=judge, look=look)


# --- 10.3 Scaler --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """Steps of SGD on parameters of these sizes. odd: (step, parameter, value) that is among its gradients.

    sizes: of a vector, or the two of a matrix that lies transposed in memory. large: the first step's gradients.
    clip: the norm to which gradients are clipped, in all but each third step. unused: in these steps the last
    parameter has no gradient. The others are the scaler's options; ``None`` is not given.
    """

    steps: int
    sizes: tuple[int | tuple[int, ...], ...]
    seed: int
    odd: tuple[tuple[int, int, float], ...] = ()
    clip: float | None = None
    unused: tuple[int, ...] = ()
    init_scale: float | None = 64.0
    growth_factor: float | None = None
    backoff_factor: float | None = None
    growth_interval: int | None = None
    large: float | None = None


_OPTIONS = "init_scale", "growth_factor", "backoff_factor", "growth_interval"
#: what a case is about that has this
_NOTES = {
    "odd": "A gradient is not finite: the step leaves weights *and momenta* as they are; the scale backs off.",
    "growth_interval": "Growth after so many good steps in a row; an accident begins the row anew, so does growth.",
    "clip": "Clipped: unscale_ divides once, and step does not divide again.",
    "unused": "The last parameter does not always take part: then it has no gradient, p.grad is None.",
    "large": "Gradients of any size that is finite: their sum, or their squares, need not be.",
}


#: how the result says whether PyTorch's own did it
_BY_TORCH = "torch.amp.GradScaler ran, in part or whole"


def _refuses(scaler: Any, optimizer: torch.optim.Optimizer, what: str) -> None:
    with suppress(RuntimeError):
        scaler.unscale_(optimizer)
        raise AssertionError(f"{what}, before update(), raised no RuntimeError")


def _train_by_own(Scaler: Any, **fields: Any) -> dict[str, Any]:
    """Train with this scaler, and hear whether PyTorch's own does it: a class made from it, or an object inside."""
    with hearing_of(torch.amp.grad_scaler) as called:
        return _train(Scaler, **fields) | {_BY_TORCH: called()}


def _train(Scaler: Any, **fields: Any) -> dict[str, Any]:
    """Train with this scaler: its scale and the weights' sums step by step, and what is there at the end."""
    asked = Training(**fields)
    g = torch.Generator().manual_seed(asked.seed)
    starts = [torch.randn(n, generator=g) for n in asked.sizes]
    params = [torch.nn.Parameter(w.t().contiguous().t() if w.dim() == 2 else w) for w in starts]
    slopes = [[torch.randn(p.shape, generator=g).half() for p in params] for _ in range(asked.steps)]
    for step, which, value in asked.odd:
        slopes[step][which][-1] = value
    groups: list[dict[str, Any]] = [{"params": params[:1], "lr": 0.05}, {"params": params[1:]}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.1)
    scaler = Scaler(**{name: fields[name] for name in _OPTIONS if fields[name] is not None})
    unit, sums = torch.ones(()), []
    for i, of_step in enumerate(slopes):
        parts = [(p.half() * s).float().mean() for p, s in zip(params, of_step, strict=True)]
        if asked.large and i == 0:
            weights = [s.float().abs().clamp(0.5, 1.0) * asked.large for s in of_step]
            parts = [(p * w).sum() for p, w in zip(params, weights, strict=True)]
        scaler.scale(torch.stack(parts[:-1] if i in asked.unused else parts).sum()).backward()
        held = [p.grad for p in params]
        if asked.clip and i % 3 != 2:
            scaler.unscale_(optimizer)
            _refuses(scaler, optimizer, "a second unscale_")
            torch.nn.utils.clip_grad_norm_(params, asked.clip)
        scaler.step(optimizer)
        if asked.clip:
            _refuses(scaler, optimizer, "unscale_ after step()")
        scaler.update()
        if any(p.grad is not g for p, g in zip(params, held, strict=True)):
            raise AssertionError("p.grad is another tensor than before: divide in place")
        optimizer.zero_grad()
        sums.append(torch.stack([scaler.scale(unit).detach(), *(p.detach().double().sum() for p in params)]))
    return {
        "scale and sum of the weights, by step": sums,
        "weights": [p.detach() for p in params],
        "momenta": [optimizer.state[p]["momentum_buffer"] for p in params if optimizer.state[p]],
    }


@cache
def _with_torchs(case: Training) -> dict[str, Any]:
    return _train(partial(torch.amp.GradScaler, "cpu"), **vars(case)) | {_BY_TORCH: False}


def check_Scaler(*cases: Training) -> None:
    known: dict[str, Any] = {"match": check.Match(rtol=1e-5, atol=1e-6), "verify": each(own_work("_amp_"))}
    known |= {"drive": _train_by_own, "look": "3 · Gradients that vanish"}
    for case in cases:
        known["note"] = " ".join(note for name, note in _NOTES.items() if getattr(case, name))
        check.function("Scaler", [case], [_with_torchs(case)], budget={"syncs": case.steps}, **known)


# --- 10.2 aligned -------------------------------------------------------------------------------------------------


@cache
def net(sizes: tuple[int, ...], multiple: int, rows: tuple[int, ...]) -> check.Case:
    """Layers from sizes[0] features to sizes[-1], and one batch for each of rows; weights and batches not contiguous."""
    g = torch.Generator().manual_seed(sum(sizes))
    weights = [torch.randn(i, o, generator=g).t() / i**0.5 for i, o in itertools.pairwise(sizes)]
    biases = [torch.randn(o, generator=g) for o in sizes[1:]]
    batches = [torch.randn(sizes[0], r, generator=g).t() for r in rows]
    return check.case(weights, biases, multiple, batches)


def _run_batches(aligned: Any, weights: Tensors, biases: Tensors, multiple: int, batches: Tensors) -> Any:
    """One forward for all batches: the results, and what has become of the inputs."""
    forward = aligned(weights, biases, multiple)
    return [forward(x) for x in batches], weights, biases, batches


def _unpadded(weights: Tensors, biases: Tensors, multiple: int, batches: Tensors) -> Any:
    results = []
    for y in batches:
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            y = (y.sigmoid() if i else y) @ w.T + b
        results.append(y)
    return results, weights, biases, batches


def _padded(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _bytes_of(weights: Tensors, biases: Tensors, multiple: int, batches: Tensors) -> tuple[list[int], int]:
    """Of the matmuls' results, sorted, and the most that all may take."""
    outs = [_padded(len(b), multiple) for b in biases]
    ins = [_padded(w.shape[1], multiple) for w in weights]
    rows = [_padded(len(x), multiple) for x in batches]
    once = 2 * 4 * sum(o * i + o for o, i in zip(outs, ins, strict=True))
    return sorted(4 * r * o for r in rows for o in outs), once + 4 * sum(rows) * (ins[0] + 3 * sum(outs))


_SIZES = ("rows (M)", "features in (K)", "features out (N)")


def _flops_of(weights: Tensors, multiple: int, batches: Tensors, left: Sequence[str] = ()) -> int:
    """FLOPs when all sizes are padded but those in `left`."""

    def size(name: str, n: int) -> int:
        return n if name in left else _padded(n, multiple)

    m, k, n = _SIZES
    layers = [size(k, w.shape[1]) * size(n, w.shape[0]) for w in weights]
    return 2 * sum(size(m, len(x)) for x in batches) * sum(layers)


def _fits(report: check.Report) -> str | None:
    (weights, biases, multiple, batches), counts = report.args, report.counts
    at = f"multiple={multiple}: "
    want, got = _flops_of(weights, multiple, batches), counts["flops"]
    if got != want:
        subsets = (s for many in (1, 2, 3) for s in itertools.combinations(_SIZES, many))
        left = next((s for s in subsets if _flops_of(weights, multiple, batches, s) == got), ())
        way = "some size was left as it was"
        if got > want:
            way = "a size was padded too far (one that fits stays as it is), or a matmul done twice"
        elif left:
            way = f"as many as with the {' and the '.join(left)} left as they were"
        return f"{at}values right, but {got:,} FLOPs, wanted exactly {want:,}: {way}"
    wide, limit = _bytes_of(weights, biases, multiple, batches)
    results = sorted(b for op, b in counts["allocations"] if contracts(op))
    if results != wide:
        return f"{at}results of matmuls take {results[:6]} … bytes, wanted {wide[:6]} …, padded"
    if counts["bytes_allocated"] > limit:
        took = f"{counts['bytes_allocated']:,} bytes allocated (limit {limit:,})"
        return f"{at}values and FLOPs right, but {took}. Are weights padded in each forward, or x twice?"
    return None


def check_aligned(*cases: check.Case, note: str = "") -> None:
    known: dict[str, Any] = {"look": "4 · Shapes that fit", "match": check.Match(rtol=1e-4, atol=1e-5)}
    known |= {"budget": {"syncs": 0}, "verify": each(_fits), "note": note}
    check.function("aligned", cases, _unpadded, drive=_run_batches, **known)
