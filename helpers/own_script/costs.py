"""What could be repaired in a script, line by line: a row for each kind of cost that a line has, and what the repair takes away."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from helpers.own_script import syntax
from helpers.own_script.host_time import LOADER, PYTHON, TORCH, WAITING
from helpers.own_script.kinds import ADVICE, BLOCKING, Advice
from helpers.own_script.places import Place
from helpers.own_script.replay import Event, Tape
from helpers.simulator.cost import roofline
from helpers.simulator.devices import Device
from helpers.text.sizes import size_text

#: the numbers of a line's events, by kind
Line = Mapping[str, list[int]]
#: operators that move bytes and compute nothing
_COPIES = frozenset("aten._to_copy aten.clone aten.copy_ aten.cat aten.stack".split())
_MADE = frozenset(
    "aten.ones aten.zeros aten.full aten.arange aten.eye aten.tril aten.triu aten.linspace aten.fill_ aten.zero_".split()
)
#: what anomaly detection asks of every gradient
_CHECKS = frozenset("aten.ne aten.any aten.isnan aten._local_scalar_dense".split())
#: how much more of Python's time an operator's call may take than it usually does, to be a call and nothing else
_CALLING = 3
_MANY = 8  # operators of one line in a step, from which on a loop is worth a word
_MUCH = 0.02  # of a step


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


def of_lines(tape: Tape, card: Device, step_line: Place | None, recorded: Container[Place]) -> Iterable[Row]:
    """What could be repaired at each line, each kind by itself; as :func:`ranking.rank` has its arguments."""
    lines = _lines(tape)
    calling_ns = _calling_ns(tape, lines, PYTHON)
    rows = [
        row for place, line in lines.items() for row in _rows(tape, card, place, line, step_line, calling_ns)
    ]
    yield from _by_loop(tape, rows, step_line)
    yield from _in_torch(tape, lines)
    yield from _attention(tape, lines)
    yield from _unused(tape, recorded)


def of_no_line(tape: Tape, card: Device) -> Iterable[Row]:
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
        if e.work is not None and e.work.family not in (*roofline.ARITHMETIC, "optimizer")
    }
    if moving:
        yield row(
            "compiled",
            moving,
            f"{len(moving) / tape.all_steps:.0f} kernels in a step; half of their time, as a guess",
        )


def _lines(tape: Tape) -> dict[Place, Line]:
    """The events by line and kind."""
    lines: dict[Place, Line] = defaultdict(lambda: defaultdict(list))
    apart = _checks(tape) | _blocking(tape)  # these have a row of their own
    for number, event in enumerate(tape.events):
        if number not in apart:
            lines[event.cost.place][event.cost.kind].append(number)
        asker = event.cost.within
        if asker is not None and asker != event.cost.place and event.cost.kind in (LOADER, WAITING):
            lines[asker][event.cost.kind].append(number)  # workers would take all of it
    return lines


def _calling_ns(tape: Tape, lines: Mapping[Place, Line], what: str) -> float:
    """Python's time, or that of PyTorch's own, for one operator on the usual line that has some: what it takes to call one, on
    this machine and now."""
    taken = [
        sum(tape.events[n].ns for n in line[what]) / len(called)
        for place, line in lines.items()
        if place.file and (called := _called(tape, line))
    ]
    return statistics.median(taken) if taken else 0.0


def _in_torch(tape: Tape, lines: Mapping[Place, Line]) -> Iterable[Row]:
    """Lines at which PyTorch's own Python does more than call operators, and takes much of a step."""
    one, least = _calling_ns(tape, lines, TORCH), _MUCH * tape.step_ns() * tape.all_steps
    for place, line in lines.items():
        numbers = line[TORCH]
        took = sum(tape.events[n].ns for n in numbers)
        if place.file and took > max(_CALLING * one * len(_called(tape, line)), least):
            evidence = f"{took / tape.all_steps / 1e6:.2f} ms of the host in a step, measured here"
            yield _row(tape, place, "torch", dict.fromkeys(numbers, 0.0), evidence)


def _called(tape: Tape, line: Line) -> list[int]:
    """The operators that a line calls itself: those of its backward pass are autograd's."""
    return [n for n in line["operator"] if not tape.events[n].cost.backward]


