"""What `make upgrade` prints: differences sorted by what they ask of an author. The environment beside is not made here."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from helpers.classroom import build, upgrade
from helpers.classroom import master as masters
from helpers.classroom.upgrade import Difference

MASTER = """# %% [markdown]
# # 01 · A
#
# ## Why?
#
# **Time** 5 min

# %% setup
import torch

# %% experiment
print(1)
"""


@pytest.fixture
def master(tmp_path: Path) -> masters.Master:
    path = tmp_path / "01_a" / "01_a.py"
    path.parent.mkdir()
    path.write_text(MASTER, encoding="utf-8")
    return masters.read(path)


def run(master: masters.Master, *texts: str, stream: str = "stdout") -> nbformat.NotebookNode:
    """The lesson's notebook where its last cell has printed these texts."""
    cells = [new_code_cell() for _ in master.cells]
    cells[-1].outputs = [new_output("stream", name=stream, text=text) for text in texts]
    return new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("was", "now", "kind"),
    (
        ("12 kernels, 3.5 ms", "13 kernels, 3.6 ms", "numbers"),
        ("the graph breaks", "the graph is whole", "behaviour"),
        ("torch 2.13.0 · Python", "torch 2.14.1+cu130 · Python", ""),
        ("takes ≈ 12 ms", "takes ≈ 19 ms", ""),
        ("the same", "the same", ""),
    ),
)
def test_a_cell_is_sorted_by_what_changed(master: masters.Master, was: str, now: str, kind: str) -> None:
    found = upgrade.differences(run(master, was), run(master, now), master)
    assert [each.kind for each in found] == ([kind] if kind else [])
    if found:
        assert "01_a.py:" in found[0].where and found[0].before != found[0].after


def test_what_is_new_in_stderr_is_a_warning(master: masters.Master) -> None:
    (found,) = upgrade.differences(run(master), run(master, "FutureWarning", stream="stderr"), master)
    assert found.kind == "warnings"


def test_the_page_has_bugs_first_and_says_how_to_move() -> None:
    found = [
        Difference("numbers", "01_a.py:9", "'1'", "'2'"),
        Difference("bugs", "02_b", "ran", "RuntimeError: no"),
    ]
    text = upgrade.page("9.9.9", found, ["solutions/01_a/01_a.py:3"], "all")
    assert text.index("02_b") < text.index("01_a.py:9")
    assert "RuntimeError: no" in text and "torch==9.9.9" in text and "solutions/01_a/01_a.py:3" in text
    assert "bugs 1, private names 0, behaviour 0, numbers 1, warnings 0" in text


def test_places_that_name_a_version_are_found() -> None:
    places = upgrade.pinned("2.13.0")
    assert any(place.startswith("constraints.txt:") for place in places)
    assert any("12_cpu_threads_and_layout.py" in place for place in places), "links into PyTorch's source"
    assert upgrade.pinned("1.99.7") == []


def test_a_version_and_a_lesson_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (([], "which version?"), (["2.14.1", "77"], "no lesson '77'")):
        with pytest.raises(SystemExit):
            upgrade.main(arguments)
        assert said in capsys.readouterr().err
    assert build.find(["11"])
