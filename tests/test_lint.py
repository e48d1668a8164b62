"""Style and types: ruff over everything, mypy over helpers and over what a learner copies from.

A whole master is no module (its cells say one name twice, and look at things); the graded path through it is one.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.classroom import master as masters
from helpers.classroom.build import find

ROOT = Path(__file__).resolve().parents[1]
#: what a checker may say about short, natural notebook code that is right: a sum that could be the number 0, a dict
#: that holds two kinds of things. What is left finds wrong names, wrong calls and wrong attributes.
LENIENT = ["--allow-untyped-defs", "--disable-error-code=arg-type", "--disable-error-code=return-value"]
LENIENT += ["--disable-error-code=union-attr"]


def says_nothing(*command: str) -> None:
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("command", ["check .", "format --check ."])
def test_ruff(command: str) -> None:
    says_nothing("ruff", *command.split())


def test_types(tmp_path: Path) -> None:
    """helpers strictly, then the answers of all lessons."""
    says_nothing("mypy")
    for path in find([]):
        cells = masters.read(path).cells
        lines = [""] * (cells[-1].line + cells[-1].source.count("\n") + 2)
        for cell in cells:
            if cell.kind in ("setup", "exercise"):  # where the master has them, for the message
                source = cell.source.splitlines()
                lines[cell.line : cell.line + len(source)] = source
        (tmp_path / f"lesson_{path.name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    says_nothing("mypy", *LENIENT, "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path))
