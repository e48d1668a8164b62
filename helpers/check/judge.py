"""Ask for the learner's values and counters, compare, and say what was measured and what was wanted."""

import contextvars
import dataclasses
import functools
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import torch

from helpers.check.cells import as_run, bound, gone, needs, not_run, own_part
from helpers.check.compare import brief, difference
from helpers.check.data import decode, encode
from helpers.check.machine_fault import NOT_YOURS, machine_fault, machine_fault_of
from helpers.check.screen import screen
from helpers.lesson.earlier import handed_out, visible_tests
from helpers.lesson.predictions import spelled
from helpers.progress import current, record
from helpers.text.terminal import printable

Transport = Callable[[dict[str, Any]], dict[str, Any]]

P = ParamSpec("P")

_NOT_WRITTEN = "not written yet"
#: set where a failure has to be an error: nbgrader grades or validates, the course is built
_VALIDATED = {"NBGRADER_EXECUTION", "COURSE_BUILD"}

_transport: contextvars.ContextVar[Transport | None] = contextvars.ContextVar("transport", default=None)


class CheckFailed(AssertionError):
    """A test did not pass. Its text says what was measured, what was wanted and where to look."""

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a stack that holds nothing of the learner's
        return ["✗ " + str(self)]


class NotWritten(CheckFailed):
    """There is no answer yet: the cell is as the lesson came."""


@dataclass(frozen=True)
class Case:
    """One call: its inputs, and the exception class that it should raise (``None``: it returns)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    raises: type[BaseException] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Match:
    """How a result is compared with the one expected, beside its values.

    rtol, atol: tolerances (default: those of torch.testing, by dtype). grads: compare ``.grad`` of the inputs too, for
    fixed random gradients of the outputs. view_of: the result shares the storage of the positional input of this
    index. contiguous: it is a contiguous tensor. unchanged: the inputs hold the same numbers afterwards.
    """

    rtol: float | None = None
    atol: float | None = None
    grads: bool = False
    view_of: int | None = None
    contiguous: bool = False
    unchanged: bool = True


@dataclass
class Report:
    """What one call did: ``value``, ``counts`` (see :class:`helpers.counters.Counts`), ``error``; plain data all.

    case: what the test gave for this call, a :class:`Case` or a dataclass of its own.
    """

    case: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    counts: dict[str, Any]
    error: dict[str, Any] | None
    grads: list[Any] | None
    raw: dict[str, Any]


def case(*args: Any, raises: type[BaseException] | None = None, seed: int = 0, **kwargs: Any) -> Case:
    """Inputs for one call. ``seed``: what Python, NumPy and torch are seeded with before the call."""
    return Case(args, kwargs, raises, seed)


@contextmanager
def through(transport: Transport) -> Iterator[None]:
    """Within this block, tests reach the learner's code through ``transport`` (request → reply, JSON-able both)."""
    token = _transport.set(transport)
    try:
        yield
    finally:
        _transport.reset(token)


def _here(request: dict[str, Any]) -> dict[str, Any]:
    """The transport of a learner's own kernel: the notebook's names are those of ``__main__``."""
    from helpers.check import probe

    notebook = vars(sys.modules["__main__"])
    if why := refused(request["name"], notebook, current()):
        return {"broken": why}
    return probe.answer(request, notebook)


def refused(name: str, notebook: Mapping[str, Any], lesson: str | None) -> str | None:
    """What grading would refuse of ``name``: the cell that was run last of those that make it, or one that this needs.

    notebook: the names of a kernel, IPython's history (``_ih``) among them.
    """
    cells = [as_run(str(source)) for source in notebook.get("_ih", ())]
    at = next((i for i in reversed(range(len(cells))) if name in bound(cells[i])), None)
    if at is None:
        return None
    given = handed_out(lesson) if lesson else {}
    own = [own_part(cell, given) for cell in cells]
    if why := screen(cells[at], lesson, cells, own):
        return why
    if not given:  # which cells are the course's own, nothing here tells
        return None
    ours = frozenset().union(*(bound(text) for text, kind in given.items() if kind == "setup"))
    needed = needs(at, cells, ours)
    for place, made in needed.items():
        if "lesson.start(" not in own[place] and (why := screen(own[place], lesson, cells, own)):
            return not_run(made, why)
    return next((why for place in (at, *needed) if (why := gone(cells[place], cells, notebook))), None)


