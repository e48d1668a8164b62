"""Tests of lesson 13: integers and their scales, an int8 layer, a smoothed norm, and training for the rounding."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from helpers import check, count
from helpers.check.judges import each, own_work
from helpers.check.results import plain
from helpers.pytorch.dispatch_mode import Looking
from helpers.pytorch.flops import contracts
from helpers.simulator.accesses import accesses

_AT_BYTE = "1 · One byte and a scale"
#: operators that take no more than a shape and a dtype from a tensor
_LIKE = re.compile(r"empty|zeros|ones|full|new_|rand")
_TRAINING: dict[str, Any] = {"budget": {"syncs": 0}, "look": "Train for the rounding"}


def _outside(report: check.Report) -> str | None:
    """Whether it left torch: no counter sees what is computed elsewhere."""
    unseen = [name for name in report.counts["sync_by"] if name.startswith("Tensor.")]
    return f"{unseen[0]}: what is computed there is not counted; stay in torch" if unseen else None


# --- 13.1 quantize, dequantize ------------------------------------------------------------------------------------


def _keep(quantize: Callable[..., Any], x: Tensor, **options: Any) -> dict[str, Any]:
    """The integers, scales and zeros, and the bytes of the storages behind them."""
    q, scale, zero = quantize(x, **options)
    stored = sum(t.untyped_storage().nbytes() for t in (q, scale, zero) if t is not None)
    return {"q": q, "scale": scale, "zero": zero, "stored": stored}


def _wrong_integers(report: check.Report) -> str | None:
    """Every element within half of the smallest scale that will do, 0 as 0, and no byte too many."""
    x, got, options = report.args[0].double(), report.value, report.kwargs
    q, scale, zero = got["q"], got["scale"], got["zero"]
    bits, dim, symmetric = options.get("bits", 8), options.get("dim"), options.get("symmetric", True)
    at = ", ".join([f"x of {tuple(x.shape)}", *(f"{k}={v}" for k, v in options.items())]) + ": "
    others = [d for d in range(x.dim()) if dim is None or d != dim % x.dim()]
    shape = [] if dim is None else [1 if d in others else n for d, n in enumerate(x.shape)]
    if q.dtype != torch.int8 or q.shape != x.shape:
        return f"{at}q is {q.dtype} of {tuple(q.shape)}, wanted int8 of {tuple(x.shape)}"
    if scale.dtype != torch.float32 or list(scale.shape) != shape:
        return f"{at}scale is {scale.dtype} of {tuple(scale.shape)}, wanted float32 of {tuple(shape)}"
    of_zero = None if zero is None else (zero.dtype, list(zero.shape))
    if of_zero != (None if symmetric else (torch.int8, shape)):
        return f"{at}zero: None if symmetric, else int8 of scale's shape"
    if not bool((scale > 0).all() and scale.isfinite().all()):
        return f"{at}a scale is {abs(float(scale.min())):g}; wanted above 0, also for a group of zeros"
    top = 2 ** (bits - 1) - 1
    bottom = -top if symmetric else -top - 1
    if int(q.min()) < bottom or int(q.max()) > top:
        return f"{at}q goes from {int(q.min())} to {int(q.max())}, wanted within {bottom} to {top}"
    high = (x.amax(others, keepdim=True) if others else x).clamp(min=0).reshape(shape)
    low = (x.amin(others, keepdim=True) if others else x).clamp(max=0).reshape(shape)
    wanted = torch.maximum(high, -low) / top if symmetric else (high - low) / (2**bits - 1)
    if bool(((scale > wanted * 1.0001) & (wanted > 0)).any()):
        i = int((scale / wanted).where(wanted > 0, 0.0).argmax())
        return f"{at}scale {float(scale.flatten()[i]):.6g}, wanted {float(wanted.flatten()[i]):.6g}: part of the grid lies where no value is"
    back = (q.double() - (0 if zero is None else zero.double())) * scale.double()
    error = (back - x).abs() / scale
    if not bool(error.max() <= 0.5001):
        i = int(error.argmax())
        return f"{at}{float(x.flatten()[i]):.5g} comes back as {float(back.flatten()[i]):.5g}, {float(error.max()):.4f} scales off; wanted at most 0.5001{'' if symmetric else '. Is zero rounded, and 0 in the range even if all x are above it?'}"
    if bool((back[x == 0] != 0).any()):
        return f"{at}0 comes back as {float(back[x == 0].abs().max()):g}, wanted exactly 0"
    limit = q.numel() + scale.numel() * (4 if symmetric else 5)
    if got["stored"] > limit:
        return f"{at}the values are right, but it keeps {got['stored']:,} bytes; wanted {limit:,}: is an int8 a view of something larger?"
    return None


def check_quantize(*cases: check.Case, note: str = "") -> None:
    """cases: x, and whatever options."""

    def budget(x: Tensor, dim: int | None = None, **_: Any) -> dict[str, int]:
        groups = 1 if dim is None else x.shape[dim]
        return {"peak_live_bytes": 13 * x.numel() + 64 * groups + 1024}

    judge = each(_outside, _wrong_integers)
    check.function("quantize", cases, drive=_keep, verify=judge, budget=budget, look=_AT_BYTE, note=note)


def check_dequantize(*cases: check.Case) -> None:
    """cases: q, scale, and zero if there is one."""
    note = "127 − (−128) does not fit into int8: convert before you subtract."
    exact = lambda q, scale, zero=None: ((q.double() - (0 if zero is None else zero)) * scale).float()  # noqa: E731
    check.function("dequantize", cases, exact, look=_AT_BYTE, note=note)


# --- 13.2 Int8Linear ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A linear layer from k to n, and batches for it, each by its leading dimensions.

    Rows of x and of W differ in size a thousandfold and more; one row of W holds zeros, and one of the first batch.
    strided: the last batch is not contiguous. size: the batches' numbers are so many times as large.
    """

    seed: int
    k: int
    n: int
    batches: tuple[tuple[int, ...], ...]
    bias: bool = True
    strided: bool = False
    size: float = 1.0

    def __str__(self) -> str:
        return f"Linear({self.k}, {self.n}{'' if self.bias else ', bias=False'})"

    def numbers(self) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Its weight, its bias, the batches."""
        g = torch.Generator().manual_seed(self.seed)

        def uneven(*rows: int) -> Tensor:
            return torch.randn(*rows, self.k, generator=g) * 10 ** (6 * torch.rand(*rows, 1, generator=g) - 3)

        weight, inputs = uneven(self.n), [uneven(*rows) * self.size for rows in self.batches]
        weight[3] = inputs[0][..., 0, :] = 0.0
        if self.strided:
            inputs[-1] = inputs[-1].transpose(0, -2).contiguous().transpose(0, -2)
        return weight, torch.randn(self.n, generator=g) if self.bias else None, inputs


class _Integers(Looking):
    """Sees the shapes that _int_mm gets, and whether all that is converted to int8 is finite. sums: by what its sums are multiplied."""

    def __init__(self, sums: int = 1) -> None:
        super().__init__()
        self.shapes: list[list[int]] = []
        self.sums = sums
        self.finite: list[Tensor] = []

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if "int_mm" in str(func):
            self.shapes.append([*args[0].shape, args[1].shape[1]])
            if self.sums != 1:
                result.mul_(self.sums)
        touched = list(accesses(func, args, kwargs, result))
        # x.to(torch.int8), q.copy_(x), a list's copy_, a sum as int8: whatever makes int8 of floats; a new tensor's like is not read
        if any(t.dtype == torch.int8 for t, written in touched if written) and not _LIKE.search(str(func)):
            floats = [t for t, written in touched if not written and t.is_floating_point()]
            self.finite += [t.isfinite().all() for t in floats]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


def _use(Int8Linear: Any, **fields: Any) -> dict[str, Any]:
    """What the layer keeps; each batch through it, and through another one that loads its state_dict."""
    weight, bias, inputs = Layer(**fields).numbers()
    given, watch = _linear(weight, bias), _Integers()
    with watch, count() as making:
        layer = Int8Linear(given)
    with torch.no_grad():  # whoever still needs it shows
        given.weight.fill_(float("nan"))
    state = layer.state_dict()
    twin = Int8Linear(_linear(torch.ones_like(weight), None if bias is None else torch.ones_like(bias)))
    twin.load_state_dict(state)
    seen = []
    for x in inputs:
        watch.shapes.clear()
        with torch.no_grad(), watch, count() as run:
            y = plain(layer(x))
        shapes = list(watch.shapes)
        with torch.no_grad():
            values = {"y": y, "at first": y.clone(), "again": twin(x).clone(), "shapes": shapes}
            with _Integers(sums=3):
                values["of three times the sums"] = plain(twin(x)).clone()
        seen.append(values | {"peak": run.peak_live_bytes, "did": dict(run.by_operator)})
    sizes = [t.untyped_storage().nbytes() for t in state.values()]
    return {"kept": making.live_bytes, "state": sum(sizes), "seen": seen, "finite": watch.finite}


@cache
def _true(asked: Layer) -> list[tuple[Tensor, Tensor]]:
    """For each batch y without rounding, in rows, and by about how much rounding x and W shifts each element."""
    weight, bias, inputs = asked.numbers()
    w, truth = weight.double(), []
    t = w.abs().amax(1) / 127
    for x in inputs:
        rows = x.reshape(-1, asked.k).double()
        s = rows.abs().amax(1, keepdim=True) / 127
        about = (s**2 * w.square().sum(1) + t**2 * rows.square().sum(1, keepdim=True)).div(12).sqrt()
        truth.append((rows @ w.T + (0 if bias is None else bias.double()), about))
    return truth


def _wrong_layer(report: check.Report) -> str | None:
    """Bytes kept, errors as rounding makes them, one product of a shape that CUDA takes, bytes alive."""
    asked, got = report.case, report.value
    if text := _wrong_bytes(asked, got):
        return f"{asked}: {text}"
    for lead, seen, (true, about) in zip(asked.batches, got["seen"], _true(asked), strict=True):
        if text := _wrong_numbers(seen, true, about, (*lead, asked.n)) or _wrong_product(asked, seen):
            return f"{asked}: x of {(*lead, asked.k)}: {text}"
    if not all(map(bool, got["finite"])):
        return f"{asked}: values right here, but nan or inf is converted to int8, which is undefined: this CPU makes it 0. A row of zeros has scale 0; guard it before dividing"
    return None


def _wrong_bytes(asked: Layer, got: dict[str, Any]) -> str | None:
    limit = asked.n * asked.k + (8 if asked.bias else 4) * asked.n
    for what, size in (("keeps", got["kept"]), ("has a state_dict of", got["state"])):
        if size > limit:
            return f"{what} {size:,} bytes; wanted {limit:,}: an int8 per weight, a float32 per row, the bias"
    if got["state"] < asked.n * asked.k:
        return f"its state_dict holds {got['state']:,} bytes: register what it keeps as buffers"
    return None


def _wrong_numbers(seen: dict[str, Any], true: Tensor, about: Tensor, shape: tuple[int, ...]) -> str | None:
    y = seen["at first"]
    if y.shape != shape or y.dtype != torch.float32:
        return f"y is {y.dtype} of {tuple(y.shape)}, wanted float32 of {shape}"
    error, zeros = (y.reshape(true.shape).double() - true).abs(), about == 0
    if not bool(error.isfinite().all()):
        return "y holds nan or inf. Does it still read the weight of the linear, or divide by a scale of 0?"
    if bool((error[zeros] > 1e-4).any()):
        return f"rows of zeros must give the bias, off by {float(error[zeros].max()):.3g}"
    ratio = float((error / about)[~zeros].square().mean().sqrt())
    if ratio < 0.85:
        return f"off by {ratio:.2f} times what rounding x and W costs, which is less than rounding both allows: where do these numbers come from?"
    if not ratio <= 1.3:
        return f"off by {ratio:.2f} times what rounding costs; wanted at most 1.3. A scale for each row of x and of W? Rounded before .to(torch.int8), which cuts off?"
    if not torch.equal(seen["at first"], seen["again"]):
        return "another Int8Linear that loads this state_dict gives other numbers: something is kept outside of it"
    if not torch.equal(y, seen["y"]):
        return "values right at first, but a later batch has changed them: each result is a tensor of its own"
    return None


def _wrong_product(asked: Layer, seen: dict[str, Any]) -> str | None:
    ran = [op for op, n in seen["did"].items() if contracts(op) for _ in range(n)]
    if ran != ["aten._int_mm"]:
        return f"values right, but its matrix products are {ran}; wanted one torch._int_mm"
    rows = len(seen["y"].reshape(-1, asked.n))
    r = max(rows, 32)
    if any(m <= 16 or m > r or a % 8 or b % 8 for m, a, b in seen["shapes"]):
        return f"_int_mm of {' × '.join(map(str, seen['shapes'][0]))}: CUDA takes more than 16 rows; and pad to 32 at the most"
    y, by_sums = seen["at first"], seen["of three times the sums"]
    bias = torch.zeros(asked.n) if (given := asked.numbers()[1]) is None else given
    off = (by_sums - bias - 3 * (y - bias)).abs() > 1e-5 * (y.abs() + bias.abs()) + 1e-30
    if bool(off.any()):
        return (
            f"values right, but with three times the sums of _int_mm ({' × '.join(map(str, seen['shapes'][0]))}) y − bias is not "
            f"three times as large, in {int(off.sum())} of {off.numel()} numbers: they do not come from that product"
        )
    most = 13 * r * asked.k + 12 * r * asked.n + 4096
    if seen["peak"] > most:
        return f"values right, but {seen['peak']:,} bytes alive at once in forward; wanted at most {most:,}. The weight as float32 would be {4 * asked.n * asked.k:,}"
    return None


def check_Int8Linear(*cases: Layer, note: str = "") -> None:
    judge, look = each(_outside, _wrong_layer), "2 · Multiply the integers"
    check.function("Int8Linear", cases, drive=_use, verify=judge, look=look, note=note)


# --- 13.3 smooth --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A LayerNorm of k channels and linears of these sizes that read it.

    loud: channel → how many times as large. silent: channels that are always 0. unread: those whose weights are 0; faint: millionths.
    Of several linears the first does not read channel 2.
    """

    seed: int
    k: int
    sizes: tuple[int, ...]
    loud: dict[int, float]
    silent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    alpha: float | None = None
    faint: tuple[int, ...] = ()

    def numbers(self) -> dict[str, Any]:
        """gain and shift of the norm, weights and biases of the linears, x, and amax of the norm's output."""
        g, k = torch.Generator().manual_seed(self.seed), self.k
        gain, shift = torch.randn(2, k, generator=g)
        for channel, factor in self.loud.items():
            gain[channel] *= factor
        weights = [torch.randn(n, k, generator=g) * 3.0**i / k**0.5 for i, n in enumerate(self.sizes)]
        biases = [torch.randn(n, generator=g) for n in self.sizes]
        for channel in self.silent:
            gain[channel] = shift[channel] = 0.0
        for i, w in enumerate(weights):
            w[:, [*self.unread, *([2] if i == 0 and len(weights) > 1 else [])]] = 0.0
            w[:, [*self.faint]] *= 1e-6
        x = torch.randn(30, k, generator=g)
        amax = F.layer_norm(x, (k,), gain, shift).abs().amax(0)
        return {"gain": gain, "shift": shift, "weights": weights, "biases": biases, "x": x, "amax": amax}


