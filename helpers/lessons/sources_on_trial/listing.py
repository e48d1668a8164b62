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

    section: of the source, as it numbers or names it. words: the claim, in ours; "": as the lesson has it. One of:
    kept: the id of a claim that a lesson keeps. trial: a function of the source's own module, or one of a lesson's claims
    by its name ("torch_compile.tensorrt"). why: the reason that it is not tested. evidence: of a trial.
    """

    section: str
    words: str = ""
    kept: str = ""
    trial: Trial = ""
    why: str = ""
    evidence: str = ""


def kept(section: str, claim: str, words: str = "") -> Listed:
    """A claim that a lesson tries. claim: its id. words: where the source says it otherwise than the lesson."""
    return Listed(section, words, kept=claim)


def tried(section: str, trial: Trial, words: str = "", *, evidence: str = "live (CPU)") -> Listed:
    """A claim that is tried here. words: needed where the trial is a function of the source's module."""
    return Listed(section, words, trial=trial, evidence=evidence)


def untested(section: str, words: str, why: str) -> Listed:
    """A claim that the course does not test, and the reason."""
    return Listed(section, words, why=why)


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
        return replace(claim, claim=entry.words or claim.claim, experiment=f"`{entry.trial}`")
    measured, verdict = entry.trial()
    name = entry.trial.__name__
    return Claim(f"18-{source}-{name.replace('_', '-')}", source, entry.words, measured, verdict, f"`{name}`")


def every() -> list[tuple[str, Listed]]:
    """(source, entry) of all sources, each in its order."""
    return [(source, entry) for source in sources.every() for entry in listed(source)]
