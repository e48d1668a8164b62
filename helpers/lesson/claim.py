"""A claim of a source that was put to the test: the one form in which lessons keep it and the last lesson shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from helpers.lesson import sources

#: word of a verdict → when it is given; the same rule for every claim of every source
RULES = {
    "confirmed": (
        "It was so in every case that was tried, and these are cases that the sentence speaks of. Of a sentence that says *may* "
        "or *sometimes* one such case is enough."
    ),
    "partly": (
        "It was so in some of the cases and not in others, or for one part of the sentence, while another was not so or could not "
        "be tried. The verdict names the condition or the part. Advice that depends on the program is partly true."
    ),
    "refuted": (
        "It was so in none of the cases: the code raises an error or does something else, the thing does not exist, or the "
        "number is not reached anywhere."
    ),
    "untested": (
        "Nothing was run, or could be cited, that might have shown it to be wrong. The verdict says what a trial would take. "
        "It is not given because a claim depends on something: then it is tried in several cases."
    ),
}
#: a verdict begins with one of these
WORDS = tuple(RULES)
#: "confirmed" and "refuted" may stand alone; of the others one wants to know when, or why
_FORM = re.compile(r"(?:confirmed|refuted)(?:[:;] .+)?|(?:partly|untested): .+", re.DOTALL)


@dataclass(frozen=True)
class Claim:
    """What a source claims, what was measured, and the verdict, its word first (one of WORDS).

    id: the lesson's number and a name, "07-structure". source: a key of :func:`helpers.lesson.sources.every`. claim: in
    English, and no more than the source says. experiment: the heading under which it was measured. ValueError for an unknown
    source, and for a verdict that is not one word of RULES with what belongs to it: "partly: holds when …".
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
        if not _FORM.fullmatch(self.verdict):
            raise ValueError(
                f"claim {self.id!r}: a verdict is one of {WORDS}; behind partly and untested stands a colon and the condition "
                f"or the reason; not {self.verdict!r}"
            )
