"""Machines that newcomers have: another language, a full or a read-only disk. What is said there, and that it is said."""

import ast
import errno
import multiprocessing.synchronize
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import check
from helpers.classroom.judging import judge
from helpers.classroom.release import reset
from helpers.classroom.step import Step, Verdict

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*(ROOT / "helpers").rglob("*.py"), *(ROOT / "etc").rglob("*.py")])

#: calls that read or write text, unless told that it is bytes
READERS = {"read_text", "write_text", "open", "fdopen", "TemporaryFile", "NamedTemporaryFile"}
#: and those that read what a program says, if told that it is text
PROGRAMS = {"run", "Popen", "check_output"}


def without_encoding(source: str) -> Iterator[str]:
    """The calls that read or write text in whatever encoding the machine's language has."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        owner, _, name = ast.unparse(call.func).rpartition(".")
        options = {keyword.arg for keyword in call.keywords}
        by_default_bytes = (
            "Temporary" in name or owner in ("gzip", "os", "Image", "zipfile") and name == "open"
        )
        modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        spelled = [m.value for m in modes if isinstance(m, ast.Constant) and isinstance(m.value, str)]
        mode = next((m for m in spelled if m and set(m) <= set("rwaxbt+")), "rb" if by_default_bytes else "r")
        a_file = name in READERS and "b" not in mode
        a_program = name in PROGRAMS and "text" in options
        if (a_file or a_program) and "encoding" not in options:
            yield f"{call.lineno}: {ast.unparse(call)}"


def test_every_text_file_is_utf_8() -> None:
    """Chinese Windows reads GBK otherwise, and many a cluster ASCII."""
    found = [
        f"{p.relative_to(ROOT)}:{line}" for p in SOURCES for line in without_encoding(p.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source, caught",
    [
        ("path.read_text()", True),
        ("path.read_text(encoding='utf-8')", False),
        ("open(path)", True),
        ("open(path, 'rb')", False),
        ("path.open('w')", True),
        ("os.fdopen(handle, 'wb')", False),
        ("os.fdopen(handle)", True),
        ("os.open(path, os.O_RDONLY)", False),
        ("tempfile.TemporaryFile()", False),
        ("tempfile.NamedTemporaryFile('w')", True),
        ("subprocess.run(command, text=True)", True),
        ("subprocess.run(command, capture_output=True)", False),
    ],
)
def test_the_search_finds_them(source: str, caught: bool) -> None:
    assert bool(list(without_encoding(source))) is caught


#: nothing is UTF-8 unless told so, as on many a cluster
ASCII = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(code: str, **environment: str) -> bytes:
    """What Python prints for ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**ASCII, **environment}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def test_masters_and_results_need_no_utf_8_locale() -> None:
    said = run(
        "import locale, torch, helpers.classroom.master as m; from helpers import count, lesson; from pathlib import Path;"
        "print(locale.getpreferredencoding(False));"
        "m.read(next(Path('solutions').glob('01_*/01_*.py'))); lesson.start('01_storage_and_stride', ['live (CPU)']);"
        "lesson.progress('all').show(); print(count(lambda x: x * 2, torch.ones(3)))"
    ).decode("ascii")
    assert "torch " in said and "operators" in said
    assert sys.platform != "linux" or "UTF" not in said.partition("\n")[0], "or this test proves nothing"


@pytest.mark.parametrize(
    "encoding, shown",
    [("ascii", "? ?"), ("latin-1", "? \u00b2"), ("gbk", "\u2248 ?"), ("utf-8", "\u2248 \u00b2")],
)
def test_what_a_terminal_cannot_show_is_a_question_mark(encoding: str, shown: str) -> None:
    said = run(
        "from helpers.text.terminal import lenient; lenient(); print('\\u2248 \\u00b2')",
        PYTHONIOENCODING=encoding,
    )
    assert said.decode(encoding).strip() == shown


def lock() -> int:
    """What a DataLoader with workers needs first."""
    multiprocessing.get_context("spawn").Lock()
    return 1


