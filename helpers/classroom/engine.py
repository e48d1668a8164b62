"""What grading does with one clean notebook: run its cells in order, judge its tests, start again after what ended it.

Cells run in a child of :class:`helpers.classroom.sandbox.Warm`. A test cell does not: it runs here, in the judge's
process, and asks the child for values and counts as plain data.
"""

import dataclasses
import re
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from helpers.check.cells import (
    answered,
    as_run,
    bound,
    changed,
    futures,
    gone,
    needs,
    not_run,
    own_part,
    reads,
)
from helpers.check.machine_fault import NOT_YOURS
from helpers.check.recount import differs
from helpers.check.screen import opened, screen
from helpers.classroom.judging import judge
from helpers.classroom.sandbox import Warm
from helpers.classroom.settings import exercises_of
from helpers.classroom.step import Step, Verdict
from helpers.classroom.zygote import CPU_S, KEPT, TooLarge, receive, send
from helpers.lesson.earlier import handed_out

#: seconds that a cell or a request of a test may take, and all of a submission. Processor time is capped before
#: (`zygote.CPU_S`): these end what waits, and are far above what a busy machine takes
CELL_S, NOTEBOOK_S = 120.0, 900.0
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
#: roles of cells that a student has written, and of those that an answer may need
_OWN = ("exercise", "added")
_MAKERS = (*_OWN, "experiment")
_ENDED = "the process ended before it answered"
_OF_THE_MACHINE = "the machine failed, not the answer: its text says what to do, then grade it with --again"
#: signals that a process gets for what it does, and for nothing that a neighbour or the machine's lack of memory does
_ITS_OWN = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGFPE)
_RANKS = re.compile(r"^(from|import) .*\b_?ranks\b", re.MULTILINE)


@dataclass
class Ran:
    """What a cell printed, its error as (type, text, traceback), why it was not run or did not end ("": it did), and why a
    person should look at that."""

    printed: str = ""
    error: tuple[str, str, str] | None = None
    ended: str = ""
    human: str = ""


