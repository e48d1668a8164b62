"""A learner's first hour and an instructor's first look, in a real browser."""

import json
import re

import nbformat
from playwright.sync_api import expect

from tests.browser.conftest import Server
from tests.browser.driver import Lab, answers, exercises, place_of, solve

LESSON = "01_storage_and_stride"
NOTEBOOK = f"notebooks/{LESSON}/{LESSON}.ipynb"
#: seconds: a lesson's whole run, and one validation (it starts a kernel and imports torch)
RUN, VALIDATE = 240, 120


def test_make_lab_opens_the_start_page_and_nothing_opens_dirty(lab: Lab, server: Server) -> None:
    """To open a notebook and look at it changes nothing: JupyterLab asks nobody to save."""
    lab.page.goto(f"{server.url}{server.start}?token={server.token}")
    lab.wait_until_open("notebooks/start.ipynb")
    expect(lab.panel.get_by_role("heading", name="PyTorch Performance, Measured")).to_be_visible()
    hold_clean(lab)
    lab.run_all(60)
    lab.shot("1-start-page")
    assert lab.page.locator(".jp-Dialog, .Toastify__toast").count() == 0, "something pops up"
    for lesson in ("03_gpu_queue", LESSON):
        lab.panel.locator(f'a[href*="{lesson}"]').first.click()
        lab.wait_until_open(f"notebooks/{lesson}/{lesson}.ipynb")
        hold_clean(lab)
        lab.shot(f"2-{lesson}-top")
        lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="start.ipynb").click()


def hold_clean(lab: Lab) -> None:
    lab.page.wait_for_timeout(2_000)
    tab = lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current")
    expect(tab).to_have_count(1)
    expect(tab).not_to_have_class(re.compile("jp-mod-dirty"))


def test_lesson_runs_to_its_end_and_the_widget_moves(lab: Lab, server: Server) -> None:
    """Every exercise answered: no cell raises, and the slider redraws the picture."""
    path = solve(server.course, LESSON)
    lab.open(path)
    lab.run_all(RUN)
    saved = lab.save(path)
    code = [cell for cell in saved["cells"] if cell["cell_type"] == "code"]
    not_run = [
        "".join(cell["source"])[:80] for cell in code if cell["execution_count"] is None and cell["source"]
    ]
    assert not not_run, f"not run to the end; the first cell that did not run: {not_run[0]!r}"
    raised = [out["evalue"] for cell in code for out in cell["outputs"] if out["output_type"] == "error"]
    assert not raised

    output = lab.panel.locator(".jp-OutputArea-output", has=lab.page.locator(".noUi-handle")).first
    output.scroll_into_view_if_needed()
    handle, picture = output.locator(".noUi-handle").first, output.locator("img").first
    expect(picture).to_be_visible()
    before = picture.get_attribute("src")
    lab.shot("3-widget-page")
    lab.shot("3-widget-before", output)
    handle.focus()
    lab.page.keyboard.press("ArrowLeft")  # one row fewer: to the right, the walk would leave the storage
    expect(picture).not_to_have_attribute("src", before or "", timeout=20_000)
    lab.wait_until_idle(20)
    lab.shot("4-widget-after", output)


def test_a_learner_solves_an_exercise(lab: Lab, server: Server) -> None:
    """Validate and the visible test teach, and pass once the answer is written.

    On the notebook as it is given, up to the first exercise: Validate runs all that is there, twice. What it says of a
    whole lesson, tests/test_bundle.py asks of the command behind the button.
    """
    path = f"notebooks/{LESSON}/{LESSON}.answers-one.ipynb"
    given = json.loads((server.course / NOTEBOOK).read_text())
    first = exercises(given)[0]
    cell, test = place_of(given, first), place_of(given, f"{first}__test")
    given["cells"] = given["cells"][: place_of(given, f"{first}__hidden") + 1]
    (server.course / path).write_text(json.dumps(given))
    lab.open(path)
    said = lab.validate(VALIDATE)
    lab.shot("7-validate-unsolved")
    assert said.split("\n")[1] == "0 of 1 exercises solved", "the sum comes first"
    assert "✗" in said and "not written yet" in said and "Success" not in said
    assert "Traceback" not in said, "the dialog shows the test's words, not a stack"
    lab.close_dialog()

    for place, about in enumerate(given["cells"][:cell]):
        if "setup" in about["metadata"].get("tags", []):
            lab.run(place)

    lab.run(cell)
    failing = lab.run(test)
    lab.shot("5-visible-test-fails")
    assert failing.startswith("✗") and "not written yet" in failing

    lab.write(cell, answers(server.course, LESSON)[first])
    assert lab.run(cell) == ""
    passing = lab.run(test)
    lab.shot("6-visible-test-passes")
    assert passing.startswith("✓") and "✗" not in passing
    assert "".join(lab.save(path)["cells"][cell]["source"]) == answers(server.course, LESSON)[first]

    assert "Success! Your notebook passes all the tests." in lab.validate(VALIDATE)
    lab.shot("7-validate-solved")
    lab.close_dialog()


def test_a_prediction_is_clicked_and_the_result_waits_for_it(lab: Lab, server: Server) -> None:
    cells = [
        'from helpers import lesson\n\nlesson.start("01_storage_and_stride", evidence=["arithmetic"])',
        'you = lesson.predict({"`x.t()` is a": ..., "`x + 1` is a": ...}, choices=["view", "copy"])',
        'you.against({"`x.t()` is a": "view", "`x + 1` is a": "copy"}, evidence="arithmetic")',
    ]
    path = f"notebooks/{LESSON}/{LESSON}.answers-predict.ipynb"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    book.metadata = nbformat.from_dict(json.loads((server.course / NOTEBOOK).read_text())["metadata"])
    nbformat.write(book, server.course / path)
    lab.open(path)
    lab.run_all(60)
    result = lab.cell(2)
    expect(result).to_contain_text("Answer 2 more questions above")
    assert "predicted right" not in result.inner_text()
    lab.shot("9-prediction-asked")
    rows = lab.cell(1).locator(".widget-toggle-buttons")
    for row, word in enumerate(("copy", "copy")):
        rows.nth(row).get_by_role("button", name=word).click()
    expect(result).to_contain_text("1 of 2 predicted right", timeout=20_000)
    lab.shot("9-prediction-answered")
    lab.menu("Kernel", "Restart Kernel and Clear Outputs of All Cells…")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.wait_until_idle(60)
    lab.run_all(60)
    expect(lab.cell(2)).to_contain_text("1 of 2 predicted right", timeout=20_000)
    expect(lab.cell(1).locator(".widget-toggle-button.mod-active")).to_have_count(2)
    lab.shot("9-prediction-kept")
