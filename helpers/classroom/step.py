"""What is run and judged of a notebook, cell by cell, and what is said of it. By itself: who only enters verdicts needs no torch, which loads for seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A code cell of a clean notebook. role: "setup", "experiment", "exercise", "added", "test" or "hidden"; place: its
    index. An experiment is as the course has it: one that a student has changed is "added"."""

    place: int
    role: str
    source: str
    grade_id: str = ""
    exercise: str = ""


@dataclass(frozen=True)
class Verdict:
    """Of one test: ``passed``, and what the learner reads: the summary, or what was measured and what was wanted. human: why a
    person should look at it ("": no need)."""

    passed: bool
    text: str
    human: str = ""
