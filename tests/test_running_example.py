"""The running example: every rung trains alike, its counters go the way the lessons say, its code is the lessons' own."""

from __future__ import annotations

import ast
import io
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import running_example
from helpers.running_example import after, plain, rungs, scores, spread
from helpers.running_example.rungs import RUNGS
from helpers.running_example.script import PLAIN
from helpers.running_example.spread import SPREAD

ROOT = Path(__file__).resolve().parents[1]
#: how far the losses of a rung may be from the plain script's, as a share
TOLERANCE = {lesson: 1e-3 if "10" in lesson else 1e-5 for lesson in RUNGS}


@pytest.mark.parametrize("lesson", RUNGS)
def test_every_rung_trains_as_the_plain_script_does(lesson: str) -> None:
    assert scores.losses(after(lesson)) == pytest.approx(scores.losses(PLAIN), rel=TOLERANCE[lesson])


@pytest.mark.parametrize("lesson", SPREAD)
def test_on_several_ranks_it_trains_alike(lesson: str) -> None:
    """Two real processes, each with the whole batch: the mean of equal gradients is the gradient."""
    assert scores.losses(after(lesson), ranks=2) == pytest.approx(scores.losses(after("10")), rel=1e-3)


def test_several_ranks_send_and_hold_less() -> None:
    alone, *spread = scores.score(after("10")), *(scores.score(after(lesson), 8) for lesson in SPREAD)
    parallel, sharded, split = spread
    assert alone.sent_bytes == 0 and all(s.sent_bytes > 10e6 for s in spread)
    assert sharded.peak_bytes < 0.9 * parallel.peak_bytes and split.peak_bytes < alone.peak_bytes
    assert parallel.step_s > alone.step_s, "eight times the tokens, but no step is faster"


def test_the_script_learns() -> None:
    first, *_, last = scores.losses(PLAIN)
    assert 5.3 < first < 6.2 and last < 0.7 * first


def test_the_script_runs_as_it_stands() -> None:
    run = plain.train(plain, scores.SMALL, SimpleNamespace(device=torch.device("cpu")), 2)
    assert [len(record.losses) for record in run] == [1, 2]


def fewer(lesson: str, field: str) -> tuple[float, float]:
    """A field of the score before a lesson and after it."""
    begun, left = scores.score(after(RUNGS[lesson].begins)), scores.score(after(lesson))
    return getattr(begun, field), getattr(left, field)


@pytest.mark.parametrize(
    ("lesson", "field", "least"),
    [
        ("01", "launches", 1.005), ("02", "operators", 1.2), ("02", "peak_bytes", 1.3), ("02", "step_s", 1.1),
        ("03", "syncs", 1.5), ("03", "step_s", 1.1), ("04", "copied_bytes", 15), ("05", "syncs", 5),
        ("06", "launches", 3), ("06", "step_s", 1.05),
    ],
)  # fmt: skip
def test_a_rung_buys_what_its_lesson_says(lesson: str, field: str, least: float) -> None:
    begun, left = fewer(lesson, field)
    assert begun >= least * left, f"{field}: {begun} → {left}"


@pytest.mark.parametrize("lesson", ["01", "04", "05", "07", "08"])
def test_a_rung_that_buys_no_time_buys_none(lesson: str) -> None:
    begun, left = fewer(lesson, "step_s")
    assert begun == pytest.approx(left, rel=0.02)


def test_the_graph_pays_where_kernels_are_short_and_costs_memory() -> None:
    for lesson, least in (("07", 0.99), ("10+07", 1.1)):
        begun, left = fewer(lesson, "step_s")
        assert begun > least * left
        begun, left = fewer(lesson, "peak_bytes")
        assert left > begun


def test_checkpoints_cost_time_and_save_memory() -> None:
    (begun, left), (before, now) = fewer("09", "step_s"), fewer("09", "peak_bytes")
    assert left > 1.1 * begun and now < 0.9 * before


def test_no_change_buys_as_much_time_as_half_the_bits() -> None:
    bought = {lesson: begun / left for lesson in list(RUNGS)[1:] for begun, left in [fewer(lesson, "step_s")]}
    assert max(bought, key=bought.__getitem__) == "10" and bought["10"] > 2


