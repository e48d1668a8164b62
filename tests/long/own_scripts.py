"""The scripts of tests/own_scripts: which of their faults the command's table has, and what each repair alone buys.

    python -m tests.long.own_scripts recommender                 # found, of fifteen
    python -m tests.long.own_scripts recommender --repairs       # … and what each repair buys, beside what was said: minutes
    python -m tests.long.own_scripts recommender --losses        # are the losses the same, on this CPU?

A repair buys what it takes off the shortest step of several runs: alone, and behind those that stand above it in the table.
Host time is measured on this machine, whose speed changes from second to second.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import runpy
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


def simulated(text: str, arguments: list[str], steps: int, warm: int, folder: Path) -> Run:
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    with (
        mock.patch.dict(os.environ),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        return run(script, arguments, steps=steps, warm=warm, seconds=300)


def shortest_s(text: str, arguments: list[str], steps: int, warm: int, folder: Path, runs: int) -> float:
    """The shortest of the measured steps of several runs."""
    took = []
    for _ in range(runs):
        made = simulated(text, arguments, steps, warm, folder)
        torch.autograd.set_detect_anomaly(False)
        at = [bound.at_ns for bound in made.bounds[made.warm :]]
        took += [(b - a) / 1e9 for a, b in itertools.pairwise(at)]
    return min(took)


def bought(
    report: Report, told: Mapping[str, list[int]], measure: Callable[[list[str]], float], most: int
) -> None:
    """What each of the first `most` repairs buys, in the table's order, beside what the table said of its rows. measure: a step's
    seconds without those faults."""
    order = sorted((name for name in told if told[name]), key=lambda name: told[name])
    order += [name for name in told if not told[name]]
    print(f"{'fault':45} {'row':>4}  said: alone, behind   measured: alone, behind (ms)")
    whole = behind = measure([])
    for number, name in enumerate(order[:most]):
        alone, after = measure([name]), measure(order[: number + 1])
        rows = [report.shown[row - 1][1] for row in told[name]]
        figures = [
            sum(row.buys_s for row in rows),
            sum(row.next_s for row in rows),
            whole - alone,
            behind - after,
        ]
        print(
            f"{name:45} {min(told[name], default='-'):>4}  " + "".join(f"{1e3 * s:10.2f}" for s in figures),
            flush=True,
        )
        behind = after
    print(f"a step: {1e3 * whole:.2f} ms; these repaired: {1e3 * behind:.2f} ms")


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
    parser.add_argument("--repairs", action="store_true")
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--most", type=int, default=15, help="of the repairs, the first in the table")
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
        made = simulated(text, arguments, own.steps, own.warm_up, here)
        report = findings(made)
        torch.autograd.set_detect_anomaly(False)
        told = found(report, faults)
        print(report)
        for name, rows in told.items():
            print(f"{name:45} {', '.join(map(str, rows)) or '-'}")
        print(f"{sum(map(bool, told.values()))} of {len(told)} faults stand in the table")
        if own.repairs:
            by_name = {fault["name"]: fault for fault in faults}

            def measure(names: list[str]) -> float:
                left = repaired(text, [by_name[name] for name in names])
                return shortest_s(left, arguments, own.steps, own.warm_up, here, own.runs)

            bought(report, told, measure, own.most)


if __name__ == "__main__":
    main()
