"""The type checker over what a learner copies from: each lesson's set-up and reference answers.

`make lint` checks helpers. A whole master is no module (its cells say one name twice, and look at things); the
graded path through it is one.
"""

import subprocess
import sys
from pathlib import Path

from helpers.classroom import master as masters
from helpers.classroom.build import find

ROOT = Path(__file__).resolve().parents[1]
#: what a checker may say about short, natural notebook code that is right: a sum that could be the number 0, a dict
#: that holds two kinds of things. What is left finds wrong names, wrong calls and wrong attributes.
LENIENT = ["--allow-untyped-defs", "--disable-error-code=arg-type", "--disable-error-code=return-value"]
LENIENT += ["--disable-error-code=union-attr"]


def test_answers_are_typed(tmp_path: Path) -> None:
    for path in find([]):
        cells = masters.read(path).cells
        lines = [""] * (cells[-1].line + cells[-1].source.count("\n") + 2)
        for cell in cells:
            if cell.kind in ("setup", "exercise"):
                source = cell.source.splitlines()
                lines[cell.line : cell.line + len(source)] = (
                    source  # where the master has them, for the message
                )
        (tmp_path / f"lesson_{path.name}").write_text("\n".join(lines) + "\n")
    config = [
        *LENIENT,
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *config, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stdout + run.stderr
