"""Tables, predictions, verdicts, progress: what a learner sees, and what happens when it cannot be kept."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import nbformat
import pytest
import torch

import helpers
from helpers import check, lesson, progress
from helpers.classroom.release import reset
from helpers.lesson.predictions import Prediction
from helpers.text.tables import table


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner with one lesson of two exercises and no progress yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("COURSE_BUILD", raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    exercises = [
        {"id": "a", "title": "first", "minutes": 5, "checks": ["f"]},
        {"id": "b", "title": "second", "minutes": 9, "checks": ["g", "h"]},
    ]
    (tmp_path / "lessons.json").write_text(
        json.dumps({"90_tiny": {"title": "90 · Tiny", "exercises": exercises}})
    )
    monkeypatch.setattr(progress, "_INDEX", tmp_path / "lessons.json")
    monkeypatch.setattr(progress, "_current", "90_tiny")
    return tmp_path / "pytorch-performance-measured" / "progress.json"


def test_table_says_where_its_numbers_come_from() -> None:
    shown = table([{"size": 1000, "time": "≈ 1.2 µs", "copy": True}], evidence="live (CPU)", caption="small")
    assert repr(shown) == "size   time          copy\n1,000  ≈ 1.2 µs      yes\n[live (CPU)] small"
    assert (
        "<b>live (CPU)</b>" in shown._repr_html_()
        and "&lt;b&gt;" in table([["<b>"]], ["x"], evidence="arithmetic")._repr_html_()
    )
    assert "<code>x.t()</code>" in table([["`x.t()`"]], ["x"], evidence="arithmetic")._repr_html_()
    long = table(
        [["[a](https://b.org/c_d_e_f_g_h)", "set_some_limit(0.8)"]], ["x", "y"], evidence="arithmetic"
    )
    assert ">set_<wbr>some_<wbr>limit(0.8)<" in long._repr_html_(), "a narrow page breaks a long name"
    assert 'href="https://b.org/c_d_e_f_g_h"' in long._repr_html_()
    for bad in (
        {"rows": [[1]], "columns": ["a", "b"], "evidence": "x"},
        {"rows": [[1]], "evidence": "x"},
        {"rows": [], "columns": ["a"], "evidence": ""},
    ):
        with pytest.raises(ValueError):
            table(**bad)  # type: ignore[arg-type]
    assert repr(table([], ["a"], evidence="arithmetic")) == "a\n[arithmetic]"


def test_a_prediction_is_asked_kept_and_marked(learner: Path) -> None:
    asked = {"a": ..., "b": ..., "n": ...}
    offers = {"a": ("view", "copy"), "b": ("view", "copy"), "n": (1, 2, 4)}
    you = Prediction(asked, offers)
    shown = you.against(
        {"a": "view", "b": "copy", "n": 4},
        table([["x"]], ["y"], evidence="arithmetic"),
        evidence="live (CPU)",
    )
    assert not shown.is_open and repr(shown) == "Answer 3 more questions above, and the result appears here."
    you.say("a", "view")
    you.say("b", "view")
    assert you.unanswered == ["n"] and "Answer 1 more question above" in repr(shown)
    you.say("n", "4")
    assert [row[2] for row in shown.table().rows] == ["view ✓", "view ✗", "4 ✓"]
    assert "2 of 3 predicted right" in repr(shown) and repr(shown).endswith("y\nx\n[arithmetic]")
    again = Prediction(asked, offers)  # after a restart
    assert dict(again) == {"a": "view", "b": "view", "n": "4"}
    assert json.loads(learner.read_text())["90_tiny"]["predictions"]["a"] == "view"
    other = Prediction(
        asked, offers | {"a": ("new", "old")}
    )  # another version of the lesson asks something else
    assert other["a"] is ... and other["b"] == "view"


def test_a_prediction_that_is_typed_or_not_given(learner: Path) -> None:
    you = Prediction({"a": " View", "b": "clone"}, ["view", "copy"])
    assert (
        you["a"] == " View"
        and you["b"] is ...
        and "'clone' is none of view, copy" in repr(you) + you._repr_html_()
    )
    with pytest.raises(ValueError, match="'clone' is none of view, copy"):
        you.say("b", "clone")
    shown = you.against({"a": "view", "b": "copy"}, evidence="live (CPU)")
    you.reveal()
    assert shown.is_open and [row[2] for row in shown.table().rows] == [" View ✓", "—"]
    ratios = Prediction({"r": "2"}, [1, 2, 10]).against_ratios(
        {"r": 2.6}, evidence="live (CPU)", what="times as fast"
    )
    assert ratios.table().rows == (("r", "2", "2 ✓", "2.60"),)
    with pytest.raises(ValueError, match="nothing was measured for 'b'"):
        you.against({"a": "view"}, evidence="live (CPU)")
    for choices in (["view"], ["view", "View"], []):
        with pytest.raises(ValueError, match="needs two or more different choices"):
            Prediction({"a": ...}, choices)


def test_a_build_refuses_what_nobody_can_answer(learner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_BUILD", "1")
    you = Prediction({"a": ...}, ["view", "copy"])
    with pytest.raises(ValueError, match="measured 'clone' for 'a', which nobody can answer"):
        you.against({"a": "clone"}, evidence="live (CPU)")
    assert you.against({"a": "view"}, evidence="live (CPU)").is_open, "a reference shows its results"
    assert not learner.exists()


def test_clicks_open_a_result_that_waits(learner: Path) -> None:
    import ipywidgets

    you = Prediction({"a": ..., "b `x`": ...}, ["view", "copy"])
    row = you._row(ipywidgets, "a")
    shown = you.against({"a": "view", "b `x`": "copy"}, evidence="live (CPU)")
    shown._place = ipywidgets.VBox([])
    shown.follow()
    assert [type(part).__name__ for part in shown._place.children] == ["HTML", "Button"]
    row.children[1].index = 1
    assert you["a"] == "copy" and "1 more question" in shown._place.children[0].value
    you._row(ipywidgets, "b `x`").children[1].index = 1
    assert "1 of 2 predicted right" in shown._place.children[0].value
    assert you._row(ipywidgets, "a").children[1].index == 1, "after a restart the answer is still pressed"
    waiting = Prediction({"c": ...}, ["view", "copy"])
    closed = waiting.against({"c": "view"}, evidence="live (CPU)")
    closed._place = ipywidgets.VBox([])
    closed.follow()
    closed._place.children[1].click()
    assert (
        "predicted right" not in closed._place.children[0].value and "view" in closed._place.children[0].value
    )


def test_verdicts_are_data_too() -> None:
    claim = lesson.Claim("x", "guide", "c", "m", "partly: holds when n is large", "e")
    both = [claim, replace(claim, id="y", measured="other")]
    bundle = lesson.verdicts([claim], evidence="live (CPU)")._repr_mimebundle_()
    one = lesson.verdicts(both, evidence="live (CPU)", shown=["y"])._repr_mimebundle_()
    kept = one[lesson.VERDICTS_MIME]["claims"]
    assert kept == [asdict(each) for each in both] and len(one["text/plain"].splitlines()) == 3
    with pytest.raises(ValueError, match=r"no claim \['z'\]"):
        lesson.verdicts(both, evidence="live (CPU)", shown=["z"])
    assert (
        bundle[lesson.VERDICTS_MIME]["claims"] == kept[:1] and "holds when n is large" in bundle["text/plain"]
    )
    for change in ({"verdict": "maybe"}, {"source": "nobody"}):
        with pytest.raises(ValueError, match="claim 'x'"):
            replace(claim, **change)


def test_progress_is_kept_and_shown(learner: Path) -> None:
    assert [r[2] for r in lesson.progress().rows] == ["not run yet", "not run yet"]
    lesson.record("f", passed=True)
    lesson.record("g", passed=True)
    assert [r[2] for r in lesson.progress().rows] == ["passes", "not run yet"], "b needs both g and h"
    lesson.record("h", passed=False)
    assert [r[2] for r in lesson.progress("90").rows] == ["passes", "fails"]
    assert lesson.progress("all").rows == (("90 · Tiny", "1 of 2", "█░"),)
    with pytest.raises(ValueError, match="no lesson '91'"):
        lesson.progress("91")


def test_visible_tests_record_progress(learner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    monkeypatch.setattr(__main__, "f", lambda x: x, raising=False)
    check.function("f", [check.case(torch.ones(1))], lambda x: x)
    assert json.loads(learner.read_text()) == {"90_tiny": {"f": True}}
    with pytest.raises(check.CheckFailed):
        check.function("f", [check.case(torch.ones(1))], lambda x: x + 1)
    assert json.loads(learner.read_text()) == {"90_tiny": {"f": False}}


def test_progress_survives_what_goes_wrong(
    learner: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner.parent.mkdir(parents=True)
    learner.write_text("{ broken")
    assert lesson.progress().rows[0][2] == "not run yet"
    assert "cannot be read" in capsys.readouterr().out
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    lesson.record("f", passed=True)
    assert "could not write" in capsys.readouterr().out


def test_building_and_grading_record_nothing(learner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_BUILD", "1")
    lesson.record("f", passed=True)
    monkeypatch.delenv("COURSE_BUILD")
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    lesson.record("f", passed=True)
    assert not learner.exists()


def test_reset_names_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert reset("77") == 2 and reset("") == 2
    assert "say e.g. make reset LESSON=00" in capsys.readouterr().err


def test_names_load_on_first_use() -> None:
    assert set(helpers.__all__) <= set(dir(helpers))
    with pytest.raises(AttributeError, match="it has"):
        helpers.nothing  # noqa: B018


def test_an_answer_may_be_spelled_in_its_ways() -> None:
    for said in (1, 1.0, "1", "1.0"):
        you = Prediction({"a": said}, [1.0, 2, 4])
        assert "1 of 1" in repr(you.against({"a": 1.0}, evidence="live (CPU)"))
    you = Prediction({"a": "1.0x", "b": True}, {"a": ("1.0×", "2.0×"), "b": ("yes", "no")})
    assert "2 of 2" in repr(you.against({"a": "1.0×", "b": "yes"}, evidence="live (CPU)"))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Runs a cell in a notebook's kernel of its own, in the folder of a lesson of four cells; what it showed."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    cells = [
        nbformat.v4.new_markdown_cell("# 90 · Tiny\n\n## 1 · The clock"),
        nbformat.v4.new_code_cell("# what a call takes\ncost, unit = 3, 's'"),
        nbformat.v4.new_code_cell("%%time\nhidden = 1"),
        nbformat.v4.new_code_cell("cost = 5"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "90_tiny.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    shell = InteractiveShell.instance(colors="nocolor")

    def run(source: str) -> str:
        with capture_output() as said:
            shell.run_cell(source)
        return str(said.stdout)

    yield run
    InteractiveShell.clear_instance()


def test_a_name_of_a_cell_that_was_passed_over_is_told(kernel: Callable[[str], str]) -> None:
    assert "NameError: name 'cost' is not defined\n" in kernel("print(cost)"), "before any lesson"
    kernel("from helpers import lesson; lesson.start('90_tiny', ['live (CPU)'])")
    for source in ("print(cost * 2)", "def f():\n    return cost\nf()"):
        said = kernel(source)
        assert (
            "is not defined. The cell under “1 · The clock” that begins with `# what a call takes` makes"
            in said
        )
        assert "Run All Above Selected Cell" in said and "---->" in said, "the traceback is there as ever"
    for source in ("print(hiden)", "exec('cost', {})", "1 / 0"):
        assert "makes it" not in kernel(source)
    assert "5" in kernel("cost = 5; print(cost)") and "Error" not in kernel("print(cost)")


def test_another_handler_of_errors_stays(kernel: Callable[[str], str]) -> None:
    kernel("get_ipython().set_custom_exc((NameError, KeyError), lambda *a, **k: print('mine'))")
    kernel("from helpers import lesson; lesson.start('90_tiny', ['live (CPU)'])")
    assert kernel("cost") == "mine\n"
