"""What each rung came to: recorded on a GPU where it was, else simulated.

The simulated figures are kept in simulated.json, since the simulation of a whole ladder takes half a minute:

    python -m helpers.lessons.capstone.reference_repair.shown      # simulate anew, and write them (after a change here or of the capstone)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import helpers.lessons.capstone.recorded  # noqa: F401 - its experiments are known by their names
from helpers import plots, recordings
from helpers.lesson import sources
from helpers.lessons.capstone import given, scores
from helpers.lessons.capstone.reference_repair.models import (
    TASKS,
    Way,
    fused_attention,
    rungs,
    rungs_of,
    send_ahead,
)
from helpers.lessons.capstone.reference_repair.steps import measured, one
from helpers.plots.ladders import Rung
from helpers.simulator import devices, simulate
from helpers.text import tables
from helpers.text.seconds import format_seconds
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

#: what the sources promise: source, times as fast, share of the memory that is left, in its words
HEADLINES = [
    ("five-strategies", 12 / 3.2, 14 / 22, "12 to 3.2 h an epoch, 22 to 14 GB"),
    ("compile-300", 800 / 200, 6 / 12, "800 to 200 ms a step, 12 to 6 GB"),
]
#: milliseconds a step on an A100, by the lecture of docs/recording.md: its steps under torch.compile
LECTURE = {"compiled": 130.0, "compiled, fused attention": 96.0}


def scored(name: str) -> list[Rung]:
    """The ladder "bert", "gpt2", "capstone" or "capstone, larger", the plain step first. KeyError for another name.

    bytes: the most that the allocator had from the device; of the capstone's, the most that was allocated.
    """
    return [Rung(r["rung"], r["seconds"], r["peak_bytes"]) for r in _rows(name)[0]]


def _rows(name: str) -> tuple[list[dict[str, Any]], str]:
    if name not in NAMES:
        raise KeyError(f"no ladder {name!r}: there are {', '.join(NAMES)}")
    if (recording := recordings.load(f"17/{name}", device=CARD)) is not None and recording.table:
        return recording.table, recording.evidence
    return kept()[name], SIMULATED


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


def lecture(what: str) -> float:
    """Milliseconds of that step of the lecture's, on a simulated A100."""
    way = Way(activation=rungs.fused_gelu, send=send_ahead, clip=_no_clip, bf16=True, adamw="", compiled=True)
    if what == "compiled, fused attention":
        way = replace(way, attention=fused_attention)
    with simulate("A100") as gpu:
        seconds: float = one(TASKS["gpt2"], way, gpu)["seconds"]
    return 1e3 * seconds


def _no_clip(model: torch.nn.Module) -> None:
    """The lecture clips later."""


# ------------------------------------------------------------------------------------- how far off


def off_by(rung: str) -> str:
    """How far the simulator was off on whole steps like that rung's, which others measured: least and most."""
    names = [r.says for r in rungs_of(TASKS["bert"])]
    if rung not in names:  # the capstone's
        return "nobody measured such steps"
    if names.index(rung) >= names.index("compiled"):
        errors, of = [ms / LECTURE[what] - 1 for what, ms in kept()["lecture"].items()], "compiled"
    else:
        of = "fp32" if names.index(rung) < names.index("bf16") else "16-bit"
        kinds = ("fp32",) if of == "fp32" else ("fp16", "bf16")
        errors = [
            step["error"]
            for step in devices.efficiencies()["steps"]
            if step["what"].startswith(("bert", "gpt2"))
            and any(f", {kind}," in step["what"] for kind in kinds)
        ]
    return f"{min(errors):+.0%} to {max(errors):+.0%} ({len(errors)} {of} steps)"


# ------------------------------------------------------------------------------------- tables, pictures


def table(name: str) -> tables.Table:
    """A row a rung; then what the sources promise of other models, on other cards.

    Beside what was recorded stands what is simulated; beside what is simulated alone, how far off such steps were elsewhere.
    """
    rungs, where = scored(name), evidence(name)
    first = rungs[0]
    recorded = where != SIMULATED
    rows = [
        (
            r.name, format_seconds(r.seconds), f"{first.seconds / r.seconds:.2f}×", size_text(r.nbytes),
            f"{r.nbytes / first.nbytes:.0%}", *(_beside(r, s) if recorded else [off_by(r.name)]),
        )
        for r, s in zip(rungs, simulated(name), strict=True)
    ]  # fmt: skip
    columns = ["a step", "time", "times as fast", "peak memory", "of the plain"]
    columns += ["simulated: time", "memory"] if recorded else ["simulated ÷ measured − 1, such steps"]
    for key, times, share, words in HEADLINES:
        says = (f"source says: {sources.linked(key)}", words, f"{times:.2f}×", "", f"{share:.0%}")
        rows.append((*says, *(["", ""] if recorded else ["not given"])))
    note = "" if name not in TASKS else "; simulated: Inductor's plan, see inductor.py"
    where += f" · {SIMULATED}" if recorded else ""
    return tables.table(rows, columns, evidence=where, caption=f"{_about(name)}{note}")


def _beside(recorded: Rung, simulated: Rung) -> list[str]:
    """The simulated time and memory, each with how far off it is."""
    seconds, nbytes = simulated.seconds / recorded.seconds - 1, simulated.nbytes / recorded.nbytes - 1
    return [
        f"{format_seconds(simulated.seconds)} ({seconds:+.0%})",
        f"{size_text(simulated.nbytes)} ({nbytes:+.0%})",
    ]


def _about(name: str) -> str:
    task = TASKS.get(name)
    if task:
        return f"{WHAT[name]}, {task.batch} × {task.context} tokens"
    size = SIZES[name]
    return f"{WHAT[name]}, as usually given, {size['batch']} pictures of {size['side']} × {size['side']}, width {size['width']}"


def ladders() -> plots.Picture:
    """Every ladder, as times and shares of its plain step; lines where the sources' promises lie."""
    rows = {f"{WHAT[name]}, {evidence(name).partition(' ')[0]}": scored(name) for name in NAMES}
    lines = {sources.every()[key]["english"]: (times, share) for key, times, share, _ in HEADLINES}
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
        figures["lecture"] = {what: round(lecture(what), 1) for what in LECTURE}
    figures |= {name: of_the_script(name) for name in SIZES}
    KEPT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
    for name in NAMES:
        print(table(name))
