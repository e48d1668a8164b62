"""Tests of lesson 15: what ranks of a hand-made ZeRO hold and send, what fully_shard sends, which plan fits a budget."""

import contextlib
import gc
import random
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from helpers import check, count, ranks
from helpers.check.judges import each_value
from helpers.check.on_ranks import check_ranks, normal, on_ranks
from helpers.check.reference import reference
from helpers.lessons.fully_sharded.sharded_peak import worst_moment

_MARGIN = 2048
_KINDS = ("SGD", "Adam")
Shapes = Sequence[tuple[int, ...]]
Tensors = list[Tensor]


def _normal(shapes: Shapes, seed: int) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _made(kind: str, params: Any, **options: Any) -> Any:
    momentum = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(torch.optim, kind)(params, lr=0.1, **momentum, **options)


def _state(optimizer: torch.optim.Optimizer) -> Tensors:
    return [t for kept in optimizer.state.values() for t in kept.values() if getattr(t, "ndim", 0)]


def _gradients(shapes: Shapes, seed: int, step: int, rank: int, odd: bool) -> list[Tensor | None]:
    """odd: the last parameter is frozen; the first is not used at times, by some ranks, then by none; in step 2 none is."""
    made: list[Tensor | None] = list(_normal(shapes, 1000 * seed + 10 * step + rank))
    if odd:
        made[-1] = None
        made[0] = made[0] if step == 0 or step == 1 and rank == 0 else None
    return made if not odd or step != 2 else [None] * len(made)


