"""The lines of a script, ranked by what their repair could buy: for each a kind of cost, and the same steps without it.

A gain is a bound. It is found by replaying the records (`replay`) with what the repair would take away: a wait gone, Python's
time gone, twenty launches in place of one.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from helpers.own_script import syntax
from helpers.own_script.host_time import LOADER, PYTHON, TORCH, WAITING
from helpers.own_script.places import Place
from helpers.own_script.replay import Event, Tape
from helpers.simulator.cost import roofline
from helpers.simulator.devices import Device
from helpers.text.sizes import size_text


class Advice(NamedTuple):
    """What to say of a kind of cost. what: in the table; sentence: what to try; lessons: which teach it."""

    what: str
    sentence: str
    lessons: str


ADVICE = {
    "value": Advice("waits: a value is read", "leave the number on the GPU and read it every so many steps: `.item()`, `print`, "
                    "`if`, `float()` make the host wait for all work before", "03"),
    "counted": Advice("waits: a size depends on values", "a mask, nonzero() or unique() makes the host wait for a count: "
                      "torch.where, a multiplication by the mask or padded shapes need none", "03"),
    "back": Advice("waits: a copy to the host", "keep it on the GPU, or copy it with non_blocking=True into pinned memory and "
                   "look at it a step later", "04"),
    "synchronize": Advice("waits: synchronize()", "take it out: time with events, or over many steps", "03"),
    "cache": Advice("waits: memory given back", "take empty_cache() out: the next step asks for the same memory again", "08"),
    "there": Advice("copies to the GPU", "copy once before the loop what stays the same; what changes, from pinned memory with "
                    "non_blocking=True", "04"),
    "collective": Advice("collectives", "let them run beside the backward pass (DDP's buckets), send less often (no_sync() while "
                         "gradients are accumulated) or less (bfloat16), and no number in every step", "14"),
    "python": Advice("Python", "the host works while the GPU waits: do it once before the loop, with tensors in place of Python "
                     "loops, or in the loader's workers", "00"),
    "loader": Advice("loading in this process", "let workers do it (num_workers) and make one sample's work smaller", "04"),
    "workers": Advice("waits for the loader", "more workers, or less work for each sample", "04"),
    "loop": Advice("many launches in a loop", "one operator for all of them: torch._foreach_*, a fused optimizer, a larger "
                   "tensor", "06"),
    "optimizer": Advice("many launches of an optimizer", "foreach=True or fused=True does the same in a few launches", "06"),
    "made": Advice("made anew in each step", "make it once before the loop (a buffer of the module), or on the GPU: "
                   "device=…", "01"),
    "copied": Advice("copies on the GPU", "contiguous(), clone(), casts and concatenations only move bytes: lay the tensor out "
                     "as it is read", "01"),
    "fused": Advice("kernels that only move bytes", "one kernel for the line: PyTorch's own operator for it, or "
                    "torch.compile", "11"),
    "attention": Advice("attention by hand", "scaled_dot_product_attention never writes the scores to memory", "02"),
    "dense": Advice(
        "an embedding's dense gradients",
        "backward writes a gradient for every row, and the optimizer reads and writes them all: sparse=True with an "
        "optimizer that takes it (SparseAdam, SGD), where few rows are used",
        "06",
    ),
    "wide": Advice("64-bit numbers", "a Python number or a float64 tensor has crept in: keep tensors in float32 or less", "10"),
    "narrow": Advice("products in float32", "torch.autocast with bfloat16, or at least "
                     "torch.set_float32_matmul_precision('high'): other rounding, so compare the losses", "10"),
    "unused": Advice("a forward pass without a backward pass", "take what the training's own forward pass has computed already, "
                     "or run it every so many steps; under torch.no_grad(), or it keeps its graph", "02"),
    "layout": Advice("convolutions in NCHW", "model and images .to(memory_format=torch.channels_last): Tensor Cores read NHWC, and "
                     "otherwise cuDNN converts each tensor there and back", "12"),
    "switch": Advice("a switch for finding mistakes is on", "take it out once the mistake is found", "00"),
    "blocking": Advice("launches that block", "take CUDA_LAUNCH_BLOCKING out: the host waits for every kernel", "03"),
    "anomaly": Advice("anomaly detection", "take torch.autograd.set_detect_anomaly(True) out: it looks at every gradient, and "
                      "waits for each answer", "02"),
    "grows": Advice("memory that grows", "something keeps each step's tensors: add `.item()` or `.detach()` to what is summed up or "
                    "put into a list", "09"),
    "torch": Advice("PyTorch's own Python", "PyTorch works in Python here, beside its launches: save a checkpoint less often or in a "
                    "thread of its own, take an optimizer with fused=True", "06"),
    "launches": Advice("the host's launches, all of them", "a CUDA graph launches a step at once (on a real GPU "
                       "torch.compile(mode='reduce-overhead') makes one); larger batches give each launch more to do", "07"),
    "compiled": Advice("kernels that only move bytes, all of them", "torch.compile fuses what lies between products", "11"),
}  # fmt: skip
#: operators that move bytes and compute nothing
_COPIES = frozenset("aten._to_copy aten.clone aten.copy_ aten.cat aten.stack".split())
_MADE = frozenset(
    "aten.ones aten.zeros aten.full aten.arange aten.eye aten.tril aten.triu aten.linspace aten.fill_ aten.zero_".split()
)
#: what anomaly detection asks of every gradient
_CHECKS = frozenset("aten.ne aten.any aten.isnan aten._local_scalar_dense".split())
#: rows whose order is found by trying each next; and what is too little to be worth a row
_ROUNDS, _LEAST_S = 15, 1e-6
LITTLE = 0.01  # of a step, or of the device's time in one
_MUCH = 0.02
#: kinds that no script needs, however little they take
_NEVER_NEEDED = {"value", "synchronize", "cache", "back"}
#: kinds whose cost the simulated clock does not have
UNPRICED = {"grows": "memory", "layout": "not simulated", "switch": "not simulated"}
#: the wait that CUDA_LAUNCH_BLOCKING makes of every launch
BLOCKING = "CUDA_LAUNCH_BLOCKING"
#: how much more of Python's time an operator's call may take than it usually does, to be a call and nothing else
_CALLING = 3
_MANY = 8  # operators of one line in a step, from which on a loop is worth a word
_PRODUCTS = ("matmul", "convolution", "attention")


@dataclass(frozen=True)
class Row:
    """One line and what repairing it could buy. now_s: what it takes in a step, on host or GPU; buys_s: how much shorter the
    step is without it, at most; next_s: the same once all rows above it are repaired. hidden_s: where it buys nothing now, what
    it would once the host is no limit. scale: number of a record → what is left of it. also: other kinds of the same line,
    the largest first."""

    place: Place | None
    kind: str
    now_s: float
    evidence: str
    scale: dict[int, float] = field(repr=False, compare=False, default_factory=dict)
    buys_s: float = 0.0
    next_s: float = 0.0
    hidden_s: float = 0.0
    also: tuple[str, ...] = ()

    @property
    def advice(self) -> Advice:
        return ADVICE[self.kind]


@dataclass
class _Line:
    """The events of one line. numbers: of a kind → which."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def rank(
    tape: Tape, card: Device, step_line: Place | None, recorded: Container[Place] = frozenset()
) -> list[Row]:
    """Rows for each line, the one whose repair buys most first: alone, or where another limit hides it, once that limit is
    gone. The limits are taken away one by one, at each turn the line that buys most then.

    recorded: lines that called a model with autograd on. step_line: where the step ends; a loop around it is the training
    loop, and no loop to be taken out. Rows that take under `_LEAST_S` of a step, or could buy less in any order, are left
    out, but for those that shorten a device's time which hides behind the host's.
    """
    lines = _lines(tape)
    calling_ns = _calling_ns(tape, lines, PYTHON)
    whole = before = tape.step_ns()
    by_place: dict[Place | None, list[Row]] = defaultdict(list)
    for row in [
        *(r for p, line in lines.items() for r in _rows(tape, card, p, line, step_line, calling_ns)),
        *_in_torch(tape, lines),
        *_attention(tape, lines),
        *_unused(tape, recorded),
    ]:
        if row.scale:
            by_place[row.place].append(replace(row, buys_s=(whole - tape.step_ns(row.scale)) / 1e9))
    open_ = [_joined(tape, rows, whole) for rows in by_place.values()]
    gone: dict[int, float] = {}
    ranked: list[Row] = []
    while open_ and len(ranked) < _ROUNDS:
        after, best = _best(tape, gone, open_, before)
        if (before - after) / 1e9 < _LEAST_S:
            break
        row = open_.pop(best)
        gone = _both(gone, row.scale)
        ranked.append(replace(row, next_s=(before - after) / 1e9))
        before = after
    rest = [replace(row, next_s=(before - tape.step_ns(_both(gone, row.scale))) / 1e9) for row in open_]
    rows = [
        row
        for row in _with_hidden(tape, [*ranked, *rest], LITTLE * whole / 1e9)
        if {row.kind, *row.also} & _NEVER_NEEDED or max(row.buys_s, row.next_s, row.hidden_s) >= _LEAST_S
    ]
    return _behind(tape, in_order(rows, len(rows)))


