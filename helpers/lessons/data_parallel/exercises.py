"""Tests of lesson 14: a ring's messages, buckets that are sent in backward, the best bucket size, a byte a number."""

import math
import os
from collections.abc import Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple
from unittest.mock import Mock

import torch
import torch.distributed as dist
from torch import nn

from helpers import check, ranks
from helpers.check.judges import each_value
from helpers.check.on_ranks import ONCE, check_ranks, normal, on_ranks, secret
from helpers.simulator.world.buckets import Backward, Gradient, overlap

_HIDE_IT = "3 · Hide it: buckets and overlap"
Calls = list[tuple[Any, ...]]
Names = list[str]

# --- 14.1 ring_all_reduce -----------------------------------------------------------------------------------------


@on_ranks
def _ring(all_reduce: Any, inputs: Any) -> list[tuple[str, torch.Tensor, bool, Calls]]:
    """Of each input, (shape, dtype): the bytes that this rank's numbers were made from, what x is now, what was sent.

    x lies in the middle of a longer tensor, in which nothing else may change.
    """
    observed = []
    for shape, dtype in inputs:
        own = os.urandom(4 * math.prod(shape)).hex()  # no other rank can know these numbers but by messages
        around = torch.nn.functional.pad(_numbers(own, dtype), (3, 2)).to(getattr(torch, dtype))
        with ranks.sent() as record:
            all_reduce(around[3:-2].view(shape))
        beside = bool(around[:3].any() or around[-2:].any())
        observed.append((own, around[3:-2], beside, [(c.kind, c.bytes, c.peer) for c in record.calls]))
    return observed


def _numbers(own: str, dtype: str) -> torch.Tensor:
    """Whole numbers whose sums over four ranks this dtype holds exactly."""
    bits = 10 if getattr(torch, dtype).itemsize > 2 else 26
    return torch.frombuffer(bytearray.fromhex(own), dtype=torch.int32) >> bits


def _as_a_ring(value: list[Any], n: int, inputs: Any) -> str | None:
    for i, (_, dtype) in enumerate(inputs):
        observed = [rank[i] for rank in value]
        mine = torch.stack([_numbers(own, dtype) for own, *_ in observed])
        where = f"{n} ranks, {mine.shape[1]} numbers of {dtype}"
        text = _sums_wrong(mine, [x for _, x, *_ in observed])
        if not text and any(beside for _, _, beside, _ in observed):
            text = "the sums are right, but what lies beside x in its storage has changed"
        if text := text or _messages_wrong([calls for *_, calls in observed], mine.shape[1], dtype):
            return f"{where}: {text}"
    return None


def _sums_wrong(mine: torch.Tensor, sums: list[torch.Tensor]) -> str | None:
    n, want = len(mine), mine.sum(0)
    for r, x in enumerate(sums):
        right = x.flatten() == want
        if not right.all():
            at = int((~right).nonzero()[0])
            done = [str(k) for k, piece in enumerate(right.tensor_split(n)) if piece.all()]
            return (
                f"rank {r}'s x[{at}] is {x.flatten()[at]:.0f}, wanted {want[at]} = "
                f"{' + '.join(f'({v})' for v in mine[:, at].tolist())}. Of the pieces 0 … {n - 1} "
                f"{', '.join(done) or 'none'} arrived there summed up"
            )
    return None


