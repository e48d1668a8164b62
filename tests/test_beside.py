"""Nobody pays for somebody else: five honest notebooks, all different, beside hostile ones that the screen lets run.

Graded one after the other by one judge, in one sandbox for as long as it lasts, in an order that is drawn. By hand with
more: ``python -m tests.long.classroom beside --times 50``.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.classroom import build, sandbox
from helpers.classroom.bench import Bench, Done
from helpers.classroom.step import Step
from helpers.classroom.submission import clean, steps_of
from tests.corpus.cases import graded, place, plain, saved
from tests.corpus.hostile import CORPUS, LASTING, SCREENED, above, instead
from tests.test_intake import LESSON, answered

pytestmark = [
    pytest.mark.skipif(bool(sandbox.available()), reason=sandbox.available() or "there is a sandbox"),
    pytest.mark.timeout(900),
]
ANSWERS = build.ROOT / "tests" / "submissions" / LESSON
#: hostile ones in one order
BESIDE = 6


def honest(folder: Path) -> list[list[Step]]:
    """Five notebooks of right answers, each exercise's in turn."""
    notebooks = []
    for number in range(5):
        made = plain(answered(LESSON))
        for exercise in graded(made, "solution"):
            cell = made["cells"][place(made, exercise)]
            right = [
                path.read_text(encoding="utf-8") for path in sorted(ANSWERS.glob(f"{exercise}/right_*.py"))
            ]
            cell["source"] = [cell["source"], *right][number % (1 + len(right))]
        saved(made, folder / f"honest-{number}" / f"{LESSON}.ipynb")
        notebooks.append(_steps(folder / f"honest-{number}"))
    assert len({str(steps) for steps in notebooks}) == 5
    return notebooks


def hostile(folder: Path) -> dict[str, list[Step]]:
    """Every hostile notebook of the corpus, and every text that the screen refuses, with all cells run as the course's own."""
    writes = {name: case.write for name, case in CORPUS.items() if case.earns != "not gradable"}
    del writes[
        "scratch"
    ]  # an honest one: its cells, which nothing needs, are among those that the screen refuses
    writes |= {f"refused {i}": instead("one_copy", source) for i, source in enumerate(SCREENED)}
    writes |= {what: above("flat_index", source) for what, source in LASTING.items()}
    notebooks = {}
    for number, (name, write) in enumerate(writes.items()):
        (folder / str(number)).mkdir()
        write(answered(LESSON), folder / str(number), LESSON)
        own = ("exercise", "added")
        notebooks[name] = [
            replace(step, role="setup") if step.role in own else step for step in _steps(folder / str(number))
        ]
    return notebooks


def _steps(folder: Path) -> list[Step]:
    return steps_of(clean(folder, build.SOLUTIONS / LESSON / f"{LESSON}.ipynb"))


def losses(bench: Bench, right: list[list[Step]], others: dict[str, list[Step]], seed: int) -> list[str]:
    """Who of the honest lost what, in an order drawn from ``seed``, and behind whom."""
    dice = random.Random(seed)
    order: list[tuple[str, list[Step]]] = [(f"honest {i}", steps) for i, steps in enumerate(right)]
    order += [(name, others[name]) for name in dice.sample(sorted(others), min(BESIDE, len(others)))]
    dice.shuffle(order)
    lost = []
    for at, (name, steps) in enumerate(order):
        done: Done = bench.grade(LESSON, steps)
        assert set(done.verdicts) == {step.grade_id for step in steps if step.role in ("test", "hidden")}
        if name.startswith("honest "):
            before = " < ".join(earlier for earlier, _ in reversed(order[:at]))
            lost += [
                f"order {seed}, {name}: {test}: {ruling.text} (after {before})"
                for test, ruling in done.verdicts.items()
                if not ruling.passed or ruling.human
            ]
    return lost


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch, Bench() as bench:
        patch.setenv("GRADE_CPU_S", "3")  # for those that never end
        yield bench


@pytest.mark.parametrize("seed", range(3))
def test_nobody_pays_for_somebody_else(bench: Bench, tmp_path: Path, seed: int) -> None:
    assert losses(bench, honest(tmp_path), hostile(tmp_path), seed) == []


def beside(times: int) -> int:
    """As many orders, by hand; prints what was lost."""
    import tempfile

    os.environ["GRADE_CPU_S"] = "3"
    with tempfile.TemporaryDirectory() as folder, Bench() as bench:
        right, others = honest(Path(folder)), hostile(Path(folder))
        lost = [loss for seed in range(times) for loss in _told(losses, bench, right, others, seed)]
    print(f"{times} orders of 5 honest and {BESIDE} of {len(others)} hostile notebooks; lost: {len(lost)}")
    return int(bool(lost))


def _told(way: Callable[..., list[str]], *given: object) -> list[str]:
    lost = way(*given)
    print(f"order {given[-1]}: {lost or 'nothing lost'}", flush=True)
    return lost