def in_order(rows: Iterable[Row], most: int) -> list[Row]:
    """Rows as the table has them, `most` of them: what buys most first; last what buys nothing now and would on a faster host.

    Where there are more, those that buy least are left out, first of the host's own work; but no wait: no script needs one.
    """
    ordered = sorted(rows, key=lambda row: (row.hidden_s > 0, -max(row.next_s, row.buys_s, row.hidden_s)))
    crumbs = [row for row in ordered[::-1] if not row.hidden_s and not {row.kind, *row.also} & _NEVER_NEEDED]
    crumbs.sort(key=lambda row: row.kind not in ("python", "torch", "loader"))
    left_out = {id(row) for row in crumbs[: max(0, len(ordered) - most)]}
    return [row for row in ordered if id(row) not in left_out]


def _with_hidden(tape: Tape, rows: list[Row], least_s: float) -> list[Row]:
    """Rows that buy less than that, each with what it would take off the device's time if the host took none."""
    hostless = {n: 0.0 for n, event in enumerate(tape.events) if event.lane is None}
    device = tape.step_ns(hostless)

    def hidden_s(row: Row) -> float:
        if max(row.buys_s, row.next_s) >= least_s or all(tape.events[n].lane is None for n in row.scale):
            return 0.0
        gain = device - tape.step_ns(_both(hostless, row.scale))
        return gain / 1e9 if gain > LITTLE * device else 0.0

    return [replace(row, hidden_s=hidden_s(row)) for row in rows]