@dataclass
class Learner:
    """The side of the learner's code: one child at a time, and the cells that a new one has to run first."""

    warm: Warm
    until: float  # time.monotonic()
    cells: list[Step] = field(default_factory=list)
    #: by place; of a cell that was run again, the last time
    ran: dict[int, Ran] = field(default_factory=dict)
    flags: dict[int, int] = field(default_factory=dict)  # by place, what the compiler has of the cells above
    timeouts: int = 0
    ranks: bool = False  # tests run ranks, which are forked from a server
    # of a test; to be recounted
    requests: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    twice: bool = True  # what passed is counted twice
    apart: bool = False  # a copy of the child answers, which ends with its exercise
    _connection: socket.socket | None = None
    _died: int | None = None

    def died(self) -> int | None:
        """How a child ended before it answered, since this was asked last: its status, or minus its signal."""
        code, self._died = self._died, None
        return code

    def run(self, step: Step) -> None:
        """Run a cell. One that does not end, or ends the process, is left out from now on."""
        if self._connection is None:
            self._begin()
        self.died()
        self._run(step)
        if (first := self.died()) is not None:
            self.anew()
            self._begin()
            self._run(step)
            if (second := self.died()) is not None:
                self.ran[step.place].ended, self.ran[step.place].human = _twice(first, second)
        self.cells.append(step)
        if self._connection is None:
            self._begin()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A transport for :func:`helpers.check.through`."""
        if self._connection is None:
            self._begin()
        if not self.apart:
            reply = self._exchange({"apart": True, "looked": True})
            if reply.get("broken"):
                return reply
            self.apart = True
        reply = self._exchange({"ask": request, "looked": True})
        if reply.get("missing") and (why := self._why_missing(request["name"])):
            return {"broken": why}
        if reply.get("broken"):
            self.leave()  # what has changed there, or swollen, is not for the next exercise
        return reply

    def recount(self) -> Iterator[dict[str, Any]]:
        """What passed, counted by other means, in a fresh copy: {"doubt": grade_id, "text": both counts} where they differ."""
        self.leave()
        doubted = set[str]()
        for grade_id, request, reply in self.requests:
            if grade_id not in doubted and (text := self._again(request, reply["reports"])):
                doubted.add(grade_id)
                yield {"doubt": grade_id, "text": f"counted once more, it is not the same: {text}"[:KEPT]}
        self.requests = []
        self.leave()

    def _again(self, request: dict[str, Any], reports: list[Any]) -> str:
        """Both counts of a request, where they differ; "" where they do not, or none of its calls returned."""
        try:  # the other side may say anything
            kept = [i for i, report in enumerate(reports) if report["error"] is None]
            if not kept:
                return ""
            cases = [request["cases"][i] for i in kept]
            said = self.ask(request | {"cases": cases, "again": True})
            if "again" not in said:
                return str(said.get("broken", said))
            return differs([reports[i] for i in kept], said["again"])
        except Exception as odd:
            return f"what came back has not the agreed form ({type(odd).__name__})"

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

    def close(self) -> int:
        """End the child, and the copy of it that answers; how it had ended: its status, or minus its signal."""
        self.apart = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        return self.warm.sweep()

    def anew(self) -> None:
        """What comes next runs in a sandbox in which nobody was before."""
        self.close()
        self.warm.end()

    def _begin(self) -> None:
        while self._connection is None:
            self._connection = self.warm.fork()
            if self.ranks:
                self._exchange({"ranks": True})
            for step in self.cells:
                if self._connection is not None and not self.ran[step.place].ended:
                    self._run(step)
                    if (ran := self.ran[step.place]).ended == _ENDED:
                        ran.human = "a cell that had run ended its process when it was run again"

    def _run(self, step: Step) -> None:
        # what the course's own cells change is meant; and of one that is run again, it was looked at the first time
        looked = step.role in ("setup", "experiment") or step.place in self.ran
        at = {
            "place": f"<cell {step.place}>",
            "flags": self.flags.get(step.place, 0),
            "own": step.role in _OWN,
        }
        reply = self._exchange({"run": step.source, "looked": looked} | at)
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
        died: Any = None
        ours = True  # what came is what a child of ours says, or nothing
        try:
            send(self._connection, message)
            reply = receive(self._connection)
            if isinstance(reply, dict) and "died" not in reply:
                return reply
            if isinstance(reply, dict):
                self.apart, died = False, reply["died"]
                ours = type(died) is int and abs(died) < 128
        except TimeoutError:
            self.timeouts += 1  # of who has waited so long for nothing, the next gets half of it
            self.close()
            return {"broken": f"no answer within {seconds:.0f} s"}
        except TooLarge as odd:
            self.close()
            return {"broken": f"its answer is too large ({odd})"}
        except OSError:
            pass
        except (ValueError, RecursionError):
            ours = False
        code = self.close()
        if not ours:  # it is ended here, even where it was the quicker one and left by itself
            code = -signal.SIGKILL
        elif died is not None:
            code = died
        if code == -signal.SIGXCPU:
            return {"broken": f"it took more than {CPU_S} s of processor time"}
        self._died = code
        return {"broken": _ENDED}

    def _why_missing(self, name: str) -> str:
        failed = [(step, self.ran[step.place]) for step in self.cells]
        for step, ran in reversed(failed):
            why = ran.ended or (f"{ran.error[0]}: {ran.error[1]}" if ran.error else "")
            if why and (name in bound(step.source) or step.role != "added"):
                return f"the cell that should define {name!r} failed: {why}"
        return ""


def grade(
    warm: Warm, steps: list[Step], lesson: str, skip: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Events, as they happen: {"testing": grade_id}, {"verdict": grade_id, "passed", "text", "human"}, {"doubt": grade_id,
    "text"} of one that passed and needs a person, and at the end {"ran": {place: [printed, error, why it was not run or did
    not end]}}.

    lesson: its folder's name. skip: tests that ended the judge before, and what to say of them.
    """
    learner = Learner(warm, time.monotonic() + NOTEBOOK_S, ranks=_uses_ranks(lesson))
    # the compiler runs operators of its own, which no counter sees
    learner.twice = "torch.compile" not in opened(lesson)
    by_ipython = answered(step.source for step in steps if step.role in _OWN)
    steps = [
        step if step.role in ("test", "hidden") else replace(step, source=as_run(step.source))
        for step in steps
    ]
    flags = 0
    for step in steps:  # also of a cell that is passed over, since the notebook's kernel has run it
        learner.flags[step.place] = flags
        flags |= futures(step.source) if step.role in _OWN else 0
    refused: dict[int, str] = {}
    hidden = False
    try:
        for step in in_order(steps):
            if step.role not in ("test", "hidden") or (hidden and step.role == "test"):
                yield from learner.recount()
                learner.leave()  # what it has seen of hidden inputs, a later cell could print, or a visible test quote
            hidden = step.role == "hidden"
            if step.role not in ("test", "hidden"):
                earlier = [cell.source for cell in learner.cells]
                own = [cell.source for cell in learner.cells if cell.role in _OWN]
                source = own_part(step.source, handed_out(lesson)) if step.role == "added" else step.source
                if step.role in _OWN and (why := screen(source, lesson, earlier, own)):
                    refused[step.place] = why
                    learner.ran[step.place] = Ran(ended=why)
                else:
                    learner.run(step)
                continue
            yield {"testing": step.grade_id}
            text = _refused(step, steps, refused, by_ipython) or (skip or {}).get(step.grade_id)
            verdict = Verdict(False, text) if text else _verdict(step, learner, steps, refused)
            yield {"verdict": step.grade_id} | dataclasses.asdict(verdict)
        yield from learner.recount()
        yield {
            "ran": {
                place: [ran.printed, list(ran.error) if ran.error else None, ran.ended]
                for place, ran in learner.ran.items()
            }
        }
    finally:
        learner.close()


