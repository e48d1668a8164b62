"""Where the learner's code runs: call a function on given inputs under the counters, report plain data.

The judge never sees a live object of the learner's, and this side never sees an expected value. The two may
live in one process (a learner's kernel) or in two (grading): what passes between them is JSON either way.

What an answer cannot reach from here, the counters among it, :mod:`helpers.check.screen` sees to before it runs.
"""

import __future__

import contextlib
import gc
import importlib
import inspect
import io
import json
import linecache
import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import set_checkpoint_early_stop

from helpers.check import once_more
from helpers.check.compare import difference
from helpers.check.data import NotPlain, decode, encode
from helpers.check.recount import ENOUGH_S, READING, Seen
from helpers.counters import count, knowing_earlier
from helpers.counters.standins import keep_stand_ins

#: characters of a learner's output that are kept for a report
KEEP_OUTPUT = 2_000


def load(exercises: Iterable[str] = ()) -> None:
    """Import what tests use, before a process is forked that would pay for it. exercises: the lessons' modules."""
    for name in ("compiling", "lesson", "memory", "simulator", "timing", "trace"):
        importlib.import_module(f"helpers.{name}")
    importlib.import_module("helpers.ranks.server").load()
    for module in exercises:
        importlib.import_module(module)
    keep_stand_ins()
    with Seen() as none:  # begun for the first time, it looks around the machine
        pass
    none.operators(frozenset())


