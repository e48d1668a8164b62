"""Tests of lesson 18: a verdict from data, the design of a trial, the border of a claim that holds from some size on."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers import check
from helpers.check.judges import each
from helpers.lessons.sources_on_trial.experiments import Series, student

# --- 18.2 judge ---------------------------------------------------------------------------------------------------

#: pairs that a trial may run for each condition, change and control together
PAIRS = 80
#: where an interval leaves a question open: so many pairs are enough to say so, or so narrow an interval (a logarithm)
LEAST, NARROW = PAIRS // 5, 0.01


@dataclass(frozen=True)
class Claim:
    """A claim that promises before ÷ after ≥ promised, and what is true of it.

    true: condition → the change's ratio and the control's. scatter: of a pair's ratio; 0: a counter, which has none.
    """

    name: str
    promised: float
    true: Mapping[str, tuple[float, float]]
    scatter: float = 0.01
    seed: int = 7

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def most(self) -> int:
        return PAIRS * len(self.true)

    @property
    def half(self) -> float:
        """A ratio's interval reaches so many times up and down when the pairs are shared out evenly."""
        return math.exp(student(PAIRS // 2) * self.scatter / math.sqrt(PAIRS / 2))

    @property
    def verdict(self) -> str:
        if any(max(nothing, 1 / nothing) > self.half for _, nothing in self.true.values()):
            return "confounded"
        return _word(_state(change, math.log(self.half), self.promised) for change, _ in self.true.values())


def _state(ratio: float, reach: float, promised: float) -> str:
    """Of a condition whose interval reaches from ratio / e^reach to ratio · e^reach."""
    beyond = math.log(ratio / promised)  # whether it is met exactly is no matter of rounding
    return "holds" if beyond >= reach - 1e-9 else "fails" if beyond < -reach - 1e-9 else "open"


def _word(states: Iterable[str]) -> str:
    found = set(states)
    if len(found) == 1:
        return {"holds": "confirmed", "fails": "refuted", "open": "cannot tell"}[found.pop()]
    return "partly" if {"holds", "fails"} <= found else "cannot tell"


class _Bench:
    """Measures pairs of a claim's programs, and notes which."""

    def __init__(self, claim: Claim) -> None:
        self.claim, self.runs = claim, list[tuple[str, str, int]]()

    def run(self, version: str, condition: str, n: int) -> tuple[list[float], list[float]]:
        if version not in ("change", "nothing") or condition not in self.claim.true:
            asked = f"run({version!r}, {condition!r}, {n!r})"
            raise ValueError(
                f'{asked}: there are "change" and "nothing", and {", ".join(map(repr, self.claim.true))}'
            )
        if n < 6:
            raise ValueError(f"{n} pairs allow no interval: 6 do")
        self.runs.append((version, condition, n))
        if (spent := sum(pairs for *_, pairs in self.runs)) > self.claim.most:
            raise ValueError(f"{spent} pairs, where {self.claim.most} are allowed")
        change, nothing = self.claim.true[condition]
        series = Series(change if version == "change" else nothing, n, self.claim.scatter)
        return series.draw(self.claim.seed + len(self.runs))


def _judge(judge: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """What the answer says of a claim, and what it ran."""
    bench = _Bench(claim := Claim(**fields))
    word = judge(claim.promised, list(claim.true), bench.run, claim.most)
    return {"word": word, "runs": bench.runs}


def _judged(report: check.Report) -> str | None:
    claim, word = report.case, report.value["word"]
    runs = [(str(version), str(condition), int(n)) for version, condition, n in report.value["runs"]]
    if sum(n for *_, n in runs) > claim.most:
        return f"{claim.name}: {sum(n for *_, n in runs)} pairs were run, wanted at most {claim.most}"
    if word == claim.verdict:
        return _does_not_follow(claim, runs)
    text = f"{claim.name}: you say {word!r}, wanted {claim.verdict!r}"
    for version in ("change", "nothing"):
        for condition in claim.true:
            n = sum(pairs for *ran, pairs in runs if ran == [version, condition])
            if not n:
                return f"{text}\n  {version!r} never ran under {condition!r}"
            if n < PAIRS / 2 and claim.scatter:
                reach = math.expm1(student(n) * claim.scatter / math.sqrt(n))
                return f"{text}\n  {n} pairs of {version!r} under {condition!r}: the interval reaches {reach:.1%} up and down"
    return text


def _does_not_follow(claim: Claim, runs: list[tuple[str, str, int]]) -> str | None:
    """What speaks against the right verdict's coming from these runs: it may be said as soon as no further pair could change it."""

    def ran(version: str, condition: str) -> tuple[int, float]:
        """Pairs, and by how much the interval of all of them reaches up and down, as a logarithm."""
        parts = [n for *which, n in runs if which == [version, condition]]
        if not (n := sum(parts)):
            return 0, math.inf
        # each run has the claim's scatter about its own mean
        return n, student(n) * claim.scatter * math.sqrt((n - len(parts)) / (n - 1) / n)

    def settles_nothing(version: str, condition: str) -> str:
        n, reach = ran(version, condition)
        if n >= LEAST or reach <= NARROW:
            return ""
        wide = f", whose interval reaches {math.expm1(reach):.1%} up and down" if n else ""
        return (
            f"{claim.name}: {claim.verdict!r} is right, and does not follow from what was run: {n} pairs of {version!r} under "
            f"{condition!r}{wide}. An interval is that of the pairs that were measured: run more of them"
        )

    controls = {name: nothing for name, (_, nothing) in claim.true.items()}
    left_out = [name for name in controls if abs(math.log(controls[name])) > ran("nothing", name)[1]]
    if claim.verdict == "confounded":
        few = (settles_nothing("nothing", name) for name in controls)
        return None if left_out else next(filter(None, few), None)
    if few_of_control := next(filter(None, (settles_nothing("nothing", name) for name in controls)), None):
        return few_of_control
    states, open_yet = list[Sequence[str]](), list[str]()
    for name, (change, _) in claim.true.items():
        state = _state(change, ran("change", name)[1], claim.promised)
        few_pairs = settles_nothing("change", name) if state == "open" else ""
        open_yet += [few_pairs] * bool(few_pairs)
        states.append(("holds", "fails", "open") if few_pairs else (state,))
    if all(_word(way) == claim.verdict for way in itertools.product(*states)):
        return None
    return next(iter(open_yet), None)


def check_judge(*claims: Claim) -> None:
    look = '"Three fresh claims", above: which question comes first?'
    check.function("judge", claims, drive=_judge, verify=each(_judged), look=look)


# --- 18.1 trial ---------------------------------------------------------------------------------------------------


def _operators(n: int) -> None:
    """So many operators that a counter sees, and nothing else."""
    x = torch.ones(2)
    for _ in range(n - 1):
        x = x + 1


#: world → (operators before, with the control, after), by the number of rows
_WORLDS: dict[str, tuple[Callable[[int], int], Callable[[int], int], Callable[[int], int]]] = {
    "it halves them everywhere": (lambda n: 4 * n, lambda n: 4 * n, lambda n: n + 2),
    "exactly half is enough": (lambda n: 4 * n, lambda n: 4 * n, lambda n: 2 * n),
    "it saves a quarter": (lambda n: 4 * n, lambda n: 4 * n, lambda n: 3 * n),
    "it changes nothing": (lambda n: 3 * n, lambda n: 3 * n, lambda n: 3 * n),
    "it misses half by one": (lambda n: 2 * n - 1, lambda n: 2 * n - 1, lambda n: n),
    "it makes more of them": (lambda n: 2 * n, lambda n: 2 * n, lambda n: 5 * n),
    "it has a cost of its own, so it helps with many rows": (lambda n: 2 * n, lambda n: 2 * n, lambda n: n // 4 + 20),
    "it helps with few rows, then falls back": (lambda n: 4 * n, lambda n: 4 * n, lambda n: n if n <= 16 else 4 * n),
    "it helps where rows are a multiple of 8": (lambda n: 4 * n, lambda n: 4 * n, lambda n: 4 * n if n % 8 else n),
    "the rewriting halves them, not the change": (lambda n: 4 * n, lambda n: 2 * n, lambda n: 2 * n),
    "the rewriting doubles them, and the change halves that": (lambda n: 2 * n, lambda n: 4 * n, lambda n: 2 * n),
    "rewriting and change halve them, one after the other": (lambda n: 8 * n, lambda n: 4 * n, lambda n: 2 * n),
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """A program, its change, and a change that does nothing, as :data:`_WORLDS` has them.

    setup: how many times as many operators a first call at a size takes. pays: whose first call, or "first": of whichever
    function is called first. sleeps: which function waits for 2 ms, without an operator.
    """

    kind: str
    sizes: tuple[int, ...] = (4, 16, 64)
    setup: int = 1
    pays: str = "first"
    sleeps: str = ""

    @property
    def holds(self) -> list[int]:
        _, control, after = _WORLDS[self.kind]
        return [n for n in self.sizes if after(n) <= control(n) / 2]


class _Program:
    """The three functions of a world, and a note of each call."""

    def __init__(self, world: World) -> None:
        self.world, self.calls, self.warm = world, list[tuple[str, int]](), set[int]()

    def function(self, name: str) -> Callable[[int], None]:
        takes = _WORLDS[self.world.kind][("before", "nothing", "after").index(name)]

        def call(n: int) -> None:
            if n not in self.world.sizes:
                raise ValueError(f"{n} rows, where the claim is about {_rows(self.world.sizes)}")
            self.calls.append((name, n))
            first = self.world.pays in ("first", name) and n not in self.warm
            if name == self.world.sleeps:
                time.sleep(2e-3)
            _operators(takes(n) * (self.world.setup if first else 1))
            if first:
                self.warm.add(n)

        call.__name__ = name
        return call


def _try(trial: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """What the answer says of a world, and which of its functions it called with which sizes."""
    program = _Program(World(**fields))
    verdict = trial(*(program.function(n) for n in ("before", "after", "nothing")), list(program.world.sizes))
    return {"verdict": verdict, "calls": program.calls}


def _tried(report: check.Report) -> str | None:
    world, got = report.case, report.value["verdict"]
    holds = world.holds
    word = "confirmed" if holds == list(world.sizes) else "partly" if holds else "refuted"
    if not isinstance(got, tuple | list) or len(got) != 2:
        return f"returned {got!r}, wanted (verdict, sizes at which it holds)"
    if got[0] == word and sorted(got[1]) == sorted(holds):
        return None
    text = f"where {world.kind}, with {_rows(world.sizes)} rows: you say {tuple(got)!r}, wanted {(word, holds)!r}"
    return f"{text}\n  {_mistake(world, report.value['calls'], got[1])}"


def _rows(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


def _mistake(world: World, calls: list[Any], held: Sequence[int]) -> str:
    """What of the design explains that it says to hold at these sizes; the first that does, else the numbers of one size."""
    ran = [(str(name), int(n)) for name, n in calls]
    for name, why in (
        ("after", "a claim is about all its sizes"),
        ("nothing", "how much is the rewriting's?"),
    ):
        if missing := [n for n in world.sizes if (name, n) not in ran]:
            return f"`{name}` never ran with {_rows(tuple(missing))} rows: {why}"
    first = {n: next(name for name, rows in ran if rows == n) for n in world.sizes}
    payers = {(first[n] if world.pays == "first" else world.pays, n) for n in world.sizes}
    if world.setup > 1 and any(ran.count(payer) == 1 and payer[0] != "before" for payer in payers):
        return "the first call of a function at a size sets something up: call once before you count"
    if world.sleeps:
        return (
            f"`{world.sleeps}` waits without an operator: a clock sees that, a counter of operators does not"
        )
    before, control, after = _WORLDS[world.kind]
    against = [before, lambda n: min(before(n), control(n))]
    if any(sorted(held) == sorted(n for n in world.sizes if 2 * after(n) <= was(n)) for was in against):
        return "the control differs from `before`: what the rewriting does is no merit of the change, nor its fault"
    n = next(n for n in world.sizes if (n in held) != (n in world.holds))
    more = "half or less" if n in world.holds else "more than half"
    return f"with {n} rows `nothing` takes {control(n)} operators and `after` {after(n)}: {more}"


def check_trial(*worlds: World) -> None:
    look = '"A trial in five parts", above'
    check.function("trial", worlds, drive=_try, verify=each(_tried), look=look)


# --- 18.3 border --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Border:
    """A change that halves the operators from some number of rows on; 0: at none. setup, pays: as in :class:`World`."""

    at: int
    low: int = 1
    high: int = 64
    setup: int = 1
    pays: str = "after"

    def takes(self, name: str, n: int) -> int:
        """Operators: of an even number of rows exactly half are left, or all; of an odd one less than half, or one too many."""
        if name == "before":
            return 8 - n % 2
        return 4 - n % 2 if 0 < self.at <= n else 8 - 4 * (n % 2)

    @property
    def wanted(self) -> int | None:
        return max(self.at, self.low) if 0 < self.at <= self.high else None

    @property
    def allowed(self) -> int:
        """Sizes: both ends, and a halving of what lies between."""
        return 2 + math.ceil(math.log2(self.high - self.low + 1))


def _find(border: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    asked, calls, warm = Border(**fields), list[tuple[str, int]](), set[int]()

    def call(name: str, n: int) -> None:
        calls.append((name, n))
        if not asked.low <= n <= asked.high:
            raise ValueError(f"{n} rows, where {asked.low} to {asked.high} are asked about")
        first = name == asked.pays and n not in warm
        _operators(asked.takes(name, n) * (asked.setup if first else 1))
        if first:
            warm.add(n)

    functions = [lambda n, name=name: call(name, n) for name in ("before", "after")]
    return {"border": border(*functions, asked.low, asked.high), "calls": calls}


def _found(report: check.Report) -> str | None:
    asked, got = report.case, report.value["border"]
    sizes = {n for _, n in report.value["calls"]}
    where = f"between {asked.low} and {asked.high} rows"
    if got != asked.wanted:
        n = max(sizes) if asked.wanted is None or got is None else min(got, asked.wanted)
        took = (f"`{name}` {asked.takes(name, n)}" for name in ("before", "after"))
        why = f". Of {n} rows, operators: {', '.join(took)}" if asked.low <= n <= asked.high else ""
        why += f"; the first call of `{asked.pays}` at a size takes more, which does not count" * (
            asked.setup > 1
        )
        return f"{where}: you say {got!r}, wanted {asked.wanted!r}{why}"
    if len(sizes) > asked.allowed:
        return f"{where}: right, but {len(sizes)} sizes were tried; wanted at most {asked.allowed}"
    return None


def check_border(*cases: Border) -> None:
    look = '"From which size on?", above: each size that you try halves what is left'
    check.function("border", cases, drive=_find, verify=each(_found), look=look)