def _lines(tape: Tape) -> dict[Place, _Line]:
    """The events by line and kind."""
    lines: dict[Place, _Line] = defaultdict(_Line)
    apart = _checks(tape) | _blocking(tape)  # these have a row of their own
    for number, event in enumerate(tape.events):
        if number not in apart:
            lines[event.cost.place].numbers[event.cost.kind].append(number)
        asker = event.cost.within
        if asker is not None and asker != event.cost.place and event.cost.kind in (LOADER, WAITING):
            lines[asker].numbers[event.cost.kind].append(number)  # workers would take all of it
    return lines


def _best(tape: Tape, gone: dict[int, float], rows: list[Row], before: float) -> tuple[float, int]:
    """A step's time, and which row's repair brings it there: the one that buys most now. Rows that take less than one has
    bought already are not tried."""
    most = [(_most_ns(tape, row), n) for n, row in enumerate(rows)]
    after, best = before, most[0][1]
    for bound, n in sorted(most, key=lambda one: -one[0]):
        if before - bound >= after:
            break
        took = tape.step_ns(_both(gone, rows[n].scale))
        if took < after:
            after, best = took, n
    return after, best


def _most_ns(tape: Tape, row: Row) -> float:
    """What a row's repair can buy at most: all that it takes away. A wait that goes may set free more than it takes."""
    events = tape.events
    if any(events[n].wait is not None for n in row.scale):
        return math.inf
    return sum(events[n].ns * (1 - factor) for n, factor in row.scale.items()) / tape.steps