def _ask(request: dict[str, Any], look: str) -> dict[str, Any]:
    transport = _transport.get()
    reply = (transport or _here)(request)
    name = request["name"]
    if reply.get("missing"):
        text = f"there is no {name!r} in this notebook yet. Run the cell that defines it, then this one."
        raise _failed(name, text, look)
    if "odd" in reply:
        raise _failed(name, f"{name!r} {reply['odd']}.", look)
    if "broken" in reply:
        raise _failed(name, reply["broken"], look)
    wanted = "value" if request["what"] == "value" else "later" if "filled" in request else "reports"
    if wanted not in reply or (wanted != "value" and len(reply[wanted]) != len(request["cases"])):
        text = "the notebook did not answer in the agreed form: has it replaced json, or the grader?"
        raise _failed(name, text, look)
    return reply


def _failed(name: str, text: str, look: str, note: str = "") -> CheckFailed:
    if NOT_YOURS in text:  # nothing is known about the answer, and nothing is to be read again
        return CheckFailed(_short(text))
    kind = NotWritten if _NOT_WRITTEN in text else CheckFailed
    if _transport.get() is None:
        record(name, passed=None if kind is NotWritten else False)
    lines = [text]
    if note:
        lines.append("  " + note)
    if look:
        lines.append(f"  look again at: {look}")
    return kind(_short("\n".join(lines)))