def _smooth(smooth: Callable[..., None], **fields: Any) -> dict[str, Any]:
    """Norm and linears afterwards, what they give, and what smoothing cost and changed beside the numbers."""
    asked = Block(**fields)
    numbers = asked.numbers()
    norm, amax = nn.LayerNorm(asked.k), numbers["amax"]
    norm.load_state_dict({"weight": numbers["gain"], "bias": numbers["shift"]})
    linears = [_linear(w, b) for w, b in zip(numbers["weights"], numbers["biases"], strict=True)]
    whole = nn.ModuleDict({"norm": norm, "linears": nn.ModuleList(linears)})
    owned = list(whole.parameters())

    def forward() -> list[Tensor]:
        h = norm(numbers["x"])
        return [m(h) for m in linears]

    with torch.no_grad(), count() as before:
        forward()
    with count() as run:
        smooth(norm, linears, amax, **({} if asked.alpha is None else {"alpha": asked.alpha}))
    with torch.no_grad(), count() as after:
        y = forward()
    return whole.state_dict() | {
        "outputs": y,
        "amax": amax,
        "still the same Parameters": [*map(id, whole.parameters())] == [*map(id, owned)],
        "operators more in forward": after.operators - before.operators,
        "bytes that live on": run.live_bytes,
        "peak": run.peak_live_bytes,
    }


