"""Grades of exercises that count kernels are the same with an empty and with a full Inductor cache."""

import os
import shutil
from pathlib import Path

import pytest

from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.classroom.runner import Runner

LESSON, EXERCISE = "11_torch_compile", "prepare"
ANSWERS = Path(__file__).parent / "submissions" / LESSON / EXERCISE
#: after an answer: what a learner does who tries it with torch.compile itself, which reads and fills the caches
TRIED = """

try:
    torch.compile(prepare)(torch.rand(8, 6))
except Exception:  # there is no C++ compiler here: then no cache fills either
    pass
torch.compiler.reset()
"""


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_same_grade_whatever_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores and messages, right and wrong answer: cache empty, cache full of the right one's very kernels."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    master = masters.read(next(p for p in find([]) if p.stem == LESSON))
    answers = {name: (ANSWERS / name).read_text() for name in ("right_index.py", "wrong_second_waits.py")}

    def graded(runner: Runner) -> dict[str, tuple[int, list[str]]]:
        scores = {name: runner.grade(master, EXERCISE, text) for name, text in answers.items()}
        return {n: (s.earned, [v.text for v in s.verdicts.values()]) for n, s in scores.items()}

    with Runner() as runner:
        empty = graded(runner)
        assert not files(tmp_path), "grading builds nothing and leaves nothing in the cache"
        built = runner.grade(master, EXERCISE, answers["right_index.py"] + TRIED)
        kept = files(tmp_path)
        full = graded(runner)
    if shutil.which(os.environ.get("CXX", "g++")):  # which Inductor calls
        assert kept, "the answer was built, so that the cache is full"
    assert empty == full
    assert (built.earned, [v.text for v in built.verdicts.values()]) == full["right_index.py"]
    assert files(tmp_path) == kept
    assert [score for score, _ in empty.values()] == [4, 0]
    assert any("loop nests" in text for text in empty["wrong_second_waits.py"][1])