def _part(shapes: Shapes, n: int, odd: bool) -> int:
    """Numbers that one of n ranks keeps: a share of all that are trained, rounded up."""
    return -(-sum(torch.Size(shape).numel() for shape in (shapes[:-1] if odd else shapes)) // n)


def _laid(t: Tensor, odd: bool) -> Tensor:
    """odd: a matrix lies transposed in memory."""
    return t.t().contiguous().t() if odd and t.dim() == 2 else t.clone()


# --- 15.3 ShardedOptimizer ----------------------------------------------------------------------------------------


@on_ranks
def _optimize(*of: Any) -> list[dict[str, Any]]:
    return [_optimize_with(kind, *of) for kind in _KINDS]


def _optimize_with(
    kind: str, Sharded: Any, shapes: Shapes, seed: int, steps: int, odd: bool
) -> dict[str, Any]:
    """One rank's steps with one kind of optimizer: weights, what it holds afterwards, what each step sent."""
    made: list[torch.optim.Optimizer] = []
    records = []

    def make(given: Any) -> torch.optim.Optimizer:
        made.append(_made(kind, list(given), foreach=False))
        return made[-1]

    params = [torch.nn.Parameter(_laid(w, odd)) for w in _normal(shapes, seed)]
    params[-1].requires_grad_(not odd)
    places, rooms = [p.data_ptr() for p in params], [torch.zeros_like(p) for p in params]
    counting: Any = count()
    with counting as counts:
        optimizer = Sharded(iter(params) if odd else params, make)
        for step in range(steps):
            grads = _gradients(shapes, seed, step, dist.get_rank(), odd)
            for p, room, grad in zip(params, rooms, grads, strict=True):
                p.grad = None if grad is None else room.copy_(grad)
            del grad, grads
            with ranks.sent() as record:
                optimizer.step()
            records.append([(c.kind, c.bytes) for c in record.calls])
        gc.collect()
        _others_rest()
        counting.watch.ledger.write(counts)  # what is alive by now
    own = [p for o in made for group in o.param_groups for p in group["params"]]
    state = [t for o in made for t in _state(o)]
    return {
        "alive": counts.live_bytes,
        "moved": [i for i, p in enumerate(params) if p.data_ptr() != places[i]],
        "optimizers": len(made),
        "sent": records,
        "own": _flat(own),
        "state": _flat(state),
        "weights": [p.detach().clone() for p in params],
    }


def _others_rest(most_s: float = 2.0) -> None:
    """Until no other thread of this process has work: gloo's lets go of what it sent when it gets to it, after the call."""
    until, looks, me = time.monotonic() + most_s, 3, str(threading.get_native_id())
    while looks and time.monotonic() < until:
        time.sleep(2e-3)  # and whoever waits for the interpreter gets it
        states = set()
        for thread in Path("/proc/self/task").glob("*"):  # proc(5), on Linux
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stat = (thread / "stat").read_text(encoding="utf-8", errors="replace")
                states |= {stat.rpartition(")")[2].split()[0]} if thread.name != me else set()
        looks = 3 if states - {"S"} else looks - 1


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([torch.empty(0), *(t.detach().flatten() for t in tensors)])


@cache
def _one_optimizer(
    kind: str, shapes: tuple[Any, ...], seed: int, n: int, steps: int, odd: bool
) -> tuple[Tensors, Tensors]:
    """The weights and the state of one optimizer on the mean of all ranks' gradients, 0 where a rank has none."""
    params = [torch.nn.Parameter(w) for w in _normal(shapes, seed)]
    trained = params[:-1] if odd else params
    optimizer = _made(kind, trained)
    for step in range(steps):
        every = [_gradients(shapes, seed, step, rank, odd)[: len(trained)] for rank in range(n)]
        for p, *grads in zip(trained, *every, strict=True):
            p.grad = sum((g for g in grads if g is not None), torch.zeros_like(p)) / n
        optimizer.step()
    return [p.detach() for p in params], _state(optimizer)


def _all_there(wanted: Tensors, held: Tensor) -> bool:
    """Whether each number is there, to rounding."""
    held, numbers = held.sort().values, _flat(wanted)
    if len(held) < len(numbers):
        return False
    right = torch.searchsorted(held, numbers).clamp(max=len(held) - 1)
    near = torch.minimum((held[right] - numbers).abs(), (held[(right - 1).clamp(min=0)] - numbers).abs())
    return bool((near <= 1e-4 + 1e-4 * numbers.abs()).all())


def _sharded_as_one(
    observed: list[Any], n: int, shapes: Shapes, seed: int, steps: int, odd: bool
) -> str | None:
    for at, kind in enumerate(_KINDS):
        weights, state = _one_optimizer(kind, tuple(shapes), seed, n, steps, odd)
        for rank, both in enumerate(observed):
            if text := _rank_is_wrong(both[at], weights, _part(shapes, n, odd), n):
                return f"{kind}, {n} ranks, rank {rank}: {text}"
        for name, numbers in (("own", weights[:-1] if odd else weights), ("state", state)):
            if not _all_there(numbers, torch.cat([both[at][name] for both in observed])):
                return f"{kind}, {n} ranks: the weights are right, but all ranks' optimizers together do not hold the weights and the state of one: did they step?"
    return None


def _rank_is_wrong(got: dict[str, Any], weights: Tensors, part: int, n: int) -> str | None:
    for i, (p, w) in enumerate(zip(weights, got["weights"], strict=True)):
        if w.shape != p.shape or not torch.allclose(w, p, rtol=1e-4, atol=1e-4):
            return f"parameter {i} is not what one optimizer on the mean gradient makes of it"
    if got["optimizers"] != 1 or len(got["own"]) > part:
        return f"the weights are right, but the optimizer holds {len(got['own']):,} numbers; wanted at most {part:,}"
    if got["moved"]:
        return f"the weights are right, but parameter {got['moved'][0]} lies elsewhere in memory now: write into p, as p.copy_(…) does"
    if got["alive"] > 20 * part + _MARGIN:
        view = " (a view keeps all of its vector: is your part a clone?)" * (got["alive"] >= 4 * n * part)
        return f"the weights are right, but {got['alive']:,} bytes stay; wanted at most {20 * part + _MARGIN:,}{view}"
    for calls in got["sent"]:
        if sorted(calls) != [("all_gather", 4 * n * part), ("reduce_scatter", 4 * n * part)]:
            return f"sent {calls} in a step; wanted one reduce_scatter and one all_gather of {4 * n * part:,} bytes"
    return None


def check_ShardedOptimizer(shapes: Shapes, seed: int, n: int, steps: int, odd: bool = False) -> None:
    """odd: the last parameter is frozen, the first, and once all, are without a gradient, matrices lie transposed."""
    look = "1 · What is stored, what is sent"
    note = "Several steps on several ranks, SGD with momentum and then Adam. Weights wrong with SGD only? Then the sum was not divided by n: Adam would forgive that."
    note += (
        " The last parameter is frozen, and the first has p.grad None at times. In step 3 of 4 all have it None, on all ranks: zeros, with which momentum moves on."
        * odd
    )
    of = n, shapes, seed, steps, odd
    check_ranks("ShardedOptimizer", _optimize, _sharded_as_one, *of, look=look, note=note)


# --- 15.1 sharded_linear ------------------------------------------------------------------------------------------


def _chain(seed: int, sizes: list[int]) -> Iterator[Tensor]:
    """The weights of a chain of layers, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    for a, b in zip(sizes[:-1], sizes[1:], strict=True):
        yield torch.randn(b, a, generator=generator) / a**0.5


def _input(seed: int, rank: int, rows: int, width: int) -> Tensor:
    return normal(1000 * seed + rank, rows, width)


def _frozen(i: int, odd: bool) -> bool:
    return odd and i % 3 == 1


@on_ranks
def _run_chain(linear: Any, seed: int, sizes: list[int], rows: int, odd: bool) -> dict[str, Any]:
    """One rank's way through a chain and back; between the two the shards change sign. Then its first layer once more."""
    rank, n = dist.get_rank(), dist.get_world_size()
    shards = [torch.nn.Parameter(_laid(w.chunk(n)[rank], odd)) for w in _chain(seed, sizes)]
    for i, shard in enumerate(shards):
        shard.requires_grad_(not _frozen(i, odd))
    x = _laid(_input(seed, rank, rows, sizes[0]), odd).requires_grad_(not odd)
    kept = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.numel() * 4)
        return t

    with count() as counts, ranks.sent() as record:
        out = x
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            for shard in shards:
                out = linear(out, shard).tanh()
        for shard in shards:
            shard.data.neg_()  # what was gathered in forward is out of date
        out.square().sum().backward()
        dist.barrier()
        gc.collect()
        _others_rest()
    grads = [s.grad if s.grad is None else s.grad.clone() for s in shards]
    linear(x.detach(), shards[0]).sum().backward()
    return {
        "out": out.detach(),
        "x": x.grad,
        "shards": grads,
        "both": shards[0].grad,
        "sent": [(c.kind, c.bytes, c.phase) for c in record.calls if c.kind != "barrier"],
        "peak": counts.peak_live_bytes,
        "alive": counts.live_bytes,
        "saved": max(kept, default=0),
    }


