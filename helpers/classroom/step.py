"""What is run and judged of a notebook, cell by cell. By itself: who only enters verdicts needs no torch, which loads for seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A code cell of a clean notebook. role: "setup", "exercise", "added", "test" or "hidden"; place: its index."""

    place: int
    role: str
    source: str
    grade_id: str = ""
    exercise: str = ""
