"""The scripts of tests/own_scripts: which of their faults the command's table has, and what each repair alone buys.

    python -m tests.long.own_scripts recommender                 # found, of fifteen
    python -m tests.long.own_scripts recommender --repairs       # … and the step's time after each repair, minutes
    python -m tests.long.own_scripts recommender --losses        # are the losses the same, on this CPU?

Host time is measured on this machine: on a busy one repeat it, and take the smallest.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
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


def found(report: Report, faults: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """For each fault the rows of the table that tell of it: their numbers, "everywhere" for one that stands for no line."""
    said = {}
    for fault in faults:
        rows = [
            str(number)
            for number, row in enumerate(report.rows, start=1)
            if row.place and row.place.text in {line.strip() for line in fault["at"]}
        ]
        whole = [row.kind for row in report.everywhere if EVERYWHERE.get(row.kind, "-") in fault["name"]]
        said[fault["name"]] = rows + ["everywhere"] * len(whole)
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


def shortest_s(made: Run) -> float:
    """The shortest of the measured steps."""
    at = [bound.at_ns for bound in made.bounds[made.warm :]]
    return min(b - a for a, b in zip(at, at[1:], strict=False)) / 1e9


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
            print(f"{name:45} {', '.join(rows) or '-'}")
        print(f"{sum(map(bool, told.values()))} of {len(told)} faults stand in the table")
        if own.repairs:
            base = shortest_s(made)
            for fault in faults:
                after = simulated(repaired(text, [fault]), arguments, own.steps, own.warm_up, here)
                torch.autograd.set_detect_anomaly(False)
                print(f"{fault['name']:45} buys {1e3 * (base - shortest_s(after)):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
