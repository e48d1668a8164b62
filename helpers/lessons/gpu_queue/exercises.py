"""Tests of lesson 03: what a queue's times say, what bounds a loop, how often a training loop waits."""

import json
import linecache
import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any

import torch

from helpers import check, simulate, trace
from helpers.check.judges import each
from helpers.check.sealed import sealed

Times = list[tuple[int, ...]]


# --- 3.1 bottleneck -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A training loop on a simulated card: three layers of this width, forward and backward.

    read: .item() in each step. prepare_s: seconds of Python in each. load: the batch is copied from the host. beside:
    the next batch is, on a stream of its own. pinned: from pinned memory. mask: the rows of a mask are picked after
    each layer. steps: whether the trace says where a step ends.
    """

    card: str
    width: int
    batch: int
    read: bool = False
    prepare_s: float = 0.0
    load: bool = False
    pinned: bool = False
    beside: bool = False
    mask: bool = False
    noise: float = 0.0
    steps: bool = True

    def __str__(self) -> str:
        set_ = [f"{k}={v}" for k, v in list(asdict(self).items())[3:] if v != getattr(Loop, k)]
        return ", ".join([f"{self.card}, layers of {self.width}, batch {self.batch}", *set_])


def _ran(loop: Loop) -> Any:
    """The trace of four warm steps."""
    gpu: Any = simulate(loop.card, noise=loop.noise, seed=loop.width)
    with gpu:
        layers = [torch.nn.Linear(loop.width, loop.width, device=gpu.device) for _ in range(3)]
        x = torch.empty(loop.batch, loop.width, device=gpu.device)
        host = [torch.empty(loop.batch, loop.width, pin_memory=loop.pinned) for _ in range(2)]
        side = gpu.Stream()

        def step(i: int) -> None:
            nonlocal x
            if loop.beside:
                with gpu.stream(side):
                    ready = host[i % 2].to(gpu.device, non_blocking=True)
            y = host[0].to(gpu.device, non_blocking=True) if loop.load else x
            for layer in layers:
                y = torch.relu(layer(y))
                if loop.mask:
                    y[y[:, 0] > 0]
            y = y.square().mean()
            y.backward()
            if loop.read:
                y.item()
            if loop.beside:
                gpu.current_stream().wait_stream(side)
                ready.record_stream(gpu.current_stream())
                x = ready
            gpu.host_work(loop.prepare_s)

        for i in range(2):
            step(i)
        gpu.synchronize()
        with gpu.profile() as prof:
            for i in range(4):
                step(i)
                if loop.steps:
                    prof.step()
    return prof.trace()


@cache
def _recorded(what: Loop | str) -> str:
    """The trace as a file holds it."""
    return json.dumps(_ran(what) if isinstance(what, Loop) else _as_on_a_card(what))


def _as_on_a_card(kind: str) -> dict[str, Any]:
    """As Kineto writes it on a real card: no simulator's marks, odd offsets, names of kernels.

    kind: what is slow. "late": much Python between the steps; "hidden copies": on a stream of their own, below kernels;
    "some copies": longer than any other cause of idle time, but for less than half of it; "balanced": the CPU launches
    about as fast as the GPU computes; "no GPU": the operators alone.
    """
    draw, events, number = random.Random(kind), list[dict[str, Any]](), 100
    gemm = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)"

    def event(cat: str, name: str, start: float, end: float, stream: int | None = None) -> None:
        where = {"pid": 4242, "tid": 4242} if stream is None else {"pid": 0, "tid": stream}
        spot = {"ph": "X", "cat": cat, "name": name, "ts": 4203669603454.5 + start, "dur": end - start}
        of = {} if cat == "cpu_op" else {"correlation": number}
        events.append(spot | where | {"args": of if stream is None else of | {"stream": stream, "device": 0}})

    host = device = copied = 0.0
    takes = {"GPU": 150, "hidden copies": 120, "small": 2.5, "balanced": 13.2}.get(kind, 60)
    for _ in range(12):
        if "copies" in kind:
            number += 1
            waits, memory, stream = (False, "Pinned", 20) if "hidden" in kind else (True, "Pageable", 7)
            start = max(host + 3, device if waits else copied)
            copied = start + (380 if kind == "some copies" else 900)
            until = copied + 4 if waits else host + 6
            event("cuda_runtime", "cudaMemcpyAsync", host, until)
            event("gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)", start, copied, stream)
            host, device = until, max(device, copied) if waits else device
        for kernel in range(12):
            number += 1
            end = host + 10 + draw.random() * 4
            event("cpu_op", "aten::addmm", host, end)
            event("cuda_runtime", "cudaLaunchKernel", end - 3, end)
            start = max(end + 1.5, device + 0.8)
            device = start + takes * (0.9 + draw.random() / 5)
            event("kernel", gemm, start, device, 7)
            host = end + 1
            if kind in ("GPU", "syncs") and kernel == 11 or kind == "some copies":
                number += 1
                until = max(host, device) + 5
                event("cuda_runtime", "cudaStreamSynchronize", host, until)
                host = until
        # Python, which a trace without stacks does not show
        host += {"syncs": 500, "late": 1400, "some copies": 300}.get(kind, 0)
    event("cuda_runtime", "cudaDeviceSynchronize", host, max(host, device) + 5)
    if kind == "no GPU":
        events = [e for e in events if e["cat"] == "cpu_op"]
    properties = [{"id": 0, "name": "NVIDIA A100"}] if kind != "no GPU" else []
    return {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}


def _without_classify(bottleneck: Callable[..., Any], recorded: str) -> Any:
    # it keeps classify's defaults, which are not its code's: so it takes whatever comes
    def closed(*_: Any, **__: Any) -> Any:
        raise RuntimeError("trace.classify has a verdict of its own; the exercise is to find yours")

    kept, trace.classify.__code__ = trace.classify.__code__, closed.__code__
    try:
        return bottleneck(trace.read(json.loads(recorded)))
    finally:
        trace.classify.__code__ = kept


def _named(reports: list[check.Report], wanted: dict[Loop | str, str]) -> str | None:
    for report, (what, want) in zip(reports, wanted.items(), strict=True):
        if report.value == want:
            continue
        kind = f"a trace laid out as on a real machine, {what!r}" if isinstance(what, str) else str(what)
        answer, t = f"{kind}: said {report.value!r}, wanted {want!r}", trace.read(json.loads(_recorded(what)))
        if not t.has_gpu:
            return answer
        (computes, waits), gaps = trace.shares(t), trace.idle(t)
        copying = gaps.seconds.get("waiting for a copy", 0.0) / gaps.total
        shares = f"the GPU computes {computes:.0%}, the CPU waits {waits:.0%}"
        return f"{answer}; {shares}, a copy runs for {copying:.0%} of the time in which nothing computes"
    return None


def check_bottleneck(wanted: dict[Loop | str, str]) -> None:
    """wanted: what is to be said of the trace of a loop, or of a trace laid out as on a real machine: what :func:`_as_on_a_card` knows."""
    cases, judge = [check.case(_recorded(what)) for what in wanted], partial(_named, wanted=wanted)
    check.function("bottleneck", cases, drive=_without_classify, verify=judge, look="3 · A map")


# --- 3.2 train ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """A letter a step: "." a batch in which some rows have no label, "u" one without any, "i" an infinite input, "h" one
    so huge that the loss overflows, "l" one so large that only the gradient's norm does."""

    steps: str
    log_every: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{len(self.steps)} steps, log_every={self.log_every}"