@cache
def _whole_chain(seed: int, n: int, sizes: tuple[int, ...], rows: int) -> tuple[Tensors, ...]:
    """With whole weights on one process: the weights, outputs and input gradients of each rank, gradients of weights."""
    weights = list(_chain(seed, list(sizes)))
    outs, for_x, for_w = [], [], [torch.zeros_like(w) for w in weights]
    for rank in range(n):
        ins = [_input(seed, rank, rows, sizes[0])]
        for w in weights:
            ins.append((ins[-1] @ w.t()).tanh())
        g = 2 * ins[-1]
        for i in reversed(range(len(weights))):
            g = g * (1 - ins[i + 1] ** 2)
            for_w[i] += g.t() @ ins[i]
            g = -(g @ weights[i])  # the shards have been negated in between
        outs.append(ins[-1])
        for_x.append(g)
    return weights, outs, for_x, for_w


def _same(a: Tensor | None, b: Tensor) -> bool:
    return a is not None and a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def _chain_as_whole(
    observed: list[Any], n: int, seed: int, sizes: list[int], rows: int, odd: bool
) -> str | None:
    weights, outs, for_x, for_w = _whole_chain(seed, n, tuple(sizes), rows)
    frozen = [_frozen(i, odd) for i in range(len(weights))]
    more = sum(_input(seed, rank, rows, sizes[0]).sum(0) for rank in range(n)) / n
    for rank, got in enumerate(observed):
        wanted = [None if no else w.chunk(n)[rank] for w, no in zip(for_w, frozen, strict=True)]
        text = _values_wrong(got, outs[rank], None if odd else for_x[rank], wanted, n)
        if not text and not _same(got["both"], got["shards"][0] + more):
            text = "after a second backward shard.grad is not the sum of both: autograd adds what a backward returns"
        if text := text or _sent_or_held_wrong(got, [w.nbytes for w in weights], frozen, n):
            return f"{n} ranks, rank {rank}: {text}"
    return None


