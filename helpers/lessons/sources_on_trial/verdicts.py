"""Every claim with its verdict, in one list: what lessons keep (kept.json, by the build), what is tried here, and the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    """A claim and what came of it.

    says: in the source's own language; claim: in English. lesson: the folder of the lesson whose run measured it;
    experiment: where in it. also: folders of other lessons that tried the same sentence.
    """

    id: str
    source: str
    section: str
    says: str
    claim: str
    measured: str
    verdict: str
    evidence: str
    lesson: str
    experiment: str
    also: Sequence[str] = ()

    @property
    def word(self) -> str:
        """The first word of the verdict: one of WORDS."""
        return next(word for word in WORDS if self.verdict.startswith(word))


def every() -> list[Verdict]:
    """All claims of all sources, in the sources' order; runs the trials that no lesson runs (15 s on two cores).

    KeyError: a claim names a verdict that no lesson keeps.
    """
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return [judged(source, entry, kept) for source, entry in listing.every()]


def judged(source: str, entry: Listed, lessons: dict[str, dict[str, str]]) -> Verdict:
    """One of them. lessons: what they keep, by id. KeyError: an id that none keeps."""
    where = source, entry.section, entry.says, entry.words
    also = sorted({lessons[name]["lesson"] for name in entry.also})
    if entry.kept:
        kept = lessons[entry.kept]
        outcome, at = (
            (kept["measured"], kept["verdict"]),
            (entry.evidence or kept["evidence"], kept["lesson"], kept["experiment"]),
        )
        return Verdict(entry.kept, *where, *outcome, *at, also)
    if entry.trial:
        claim = listing.run(source, entry)
        return Verdict(
            claim.id, *where, claim.measured, claim.verdict, entry.evidence, HERE, claim.experiment, also
        )
    return Verdict("", *where, "", f"untested: {entry.why}", "", "", "", also)


def plain(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """As data, for a notebook's output."""
    return [asdict(verdict) for verdict in verdicts]
