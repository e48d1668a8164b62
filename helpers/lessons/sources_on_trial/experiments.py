"""Lesson 18: the table of claims and its views, trials that are designed badly, fresh claims to judge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from helpers import running_example
from helpers.lesson import VERDICTS_MIME, sources
from helpers.lesson.claim import WORDS
from helpers.lessons.sources_on_trial import promises_picture, shares_picture, verdicts
from helpers.lessons.sources_on_trial.verdicts import Verdict
from helpers.plots.picture import Picture
from helpers.text.tables import Table, table

if TYPE_CHECKING:
    from helpers.running_example import Script

ARITHMETIC, CPU = "arithmetic", "live (CPU)"
#: a share is below one of these, and its words
PARTS = {0.05: "under 5 %", 0.15: "5 to 15 %", 0.3: "15 to 30 %", 0.5: "30 to 50 %", math.inf: "over 50 %"}

# --- the table of claims ------------------------------------------------------------------------------------------


class Claims:
    """All claims with their verdicts. Shows the sources, and how many claims each makes; carries the rows as data."""

    def __init__(self, rows: Sequence[Verdict]) -> None:
        self.rows = list(rows)

    def by(self, group: Callable[[Verdict], str]) -> dict[str, dict[str, int]]:
        """name of the group → word of the verdict → how many claims."""
        names = dict.fromkeys(map(group, self.rows))
        return {n: {w: sum(r.word == w and group(r) == n for r in self.rows) for w in WORDS} for n in names}

    @cached_property
    def total(self) -> dict[str, int]:
        return {word: sum(row.word == word for row in self.rows) for word in WORDS}

    @property
    def tested(self) -> int:
        return len(self.rows) - self.total["untested"]

    def part(self, word: str) -> str:
        """Which part of the tested claims has this word, in the words of PARTS."""
        share = self.total[word] / self.tested
        return next(words for below, words in PARTS.items() if share < below)

    def most(self, word: str) -> str:
        """The source that has most claims with this word."""
        counted = {source: of[word] for source, of in self.by(lambda row: row.source).items()}
        return max(counted, key=counted.__getitem__)

    @property
    def cited(self) -> int:
        """How many of the tested claims were tried by what others published, and by nothing else."""
        return sum(row.evidence == "published" for row in self.rows if row.word != "untested")

    @property
    def conditions(self) -> tuple[int, int]:
        """How many of the verdicts "partly" begin with "holds when", and how many with another "holds": "holds for …"."""
        holds = [row.verdict for row in self.rows if row.verdict.startswith("partly: holds")]
        when = sum(verdict.startswith("partly: holds when") for verdict in holds)
        return when, len(holds) - when

    @property
    def remarked(self) -> int:
        """How many of the verdicts "confirmed" say more than this word."""
        return sum(row.verdict != "confirmed" for row in self.rows if row.word == "confirmed")

    def of_ten(self, word: str) -> int:
        """Of ten tested claims, how many have this word; all words together make ten."""
        exact = {w: 10 * n / self.tested for w, n in self.total.items() if w != "untested"}
        whole = {w: int(share) for w, share in exact.items()}
        # what rounding down leaves goes to those that lost most by it
        for w in sorted(exact, key=lambda w: whole[w] - exact[w])[: 10 - sum(whole.values())]:
            whole[w] += 1
        return whole[word]

    def find(
        self, source: str = "", verdict: str = "", lesson: str = "", text: str = "", most: int = 12
    ) -> Table:
        """The rows of a source (its key), with a verdict (its word), of a lesson ("05"), or with a text in a row's words.

        Not more than `most`; the caption says how many there are. KeyError for a source that is not there.
        """
        if source and source not in sources.every():
            raise KeyError(f"no source {source!r}; there are {', '.join(sources.every())}")
        matches = [
            row
            for row in self.rows
            if source in ("", row.source) and verdict in ("", row.word) and row.lesson.startswith(lesson)
            and text.casefold() in f"{row.claim} {row.measured} {row.verdict}".casefold()
        ]  # fmt: skip
        if not matches:
            return table([("—",) * 5], _COLUMNS, evidence=ARITHMETIC, caption="no claim is like that")
        shown = [
            (r.claim, f"{r.source}, {r.section}", r.measured, r.verdict, where(r)) for r in matches[:most]
        ]
        return table(
            shown,
            _COLUMNS,
            evidence=_evidence(matches[:most]),
            caption=f"{len(shown)} of {len(matches)}",
        )

    def verdict_of(self, id: str) -> Verdict:
        """KeyError where no claim has the id."""
        verdict = next((row for row in self.rows if row.id == id), None)
        if verdict is None:
            raise KeyError(f"no claim {id!r}")
        return verdict

    def summary(self) -> Table:
        """The sources: who wrote them, where, and how many claims each makes."""
        counted = Counter(row.source for row in self.rows)
        rows = [[key, sources.linked(key), sources.every()[key]["author"], n] for key, n in counted.items()]
        return table(rows, ["key", "source", "author", "claims"], evidence=ARITHMETIC)

    def picture(self) -> Picture:
        """A bar a source."""
        by_source = self.by(lambda row: row.source)
        return shares_picture.shares(
            by_source, evidence=ARITHMETIC, title="What became of the claims", xlabel="claims"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        shown = self.summary()
        data = {"lesson": verdicts.HERE, "claims": verdicts.plain(self.rows)}
        return {"text/plain": repr(shown), "text/html": shown._repr_html_(), VERDICTS_MIME: data}


_COLUMNS = ["claim", "source, section", "found", "verdict", "where"]


def _evidence(rows: Iterable[Verdict]) -> str:
    """The labels of the rows' evidence, each once."""
    labels = [label for row in rows if row.evidence for label in row.evidence.split(" · ")]
    return " · ".join(dict.fromkeys(labels)) or ARITHMETIC