def _goes_on(check: Callable[P, None]) -> Callable[P, None]:
    """A learner's Run All goes on after an exercise that is not begun: this is printed then, once a cell, not raised."""

    @functools.wraps(check)
    def inside(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            check(*args, **kwargs)
        except NotWritten as found:
            shell: Any = IPython.get_ipython() if (IPython := sys.modules.get("IPython")) else None
            if shell is None or _transport.get() or not _VALIDATED.isdisjoint(os.environ):
                raise
            if shell.user_ns_hidden.get(_NOT_WRITTEN) != shell.execution_count:
                print(f"✗ {found}")
            shell.user_ns_hidden[_NOT_WRITTEN] = shell.execution_count

    return inside


def _short(text: str, most: int = 4_000) -> str:
    text = printable(text)
    return text if len(text) <= most else text[:most] + " …"


def _passed(name: str, text: str) -> None:
    if _transport.get() is None:
        record(name, passed=True)
    print("✓ " + text + _own_test())


def _own_test() -> str:
    """What is said beside a ✓ of a notebook's cell that is not the course's test as it was handed out; "" elsewhere."""
    typed = str(vars(sys.modules["__main__"]).get("_ih", [""])[-1]).strip()
    here = _transport.get() is None and _VALIDATED.isdisjoint(os.environ)
    lesson = current() if here and "helpers.lessons." in typed else None
    tests = visible_tests(lesson) if lesson and "HIDDEN TESTS" not in typed else []
    if not tests or any(test.strip() in typed for test in tests):
        return ""
    return "\n  This cell is not the course's test as it was handed out: that one counts when it is graded."


@_goes_on
def value(name: str, expect: Any, *, look: str = "") -> None:
    """The variable ``name`` holds ``expect`` (plain data, or a function without arguments that returns it).

    For a dict of answers the message counts the right ones and names the wrong keys, without giving the answers away.
    Raises :class:`CheckFailed`.
    """
    want = expect() if callable(expect) else expect
    got = decode(_ask({"what": "value", "name": name}, look)["value"])
    if isinstance(want, dict) and isinstance(got, dict):
        missing = [k for k in want if k not in got or got[k] is None]
        wrong = [k for k in want if k not in missing and difference(spelled(got[k]), spelled(want[k]))]
        later = sum(v is None for k, v in got.items() if k not in want)
        if missing or wrong:
            right = len(want) - len(missing) - len(wrong)
            parts = [
                f"{name}: not written yet."
                if len(missing) == len(want)
                else f"{name}: {right} of {len(want)} right."
            ]
            parts += [f"  no answer for: {', '.join(map(str, missing))}"] if missing else []
            parts += [f"  not so: {', '.join(map(str, wrong))}"] if wrong else []
            raise _failed(name, "\n".join(parts), look)
        others = f"; {later} others not answered yet" if later else ""
        _passed(name, f"{name}: {len(want)} of {len(want)} right{others}")
        return
    if odd := difference(got, want, at=name):
        raise _failed(name, odd + ".", look)
    _passed(name, f"{name} is right")


@_goes_on
def function(
    name: str,
    cases: Sequence[Any],
    expect: Callable[..., Any] | Sequence[Any] | None = None,
    *,
    match: Match = Match(),  # noqa: B008 - frozen
    drive: Callable[..., Any] | None = None,
    budget: dict[str, int] | Callable[..., dict[str, int]] | None = None,
    verify: Callable[[list[Report]], str | None] | None = None,
    call: str = "",
    passed: Callable[[list[Report]], str] | None = None,
    look: str = "",
    note: str = "",
    counters: bool = True,
    once: str = "",
) -> None:
    """Call the learner's function ``name`` on every case, under the counters, and compare.

    cases: of :func:`case`, or instances of a dataclass, whose fields are passed by name.
    expect: the reference, called with the same inputs; or one value a case; or ``None`` (only costs or ``verify``).
    match: tolerances, gradients, and whose storage the result shares.
    drive: ``drive(learner_fn, *inputs)`` runs in the learner's place when one call is not enough (to use a class, to
        call twice) and returns plain data. It is a function of :mod:`helpers.lessons` or :mod:`helpers.check`, or one of the
        test cell that imports what it uses. If it has a parameter ``count``, it is given the grader's own :func:`helpers.count`.
    budget: counter → the most that one case may cost (a field of :class:`helpers.counters.Counts`), or a function of
        the case's inputs that returns this. With ``grads`` the counters cover forward and backward.
    verify: looks at the reports of all calls that should return; says what is wrong, or ``None``. Calls that should raise
        are looked at last.
    call: how messages write the call, where a drive's inputs are none of the learner's function.
    passed: what is said of calls that are right, in place of their number.
    look, note: where to look again, and one more line of help, in the message of a failure.
    counters: False leaves them out, and a report's ``counts`` empty: calls that take seconds take half as many.
    once: why the cases are not called once more (:mod:`helpers.check.once_more`); else they are, if all is right.

    Raises :class:`CheckFailed` with what was measured, what was wanted and what to look at.
    """
    if not cases:
        raise ValueError(f"check.function({name!r}): no cases")
    plain = [_as_case(case) for case in cases]
    if _transport.get() is None:  # references run in this process, too
        from helpers.check.probe import set_otherwise

        if why := set_otherwise():
            raise _failed(name, why, look)
    request, wants = _request(name, plain, expect, match, drive, counters)
    asked = _Asked(name, request, cases, plain, wants, expect is not None, match, verify, call, look)
    reports = asked.reports(_ask(request, look)["reports"])
    for raising in (False, True):  # an answer's values say more of it than an error that it forgets to raise
        some = [i for i, case in enumerate(plain) if (case.raises is not None) == raising]
        for i in some:
            if text := asked.fault(reports[i], i):
                raise _failed(name, f"{asked.called(i)}: {text}", look, note)
            if not raising and budget is not None and (text := _over(reports[i], plain[i], budget)):
                so_far = "values are right, but it" if expect is not None else "it"
                raise _failed(name, f"{asked.called(i)}: {so_far} {text}", look, note)
        if some and not raising and verify is not None:
            if text := _verified(verify, [reports[i] for i in some]):
                raise _failed(name, f"{name}: {text}", look, note)
    if not once:
        _once_more(asked, reports)
    if passed is not None:
        _passed(name, f"{name}: {passed(reports)}")
        return
    compared = "as wanted" if verify is not None or budget is None else ""
    if expect is not None:
        compared = "values and gradients right" if match.grads else "values right"
    _passed(name, _summary(name, reports, plain, budget, compared))


def _request(
    name: str, cases: list[Case], expect: Any, match: Match, drive: Callable[..., Any] | None, counters: bool
) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """What the learner's side is asked to do; and what each case wants, its value and its gradients."""
    wants, sent = [], []
    for i, case in enumerate(cases):
        args = [encode(a, with_storage=True) for a in case.args]
        kwargs = encode(case.kwargs, with_storage=True)
        want, grad_outputs, want_grads = _reference(expect, case, i, match.grads, args, kwargs)
        wants.append((want, want_grads))
        outputs = encode(grad_outputs)
        sent.append({"args": args, "kwargs": kwargs, "seed": case.seed, "grad_outputs": outputs})
    asked = {"cases": sent, "grads": match.grads, "drive": _sent(drive), "counters": counters}
    return {"what": "function", "name": name} | asked, wants


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What `function` judges. given: the cases as they were given; wants: of each its value and its gradients; compare: whether
    there is a reference. The rest is as `function` has it."""

    name: str
    request: dict[str, Any]
    given: Sequence[Any]
    cases: list[Case]
    wants: list[tuple[Any, Any]]
    compare: bool
    match: Match
    verify: Callable[[list[Report]], str | None] | None
    call: str
    look: str

    def called(self, i: int) -> str:
        return self.call or f"{self.name}({_arguments(self.cases[i])})"

    def reports(self, replies: Sequence[dict[str, Any]]) -> list[Report]:
        return [_report(*of) for of in zip(self.given, self.cases, replies, strict=True)]

    def fault(self, report: Report, i: int) -> str | None:
        return _fault(report, self.cases[i], *self.wants[i], self.compare, self.match)


def _once_more(asked: _Asked, first: list[Report]) -> None:
    """Raises CheckFailed unless the cases, called again by :mod:`helpers.check.once_more`, are what they were the first time."""
    name, match, verify, look = asked.name, asked.match, asked.verify, asked.look

    def wrong(reports: list[Report]) -> str:
        for i, (report, was) in enumerate(zip(reports, first, strict=True)):
            report.counts = was.counts
            if text := asked.fault(report, i):
                return f"{asked.called(i)}: {text}"
        good = [report for report, one in zip(reports, asked.cases, strict=True) if one.raises is None]
        text = _verified(verify, good) if verify is not None and good else ""
        return f"{name}: {text}" if text else ""

    def again(filled: bool) -> tuple[dict[str, Any], list[Report]]:
        reply = _ask(asked.request | {"filled": filled, "unchanged": match.unchanged}, look)
        return reply, asked.reports(reply["later"])

    reply, reports = again(True)
    if text := wrong(reports):
        why = _EMPTY if _NAN.search(text) or not wrong(again(False)[1]) else _STATE
        raise _failed(name, f"{text}\n  {why}", look)
    for i, report in enumerate(reply["later"]):
        if report.get("incoming") or report["backward"]:
            raise _failed(name, f"{asked.called(i)}: {_INCOMING}", look)
        if text := report.get("input"):
            why = f"right, but it changed what it was given. Afterwards {text}. {_INPUT}"
            raise _failed(name, f"{asked.called(i)}: {why}", look)
        if which := report.get("gradient"):
            raise _failed(name, f"{asked.called(i)}: right, but {which} has a .grad now. {_GRADIENT}", look)
    if text := reply.get("refilled", ""):
        raise _failed(name, f"{asked.called(0)}: right, but {text}. {_REFILLED}", look)
    for i in reply["spoilt"]:
        raise _failed(name, f"{asked.called(i)}: {_SPOILT}", look)


_NAN = re.compile(r"\bnan\b")
_EMPTY = (
    "The first call was right, by luck: it read memory that nobody had written. This time what `torch.empty` and its like take "
    "held NaN (integers: the largest). In training it holds what another tensor left there."
)
_STATE = (
    "The first call was right; this is the same call again, later in the same process. Something that outlives a call "
    "(a global, a cache, a buffer, an attribute) has another value now. In training each step comes after others."
)
_INCOMING = (
    "right, but its backward changed the gradient that came in, in place. It is not yours: the caller, or another branch of "
    "the graph, still reads it."
)
_INPUT = "The caller still needs it, and the next call with it gives something else: work on a copy."
_GRADIENT = (
    "backward() adds to the .grad of all parameters that it finds; the caller's own step adds to it too. "
    "torch.autograd.grad() returns gradients, and leaves .grad as it is."
)
_REFILLED = (
    "That came of a call with the tensors of an earlier call, filled with other numbers since. A tensor's identity or address "
    "says nothing of its numbers: what is kept by it is out of date."
)
_SPOILT = (
    "right when it returned, but another when it was read again after later calls: one of them wrote into it. A training loop "
    "keeps results of many steps, and all of them would be the last one. Each call returns something of its own."
)


def _report(given: Any, case: Case, reply: dict[str, Any]) -> Report:
    value, grads, counts = decode(reply["value"]), decode(reply["grads"]), reply.get("counts") or {}
    return Report(given, case.args, case.kwargs, value, counts, reply["error"], grads, reply)


def _as_case(given: Any) -> Case:
    if isinstance(given, Case):
        return given
    return Case((), {f.name: getattr(given, f.name) for f in dataclasses.fields(given)})


def _sent(drive: Callable[..., Any] | None) -> dict[str, str] | None:
    """How the learner's side finds the drive: by name in the package that both sides have, else by its source."""
    if drive is None:
        return None
    if drive.__module__.startswith(("helpers.lessons.", "helpers.check.")):
        return {"at": f"{drive.__module__}:{drive.__qualname__}"}
    return {"source": textwrap.dedent(inspect.getsource(drive))}


def _verified(verify: Callable[[list[Report]], str | None], reports: list[Report]) -> str | None:
    try:
        return verify(reports)
    except Exception as odd:  # what came back is of a kind that the test did not foresee
        if text := machine_fault_of(odd):
            return text
        got = brief(reports[0].value)
        return f"returned {got}, which has not the form that the docstring asks for ({type(odd).__name__}: {odd})"


def _reference(
    expect: Any, one: Case, i: int, grads: bool, given: list[Any], named: Any
) -> tuple[Any, list[torch.Tensor], list[Any] | None]:
    """The wanted value of a case, gradients for its outputs, and the wanted gradients of its inputs.

    given, named: its inputs, encoded.
    """
    if one.raises is not None or expect is None:
        return None, [], None
    if not callable(expect):
        return expect[i], [], None
    # as in the probe: torch.manual_seed would also keep the seed, each time with a stack, for devices that are not there
    torch.default_generator.manual_seed(one.seed)
    args = decode(given)
    want = expect(*args, **decode(named))
    if not grads:
        return want, [], None
    outputs = [v for v in (want if isinstance(want, list | tuple) else [want]) if isinstance(v, torch.Tensor)]
    generator = torch.Generator().manual_seed(one.seed + 1)
    grad_outputs = [torch.randn(o.shape, generator=generator).to(o.dtype) for o in outputs]
    torch.autograd.backward(outputs, grad_outputs)
    return want, grad_outputs, [getattr(a, "grad", None) for a in args]


def _arguments(one: Case) -> str:
    return ", ".join(
        [brief(a, 40) for a in one.args] + [f"{k}={brief(v, 40)}" for k, v in one.kwargs.items()]
    )


def _fault(
    report: Report, one: Case, want: Any, want_grads: list[Any] | None, compare: bool, match: Match
) -> str | None:
    error = report.error
    if error is not None and (text := machine_fault(error)):
        return text
    # a DataLoader hands on what a worker raised as its traceback
    if error is not None and error["type"] == "NotImplementedError":
        if error["text"].strip().split("\n")[-1] in ("", error["type"]):
            return "not written yet. Replace `raise NotImplementedError()` in the cell above with your answer, run it, then run this cell again."
    if one.raises is not None:
        if error is None:
            return f"returned {brief(report.value)}, wanted {one.raises.__name__}"
        wanted = one.raises.__name__ in error.get("mro", [error["type"]])
        return None if wanted else f"raised {error['type']} ({error['text']}), wanted {one.raises.__name__}"
    if error is not None:
        if error["type"] == "NotPlain":
            return f"returned {error['text']}"
        return f"raised {error['type']}: {error['text']}" + (
            f"\n  {error['where']}" if error["where"] else ""
        )
    if compare and (odd := difference(report.value, want, match.rtol, match.atol)):
        return odd
    if want_grads is not None and report.grads is not None:
        for i, (got, wanted) in enumerate(zip(report.grads, want_grads, strict=True)):
            if wanted is not None and (
                odd := difference(got, wanted, match.rtol, match.atol, at=f"the gradient of input {i}")
            ):
                return "the result is right, but " + odd
    if match.unchanged and report.raw["changed"]:
        return f"changed its input {report.raw['changed'][0]} in place; the caller still needs it"
    if match.contiguous and not (geometry := report.raw["geometry"] or {}).get("contiguous"):
        stride = tuple(geometry.get("stride", ()))
        return f"values are right, but the result is not contiguous (stride {stride})"
    if match.view_of is not None and match.view_of not in report.raw["view_of"]:
        return f"values are right, but the result does not share the storage of input {match.view_of}: it is a copy{_allocated_by(report)}"
    return None


def _over(report: Report, one: Case, budget: Any) -> str | None:
    limits = budget(*one.args, **one.kwargs) if callable(budget) else budget
    for counter, most in limits.items():
        if counter not in report.counts:
            raise KeyError(f"no counter {counter!r}; there are {sorted(report.counts)}")
        got = report.counts[counter]
        if got > most:
            return f"{_WORDS.get(counter, counter + ' {}').format(f'{got:,}')}; wanted at most {most:,}.{_who(counter, report)}"
    return None


_WORDS = {
    "operators": "dispatched {} operators",
    "views": "made {} views",
    "copies": "copied {} times",
    "new_storages": "allocated {} new storage(s)",
    "bytes_allocated": "allocated {} bytes",
    "peak_live_bytes": "held {} bytes at its peak",
    "live_bytes": "still held {} bytes at the end",
    "saved_bytes": "saved {} bytes for backward",
    "syncs": "made the CPU wait {} time(s)",
    "flops": "did {} floating-point operations",
}


def _who(counter: str, report: Report) -> str:
    if counter == "syncs":
        by = report.counts["sync_by"]
        numpy = "; what NumPy computes, no counter sees: compute with tensors" if "Tensor.numpy" in by else ""
        return "\n  by: " + ", ".join(f"{k} ×{n}" for k, n in by.items()) + numpy
    if counter == "operators":
        top = sorted(report.counts["by_operator"].items(), key=lambda kv: -kv[1])[:8]
        return "\n  operators: " + ", ".join(f"{k} ×{n}" for k, n in top)
    if counter in ("new_storages", "bytes_allocated", "copies", "peak_live_bytes"):
        return _allocated_by(report)
    return ""


def _allocated_by(report: Report) -> str:
    made: dict[str, tuple[int, int]] = {}
    for operator, size in report.counts.get("allocations", []):
        n, total = made.get(operator, (0, 0))
        made[operator] = (n + 1, total + size)
    if not made:
        return ""
    top = sorted(made.items(), key=lambda kv: -kv[1][1])[:5]
    return "\n  new storages by: " + ", ".join(f"{k} ×{n} ({size:,} bytes)" for k, (n, size) in top)


def _summary(name: str, reports: list[Report], cases: Sequence[Case], budget: Any, compared: str) -> str:
    parts = [f"{name}: {len(cases)} case{'s' if len(cases) > 1 else ''}"]
    if compared:
        parts.append(compared)
    if budget is not None:
        pairs = [
            (r, budget(*c.args, **c.kwargs) if callable(budget) else budget)
            for r, c in zip(reports, cases, strict=True)
            if c.raises is None
        ]
        # the last case, which tests make the largest, stands for all
        for counter, most in (pairs[-1][1] if pairs else {}).items():
            parts.append(f"{counter.replace('_', ' ')} {pairs[-1][0].counts[counter]:,} (limit {most:,})")
    return ", ".join(parts)