def _behind(tape: Tape, rows: Iterable[Row]) -> list[Row]:
    """The rows as they stand, each with what it buys once all above it are repaired."""
    before, gone, told = tape.step_ns(), dict[int, float](), list[Row]()
    for row in rows:
        gone = _both(gone, row.scale)
        after = tape.step_ns(gone) if _most_ns(tape, row) / 1e9 >= _LEAST_S else before
        told.append(replace(row, next_s=(before - after) / 1e9))
        before = after
    return told


def _joined(tape: Tape, rows: list[Row], whole: float) -> Row:
    """The rows of one line as one: what it is first of all, and what else."""
    first, *others = sorted(rows, key=lambda row: -max(row.buys_s, row.now_s / 1e3))
    scale = first.scale
    for row in others:
        scale = _both(scale, row.scale)
    now = sum(tape.events[number].ns for number in scale) / tape.all_steps / 1e9
    kinds = tuple(row.kind for row in others)
    said = "; ".join([first.evidence, *(f"{ADVICE[row.kind].what}: {row.evidence}" for row in others)])
    return Row(first.place, first.kind, now, said, scale, (whole - tape.step_ns(scale)) / 1e9, also=kinds)


def everywhere(tape: Tape, card: Device) -> list[Row]:
    """What no single line is to blame for, each row by itself, the largest gain first."""
    whole = tape.step_ns()
    rows = [
        replace(row, buys_s=(whole - tape.step_ns(row.scale)) / 1e9)
        for row in _everywhere(tape, card)
        if row.scale
    ]
    return sorted(rows, key=lambda row: -row.buys_s)


