"""The same on a CPU: steps of repaired scripts, and of each rung at a reduced size, in pairs with those that came first.

capstone.live(script, repair(script))      # a minute
python -m helpers.lessons.capstone.reference_repair.on_cpu     # measure on this machine with two threads, and keep it in measured.json
python -m helpers.lessons.capstone.reference_repair.on_cpu gpt2     # this one only
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch

from helpers import timing
from helpers.compiling.torches import explained
from helpers.lessons.capstone import given
from helpers.lessons.capstone.parts import AREAS, Script
from helpers.lessons.capstone.reference_repair.models import TASKS, Rung, rungs_of
from helpers.lessons.capstone.reference_repair.steps import stepper
from helpers.lessons.capstone.scores import pictures, quietly
from helpers.recordings.manifest import processor
from helpers.running_example.scores import NoGPU
from helpers.simulator import simulate
from helpers.text import tables
from helpers.text.seconds import LIVE_CPU, Speedup

CPU = SimpleNamespace(device=torch.device("cpu"))
KEPT = Path(__file__).with_name("measured.json")
THREADS = 2
#: the ladder that is no task's
CAPSTONE = "capstone"
_FROM = ("models.py", "steps.py")

#: of the capstone's script: the model of the simulated steps, and a quarter of their batch: a step takes half a second on two cores
SIZE = MappingProxyType({"side": 64, "width": 256, "heads": 8, "layers": 2, "batch": 16, "parts": 2})
PICTURES = 128
#: of a measurement: one reading of the log, two validations and one checkpoint are in them
STEPS = 4

# ------------------------------------------------------------------------------------ the capstone's script


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
    speedups = {}
    with NoGPU(), quietly(), explained(), _stepping(before) as plain:
        plain(), plain()
        for name, script in after.items():
            with _stepping(script) as once:
                once(), once()  # what torch.compile makes of it, for both of its shapes
                speedups[name] = timing.compare(plain, once, pairs=pairs, number=1, num_threads=threads)
    return speedups


def by_area(seed: str) -> tuple[Script, dict[str, Script]]:
    """A class's script, and the same with one area after the other repaired. LookupError in a student's copy."""
    build, areas = given.builder(), list(AREAS)
    repaired = {
        f"{'and ' if i else ''}the {area}": build.repaired(seed, *areas[: i + 1])
        for i, area in enumerate(areas)
    }
    return build.slow(seed), repaired


def live(before: Script, after: Script, pairs: int = 8, threads: int | None = None) -> tables.Table:
    """How many times as fast steps of `after` are as those of `before`, on this CPU, small: a minute."""
    [speedup] = compared(before, {"": after}, pairs, threads).values()
    cell = f"{speedup.cell} ({speedup.low:.2f} to {speedup.high:.2f})"
    return _table(CAPSTONE, [("the repaired script", cell)], LIVE_CPU)


# ------------------------------------------------------------------------------------ the reference ladders


def rungs_here(name: str) -> list[Rung]:
    """The ladder on a CPU: no CUDA graph."""
    return [rung for rung in rungs_of(TASKS[name]) if not rung.way.graphed]


def losses(name: str, rung: Rung, steps: int = 4) -> list[float]:
    """The first losses of a rung at its reduced size, on this CPU; a captured rung's with the simulated GPU's true values."""
    task, way = TASKS[name].reduced(), rung.way
    with simulate("H100", values=True, strict=False) if way.graphed else nullcontext(CPU) as gpu:
        once = stepper(task, replace(way, compiled=way.compiled and not way.graphed), gpu)
        record = [once() for _ in range(steps)][-1]
        return [float(loss) for loss, _ in record]


def climbed(name: str, pairs: int) -> dict[str, Speedup]:
    """Each rung's step, or script's, against the plain one's, in pairs, with THREADS threads."""
    if name == CAPSTONE:
        return compared(*by_area(""), pairs, THREADS)
    task, (first, *others) = TASKS[name].reduced(), rungs_here(name)
    plain, speedups = stepper(task, first.way, CPU), {}
    for rung in others:
        once = stepper(task, rung.way, CPU)
        once(), once()
        speedups[rung.says] = timing.compare(plain, once, pairs=pairs, number=1, num_threads=THREADS)
    return speedups


def measured_once(name: str) -> tables.Table:
    """What `climbed` gave on two cores, once, and which."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))[name]
    changed = "" if digest(name) in ("", kept["from"]) else "; its code has changed since"
    rows = [(r["rung"], f"{r['ratio']:.2f}× ({r['low']:.2f} to {r['high']:.2f})") for r in kept["rungs"]]
    return _table(name, rows, f"recorded ({kept['processor']}, {kept['date']}{changed})", kept["how"])


def _table(name: str, rows: list[tuple[str, str]], evidence: str, how: str = "") -> tables.Table:
    """rows: what is repaired, and how many times as fast it is."""
    if name == CAPSTONE:
        about = f"{STEPS} steps with Size({', '.join(f'{key}={value}' for key, value in SIZE.items())})"
    else:
        task = TASKS[name].reduced()
        about = f"{task.what}, reduced: {task.layers} layers of {task.width}, {task.batch} × {task.context} tokens"
    first = "script as it was" if name == CAPSTONE else "plain fp32 step"
    columns = ["repaired", f"times as fast as the {first}"]
    return tables.table(rows, columns, evidence=evidence, caption="; ".join(filter(None, (about, how))))


def digest(name: str) -> str:
    """Of the programs that were measured; "" where they are not there (the capstone's, in a student's copy)."""
    if name == CAPSTONE:
        try:
            before, after = by_area("")
        except LookupError:
            return ""
        scripts = [script.source for script in (before, *after.values())]
        return given.digest(inspect.getsource(_stepping), inspect.getsource(compared), *scripts)
    texts = [(KEPT.parent / file).read_text(encoding="utf-8") for file in _FROM]
    return given.digest(*texts, inspect.getsource(rungs_here))


def keep(names: Iterable[str]) -> None:
    """Measure these ladders, and keep them. Wants a machine on which nothing else runs, minutes for each."""
    pairs = 8
    for name in names:
        ladders = json.loads(KEPT.read_text(encoding="utf-8"))
        ladders[name] = {
            "from": digest(name),
            "processor": processor(),
            "date": date.today().isoformat(),
            "how": f"{THREADS} threads on {os.cpu_count()} cores, torch {torch.__version__}, {pairs} pairs",
            "rungs": [
                {"rung": says, **{key: round(getattr(speedup, key), 3) for key in ("ratio", "low", "high")}}
                for says, speedup in climbed(name, pairs).items()
            ],
        }
        KEPT.write_text(json.dumps(ladders, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    names = sys.argv[1:] or [*TASKS, CAPSTONE]
    keep(names)
    for name in names:
        print(measured_once(name))
