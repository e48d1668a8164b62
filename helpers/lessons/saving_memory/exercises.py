"""Tests of lesson 09: a step's bytes by arithmetic, a batch in pieces, checkpoints written and chosen, tensors put elsewhere."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn

from helpers import check, count
from helpers.check.compare import difference
from helpers.check.judges import each, each_value, hearing_of
from helpers.check.reference import reference
from helpers.lessons.saving_memory.layer import Layer

# --- 9.3 training_memory ------------------------------------------------------------------------------------------


@cache
def _tracked(rows: int, width: int, depth: int) -> tuple[dict[str, int], str]:
    """The bytes that storages of tensors take, and in which part of the step the peak comes."""
    model = nn.Sequential(*[Layer(width) for _ in range(depth)])
    optimizer, x = torch.optim.AdamW(model.parameters(), foreach=False), torch.randn(rows, width)

    def step(whole: bool = True) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if whole:
            optimizer.step()

    step()
    optimizer.zero_grad()
    most = count(step).peak_live_bytes
    optimizer.zero_grad()
    phase = "backward" if count(step, False).peak_live_bytes == most else "the optimizer's step"
    saved = count(lambda: model(x).square().mean()).saved_bytes
    static = 12 * sum(p.numel() for p in model.parameters())
    return {"static": static, "saved": saved, "peak": static + x.nbytes + most}, phase


def _within(sizes: dict[str, float], rows: int, width: int, depth: int) -> str | None:
    want, phase = _tracked(rows, width, depth)
    whys = (". Static is each weight and its two means", "", f". This peak comes in {phase}")
    for (key, value), why in zip(want.items(), whys, strict=True):
        got = float(sizes[key])
        if not 0.95 * value <= got <= 1.05 * value:
            return f"{rows=}, {width=}, {depth=}: {key!r} is {got:,.0f}, tracked are {value:,}: {got / value - 1:+.1%}, wanted within 5 %{why}"
    return None


def check_training_memory(*cases: tuple[int, int, int]) -> None:
    """cases: (rows, width, depth)."""
    asked, look = [check.case(*case) for case in cases], "What one operator keeps"
    budget = {"operators": 0, "new_storages": 0}
    check.function("training_memory", asked, verify=each_value(_within), budget=budget, look=look)


# --- 9.1 accumulated_backward -------------------------------------------------------------------------------------


def token_batch(
    n: int, length: int, words: int, padded: Sequence[int], seed: int, turned: bool = False
) -> list[torch.Tensor]:
    """Inputs and targets (n, length); the first padded[i] targets of row i do not count. turned: they lie transposed."""
    inputs, targets = torch.randint(words, (2, n, length), generator=torch.Generator().manual_seed(seed))
    for i, places in enumerate(padded):
        targets[i, :places] = -100
    return [t.t().contiguous().t() if turned else t for t in (inputs, targets)]


def _accumulate(accumulated_backward: Callable[..., Any], *of: Any) -> dict[str, Any]:
    """Losses and gradients of some steps of SGD; gradients are never cleared, so each step adds.

    A batch that lies transposed goes through a model whose embedding is frozen.
    """
    words, width, dtype, steps, (inputs, targets), rows = of
    torch.manual_seed(words)
    parts = [nn.Embedding(words, width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, words)]
    model = nn.Sequential(*parts).to(getattr(torch, dtype))
    model[0].requires_grad_(inputs.is_contiguous())
    losses: list[Any] = []
    for _ in range(steps):
        loss = accumulated_backward(model, inputs, targets, rows)
        losses.append("a loss with a graph" if loss.requires_grad else loss.detach() + 0)
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p.sub_(p.grad, alpha=0.5)
    if dtype == "bfloat16":  # whose pieces round otherwise than the whole
        return {"dtype of the loss": str(loss.dtype)}
    return {"losses": losses, "gradients": [p.grad for p in model.parameters()]}


def _at_once(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.detach()


def _one_piece(*of: Any) -> dict[str, int]:
    words, width, dtype, steps, data, rows = of
    piece = [t[:rows].clamp(min=0) for t in data]
    plain = count(_accumulate, _at_once, words, width, dtype, 1, piece, rows)
    weights = words * width + 4 * width**2 + 4 * width + 4 * width * words + words
    return {
        "peak_live_bytes": int(1.1 * (plain.peak_live_bytes + weights * (8 if dtype == "float64" else 4))),
        "operators": int(1.5 * plain.operators * steps * -(-len(data[0]) // rows)),
    }


def check_accumulated_backward(*cases: check.Case, budget: bool = False, note: str = "") -> None:
    """cases: words, width, dtype, steps, a token batch, rows. budget: bytes and operators count as well."""
    usual = "A last piece may be smaller, targets of -100 are spread unevenly, and .grad may hold something."
    known: dict[str, Any] = {"match": check.Match(rtol=1e-8, atol=1e-9), "note": note or usual}
    if budget:
        known = {"match": check.Match(rtol=1e-3, atol=1e-4), "budget": _one_piece}
        known["note"] = (
            "Many rows, a few at a time. Too many bytes? Then something of the piece before is alive while the next one runs: its "
            "graph, or a tensor such as logits. Too many operators? Then pieces are smaller than asked, or something runs twice."
        )
    want, look = partial(_accumulate, _at_once), "2 · The batch in pieces"
    check.function("accumulated_backward", cases, want, drive=_accumulate, look=look, **known)


# --- 9.4 checkpointed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Checkpointed parts on an input of (rows, width), with dropout p, with two inputs or one; some steps.

    two: the second needs no gradient. late: the first of the two does not. product: the second goes through a matrix of
    its own. frozen: the parts' first matrices want no gradient, and the parts come as functions.
    """

    rows: int
    width: int
    depth: int
    p: float
    two: bool = False
    steps: int = 1
    late: bool = False
    product: bool = False
    frozen: bool = False


