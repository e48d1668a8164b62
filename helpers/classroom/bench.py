"""The judge as a process of its own: what it dies of or swells from costs one exercise of one submission.

    with Bench() as bench:
        done = bench.grade("01_storage_and_stride", steps)
        done.verdicts["windows__test"].passed

``python -m helpers.classroom.bench`` is the other side: a notebook's steps a line in, its events a line each out.
"""

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.classroom.settings import ONE_THREAD, ROOT

#: bytes of memory of the judge, and of all that a submission runs; processes that it may have. Looked at twice a second
JUDGE_BYTES, SUBMISSION_BYTES, PROCESSES = 6 << 30, 8 << 30, 400
_LOOK_S = 0.5
#: seconds after which a judge that says nothing has hung: more than any request may take
_SILENT_S = 300.0


@dataclass(frozen=True)
class Ruling:
    """Of one test: ``passed``, the words for the student, and why a person should look at it ("": no need)."""

    passed: bool
    text: str
    human: str = ""


@dataclass(frozen=True)
class Done:
    """verdicts: by grade_id. ran: a cell's place → [printed, error, why it was not run or did not end]. seconds: taken."""

    verdicts: dict[str, Ruling]
    ran: dict[int, list[Any]]
    seconds: float


class Bench:
    """A judge and its sandbox, kept warm from one notebook to the next; made anew when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def grade(self, lesson: str, steps: Sequence[Any]) -> Done:
        """lesson: its folder's name; steps: of :class:`helpers.classroom.step.Step`.

        Raises RuntimeError if the judge cannot be started.
        """
        began = time.monotonic()
        rulings: dict[str, Ruling] = {}
        skip: dict[str, str] = {}
        tests = [step for step in steps if step.role in ("test", "hidden")]
        for _ in range(
            len(tests) + 2
        ):  # each death of the judge settles a test; two more may have other causes
            testing = ""
            for event in self._events(lesson, [dataclasses.asdict(step) for step in steps], skip):
                if "ran" in event:
                    ran = {int(place): what for place, what in event["ran"].items()}
                    return Done(rulings, ran, time.monotonic() - began)
                if "verdict" in event:
                    rulings.setdefault(event["verdict"], Ruling(event["passed"], event["text"]))
                testing = event.get("testing", "")
            why = self._end_of_judge()
            if testing:
                skip[testing] = f"the answer could not be compared: the grader's process {why}."
                rulings[testing] = Ruling(
                    False, skip[testing], f"the judge {why} while it compared this answer"
                )
        raise RuntimeError(f"the judge ends on every attempt ({why})")

    def end(self) -> None:
        """End the judge, its sandbox, and what runs in it."""
        if self._process is not None:
            # the sandbox dies with its parent (bwrap --die-with-parent)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._rest, self._killed = b"", ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "helpers.classroom.bench"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | ONE_THREAD,
            start_new_session=True,
        )
        return self._process

    def _events(
        self, lesson: str, steps: list[dict[str, Any]], skip: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        """What the judge says of a notebook, until it is done or has ended."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"lesson": lesson, "steps": steps, "skip": skip}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(_LOOK_S):
                    self._look(process.pid, time.monotonic() - heard)
                    continue
                heard = time.monotonic()
                chunk = os.read(process.stdout.fileno(), 1 << 20)
                if not chunk:
                    return
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                yield from map(json.loads, lines)

    def _look(self, pid: int, silent_s: float) -> None:
        """End what has grown too large or has hung; the reason is kept for who asks how the judge ended."""
        import psutil

        try:
            judge = psutil.Process(pid)
            if judge.memory_info().rss > JUDGE_BYTES:
                self._killed = f"needed more than {JUDGE_BYTES >> 30} GB of memory"
            elif silent_s > _SILENT_S:
                self._killed = f"did not end within {_SILENT_S:.0f} s"
            if self._killed:
                return judge.kill()
            for sandbox in judge.children():
                inside = sandbox.children(recursive=True)
                rss = sum(p.memory_info().rss for p in inside if p.is_running())
                if rss > SUBMISSION_BYTES or len(inside) > PROCESSES:
                    sandbox.kill()  # and with it all that is inside; the judge starts another
        except psutil.Error:
            pass  # it has ended meanwhile
        return None

    def _end_of_judge(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        reason = self._killed or (f"ended by signal {-code}" if code < 0 else f"ended with status {code}")
        self.end()
        return reason


def main() -> None:
    """Answer until stdin closes, or nobody listens any more."""
    with contextlib.suppress(BrokenPipeError):
        _answer()


def _answer() -> None:
    from helpers.classroom.engine import grade
    from helpers.classroom.sandbox import Warm, require
    from helpers.classroom.step import Step

    requests, sys.stdin = sys.stdin, open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as this process
    # what a test prints, in Python or in native code, must not come between the events
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with Warm(sandboxed=require()) as warm:
        for line in requests:
            request = json.loads(line)
            for event in grade(
                warm, [Step(**step) for step in request["steps"]], request["lesson"], request["skip"]
            ):
                print(json.dumps(event), file=out, flush=True)


if __name__ == "__main__":
    main()
