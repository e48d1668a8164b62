"""Every claim with its verdict, in one list: what lessons keep (kept.json, by the build), what is tried here, and the rest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.lessons.sources_on_trial import claims

#: id → a verdict that a lesson keeps, and the lesson: collected from the executed notebooks (helpers.classroom.collecting)
KEPT = Path(__file__).with_name("kept.json")
WORDS = ("confirmed", "partly", "refuted", "untested")
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
    told = json.loads(KEPT.read_text(encoding="utf-8"))
    return [_verdict(source, claim, told) for source, claim in claims.every()]


def _verdict(source: str, claim: claims.Claim, told: dict[str, dict[str, str]]) -> Verdict:
    if claim.kept:
        had = told[claim.kept]
        words, measured = claim.words or had["claim"], had["measured"]
        name, verdict, evidence, lesson, experiment = (
            claim.kept, had["verdict"], had["evidence"], had["lesson"], had["experiment"],
        )  # fmt: skip
    elif claim.trial:
        name, _, words, measured, verdict, experiment = claims.row(source, claim)
        evidence, lesson = claim.evidence, HERE
    else:
        name, words, measured, verdict = "", claim.words, "nothing", f"untested: {claim.why}"
        evidence, lesson, experiment = "", "", ""
    return Verdict(name, source, claim.section, words, measured, verdict, evidence, lesson, experiment)


def plain(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """As data, for a notebook's output."""
    return [asdict(one) for one in verdicts]
