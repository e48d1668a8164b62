"""Numbers in prose: the build writes what a cell kept; what is missing, unused or a clock's is refused with its line."""

from pathlib import Path

import nbformat
import pytest

import helpers
from helpers import lesson
from helpers.classroom import build, processors, prose
from helpers.classroom import master as masters
from helpers.classroom.master import BadMaster, Master
from tests.test_build import GOOD, write

#: an operator's cost on a simulated card, and a count
KEEPS = """\
from helpers import lesson, simulate

with simulate("H100") as gpu:
    torch.empty(4096, 4096, device=gpu.device) + 1
    gpu.synchronize()
lesson.keep(add_us=gpu.kernels[-1].duration_s * 1e6, kernels=len(gpu.kernels), card="H100")
"""
PLAIN = 'from helpers import lesson\nlesson.keep(card="A100", kernels=1234, add_us=2.3456789012)\n'
TEXT = "# %% [markdown]\n# On the {{card}} {{kernels}} kernels;\n# the sum takes {{add_us:.1f}} µs.\n\n# %% [markdown]\n# **Exercise"


def tiny(folder: Path, code: str = KEEPS, text: str = TEXT) -> Master:
    changed = GOOD.replace("print(torch.arange(3))\n", code).replace("# %% [markdown]\n# **Exercise", text)
    return masters.read(write(folder, changed))


def built(master: Master) -> nbformat.NotebookNode:
    nb = build.notebook(master)
    build.execute(nb, master)
    return nb


def slower_card(folder: Path) -> Path:
    """A copy of helpers, all links but for the cards' sheet: the H100's memory is half as fast."""
    real, copy = Path(helpers.__file__).parent, folder / "helpers"
    for place in (Path(), Path("simulator")):
        (copy / place).mkdir(parents=True)
        for path in (real / place).iterdir():
            if path.name not in ("simulator", "cards.csv"):
                (copy / place / path.name).symlink_to(path)
    sheet = (real / "simulator" / "cards.csv").read_text(encoding="utf-8")
    (copy / "simulator" / "cards.csv").write_text(sheet.replace("3.35e12", "1.675e12", 1), encoding="utf-8")
    return copy


def test_the_text_follows_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure moves with the card's sheet, the check says so without running, and twice is the same."""
    master = tiny(tmp_path)
    first = built(master)
    text = first.cells[3].source
    assert text.startswith("On the H100 1 kernels;\nthe sum takes ") and "{{" not in text
    assert build.text_of(built(master)) == build.text_of(first), "building twice must change nothing"
    loaded = first.metadata["course"]["helpers"]
    assert build.fingerprint(master, loaded) == first.metadata["course"]["built_from"]

    copy = slower_card(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    slow = built(master)
    times = [float(nb.cells[3].source.split()[-2]) for nb in (first, slow)]
    assert times[1] > 1.5 * times[0]
    assert [c.id for c in slow.cells] == [c.id for c in first.cells], "no cell becomes another by its figure"
    assert kept(slow) != kept(first), "nbval compares this output"
    monkeypatch.setattr(build, "ROOT", copy.parent)
    assert build.fingerprint(master, loaded) != first.metadata["course"]["built_from"], "make check says so"


def kept(nb: nbformat.NotebookNode) -> list[object]:
    return [
        o.data[lesson.KEPT_MIME]
        for c in nb.cells
        for o in c.get("outputs", ())
        if lesson.KEPT_MIME in o.get("data", {})
    ]


def test_a_learner_reads_plain_numbers_and_an_edit_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = tiny(tmp_path, PLAIN)
    monkeypatch.setattr(build, "NOTEBOOKS", tmp_path / "notebooks")
    assert "built" in build.build_one(master.path, force=False)
    learner = (tmp_path / "notebooks" / "90_tiny" / "90_tiny.ipynb").read_text()
    assert "On the A100 1234 kernels;" in learner and "2.3 µs" in learner and "{{" not in learner
    assert build.drift(master.path) == [] and "up to date" in build.build_one(master.path, force=False)
    with monkeypatch.context() as moved:
        moved.setattr(build, "version", lambda name: "99.0")
        assert "PyTorch" in "".join(build.drift(master.path)), "another torch may print other numbers"
    reference = master.path.with_suffix(".ipynb")
    assert '"add_us": 2.3456789' in reference.read_text()
    reference.write_text(reference.read_text().replace("1234 kernels", "1235 kernels"))
    assert any("edited by hand" in problem for problem in build.drift(master.path))
    reference.write_text(reference.read_text().replace('"kernels": 1234', '"kernels": 1236'))
    assert any("edited by hand" in problem for problem in build.drift(master.path))


BAD = {
    "nothing keeps it": ("lesson.keep(card=1, kernels=2)", "90_tiny.py:15: no cell keeps {{add_us}}; there are card, kernels"),
    "no text uses it": ("lesson.keep(card=1, kernels=2, add_us=3, more=4)", "90_tiny.py:10: lesson.keep(more=…): no text uses it"),
    "kept twice": ("lesson.keep(card=1)\nlesson.keep(card=1)", "kept already on line 10"),
    "without a name": ("lesson.keep(**dict(card=1))", "each by its name"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_kept_is_refused(tmp_path: Path, name: str) -> None:
    code, message = BAD[name]
    with pytest.raises(BadMaster, match="90_tiny.py:") as problem:
        prose.check(tiny(tmp_path, code=code + "\n"))
    assert message in str(problem.value)


def test_a_slot_that_is_none_and_a_format_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(BadMaster, match=r"90_tiny.py:19: \{\{2x\}\} is not"):
        prose.check(tiny(tmp_path, text=TEXT.replace("{{kernels}}", "{{2x}}")))
    master = tiny(tmp_path, PLAIN, TEXT.replace("{{card}}", "{{card:.1f}}"))
    nb = build.notebook(master)
    nb.cells[2].outputs = [
        nbformat.v4.new_output(
            "display_data", {lesson.KEPT_MIME: {"card": "A100", "kernels": 1, "add_us": 2.0}}
        )
    ]
    with pytest.raises(BadMaster, match=r"90_tiny.py:\d+: \{\{card:\.1f\}\} cannot be filled in"):
        prose.fill(nb, master, nb)


def test_what_a_clock_gave_is_refused(tmp_path: Path) -> None:
    clock = "import time\nlesson.keep(card='A100', kernels=1, add_us=time.perf_counter())\n"
    master = tiny(tmp_path, f"from helpers import lesson\n{clock}")
    first, second = built(master), built(master)
    with pytest.raises(BadMaster, match="depends on the processor, or on a clock"):
        processors.compare(first, second, master)
    unseen = (
        '# %% experiment tags=["nbval-ignore-output"]\nfrom helpers import lesson\nlesson.keep(card=1)\n\n'
    )
    with pytest.raises(BadMaster, match="nothing compares what this cell shows"):
        prose.check(tiny(tmp_path, PLAIN.replace('card="A100", ', ""), unseen + TEXT))


def test_keep_takes_plain_values_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COURSE_BUILD", raising=False)
    lesson.keep(a=1, b=2.5, c="x")
    assert capsys.readouterr().out == "", "a learner sees nothing of it"
    for value in (None, [1], "≈ 3 µs"):
        with pytest.raises(ValueError, match=r"keep\(a=…\)"):
            lesson.keep(a=value)
