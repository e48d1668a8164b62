"""What each rung came to: recorded on a GPU where it was, else simulated.

The simulated figures are kept in simulated.json, since the simulation of a whole ladder takes half a minute:

    python -m helpers.lessons.capstone.reference_repair.shown      # simulate anew, and write them (after a change here or of the capstone)
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import helpers.lessons.capstone.recorded  # noqa: F401 - its experiments are known by their names
from helpers import plots, recordings
from helpers.lesson import sources
from helpers.lessons.capstone import given, scores
from helpers.lessons.capstone.reference_repair.models import TASKS
from helpers.lessons.capstone.reference_repair.steps import measured
from helpers.plots.ladders import Rung
from helpers.simulator import devices, simulate
from helpers.text import tables
from helpers.text.seconds import approx, format_seconds
from helpers.text.sizes import size_text

#: each ladder and what it is of
WHAT = {name: task.what for name, task in TASKS.items()} | {
    "capstone": "The capstone's script",
    "capstone, larger": "The capstone's script, larger",
}
NAMES = tuple(WHAT)
SIZES = {"capstone": scores.LARGE, "capstone, larger": scores.LARGER}
CARD = "H100"
SIMULATED = f"simulated ({CARD})"
KEPT = Path(__file__).with_name("simulated.json")
_FROM = ("models.py", "steps.py", "inductor.py")

#: what the sources promise: source, times as fast, share of the memory that is left
HEADLINES = [("five-strategies", 12 / 3.2, 14 / 22), ("compile-300", 800 / 200, 6 / 12)]


def scored(name: str) -> list[Rung]:
    """The ladder "bert", "gpt2", "capstone" or "capstone, larger", the plain step first. KeyError for another name.

    bytes: the most that the allocator had from the device; of the capstone's, the most that was allocated.
    """
    return [Rung(r["rung"], r["seconds"], r["peak_bytes"]) for r in _rows(name)[0]]


def _rows(name: str) -> tuple[list[dict[str, Any]], str]:
    if name not in NAMES:
        raise KeyError(f"no ladder {name!r}: there are {', '.join(NAMES)}")
    if name not in TASKS:
        return kept()[name], SIMULATED
    recording = recordings.show(f"17/{name}", prefer="recorded")
    return recording.table or [], recording.evidence


def evidence(*names: str) -> str:
    """Where these ladders' figures come from, each kind once."""
    return " · ".join(dict.fromkeys(_rows(name)[1] for name in names))


def simulated(name: str) -> list[Rung]:
    """The ladder as it is simulated, also where it was recorded."""
    return [Rung(r["rung"], r["seconds"], r["peak_bytes"]) for r in kept()[name]]


def kept() -> dict[str, Any]:
    """simulated.json."""
    figures: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return figures


def digest() -> str:
    """Of what the simulated figures follow from: this folder's programs, and the simulator's shares."""
    programs = given.digest(*((KEPT.parent / file).read_text(encoding="utf-8") for file in _FROM))
    return hashlib.sha256(devices.EFFICIENCIES.read_bytes() + programs.encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------- tables, pictures


def table(name: str) -> tables.Table:
    """A row a rung of "bert" or "gpt2", recorded and simulated."""
    rungs, where, task = scored(name), evidence(name), TASKS[name]
    first, about = rungs[0], approx(where)
    rows = [
        (
            r.name, about + format_seconds(r.seconds), f"{about}{first.seconds / r.seconds:.2f}×", size_text(r.nbytes),
            f"{r.nbytes / first.nbytes:.0%}", *_beside(r, s),
        )
        for r, s in zip(rungs, simulated(name), strict=True)
    ]  # fmt: skip
    columns = ["a step", "time", "times as fast", "peak memory", "of the plain", "simulated: time", "memory"]
    caption = f"{task.what}, {task.batch} × {task.context} tokens; simulated: Inductor's plan for a CPU, see inductor.py"
    return tables.table(rows, columns, evidence=f"{where} · {SIMULATED}", caption=caption)


def _beside(recorded: Rung, simulated: Rung) -> list[str]:
    """The simulated time and memory, each with how far off it is."""
    seconds, nbytes = simulated.seconds / recorded.seconds - 1, simulated.nbytes / recorded.nbytes - 1
    return [
        f"{format_seconds(simulated.seconds)} ({seconds:+.0%})",
        f"{size_text(simulated.nbytes)} ({nbytes:+.0%})",
    ]


def ladders() -> plots.Picture:
    """Every ladder, as times and shares of its plain step; lines where the sources' promises lie."""
    rows = {f"{WHAT[name]}, {evidence(name).partition(' ')[0]}": scored(name) for name in NAMES}
    lines = {sources.every()[key]["english"]: (times, share) for key, times, share in HEADLINES}
    return plots.ladder_shares(rows, lines, evidence=evidence(*NAMES), title="The reference repair")


def of_the_script(name: str) -> list[dict[str, Any]]:
    """The capstone's usual script as it was and with all repairs, at that size: a step's seconds and most bytes, now."""
    scripts = {"as it was": given.script(""), "all repairs": given.builder().fast()}
    numbers = {rung: scores.counted_on(script, None, SIZES[name])[0] for rung, script in scripts.items()}
    return [
        {"rung": rung, "seconds": step["step_s"], "peak_bytes": step["peak_bytes"]}
        for rung, step in numbers.items()
    ]


def write() -> None:
    """Simulate anew what is not of today's programs, and keep it."""
    figures = kept()
    if figures["from"] != digest():
        figures["from"] = digest()
        for name, task in TASKS.items():
            with simulate(CARD) as gpu:
                figures[name] = measured(task, gpu)
    figures |= {name: of_the_script(name) for name in SIZES}
    KEPT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
    for name in TASKS:
        print(table(name))