def _not_smooth(report: check.Report) -> str | None:
    """Outputs as they were, the s of the formula, in place and without a cost."""
    asked, got = report.case, report.value
    was, alpha = asked.numbers(), 0.5 if asked.alpha is None else asked.alpha
    gain, weights, amax, n = was["gain"], was["weights"], was["amax"], len(asked.sizes)
    of_weights, of_biases = ([got[f"linears.{i}.{name}"] for i in range(n)] for name in ("weight", "bias"))
    wmax = torch.stack([w.abs().amax(0) for w in weights]).amax(0)
    s = amax**alpha / wmax ** (1 - alpha)
    s[(amax == 0) | (wmax == 0)] = 1
    at = f"alpha {alpha}, {n} linear(s): "

    def same(a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-6 * float(b.abs().max()))

    for name, value in (("norm.weight", got["norm.weight"]), *(("a weight", w) for w in of_weights)):
        odd = ~value.reshape(-1, asked.k).isfinite().all(0)
        if bool(odd.any()):
            i = int(odd.float().argmax())
            return f"{at}{name}, channel {i}, holds nan or inf: s is {'0' if amax[i] == 0 else 'inf'} there (amax {float(amax[i]):.3g}, wmax {float(wmax[i]):.3g}); wanted s = 1"
    h = F.layer_norm(was["x"], gain.shape, gain, was["shift"])
    for i, (w, b, y) in enumerate(zip(weights, was["biases"], got["outputs"], strict=True)):
        true = h @ w.T + b
        if not (off := float((y - true).norm() / true.norm())) < 1e-4:
            return f"{at}linear {i} of the norm's output is not what it was: {off:.2g} off. What is divided in norm (weight and bias) must be multiplied into every linear, the same s for all"
    for name, value in (("norm.weight", gain / s), ("norm.bias", was["shift"] / s)):
        if not same(got[name], value):
            i = int(((got[name] - value).abs() / value.abs().clamp(min=1e-9)).argmax())
            return f"{at}the outputs are right, but {name}[{i}] is {float(got[name][i]):.5g}, wanted {float(value[i]):.5g} (amax {float(amax[i]):.3g}, wmax {float(wmax[i]):.3g})"
    if not all(same(a, w * s) for a, w in zip(of_weights, weights, strict=True)):
        return f"{at}the outputs are right, but the weights are not weight · s"
    if not all(map(torch.equal, (*of_biases, got["amax"]), (*was["biases"], amax))):
        return f"{at}a linear's bias changed, or amax, which the caller still needs"
    if not got["still the same Parameters"]:
        return f"{at}values right, but a Parameter was replaced; an optimizer or another holder would not see it. Change it in place"
    if got["operators more in forward"] > 0:
        return f"{at}values right, but the forward takes {got['operators more in forward']} operators more: fold s into the numbers"
    if got["bytes that live on"] > 0:
        return f"{at}values right, but {got['bytes that live on']:,} bytes live on; wanted 0: div_ and mul_ write where the numbers are"
    most = max(w.numel() * 4 for w in weights) + 64 * asked.k + 1024
    if got["peak"] > most:
        return f"{at}values right, but {got['peak']:,} bytes alive at once, wanted at most {most:,}: one weight's |w| at a time"
    return None


