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

from helpers.classroom.judging import Verdict, judge
from helpers.classroom.master import Master
from helpers.classroom.zygote import receive, send

#: seconds for all the cells, and for each request of a test
DEADLINE = 120.0


@dataclass(frozen=True)
class Score:
    """Of one exercise: points earned, points there are, and each test's verdict by grade_id."""

    earned: int
    possible: int
    verdicts: dict[str, Verdict]


class Runner:
    """Keeps one zygote alive: ``with Runner() as runner: runner.grade(master, "windows", code)``."""

    def __enter__(self) -> "Runner":
        self._folder = tempfile.TemporaryDirectory()
        self._path = str(Path(self._folder.name) / "zygote")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "helpers.classroom.zygote", self._path],
            stdout=subprocess.PIPE,
            text=True,
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
        verdicts: dict[str, Verdict] = {}
        for test in tests:
            # a process for each test: one that ends it costs only its own points
            with self._notebook(cells) as ask:
                verdicts[test.grade_id] = judge(test.source, test.grade_id, ask)
        return Score(
            sum(t.points for t in tests if verdicts[t.grade_id].passed),
            sum(t.points for t in tests),
            verdicts,
        )

    @contextlib.contextmanager
    def _notebook(self, cells: list[str]) -> Iterator[Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(self._path)
            send(connection, cells)
            child = _reply(connection)
            failures = _reply(connection)

            def ask(request: dict[str, Any]) -> dict[str, Any]:
                if isinstance(failures, dict):
                    return failures
                send(connection, request)
                reply = _reply(connection)
                if reply.get("missing") and failures:
                    return {
                        "broken": f"the cell that should define {request['name']!r} failed: {failures[-1]}"
                    }
                return dict(reply)

            try:
                yield ask
            finally:
                if isinstance(child, int):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)


def _reply(connection: socket.socket) -> Any:
    try:
        reply = receive(connection)
    except TimeoutError:
        return {"broken": f"no answer within {DEADLINE:.0f} s"}
    return {"broken": "the process ended before it answered"} if reply is None else reply
