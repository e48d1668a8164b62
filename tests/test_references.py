"""The executed references: they have outputs, are as their masters say, and run again to the same result (nbval).

That they earn all points where submissions are graded, without any experiment: tests/test_grading.py.
"""

import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import nbformat
import pytest

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.processors import plain

MASTERS = build.find([])
ROOT = Path(__file__).parents[1]
#: lessons whose subject is rounding, and short: run again with plain instructions too, as the build runs all of them
ROUNDING = ("10", "13")

#: sets the loopback device up, which kernels talk over, in a network namespace that has nothing else; then the command
LOOPBACK_ONLY = (
    "import fcntl, os, socket, struct, sys\n"
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14x', b'lo', 0x41))\n"  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@cache
def without_network() -> list[str]:
    """What to put before a command so that it finds no network; nothing where the system cannot do that."""
    prefix = ["unshare", "--map-root-user", "--net", sys.executable, "-c", LOOPBACK_ONLY]
    try:
        tried = subprocess.run([*prefix, sys.executable, "-c", ""], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return prefix if tried.returncode == 0 else []


def ids(path: Path) -> str:
    return path.stem[:2]


@pytest.mark.parametrize("path", MASTERS, ids=ids)
def test_reference_has_outputs(path: Path) -> None:
    nb = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    code = [c for c in nb.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code)
    assert not [o for c in code for o in c.outputs if o.output_type == "error"]
    # nbval passes a cell without outputs whatever it does: tests always say something, and most experiments show something
    silent = [c.id for c in code if not c.outputs]
    assert not [c.id for c in code if c.metadata.get("nbgrader", {}).get("grade") and not c.outputs]
    assert len(silent) <= 0.4 * len(code), f"cells without outputs: {silent}"
    pictures = [o for c in code for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 2


@pytest.mark.parametrize("path", MASTERS, ids=ids)
def test_nothing_drifted(path: Path) -> None:
    assert build.drift(path) == []


def test_what_is_made_of_all_lessons_is_current() -> None:
    """The index, the start page, the verdicts that the last lesson reads, the page of claims."""
    assert build.main(["--check", "01"]) == 0  # of the lessons one: test_nothing_drifted has them all


@pytest.mark.slow
@pytest.mark.parametrize("path", MASTERS, ids=ids)
def test_reference_runs_again_to_the_same(path: Path) -> None:
    """nbval, strict: every text, table and JSON output equals the reference's, clocks blanked; with no network at hand."""
    run_again(path, {})


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in MASTERS if ids(path) in ROUNDING], ids=ids)
def test_reference_is_the_same_with_plain_instructions(path: Path) -> None:
    run_again(path, plain(masters.read(path)))


def run_again(path: Path, processor: dict[str, str]) -> None:
    """processor: what its kernel's environment says of the instructions that it may use."""
    code = [c for c in nbformat.read(path.with_suffix(".ipynb"), as_version=4).cells if c.cell_type == "code"]
    began = time.monotonic()
    run = subprocess.run(
        [
            *without_network(),
            *(
                sys.executable,
                "-c",
                # helpers.classroom says why it comes first; the cells' kernel is another process
                "import helpers.classroom, pytest; raise SystemExit(pytest.main())",
                "-q",
                "-p",
                "nbval.plugin",  # by name: the plugins that other packages bring take as long to import as all else
                "-p",
                "no:cacheprovider",
                "--no-header",
                "--nbval",
                "--nbval-cell-timeout=300",
            ),
            *(
                "--nbval-sanitize-with",
                str(ROOT / "etc" / "nbval.cfg"),
                "-c",
                os.devnull,
                "--rootdir",
                str(ROOT),
            ),
            str(path.with_suffix(".ipynb")),
        ],
        cwd=ROOT,
        env=build.environment(masters.read(path)) | processor | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=10 * 60,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None and int(passed[1]) == len(code), run.stdout[-2000:]
    print(f"{path.stem}: {time.monotonic() - began:.0f} s")
