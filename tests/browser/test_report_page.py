"""The learner's report in a real browser: light and dark, wide and narrow; it asks for nothing, and needs no script."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from helpers import progress
from helpers.lesson import report_page as report
from helpers.running_example.scores import Score
from helpers.text.tables import table
from tests.browser import axe
from tests.browser.driver import SHOTS


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of somebody who solved and predicted half of two lessons, and repaired the last one's script."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for variable in ("COURSE_BUILD", "NBGRADER_EXECUTION", "HELPERS_STATIC_WIDGETS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(progress, "_current", None)
    cheap = Score(0.03, 0.02, launches=9, operators=9, syncs=1, copied_bytes=8, peak_bytes=2**30)
    monkeypatch.setattr("helpers.running_example.whole.score", lambda script: cheap)
    index = progress.index()
    first = dict(list(index.items())[:2])
    last = {"17_capstone": next(iter(first.values())) | {"title": "17 · Capstone"}}
    monkeypatch.setattr(progress, "index", lambda: index | last)
    for name, about in first.items():
        progress.begin(name)
        for i, check in enumerate(check for e in about["exercises"] for check in e["checks"]):
            progress.record(check, passed=i % 2 == 0)
        said = {"said": "view", "measured": "copy", "choices": 2, "evidence": "live (CPU)"}
        progress.came_out({f"`x[{i}].t().reshape(24)` is a": said | {"right": i % 2 == 0} for i in range(4)})
    progress.begin("17_capstone")
    board = table([["syncs", "31", "0"]], ["a step", "before", "after"], evidence="simulated (H100)")
    progress.keep_board("My repair", board, [("as given", 0.032, 3e9, True), ("repaired", 0.003, 1e9, True)])
    return report.write(tmp_path / "report.html", "Ada").path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well(browser: Browser, page: Path, scheme: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    context = browser.new_context(color_scheme=scheme, java_script_enabled=True)  # type: ignore[arg-type]
    said: list[str] = []
    shown = context.new_page()
    shown.on("request", lambda asked: said.append(asked.url) if asked.url.startswith("http") else None)
    shown.on("console", lambda message: said.append(message.text))
    shown.goto(page.as_uri())
    for summary in shown.locator("summary").all():
        summary.click()
    expect(shown.get_by_text("✗ fails").first).to_be_visible()
    for width in (1280, 390):
        shown.set_viewport_size({"width": width, "height": 900})
        wide = shown.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"the page scrolls sideways at {width} pixels"
        shown.screenshot(path=SHOTS / f"report-{scheme}-{width}.png", full_page=True)
    assert shown.evaluate("[...document.images].every(i => i.naturalWidth > 500 && i.alt)")
    assert shown.evaluate("document.images.length") == 2
    ink, paper = shown.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (brightness(ink) > brightness(paper)) == (scheme == "dark")
    assert said == [], "it asks for nothing, and the browser has nothing to complain of"
    assert axe.findings(shown) == []
    context.close()


def brightness(colour: str) -> int:
    return sum(int(part) for part in colour.strip("rgb()").split(","))
