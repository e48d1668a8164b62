"""Odd answers: they end only their own test; and what a sealed GPU shows."""

import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest
import torch

from helpers import check
from helpers.check.sealed import sealed
from helpers.classroom import master as masters
from helpers.classroom.engine import Learner
from helpers.classroom.master import Cell, Master
from helpers.classroom.runner import Runner
from helpers.classroom.sandbox import Warm
from helpers.classroom.step import Step
from helpers.simulator import simulate
from tests.test_build import GOOD, write

#: right values by twice the operators: earns the visible test's point, and not the two for its cost
DEAR = "def twice(x):\n    return x + x + torch.zeros_like(x)\n"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return masters.read(write(tmp_path_factory.mktemp("guard"), GOOD))


def test_a_sealed_gpu_shows_what_a_real_one_does() -> None:
    with simulate("T4", strict=False) as gpu:
        shown = sealed(gpu)
        x = torch.empty(64, 64, device=shown.device)
        start, end = shown.Event(enable_timing=True), shown.Event(enable_timing=True)
        start.record()
        side = shown.Stream()
        with shown.stream(side):
            x @ x
        shown.current_stream().wait_stream(side)
        x.record_stream(side)
        end.record()
        shown.synchronize()
        assert shown.clock() > 0 and start.elapsed_time(end) > 0 and side == side and "T4" in repr(shown)
        for name in ("kernels", "host", "races", "faults", "collectives", "_timeline", "__dict__"):
            with pytest.raises(AttributeError, match="torch.cuda's names"):
                getattr(shown, name)
        with pytest.raises(AttributeError, match="cannot be set"):
            shown.clock = lambda: 0.0
    assert len(gpu.kernels) == 1 and not gpu.races


def test_the_dear_answer_earns_one_point(runner: Runner, master: Master) -> None:
    assert runner.grade(master, "twice", DEAR).earned == 1


@pytest.mark.parametrize(
    "answer", ["10 ** 400", "None", "object()", "float('nan')", "[[]] * 3", "x.to('meta')"]
)
def test_odd_answers_end_only_their_test(runner: Runner, master: Master, answer: str) -> None:
    assert runner.grade(master, "twice", f"def twice(x):\n    return {answer}").earned == 0
    assert runner.grade(master, "twice", DEAR).earned == 1, "the next answer is graded as ever"


@pytest.mark.parametrize("end", ["os._exit(0)", "def twice(x):\n    os.kill(os.getpid(), 9)"])
def test_an_ended_process_is_told(runner: Runner, end: str) -> None:
    """The screen lets no such answer pass; a fault in native code ends a process too."""
    with runner.notebook(["import os", end]) as notebook, check.through(notebook.ask):
        with pytest.raises(check.CheckFailed, match="ended before it answered"):
            check.function("twice", [check.case(1)])


ON_RANKS = """
import os
from helpers import ranks
from helpers.ranks import starting

def runs():
    return ranks.run_ranks(os.getppid, 2)

def dies():
    starting.server().ask(do="start", folder="/nowhere", n=1, modules=[])
    os.kill(os.getpid(), 9)

def owes():
    starting.server().busy = True
"""


def test_the_ranks_of_all_exercises_come_from_one_server(runner: Runner) -> None:
    """Another would import torch first, for seconds. One is made after a copy that ended in the middle of a request."""
    learner = Learner(runner.warm, time.monotonic() + 300, ranks=True)
    learner.run(Step(0, "setup", ON_RANKS))
    parents: list[int] = []

    def ask(name: str) -> None:  # in a copy of its own, as each exercise is
        with check.through(learner.ask):
            check.function(
                name,
                [check.case()],
                verify=lambda reports: parents.extend(reports[0].value or []),
                once="its ranks are counted",
            )
        learner.leave()

    try:
        for _ in range(2):
            ask("runs")
        assert len(parents) == 4 and len(set(parents)) == 1
        for spoils in ("owes", "dies"):
            with contextlib.suppress(check.CheckFailed):
                ask(spoils)
            ask("runs")
            assert len(set(parents)) == 2, spoils
            learner.close()
            del parents[2:]
    finally:
        learner.close()


def test_an_endless_answer_is_ended(runner: Runner, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.classroom.engine.CELL_S", 3.0)
    for endless in ("def twice(x):\n    while True: pass", "while True: pass"):
        score = runner.grade(master, "twice", endless)
        assert score.earned == 0 and "no answer within" in score.verdicts["twice__test"].text
    began = time.monotonic()
    while (left := _children(runner)) and time.monotonic() - began < 60:
        time.sleep(0.1)
    assert not left, "an answer that does not end must not be left running"


def _children(runner: Runner) -> list[str]:
    command = ["ps", "--ppid", str(runner.warm.pid), "-o", "pid="]
    return subprocess.run(command, capture_output=True, text=True).stdout.split()


def test_a_cell_that_fails_is_named(runner: Runner, master: Master) -> None:
    score = runner.grade(master, "twice", "x = undefined\ndef twice(x): return x * 2")
    assert "NameError" in score.verdicts["twice__test"].text


def cpu_s(warm: Warm) -> float:
    """Seconds of processor time of a warm process and of what it has started and waited for."""
    above = psutil.Process(warm.pid)
    return sum(sum(process.cpu_times()[:4]) for process in [above, *above.children()])


def _took(runner: Runner, master: Master, answer: str | None) -> float:
    before = cpu_s(runner.warm)
    runner.grade(master, "twice", answer)
    return cpu_s(runner.warm) - before


def test_the_processor_time_of_an_answer_is_counted(runner: Runner, master: Master) -> None:
    """What the cap in tests/test_grading.py rests on: it must be able to fail."""
    busy = "import time\ndef twice(x):\n    end = time.process_time() + 0.5\n    while time.process_time() < end:\n        pass\n    return x * 2"
    idle = _took(runner, master, "def twice(x):\n    return x * 2")
    assert _took(runner, master, busy) > idle + 0.4


def test_the_time_of_processes_that_outlive_an_answer_is_counted_and_with_it(
    runner: Runner, master: Master
) -> None:
    """Ranks do: who started them is ended first. And what one answer took is not taken off the next."""
    outlives = """
import os, time
def twice(x):
    out, into = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(out)
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass
            os.write(into, b".")
            time.sleep(600)
        os._exit(0)
    os.read(out, 1)
    return x * 2
"""
    again = dataclasses.replace(master, cells=[*_with(master, outlives)])
    idle = _took(runner, master, None)
    assert _took(runner, again, None) > idle + 0.4
    assert not _children(runner)
    assert _took(runner, master, None) < 0.4


def _with(master: Master, solution: str) -> Iterator[Cell]:
    """The cells of a master, which is not screened, with another solution."""
    for cell in master.cells:
        yield dataclasses.replace(cell, source=solution) if cell.kind == "exercise" else cell
