"""What a source's list consists of, and every source with its list: a module of sources/ each.

docs/adding-a-source.md says how to write one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from helpers.lesson import sources
from helpers.lesson.claim import Claim

#: what a trial of a source's own module returns: what was measured, and the verdict, its word first
Outcome = tuple[str, str]
Trial = Callable[[], Outcome] | str


@dataclass(frozen=True)
class Listed:
    """A claim where its source makes it, and how it is tried.

    section: of the source, as it numbers or names it. says: the source's sentence, in its own language. words: the same in
    English, nothing added. One of: kept: the id of a claim that a lesson keeps. trial: a function of the source's own
    module, or one of a lesson's claims by its name ("torch_compile.tensorrt"). why: the reason that it is not tested.
    evidence: of a trial; of a verdict that a lesson keeps, where its table's label says more than holds for this row. also: ids of claims that lessons keep about the same sentence: their verdicts have the same word.
    """

    section: str
    says: str
    words: str
    kept: str = ""
    trial: Trial = ""
    why: str = ""
    evidence: str = ""
    also: tuple[str, ...] = ()


def kept(section: str, says: str, words: str, claim: str, *also: str, evidence: str = "") -> Listed:
    """A claim that a lesson tries. claim: its id. also: the ids of others about this sentence.

    evidence: this row's part of the label that the lesson's table of claims has; "": all of it.
    """
    return Listed(section, says, words, kept=claim, also=also, evidence=evidence)


def tried(
    section: str,
    says: str,
    words: str,
    trial: Trial,
    *,
    evidence: str = "live (CPU)",
    also: tuple[str, ...] = (),
) -> Listed:
    """A claim that is tried here. also: ids of lessons' claims about this sentence."""
    return Listed(section, says, words, trial=trial, evidence=evidence, also=also)


def untested(section: str, says: str, words: str, why: str) -> Listed:
    """A claim that the course does not test, and the reason: what a trial would take."""
    return Listed(section, says, words, why=why)


def listed(source: str) -> tuple[Listed, ...]:
    """What a source claims, in its order. source: a key of :func:`helpers.lesson.sources.every`."""
    module = importlib.import_module(f"{__package__}.sources.{source.replace('-', '_')}")
    claims: tuple[Listed, ...] = module.CLAIMS
    return claims


def run(source: str, entry: Listed) -> Claim:
    """Run the trial of an entry that is tried here."""
    if isinstance(entry.trial, str):
        lesson, _, name = entry.trial.partition(".")
        claim: Claim = getattr(importlib.import_module(f"helpers.lessons.{lesson}.claims"), name)()
        return replace(claim, claim=entry.words, experiment=f"`{entry.trial}`")
    measured, verdict = entry.trial()
    name = entry.trial.__name__
    return Claim(f"18-{source}-{name.replace('_', '-')}", source, entry.words, measured, verdict, f"`{name}`")


def every() -> list[tuple[str, Listed]]:
    """(source, entry) of all sources, each in its order."""
    return [(source, entry) for source in sources.every() for entry in listed(source)]
