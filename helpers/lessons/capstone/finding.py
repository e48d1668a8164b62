"""Which lines of a script raise a counter: what happens in a step is charged to the line that runs.

    capstone.where(script, "syncs")        # the lines that make the CPU wait, and how often in a step
    capstone.by_part(script)               # what each function took, on the CPU and on the GPU

It says where, and not what to do about it: a line may cost what it has to.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

from helpers import count, memory
from helpers.counters.watch import running as counting
from helpers.lessons.capstone import scores
from helpers.lessons.capstone.parts import AREAS, Script, code_of, spaces
from helpers.running_example.scores import number_text
from helpers.simulator import simulate
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

#: the lessons that treat what raises a counter
LESSONS = {
    "step_s": "03", "busy_s": "01, 02, 09, 10", "stall_s": "04", "read_s": "04", "launches": "01, 02, 06",
    "launches_but_casts": "01, 02, 06",
    "operators": "01, 02", "syncs": "03, 05", "copied_bytes": "04, 08, 10", "collectives": "14", "sent_bytes": "14",
    "saved_bytes": "02, 09", "peak_bytes": "08, 09", "growth_bytes": "08", "compilations": "11",
}  # fmt: skip
#: rows of a table of lines; a function has one in the table of functions from so many seconds on
MOST, LEAST_S = 8, 1e-5
_LOADER = "waits for the DataLoader"
_FORMS = {key: (name, form) for key, name, form in scores.ROWS}
_AREA = {part: area for area, parts in AREAS.items() for part in parts}


def _area(function: str) -> str:
    """The exercise that a function belongs to; "" for what none repairs. The classes are the model's."""
    return _AREA.get(function, "model" if "." in function else "")


class Place(NamedTuple):
    """A line of the script, or of a function that stands in for one of its own."""

    text: str
    function: str

    @property
    def area(self) -> str:
        return _area(self.function)


@dataclass
class Charge:
    """What a line took. of: names of what it was, and how much each was. via: the same for the functions that train
    called to come there. flops: of its kernels, in all steps."""

    amount: float = 0.0
    of: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    via: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    flops: int = 0

    def add(self, amount: float, what: str, via: str) -> None:
        self.amount += amount
        self.of[what] += amount
        self.via[via] += amount


#: counter → line → what it took
Charges = dict[str, dict[Place, Charge]]


class _Told(list[Any]):
    """A list that tells of what is appended."""

    def __init__(self, so_far: Iterable[Any], heard: Callable[[Any], None]) -> None:
        super().__init__(so_far)
        self.heard = heard

    def append(self, record: Any) -> None:
        super().append(record)
        self.heard(record)


