"""Tests of lesson 20: a cache written in place, a loop without waits, a scheduler, and speculative sampling."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import check, simulate
from helpers.check.compare import brief, difference
from helpers.check.judges import each
from helpers.check.results import plain
from helpers.lessons.generating.decoding import next_logits as uncached
from helpers.lessons.generating.stepping import next_logits
from helpers.models import GPT2, Size

# --- 20.1 StaticCache ---------------------------------------------------------------------------------------------

#: of the small GPT-2; and the features of a head on the simulated GPU, which its fused attention takes
LAYERS, FEATURES = 2, 64


@dataclass(frozen=True)
class Passes:
    """Calls of a small GPT-2 with a static cache. calls: which places go through in each of them. length: places in a layer."""

    calls: tuple[tuple[int, ...], ...]
    length: int = 12
    batch: int = 2
    heads: int = 2
    features: int = 4
    dtype: str = "float32"


def _small_gpt(of: Passes) -> GPT2:
    torch.manual_seed(of.length)
    return GPT2(Size(of.heads * of.features, LAYERS, of.heads, 40, of.length)).to(getattr(torch, of.dtype))


def _tokens(of: Passes) -> Iterator[tuple[Tensor, list[int]]]:
    """All tokens as they stand after each call, and the places that it brought."""
    now, draw = torch.zeros(of.batch, of.length, dtype=torch.int64), torch.Generator().manual_seed(3)
    for places in of.calls:
        now[:, list(places)] = torch.randint(40, (of.batch, len(places)), generator=draw)
        yield now, list(places)


class _Watched:
    """A cache, and what each of its calls cost; beside it another one, which gets other numbers."""

    def __init__(self, StaticCache: Callable[..., Any], count: Callable[..., Any], of: Passes) -> None:
        size = (LAYERS, of.batch, of.heads, of.length, of.features)
        self.cache, self.other = (
            StaticCache(*size, dtype=getattr(torch, of.dtype), device="cpu") for _ in range(2)
        )
        self.count, self.adds, self.masks = count, list[Any](), list[Any]()
        self.rooms = dict[
            tuple[int, int], int
        ]()  # of each layer and both caches: addresses of keys and values

    def mask(self, places: Tensor) -> Tensor:
        with self.count() as counts:
            mask = plain(self.cache.mask(places))
        self.masks.append([list(mask.shape), str(mask.dtype), counts.syncs, dict(counts.by_operator)])
        return mask.clone()

    def add(self, layer: int, places: Tensor, k: Tensor, v: Tensor) -> Any:
        k, v = k.clone(), v.clone()
        with self.count() as counts:
            keys, values = plain(self.cache.add(layer, places, k, v))
        shapes = [list(keys.shape), list(values.shape)]
        where = [keys.data_ptr(), values.data_ptr()]
        self.adds.append([shapes, where, counts.new_storages, counts.syncs, dict(counts.by_operator)])
        others = plain(self.other.add(layer, places, k + 1, v + 1))
        self.rooms |= {(layer, i): tensor.data_ptr() for i, tensor in enumerate((keys, values, *others))}
        seen = keys.clone(), values.clone()
        for mine in (k, v):  # the caller's own, to do with as he likes
            mine.fill_(7.0)
        return seen


def _cached(StaticCache: Callable[..., Any], count: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """The logits of all calls, what each mask() and add() cost, and what they do on the simulated GPU."""
    of = Passes(**fields)
    model, cache, logits = _small_gpt(of), _Watched(StaticCache, count, of), list[Any]()
    rows = dict[int, Tensor]()
    with torch.no_grad():
        for i, (now, places) in enumerate(_tokens(of)):
            row = torch.tensor(places)
            if (
                i % 2 == 0 and len(row) in rows
            ):  # the tensor of an earlier step with as many tokens, as a loop counts it up
                row = rows[len(row)].copy_(row)
            rows[len(row)] = row
            mask = cache.mask(row)
            logits.append(next_logits(model, now[:, places], row, cache, mask).tolist())
    there = _on_the_gpu(StaticCache, of, count)
    shared = len(set(cache.rooms.values())) < len(cache.rooms)
    return {"logits": logits, "adds": cache.adds, "masks": cache.masks, "there": there, "shared": shared}


def _on_the_gpu(StaticCache: Callable[..., Any], of: Passes, count: Callable[..., Any]) -> list[Any] | str:
    """Of each call, in a layer with 64 times the places: mask()'s operators, add()'s bytes and operators, and the kernels of
    attention with both; or why the simulated GPU refused.
    """
    gpu, seen = simulate("H100", strict=False), list[Any]()
    with gpu, torch.no_grad():
        try:
            size = (LAYERS, of.batch, of.heads, 64 * of.length, FEATURES)
            cache = StaticCache(*size, dtype=torch.bfloat16, device=gpu.device)
            for call in of.calls:
                shape = (of.batch, of.heads, len(call), FEATURES)
                k = torch.ones(shape, device=gpu.device, dtype=torch.bfloat16)
                places = torch.arange(len(call), device=gpu.device)
                with count() as masking:
                    mask = plain(cache.mask(places))
                gpu.synchronize()
                before = len(gpu.kernels)
                with count() as counts:
                    keys, values = plain(cache.add(0, places, k, k))
                moved = sum(kernel.bytes for kernel in gpu.kernels[before:])
                before = len(gpu.kernels)
                F.scaled_dot_product_attention(k, keys, values, attn_mask=mask)
                kernels = [kernel.name for kernel in gpu.kernels[before:]]
                seen.append([dict(masking.by_operator), moved, dict(counts.by_operator), kernels])
        except Exception as error:  # the learner's, told by the judge
            if isinstance(error, NotImplementedError) and not str(error):
                raise  # not written yet
            return f"{type(error).__name__}: {error}"
    return seen


@cache
def _without_cache(of: Passes) -> list[Any]:
    model = _small_gpt(of)
    with torch.no_grad():
        rows = [now[:, : max(places) + 1].clone() for now, places in _tokens(of)]
        return [uncached(model, tokens, torch.arange(tokens.shape[1])).tolist() for tokens in rows]


def _wrong_cost_of_add(report: check.Report) -> str | None:
    of, adds = report.case, report.value["adds"]
    shape = [of.batch, of.heads, of.length, of.features]
    for i, (shapes, where, storages, syncs, _) in enumerate(adds):
        said = (
            f"call {i // LAYERS + 1} of {len(of.calls)}, places {of.calls[i // LAYERS]}, layer {i % LAYERS}"
        )
        if storages:
            return (
                f"{said}: {storages} new storage(s) in add(); wanted 0: the room is taken once, in __init__"
            )
        if syncs:
            return f"{said}: {syncs} wait(s) in add(); wanted 0: the places stay on the device"
        if shapes != [shape, shape]:
            return f"{said}: keys and values of {shapes[0]} and {shapes[1]}; wanted {shape} in each call"
        if where != adds[i % LAYERS][1]:
            return f"{said}: keys or values lie elsewhere than after the first call; a recorded graph reads the old place"
    return None


def _wrong_room(report: check.Report) -> str | None:
    shared = "two layers, two caches, or keys and values share their memory"
    return shared if report.value["shared"] else None


def _wrong_mask(report: check.Report) -> str | None:
    of = report.case
    for i, (shape, dtype, syncs, _) in enumerate(report.value["masks"]):
        said = f"call {i + 1} of {len(of.calls)}, places {of.calls[i]}: mask()"
        if syncs:
            return f"{said} waits {syncs} time(s); wanted 0: the places stay on the device"
        if dtype not in ("torch.bool", f"torch.{of.dtype}"):
            return f"{said} is of {dtype}, and the queries are of torch.{of.dtype}: attention wants the same type, or bool"
        if shape[-2:] != [len(of.calls[i]), of.length]:
            return f"{said} has shape {shape}; wanted (…, {len(of.calls[i])}, {of.length}): a row a new token, a column a place"
    return None


def _wrong_logits(report: check.Report) -> str | None:
    of, got = report.case, report.value["logits"]
    tolerance = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.1}[of.dtype]
    for i, (mine, true) in enumerate(zip(got, _without_cache(of), strict=True)):
        if odd := difference(torch.tensor(mine), torch.tensor(true), tolerance, tolerance, at="logits"):
            why = ". nan: may a token look at nothing? Or was the room never filled? A masked place counts 0 times its value, and 0 × nan is nan"
            why = why if "nan" in str(odd) else ""
            return f"call {i + 1} of {len(got)}, places {of.calls[i]}, against the model without a cache: {odd}{why}"
    return None


def _wrong_on_the_gpu(report: check.Report) -> str | None:
    of, there = report.case, report.value["there"]
    if isinstance(there, str):
        return f"on the simulated GPU it raised {there}"
    for i, (call, (masking, mine, adding, kernels)) in enumerate(zip(of.calls, there, strict=True)):
        here = {"mask()": (report.value["masks"][i][-1], masking)}
        here["add()"] = (report.value["adds"][LAYERS * i][-1], adding)
        for what, (done, counted) in here.items():
            if more := [op for op, times in done.items() if times > counted.get(op, 0)]:
                return f"{what} does something else on the simulated GPU, where it is counted: without {', '.join(more)}"
        new = 2 * 2 * of.batch * of.heads * len(call) * FEATURES
        most = (2 * new + 2 * 8 * len(call)) * 5 // 4
        if mine > most:
            return (
                f"{len(call)} place(s) of {64 * of.length}: add() moved {mine:,} bytes; wanted at most {most:,}, "
                f"for the {new:,} bytes of new keys and values: read once, written once"
            )
        if len(kernels) != 1:
            return (
                f"with this mask scaled_dot_product_attention launches {len(kernels)} kernels in each layer, {', '.join(kernels)}; "
                "wanted 1"
            )
    return None


def check_StaticCache(*cases: Passes) -> None:
    judge = each(_wrong_room, _wrong_mask, _wrong_logits, _wrong_cost_of_add, _wrong_on_the_gpu, told=False)
    look = "2 · What to keep"
    check.function("StaticCache", cases, drive=_cached, verify=judge, look=look, counters=False)


# --- 20.2 generate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """What a model says: a row each, of tokens below `words`. The last token of the prompt stands at `place`; asked_end:
    it is `end` in all rows, which ends nothing.
    """

    rows: tuple[tuple[int, ...], ...]
    most: int
    end: int
    every: int
    place: int = 5
    words: int = 9
    asked_end: bool = False


def _generated(generate: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """The tokens, calls and waits with true values; and waits and copies from the host of a run without values."""
    of = Texts(**fields)
    result, calls, syncs, copies, faults = _run_texts(generate, of, of.every, values=True)
    never = 10 * of.most  # … where nobody has to be asked
    _, unasked, waits, more, _ = _run_texts(generate, of, never, values=False)
    same = {"tokens": result, "calls": calls, "syncs": syncs, "faults": faults}
    return same | {"waits": waits, "copies": max(copies, more), "unasked": len(unasked)}


def _run_texts(generate: Callable[..., Any], of: Texts, every: int, values: bool) -> tuple[Any, ...]:
    gpu, calls = simulate("H100", values=values, strict=False), list[Any]()
    rows = torch.tensor(of.rows)
    first = torch.full((len(of.rows), 1), of.end if of.asked_end else of.words - 1)
    fits = list[Tensor]()
    ended = ((rows == of.end).cumsum(1) > 0).roll(1, 1)
    ended[:, 0] = False
    fed = torch.cat([first, torch.where((rows == of.end).cumsum(1) > 0, of.end, rows)[:, :-1]], 1)
    with gpu:
        said, before, start = (t.to(gpu.device) for t in (rows, fed, first))
        kept, logits = start.clone(), torch.zeros(len(rows), of.words, device=gpu.device)

        def step(tokens: Tensor, places: Tensor) -> Tensor:
            begun.append(gpu.syncs)
            shapes = [list(tokens.shape), str(tokens.dtype), list(places.shape), str(places.dtype)]
            calls.append([*shapes, str(tokens.device), str(places.device)])
            at = (places - of.place).clamp(0, rows.shape[1] - 1).reshape(-1)[:1]
            right = tokens.reshape(len(rows), -1)[:, -1:] == before.index_select(1, at)
            fits.append(right.all())
            says = torch.where(right, said.index_select(1, at), (of.end + 1) % of.words)
            return logits.zero_().scatter_(1, says, 1.0)  # a graph's own tensor: the next call writes over it

        gpu.synchronize()
        kernels, begun = len(gpu.kernels), list[int]()
        waits = -gpu.syncs
        result = plain(generate(step, start, of.place, of.most, of.end, every))
        waits += gpu.syncs
        syncs = gpu.syncs - begun[0] if begun else waits  # those in the loop
        copies = sum(kernel.kind == "copy h2d" for kernel in gpu.kernels[kernels:])
        gpu.synchronize()
        if not values:
            return None, calls, waits, copies, []  # those before the first step too
        faults = [] if torch.equal(kept, start) else ["the caller's tokens were written over"]
        if odd := next((i for i, fit in enumerate(fits, 1) if not bool(fit)), 0):
            faults.append(
                f"call {odd} of step() was not given the tokens that came before it; of a row that has ended, that is `end`"
            )
        here = [list(result.shape), str(result.dtype), result.tolist()]
    return here, calls, syncs, copies, faults + list(gpu.faults)


def _needed(of: Texts) -> int:
    """Steps until all rows have given `end`, or `most`."""
    last = [row.index(of.end) + 1 if of.end in row else of.most for row in of.rows]
    return min(of.most, max(last))


def _asked_at(of: Texts) -> int:
    """Steps until it may be known that all have ended."""
    return min(of.most, -(-_needed(of) // of.every) * of.every)


def _wrong_calls(report: check.Report) -> str | None:
    of, calls = report.case, report.value["calls"]
    wanted = [[len(of.rows), 1], "torch.int64", [1], "torch.int64"]
    for i, (*shapes, tokens_on, places_on) in enumerate(calls):
        if shapes != wanted or tokens_on != places_on:
            return (
                f"call {i + 1} of step() got tokens {shapes[0]} {shapes[1]} and places {shapes[2]} {shapes[3]}; wanted "
                f"{wanted[0]} and [1], int64, on one device, in each call: a recorded graph has one shape"
            )
    return None


def _wrong_tokens(report: check.Report) -> str | None:
    of, got = report.case, report.value
    if got["faults"]:
        return str(got["faults"][0])
    shape, dtype, rows = got["tokens"]
    made = shape[1] if len(shape) == 2 else -1
    if len(shape) != 2 or shape[0] != len(of.rows) or not _needed(of) <= made <= of.most:
        return f"returned tokens of {shape}; wanted {len(of.rows)} rows of {_asked_at(of)}"
    if made != len(got["calls"]):
        return f"returned tokens of {shape} after {len(got['calls'])} steps; wanted a column for each step"
    if dtype != "torch.int64":
        return f"returned {dtype}, wanted torch.int64"
    for i, (mine, row) in enumerate(zip(rows, of.rows, strict=True)):
        stop = row.index(of.end) if of.end in row else of.most
        true = [token if at < stop else of.end for at, token in enumerate(row)][:made]
        true += [of.end] * (made - len(true))
        if mine != true:
            return f"row {i}: {mine}, wanted {true} (end is {of.end})"
    return None


def _wrong_waits(report: check.Report) -> str | None:
    of, got = report.case, report.value
    steps, asked = len(got["calls"]), _asked_at(of)
    if steps > asked:
        return (
            f"{steps} steps; all rows had ended after {_needed(of)}, and with every={of.every} that can be known "
            f"after {asked}"
        )
    if steps < asked:
        return f"{steps} steps, wanted {asked}: it is asked after each {of.every} steps, and not in between"
    if got["syncs"] > asked // of.every:
        return f"{steps} steps with {got['syncs']} waits; wanted at most {asked // of.every}: one after each {of.every} steps"
    if got["unasked"] != of.most:
        return f"where no token ends a row, and nobody asks, it calls step() {got['unasked']} times; wanted {of.most}"
    if got["waits"] > 2 or got["copies"] > 2:
        return (
            f"{of.most} steps in which nobody has to be asked: {got['waits']} waits and {got['copies']} copies from the "
            "host; wanted at most 2 of each, before the first step"
        )
    return None


def check_generate(*cases: Texts) -> None:
    judge = each(_wrong_tokens, _wrong_calls, _wrong_waits, told=True)
    look = "3 · A loop without a wait"
    check.function("generate", cases, drive=_generated, verify=judge, look=look, counters=False)


# --- 20.3 Scheduler -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requests:
    """Each (arrives before which step, prompt, most, how many tokens it makes until it ends)."""

    requests: tuple[tuple[int, int, int, int], ...]
    slots: int
    places: int


def random_requests(seed: int, n: int, slots: int, places: int, apart: int = 1) -> Requests:
    draw, at, requests = random.Random(seed), 0, []
    for _ in range(n):
        at += draw.randint(0, apart)
        most = draw.randint(1, places // 3)
        requests.append((at, draw.randint(1, places // 3), most, draw.randint(1, most)))
    return Requests(tuple(requests), slots, places)


def _scheduled(Scheduler: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Who took part in each step."""
    of = Requests(**fields)
    scheduler = Scheduler(of.slots, of.places)
    left = {f"r{i}": request[3] for i, request in enumerate(of.requests)}
    steps: list[list[str]] = []
    returned: list[list[str]] = []
    most = sum(left.values()) + max(request[0] for request in of.requests) + 5
    while left and len(steps) < most:
        for i, (at, prompt, longest, _) in enumerate(of.requests):
            if at == len(steps):
                scheduler.arrive(f"r{i}", prompt, longest)
        now = scheduler.next()
        if not isinstance(now, list):
            return {"steps": steps, "odd": f"next() returned a {type(now).__name__}, wanted a list"}
        returned.append(now)
        steps.append(list(now))
        for name in dict.fromkeys(steps[-1]):
            if name not in left:
                return {"steps": steps, "odd": f"{name} took part after its end, or never came"}
            left[name] -= 1
            if not left[name]:
                del left[name]
                scheduler.ended(name)
    for step, (names, were) in enumerate(zip(returned, steps, strict=True)):
        if names != were:
            odd = f"next() returned {were} for step {step}, and that list is {names} now: return a new list each time"
            return {"steps": steps, "odd": odd}
    return {"steps": steps, "odd": ""}


