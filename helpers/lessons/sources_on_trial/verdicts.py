"""Every claim with its verdict, in one list: what lessons keep (kept.json, by the build), what is tried here, and the rest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.lesson.claim import WORDS
from helpers.lessons.sources_on_trial import listing
from helpers.lessons.sources_on_trial.listing import Listed

#: id → a verdict that a lesson keeps, and the lesson: collected from the executed notebooks (helpers.classroom.collecting)
KEPT = Path(__file__).with_name("kept.json")
HERE = "18_sources_on_trial"


@dataclass(frozen=True)
class Verdict:
    """A claim and what came of it. lesson: the folder of the lesson whose run measured it; experiment: where in it."""

    id: str
    source: str
    section: str
    claim: str
    measured: str
    verdict: str
    evidence: str
    lesson: str
    experiment: str

    @property
    def word(self) -> str:
        """The first word of the verdict: one of WORDS."""
        return next(word for word in WORDS if self.verdict.startswith(word))


def every() -> list[Verdict]:
    """All claims of all sources, in the sources' order; runs the trials that no lesson runs (15 s on two cores).

    KeyError: a claim names a verdict that no lesson keeps.
    """
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return [_verdict(source, entry, kept) for source, entry in listing.every()]


def _verdict(source: str, entry: Listed, lessons: dict[str, dict[str, str]]) -> Verdict:
    where = source, entry.section
    if entry.kept:
        kept = lessons[entry.kept]
        evidence, lesson, experiment = kept["evidence"], kept["lesson"], kept["experiment"]
        words = entry.words or kept["claim"]
        return Verdict(
            entry.kept, *where, words, kept["measured"], kept["verdict"], evidence, lesson, experiment
        )
    if entry.trial:
        claim = listing.run(source, entry)
        outcome = claim.claim, claim.measured, claim.verdict
        return Verdict(claim.id, *where, *outcome, entry.evidence, HERE, claim.experiment)
    return Verdict("", *where, entry.words, "nothing", f"untested: {entry.why}", "", "", "")


def plain(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """As data, for a notebook's output."""
    return [asdict(verdict) for verdict in verdicts]