def _values_wrong(
    got: dict[str, Any], out: Tensor, for_x: Tensor | None, for_shards: Sequence[Tensor | None], n: int
) -> str | None:
    """for_x, for_shards: ``None`` where no gradient is wanted."""
    if not _same(got["out"], out):
        return "the output is not x @ W.T"
    if for_x is not None and got["x"] is None:
        return "x has no gradient"
    if for_x is not None and not _same(got["x"], for_x):
        return "the gradient of x is wrong (the test negates the shards before backward: is W gathered anew there, and used?)"
    for i, (shard, total) in enumerate(zip(got["shards"], for_shards, strict=True)):
        if total is None:
            continue  # frozen
        if shard is None:
            return f"shard {i} has no gradient: autograd does not see through a collective"
        if _same(shard, total):
            return f"the gradient of shard {i} is the sum over the ranks, not the mean"
        if not _same(shard, total / n):
            return f"the gradient of shard {i} is not its rows of the mean over the ranks (is what was sent, and what it arrives in, contiguous?)"
    return None


def _sent_or_held_wrong(got: dict[str, Any], sizes: list[int], frozen: list[bool], n: int) -> str | None:
    if got["saved"] >= min(sizes):
        return f"the values are right, but {got['saved']:,} bytes in one piece wait for backward: that is W, not let go of"
    kinds = [("all_gather", "forward"), ("all_gather", "backward"), ("reduce_scatter", "backward")]
    wanted = [(kind, s, phase) for s in sizes for kind, phase in kinds[:2]]
    wanted += [("reduce_scatter", s, "backward") for s, no in zip(sizes, frozen, strict=True) if not no]
    # what nobody needs who does not want x's gradient
    spared = [("all_gather", sizes[0], "backward")] if got["x"] is None else []
    if sorted(got["sent"]) != sorted(wanted) and sorted(got["sent"] + spared) != sorted(wanted):
        both = got["sent"], wanted
        made, asked = ([sum((c[0], c[2]) == kind for c in calls) for kind in kinds] for calls in both)
        return f"the values are right, but {len(got['sent'])} calls were made ({made[0]} all_gathers in forward, {made[1]} and {made[2]} reduce_scatters in backward); wanted {asked[0]}, {asked[1]} and {asked[2]}, each of its W's bytes"
    stays = sum(sizes) // n + 32768
    if got["alive"] > stays:
        return f"the values are right, but {got['alive']:,} bytes are alive after backward; wanted at most {stays:,}, the shards' gradients and 32 KiB: who still holds a W?"
    limit = 3 * max(sizes) + stays
    late = max(sizes)  # on a busy machine gloo's thread lets go of a W after the call is through
    if got["peak"] > limit + late:
        return f"the values are right, but {got['peak']:,} bytes were alive at once, {got['peak'] / max(sizes):.0f} W; wanted at most {limit:,}"
    return None


def check_sharded_linear(seed: int, n: int, sizes: list[int], rows: int, odd: bool = False) -> None:
    """odd: shards and x lie transposed in memory, every third shard is frozen, x needs no gradient."""
    look, of = "2 · Gather, use, let go", (n, seed, sizes, rows, odd)
    note = "A chain of layers on several ranks. Between forward and backward the shards change sign."
    note += " Shards and x lie transposed in memory; x and every third shard need no gradient." * odd
    check_ranks("sharded_linear", _run_chain, _chain_as_whole, *of, look=look, note=note)


# --- 15.2 step_bytes ----------------------------------------------------------------------------------------------