def _wrong_schedule(report: check.Report) -> str | None:
    """First what must never be, then who waits without need."""
    of, got = report.case, report.value
    if got["odd"]:
        return str(got["odd"])
    requests = {f"r{i}": request for i, request in enumerate(of.requests)}
    left = {name: request[3] for name, request in requests.items()}
    running: list[str] = []
    for step, now in enumerate(got["steps"]):
        at = f"step {step}, {of.slots} slots, {of.places} places: {now}"
        if len(set(now)) != len(now):
            return f"{at}: each takes part once"
        if len(now) > of.slots:
            return f"{at}: {len(now)} sequences"
        if early := [name for name in now if requests[name][0] > step]:
            return f"{at}: {early[0]} has not come yet"
        if held := [name for name in running if name not in now]:
            return f"{at}: {held[0]} had begun and is left out"
        places = sum(requests[name][1] + requests[name][2] for name in now)
        if places > of.places:
            return f"{at}: they may need {places} places"
        waiting = [name for name in left if requests[name][0] <= step and name not in now]
        fresh = [name for name in now if name not in running]
        if waiting and fresh and int(waiting[0][1:]) < int(fresh[-1][1:]):
            return f"{at}: {fresh[-1]} was let in before {waiting[0]}, who came earlier"
        if waiting and len(now) < of.slots:
            need = requests[waiting[0]][1] + requests[waiting[0]][2]
            if places + need <= of.places:
                return f"{at}: {waiting[0]} waits; a slot is free, and {of.places - places} places, of which it needs {need}"
        if sorted(now, key=lambda name: int(name[1:])) != now:
            return f"{at}: wanted in the order in which they came"
        for name in now:
            left[name] -= 1
        running = [name for name in now if left[name]]
        left = {name: n for name, n in left.items() if n}
    if left:
        return f"after {len(got['steps'])} steps {len(left)} requests have not ended, {next(iter(left))} among them"
    return None