def check_smooth(*cases: Block, note: str = "") -> None:
    judge, look = each(_outside, _not_smooth), "Smooth a loud channel"
    check.function("smooth", cases, drive=_smooth, verify=judge, look=look, note=note)


# --- 13.4 fake_quantize, train_quantized --------------------------------------------------------------------------


def _alive(fake_quantize: Callable[..., Tensor], *given: Any) -> int:
    """Bytes that live on after the forward."""
    with count() as run:
        out = fake_quantize(*given)  # noqa: F841 - alive until its bytes are read
    return run.live_bytes


def _only_a_mask(report: check.Report) -> str | None:
    w, scale, _ = report.args
    limit = 5 * w.numel() + 16 * scale.numel()
    if report.value > limit:
        return f"values right, but {report.value:,} bytes live on after the forward; wanted {limit:,}: a float32 result and a byte per element"
    return None


def _by_hand(w: Tensor, scale: Tensor, bits: int = 8) -> Tensor:
    most = 2 ** (bits - 1) - 1
    value = (w.detach() / scale).round().clamp(-most, most) * scale
    return torch.where(w.detach().abs() <= (most + 0.5) * scale, w - w.detach(), 0.0) + value


def check_fake_quantize(*cases: check.Case, grads: bool = True, note: str = "") -> None:
    """cases: w, scale, bits. grads: w needs them; then what is kept for them counts as well."""
    match, judge = check.Match(grads=grads, rtol=1e-5, atol=1e-6), each(own_work("fake_quant"))
    check.function("fake_quantize", cases, _by_hand, match=match, verify=judge, note=note, **_TRAINING)
    note = "What is computed with gradients on is kept for backward."
    check.function("fake_quantize", cases, drive=_alive, verify=each(_only_a_mask), note=note, **_TRAINING)