class _Block(torch.nn.Module):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros(s) for s in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.stack([p.sum() for p in self.all]).sum()


@cache
def _counted(blocks: tuple[Any, ...], n: int, reshard: bool = True) -> dict[str, int]:
    """What torch's fully_shard sends on a fake group, counted once."""
    from torch.distributed.fsdp import fully_shard  # takes a second, which no other lesson should pay

    with warnings.catch_warnings(), ranks.fake(n) as mesh:
        warnings.simplefilter("ignore")
        model = torch.nn.Sequential(*(_Block(shapes) for shapes in blocks))
        for module in [*model, model]:
            fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
        with ranks.sent(model) as record:
            model(torch.zeros(2, requires_grad=True)).sum().backward()
    return {
        "calls": record.count(),
        "all_gather": record.bytes("all_gather"),
        "reduce_scatter": record.bytes("reduce_scatter"),
        "wire": round(record.wire_bytes()),
    }


def check_step_bytes(*cases: check.Case) -> None:
    look, note = "3 · Bytes on 8 and on 1,024 ranks", "Checked against torch's fully_shard on a fake group."
    budget = {"operators": 0, "new_storages": 0}

    def sent(blocks: list[Any], *of: Any, **how: Any) -> dict[str, int]:
        return _counted(tuple(tuple(map(tuple, shapes)) for shapes in blocks), *of, **how)

    check.function("step_bytes", cases, sent, budget=budget, look=look, note=note)


# --- 15.4 plan ----------------------------------------------------------------------------------------------------


def mib(*sizes: int) -> list[int]:
    return [size << 20 for size in sizes]


@reference
@cache
def _most_kept(blocks: tuple[int, ...], n: int, budget: int) -> int:
    """Most bytes that can be kept: block by block, the sums that fit so far."""
    sums, b = {(0, 0)}, [*blocks, 0]  # (kept before the last block, kept of the last block)
    for i in range(len(blocks)):
        before, after = (b[i - 1] if i else 0), b[i + 1] + sum(b[i + 1 :]) // n
        sums = {
            (early + last, kept)
            for early, last in sums
            if early + last + 2 * b[i] + before <= budget and early + before + 2 * b[i] + after <= budget
            for kept in (0, b[i])
        }
    return max(map(sum, sums))


def random_blocks(seed: int, lengths: Sequence[int], worlds: Sequence[int]) -> Iterator[check.Case]:
    """Blocks of whole MiB, with budgets from the least that any plan needs towards that of keeping all."""
    dice = random.Random(seed)
    for long in lengths:
        for n in worlds:
            blocks = mib(*(n * dice.randint(1, 40) for _ in range(long)))
            low, high = (worst_moment(blocks, [gone] * long, n)[0] for gone in (True, False))
            for tight in (0.0, 0.3, 0.6):
                yield check.case(blocks, n, int(low + tight * max(0, high - low)))


def _not_the_best(got: Any, blocks: list[int], n: int, budget: int) -> str | None:
    sizes = " ".join(f"{b / 2**20:g}" for b in blocks)
    where = f"blocks of {sizes} MiB, {n} ranks, budget {budget / 2**20:g} MiB: "
    if type(got) not in (list, tuple) or len(got) != len(blocks) or any(type(g) is not bool for g in got):
        return f"{where}wanted a list of {len(blocks)} bools"
    letters = "".join("g" if gone else "k" for gone in got) + " (k kept, g let go of)"
    most, when, i = worst_moment(blocks, got, n)
    if most > budget:
        return f"{where}{letters} needs {most / 2**20:g} MiB in {when} at block {i}"
    kept = sum(b for b, gone in zip(blocks, got, strict=True) if not gone)
    best = _most_kept(tuple(blocks), n, budget)
    if kept < best:
        return f"{where}{letters} fits and keeps {kept / 2**20:g} MiB; {best / 2**20:g} can be kept"
    return None


def check_plan(*cases: check.Case) -> None:
    look = "Which blocks to keep"
    check.function("plan", cases, verify=each_value(_not_the_best), look=look)
