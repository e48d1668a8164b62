"""A class's script: which faults its seed picks, and the text that they make of the fast one."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from helpers.lessons.capstone.catalogue import FAULTS, Fault
from helpers.lessons.capstone.parts import Script

FAST = Path(__file__).with_name("fast.py")
#: how many faults a script has
FROM, TO = 16, 20

#: What each exercise is graded by, a test a counter. Each of these has a fault of its own in every script
#: (:func:`picked`), and no right repair raises it. That is why launches are counted without casts: autocast adds more of
#: them than most repairs of the model save.
GRADED: dict[str, tuple[str, ...]] = {
    "data": ("read_s", "stall_s", "copied_bytes", "syncs"),
    "model": ("launches_but_casts", "saved_bytes", "busy_s", "compilations"),
    "step": ("launches_but_casts", "syncs", "collectives", "peak_bytes"),
    "run": ("syncs", "growth_bytes", "copied_bytes", "saved_bytes"),
}


@lru_cache(maxsize=64)
def picked(seed: str) -> tuple[Fault, ...]:
    """The faults of a class's script: of one place one at most, each graded counter raised, each kind of work met."""
    dice = random.Random(f"capstone {seed}")
    places: dict[str, list[Fault]] = {}
    for fault in FAULTS:
        places.setdefault(fault.place, []).append(fault)
    wanted = {(area, counter) for area, counters in GRADED.items() for counter in counters}
    kinds = {fault.kind for fault in FAULTS}
    while True:
        some = dice.sample(list(places), dice.randint(FROM, TO))
        faults = [dice.choice(places[place]) for place in places if place in some]
        raised = {(f.area, counter) for f in faults for counter in (f.counter, *f.also)}
        if wanted <= raised and kinds == {f.kind for f in faults}:
            return tuple(faults)


@lru_cache(maxsize=256)
def with_faults(faults: Iterable[Fault]) -> Script:
    """The fast script with these faults. ValueError for two that change the same text."""
    text = FAST.read_text(encoding="utf-8")
    for fault in faults:
        for old, new in fault.edits:
            if text.count(old) != 1:
                raise ValueError(f"{fault.name!r}: its text is there {text.count(old)} times:\n{old}")
            text = text.replace(old, new)
    return Script(_imports(text, {line for fault in faults for line in fault.imports}))


def _imports(text: str, more: set[str]) -> str:
    """The text with these imports, each where a formatter would put it, and without those that it does not use."""
    before, body = text.split("from __future__ import annotations\n")
    lines, rest = re.match(r"(\n(?:(?:import|from) [^\n]*\n|\n)+)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
    groups: list[list[str]] = [[], [], []]
    for line in {*lines.split("\n"), *more} - {""}:
        root = line.split()[1].partition(".")[0]
        groups[{"torch": 1, "numpy": 1, "helpers": 2}.get(root, 0)].append(_used(line, rest))
    blocks = ["\n".join(sorted(filter(None, group), key=_place)) for group in groups]
    return f"{before}from __future__ import annotations\n\n" + "\n\n".join(blocks) + "\n" + _gap(lines) + rest


def _gap(lines: str) -> str:
    return "\n" * (len(lines) - len(lines.rstrip("\n")) - 1)


def _place(line: str) -> tuple[bool, str, str]:
    return line.startswith("from"), line.split()[1].lower(), line


def _used(line: str, text: str) -> str:
    """The import without the names that the text does not use; "" if it uses none."""
    head, _, names = line.rpartition("import ")
    kept = [
        name for name in names.split(", ") if re.search(rf"\b{re.escape(name.split(' as ')[-1])}\b", text)
    ]
    return f"{head}import {', '.join(kept)}" if kept else ""


def fast() -> Script:
    """The script without any fault."""
    return with_faults(())


def slow(seed: str, but: Iterable[Fault] = ()) -> Script:
    """A class's script, without some of its faults."""
    left_out = set(but)
    return with_faults(tuple(fault for fault in picked(seed) if fault not in left_out))


def repaired(seed: str, *areas: str) -> Script:
    """A class's script with these areas repaired."""
    return slow(seed, [fault for fault in picked(seed) if fault.area in areas])