def _refused(
    test: Step, steps: list[Step], refused: dict[int, str], by_ipython: frozenset[str]
) -> str | None:
    """Why the answer to a test is not looked at: the screen refused its cell, or one that this needs; or these read what IPython
    alone makes."""
    cells = [step for step in steps if step.role in _OWN]
    at = next((i for i, s in enumerate(cells) if s.role == "exercise" and s.exercise == test.exercise), None)
    if at is None:
        return None
    if why := refused.get(cells[at].place):
        return why
    sources = [step.source for step in cells]
    needed = needs(at, sources, _ours(steps))
    for i, name in needed.items():
        if why := refused.get(cells[i].place):
            return not_run(name, why)
    every = [step.source for step in steps if step.role not in ("test", "hidden")]
    return next((why for i in (at, *needed) if (why := gone(sources[i], every, by_ipython))), None)


def _verdict(step: Step, learner: Learner, steps: list[Step], refused: dict[int, str]) -> Verdict:
    """A test's verdict. That a process ended before it answered is none: what a fresh sandbox says counts."""
    learner.died()
    verdict = _judged(step, learner, steps, refused)
    if (first := learner.died()) is not None:
        learner.anew()
        verdict = _judged(step, learner, steps, refused)
        if (second := learner.died()) is not None:
            text, human = _twice(first, second)
            verdict = Verdict(
                False, verdict.text.replace(_ENDED, text) if _ENDED in verdict.text else text, human
            )
    human = verdict.human or next((ran.human for ran in learner.ran.values() if ran.human), "")
    return verdict if verdict.passed or not human else replace(verdict, human=f"{step.grade_id}: {human}")


def _twice(first: int, second: int) -> tuple[str, str]:
    """Of a process that ended twice before it answered: what is said, and why a person should look ("": no need).

    Who ends both times in the same way, by his own exit or for what his code did, alone in a fresh sandbox, has shown it.
    """
    names = {-number: number.name for number in signal.Signals}
    ways = [names.get(code, f"status {code}" if code >= 0 else f"signal {-code}") for code in (first, second)]
    said = f"its process ended before it answered ({ways[0]}), and again alone in a fresh sandbox ({ways[1]})"
    its_own = first == second and (first >= 0 or first in _ITS_OWN)
    return said, "" if its_own else f"{said}: is it the answer, or the machine?"