@dataclass(frozen=True)
class Training:
    """Steps of a net of linear layers with Tanh between, on 20 points.

    dead: a row of the first weight is zeros, and stays so. mixed: behind each Tanh a LayerNorm, no bias in the first
    layer, and what the net says afterwards counts as well.
    """

    seed: int
    sizes: tuple[int, ...]
    bits: int
    steps: int
    lr: float
    dead: bool = False
    mixed: bool = False

    def made(self) -> tuple[nn.Sequential, Tensor, Tensor]:
        """The net, its points and what it is to say of them; all in float64."""
        g, double = torch.Generator().manual_seed(self.seed), torch.float64
        parts: list[nn.Module] = []
        for k, n in pairwise(self.sizes):
            parts += [nn.Linear(k, n, bool(parts) or not self.mixed, dtype=double), nn.Tanh()]
            parts += [nn.LayerNorm(n, dtype=double)] if self.mixed else []
        net = nn.Sequential(*parts[: -2 if self.mixed else -1])
        x, y = (torch.randn(20, self.sizes[end], generator=g, dtype=double) for end in (0, -1))
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.randn(p.shape, generator=g, dtype=double) / self.sizes[0] ** 0.5)
            if self.dead:
                next(net.parameters())[1] = 0.0
                x.zero_()  # and no gradient to its weights: the row stays zeros
        return net, x, y

    def outcome(self, net: nn.Sequential, x: Tensor) -> dict[str, Any]:
        """What counts of a trained net."""
        afterwards = {"net(x) afterwards": net(x).detach()} if self.mixed else {}
        return {"weights": [p.detach() for p in net.parameters()], **afterwards}


