"""A claim of a source that was put to the test: the one form in which lessons keep it and the last lesson shows it."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.lesson import sources

#: a verdict begins with one of these
WORDS = ("confirmed", "partly", "refuted", "untested")


@dataclass(frozen=True)
class Claim:
    """What a source claims, what was measured, and the verdict, its word first (one of WORDS).

    id: the lesson's number and a name, "07-structure". source: a key of :func:`helpers.lesson.sources.every`. claim: in our
    words. experiment: the heading under which it was measured. ValueError for an unknown source or word.
    """

    id: str
    source: str
    claim: str
    measured: str
    verdict: str
    experiment: str

    def __post_init__(self) -> None:
        if self.source not in sources.every():
            raise ValueError(
                f"claim {self.id!r}: no source {self.source!r}; there are {sorted(sources.every())}"
            )
        if not self.verdict.startswith(WORDS):
            raise ValueError(f"claim {self.id!r}: a verdict begins with one of {WORDS}, not {self.verdict!r}")