def _rows(
    tape: Tape, card: Device, place: Place, line: Line, step_line: Place | None, calling_ns: float
) -> Iterable[Row]:
    """What could be repaired at one line, each kind by itself. calling_ns: Python's time for a usual operator."""
    if not place.file:
        return
    events, of = tape.events, line
    looped = _loop(place, step_line) is not None

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
        gone = {n: 1 / many for n in [*of["operator"], *of[TORCH], *of[PYTHON]]} | {
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
    moving = [n for n in kernels if not _computes(events[n]) and n not in {*made, *copied}]
    names = {events[n].name for n in moving if not events[n].cost.backward}
    if len(names) > 1 and not looped and ".step(" not in place.text:
        # Several operators on one line: one pass over the memory, and one launch, instead of one each.
        evidence = f"{len(names)} operators on one line: {_names(events, moving)}"
        every = {events[n].name for n in moving}  # their gradients, too, are launched by themselves
        launching = [n for n in of["operator"] if events[n].name in every]
        yield row("fused", [*moving, *launching, *calls], evidence, lambda event: 1 / len(names))
    dense = [n for n in kernels if events[n].name == "aten.embedding_dense_backward"]
    if dense:
        evidence = f"gradients of whole tables: {_bytes(events, dense, tape.all_steps)} in a step"
        yield row("dense", dense, evidence)
    products = [n for n in kernels if _computes(events[n])]
    if products and tape.mixed and (narrow := _narrow(tape, card, products)):
        evidence = f"{_each(len(narrow) / tape.all_steps, 'product')} in a step outside autocast, in {_kinds(events, narrow)}"
        yield _row(tape, place, "narrow", narrow, evidence)
    wide = [n for n in kernels if events[n].cost.wide]
    if wide:
        yield row("wide", wide, f"{_names(events, wide)} in float64", lambda e: 0.5)


def _computes(event: Event) -> bool:
    """Whether a kernel's time is arithmetic's: products, convolutions, attention in one kernel."""
    return event.work is not None and event.work.family in roofline.ARITHMETIC


def _row(tape: Tape, place: Place | None, kind: str, scale: dict[int, float], evidence: str) -> Row:
    """A row whose gain is still to be found."""
    now = sum(tape.events[number].ns for number in scale) / tape.all_steps
    return Row(place, kind, now / 1e9, evidence, scale)


def _loop(place: Place, step_line: Place | None) -> int | None:
    """First line of the innermost loop that a line is in, if that is not the training loop."""
    around = syntax.lines(place.file).get(place.line, syntax.Stands()).loops
    if step_line is not None and step_line.file == place.file and step_line.function == place.function:
        training = syntax.lines(step_line.file).get(step_line.line, syntax.Stands()).loops
        around = tuple(loop for loop in around if loop not in training)
    return around[-1] if around else None


def _by_loop(tape: Tape, rows: Iterable[Row], step_line: Place | None) -> Iterable[Row]:
    """The rows, those of a loop's lines as one, at the line that takes most: one operator for all turns replaces the loop."""
    loops: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind == "loop" and row.place and (loop := _loop(row.place, step_line)) is not None:
            loops[row.place.file, loop].append(row)
        else:
            yield row
    for (_, loop), of_it in loops.items():
        first = max(of_it, key=lambda row: row.now_s)
        if len(of_it) == 1:
            yield first
            continue
        scale = {number: left for row in of_it for number, left in row.scale.items()}
        kernels = [n for n in scale if tape.events[n].cost.kind == "kernel"]
        many = f"{len(kernels) / tape.all_steps:.0f} kernels in a step by {len(of_it)} lines of the loop in line {loop}"
        yield _row(tape, first.place, "loop", scale, f"{many}: {_names(tape.events, kernels)}")


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


def _attention(tape: Tape, lines: Mapping[Place, Line]) -> Iterable[Row]:
    """A function that computes scores, a softmax of them, and another product: attention that is written out."""
    events = tape.events
    functions: dict[tuple[str, str], dict[int, Place]] = defaultdict(dict)
    for place, line in lines.items():
        for number in line["kernel"]:
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
        moved = [n for n in numbers if events[n].work is not None and not _computes(events[n])]
        largest = max(events[n].work.bytes for n in softmaxes)  # type: ignore[union-attr]
        scores = [n for n in moved if events[n].work.bytes >= largest / 4]  # type: ignore[union-attr]
        evidence = f"scores written and read by {_names(events, scores)}"
        there = {numbers[n] for n in scores}
        names = {events[n].name for n in scores}
        launching = [n for place in there for n in lines[place]["operator"] if events[n].name in names]
        yield _row(
            tape, numbers[softmaxes[0]], "attention", dict.fromkeys([*scores, *launching], 0.0), evidence
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
        if any(work.family in roofline.ARITHMETIC for work in works):
            evidence = f"{len(works) / tape.all_steps:.0f} kernels in a step" + (
                ", with autograd on" if place in recorded else ""
            )
            yield _row(tape, place, "unused", dict.fromkeys(numbers, 0.0), evidence)


def _narrow(tape: Tape, card: Device, numbers: Iterable[int]) -> dict[int, float]:
    """What would be left of products in float32 with half the bits."""
    narrow = {}
    for n in numbers:
        work, ns = tape.events[n].work, tape.events[n].ns
        if work is not None and work.family in roofline.ARITHMETIC and work.kind in ("fp32", "tf32") and ns:
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