def _judged(step: Step, learner: Learner, steps: list[Step], refused: dict[int, str]) -> Verdict:
    asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    added = [refused[s.place] for s in steps if s.role == "added" and s.place in refused]

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        reply = learner.ask(request)
        if "reports" in reply:
            asked.append((step.grade_id, request, reply))
        if reply.get("missing") and added:
            return {"broken": f"a cell before this one was not run: {added[-1]}"}
        return reply

    verdict = judge(step.source, step.grade_id, ask)
    if not verdict.passed:
        text = verdict.text + _why_undefined(verdict.text, learner, steps)
        return Verdict(False, text, _OF_THE_MACHINE if NOT_YOURS in verdict.text else "")
    # looked at once a test, and of one that passed: it costs as much as many an answer
    if why := learner.changed():
        return Verdict(False, why)
    if learner.twice:
        learner.requests += asked
    return verdict


def _why_undefined(text: str, learner: Learner, steps: list[Step]) -> str:
    """One more line where an answer misses a name: what became of the cell that makes it."""
    name = _UNDEFINED.search(text)
    makers = [s for s in steps if name and s.role in _MAKERS and name[1] in bound(s.source)]
    if name is None or not makers:
        return ""
    ran = learner.ran.get(makers[-1].place)
    why = "was not run" if ran is None else f"failed: {ran.ended or (ran.error or ('', ''))[1]}"
    return f"\n  the cell that makes {name[1]!r} {why}" if ran is None or ran.ended or ran.error else ""


@cache
def _uses_ranks(lesson: str) -> bool:
    """Whether what a lesson's tests share imports `helpers.ranks`. Elsewhere an answer's own ranks take longer to begin."""
    tests = exercises_of(lesson)
    return tests.exists() and bool(_RANKS.search(tests.read_text(encoding="utf-8")))


def in_order(steps: list[Step]) -> list[Step]:
    """The steps that count, in the order in which they are run.

    A cell that the learner added or changed counts if an exercise reads a name that it makes and the course does not, or
    whose thing it changes; or if it does so with what an exercise is tested by, before the last of those tests. So does an
    experiment of the course's for the names that it makes. It runs where it stands, or before the first cell that reads
    it; one that stands below the exercise's tests only for names that none above them makes: what a student tried there
    later was not so when the tests were run. All others are passed over: whether they fail or hang is nobody's loss.
    """
    read = {s.place: reads(s.source) for s in steps if s.role not in ("test", "hidden")}
    made = {place: bound(s.source) for s in steps if (place := s.place) in read}
    made |= {s.place: made[s.place] | changed(s.source) for s in steps if s.role == "added"}
    ours = _ours(steps)
    answers = [step for step in steps if step.role == "exercise"]
    extra = [step for step in steps if step.role in ("added", "experiment")]
    # below the visible test nothing is as it was when that was run, though a hidden one may come behind it
    last_test = {
        step.exercise: step.place for role in ("hidden", "test") for step in steps if step.role == role
    }

    needed: dict[int, int] = {}  # such a cell's place → before which place it runs
    for answer in answers:
        for step in extra:
            again = step.role == "added" and made[step.place] & made[answer.place]
            if again and answer.place < step.place < last_test.get(answer.exercise, -1):
                needed[step.place] = step.place
    # a cell that reads, before which place it runs, and the last of the tests that it is for
    readers = [(s.place, s.place, last_test.get(s.exercise, s.place)) for s in answers]
    readers += [(place, place, place) for place in needed]
    while readers:
        place, before, until = readers.pop()
        wanted = read[place] - ours
        above = frozenset().union(*(made[s.place] for s in extra if s.place < until and s.place != place))
        for step in extra:
            names = made[step.place] & (wanted if step.place < until else wanted - above)
            if step.place != place and names and before < needed.get(step.place, before + 1):
                needed[step.place] = min(step.place, before)
                readers.append((step.place, needed[step.place], until))
    counted = [step for step in steps if step not in extra or step.place in needed]
    # of two that run before the same cell, the one that stands first runs first
    return sorted(
        counted, key=lambda step: (needed.get(step.place, step.place), step.place not in needed, step.place)
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _ours(steps: list[Step]) -> frozenset[str]:
    """The names that the course's set-up makes."""
    return frozenset().union(*(bound(step.source) for step in steps if step.role == "setup"))
