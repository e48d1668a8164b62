"""What grading does with one clean notebook: run its cells in order, judge its tests, start again after what ended it.

Cells run in a child of :class:`helpers.classroom.sandbox.Warm`. A test cell does not: it runs here, in the judge's
process, and asks the child for values and counts as plain data.
"""

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from helpers.check.screen import screen
from helpers.classroom.judging import Verdict, judge
from helpers.classroom.master import names
from helpers.classroom.sandbox import Warm
from helpers.classroom.settings import ROOT
from helpers.classroom.step import Step
from helpers.classroom.zygote import KEPT, TooLarge, receive, send

#: seconds that a cell or a request of a test may take, and all of a submission. Processor time is capped before
#: (`zygote.CPU_S`): these end what waits, and are far above what a busy machine takes
CELL_S, NOTEBOOK_S = 120.0, 900.0
_ENDED = "the process ended before it answered"
_RANKS = re.compile(r"^(from|import) .*\b_?ranks\b", re.MULTILINE)


@dataclass
class Ran:
    """What a cell printed, its error as (type, text, traceback), and why it was not run or did not end ("": it did)."""

    printed: str = ""
    error: tuple[str, str, str] | None = None
    ended: str = ""


@dataclass
class Learner:
    """The side of the learner's code: one child at a time, and the cells that a new one has to run first."""

    warm: Warm
    until: float  # time.monotonic()
    cells: list[Step] = field(default_factory=list)
    #: by place; of a cell that was run again, the last time
    ran: dict[int, Ran] = field(default_factory=dict)
    timeouts: int = 0
    ranks: bool = False  # tests run ranks, which are forked from a server
    apart: bool = False  # a copy of the child answers, which ends with its exercise
    _connection: socket.socket | None = None

    def run(self, step: Step) -> None:
        """Run a cell. One that does not end, or ends the process, is left out from now on."""
        if self._connection is None:
            self._begin()
        self._run(step)
        self.cells.append(step)
        if self._connection is None:
            self._begin()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A transport for :func:`helpers.check.through`."""
        if self._connection is None:
            self._begin()
        if not self.apart:
            self.apart = not self._exchange({"apart": True, "looked": True}).get("broken")
        reply = self._exchange({"ask": request, "looked": True})
        if reply.get("missing") and (why := self._why_missing(request["name"])):
            return {"broken": why}
        if reply.get("broken"):
            self.leave()  # what has changed there, or swollen, is not for the next exercise
        return reply

    def changed(self) -> str:
        """What the answers of a test have changed that others use too, where nobody may; "" if all is as it was."""
        if self._connection is None or not (why := str(self._exchange({}).get("broken", ""))):
            return ""
        self.leave()
        return why

    def leave(self) -> None:
        """End the copy that answers: the child goes on, and knows nothing of what the copy was asked."""
        if self.apart and self._connection is not None:
            self._exchange({"back": True})
        self.apart = False

    def close(self) -> None:
        """End the child, and the copy of it that answers."""
        self.apart = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.warm.sweep()

    def _begin(self) -> None:
        while self._connection is None:
            self._connection = self.warm.fork()
            if self.ranks:
                self._exchange({"ranks": True})
            for step in self.cells:
                if self._connection is not None and not self.ran[step.place].ended:
                    self._run(step)

    def _run(self, step: Step) -> None:
        # what the course's own cells change is meant; and of one that is run again, it was looked at the first time
        looked = step.role == "setup" or step.place in self.ran
        reply = self._exchange({"run": step.source, "place": f"<cell {step.place}>", "looked": looked})
        # the other side may say anything: three short texts are kept, and none of another type or length
        kind, text, lines = [str(part)[:KEPT] for part in [*_listed(reply.get("error")), "", "", ""][:3]]
        self.ran[step.place] = Ran(
            str(reply.get("printed", ""))[:KEPT],
            (kind, text, lines) if reply.get("error") else None,
            str(reply.get("broken", ""))[:KEPT],
        )
        if reply.get("broken"):
            self.close()

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reply, or {"broken": why} when there is none; then the child has ended."""
        seconds = min(CELL_S / 2**self.timeouts, self.until - time.monotonic())
        if self._connection is None or seconds <= 0:
            return {"broken": f"the notebook as a whole took more than {NOTEBOOK_S:.0f} s"}
        self._connection.settimeout(seconds)
        try:
            send(self._connection, message)
            reply = receive(self._connection)
            if isinstance(reply, dict) and "died" in reply:
                self.apart = False
                return {"broken": _ENDED}
            if isinstance(reply, dict):
                return reply
            broken = _ENDED
        except TimeoutError:
            broken = f"no answer within {seconds:.0f} s"
            self.timeouts += 1  # of who has waited so long for nothing, the next gets half of it
        except TooLarge as odd:
            broken = f"its answer is too large ({odd})"
        except (OSError, ValueError, RecursionError):
            broken = _ENDED
        self.close()
        return {"broken": broken}

    def _why_missing(self, name: str) -> str:
        failed = [(step, self.ran[step.place]) for step in self.cells]
        for step, ran in reversed(failed):
            why = ran.ended or (f"{ran.error[0]}: {ran.error[1]}" if ran.error else "")
            if why and (name in _names(step.source)[1] or step.role != "added"):
                return f"the cell that should define {name!r} failed: {why}"
        return ""


