"""What a claim of a source consists of, and every source with its claims: a module of sources/ each.

docs/adding-a-source.md says how to write one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from helpers.lesson import Row, sources

#: what a trial returns: what was measured, and the verdict, its word first
Outcome = tuple[str, str]
Trial = Callable[[], Outcome] | str


@dataclass(frozen=True)
class Claim:
    """A claim where its source makes it, and what came of it.

    section: of the source, as it numbers or names it. words: the claim, in ours; "": as the verdict's row has it. One of:
    kept: the id of a verdict that a lesson keeps. trial: a function of the source's own module, or one of a lesson's claims
    that returns a whole row, by its name ("torch_compile.tensorrt"). why: the reason that it is not tested.
    evidence: of a trial.
    """

    section: str
    words: str = ""
    kept: str = ""
    trial: Trial = ""
    why: str = ""
    evidence: str = ""


def kept(section: str, row: str, words: str = "") -> Claim:
    """A claim that a lesson tries. row: the id of its verdict. words: where the source says it otherwise than the row."""
    return Claim(section, words, kept=row)


def tried(section: str, trial: Trial, words: str = "", *, evidence: str = "live (CPU)") -> Claim:
    """A claim that is tried here. words: needed where the trial is a function of the source's module."""
    return Claim(section, words, trial=trial, evidence=evidence)


def untested(section: str, words: str, why: str) -> Claim:
    """A claim that the course does not test, and the reason."""
    return Claim(section, words, why=why)


def claims(source: str) -> tuple[Claim, ...]:
    """What a source claims, in its order. source: a key of :func:`helpers.lesson.sources.every`."""
    module = importlib.import_module(f"helpers.lessons.sources_on_trial.sources.{source.replace('-', '_')}")
    found: tuple[Claim, ...] = module.CLAIMS
    return found


def row(source: str, claim: Claim) -> Row:
    """Run the trial of a claim that is tried here; its row."""
    if isinstance(claim.trial, str):
        module, _, name = claim.trial.partition(".")
        whole: Row = getattr(importlib.import_module(f"helpers.lessons.{module}.claims"), name)()
        return (*whole[:2], claim.words or whole[2], *whole[3:5], f"`{claim.trial}`")
    measured, verdict = claim.trial()
    name = claim.trial.__name__
    return f"18-{source}-{name.replace('_', '-')}", source, claim.words, measured, verdict, f"`{name}`"


def every() -> list[tuple[str, Claim]]:
    """(source, claim) of all sources, each in its order."""
    return [(source, claim) for source in sources.every() for claim in claims(source)]