class _Meter:
    """Charges what it hears of to the line that runs."""

    def __init__(self, own: list[dict[str, Any]]) -> None:
        """own: the global names of the script, and of the functions that stand in for some of its own."""
        self.own = {id(names) for names in own}
        self.charges: Charges = defaultdict(lambda: defaultdict(Charge))

    def charge(self, counter: str, amount: float, what: str, flops: int = 0) -> None:
        place, via = self._here()
        held = self.charges[counter][place]
        held.add(amount, what, via)
        held.flops += flops

    def _here(self) -> tuple[Place, str]:
        """The line that runs, and the function that train called to come here."""
        frame: FrameType | None = sys._getframe(2)
        inner, below = None, ""
        while frame is not None:
            if id(frame.f_globals) in self.own:
                if frame.f_code.co_name == "train":
                    return _place(inner or frame), below
                inner = inner or frame
                below = _name(frame.f_code.co_qualname)
            frame = frame.f_back
        return _place(inner), ""

    def host(self, record: Any) -> None:
        self.charge("step_s", record.duration_s, _LOADER if record.name in scores.WAITING else record.name)
        if record.kind == "operator":
            self.charge("operators", 1, record.name)
        elif record.kind == "sync":
            self.charge("syncs", 1, record.name)
        elif record.name in scores.WAITING:
            self.charge("stall_s", record.duration_s, _LOADER)

    def kernel(self, record: Any) -> None:
        self.charge("launches", 1, record.name)
        if not scores.is_cast(record):
            self.charge("launches_but_casts", 1, record.name)
        if record.kind == "kernel":
            self.charge("busy_s", record.duration_s, record.name, record.flops)
        elif record.kind.startswith("copy"):
            where = "to the device" if record.kind.endswith("h2d") else "to the host"
            self.charge("copied_bytes", record.bytes, f"{where}{', not pinned' if record.pageable else ''}")

    def collective(self, record: Any) -> None:
        self.charge("collectives", 1, record.kind)
        self.charge("sent_bytes", record.bytes, record.kind)

    def read(self, pictures: int, seconds: float) -> None:
        many = "one picture" if pictures == 1 else f"{pictures} pictures"
        self.charge("read_s", seconds, f"a request of {many}")

    def saved(self, nbytes: int) -> None:
        self.charge("saved_bytes", nbytes, f"tensors of {size_text(nbytes)}")

    @contextmanager
    def listening(self, seen: scores.Loading) -> Iterator[None]:
        """Within this block, all that happens on the GPU, and all that is read and saved, is charged."""
        line, traffic = seen.gpu._machine.line, seen.gpu._traffic
        ears = (
            (line, "host", self.host),
            (line, "kernels", self.kernel),
            (traffic, "calls", self.collective),
        )
        for owner, name, heard in ears:
            setattr(owner, name, _Told(getattr(owner, name), heard))
        heard_before, seen.told = seen.told, self.read
        try:
            with count():
                ledger = counting.watches[-1].ledger
                with mock.patch.object(ledger, "saved", self.saved):
                    yield
        finally:
            seen.told = heard_before
            for owner, name, _ in ears:
                setattr(owner, name, list(getattr(owner, name)))


@lru_cache(maxsize=4096)
def _at(file: str, line: int, function: str) -> Place:
    text = linecache.getline(file, line).partition("  #")[0].strip()
    if function == "train" and text.startswith("optimizer."):  # what it launches follows from how it was made
        function = "make_optimizer"
    return Place(text or f"line {line}", _name(function))


@lru_cache(maxsize=4096)
def _name(function: str) -> str:
    """A function's qualified name as the script says it: "Block.forward", "fetch"."""
    names = [name for name in function.split(".") if not name.startswith("<")]
    return names[-1] if "<locals>" in function else ".".join(names)


def _place(frame: FrameType | None) -> Place:
    if frame is None:
        return Place("(before the step)", "")
    return _at(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_qualname)


def _named(script: Script, charges: Charges) -> Charges:
    """The same, where functions that stand in for the script's are called as those."""
    parts = {_name(code.co_qualname): part for part, made in script.replaced if (code := code_of(made))}
    named: Charges = {}
    for counter, lines in charges.items():
        named[counter] = {
            p._replace(function=parts.get(p.function, p.function)): charge for p, charge in lines.items()
        }
        for charge in lines.values():
            charge.via = {parts.get(name, name): share for name, share in charge.via.items()}
    return named


@lru_cache(maxsize=16)
def _charges(script: Script) -> Charges:
    """Four steps of the script, warm: counter → line → what it took in a step."""
    with scores.running(script) as (made, run, seen):
        meter = _Meter([vars(made), *spaces(script)])
        with meter.listening(seen):
            for _ in range(scores.STEPS):
                next(run)
    for lines in meter.charges.values():
        for charge in lines.values():
            charge.amount /= scores.STEPS
    return _named(script, meter.charges)


