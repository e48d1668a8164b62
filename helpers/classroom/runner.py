"""Grade single answers of the course's own, without a notebook: what the tests of the graders use."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.classroom.engine import NOTEBOOK_S, Learner, grade
from helpers.classroom.master import Master
from helpers.classroom.sandbox import Warm
from helpers.classroom.step import Step, Verdict


@dataclass(frozen=True)
class Score:
    """Of one exercise: points earned, points there are, each test's verdict and what a person is asked, by grade_id."""

    earned: int
    possible: int
    verdicts: dict[str, Verdict]
    doubts: dict[str, str]


class Runner:
    """Keeps one process warm: ``with Runner() as runner: runner.grade(master, "windows", code)``.

    sandboxed: as submissions are graded; without, it runs where there is no bubblewrap too. bare: see
    :class:`helpers.classroom.sandbox.Warm`.
    """

    def __init__(self, sandboxed: bool = False, bare: bool = False) -> None:
        self.warm = Warm(sandboxed, bare)

    def __enter__(self) -> "Runner":
        self.warm.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.warm.end()

    def grade(self, master: Master, exercise: str, answer: str | None) -> Score:
        """The score of ``answer`` (code that replaces the exercise's cell; ``None``: the master's own solution).

        Earlier exercises, on which this one may build, are taken from the master.
        """
        steps: list[Step] = []
        for place, cell in enumerate(master.cells):
            mine = cell.exercise == exercise
            if cell.kind == "exercise" and mine and answer is not None:
                steps.append(Step(place, "exercise", answer, cell.grade_id, exercise))
            elif cell.kind in ("setup", "exercise"):  # what the master has written is not screened
                steps.append(Step(place, "setup", cell.source, cell.grade_id, cell.exercise))
            if cell.kind == "exercise" and mine:
                break
        else:
            raise ValueError(f"{master.name} has no exercise {exercise!r}")
        tests = {
            c.grade_id: c for c in master.cells if c.exercise == exercise and c.kind in ("test", "hidden")
        }
        steps += [
            Step(len(master.cells) + i, c.kind, c.source, c.grade_id, exercise)
            for i, c in enumerate(tests.values())
        ]
        verdicts: dict[str, Verdict] = {}
        doubts: dict[str, str] = {}
        for event in grade(self.warm, steps, master.name):
            if "verdict" in event:
                verdicts[event["verdict"]] = Verdict(event["passed"], event["text"])
            elif "doubt" in event:
                doubts[event["doubt"]] = event["text"]
        earned = sum(test.points for name, test in tests.items() if verdicts[name].passed)
        return Score(earned, sum(test.points for test in tests.values()), verdicts, doubts)

    @contextlib.contextmanager
    def notebook(self, cells: list[str]) -> Iterator[Learner]:
        """A child that has run these cells; ended, with what it started, when the block is left."""
        learner = Learner(self.warm, time.monotonic() + NOTEBOOK_S)
        for place, source in enumerate(cells):
            learner.run(Step(place, "setup", source))
        try:
            yield learner
        finally:
            learner.close()