def _said(reports: list[check.Report]) -> str:
    steps = sum(len(report.value["steps"]) for report in reports)
    return f"{len(reports)} queues, {steps} steps, nobody waits without need"


def check_Scheduler(*cases: Requests) -> None:
    known: dict[str, Any] = {"drive": _scheduled, "verify": each(_wrong_schedule), "passed": _said}
    check.function("Scheduler", cases, look="Further: A scheduler", counters=False, **known)


def _refused(Scheduler: Callable[..., Any], slots: int, places: int, prompt: int, most: int) -> str:
    scheduler = Scheduler(slots, places)
    try:
        scheduler.arrive("r0", prompt, most)
    except ValueError:
        after = Scheduler(slots, places).next()
        scheduler.arrive("r1", 1, 0)
        return f"ValueError, then {list(after)} and {list(scheduler.next())}"
    theirs = list(Scheduler(slots, places).next())
    return f"let in: {list(scheduler.next())}, by another scheduler: {theirs}"


def check_refused(*cases: check.Case) -> None:
    """cases: slots, places, prompt, most, of a request that can never fit, or fits exactly."""
    expect = lambda slots, places, prompt, most: (  # noqa: E731
        "ValueError, then [] and ['r1']"
        if prompt + most > places
        else "let in: ['r0'], by another scheduler: []"
    )
    check.function("Scheduler", cases, expect, drive=_refused, look="Further: A scheduler")