@lru_cache(maxsize=16)
def _memory(script: Script) -> Charges:
    """The same for memory: what each line holds at the peak, and what it leaves behind in each step."""
    gpu = simulate(scores.CARD).world(scores.RANKS)
    gpu.memory._record_memory_history()
    with scores.running(script, gpu) as (_, run, _):
        begun = []
        for _ in range(scores.STEPS):
            begun.append(len(memory.read(gpu).events))
            next(run)
        history = memory.history(memory.read(gpu))
    known = _Known(script)
    peak: dict[Place, Charge] = defaultdict(Charge)
    for block in history.heap(int(history.allocated.argmax())).live.values():
        known.add(peak, block)
    stay: dict[Place, Charge] = defaultdict(Charge)
    steps: dict[Place, set[int]] = defaultdict(set)
    for block in history.heap(len(history)).live.values():
        if block.born >= begun[0]:
            steps[known.add(stay, block)].add(bisect_right(begun, block.born))
    for charge in stay.values():
        charge.amount /= scores.STEPS
    every = set(range(2, scores.STEPS + 1))  # weights and caches may come in the first
    stays = {place: charge for place, charge in stay.items() if every <= steps[place]}
    return _named(script, {"peak_bytes": peak, "growth_bytes": stays})


class _Known:
    """Where the lines of a script, and of what stands in for its functions, are found from a snapshot's frames."""

    def __init__(self, script: Script) -> None:
        self.file, self.functions = script.file, dict[int, str]()
        for top in ast.parse(script.source).body:
            owner = f"{top.name}." if isinstance(top, ast.ClassDef) else ""
            for node in ast.walk(top):  # what is inside comes after what is around it
                if isinstance(node, ast.FunctionDef):
                    lines = range(node.lineno, (node.end_lineno or 0) + 1)
                    self.functions |= dict.fromkeys(lines, owner + node.name)
        self.others = {c.co_name: c.co_filename for _, part in script.replaced if (c := code_of(part))}

    def add(self, lines: dict[Place, Charge], block: Any) -> Place:
        """Charge a block to the line that asked for it, by way of the function that train called to come there."""
        places = [place for frame in block.frames if (place := self._known(frame)) is not None]
        names = [place.function for place in places]
        below = names[names.index("train") - 1] if "train" in names[1:] else ""
        place = (places or [Place("(elsewhere)", "")])[0]
        lines[place].add(block.size, f"blocks of {size_text(block.size)}", below)
        return place

    def _known(self, frame: Any) -> Place | None:
        if frame.file == self.file:
            return _at(self.file, frame.line, self.functions.get(frame.line, ""))
        if frame.function in self.others and frame.user:
            return _at(self.others[frame.function], frame.line, frame.function)
        return None


# ---------------------------------------------------------------------------------------------------- as tables


def where(script: Script, counter: str, most: int = MOST) -> Table:
    """The lines that raise a counter most, `most` of them, and how much of it each is in a step. ValueError for no counter.

    counter: a field of a Score, such as "syncs". "step_s" is the CPU's time. Lines of a backward pass are charged to
    backward(), the optimizer's to make_optimizer. What is compiled is told in the words of lesson 11.
    """
    if counter not in LESSONS:
        raise ValueError(f"no counter {counter!r}: there are {', '.join(LESSONS)}")
    look = f"to look up: lesson {LESSONS[counter]}"
    if counter == "compilations":
        return _compiled(script, look)
    lines = (_memory if counter in ("peak_bytes", "growth_bytes") else _charges)(script).get(counter, {})
    whole, (name, form) = sum(charge.amount for charge in lines.values()), _FORMS[counter]
    shown = sorted(lines.items(), key=lambda item: -item[1].amount)[:most]
    rows = [
        (f"`{place.text}`", place.function, place.area, _via(charge), f"{form(charge.amount)} ({charge.amount / whole:.0%})", _said(charge))
        for place, charge in shown
        if charge.amount
    ]  # fmt: skip
    if any(charge.amount for place, charge in lines.items() if place not in dict(shown)):
        look = f"in other lines: {form(whole - sum(charge.amount for _, charge in shown))}; {look}"
    heading = "time of the CPU, waits included" if counter == "step_s" else name
    columns = ["line", "in", "area", "train calls", heading, "what it is"]
    return table(rows, columns, evidence=scores.SIMULATED, caption=look)