def grade(
    warm: Warm, steps: list[Step], lesson: str, skip: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Events, as they happen: {"testing": grade_id}, {"verdict": grade_id, "passed", "text"}, and at the end
    {"ran": {place: [printed, error, why it was not run or did not end]}}.

    lesson: its folder's name. skip: tests that ended the judge before, and what to say of them.
    """
    learner = Learner(warm, time.monotonic() + NOTEBOOK_S, ranks=_uses_ranks(lesson))
    refused: dict[str, str] = {}
    hidden = False
    try:
        for step in in_order(steps):
            if step.role not in ("test", "hidden") or (hidden and step.role == "test"):
                learner.leave()  # what it has seen of hidden inputs, a later cell could print, or a visible test quote
            hidden = step.role == "hidden"
            if step.role not in ("test", "hidden"):
                earlier = [cell.source for cell in learner.cells]
                if step.role != "setup" and (why := screen(step.source, lesson, earlier)):
                    refused[step.exercise if step.role == "exercise" else ""] = why
                    learner.ran[step.place] = Ran(ended=why)
                else:
                    learner.run(step)
                continue
            yield {"testing": step.grade_id}
            verdict = _verdict(step, learner, refused, skip or {})
            yield {"verdict": step.grade_id, "passed": verdict.passed, "text": verdict.text}
        yield {
            "ran": {
                place: [ran.printed, list(ran.error) if ran.error else None, ran.ended]
                for place, ran in learner.ran.items()
            }
        }
    finally:
        learner.close()


def _verdict(step: Step, learner: Learner, refused: dict[str, str], skip: dict[str, str]) -> Verdict:
    if why := refused.get(step.exercise) or skip.get(step.grade_id):
        return Verdict(False, why)

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        reply = learner.ask(request)
        if reply.get("missing") and "" in refused:
            return {"broken": f"a cell before this one was not run: {refused['']}"}
        return reply

    verdict = judge(step.source, step.grade_id, ask)
    # looked at once a test, and of one that passed: it costs as much as many an answer
    return Verdict(False, why) if verdict.passed and (why := learner.changed()) else verdict


@cache
def _uses_ranks(lesson: str) -> bool:
    """Whether what a lesson's tests share imports `helpers.ranks`. Elsewhere an answer's own ranks take longer to begin."""
    found = ROOT / "helpers" / "lessons" / lesson[3:] / "exercises.py"
    return found.exists() and bool(_RANKS.search(found.read_text(encoding="utf-8")))


def in_order(steps: list[Step]) -> list[Step]:
    """The steps that count, in the order in which they are run.

    A cell that the learner added counts if an exercise reads a name that it makes and the course does not, or if it makes
    anew what an exercise is tested by, before the last of those tests. It runs where it stands, or before the first
    cell that reads it. All others are passed over: whether they fail or hang is nobody's loss.
    """
    made = {step.place: _names(step.source) for step in steps if step.role not in ("test", "hidden")}
    ours = {name for step in steps if step.role == "setup" for name in made[step.place][1]}
    answers = [step for step in steps if step.role == "exercise"]
    added = [step for step in steps if step.role == "added"]
    last_test = {step.exercise: step.place for step in steps if step.role in ("test", "hidden")}

    needed: dict[int, int] = {}  # an added cell's place → before which place it runs
    for answer in answers:
        for step in added:
            again = made[step.place][1] & made[answer.place][1]
            if again and answer.place < step.place < last_test.get(answer.exercise, -1):
                needed[step.place] = step.place
    readers = [(step.place, step.place) for step in answers] + list(needed.items())
    while readers:
        place, before = readers.pop()
        for step in added:
            wanted = made[step.place][1] & made[place][0] - ours
            if wanted and before < needed.get(step.place, before + 1):
                needed[step.place] = min(step.place, before) if step.place > before else step.place
                readers.append((step.place, needed[step.place]))
    counted = [step for step in steps if step.role != "added" or step.place in needed]
    # of two that run before the same cell, the one that stands first runs first
    return sorted(
        counted, key=lambda step: (needed.get(step.place, step.place), step.place not in needed, step.place)
    )


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _names(source: str) -> tuple[set[str], set[str]]:
    """(names that a cell reads, names that it makes); none of what is not Python."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return names(source)
    return set(), set()
