"""The judge as a process of its own: what it dies of or swells from costs one exercise of one submission.

    with Bench() as bench:
        done = bench.grade("01_storage_and_stride", steps)
        done.verdicts["windows__test"].passed

``python -m helpers.classroom.bench FD`` is the other side: a notebook's steps come through that socket, its events go back,
a message of JSON each.
"""

import contextlib
import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from helpers.classroom.settings import ONE_THREAD, ROOT
from helpers.classroom.step import Step, Verdict
from helpers.ranks.starting import NO_GPU

#: bytes of memory of the judge, and of all that a submission runs; processes that it may have. Looked at twice a second
JUDGE_BYTES, SUBMISSION_BYTES, PROCESSES = 6 << 30, 8 << 30, 400
_LOOK_S = 0.5
#: seconds after which a judge that says nothing has hung: more than any request may take
_SILENT_S = 300.0
#: times that a judge may end over one notebook, and seconds after which it gets no further one: who comes next is waiting
_MOST_ENDS, _LONGEST_S = 8, 1200.0


@dataclass(frozen=True)
class Done:
    """verdicts: by grade_id. ran: a cell's place → [printed, error, why it was not run or did not end]. seconds: taken."""

    verdicts: dict[str, Verdict]
    ran: dict[int, list[Any]]
    seconds: float


class Bench:
    """A judge and its sandbox, kept warm from one notebook to the next; made anew when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def grade(self, lesson: str, steps: Sequence[Step]) -> Done:
        """lesson: its folder's name.

        Raises RuntimeError if the judge ends before any test, twice.
        """
        began = time.monotonic()
        verdicts: dict[str, Verdict] = {}
        skip: dict[str, str] = {}
        died = set[str]()
        tests = [step for step in steps if step.role in ("test", "hidden")]
        # each second death of the judge settles a test, or ends it all where it was at none
        for _ in range(_MOST_ENDS):
            testing = ""
            for event in self._events(lesson, [dataclasses.asdict(step) for step in steps], skip):
                if "ran" in event:
                    ran = {int(place): what for place, what in event["ran"].items()}
                    return Done(verdicts, ran, time.monotonic() - began)
                if "verdict" in event:
                    verdicts.setdefault(event.pop("verdict"), Verdict(**event))
                elif "doubt" in event:
                    before = verdicts[event["doubt"]]
                    text = f"{before.text}\n{event['text']}"
                    verdicts[event["doubt"]] = Verdict(before.passed, text, event["text"])
                testing = event.get("testing", "")
            why = self._end_of_judge()
            if testing in died and testing:
                skip[testing] = f"the answer could not be compared: the grader's process {why}."
                verdicts[testing] = Verdict(
                    False, skip[testing], f"{testing}: the judge {why} while it compared this answer, twice"
                )
            elif testing in died:
                raise RuntimeError(f"the judge {why} at no test, twice: is it this notebook, or the machine?")
            died.add(testing)
            if time.monotonic() - began > _LONGEST_S:
                break
        text = f"the answer was not judged: with this notebook the grader's process {why}, again and again."
        human = "it was not judged: the judge ended too often over this notebook"
        for test in tests:
            verdicts.setdefault(test.grade_id, Verdict(False, text, f"{test.grade_id}: {human}"))
        return Done(verdicts, {}, time.monotonic() - began)

    def end(self) -> None:
        """End the judge, its sandbox, and what runs in it."""
        if self._process is not None:
            # the sandbox dies with its parent (bwrap --die-with-parent)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._judge.close()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._killed = ""
        self._judge, other = Pipe()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "helpers.classroom.bench", str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                cwd=ROOT,
                env=os.environ | ONE_THREAD | NO_GPU,
                start_new_session=True,
            )
        return self._process

    def _events(
        self, lesson: str, steps: list[dict[str, Any]], skip: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        """What the judge says of a notebook, until it is done or has ended."""
        process = self._process or self._start()
        with contextlib.suppress(EOFError, OSError):  # it has ended
            self._judge.send_bytes(json.dumps({"lesson": lesson, "steps": steps, "skip": skip}).encode())
            while True:
                heard = time.monotonic()
                while not self._judge.poll(_LOOK_S):
                    self._look(process.pid, time.monotonic() - heard)
                yield json.loads(self._judge.recv_bytes())

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


def main(asked: Connection) -> None:
    """Answer until nobody asks, or listens, any more."""
    from helpers.classroom.engine import grade
    from helpers.classroom.sandbox import Warm, require

    gc.freeze()  # a collection passes over what is loaded here
    with contextlib.suppress(EOFError, ConnectionError), Warm(sandboxed=require()) as warm:
        while True:
            request = json.loads(asked.recv_bytes())
            steps = [Step(**step) for step in request["steps"]]
            for event in grade(warm, steps, request["lesson"], request["skip"]):
                # half a surrogate pair, which an answer may raise, print or return, can stand in no notebook: here it becomes "?"
                asked.send_bytes(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
    os._exit(0)  # taking torch down takes a moment, and Triton complains of what gc.freeze has kept