# --- 20.4 speculate -----------------------------------------------------------------------------------------------

Weights = list[Fraction]
#: characters of a share as text: drafts of floats make 130, and what is longer takes the judge long to add
LONGEST = 1_000


@dataclass(frozen=True)
class Pair:
    """A large and a small model over `words` tokens: shares that follow from the tokens before.

    alike: both say the same. zeros: some shares are 0. sure: the small model always names one token.
    """

    words: int
    k: int
    seed: int = 0
    prefix: tuple[int, ...] = (0,)
    alike: bool = False
    zeros: bool = False
    sure: bool = False

    def shares(self, which: str, tokens: Sequence[int]) -> Weights:
        draw = random.Random(f"{'large' if self.alike else which} {self.seed} {tuple(tokens)}")
        weights = [draw.randint(1, 6) for _ in range(self.words)]
        if self.zeros:
            weights[draw.randrange(self.words)] = 0
        if self.sure and which == "small":
            weights = [int(i == draw.randrange(self.words) or i == 0) for i in range(self.words)]
        return [Fraction(w, sum(weights)) for w in weights]


class _Draws:
    """One way through all draws: `path` says what each gives; what comes after it takes the first that can be."""

    def __init__(self, path: Sequence[int]) -> None:
        self.path, self.taken = list(path), list[tuple[int, list[tuple[int, Fraction]]]]()
        self.share = Fraction(1)

    def _draw(self, ways: list[tuple[int, Fraction]]) -> int:
        ways = [(value, share) for value, share in ways if share > 0]
        at = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append((at, ways))
        value, share = ways[at]
        self.share *= share
        return value

    def coin(self, p: Any) -> bool:
        if p != p:
            raise ValueError("coin(nan)")
        p = min(Fraction(1), max(Fraction(0), Fraction(p)))
        return bool(self._draw([(1, p), (0, 1 - p)]))

    def pick(self, weights: Sequence[Any]) -> int:
        given = [Fraction(w) for w in weights]
        if min(given, default=Fraction(0)) < 0 or not sum(given):
            raise ValueError(
                f"pick() takes weights that are not negative and not all 0, not {[float(w) for w in given]}"
            )
        return self._draw([(i, w / sum(given)) for i, w in enumerate(given)])

    def after(self) -> list[int] | None:
        """The next path; None: there is none left."""
        path = [at for at, _ in self.taken]
        while path:
            if path[-1] + 1 < len(self.taken[len(path) - 1][1]):
                return [*path[:-1], path[-1] + 1]
            path.pop()
        return None