def where(row: Verdict) -> str:
    """The lesson and the section whose experiment it was."""
    return f"{row.lesson[:2]}: {row.experiment}" if row.lesson else "—"


def all_claims() -> Claims:
    """Read what lessons keep, and run the trials that no lesson runs."""
    return Claims(verdicts.every())


def words_of(claims: Claims, names: Mapping[str, str]) -> tuple[dict[str, str], Table]:
    """question → the word of its claim's verdict; and what was measured. names: question → id of the claim."""
    rows = {question: claims.verdict_of(name) for question, name in names.items()}
    shown = [(r.claim, r.measured, r.verdict) for r in rows.values()]
    columns = ["claim", "found", "verdict"]
    return {q: r.word for q, r in rows.items()}, table(shown, columns, evidence=_evidence(rows.values()))


# --- a trial and its counts ---------------------------------------------------------------------------------------

#: size → operators before, with the control (None: there was none), after
Counts = Mapping[int, tuple[int, int | None, int]]


def halved(before: int, control: int | None, after: int) -> bool:
    """Whether the change leaves half or less of the control's operators, without a control of those before."""
    return after <= (before if control is None else control) / 2


def word(trial: Counts) -> str:
    """The verdict on "halves the operators", by counts that do not scatter."""
    holds = [halved(*counts) for counts in trial.values()]
    return "confirmed" if all(holds) else "partly" if any(holds) else "refuted"


def without_control(trial: Counts) -> Counts:
    return {n: (before, None, after) for n, (before, _, after) in trial.items()}


def border(trial: Counts) -> tuple[int, int]:
    """The largest size at which it fails, and the smallest at which it holds."""
    holds = {n for n, counts in trial.items() if halved(*counts)}
    return max(set(trial) - holds), min(holds)


def counts_table(trials: Mapping[str, Counts], what: str = "parameters") -> Table:
    """Trials by their design, size by size. what: of which a size is the number."""
    rows = [
        (
            design,
            size,
            before,
            "—" if control is None else control,
            after,
            "yes" if halved(before, control, after) else "no",
            word(trial),
        )
        for design, trial in trials.items()
        for size, (before, control, after) in trial.items()
    ]
    columns = ["design", what, "before", "control", "after", "halved", "verdict of the design"]
    return table(rows, columns, evidence=CPU)


# --- fresh claims, and their data ---------------------------------------------------------------------------------


def student(n: int) -> float:
    """How many standard errors a 95 % interval of n ≥ 6 pairs reaches: Student's t for n - 1 degrees of freedom, to 0.003.

    By the series in Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.5.
    """
    z, f = 1.959964, n - 1
    return (
        z
        + (z**3 + z) / 4 / f
        + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / f**2
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / f**3
    )


