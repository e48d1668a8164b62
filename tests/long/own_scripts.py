"""The scripts of tests/own_scripts: which of their faults the command's table has, and what each repair alone buys.

    python -m tests.long.own_scripts recommender                 # found, of fifteen
    python -m tests.long.own_scripts text --rounds 5             # … and what each repair buys, beside what was said: minutes
    python -m tests.long.own_scripts text --rounds 5 --without checkpoint,cache    # … when those two are repaired already
    python -m tests.long.own_scripts recommender --losses        # are the losses the same, on this CPU?

A repair buys what it takes off the shortest step. Host time is measured on this machine, whose speed changes from second to
second: hence the rounds, and --without, since a dear fault that is left in hides what a cheaper one costs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import runpy
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from helpers.own_script import Report, Run, findings, run

HERE = Path(__file__).parents[1] / "own_scripts"
#: kinds of rows that stand for no line, by the name of the fault that they tell of
EVERYWHERE = {
    "narrow": "float32", "layout": "NCHW", "anomaly": "anomaly", "blocking": "launches block", "grows": "history",
}  # fmt: skip


def listed(name: str) -> dict[str, Any]:
    """A script's list."""
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    return (HERE / f"{name}.py").read_text(encoding="utf-8")


def repaired(text: str, faults: Iterable[Mapping[str, Any]]) -> str:
    """The script without those faults. ValueError where a text to look for does not stand there once."""
    for fault in faults:
        for edit in fault["edits"]:
            if text.count(edit["old"]) != 1:
                raise ValueError(f"{fault['name']}: stands {text.count(edit['old'])} times: {edit['old']!r}")
            text = text.replace(edit["old"], edit["new"])
    return text


def found(report: Report, faults: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """For each fault the rows of the table that tell of it, as counted from its top."""
    said = {}
    for fault in faults:
        lines = {line.strip() for line in fault["at"]}
        said[fault["name"]] = [
            number
            for number, (_, row) in enumerate(report.shown, start=1)
            if (row.place is not None and row.place.text in lines)
            or (row.place is None and EVERYWHERE.get(row.kind, "-") in fault["name"])
        ]
    return said


def starting(faults: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The faults whose names start with one of these, which commas part. ValueError where one starts none."""
    some = []
    for word in filter(None, words.split(",")):
        named = [fault for fault in faults if fault["name"].startswith(word)]
        if not named:
            raise ValueError(f"no fault's name starts with {word!r}: {[fault['name'] for fault in faults]}")
        some += named
    return some


def simulated(text: str, arguments: list[str], steps: int, warm: int, folder: Path) -> Run:
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    with (
        mock.patch.dict(os.environ),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        return run(script, arguments, steps=steps, warm=warm, seconds=300)


def shortest_s(text: str, arguments: list[str], steps: int, warm: int, folder: Path) -> float:
    """The shortest of the measured steps."""
    made = simulated(text, arguments, steps, warm, folder)
    torch.autograd.set_detect_anomaly(False)
    at = [bound.at_ns for bound in made.bounds[made.warm :]]
    return min(b - a for a, b in itertools.pairwise(at)) / 1e9


def bought(
    report: Report, told: Mapping[str, list[int]], measure: Callable[[list[str]], float], rounds: int
) -> None:
    """What each repair takes off a step, beside what the table said of its rows. measure: a step's seconds without those faults.

    Each round measures a step as it is, and with each of the repairs. Printed is by how much the shortest step of all rounds gets
    shorter, and the middle of what the rounds say.
    """
    steps: dict[str, list[float]] = {"": [], **{name: [] for name in told}}
    for number in range(rounds):
        for name in steps:
            steps[name].append(measure([name] if name else []))
        print(f"round {number + 1} of {rounds}: a step as it is {1e3 * steps[''][-1]:.2f} ms", flush=True)
    print(f"{'fault':45} {'row':>4}  said: alone, behind   measured: shortest, middle (ms)")
    for name in sorted(told, key=lambda name: told[name] or [len(report.shown)]):
        rows = [report.shown[row - 1][1] for row in told[name]]
        apart = [before - after for before, after in zip(steps[""], steps[name], strict=True)]
        figures = [sum(row.buys_s for row in rows), sum(row.next_s for row in rows)]
        figures += [min(steps[""]) - min(steps[name]), statistics.median(apart)]
        print(f"{name:45} {min(told[name], default='-'):>4}  " + "".join(f"{1e3 * s:10.2f}" for s in figures))


def losses(text: str, arguments: list[str], folder: Path) -> list[float]:
    """What the script prints of its training, on this CPU."""
    script, said = folder / "script.py", io.StringIO()
    script.write_text(text, encoding="utf-8")
    with mock.patch.object(sys, "argv", [str(script), *arguments]), contextlib.redirect_stdout(said):
        runpy.run_path(str(script), run_name="__main__")
    return [float(number) for number in re.findall(r"loss (-?[\d.]+)", said.getvalue())]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(path.stem for path in HERE.glob("*.toml")))
    parser.add_argument("--rounds", type=int, default=0, help="measure what each repair buys, so often")
    parser.add_argument("--without", default="", help="first words of faults that are repaired already")
    parser.add_argument("--only", default="", help="first words of the faults that are repaired in turn")
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    own, arguments = parser.parse_known_args()
    script, text = listed(own.name), text_of(own.name)
    faults = script["fault"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        if own.losses:
            before = losses(text, script["small"], here)
            for name, some in [*((fault["name"], [fault]) for fault in faults), ("all", faults)]:
                after = losses(repaired(text, some), script["small"], here)
                apart = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(after, before, strict=True))
                print(f"{name:45} {len(after)} losses, {apart:.1g} apart", flush=True)
            return
        gone = starting(faults, own.without)
        text = repaired(text, gone)
        faults = [fault for fault in faults if fault not in gone]
        made = simulated(text, arguments, own.steps, own.warm_up, here)
        report = findings(made)
        torch.autograd.set_detect_anomaly(False)
        told = found(report, faults)
        print(report)
        for name, rows in told.items():
            print(f"{name:45} {', '.join(map(str, rows)) or '-'}")
        print(f"{sum(map(bool, told.values()))} of {len(told)} faults stand in the table")
        if own.rounds:
            by_name = {fault["name"]: fault for fault in starting(faults, own.only) or faults}

            def measure(names: list[str]) -> float:
                left = repaired(text, [by_name[name] for name in names])
                return shortest_s(left, arguments, own.steps, own.warm_up, here)

            bought(report, {name: told[name] for name in by_name}, measure, own.rounds)


if __name__ == "__main__":
    main()
