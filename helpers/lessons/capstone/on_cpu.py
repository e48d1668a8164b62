"""The capstone's script on this machine's CPU: steps of repaired scripts in pairs with those of the script as it was.

capstone.live(script, repair(script))      # a minute
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from helpers import timing
from helpers.compiling.torches import explained
from helpers.lessons.capstone.parts import Script
from helpers.lessons.capstone.scores import pictures
from helpers.running_example.scores import NoGPU
from helpers.text import tables
from helpers.text.seconds import LIVE_CPU, Speedup

#: the model of the simulated steps, and a quarter of their batch: a step takes half a second on two cores
SIZE = MappingProxyType({"side": 64, "width": 256, "heads": 8, "layers": 2, "batch": 16, "parts": 2})
PICTURES = 128
#: of a measurement: one reading of the log, two validations and one checkpoint are in them
STEPS = 4


@contextmanager
def _stepping(script: Script) -> Iterator[Any]:
    """A function that takes STEPS steps of the script on the CPU; its loaders' processes end with the block."""
    with pictures(PICTURES, SIZE["side"], 0) as files:
        run = script.train(files, SIZE, NoGPU(), steps=1_000_000)

        def once() -> None:
            for _ in range(STEPS):
                next(run)

        try:
            yield once
        finally:
            run.close()


def compared(
    before: Script, after: Mapping[str, Script], pairs: int = 8, threads: int | None = None
) -> dict[str, Speedup]:
    """Each of these scripts' steps against those of `before`, in pairs, on the CPU."""
    found = {}
    with NoGPU(), _quietly(), explained(), _stepping(before) as plain:
        plain(), plain()
        for name, script in after.items():
            with _stepping(script) as once:
                once(), once()  # what torch.compile makes of it, for both of its shapes
                found[name] = timing.compare(plain, once, pairs=pairs, number=1, num_threads=threads)
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """A function that is compiled too often says so again and again; that is for `where` to tell."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def by_area(seed: str) -> tuple[Script, dict[str, Script]]:
    """A class's script, and the same with one area after the other repaired. LookupError in a student's copy."""
    from helpers.lessons.capstone import given
    from helpers.lessons.capstone.parts import AREAS

    build = given.builder()
    areas = list(AREAS)
    steps = [(f"{'and ' if i else ''}the {area}", areas[: i + 1]) for i, area in enumerate(areas)]
    return build.slow(seed), {said: build.repaired(seed, *some) for said, some in steps}


def live(before: Script, after: Script, pairs: int = 8, threads: int | None = None) -> tables.Table:
    """How many times as fast steps of `after` are as those of `before`, on this CPU, small: a minute."""
    found = compared(before, {"the repaired script": after}, pairs, threads)
    rows = [(name, f"{one.cell} ({one.low:.2f} to {one.high:.2f})") for name, one in found.items()]
    return table(rows, LIVE_CPU)


def table(rows: list[tuple[str, str]], evidence: str, how: str = "") -> tables.Table:
    """rows: what is repaired, and how many times as fast it is."""
    size = ", ".join(f"{name}={value}" for name, value in SIZE.items())
    said = "; ".join(filter(None, (f"{STEPS} steps with Size({size})", how)))
    return tables.table(
        rows, ["repaired", "times as fast as the script as it was"], evidence=evidence, caption=said
    )