def answer(request: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Do what ``request`` asks with what the learner's ``namespace`` holds. Never raises for the learner's faults."""
    name = request["name"]
    if name not in namespace:
        return {"missing": True}
    subject = namespace[name]
    if request["what"] == "value":
        try:
            return {"value": _plain(subject)}
        except NotPlain as odd:
            return {"odd": f"holds {odd}"}
    if not callable(subject):
        return {"odd": f"is a {type(subject).__name__}, wanted a function"}
    if changed := set_otherwise():
        return {"broken": changed}
    drive = _load_drive(request["drive"]) if request.get("drive") else None
    if request.get("again"):
        return {"again": _again(subject, drive, request)}
    if "filled" in request:
        return _once_more(subject, drive, request)
    reports = []
    with knowing_earlier():
        for case in request["cases"]:
            with _uncollected(), knowing_earlier():
                reports.append(_run(subject, drive, case, request)[0])
    return {"reports": reports}


def set_otherwise() -> str:
    """What a cell has set for all of PyTorch, so that inputs, values and counts are others here; "" if nothing is."""
    for what, is_default, back in (
        ("the default dtype", torch.get_default_dtype() == torch.float32, "set_default_dtype(torch.float32)"),
        ("the default device", torch.get_default_device().type == "cpu", 'set_default_device("cpu")'),
        ("whether gradients are made", torch.is_grad_enabled(), "set_grad_enabled(True)"),
    ):
        if not is_default:
            return (
                f"a cell has changed {what} for all that comes after it, and when an answer is graded it is as PyTorch has it. "
                f"Run `torch.{back}`, and this cell again."
            )
    return ""


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No collection until a report is written: what it runs of an answer's, `__del__` and the like, would not be counted."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _printing_to(text: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield


def _load_drive(sent: dict[str, str]) -> Callable[..., Any]:
    """The drive by its place in a lesson's exercises, or made from the source in a test cell."""
    if "at" in sent:
        module, _, name = sent["at"].partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found
    space: dict[str, Any] = {"__name__": "drive"}
    # annotations stay text: what they name belongs to the test cell
    exec(compile(sent["source"], "<test>", "exec", flags=__future__.annotations.compiler_flag), space)  # noqa: S102 - the test cell's own function
    return next(v for k, v in space.items() if inspect.isfunction(v) and v.__module__ == "drive")


def _again(
    subject: Callable[..., Any], drive: Callable[..., Any] | None, request: dict[str, Any]
) -> list[dict[str, Any]]:
    """The cases once more, last first, until :data:`recount.ENOUGH_S` are spent: what PyTorch's observers see of them.

    Of each: "counts", as a report has them; "counted" and "seen", operators by name; "late", those seen when the result is read, which holds "tensors";
    "error": what it raised, or ""; "simulated": whether its drive hands out a simulated GPU.
    """
    cases, until = [], time.process_time() + ENOUGH_S
    for case in reversed(request["cases"]):
        earlier = contextlib.ExitStack()
        earlier.enter_context(knowing_earlier())
        args, kwargs, grad_outputs = (decode(case[part]) for part in ("args", "kwargs", "grad_outputs"))
        call, read, error, counts = _calling(subject, drive), [], "", None
        _seed(case["seed"])
        during, after = Seen(), Seen()
        try:
            with _uncollected(), _printing_to(io.StringIO()):
                # a recomputation that ends early begins an operator that is never run
                with (
                    set_checkpoint_early_stop(False),
                    during,
                    count() if request["counters"] else contextlib.nullcontext() as counts,
                ):
                    value = call(*args, **kwargs)
                    if request["grads"]:
                        _backward(value, grad_outputs)
                with after:
                    read = [
                        _plain(value),
                        *(_plain(getattr(a, "grad", None)) for a in args if request["grads"]),
                    ]
        except BaseException as problem:
            error = type(problem).__name__
        earlier.close()
        costs = counts and counts.as_dict()
        counted = costs and costs["by_operator"]
        cases.append(
            {
                "counted": counted,
                "counts": costs,
                "seen": during.operators(frozenset(counted or ())),
                "late": after.operators(READING.keys()),
                "tensors": json.dumps(read).count('"kind": "tensor"'),
                "error": error,
                # the drive's own module hands simulated GPUs out
                "simulated": drive is not None and "sealed" in drive.__globals__,
            }
        )
        if time.process_time() > until:
            break
    return cases


def _once_more(
    subject: Callable[..., Any], drive: Callable[..., Any] | None, request: dict[str, Any]
) -> dict[str, Any]:
    """The cases again, last first, as :mod:`helpers.check.once_more` says; "filled": whether memory is.

    "later": their reports, without counts; of each also "input", what has become of an input, "gradient", the input that was given
    one, and "backward", the Function that changed a gradient that came into it. "spoilt": the cases whose result was another after
    the last call. "refilled": what was wrong with a call for the same tensors with other numbers.
    """
    cases, reports, results = request["cases"], list[dict[str, Any]](), list[tuple[int, Any, Any]]()
    refilled = ""
    silent = request | {"counters": False}
    with once_more.filled(request["filled"]), once_more.backward_watched() as guilty:
        for i in reversed(range(len(cases))):
            guilty.clear()
            report, value, inputs = _run(subject, drive, cases[i], silent)
            report["backward"] = (guilty or [""])[0]
            if drive is None and report["error"] is None and request["unchanged"]:
                was = decode(cases[i]["args"]), decode(cases[i]["kwargs"])
                report["input"] = once_more.changed_input(inputs, was)
                if not request["grads"]:
                    report["gradient"] = once_more.left_gradient(inputs[0])
            if report["error"] is None:
                results.append((i, value, report["value"]))
            reports.append(report)
        if drive is None:
            _with_other_numbers(subject, cases[0])
            if request["unchanged"]:
                refilled = _refilled(subject, cases[0])
    spoilt = once_more.kept(results, _plain)
    return {"later": reports[::-1], "spoilt": spoilt[:1], "refilled": refilled}


def _with_other_numbers(subject: Callable[..., Any], case: dict[str, Any]) -> None:
    """Some more calls like this one, of which nothing is wanted."""
    for _ in range(once_more.OTHERS):
        args, some = once_more.with_other_numbers(decode(case["args"]))
        if not some:
            return
        with contextlib.suppress(Exception), _printing_to(io.StringIO()):
            subject(*args, **decode(case["kwargs"]))


def _refilled(subject: Callable[..., Any], case: dict[str, Any]) -> str:
    """How the results differ for two equal inputs, if one is the input of an earlier call with other numbers; "" if they do not."""
    before, fresh = decode(case["args"]), decode(case["args"])
    results = []
    with contextlib.suppress(Exception), _printing_to(io.StringIO()):
        subject(*before, **decode(case["kwargs"]))
        (before, some), (fresh, _) = map(once_more.with_other_numbers, (before, fresh))
        for args in (before, fresh) if some else ():
            _seed(case["seed"])
            results.append(decode(_plain(subject(*args, **decode(case["kwargs"])))))
    return (difference(*results) or "") if len(results) == 2 else ""


def _calling(subject: Callable[..., Any], drive: Callable[..., Any] | None) -> Callable[..., Any]:
    if drive is None:
        return subject
    extra = {"count": count} if "count" in inspect.signature(drive).parameters else {}
    return lambda *a, **k: drive(subject, *a, **k, **extra)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    # torch.manual_seed would also keep the seed, each time with a stack, for every kind of device that is not there
    torch.default_generator.manual_seed(seed)


def _run(
    subject: Callable[..., Any],
    drive: Callable[..., Any] | None,
    case: dict[str, Any],
    request: dict[str, Any],
) -> tuple[dict[str, Any], Any, Any]:
    """A case's report; and what was returned, and the inputs, as they are."""
    _seed(case["seed"])
    args, kwargs = decode(case["args"]), decode(case["kwargs"])
    before = [_snapshot(a) for a in args]
    grad_outputs = decode(case["grad_outputs"])
    came_in = [g.clone() for g in grad_outputs]
    printed = io.StringIO()
    report: dict[str, Any] = dict.fromkeys(("value", "error", "grads", "counts"))
    report |= {"changed": [], "view_of": []}
    value: Any = None
    try:
        with _printing_to(printed):
            call = _calling(subject, drive)
            with count() if request["counters"] else contextlib.nullcontext() as counts:
                value = call(*args, **kwargs)
                if request["grads"]:
                    _backward(value, grad_outputs)
    # SystemExit and KeyboardInterrupt are answers too: they must not end the grading
    except BaseException as problem:
        report["error"] = describe(problem)
    report["printed"] = io.StringIO.getvalue(printed)[:KEEP_OUTPUT]
    if report["error"] is not None:
        return report, value, (args, kwargs)
    try:
        report["value"] = _plain(value)
        if request["grads"]:
            report["grads"] = [_plain(getattr(a, "grad", None)) for a in args]
    except NotPlain as odd:
        report["error"] = {"type": "NotPlain", "text": str(odd), "where": ""}
        return report, value, (args, kwargs)
    report["incoming"] = not all(map(torch.equal, grad_outputs, came_in))
    report["geometry"] = _geometry(value)
    report["changed"] = [
        i for i, (a, b) in enumerate(zip(args, before, strict=True)) if b is not None and not _same(a, b)
    ]
    report["view_of"] = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and _shares(value, a)]
    report["counts"] = counts and counts.as_dict()
    return report, value, (args, kwargs)