_INPUTS = {"i": float("inf"), "h": 3e38, "l": 1e30}
_CLASSES, _LR, _MAX_NORM = [1.0, 2.0, 1.0, 0.5, 1.0], 0.2, 0.3


@cache
def _batches(asked: Steps) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g, batches = torch.Generator().manual_seed(asked.seed), []
    for kind in asked.steps:
        x, y = torch.randn(24, 12, generator=g), torch.randint(0, 5, (24,), generator=g)
        y[torch.rand(24, generator=g) < 0.25] = -1
        if kind in _INPUTS:
            x[0], y[0] = _INPUTS[kind], 1
        if kind == "h":  # all rows, as one row's sums may stay finite
            x[:] = x.sign() * _INPUTS[kind]
        if kind == "u":
            y[:] = -1
        batches.append((x, y))
    return batches


def _model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5))


def _train_twice(train: Callable[..., Any], **fields: Any) -> list[dict[str, Any]]:
    """The same steps on two simulated GPUs: one whose tensors have values, and one that only counts, and that is as
    strict as a real one."""
    asked, runs = Steps(**fields), []
    for values in (True, False):
        model, batches = _model(asked.seed), [(x.clone(), y.clone()) for x, y in _batches(asked)]
        if not values:
            model, batches = model.to("meta"), [(x.to("meta"), y.to("meta")) for x, y in batches]
        with (
            (gpu := simulate("H100", values=values, strict=False)),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            gpu.set_sync_debug_mode("warn")
            log = train(sealed(gpu), model, batches, _CLASSES, _LR, _MAX_NORM, asked.log_every)
            waits = [record.name for record in gpu.host if record.kind == "sync"]
        run = {"log": log, "waits": waits, "lines": _lines(warned), "faults": list(gpu.faults)}
        if values:
            run |= {"last": [p.detach().clone() for p in model.parameters()], "batches": batches}
        runs.append(run)
    return runs


def _lines(warned: list[warnings.WarningMessage]) -> list[str]:
    """The program's lines in which the CPU waited, once for each wait; none where their text is not at hand."""
    waited = [w for w in warned if str(w.message).startswith("called a synchronizing")]
    return [
        line for w in waited if (line := linecache.getline(w.filename, w.lineno).partition("  #")[0].strip())
    ]


@cache
def _plainly(asked: Steps) -> tuple[list[list[float]], list[torch.Tensor]]:
    """(log, parameters) of the plain loop, on the CPU."""
    model = _model(asked.seed)
    parameters, weight = list(model.parameters()), torch.tensor(_CLASSES)
    log, total, taken, right, seen = [], 0.0, 0, 0, 0
    for i, (x, y) in enumerate(_batches(asked), start=1):
        rows = y >= 0
        logits = model(x[rows])
        loss = torch.nn.functional.cross_entropy(logits, y[rows], weight=weight)
        if torch.isfinite(loss):
            grads = torch.autograd.grad(loss, parameters)
            norm = float(torch.stack([grad.norm() for grad in grads]).norm())
            with torch.no_grad():
                for p, grad in zip(parameters, grads, strict=True):
                    p.sub_(_LR * min(1.0, _MAX_NORM / norm) * grad)
            total, taken = total + loss.item(), taken + 1
            right, seen = right + int((logits.argmax(1) == y[rows]).sum()), seen + int(rows.sum())
        if i % asked.log_every == 0:
            log.append([i, total / max(taken, 1), right / max(seen, 1), asked.log_every - taken])
            total, taken, right, seen = 0.0, 0, 0, 0
    return log, [p.detach() for p in parameters]


def _wrong_results(report: check.Report) -> str | None:
    asked, (seeing, blind) = report.case, report.value
    log, lines = seeing["log"], len(asked.steps) // asked.log_every
    if faults := seeing["faults"] + blind["faults"]:
        return f"a GPU refuses this. {faults[0]}"
    if len(log) != lines or len(blind["log"]) != lines:
        return f"{len(log)} lines in the log, wanted {lines}"
    want_log, want_last = _plainly(asked)
    for got, want in zip(log, want_log, strict=True):
        names = ("step", "mean loss", "accuracy", "skipped")
        for name, a, b in reversed(list(zip(names, got, want, strict=True))):
            if not abs(float(a) - b) <= 1e-4 * max(1, abs(b)):
                spoilt = any(not torch.isfinite(p).all() for p in seeing["last"])
                text = f"{name} at step {want[0]} is {float(a):.6g}, wanted {b:.6g}; the whole line: {want}"
                return text + ("; the model's parameters have become NaN" if spoilt else "")
    for i, (p, right) in enumerate(zip(seeing["last"], want_last, strict=True)):
        if p.shape != right.shape or not torch.allclose(p, right, rtol=1e-3, atol=1e-4):
            return f"the log is right, but parameter {i} of the trained model is not what it should be"
    after = [t for batch in seeing["batches"] for t in batch]
    given = [t for batch in _batches(asked) for t in batch]
    if len(after) != len(given) or not all(map(torch.equal, after, given)):
        return "the results are right, but batches were changed, and they are the caller's"
    return None


def _waits_too_often(report: check.Report) -> str | None:
    steps, counts = len(report.case.steps), report.counts
    lines = steps // report.case.log_every
    for run in report.value:
        if (n := len(run["waits"])) > lines + 2:
            return (
                f"the results are right, but the CPU waits {n} times, {n / steps:.1f} a step; wanted at most "
                f"{lines + 2}.\n  by: {_named_counts(Counter(run['waits']))}" + _at(run["lines"])
            )
    # the same from the counters, which see reads of the values that the simulated GPU does not (two runs)
    if (n := counts["syncs"]) > 8 * lines + 8:
        return f"values are read {n} times in two runs.\n  by: {_named_counts(counts['sync_by'])}"
    return None


def _at(lines: list[str]) -> str:
    return "".join(f"\n  {n} × in the line: {line}" for line, n in Counter(lines).items())


def _named_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ×{n}" for name, n in sorted(counts.items()))


def check_train(*cases: Steps) -> None:
    judge, look = each(_wrong_results, _waits_too_often, told=True), "4 · Which lines wait?"
    note = 'A case\'s steps: "." some rows have no label, "u" none has one, "i" an infinite input, "h" one that makes the '
    note += 'loss overflow, "l" one that makes only the norm overflow (the loss is finite). lr is 0.2, max_norm 0.3.'
    check.function("train", cases, drive=_train_twice, verify=judge, look=look, note=note)


# --- 3.3 read_queue -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Queue:
    """Arguments of read_queue, and the ns that it returns for them."""

    kernels: Times
    copies: Times = field(default_factory=list)
    waits: Times = field(default_factory=list)
    copy: int = 0
    in_flight: int = 0
    sync: int = 0
    host: int = 0

    def answer(self) -> dict[str, int]:
        return {"copy": self.copy, "in flight": self.in_flight, "sync": self.sync, "host": self.host}

    def __str__(self) -> str:
        if len(self.kernels) > 4:
            return f"{len(self.kernels)} kernels, {len(self.copies)} copies, {len(self.waits)} waits"
        return f"kernels {self.kernels}, copies {self.copies}, waits {self.waits}"


def random_queue(seed: int, n: int) -> Queue:
    """Work on two streams of a GPU, with copies and waits."""
    draw = random.Random(seed)
    now, free = 0, [0, 0]
    kernels, copies, waits = Times(), Times(), Times()
    for _ in range(n):
        now += draw.choice([3, 5, 8, 8, 40])
        lane = draw.randrange(2)
        start = max(now + 2, free[lane])
        free[lane] = start + draw.choice([1, 4, 9, 30])
        if draw.random() < 0.2:
            copies.append((start, free[lane]))
        else:
            kernels.append((now, start, free[lane]))
        if draw.random() < 0.15:
            until = max(now, *free) + 2
            waits.append((now, until))
            now = until
    draw.shuffle(kernels)
    draw.shuffle(copies)
    return Queue(kernels, copies, waits)


def _read_right(reports: list[check.Report], wanted: list[tuple[Queue, dict[str, int]]]) -> str | None:
    for report, (queue, want) in zip(reports, wanted, strict=True):
        got = dict(report.value)
        if list(got) != list(want):
            return f"returned the keys {list(got)}, wanted {list(want)}, in this order"
        for cause, value in want.items():
            if got[cause] != value:
                return f"{queue}: idle because of {cause!r} {got[cause]} ns, wanted {value} ns"
    return None


def check_read_queue(*cases: Queue, expect: Callable[..., dict[str, int]] | None = None) -> None:
    """expect: works out from kernels, copies and waits what is wanted. No kernels: ValueError."""
    full = [(queue, (queue.kernels, queue.copies, queue.waits)) for queue in cases if queue.kernels]
    wanted = [(queue, expect(*times) if expect else queue.answer()) for queue, times in full]
    look = "the docstring: the first cause that is true, and only between the first start and the last end"
    given, judge = [check.case(*times) for _, times in full], partial(_read_right, wanted=wanted)
    check.function("read_queue", given, verify=judge, look=look)
    if len(full) < len(cases):
        none = check.case([], [], [], raises=ValueError)
        check.function("read_queue", [none], look="the docstring: ValueError")