class _Part(Layer):
    """A block with dropout and a `gain` that the test changes between its two runs."""

    def __init__(self, width: int, p: float, product: bool) -> None:
        super().__init__(width)
        self.side = nn.Linear(width, width, bias=False) if product else None
        self.drop, self.gain = nn.Dropout(p), torch.ones(width)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> Any:
        if other is not None:
            other = x * other if self.side is None else x + self.side(other)
        h = self.norm(x if other is None else other) * self.gain
        return x + self.down(self.drop(self.act(self.up(h))))


def _call(part: _Part, *tensors: torch.Tensor) -> Any:
    return part(*tensors)


#: how the result says whether PyTorch's own did it
_BY_TORCH = "torch.utils.checkpoint called, in forward or backward"
#: of PyTorch's own module, what an own checkpoint may use: no part of it runs anything again
_OF_USE = ("detach_variable", "get_device_states", "set_device_states", "check_backward_validity")


def _chain(checkpointed: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Steps of a chain of checkpointed parts: losses, gradients, and random numbers drawn beside them."""
    of, results = Chain(**fields), []
    net: Any = nn.ModuleList([_Part(of.width, of.p, of.product) for _ in range(of.depth)])
    for part in net if of.frozen else ():
        part.up.weight.requires_grad_(False)
    by_torch = False
    for _ in range(of.steps):
        x, other = torch.randn(of.rows, of.width, requires_grad=True), torch.rand(of.rows, of.width)
        h = x
        with hearing_of(torch.utils.checkpoint, _OF_USE) as in_forward:
            for part in net:
                fn = partial(_call, part) if of.frozen else part
                h = checkpointed(fn, *((other, h) if of.late else (h, other) if of.two else (h,)))
        loss = h.square().mean()
        del h
        drawn = torch.rand(of.steps - 1)  # between forward and backward: the generator is elsewhere now
        if of.width > 8 or of.steps > 1:  # what backward uses must be what the second run makes
            for part in net:
                part.gain = torch.linspace(0.5, 1.5, of.width)
        with hearing_of(torch.utils.checkpoint, _OF_USE) as in_backward:
            loss.backward()
        by_torch = by_torch or in_forward() or in_backward()
        beside = {"random numbers after forward, after backward": [drawn, torch.rand(3)]}
        results.append({"loss": loss.detach(), "gradient of the input": x.grad} | beside)
    grads: list[torch.Tensor | None] = [w.grad for w in net.parameters()]
    none = "none: were only the inputs asked for theirs?"
    return {
        _BY_TORCH: by_torch,
        "step": results,
        "gradients of the weights": none if all(g is None for g in grads) else grads,
    }


_by_torch = partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)


@cache
def _as_torchs(**fields: Any) -> dict[str, Any]:
    return _chain(_by_torch, **fields) | {_BY_TORCH: False}


@cache
def _torchs_cost(**fields: Any) -> dict[str, int]:
    torch.manual_seed(0)
    theirs, of = count(_chain, _by_torch, **fields).peak_live_bytes, Chain(**fields)
    # in forward, again, and for the matrix's own gradient; its input wants none
    product = 3 * 2 if of.product else 0
    flops = of.steps * of.depth * (4 * 16 + product) * of.rows * of.width**2
    return {"peak_live_bytes": int(1.1 * theirs) + 8192 * of.depth, "flops": flops}


def check_checkpointed(*cases: Chain, budget: bool = False, note: str = "") -> None:
    """budget: bytes and FLOPs count."""
    usual = "Two steps one after the other; between forward and backward random numbers are drawn, and `gain` changes."
    known: dict[str, Any] = {"match": check.Match(rtol=1e-4, atol=1e-6), "note": note or usual}
    if budget:
        known = {"match": check.Match(rtol=1e-3, atol=1e-5), "budget": _torchs_cost}
        known["note"] = (
            "Many parts; each part's `gain` changes before backward. Other gradients: backward uses what the first run made. "
            "Too many bytes: does anything but the inputs live from forward to backward? And do inputs stay when their part is "
            "through, as what hangs on ctx does? (What save_for_backward keeps goes.) Too many FLOPs: does an input get a "
            "gradient that nobody wants?"
        )
    check.function("checkpointed", cases, _as_torchs, drive=_chain, look="A checkpoint from scratch", **known)


# --- 9.2 choose_checkpoints ---------------------------------------------------------------------------------------


def random_blocks(seed: int, lengths: Sequence[int], shares: Sequence[float]) -> Iterator[check.Case]:
    """Random blocks, with budgets from the least that any choice needs towards that of none checkpointed."""
    draw = random.Random(seed)
    for blocks in lengths:
        kept = [draw.randint(20, 100) for _ in range(blocks)]
        inputs = [draw.randint(1, k // 2) for k in kept]
        flops = [draw.randint(1, 60) for _ in range(blocks)]
        least = max(sum(inputs[:i]) + kept[i] for i in range(blocks))  # all of them checkpointed
        for share in shares:
            yield check.case(kept, inputs, flops, int(least + share * (max(sum(kept), least) - least)))


def _held_and_peak(kept: Sequence[int], inputs: Sequence[int], chosen: Sequence[int]) -> tuple[int, int]:
    """Bytes at the end of forward, and the most while a block is computed again."""
    held = peak = 0
    for i, whole in enumerate(kept):
        peak = max(peak, held + whole) if i in chosen else peak
        held += inputs[i] if i in chosen else whole
    return held, peak


@reference
@cache
def _fewest_flops(kept: tuple[int, ...], inputs: tuple[int, ...], flops: tuple[int, ...], budget: int) -> int:
    n = len(kept)
    choices = [[i for i in range(n) if mask >> i & 1] for mask in range(2**n)]
    return min(sum(flops[i] for i in c) for c in choices if max(_held_and_peak(kept, inputs, c)) <= budget)


def _fewest(chosen: Any, kept: list[int], inputs: list[int], flops: list[int], budget: int) -> str | None:
    n = len(kept)
    whole = isinstance(chosen, list | tuple) and all(type(i) is int for i in chosen)
    if not whole or sorted(set(chosen)) != list(chosen):
        return f"returned {chosen!r}; wanted a list of block numbers, ascending, each once"
    if chosen and not 0 <= chosen[0] <= chosen[-1] < n:
        return f"{chosen}: there are blocks 0 to {n - 1}"
    held, peak = _held_and_peak(kept, inputs, chosen)
    if held > budget:
        return f"{chosen}: {held:,} bytes at the end of forward, the budget is {budget:,}"
    if peak > budget:
        return f"{chosen}: {peak:,} bytes while a block is computed again, the budget is {budget:,}"
    price, best = sum(flops[i] for i in chosen), _fewest_flops(*map(tuple, (kept, inputs, flops)), budget)
    if price != best:
        return f"{chosen}: {price:,} FLOPs again; {best:,} are enough for {kept=}, {inputs=}, {flops=}, {budget=:,}"
    return None


def check_choose_checkpoints(*cases: check.Case, note: str = "") -> None:
    check.function(
        "choose_checkpoints", cases, verify=each_value(_fewest), look="3 · Compute it again", note=note
    )


# --- 9.5 offloaded ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offloads:
    """A step on (rows, width) through `depth` parts; the host gives `share` of each number back.

    masks: parts save tensors of one byte a number too. odd: the batch wants a gradient; every second part has a frozen
    matrix, and all parts use only some rows of one matrix, some columns of the other.
    """

    rows: int
    width: int
    depth: int
    min_bytes: int
    share: float = 1.0
    steps: int = 1
    masks: bool = False
    odd: bool = False


def _leaky(h: torch.Tensor) -> torch.Tensor:
    """Saves which numbers are positive, in bool."""
    return torch.where(h > 0, torch.tanh(h), 0.1 * h)


class _Narrowed(Layer):
    """Leaves the first eight numbers inside out: its products save views that begin elsewhere than their weights."""

    def forward(self, x: torch.Tensor) -> Any:
        up = nn.functional.linear(self.norm(x), self.up.weight[8:], self.up.bias[8:])
        return x + nn.functional.linear(self.act(up), self.down.weight[:, 8:], self.down.bias)


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr()


def _offload(offloaded: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Forward with the hooks on, then backward; the host's memory is bytes, and gives `share` of each number back."""
    host: dict[int, Any] = {}
    of, put_there = Offloads(**fields), []
    act = _leaky if of.masks else torch.tanh
    layers = [(_Narrowed if of.odd else Layer)(of.width, 2, act) for _ in range(of.depth)]
    net = nn.Sequential(*layers)
    for part in layers[::2] if of.odd else ():
        part.up.weight.requires_grad_(False)
    weights = {_storage(p): p.requires_grad for p in net.parameters()}

    def put(tensor: torch.Tensor) -> int:
        handle = len(host)
        host[handle] = tensor.detach().clone().numpy().tobytes(), tensor.dtype, tensor.shape
        put_there.append([weights.get(_storage(tensor)), [*tensor.shape], tensor.nbytes])
        return handle

    def get(handle: int) -> torch.Tensor:
        numbers, dtype, shape = host[handle]
        host[handle] = None  # once
        back = torch.frombuffer(bytearray(numbers), dtype=dtype).reshape(shape).clone()
        return back.mul_(of.share) if dtype.is_floating_point else back

    x, offloads = torch.randn(2 * of.rows, of.width, requires_grad=of.odd)[: of.rows], []  # a view of more
    for _ in range(of.steps):
        with offloaded(list(net.parameters()), put, get, of.min_bytes):
            loss = net(x).square().mean()
        offloads.append(len(host) > 0)
        loss.backward()
    step = {"loss": loss.detach(), "gradients": [p.grad for p in net.parameters()]}
    return {"tensors in the host's memory": offloads, "step": step, "put": put_there}


class _Rule:
    """Which saved bytes the docstring names, each time that they are saved; it moves nothing."""

    def __init__(self, share: float = 1.0) -> None:
        self.share, self.bytes, self.distinct = share, 0, 0
        self.sizes: Counter[int] = Counter()  # bytes of a tensor → how many there are
        self.shapes: dict[int, tuple[int, ...]] = {}  # … and the shape of one of them

    def __call__(self, parameters: list[nn.Parameter], put: Any, get: Any, min_bytes: int) -> Any:
        stay, seen = {_storage(p) for p in parameters}, set()

        def pack(t: torch.Tensor) -> tuple[torch.Tensor, bool]:
            if named := t.nbytes >= min_bytes and _storage(t) not in stay:
                self.bytes += t.nbytes
                if _storage(t) not in seen:
                    self.distinct += t.nbytes
                    self.sizes[t.nbytes] += 1
                    self.shapes[t.nbytes] = tuple(t.shape)
                seen.add(_storage(t))
            return t, named

        def unpack(kept: tuple[torch.Tensor, bool]) -> torch.Tensor:
            scaled = kept[1] and self.share != 1 and kept[0].is_floating_point()
            return kept[0] * self.share if scaled else kept[0]

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


@cache
def _by_the_rule(of: Offloads) -> tuple[dict[str, Any], _Rule, int]:
    """The step's results with nothing moved, what the rule names of it, and the bytes alive at its peak."""
    torch.manual_seed(0)
    rule = _Rule(of.share)
    with count() as counts:
        result = _offload(rule, **vars(of))
    return result, rule, counts.peak_live_bytes


def _wrong_bytes(report: check.Report) -> str | None:
    _, rule, _ = _by_the_rule(report.case)
    clones = sum(size for name, size in report.counts["allocations"] if name == "aten.clone")
    put, least = report.value["put"], report.case.min_bytes
    for trained, shape, size in put:
        if trained is not None:
            which = "a parameter or a view of one" if trained else "a frozen parameter or a view of one"
            return f"put() got {which}, {tuple(shape)}: it is on the device in any case, and stays there"
        if size < least:
            return f"put() got a tensor {tuple(shape)} of {size:,} bytes; min_bytes={least:,}: what is smaller stays"
    there = Counter(size for *_, size in put)
    for size, n in rule.sizes.items():
        if there[size] < n:
            return (
                f"of {n} different saved tensors of {size:,} bytes, like {rule.shapes[size]}, {there[size]} were put; "
                f"min_bytes={least:,}, and they are no parameters"
            )
    if 0.95 * 2 * rule.distinct <= clones <= 2 * rule.bytes:
        return None
    both = f"{rule.bytes:,} bytes, so {2 * rule.bytes:,} there and back"
    return f"{clones:,} bytes were put and got; the rule names {both}: each tensor is put once, and got once"


def _wrong_step(report: check.Report) -> str | None:
    of, got = report.case, report.value
    if not all(got["tensors in the host's memory"]):
        return (
            "when forward was over, nothing was in the host's memory: what autograd saves goes there at once"
        )
    if odd := difference(got["step"], _by_the_rule(of)[0]["step"], 1e-5, 1e-6, at="step"):
        halved = f" (here get() gives {of.share} of each number: backward must use that, and nothing that was kept)"
        return odd + (halved if of.share != 1 else "")
    return None


def _wrong_peak(report: check.Report) -> str | None:
    _, rule, peak = _by_the_rule(report.case)
    most = peak - rule.bytes // (2 * report.case.steps)
    if report.counts["peak_live_bytes"] <= most:
        return None
    return (
        f"values are right, but {report.counts['peak_live_bytes']:,} bytes are alive at the peak; wanted at most "
        f"{most:,}: the plain step's without half of what is put. Do your hooks still hold the tensor?"
    )


def check_offloaded(*cases: Offloads) -> None:
    judge = each(_wrong_bytes, _wrong_step, _wrong_peak, told=True)
    check.function("offloaded", cases, drive=_offload, verify=judge, look="Put it elsewhere")