def _plain(value: Any) -> Any:
    """Encoded. NotPlain also for what cannot even be asked what it holds, a tensor of an odd kind for instance."""
    try:
        return encode(value)
    except NotPlain:
        raise
    except Exception as odd:
        why = f"{type(odd).__name__}: {str(odd)[:200]}"
        raise NotPlain(f"something that cannot be read as plain data ({why})") from odd


def _backward(value: Any, grad_outputs: list[torch.Tensor]) -> None:
    outputs = [
        v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, torch.Tensor)
    ]
    pairs = [(o, g) for o, g in zip(outputs, grad_outputs, strict=False) if o.requires_grad]
    if not pairs:
        raise RuntimeError("the result does not require grad: the graph back to the inputs was cut")
    for output, grad in pairs:
        if output.shape != grad.shape:
            raise RuntimeError(f"the result has shape {tuple(output.shape)}, wanted {tuple(grad.shape)}")
    torch.autograd.backward([o for o, _ in pairs], [g.to(o.dtype) for o, g in pairs])


def _snapshot(value: Any) -> torch.Tensor | None:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type == "meta":
        return None
    return value.detach().clone()


def _same(now: torch.Tensor, before: torch.Tensor) -> bool:
    # the class's own, here and below: an answer may have given its input another
    now = torch.Tensor.detach(now)
    return now.shape == before.shape and torch.allclose(now, before, rtol=0, atol=0, equal_nan=True)


def _shares(value: Any, arg: torch.Tensor) -> bool:
    if type(value) is not torch.Tensor:
        return False
    return torch.Tensor.untyped_storage(value)._cdata == torch.Tensor.untyped_storage(arg)._cdata


def _geometry(value: Any) -> dict[str, Any] | None:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    return {"shape": list(value.shape), "stride": list(value.stride()), "contiguous": value.is_contiguous()}


def describe(problem: BaseException) -> dict[str, Any]:
    """Type, text and the learner's own line of an exception, without frames of torch or of the helpers."""
    frames = traceback.extract_tb(problem.__traceback__)
    here = str(Path(__file__).parents[1])  # all the helpers: the counters' own frames too
    own = [
        f
        for f in frames
        if "site-packages" not in f.filename and not f.filename.startswith(here) and f.filename != "<test>"
    ]
    where = ""
    if own:
        line = own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
        where = f"line {own[-1].lineno}, in {own[-1].name}" + (f": {line}" if line else "")
    names = [k.__name__ for k in type(problem).__mro__ if issubclass(k, BaseException)]
    return {"type": type(problem).__name__, "mro": names, "text": str(problem)[:KEEP_OUTPUT], "where": where}
