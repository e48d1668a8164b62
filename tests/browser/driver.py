"""A learner's hands in a real browser: the few movements that the browser tests are written in."""

import json
import re
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

SHOTS = Path(__file__).with_name(".shots")
#: as this is a headless browser on a machine that may have no network and run as root
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Lab:
    """One browser page on one JupyterLab, in terms of notebooks and cells.

    page: the browser's page. url: JupyterLab's address without a path. token: as `make lab` printed it.
    course: the folder that JupyterLab serves.
    """

    def __init__(self, page: Page, url: str, token: str, course: Path) -> None:
        self.page, self.url, self.token, self.course = page, url, token, course

    # --- getting somewhere ---

    def open(self, notebook: str) -> None:
        """Open a notebook, given as a path in the course, in a fresh workspace; wait until its kernel is idle."""
        workspace = f"test-{time.monotonic_ns()}"
        self.page.goto(f"{self.url}/lab/workspaces/{workspace}/tree/{notebook}?token={self.token}")
        self.wait_until_open(notebook)

    def wait_until_open(self, notebook: str) -> None:
        """Wait until ``notebook`` is the tab in front with all its cells drawn, and its kernel idle."""
        cells = len(json.loads((self.course / notebook).read_text())["cells"])
        self.page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=90_000)
        expect(self.panel.locator(".jp-Notebook .jp-Cell")).to_have_count(cells, timeout=60_000)
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=60_000)
        self.wait_until_idle(60)

    def shot(self, name: str, of: Locator | None = None) -> None:
        """Leave a picture in tests/browser/.shots/ for a person to look at."""
        SHOTS.mkdir(exist_ok=True)
        (of or self.page).screenshot(path=SHOTS / f"{name}.png")

    # --- the notebook in front ---

    @property
    def panel(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def menu(self, *path: str) -> None:
        """Choose from the menu bar: ``lab.menu("Run", "Run All Cells")``."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{path[0]}$")).click()
        for label in path[1:]:
            self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{re.escape(label)}$")).click()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no cell is running or waiting to run. ``seconds``: the most this may take."""
        idle = self.panel.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        idle.wait_for(state="attached", timeout=seconds * 1000)
        expect(self.panel.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0, timeout=seconds * 1000)
        idle.wait_for(state="attached", timeout=seconds * 1000)

    def run_all(self, seconds: float) -> None:
        """Run > Run All Cells, and wait until it is done. Jupyter stops at the first cell that raises."""
        first = self.panel.locator(".jp-CodeCell .jp-InputArea-prompt").first
        before = first.text_content() or ""
        self.menu("Run", "Run All Cells")
        expect(first).not_to_have_text(before, timeout=20_000)
        self.wait_until_idle(seconds)

    def save(self, notebook: str) -> dict[str, Any]:
        """Save the notebook in front, which is at the path ``notebook``; what is then on disk."""
        self.menu("File", "Save Notebook")
        expect(
            self.page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current.jp-mod-dirty")
        ).to_have_count(0, timeout=20_000)
        until = time.monotonic() + 20
        while True:
            try:
                content: dict[str, Any] = json.loads((self.course / notebook).read_text())
                return content
            except json.JSONDecodeError:  # the server empties the file, and then writes it
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def cell(self, place: int) -> Locator:
        """The cell at ``place``, counted from 0 as in the file, scrolled into view."""
        found = self.panel.locator(".jp-Notebook .jp-Cell").nth(place)
        found.scroll_into_view_if_needed()
        return found

    def write(self, place: int, source: str) -> None:
        """Replace a code cell's text, as a paste would."""
        self.select(place)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)

    def select(self, place: int) -> None:
        """Click into a cell; a folded one unfolds."""
        cell = self.cell(place)
        cell.locator(".cm-content, .jp-Placeholder-content").first.click()
        expect(cell).to_have_class(re.compile("jp-mod-active"))

    def run(self, place: int, seconds: float = 60) -> str:
        """Run one cell with Shift+Enter; the text of its output."""
        prompt = self.cell(place).locator(".jp-InputArea-prompt")
        for patience in (3_000, 10_000):  # a page that has just opened may take the focus away once
            self.select(place)
            before = prompt.text_content() or ""
            self.page.keyboard.press("Shift+Enter")
            try:
                expect(prompt).not_to_have_text(before, timeout=patience)
                break
            except AssertionError:
                continue
        self.wait_until_idle(seconds)
        return self.output(place)

    def output(self, place: int) -> str:
        return "\n".join(self.cell(place).locator(".jp-OutputArea-output").all_inner_texts())

    def validate(self, seconds: float) -> str:
        """Press nbgrader's Validate button; what its dialog says. ``seconds``: the most the validation may take."""
        self.panel.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog-content")
        dialog.wait_for(timeout=seconds * 1000)
        return dialog.inner_text()

    def close_dialog(self) -> None:
        self.page.locator(".jp-Dialog-content .jp-Dialog-button.jp-mod-accept").click()
        self.page.locator(".jp-Dialog-content").wait_for(state="detached")


# --- notebooks as files ---


def place_of(notebook: dict[str, Any], grade_id: str) -> int:
    """Where in a notebook the cell with this nbgrader ``grade_id`` is."""
    for place, cell in enumerate(notebook["cells"]):
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == grade_id:
            return place
    raise LookupError(f"no cell {grade_id!r}")


def exercises(notebook: dict[str, Any]) -> list[str]:
    """The grade ids of the cells that a learner writes."""
    marked = [cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"]]
    return [about["grade_id"] for about in marked if about.get("solution") and not about.get("grade")]


def answers(course: Path, name: str) -> dict[str, str]:
    """The reference's answer to each exercise of a lesson, as a learner would have written it."""
    reference = json.loads((course / "solutions" / name / f"{name}.ipynb").read_text())
    found = {}
    for grade_id in exercises(reference):
        source = "".join(reference["cells"][place_of(reference, grade_id)]["source"])
        found[grade_id] = re.sub(r"(?m)^ *### (BEGIN|END) SOLUTION\n?", "", source).rstrip("\n")
    return found


def solve(course: Path, name: str) -> str:
    """Write a copy of the learner's notebook with every exercise answered and no outputs; its path in the course."""
    notebook = json.loads((course / "notebooks" / name / f"{name}.ipynb").read_text())
    for grade_id, source in answers(course, name).items():
        notebook["cells"][place_of(notebook, grade_id)]["source"] = source
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path = f"notebooks/{name}/{name}.answers-all.ipynb"
    (course / path).write_text(json.dumps(notebook))
    return path