def _train(train_quantized: Callable[..., None], **fields: Any) -> dict[str, Any]:
    """The net after training, and whether it is the same net."""
    asked = Training(**fields)
    net, x, y = asked.made()
    before = [len(net), *((name, id(p)) for name, p in net.named_parameters())]
    train_quantized(net, x, y, asked.bits, asked.steps, asked.lr)
    same = before == [len(net), *((name, id(p)) for name, p in net.named_parameters())]
    return {"the same Parameters, by the same names": same, **asked.outcome(net, x)}


@cache
def _trained(asked: Training) -> dict[str, Any]:
    """The same steps on numbers beside a net that stays plain."""
    net, x, y = asked.made()
    ps, most = dict(net.named_parameters()), 2 ** (asked.bits - 1) - 1

    def stored(p: Tensor) -> Tensor:
        if p.dim() == 1:
            return p
        scale = (p.detach().abs().amax(1, keepdim=True) / most).clamp(min=1e-12)
        return p + ((p / scale).round().clamp(-most, most) * scale - p).detach()

    for _ in range(asked.steps):
        says = functional_call(net, {name: stored(p) for name, p in ps.items()}, (x,))
        grads = torch.autograd.grad(F.mse_loss(says, y), list(ps.values()))
        with torch.no_grad():
            for p, grad in zip(ps.values(), grads, strict=True):
                p.sub_(asked.lr * grad)
    return {"the same Parameters, by the same names": True, **asked.outcome(net, x)}


def check_train_quantized(*cases: Training, note: str = "") -> None:
    want, judge = [_trained(case) for case in cases], each(own_work("fake_quant"))
    known = _TRAINING | {"match": check.Match(rtol=1e-6, atol=1e-8), "note": note}
    check.function("train_quantized", cases, want, drive=_train, verify=judge, **known)