def test_the_ladder_is_shown_as_it_is() -> None:
    drawn = running_example.ladder()
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert f"![{drawn.alt}](ladder.png)" in page, "its words; `make build` draws the picture"
    kept, fresh = Image.open(ROOT / "docs" / "ladder.png"), Image.open(io.BytesIO(drawn.png()))
    assert kept.info["Description"] == fresh.info["Description"] and kept.size == fresh.size
    apart = np.abs(np.asarray(kept).astype(int) - np.asarray(fresh).astype(int)).mean()
    assert apart < 1, f"docs/ladder.png is {apart:.1f} of 255 levels off: `make build` draws it anew"


# ------------------------------------------------------------------------ the lessons' cells are the rungs


class Bare(ast.NodeTransformer):
    """A function without its types and docstrings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        if ast.get_docstring(node) is not None:
            del node.body[0]
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign:
        assert node.value is not None
        return ast.Assign([node.target], node.value)


def functions(source: str) -> dict[str, str]:
    return {
        node.name: ast.dump(Bare().visit(node))
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


@cache
def section(lesson: str) -> str:
    """The code under "The running example" in a lesson's master; "" where there is none yet."""
    (master,) = ROOT.glob(f"solutions/{lesson}_*/{lesson}_*.py")
    _, _, rest = master.read_text(encoding="utf-8").partition("\n# ## The running example\n")
    cells = rest.split("\n# %% ")[1:]
    end = next((i for i, cell in enumerate(cells) if cell.startswith("[markdown]\n# ## ")), len(cells))
    return "\n".join(cell.partition("\n")[2] for cell in cells[:end] if cell.startswith("experiment"))


@pytest.mark.parametrize("lesson", [lesson for lesson in RUNGS | SPREAD if lesson.isdigit()])
def test_a_lessons_cell_is_its_rung(lesson: str) -> None:
    code = section(lesson)
    if not code:
        pytest.skip("the lesson has no section yet")
    written, kept = functions(code), dict[str, str]()
    for module in (rungs, spread):
        kept |= functions(Path(module.__file__).read_text(encoding="utf-8"))
    rung = (RUNGS | SPREAD)[lesson]
    for part in rung.parts.values():
        if part.__name__ in written:
            assert written[part.__name__] == kept[part.__name__], part.__name__
    calls = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call)]
    begun = [ast.unparse(n.args[0]) for n in calls if ast.unparse(n.func) == "running_example.after"]
    assert repr(rung.begins or lesson) in begun
    replaced = {k.arg for n in calls if ast.unparse(n.func).endswith(".replace") for k in n.keywords}
    assert set(rung.parts) <= replaced


# ---------------------------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("parts", "error", "said"),
    [
        ({"atention": plain.attention}, ValueError, "no part 'atention': do you mean 'attention'"),
        ({"speed": plain.attention}, ValueError, "no part 'speed': it has text, batches"),
        ({"attention": 3}, TypeError, r"attention=3 is no function: the script calls it as attention\(q"),
        ({"attention": lambda q: q}, TypeError, r"calls attention\(q, k, v\), which <lambda> does not take"),
    ],
)
def test_a_part_that_does_not_fit_says_what_is_wanted(
    parts: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        PLAIN.replace(**parts)


def test_a_lesson_without_a_rung_is_named() -> None:
    with pytest.raises(KeyError, match="'11' left no script of its own; there are 00, 01"):
        after("11")


def test_another_training_is_named() -> None:
    board = scores.Board(*[scores.score(after("06"))] * 2, apart=0.2, tolerance=1e-4, ratio=None)
    assert not board.same and "THE LOSSES DIFFER by up to 20.00%" in repr(board)
    with pytest.raises(TypeError, match="wants two scripts"):
        running_example.compare(PLAIN, plain.attention)  # type: ignore[arg-type]


def test_the_cpu_runs_what_needs_no_gpu() -> None:
    ratio = scores.live(PLAIN, after("06"), pairs=6)
    assert ratio is not None and ratio.cell.startswith("≈ ")
    assert scores.live(PLAIN, after("07"), pairs=6) is None
    assert torch.Tensor.pin_memory.__name__ == "pin_memory"


def test_the_board_says_where_its_numbers_come_from() -> None:
    board = scores.Board(
        scores.score(PLAIN), scores.score(after("06")), apart=0.0, tolerance=1e-4, ratio=None
    )
    shown = repr(board)
    assert (
        "[simulated (H100) · live (CPU)]" in shown
        and "needs a GPU" in shown
        and "agree within 0.01%" in shown
    )
    assert repr(board) == shown and "whole steps are off by up to" in shown
