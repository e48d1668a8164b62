"""The course with a keyboard, with a screen reader, in the dark and at twice the size."""

import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Locator, expect

from helpers.own_script import findings, on
from tests.browser import axe
from tests.browser.conftest import Server
from tests.browser.driver import SHOTS, Lab, answers, exercises, place_of, solve

LESSON = "01_storage_and_stride"


def test_the_start_page(lab: Lab, server: Server) -> None:
    """Its cells run, its link to a lesson opens it, and a learner has none of the teacher's menus."""
    lab.open("notebooks/start.ipynb")
    lab.shot("09-start-page-first")
    lab.run_all(60)
    expect(lab.cell(1)).to_contain_text("The first lesson is 00 · Measure first")
    expect(lab.cell(3)).to_contain_text("Nothing is named yet")
    assert axe.findings(lab.page, axe.JUPYTERLAB) == []
    lab.shot("10-start-page")
    lab.page.locator(".lm-MenuBar-itemLabel", has_text="Nbgrader").click()
    labels = lab.page.locator(".lm-Menu-itemLabel").all_inner_texts()
    assert list(filter(None, labels)) == ["Assignment List"]  # commands that are not there have no label
    lab.page.keyboard.press("Escape")
    lab.cell(1).get_by_role("link", name="Open it.").click()
    front = lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current")
    expect(front).to_have_text("00_measure_first.ipynb")


def go(lab: Lab, there: Callable[[], bool], key: str, most: int = 40) -> None:
    """Press this key until we are there."""
    for _ in range(most):
        if there():
            return
        lab.page.keyboard.press(key)
        lab.page.wait_for_timeout(30)
    raise AssertionError(f"{key}, {most} times, does not lead there")


def at(lab: Lab, place: int) -> Callable[[], bool]:
    """Whether the cell at this place is the one in front."""
    cell = lab.panel.locator(".jp-Notebook .jp-Cell").nth(place)
    return lambda: "jp-mod-active" in (cell.get_attribute("class") or "")


def focused(element: Locator) -> Callable[[], bool]:
    return lambda: bool(element.evaluate("element => element === document.activeElement"))


def test_lesson_01_by_keyboard(lab: Lab, server: Server) -> None:
    """Every cell is run, a prediction made, a slider moved and an answer written, and no mouse is touched.

    Then: names and states, in the light; and pictures that are no white boxes, in the dark.
    """
    path = solve(server.course, LESSON)
    notebook = json.loads((server.course / path).read_text())
    first = exercises(notebook)[0]
    written, place = answers(server.course, LESSON)[first], place_of(notebook, first)
    given = json.loads((server.course / "notebooks" / LESSON / f"{LESSON}.ipynb").read_text())
    notebook["cells"][place]["source"] = given["cells"][place]["source"]
    (server.course / path).write_text(json.dumps(notebook))
    lab.open(path)
    page, keys = lab.page, lab.page.keyboard

    keys.press("Escape")
    for _ in notebook["cells"]:
        keys.press("Shift+Enter")
    page.wait_for_timeout(500)
    lab.wait_until_idle(240)
    raised = lab.panel.locator("[data-mime-type='application/vnd.jupyter.error']")
    assert raised.count() == 0, raised.first.inner_text()
    keys.press("Escape")
    go(lab, at(lab, place), "ArrowUp", most=99)
    keys.press("Enter")
    keys.press("ControlOrMeta+a")
    keys.insert_text(written)
    keys.press("Shift+Enter")
    keys.press("Shift+Enter")
    lab.wait_until_idle(60)
    expect(lab.panel.locator(".jp-Notebook .jp-Cell").nth(place + 1)).to_contain_text("✓ answers: ")

    asked = next(i for i, c in enumerate(notebook["cells"]) if "lesson.predict(" in "".join(c["source"]))
    keys.press("Escape")
    go(lab, at(lab, asked), "ArrowUp", most=99)
    questions = lab.cell(asked).locator(".widget-toggle-buttons")
    for question in questions.all():
        button = question.get_by_role("button").first
        go(lab, focused(button), "Tab")
        keys.press("Space")
        expect(button).to_have_attribute("aria-pressed", "true")
        assert ": " in (button.get_attribute("aria-label") or ""), "it says the question and the answer"
    assert "✓" in questions.first.get_by_role("button").first.evaluate(
        "button => getComputedStyle(button, '::before').content"
    )
    expect(lab.panel.locator(".jp-Notebook .jp-Cell").nth(asked + 1)).to_contain_text("predicted right")

    explorer = next(i for i, c in enumerate(notebook["cells"]) if "".join(c["source"]) == "stride_explorer()")
    rows = (
        lab.panel.locator(".jp-Notebook .jp-Cell")
        .nth(explorer)
        .get_by_role("slider", name="rows", exact=True)
    )
    picture = lab.panel.locator(".jp-Notebook .jp-Cell").nth(explorer).locator("img")
    go(lab, focused(rows), "Tab", most=60)
    before = picture.get_attribute("alt") or ""
    assert "shape (4, 6)" in before
    keys.press("ArrowLeft")
    expect(picture).not_to_have_attribute("alt", before, timeout=20_000)
    assert "shape (3, 6)" in (picture.get_attribute("alt") or "")
    lab.wait_until_idle(20)
    assert axe.findings(page, axe.JUPYTERLAB) == []

    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    turned = "image => getComputedStyle(image).filter"
    assert "invert" in lab.panel.locator(".jp-OutputArea img").first.evaluate(turned)
    page.set_viewport_size({"width": 700, "height": 500})  # as 1400 × 1000 at 200 %
    wide = lab.panel.locator(".jp-Notebook .jp-WindowedPanel-outer")
    assert wide.evaluate("box => box.scrollWidth <= box.clientWidth + 1"), "it is read without going sideways"
    lab.shot("11-twice-the-size")
    page.set_viewport_size({"width": 1400, "height": 1000})


def test_the_page_of_ones_own_script(browser: Browser, tmp_path: Path) -> None:
    from torch import nn, optim, randn

    with on("H100") as run:
        net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to("cuda")
        adam = optim.AdamW(net.parameters(), foreach=False)
        for _ in range(6):
            net(randn(8, 64).to("cuda")).square().mean().backward()
            adam.step()
    (written, _) = findings(run).write(tmp_path)
    SHOTS.mkdir(exist_ok=True)
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(written.as_uri())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for width in (390, 768, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.screenshot(path=SHOTS / f"own-script-{scheme}-{width}.png", full_page=True)
        assert said == [], "its policy refuses nothing of it"
        assert axe.findings(page) == []
    page.close()