#: (before, after): paired numbers
Pairs = tuple[list[float], list[float]]
#: ratio, lower and upper end of its interval
Interval = Callable[[list[float], list[float]], tuple[float, float, float]]


@dataclass(frozen=True)
class Series:
    """n pairs of runs with a known ratio before ÷ after. scatter: of the pairs' ratios; 0: a counter, which has none.

    The interval is known too: noise is random in its order only, so ratio and scatter come out as they stand here.
    """

    ratio: float
    n: int = 20
    scatter: float = 0.0

    def draw(self, seed: int) -> Pairs:
        if not self.scatter:
            return [1200.0] * self.n, [1200.0 / self.ratio] * self.n
        rng = np.random.default_rng(seed)
        z = rng.standard_normal(self.n)
        noise = self.scatter * (z - z.mean()) / z.std(ddof=1)
        before = 4e-3 * np.exp(np.linspace(0, 0.2, self.n))  # the machine slows, for both runs of a pair
        return before.tolist(), (before / self.ratio / np.exp(noise)).tolist()


def draw(series: Mapping[str, Series], seed: int) -> dict[str, Pairs]:
    """condition → its paired numbers, each of its own seed."""
    return {name: runs.draw(seed + i) for i, (name, runs) in enumerate(series.items())}


@dataclass(frozen=True)
class Fresh:
    """A claim of a post that does not exist: what it promises (before ÷ after), and what somebody measured."""

    says: str
    promised: float
    runs: Mapping[str, Series]
    control: Mapping[str, Series]

    def numbers(self) -> tuple[dict[str, Pairs], dict[str, Pairs]]:
        """The paired numbers of the runs and of the control, by condition."""
        return draw(self.runs, 7), draw(self.control, 70)


_NOISE, _SHORT = 0.02, Series(1.21, n=8, scatter=0.08)
FRESH = {
    "A": Fresh(
        "1.3 times as fast", 1.3, {"batch 8": Series(1.62, scatter=_NOISE), "batch 256": Series(1.02, scatter=_NOISE)},
        {"batch 8": Series(1.0, scatter=_NOISE), "batch 256": Series(1.0, scatter=_NOISE)},
    ),
    "B": Fresh(
        "2 times as fast", 2.0, {"4 layers": Series(2.4, scatter=_NOISE), "48 layers": Series(3.0, scatter=_NOISE)},
        {"4 layers": Series(1.0, scatter=_NOISE), "48 layers": Series(1.5, scatter=_NOISE)},
    ),
    "C": Fresh("1.2 times as fast", 1.2, {"GPT": _SHORT}, {"GPT": Series(1.0, n=8, scatter=0.08)}),
}  # fmt: skip


def fresh_picture(interval: Interval) -> Picture:
    """The three claims: of each condition the ratio and its interval, a mark at the promise, and below it the control's."""
    rows, promised = dict[str, tuple[float, float, float]](), dict[str, float]()
    for name, claim in FRESH.items():
        runs, control = claim.numbers()
        for condition, pairs in runs.items():
            row = f"{name}, {condition}, {len(pairs[0])} pairs"
            promised[row] = claim.promised
            rows[row] = interval(*pairs)
            rows[f"control of {name}, {condition}"] = interval(*control[condition])
    title = "Three claims, each above its control"
    return promises_picture.promises(rows, promised, evidence="simulated (noisy machine)", title=title)


# --- the running example ------------------------------------------------------------------------------------------


def off(card: str = "H100") -> tuple[float, float]:
    """How far the worst of the card's simulated steps is from its measurement, and the seconds of the shortest that was measured."""
    from helpers.simulator.devices import efficiencies  # here, since grading imports this module

    steps = [step for step in efficiencies()["steps"] if step["card"] == card]
    return max(abs(step["error"]) for step in steps), min(step["measured_ms"] for step in steps) / 1e3


class Against(NamedTuple):
    """A script beside the plain one, simulated: how many times as fast, and which part of its memory."""

    times: float
    memory: float


def against(plain: Script, script: Script) -> Against:
    before, after = map(running_example.score, (plain, script))
    return Against(before.step_s / after.step_s, after.peak_bytes / before.peak_bytes)
