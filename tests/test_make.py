"""What `make` says when it cannot do what was asked, and that it does nothing where there is nothing to do."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """The files that `make setup` reads, in a folder whose name has a space."""
    copy = tmp_path / "a course"
    shutil.copytree(ROOT / "etc", copy / "etc")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    return copy


def make(course: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=course, env=ENVIRONMENT, capture_output=True, text=True)


def pretend_python(folder: Path, body: str) -> Path:
    """A program that stands in for Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_make_alone_lists_the_commands(course: Path) -> None:
    said = make(course).stdout
    for name in ("lab", "test", "build", "grade", "reset", "clean"):
        assert f"make {name} " in said


def test_an_old_python_is_named(course: Path, tmp_path: Path) -> None:
    old = pretend_python(tmp_path, 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi')
    done = make(course, "setup", f"PYTHON={old}")
    assert (
        done.returncode and "Python 3.11 or newer is needed" in done.stderr and "Python 3.9.2" in done.stderr
    )
    done = make(course, "setup", "PYTHON=/nowhere/python3")
    assert done.returncode and "not there" in done.stderr


def test_a_missing_venv_module_is_named(course: Path, tmp_path: Path) -> None:
    bare = pretend_python(tmp_path, f'case "$*" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"')
    done = make(course, "setup", f"PYTHON={bare}")
    assert done.returncode and "python3-venv" in done.stderr


def test_a_current_environment_is_left_alone(course: Path) -> None:
    (course / ".venv" / "bin").mkdir(parents=True)
    # were anything to be installed, this stand-in would fail
    pretend_python(course / ".venv" / "bin", "exit 1")
    inputs = [(course / name).read_text() for name in ("pyproject.toml", "constraints.txt")]
    (course / ".venv" / ".installed").write_text(f"{(course / '.venv').resolve()}\n" + "".join(inputs))
    began = time.monotonic()
    done = make(course, "setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - began < 5
    (course / "constraints.txt").write_text("numpy==1\n")
    done = make(course, "setup", "PYTHON=/nowhere/python3")
    assert done.returncode, "another requirement is no longer nothing to do"


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "etc/lab.py", "--port", port], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 2 and f"port {port} is taken" in done.stderr
    done = subprocess.run(
        [sys.executable, "etc/lab.py", "--port", "abc"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "not a port" in done.stderr


def test_which_lesson(course: Path) -> None:
    done = make(course, "grade", "SETUP=true")
    assert done.returncode and "LESSON=01" in done.stderr