def _messages_wrong(observed: list[Calls], numel: int, dtype: str) -> str | None:
    n, width, total = len(observed), getattr(torch, dtype).itemsize, 0
    most = 2 * (n - 1) * -(-numel // n) * width
    for r, calls in enumerate(observed):
        if others := {kind for kind, _, _ in calls} - {"send", "recv"}:
            return f"rank {r} called {', '.join(sorted(others))}; wanted sends and receives only"
        sends = [(b, peer) for kind, b, peer in calls if kind == "send" and b]
        if wrong := {peer for _, peer in sends} - {(r + 1) % n}:
            return f"rank {r} sent to {sorted(wrong)}; its right neighbour is {(r + 1) % n}"
        sent = sum(b for b, _ in sends)
        if sent > most:
            return (
                f"the sums are right, but rank {r} sent {sent:,} bytes; a ring of pieces sends at most "
                f"{most:,}, that is 2 · {n - 1} pieces of {most // (2 * n - 2 or 1):,}"
            )
        if len(sends) > 2 * (n - 1):
            return f"the sums are right, but rank {r} sent {len(sends)} messages; wanted {2 * (n - 1)}"
        total += sent
    if total != (whole := 2 * (n - 1) * numel * width):
        return f"all together sent {total:,} bytes, wanted {whole:,}: each number 2 · {n - 1} times"
    return None


def check_ring_all_reduce(*cases: check.Case) -> None:
    """Cases: n, then a list of (shape, dtype)."""
    note, look = (
        "Not all inputs fill n pieces alike. Each rank makes its own numbers.",
        "2 · What it takes: α and β",
    )
    known: dict[str, Any] = {"look": look, "note": note, "once": ONCE}
    check.function("ring_all_reduce", cases, drive=_ring, verify=each_value(_as_a_ring), **known)


# --- 14.3 BucketedDDP ---------------------------------------------------------------------------------------------

#: of _Net, in the reverse order of parameters(); first.weight is frozen
_NAMES = "last.bias last.weight rare.bias rare.weight middle.bias middle.weight first.bias".split()


class _Net(nn.Module):
    """odd: middle's weight is used twice and lies transposed in memory; buffers are of any stride and dtype, and one is
    not in state_dict()."""

    def __init__(self, odd: bool = False) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(6, 16), nn.Linear(16, 16)
        self.rare, self.last = nn.Linear(16, 16), nn.Linear(16, 3)
        self.first.weight.requires_grad_(False)
        self.register_buffer("shift", torch.randn(16, 2)[:, 0] if odd else torch.randn(16))
        self.tied = None
        if odd:
            self.middle.weight = nn.Parameter(torch.randn(16, 16).t() / 4)
            self.tied = nn.Linear(16, 16, bias=False)
            self.tied.weight = self.middle.weight
            self.register_buffer("seen", torch.randint(2**40, ()), persistent=False)

    def held(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers, also those that state_dict() leaves out."""
        return {k: v.detach() for k, v in [*self.named_parameters(), *self.named_buffers()]}

    def forward(self, x: torch.Tensor, branch: bool = False) -> Any:
        h = self.middle((self.first(x) + self.shift).tanh())
        h = h if self.tied is None else h + self.tied(h.tanh())
        return self.last(h + self.rare(h) if branch else h)


class Training(NamedTuple):
    """Bytes of a bucket; (steps, parts, samples, 6); which ranks use `rare`; how many parameters are in each bucket.

    odd: a weight that is used twice and lies transposed, buffers that are not contiguous. early: `rare` is used under
    no_sync only. dtype: of parameters and samples.
    """

    bucket_bytes: int
    shape: tuple[int, ...]
    branch: list[bool]
    buckets: list[int]
    odd: bool = False
    early: bool = False
    dtype: str = "float32"

    def net(self, seed: int) -> _Net:
        torch.manual_seed(seed)
        return _Net(self.odd).to(getattr(torch, self.dtype))

    def steps(self, seed: int, rank: int) -> list[list[tuple[torch.Tensor, bool]]]:
        """One rank's samples, by steps and parts, and whether the part uses `rare`."""
        samples = normal(seed, *self.shape).to(getattr(torch, self.dtype))
        uses = [self.branch[rank] and not (self.early and last) for last in self._is_last()]
        return [list(zip(parts, uses, strict=True)) for parts in samples]

    def _is_last(self) -> list[bool]:
        return [part == self.shape[1] - 1 for part in range(self.shape[1])]


@partial(
    on_ranks,
    stuck="one rank waited for ever, or died of sizes: it met another in a bucket that was not the same",
)
def _train(kind: Any, runs: Any) -> list[Any]:
    """Of each run: this rank's seeds, what it began with, and of each step the calls and the gradients."""
    refused = Mock(
        side_effect=RuntimeError("torch's own DistributedDataParallel is not at hand here: write it")
    )
    for torchs_own in (nn.parallel.DistributedDataParallel, dist.Reducer):
        for name in ("__init__", "prepare_for_backward"):
            setattr(torchs_own, name, refused)
    observed = []
    for run in starmap(Training, runs):
        start, seed = secret(), secret()
        net = run.net(start)
        with ranks.sent() as begun:
            ddp = kind(net, bucket_bytes=run.bucket_bytes)
        state = {k: v.clone() for k, v in net.held().items()}
        steps = [_step(ddp, net, parts) for parts in run.steps(seed, dist.get_rank())]
        observed.append([start, seed, begun.bytes(), state, steps])
    return observed


def _step(ddp: Any, net: _Net, parts: list[tuple[torch.Tensor, bool]]) -> list[Any]:
    """All parts but the last go under no_sync."""
    net.zero_grad()
    with ranks.sent(net) as quiet:
        for part, branch in parts[:-1]:
            with ddp.no_sync():
                ddp(part, branch=branch).square().mean().backward()
    with ranks.sent(net) as record:
        ddp(parts[-1][0], branch=parts[-1][1]).square().mean().backward()
        ddp.finish()
    grads = {k: None if p.grad is None else p.grad.clone() for k, p in net.named_parameters()}
    calls = [(c.kind, c.bytes, c.asynchronous, c.phase, c.reached, c.waited) for c in record.calls]
    return [len(quiet.calls), calls, record.gradients, grads]


def _as_one_batch(value: list[Any], n: int, runs: Any) -> str | None:
    for i, run in enumerate(starmap(Training, runs)):
        observed = [rank[i] for rank in value]
        if min(len({t[k] for t in observed}) for k in (0, 1)) < n:
            return "two ranks began with the same weights or samples"
        net, counts = run.net(observed[0][0]), run.buckets
        if text := _begun_wrong(net, observed):
            return text
        ends = [sum(counts[: k + 1]) for k in range(len(counts))]
        wanted = [_NAMES[end - size : end] for size, end in zip(counts, ends, strict=True)]
        given = [run.steps(t[1], r) for r, t in enumerate(observed)]
        for step in range(run.shape[0]):
            net.zero_grad()
            for r in range(n):
                for part, branch in given[r][step]:
                    (net(part, branch).square().mean() / n).backward()
            for r in range(n):
                quiet, calls, order, grads = observed[r][4][step]
                text = f"{quiet} calls were made within no_sync; wanted none" if quiet else None
                text = text or _gradients_wrong(net, grads)
                unused = [] if given[r][step][-1][1] else ["rare.weight", "rare.bias"]
                if text := text or _link_wrong(net, run.bucket_bytes, wanted, calls, order, unused):
                    of = f", in {run.dtype}" * (run.dtype != "float32")
                    return f"rank {r} of {n}, step {step + 1}{of}: {text}"
    return None


def _begun_wrong(net: _Net, observed: list[Any]) -> str | None:
    whole = sum(v.nbytes for v in net.held().values())
    for r, (_, _, begun, state, _) in enumerate(observed):
        for k, v in net.held().items():
            if not torch.equal(state[k], v):
                apart = " (it is not contiguous: a collective reads and writes in memory's order)"
                apart *= not v.is_contiguous()
                apart += " (it was registered with persistent=False: state_dict() leaves it out)" * (
                    k not in net.state_dict()
                )
                return f"rank {r} began with another {k} than rank 0: parameters and buffers are broadcast from it{apart}"
        if begun > 3 * whole + 8192:
            sent = f"the constructor sent {begun:,} bytes"
            return f"rank {r}: {sent}; the parameters and buffers have {whole:,}"
    return None


def _gradients_wrong(net: _Net, grads: dict[str, torch.Tensor | None]) -> str | None:
    for k, p in net.named_parameters():
        got, want = grads[k], torch.zeros_like(p) if p.grad is None else p.grad
        if not p.requires_grad:
            if got is not None:
                return f"{k} is frozen, and has a gradient"
        elif got is None:
            return f"{k} has no gradient; wanted the mean over the ranks"
        elif got.dtype != want.dtype:
            return f"{k}'s gradient is {got.dtype}, and the parameter {want.dtype}"
        elif not torch.allclose(
            got, want, *((1e-10, 1e-12) if want.dtype == torch.float64 else (1e-4, 1e-6))
        ):
            off, largest = float((got - want).abs().max()), float(want.abs().max())
            part = float((got * want).sum() / want.square().sum().clamp(min=1e-12))
            why = f"about {part:.2f} times it" if abs(part - 1) > 0.01 else "right but for rounding"
            why += ": was it summed in fewer bits than the parameter's?" * (off < 0.01 * largest)
            return f"{k}'s gradient is not that of the whole batch: off by up to {off:.2g}, of values up to {largest:.2g}; {why}"
    return None


def _link_wrong(
    net: _Net, bucket_bytes: int, wanted: list[Names], calls: Calls, order: Names, unused: Names
) -> str | None:
    if others := {c[0] for c in calls} - {"all_reduce"}:
        return f"{', '.join(sorted(others))} was called; wanted all_reduce only"
    size = {k: p.nbytes for k, p in net.named_parameters()}
    sizes = [sum(size[k] for k in names) for names in wanted]
    if [c[1] for c in calls] != sizes:
        return (
            f"gradients are right, but the all-reduces were of {[c[1] for c in calls]} bytes; wanted "
            f"{sizes}: buckets of at least {bucket_bytes:,}, in reverse order of the parameters, always in turn"
        )
    full = 0
    sent = enumerate(zip(wanted, calls, strict=True))
    for i, (names, (_, _, asynchronous, phase, reached, waited)) in sent:
        if strange := [k for k in names if k not in order and k not in unused]:
            return f"the model's own {strange[0]} got no gradient in backward"
        if any(k not in order for k in names):
            return None  # a parameter was not used: this bucket and the later ones may wait for finish()
        full = max(full, *(order.index(k) + 1 for k in names))
        if phase != "backward" or reached > full:
            return (
                f"gradients are right, but bucket {i} was sent when {reached} of {len(order)} "
                f"gradients had come ({'inside' if phase == 'backward' else 'after'} backward); it was full at {full}"
            )
        if not asynchronous or (waited is not None and waited < len(order)):
            return (
                f"gradients are right, but backward waited for bucket {i}: all_reduce(…, async_op=True), "
                "and wait in finish()"
            )
    return None


def check_BucketedDDP(n: int, *runs: Training) -> None:
    note = "Net: first (its weight is frozen), middle, rare, last; each a linear layer. Some steps have two parts, "
    note += "and some ranks do not use rare."
    note += " In one run rare is used under no_sync only." * any(run.early for run in runs)
    note += " In one run middle's weight is used twice, and buffers are not contiguous." * any(
        run.odd for run in runs
    )
    check_ranks("BucketedDDP", _train, _as_one_batch, n, list(map(tuple, runs)), look=_HIDE_IT, note=note)


# --- 14.2 choose_cap ----------------------------------------------------------------------------------------------


def sent_with(
    cap: float, sizes: list[int], ready_s: list[float], message_s: float, byte_s: float
) -> tuple[float, list[int]]:
    """When the last all-reduce ends, and how many gradients each bucket has."""
    made = tuple(Gradient("", s, r) for s, r in zip(sizes, ready_s, strict=True))
    whole = Backward(made, 0, ready_s[-1], "")
    plan = overlap(whole, lambda nbytes: message_s + nbytes * byte_s, cap / 2**20)
    return plan.buckets[-1].end_s, [len(bucket.names) for bucket in plan.buckets]


def check_choose_cap(cases: Sequence[tuple[Any, ...]], best: Sequence[int]) -> None:
    """cases: (sizes, ready_s, message_s, byte_s). best: of each a size with which all ends soonest."""

    def as_early_as_the_best(reports: list[check.Report]) -> str | None:
        for report, good in zip(reports, best, strict=True):
            cap = report.value
            if type(cap) not in (int, float) or not cap > 0:
                return f"returned {cap!r}, wanted a number of bytes above 0"
            (end, cut), (soonest, other) = sent_with(cap, *report.args), sent_with(good, *report.args)
            if end > soonest * (1 + 1e-9):
                sizes, ready_s, message_s, _ = report.args
                return (
                    f"{len(sizes)} gradients, {sum(sizes):,} bytes, ready from {ready_s[0] * 1e3:.2f} to {ready_s[-1] * 1e3:.2f} ms, "
                    f"{message_s * 1e6:.0f} µs a message: with {cap:,.0f} bytes the last all-reduce ends at {end * 1e3:.3f} ms, some "
                    f"size ends at {soonest * 1e3:.3f} ms\n  gradients in each bucket, yours: {cut}\n  the better one's: {other}"
                )
        return None

    note = "Among them: messages that cost nothing, very dear ones, and gradients that come all at once."
    asked = [check.case(*case) for case in cases]
    check.function("choose_cap", asked, verify=as_early_as_the_best, look=_HIDE_IT, note=note)


# --- 14.4 int8_hook -----------------------------------------------------------------------------------------------


class _Products(nn.Module):
    """Its parameters are made in another order than used."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        super().__init__()
        self.b, self.c, self.a = (nn.Parameter(w.clone()) for w in weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x @ self.a).tanh() @ self.b).tanh() @ self.c


def hooked(
    seed: int,
    width: int,
    factors: list[float],
    cap_mb: float,
    idle: int | None = None,
    alike: bool = False,
) -> tuple[Any, ...]:
    """A run of as many steps as factors, each with the same gradients times its factor; cap_mb: DDP's bucket size.

    idle: the rank whose gradients are zeros in the first step. alike: all ranks have the same gradients, so that their
    largest numbers, in one place, make the largest sum that int8 has to hold.
    """
    made = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=made) / 3 for _ in range(3)]
    return weights, torch.randn(8, width, generator=made), factors, cap_mb, idle, alike


def _samples(common: torch.Tensor, own: int, rank: int, alike: bool) -> torch.Tensor:
    return common if alike else (common + 0.3 * normal(own, *common.shape)) * (1 + rank / 2)


@partial(
    on_ranks,
    stuck="one rank waited for another in a collective: each is called by all ranks, whatever their own numbers",
)
def _hook(hook: Any, runs: Any) -> list[Any]:
    """Of each run: the seed of this rank's part of the samples, and of each step what was sent, and the gradients."""
    observed = []
    for weights, common, factors, cap_mb, idle, alike in runs:
        net, steps, own = _Products(weights), [], secret()
        ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=cap_mb)
        ddp.register_comm_hook({}, hook)
        x = _samples(common, own, dist.get_rank(), alike)
        for k, factor in enumerate(factors):
            net.zero_grad()
            here = 0.0 if k == 0 and dist.get_rank() == idle else factor
            with ranks.sent(net) as record:
                (ddp(x).square().mean() * here).backward()
            grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
            steps.append([[(c.kind, c.bytes) for c in record.calls], grads])
        observed.append([own, steps])
    return observed


def _exact(weights: list[torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    net = _Products(weights)
    return list(torch.autograd.grad(net(x).square().mean(), list(net.parameters())))


def _nothing_lost(value: list[Any], n: int, runs: Any) -> str | None:
    for i, given in enumerate(runs):
        observed = [rank[i] for rank in value]
        if len({own for own, _ in observed}) < n:
            return "two ranks had the same samples"
        weights, common, *_, alike = given
        samples = [_samples(common, own, r, alike) for r, (own, _) in enumerate(observed)]
        each = [_exact(weights, x) for x in samples]
        for r, (_, steps) in enumerate(observed):
            if text := _steps_wrong(given, each, steps, observed[0][1]):
                return f"{n} ranks, rank {r}, {text}"
    return None


def _worst(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    return max(float((g - w).abs().max()) for g, w in zip(got, want, strict=True))


def _steps_wrong(
    given: tuple[Any, ...], each: list[list[torch.Tensor]], steps: list[Any], first: list[Any]
) -> str | None:
    """given: the run. each: exact gradients of all ranks. steps, first: this rank's and rank 0's."""
    weights, _, factors, cap_mb, idle, _ = given
    n = len(each)

    def mean(k: int) -> list[torch.Tensor]:
        some = [gs for r, gs in enumerate(each) if k or r != idle]
        return [torch.stack(g).sum(0) * factors[k] / n for g in zip(*some, strict=True)]

    grid = max(float(g.abs().max()) for gs in each for g in gs) * max(factors) / (127 // n)
    numbers = sum(w.numel() for w in weights)
    most = numbers + 16 * (1 if cap_mb > 1 else len(weights))
    total = wanted = [torch.zeros_like(w) for w in weights]
    for k, (factor, (calls, grads), (_, others)) in enumerate(zip(factors, steps, first, strict=True)):
        where, fed = f"step {k + 1}", any(factors[:k])
        for got, other in zip(grads, others, strict=True):
            if not torch.allclose(got, other, rtol=1e-6, atol=0):
                return f"{where}: has other means than rank 0"
        off = _worst(grads, mean(k)) / grid
        if not off <= (1.1 if fed else 0.55):
            why = "rounded to nearest, in steps that are the same on all ranks?"
            if not off < 10:
                why = "did a sum not fit into int8, is it a sum and not a mean, or a rest no copy?"
            if off != off:
                why = "a bucket was all zeros"
            return f"{where}: a mean is off by {off:.2f} steps of the grid, wanted {'1' if fed else '0.5'} at most: {why}"
        total = [t + got for t, got in zip(total, grads, strict=True)]
        wanted = [w + m for w, m in zip(wanted, mean(k), strict=True)]
        off = _worst(total, wanted) / grid
        # a step without gradients: the grid is that of the rests
        if not off <= (0.55 if factor or not fed else 0.05):
            return (
                f"{where}: the sum of the means so far is off by {off:.2f} steps of the largest grid: what is "
                "rounded off must be added, to the same parameter, in the next step"
            )
        # zeros, which need not be sent
        if text := _too_much_sent(calls, numbers if factor or fed else 0, most):
            return f"{where}: {text}"
    return None


def _too_much_sent(calls: Calls, numbers: int, most: int) -> str | None:
    sent = sum(b for kind, b in calls if kind not in ("broadcast", "recv"))
    own = sum(b for kind, b in calls if kind == "broadcast")  # DDP's: which gradient goes into which bucket
    if any(kind == "barrier" for kind, _ in calls):
        return "a barrier was called: all ranks wait, and nothing is sent"
    if sent < numbers:
        return f"{sent:,} bytes were seen for {numbers:,} numbers: what is shared goes by torch.distributed"
    if sent > most or own > 256:
        return f"means are right, but {sent + own:,} bytes were sent; wanted at most {most:,}"
    return None


def check_int8_hook(n: int, *runs: tuple[Any, ...]) -> None:
    look = "Send less often, and less"
    note = "The same gradients in every step (times a factor), so the sum of k means should be k times the exact one. Some steps are of zeros."
    check_ranks("int8_hook", _hook, _nothing_lost, n, list(runs), look=look, note=note)
