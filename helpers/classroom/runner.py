"""Grade answers without Jupyter, in a fraction of a second each: what the tests of the graders use."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from helpers.check.screen import screen
from helpers.classroom.judging import Verdict, judge
from helpers.classroom.master import Master
from helpers.classroom.settings import ONE_THREAD
from helpers.classroom.zygote import receive, send

#: seconds for all the cells, and for each request of a test
DEADLINE = 120.0


@dataclass(frozen=True)
class Score:
    """Of one exercise: points earned, points there are, each test's verdict by grade_id, and the seconds of processor
    time that the learner's side took (its cells, its calls, processes that it started; 0 where there is no /proc)."""

    earned: int
    possible: int
    verdicts: dict[str, Verdict]
    cpu_s: float


class Runner:
    """Keeps one zygote alive: ``with Runner() as runner: runner.grade(master, "windows", code)``."""

    def __enter__(self) -> "Runner":
        self._folder = tempfile.TemporaryDirectory()
        self._path = str(Path(self._folder.name) / "zygote")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "helpers.classroom.zygote", self._path],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | ONE_THREAD,
            start_new_session=True,
        )
        assert self._zygote.stdout is not None
        if self._zygote.stdout.readline().strip() != "ready":
            raise RuntimeError("the grading process did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._zygote.pid, signal.SIGKILL)  # and whatever its children have left running
        self._zygote.wait()
        self._folder.cleanup()

    def grade(self, master: Master, exercise: str, answer: str | None) -> Score:
        """The score of ``answer`` (code that replaces the exercise's cell; ``None``: the master's own solution).

        Earlier exercises, on which this one may build, are taken from the master.
        """
        cells = []
        for cell in master.cells:
            if cell.kind in ("setup", "exercise"):
                cells.append(answer if cell.exercise == exercise and answer is not None else cell.source)
                if cell.exercise == exercise:
                    break
        else:
            raise ValueError(f"{master.name} has no exercise {exercise!r}")
        tests = [c for c in master.cells if c.exercise == exercise and c.kind in ("test", "hidden")]
        if answer is not None and (refused := screen(answer, master.name)):
            return Score(
                0, sum(t.points for t in tests), {t.grade_id: Verdict(False, refused) for t in tests}, 0.0
            )
        verdicts: dict[str, Verdict] = {}
        before = self._cpu_s()
        with contextlib.ExitStack() as open_notebooks:
            notebook: Notebook | None = None
            for test in tests:
                if notebook is None or notebook.ended:  # what ended it costs only the points of one test
                    notebook = open_notebooks.enter_context(self.notebook(cells))
                verdicts[test.grade_id] = judge(test.source, test.grade_id, notebook.ask)
            spent = self._cpu_s() - before
        return Score(
            sum(t.points for t in tests if verdicts[t.grade_id].passed),
            sum(t.points for t in tests),
            verdicts,
            spent,
        )

    @contextlib.contextmanager
    def notebook(self, cells: list[str]) -> Iterator["Notebook"]:
        """A process of its own that has run these cells; ended, with what it started, when the block is left."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(self._path)
            send(connection, cells)
            child, failures = _reply(connection), _reply(connection)
            try:
                yield Notebook(connection, failures)
            finally:
                if isinstance(child, int):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)

    def _cpu_s(self) -> float:
        """Seconds of processor time of the zygote and all that descends from it, those that have ended included."""
        times: dict[int, tuple[int, int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
                # proc(5), counted from the state: the parent, then user and system time, own and of children waited for
                times[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
        ours = {self._zygote.pid}
        while more := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
            ours |= more
        return sum(times[pid][1] for pid in ours if pid in times) / os.sysconf("SC_CLK_TCK")


class Notebook:
    """The learner's side as the judge sees it: :meth:`ask` is a transport for :func:`helpers.check.through`."""

    def __init__(self, connection: socket.socket, failures: Any) -> None:
        self._connection, self._failures = connection, failures
        self.ended = False

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._failures, dict):
            reply = self._failures
        else:
            with contextlib.suppress(BrokenPipeError):  # then there is no reply either
                send(self._connection, request)
            reply = _reply(self._connection)
        self.ended = "broken" in reply
        if reply.get("missing") and self._failures:
            return {"broken": f"the cell that should define {request['name']!r} failed: {self._failures[-1]}"}
        return dict(reply)


def _reply(connection: socket.socket) -> Any:
    try:
        reply = receive(connection)
    except TimeoutError:
        return {"broken": f"no answer within {DEADLINE:.0f} s"}
    return {"broken": "the process ended before it answered"} if reply is None else reply