def _both(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """What is left where two repairs are made: of what both shorten, the less."""
    both = dict(one)
    for number, factor in other.items():
        both[number] = min(factor, both.get(number, 1.0))
    return both


def _calling_ns(tape: Tape, lines: Mapping[Place, _Line], what: str) -> float:
    """Python's time, or that of PyTorch's own, for one operator on the usual line that has some: what it takes to call one, on
    this machine and now."""
    taken = [
        sum(tape.events[n].ns for n in line.numbers[what]) / len(called)
        for place, line in lines.items()
        if place.file and (called := _called(tape, line))
    ]
    return statistics.median(taken) if taken else 0.0


def _in_torch(tape: Tape, lines: Mapping[Place, _Line]) -> Iterable[Row]:
    """Lines at which PyTorch's own Python does more than call operators, and takes much of a step."""
    one, least = _calling_ns(tape, lines, TORCH), _MUCH * tape.step_ns() * tape.all_steps
    for place, line in lines.items():
        numbers = line.numbers[TORCH]
        took = sum(tape.events[n].ns for n in numbers)
        if place.file and took > max(_CALLING * one * len(_called(tape, line)), least):
            evidence = f"{took / tape.all_steps / 1e6:.2f} ms of the host in a step, measured here"
            yield _row(tape, place, "torch", dict.fromkeys(numbers, 0.0), evidence)


def _called(tape: Tape, line: _Line) -> list[int]:
    """The operators that a line calls itself: those of its backward pass are autograd's."""
    return [n for n in line.numbers["operator"] if not tape.events[n].cost.backward]


def _rows(
    tape: Tape, card: Device, place: Place, line: _Line, step_line: Place | None, calling_ns: float
) -> Iterable[Row]:
    """What could be repaired at one line, each kind by itself. calling_ns: Python's time for a usual operator."""
    if not place.file:
        return
    events, of = tape.events, line.numbers
    looped = _looped(place, step_line)

    def row(
        kind: str, numbers: Iterable[int], evidence: str, scale: Callable[[Event], float] = lambda event: 0.0
    ) -> Row:
        return _row(tape, place, kind, {number: scale(events[number]) for number in numbers}, evidence)

    waits: dict[str, list[int]] = defaultdict(list)
    for number in of["wait"]:
        to_device = (
            number and events[number - 1].cost.kind == "h2d"
        )  # the copy that it waits for stands before it
        waits["there" if to_device else _wait(events[number].name)].append(number)
    put = waits.pop("there", [])
    for kind, numbers in waits.items():
        also = of["d2h"] if kind in ("value", "back") else []
        names = {events[number].name for number in numbers}
        also = [*also, *(n for n in of["operator"] if events[n].name in names)]
        yield row(
            kind,
            [*numbers, *also],
            f"{_each(len(numbers) / tape.all_steps)} in a step, by {_names(events, numbers)}",
        )
    if of["h2d"]:
        many = len(of["h2d"]) / tape.all_steps
        yield row(
            "there",
            [*of["h2d"], *of["stage"], *put],
            f"{_each(many, 'copy', 'copies')} in a step",
        )
    if of["collective"]:
        asked = _each(len(of["collective"]) / tape.all_steps, "collective")
        yield row("collective", of["collective"], f"{asked} in a step: {_names(events, of['collective'])}")
    operators = _called(tape, line)
    # Python that only calls operators is no work to be moved elsewhere: it goes where they go.
    python_ns = sum(events[number].ns for number in of[PYTHON])
    calls = of[PYTHON] if python_ns <= _CALLING * calling_ns * len(operators) else []
    for what, kind in ((PYTHON, "python"), (LOADER, "loader"), (WAITING, "workers")):
        if of[what] and not (what == PYTHON and calls):
            took = sum(events[number].ns for number in of[what]) / tape.all_steps / 1e6
            yield row(kind, of[what], f"{took:.2f} ms of the host in a step, measured here")

    def without(some: list[int]) -> dict[int, float]:
        """Some of the line's operators gone, and as much of the Python that calls them."""
        return dict.fromkeys(some, 0.0) | {n: 1 - len(some) / len(operators) for n in calls if operators}

    kernels = [n for n in of["kernel"] if events[n].work is not None]
    if len(kernels) / tape.all_steps >= _MANY and (looped or ".step(" in place.text):
        many = len(kernels) / tape.all_steps
        floor = card.assumptions.kernel_floor_s * 1e9
        gone = {n: 1 / many for n in [*operators, *of[TORCH], *of[PYTHON]]} | {
            n: max(0.0, 1 - floor / events[n].ns) for n in kernels if events[n].ns
        }
        kind = "optimizer" if ".step(" in place.text else "loop"
        evidence = f"{many:.0f} kernels in a step: {_names(events, kernels)}"
        yield _row(tape, place, kind, gone, evidence)
    made = [n for n in kernels if events[n].name in _MADE]
    if made:
        evidence = f"{_names(events, made)}: {_each(len(made) / tape.all_steps, 'kernel')} in a step"
        gone = dict.fromkeys(made, 0.0) | without([n for n in operators if events[n].name in _MADE])
        yield _row(tape, place, "made", gone, evidence)
    copied = [n for n in kernels if events[n].name in _COPIES]
    if copied:
        evidence = f"{_names(events, copied)}: {_bytes(events, copied, tape.all_steps)} in a step"
        gone = dict.fromkeys(copied, 0.0) | without([n for n in operators if events[n].name in _COPIES])
        yield _row(tape, place, "copied", gone, evidence)
    moving = [n for n in kernels if events[n].work.family not in _PRODUCTS and n not in {*made, *copied}]  # type: ignore[union-attr]
    names = {events[n].name for n in moving if not events[n].cost.backward}
    if len(names) > 1 and not looped and ".step(" not in place.text:
        # Several operators on one line: one pass over the memory, and one launch, instead of one each.
        evidence = f"{len(names)} operators on one line: {_names(events, moving)}"
        launching = [n for n in operators if events[n].name in names]
        yield row("fused", [*moving, *launching, *calls], evidence, lambda event: 1 / len(names))
    dense = [n for n in kernels if events[n].name == "aten.embedding_dense_backward"]
    if dense:
        evidence = f"gradients of whole tables: {_bytes(events, dense, tape.all_steps)} in a step"
        yield row("dense", dense, evidence)
    products = [n for n in kernels if events[n].work.family in _PRODUCTS]  # type: ignore[union-attr]
    if products and tape.mixed and (narrow := _narrow(tape, card, products)):
        evidence = f"{_each(len(narrow) / tape.all_steps, 'product')} in a step outside autocast, in {_kinds(events, narrow)}"
        yield _row(tape, place, "narrow", narrow, evidence)
    wide = [n for n in kernels if events[n].cost.wide]
    if wide:
        yield row("wide", wide, f"{_names(events, wide)} in float64", lambda e: 0.5)


def _row(tape: Tape, place: Place | None, kind: str, scale: dict[int, float], evidence: str) -> Row:
    """A row whose gain is still to be found."""
    now = sum(tape.events[number].ns for number in scale) / tape.all_steps
    return Row(place, kind, now / 1e9, evidence, scale)


def _looped(place: Place, step_line: Place | None) -> bool:
    """Whether a line is in a loop that is not the training loop."""
    around = syntax.lines(place.file).get(place.line, syntax.Stands()).loops
    if step_line is not None and step_line.file == place.file and step_line.function == place.function:
        training = syntax.lines(step_line.file).get(step_line.line, syntax.Stands()).loops
        around = tuple(loop for loop in around if loop not in training)
    return bool(around)


def _wait(name: str) -> str:
    """Which kind of wait one of the host's is, by the operator that waits."""
    if name in ("synchronize", "stream.synchronize", "event.synchronize"):
        return "synchronize"
    if name in ("cudaFree", "cudaMalloc", "cudaEventSynchronize"):
        return "cache"
    if name in ("aten._local_scalar_dense", "print", "aten.equal", "aten.allclose"):
        return "value"
    if name in ("aten._to_copy", "aten.copy_", "Tensor.cpu", "Tensor.numpy", "Tensor.tolist"):
        return "back"
    return "there" if name.startswith("torch.") else "counted"


def _attention(tape: Tape, lines: Mapping[Place, _Line]) -> Iterable[Row]:
    """A function that computes scores, a softmax of them, and another product: attention that is written out."""
    events = tape.events
    functions: dict[tuple[str, str], dict[int, Place]] = defaultdict(dict)
    for place, line in lines.items():
        for number in line.numbers["kernel"]:
            functions[place.file, place.function][number] = place
    for (file, _), numbers in functions.items():
        if not file:
            continue
        softmaxes = [
            n
            for n in numbers
            if "softmax" in events[n].name and not events[n].cost.backward and events[n].work
        ]
        products = [n for n in numbers if events[n].name in ("aten.bmm", "aten.matmul", "aten.baddbmm")]
        if not softmaxes or len(products) < 2:
            continue
        moved = [n for n in numbers if events[n].work is not None and events[n].work.family not in _PRODUCTS]  # type: ignore[union-attr]
        largest = max(events[n].work.bytes for n in softmaxes)  # type: ignore[union-attr]
        scores = [n for n in moved if events[n].work.bytes >= largest / 4]  # type: ignore[union-attr]
        evidence = f"scores written and read by {_names(events, scores)}"
        there = {numbers[n] for n in scores}
        names = {events[n].name for n in scores}
        launching = [
            n for place in there for n in lines[place].numbers["operator"] if events[n].name in names
        ]
        yield _row(
            tape, numbers[softmaxes[0]], "attention", dict.fromkeys([*scores, *launching], 0.0), evidence
        )


def _everywhere(tape: Tape, card: Device) -> Iterable[Row]:
    """What no single line is to blame for."""
    events = tape.events

    def row(kind: str, scale: dict[int, float], evidence: str) -> Row:
        return _row(tape, None, kind, scale, evidence)

    narrow = {} if tape.mixed else _narrow(tape, card, range(len(events)))
    if narrow:
        yield row(
            "narrow",
            narrow,
            f"{len(narrow) / tape.all_steps:.0f} products in a step in {_kinds(events, narrow)}",
        )
    if checks := _checks(tape):
        yield row(
            "anomaly",
            checks,
            f"{len(checks) / tape.all_steps:.0f} records in a step: {_names(events, checks)}",
        )
    if waits := _blocking(tape):
        yield row("blocking", waits, f"{_each(len(waits) / tape.all_steps)} in a step")
    lines = _lines(tape)
    more = {n for r in _in_torch(tape, lines) for n in r.scale}  # no launches
    operators = {n: 0.0 for n, e in enumerate(events) if e.cost.kind in ("operator", TORCH) and n not in more}
    many = sum(events[n].cost.kind == "operator" for n in operators) / tape.all_steps
    yield row("launches", operators, f"{many:.0f} operators in a step, and PyTorch's own Python around them")
    moving = {
        n: 0.5
        for n, e in enumerate(events)
        if e.work is not None and e.work.family not in (*_PRODUCTS, "optimizer")
    }
    if moving:
        yield row(
            "compiled",
            moving,
            f"{len(moving) / tape.all_steps:.0f} kernels in a step; half of their time, as a guess",
        )


def _unused(tape: Tape, recorded: Container[Place]) -> Iterable[Row]:
    """Lines that call a model whose outputs no backward pass comes back to."""
    passes: dict[Place, list[int]] = defaultdict(list)
    used = {event.cost.within for event in tape.events if event.cost.backward}
    for number, event in enumerate(tape.events):
        asker = event.cost.within
        if asker is not None and asker not in used and event.cost.kind not in (LOADER, WAITING):
            passes[asker].append(number)
    for place, numbers in passes.items():
        works = [work for n in numbers if (work := tape.events[n].work) is not None]
        if any(work.family in _PRODUCTS for work in works):
            evidence = f"{len(works) / tape.all_steps:.0f} kernels in a step" + (
                ", with autograd on" if place in recorded else ""
            )
            yield _row(tape, place, "unused", dict.fromkeys(numbers, 0.0), evidence)


def _narrow(tape: Tape, card: Device, numbers: Iterable[int]) -> dict[int, float]:
    """What would be left of products in float32 with half the bits."""
    narrow = {}
    for n in numbers:
        work, ns = tape.events[n].work, tape.events[n].ns
        if work is not None and work.family in _PRODUCTS and work.kind in ("fp32", "tf32") and ns:
            half = roofline.seconds(work._replace(kind="bf16", bytes=work.bytes // 2), card) * 1e9
            narrow[n] = min(1.0, half / ns)
    return narrow


def _kinds(events: object, numbers: Iterable[int]) -> str:
    """The formats of these products: "fp32 and tf32"."""
    return " and ".join(sorted({events[n].work.kind for n in numbers}))  # type: ignore[index]


def _blocking(tape: Tape) -> dict[int, float]:
    """The waits of launches that block."""
    return {
        n: 0.0 for n, event in enumerate(tape.events) if event.wait is not None and event.name == BLOCKING
    }


def _checks(tape: Tape) -> dict[int, float]:
    """What anomaly detection does, where it is on."""
    if not torch.is_anomaly_enabled():
        return {}
    return {n: 0.0 for n, event in enumerate(tape.events) if event.cost.backward and event.name in _CHECKS}


def _each(many: float, one: str = "wait", more: str = "") -> str:
    """ "1 wait", "12 waits", "0.2 waits": how many in a step."""
    text = f"{many:.0f}" if many >= 1 else f"{many:.1f}"
    return f"{text} {one if text == '1' else more or one + 's'}"


def _names(events: object, numbers: Iterable[int]) -> str:
    """The operators that took longest among these."""
    took: dict[str, float] = defaultdict(float)
    for number in numbers:
        took[events[number].name.removeprefix("aten.")] += events[number].ns + 1  # type: ignore[index]
    names = [name for name, _ in sorted(took.items(), key=lambda item: -item[1])]
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _bytes(events: object, numbers: Iterable[int], steps: int) -> str:
    return size_text(round(sum(events[n].work.bytes for n in numbers) / steps))  # type: ignore[index]