def full() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def crowded() -> int:
    raise RuntimeError("can't start new thread")


def mistaken() -> int:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "tokens.bin")


def test_a_fault_of_the_machine_that_grades_is_shown_to_its_instructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from helpers.classroom import engine

    def verdict(text: str) -> Verdict:
        monkeypatch.setattr(engine, "judge", lambda *_: Verdict(False, text))
        learner: Any = SimpleNamespace(died=lambda: None, ran={})
        return engine._verdict(Step(3, "hidden", "", "test_answer", "answer"), learner, [], {})

    assert (
        "the machine failed"
        in verdict("✗ answer: this machine, not your answer: RuntimeError: no Triton").human
    )
    assert verdict("✗ answer: 2 and not 3").human == ""


@pytest.mark.parametrize("remedy, answer", [("/dev/shm", lock), ("TMPDIR", full), ("processes", crowded)])
def test_a_fault_of_the_machine_is_not_the_answers(
    remedy: str, answer: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def SemLock(*_: Any) -> None:  # as a read-only /dev/shm does
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    told: list[tuple[str, bool]] = []
    monkeypatch.setattr("helpers.check.judge.record", lambda name, passed: told.append((name, passed)))
    monkeypatch.setattr("multiprocessing.synchronize._multiprocessing", SimpleNamespace(SemLock=SemLock))
    monkeypatch.setattr("__main__.answer", answer, raising=False)
    for wanted in (check.case(), check.case(raises=ValueError)):
        with pytest.raises(
            check.CheckFailed, match=f"this machine, not your answer: .*\n.*{remedy}"
        ) as failed:
            check.function("answer", [wanted], lambda: 1, look="the lesson")
        assert "look again" not in str(failed.value)
    assert told == [], "it was not tested, so it has not failed"
    monkeypatch.setattr("__main__.answer", mistaken)
    with pytest.raises(check.CheckFailed, match="raised FileNotFoundError: .*tokens.bin"):
        check.function("answer", [check.case()], lambda: 1)
    assert told == [("answer", False)]


def test_nor_is_one_on_the_tests_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(_: list[check.Report]) -> str | None:
        full()
        return None

    monkeypatch.setattr("__main__.answer", lambda: 1, raising=False)
    with pytest.raises(check.CheckFailed, match=r"this machine, not your answer: .*\n.*TMPDIR"):
        check.function("answer", [check.case()], verify=verify)
    verdict = judge("raise OSError(28, 'No space left on device')", "f__test", lambda request: {})
    assert not verdict.passed and verdict.text.startswith("this machine, not your answer")


def test_reset_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only folder, and a disk that is full half-way: one message, and the notebook is what it was."""
    (name,) = (p.stem for p in (ROOT / "solutions").glob("00_*"))
    notebook = tmp_path / name / f"{name}.ipynb"
    monkeypatch.setattr("helpers.classroom.release.NOTEBOOKS", tmp_path)
    monkeypatch.setattr("helpers.classroom.release.release", lambda reference: "fresh")
    (tmp_path / name).write_text("a file, where the folder should be")
    assert reset("00") == 2
    said = capsys.readouterr().err
    assert said.startswith("reset: ") and str(tmp_path) in said and said.count("\n") == 1
    (tmp_path / name).unlink()
    notebook.parent.mkdir()
    notebook.write_text("my answers")

    def write_half(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "write_bytes", write_half)
        assert reset("00") == 2
    said = capsys.readouterr().err
    (copy,) = notebook.parent.glob("*.answers-*")
    assert "No space left" in said and "Your notebook is as it was" in said and copy.name in said
    assert notebook.read_text() == copy.read_text() == "my answers"
    assert reset("00") == 0 and notebook.read_text() == "fresh"


@pytest.mark.parametrize("module", ["release", "zygote", "build", "bundle"])
def test_every_command_says_what_it_takes(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"helpers.classroom.{module}", "--help"]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []
