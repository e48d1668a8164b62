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


def says_nothing(*command: str) -> None:
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("command", ["check .", "format --check ."])
def test_ruff(command: str) -> None:
    says_nothing("ruff", *command.split())


def test_types(tmp_path: Path) -> None:
    """helpers strictly, and the answers of all lessons as short notebook code: torch is read once for both."""
    answers = tmp_path / "answers"  # as pyproject.toml names them
    answers.mkdir()
    (answers / "__init__.py").touch()
    for path in find([]):
        cells = masters.read(path).cells
        lines = [""] * (cells[-1].line + cells[-1].source.count("\n") + 2)
        for cell in cells:
            if cell.kind in ("setup", "exercise"):  # where the master has them, for the message
                source = cell.source.splitlines()
                lines[cell.line : cell.line + len(source)] = source
        (answers / f"lesson_{path.name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    says_nothing("mypy", "helpers", str(answers))
