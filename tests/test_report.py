"""The page that a learner shows to a colleague: what stands on it, and what happens where nothing or rubbish is kept."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers import __main__ as command
from helpers import lesson, progress
from helpers.lesson import report_page as report
from helpers.lesson.predictions import Prediction
from helpers.running_example.scores import Score
from helpers.text.tables import table

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a learner's progress is kept who has three lessons, and has done nothing; the folder is the current one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for variable in ("COURSE_BUILD", "NBGRADER_EXECUTION", "HELPERS_STATIC_WIDGETS"):
        monkeypatch.delenv(variable, raising=False)
    about: dict[str, Any] = {}
    for name in ("00_first", "01_second", "17_capstone"):
        exercises = [
            {"id": one, "number": "1", "title": one, "stars": 2, "minutes": 5, "points": 3, "checks": [one]}
            for one in ("f", "g")
        ]
        about[name] = {"title": f"{name[:2]} · {name[3:]}", "question": "Why?", "exercises": exercises}
    (tmp_path / "lessons.json").write_text(json.dumps(about))
    monkeypatch.setattr(progress, "_INDEX", tmp_path / "lessons.json")
    monkeypatch.setattr(progress, "_current", "00_first")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "pytorch-performance-measured" / "progress.json"


def worked() -> None:
    progress.record("f", passed=True)
    progress.record("g", passed=False)
    you = Prediction({"a": "view", "b": "copy"}, ["view", "copy"])
    you.against({"a": "view", "b": "view"}, evidence="live (CPU)")._remember()


SCORE = Score(0.03, 0.02, launches=9, operators=9, syncs=1, copied_bytes=8, peak_bytes=2**30)


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page.partition("</style>")[2]))


def test_nothing_yet_writes_nothing(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["report"]) == 1
    assert "Nothing to report yet" in capsys.readouterr().err
    assert lesson.report() is None and "Nothing to report yet" in capsys.readouterr().out
    assert not Path("report.html").exists() and not kept.exists()


def test_it_says_what_was_solved_and_predicted(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worked()
    written = lesson.report(name="Ada")
    assert written is not None and 'href="report.html"' in written._repr_html_()
    page = Path("report.html").read_text(encoding="utf-8")
    said = words(page)
    for part in (
        "measured by Ada", "1 of 6 exercises solved", "3 of 18 points", "1 of 2 predictions right", "1 of 3 lessons",
        "guessing would give about 1.", "✓ passes", "✗ fails", "live (CPU)", "torch 2.", "it is no grade",
    ):  # fmt: skip
        assert part in said, part
    assert "The ladder" not in said, "lesson 00 has the plain script alone"
    assert command.main(["report", "--to", "report.html"]) == 0, "a report may be written again"
    assert "1 of 2" in capsys.readouterr().out


def test_it_needs_nothing_and_runs_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.running_example.whole.score", lambda script: SCORE)
    progress.begin("01_second")
    worked()
    progress.keep_board("another attention", table([["time", "2×"]], ["a", "b"], evidence="simulated (H100)"))
    progress.begin("17_capstone")
    board = table([["syncs", EVIL]], ["counter", "after"], evidence="simulated (H100)")
    progress.keep_board(f"My repair {EVIL}", board, [("slow", 0.03, 3e9, True), ("fast", 0.01, 1e9, True)])
    progress.came_out(
        {EVIL: {"said": EVIL, "measured": EVIL, "right": False, "choices": 2, "evidence": EVIL}}
    )
    page = report.page(report.done(), progress.index(), EVIL)
    assert "<script" not in page and page.count("&lt;script&gt;") >= 7
    assert not re.search(r'(?:src|href)="(?!data:)|@import|url\(', page)
    pictures = re.findall(r"<img [^>]*>", page)
    assert len(pictures) == 2 and all(re.search(r'alt="[^"]{40,}', one) for one in pictures)
    said = words(page)
    assert (
        said.index("A slow script, found and repaired") < said.index("The ladder") < said.index("Lesson by")
    )
    assert "A step went from 30.0 ms to 10.0 ms (3.0×)" in said and "another attention" in said


def test_what_is_answered_after_its_result_is_no_prediction(kept: Path) -> None:
    you = Prediction({"a": ..., "b": "copy"}, ["view", "copy"])
    shown = you.against({"a": "view", "b": "view"}, evidence="live (CPU)")
    assert not kept.exists(), "a result that waits is not seen"
    you.reveal()
    shown._remember()
    you.say("a", "view")
    you.say("b", "view")
    shown._remember()
    assert report.calibration(report.done()) == (0, 1, 0.5)


@pytest.mark.parametrize(
    "rubbish",
    ["{ broken", "[1]", '{"00_first": 3}', '{"00_first": {"outcomes": []}}', '{"00_first": {"boards": 0}}'],
)
def test_a_damaged_file_is_told_and_kept(
    kept: Path, rubbish: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_text(rubbish)
    assert command.main(["report"]) == 2
    said = capsys.readouterr().err
    assert "progress.json cannot be read" in said and "left as it is" in said and "Traceback" not in said
    assert kept.read_text() == rubbish and not Path("report.html").exists()
    progress.record("f", passed=True)  # work goes on, beside what was there
    assert kept.with_name("progress.damaged-1.json").read_text() == rubbish
    assert json.loads(kept.read_text()) == {"00_first": {"f": True}}


@pytest.mark.parametrize(
    "own",
    [
        {"outcomes": {"a": {"said": "x"}}}, {"outcomes": {"a": 1}}, {"boards": {"a": {}}},
        {"boards": {"a": {"columns": [], "rows": [], "evidence": "", "caption": "", "drawn": "", "rungs": [[1]]}}},
    ],
)  # fmt: skip
def test_an_entry_that_is_not_whole_is_told(kept: Path, own: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"00_first": own}))
    assert command.main(["report"]) == 2
    assert "not whole" in capsys.readouterr().err


def test_a_file_of_somebody_is_not_written_over(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worked()
    Path("thesis.html").write_text("mine")
    assert command.main(["report", "--to", "thesis.html"]) == 2
    assert command.main(["report", "--to", "."]) == 2
    assert "is no report" in capsys.readouterr().err and Path("thesis.html").read_text() == "mine"


def test_boards_of_the_running_example_are_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers.running_example import compare, scores
    from helpers.running_example.script import PLAIN

    cheap = {
        "score": lambda script, ranks: SCORE,
        "losses": lambda script, ranks: (5.0,),
        "live": lambda a, b: None,
    }
    for name, stand_in in cheap.items():
        monkeypatch.setattr(scores, name, stand_in)
    shown = compare(PLAIN, PLAIN.replace(log=lambda record, logits, loss: None))
    boards = progress.kept()["00_first"]["boards"]
    assert list(boards) == ["another log"] and boards["another log"]["rows"] == [
        *map(list, shown.table().rows)
    ]