def _both(of: "Pair") -> tuple[Callable[..., Any], Callable[..., Any], list[int]]:
    """The small model, the large one, and how often each was called."""
    calls = [0, 0]

    def draft(tokens: Sequence[int]) -> Weights:
        calls[0] += 1
        return of.shares("small", [*map(int, tokens)])

    def target(prefix: Sequence[int], drafted: Sequence[int]) -> list[Weights]:
        calls[1] += 1
        tokens = [*map(int, drafted)]
        return [of.shares("large", [*map(int, prefix), *tokens[:i]]) for i in range(len(tokens) + 1)]

    return draft, target, calls


def _all_ways(speculate: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Every result with its share, as text, and the most calls of both models."""
    of = Pair(**fields)
    shares: dict[tuple[int, ...], Fraction] = {}
    most, path, ways = [0, 0], list[int](), 0
    while path is not None and ways < 30_000:
        draws = _Draws(path)
        draft, target, calls = _both(of)
        before = list(of.prefix)
        made = speculate(target, draft, before, of.k, draws.coin, draws.pick)
        if before != [*of.prefix]:
            raise ValueError(f"the caller's prefix was changed: {before}, and it was {[*of.prefix]}")
        result = tuple(int(token) for token in made)
        shares[result] = shares.get(result, Fraction(0)) + draws.share
        most = [max(pair) for pair in zip(most, calls, strict=True)]
        ways += 1
        path = draws.after()  # type: ignore[assignment]
    told = [[list(tokens), str(share)] for tokens, share in shares.items()]
    return {"shares": told, "calls": most, "all": path is None}


def _accepted(of: Pair, tokens: Sequence[int], left: int) -> Fraction:
    """Drafted tokens that are kept on average, at most: of each step the share that both models agree on."""
    if not left:
        return Fraction(0)
    both = zip(of.shares("large", tokens), of.shares("small", tokens), strict=True)
    agreed = [min(p, q) for p, q in both]
    rest = [(a, _accepted(of, [*tokens, i], left - 1)) for i, a in enumerate(agreed) if a]
    return sum((a * (1 + more) for a, more in rest), Fraction(0))


def _wrong_shares(report: check.Report) -> str | None:
    of, got = report.case, report.value
    if not got["all"]:
        return f"k={of.k}: more than 30,000 ways to draw; wanted a draw for each drafted token, a coin for each, and one more"
    for tokens, share in got["shares"]:  # before anything is added, which takes long for many long fractions
        if not 1 <= len(tokens) <= of.k + 1:
            return f"returned {tokens}; wanted 1 to {of.k + 1} tokens"
        if odd := [token for token in tokens if not 0 <= token < of.words]:
            return f"returned {brief(tokens)}; {brief(odd[0])} is none of the tokens, 0 to {of.words - 1}"
        if len(share) > LONGEST:
            return (
                f"{tokens} comes in a share of all cases that is {len(share):,} characters long: toss coins and pick by shares of the two models, "
                "and by what is worked out of them"
            )
    shares = {tuple(tokens): Fraction(share) for tokens, share in got["shares"]}
    mass: dict[tuple[int, ...], Fraction] = {}
    for tokens, share in shares.items():
        for n in range(len(tokens) + 1):
            mass[tokens[:n]] = mass.get(tokens[:n], Fraction(0)) + share
    for before in sorted({tokens[:-1] for tokens in mass if tokens}, key=len):
        total = sum(mass.get((*before, i), Fraction(0)) for i in range(of.words))
        true = of.shares("large", [*of.prefix, *before])
        for i, wanted in enumerate(true):
            mine = mass.get((*before, i), Fraction(0)) / total
            if abs(mine - wanted) > 1e-9:
                return (
                    f"token {len(before) + 1} after {[*of.prefix, *before]}: it is {i} in {float(mine):.4f} of all cases; "
                    f"the large model says {float(wanted):.4f}"
                    + (
                        ": near, and not near enough; float32 is too coarse"
                        if abs(mine - wanted) < 1e-4
                        else ""
                    )
                )
    return None


def _wrong_use(report: check.Report) -> str | None:
    of, got = report.case, report.value
    small, large = got["calls"]
    if large > 1 or small > of.k:
        return (
            f"the large model was called {large} times and the small one {small}; wanted 1 and at most {of.k}"
        )
    mean = sum(len(tokens) * Fraction(share) for tokens, share in got["shares"])
    best = 1 + _accepted(of, of.prefix, of.k)
    if mean < best - Fraction(1, 10**9):
        return f"{float(mean):.4f} tokens on average; {float(best):.4f} can be had: keep a drafted token as often as can be"
    return None


def check_speculate(*cases: Pair) -> None:
    judge, look = each(_wrong_shares, _wrong_use, told=True), "Guess, then check"
    said = lambda reports: f"{len(reports)} pairs of models, every way to draw: the large model's shares"  # noqa: E731
    known: dict[str, Any] = {"drive": _all_ways, "verify": judge, "passed": said}
    check.function("speculate", cases, look=look, counters=False, **known)