def _largest(parts: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(parts.items(), key=lambda part: -part[1])


def _via(charge: Charge) -> str:
    whole = sum(charge.via.values())
    return ", ".join(
        f"{name} {share / whole:.0%}" if share < whole else name for name, share in _largest(charge.via)
    )


def _said(charge: Charge) -> str:
    names = [name.removeprefix("aten.").removeprefix("aten::") for name, _ in _largest(charge.of)[:2]]
    largest = ", ".join(names) + (", …" if len(charge.of) > 2 else "")
    rate = charge.flops / (charge.amount * scores.STEPS) / 1e12
    return f"{largest} ({rate:.0f} TFLOP/s)" if rate >= 1 else largest


def _compiled(script: Script, look: str) -> Table:
    """What a small run on the CPU compiles, line by line, and why again."""
    (_, report), rows, known = scores.watched(script, scores.COMPILED), [], _Known(script)
    places = {c.where: c.function.partition(",")[0] for c in report.compilations}
    for where, function in places.items():
        file = script.file if where.startswith(script.file) else known.others.get(function, script.file)
        # "train_….py:110", or "cell, line 15"
        place = _at(file, int(re.findall(r"\d+", where)[-1]), function)
        made = sum(c.where == where and bool(c.operators) for c in report.compilations)
        why = [
            f"the graph breaks: {b.reason}" for b in report.breaks if f"{b.where} ".startswith(f"{where} ")
        ]
        again = [r.reason for r in report.recompiles if f"({where})" in r.where]
        why += [f"again, since this was no longer so: {again[0]}"] if again else []
        rows.append((f"`{place.text}`", place.function, place.area, made, "; ".join(why)))
    columns = ["compiled from this line on", "in", "area", "compilations", "why"]
    return table(rows, columns, evidence="live (CPU)", caption=look)


def by_part(script: Script) -> Table:
    """What each function took in a step without those that it calls, the longest on CPU or GPU first; sums by area."""
    rows = [
        (f"`{name}`" if name in _AREA else name, _area(name), f"{1e3 * took['step_s']:.2f}",
         f"{1e3 * took['busy_s']:.2f}", _FORMS["launches"][1](took["launches"]), _FORMS["syncs"][1](took["syncs"]))
        for name, took in sorted(spent(script).items(), key=lambda item: -max(item[1]["step_s"], item[1]["busy_s"]))
        if max(took["step_s"], took["busy_s"]) >= LEAST_S
    ]  # fmt: skip
    columns = ["function", "area", "CPU, waits included (ms)", "its kernels (ms)", "launches", "syncs"]
    areas = {area: dict.fromkeys(("step_s", "launches", "syncs"), 0.0) for area in AREAS}
    for name, took in spent(script).items():
        for counter in (sums := areas.get(_area(name), {})):
            sums[counter] += took[counter]
    shares = [
        f"{area} {1e3 * of['step_s']:.1f} ms, {number_text(of['launches'])} and {number_text(of['syncs'])}"
        for area, of in areas.items()
    ]
    caption = f"CPU, launches and syncs by area, backward passes apart: {'; '.join(shares)}"
    return table(rows, columns, evidence=scores.SIMULATED, caption=caption)


def spent(script: Script) -> dict[str, dict[str, float]]:
    """Function → counter → what it took in a step. Backward passes stand for themselves, as "backward"."""
    functions: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for counter in ("step_s", "busy_s", "launches", "syncs"):
        for place, charge in _charges(script)[counter].items():
            functions["backward" if ".backward(" in place.text else place.function][counter] += charge.amount
    return functions
