"""The graders under test: every right answer gets full marks and waits for no person, every wrong one earns what it says.

(That the reference gets full marks: tests/test_grading.py.)

``tests/submissions/<lesson>/<exercise>/right_*.py`` and ``wrong_*.py`` hold what a learner would write into the
exercise's cell. The first line of a wrong answer says what is wrong with it and what it earns:

    # the values are right, but it copies: earns 1
"""

import re
from functools import cache
from pathlib import Path

import pytest

from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.classroom.master import Master
from helpers.classroom.runner import Runner
from tests.test_grading import BUILD_ON_EARLIER

SUBMISSIONS = Path(__file__).parent / "submissions"
EXERCISES = [(path.stem, exercise.id) for path in find([]) for exercise in masters.read(path).exercises]
#: tests/test_grading.py has the others' stubs: what it grades as a whole is answered in the first exercise alone
STUBS = [
    (path.stem, exercise.id)
    for path in find([])
    for i, exercise in enumerate(masters.read(path).exercises)
    if not i or path.stem in BUILD_ON_EARLIER
]
ANSWERS = sorted(SUBMISSIONS.glob("*/*/*.py"))


@cache
def lesson(name: str) -> Master:
    return masters.read(next(p for p in find([]) if p.stem == name))


@pytest.mark.parametrize(("name", "exercise"), EXERCISES)
def test_enough_answers(name: str, exercise: str) -> None:
    folder = SUBMISSIONS / name / exercise
    assert len(list(folder.glob("right_*.py"))) >= 2, (
        f"{folder} needs two right answers that differ from the reference"
    )
    assert len(list(folder.glob("wrong_*.py"))) >= 3, f"{folder} needs three real mistakes"


@pytest.mark.parametrize(("name", "exercise"), STUBS)
def test_stub_gets_nothing(runner: Runner, name: str, exercise: str) -> None:
    """What the learner is given passes no test, and each says so in the same words."""
    cell = next(c for c in lesson(name).cells if c.kind == "exercise" and c.exercise == exercise)
    stub = re.sub(
        r"( *)### BEGIN SOLUTION.*?### END SOLUTION",
        r"\1raise NotImplementedError()",
        cell.source,
        flags=re.DOTALL,
    )
    score = runner.grade(lesson(name), exercise, stub)
    assert score.earned == 0, score.verdicts
    assert all("not written yet" in verdict.text for verdict in score.verdicts.values()), score.verdicts


@pytest.mark.parametrize(
    "path", ANSWERS, ids=lambda p: f"{p.parent.parent.name[:2]}-{p.parent.name}-{p.stem}"
)
def test_answer(runner: Runner, path: Path) -> None:
    name, exercise, text = path.parent.parent.name, path.parent.name, path.read_text()
    score = runner.grade(lesson(name), exercise, text)
    print(*(verdict.text for verdict in score.verdicts.values()), sep="\n")  # for who writes one: ARGS="-rP"
    if path.stem.startswith("right_"):
        assert score.earned == score.possible, score.verdicts
        assert score.doubts == {}
        return
    said = re.match(r"# .*: earns (\d+)$", text.splitlines()[0])
    assert said is not None, f"{path.name}: the first line must be '# what is wrong: earns N'"
    assert int(said[1]) < score.possible, "a wrong answer earns less than full marks"
    assert score.earned == int(said[1]), score.verdicts
