"""Makes the honest mistakes of tests/corpus/honest.py in a real JupyterLab, by keystroke and by mouse, and compares.

    python -m tests.long.honest_mistakes              # all of them: five to fifteen minutes
    python -m tests.long.honest_mistakes copied merged-with-text --keep /tmp/saved

For each it says whether JupyterLab saved what the corpus writes, ids that are new and outputs apart. It starts a
JupyterLab of its own on a temporary folder, and a headless Chromium. It ends with 1 if anything differs.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.driver import CHROMIUM_FLAGS, Lab, answers
from tests.corpus.cases import Notebook, place, plain, saved
from tests.corpus.honest import HONEST, cell_of, stub

ROOT = Path(__file__).resolve().parents[2]
LESSON = "01_storage_and_stride"
MISTAKES: dict[str, Callable[["Hand", Notebook], None]] = {}


def mistake(made: Callable[["Hand", Notebook], None]) -> Callable[["Hand", Notebook], None]:
    MISTAKES[made.__name__.replace("_", "-")] = made
    return made


class Hand(Lab):
    """A student's hand on one notebook of a JupyterLab that stays open."""

    def boot(self) -> None:
        self.page.goto(f"{self.url}/lab/workspaces/w{time.monotonic_ns()}?token={self.token}")
        self.page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=120_000)
        self.page.wait_for_function(
            "window.jupyterapp && ['docmanager:open', 'application:close-all'].every("
            "name => window.jupyterapp.commands.hasCommand(name))",
            timeout=120_000,
        )

    def begin(self, notebook: Notebook, path: str) -> None:
        saved(notebook, self.course / path)
        self.page.evaluate("path => window.jupyterapp.commands.execute('docmanager:open', {path})", path)
        expect(self.panel.locator(".jp-Notebook .jp-Cell")).to_have_count(
            len(notebook["cells"]), timeout=60_000
        )
        time.sleep(1)  # a page that has just opened may take the focus away once

    def end(self, path: str) -> Notebook:
        time.sleep(0.3)
        return plain(self.save(path))

    def clear(self) -> None:
        """Close everything, and end the kernels."""
        for dialog in self.page.locator(".jp-Dialog").all():
            dialog.press("Escape")
        self.page.evaluate("window.jupyterapp.commands.execute('application:close-all')")
        time.sleep(0.3)
        sessions = f"{self.url}/api/sessions"
        for session in self.page.request.get(f"{sessions}?token={self.token}").json():
            self.page.request.delete(f"{sessions}/{session['id']}?token={self.token}")

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            time.sleep(0.15)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)
        time.sleep(0.15)

    def command(self, at: int) -> None:
        """Choose a cell, in command mode."""
        self.cell(at).locator(".jp-InputPrompt, .jp-InputArea-prompt").first.click()
        self.page.keyboard.press("Escape")
        expect(self.cell(at)).to_have_class(re.compile("jp-mod-active"))

    def cursor(self, notebook: Notebook, grade_id: str, text: str) -> None:
        """Into an exercise's cell, before the first place where ``text`` stands."""
        before = cell_of(notebook, grade_id)["source"].partition(text)[0]
        self.select(place(notebook, grade_id))
        # Home goes to a line's first letter, and once more to its beginning
        self.keys("Control+Home", *["ArrowDown"] * before.count("\n"), "Home")
        line = before.rpartition("\n")[2]
        indent = len(line) - len(line.lstrip())
        self.keys(*(["Home"] if not line and text[0] == " " else ["ArrowRight"] * (len(line) - indent)))

    def split(self, notebook: Notebook, grade_id: str, text: str) -> None:
        self.cursor(notebook, grade_id, text)
        self.keys("Control+Shift+Minus")

    def replace(self, at: int, source: str) -> None:
        self.select(at)
        self.keys("Control+a")
        self.page.keyboard.insert_text(source)
        self.keys("Escape")


# --- split ------------------------------------------------------------------------------------------------------------


@mistake
def split_in_a_body(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "is_contiguous", "if 0 in shape")


@mistake
def split_between_lines(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "is_contiguous", "    wanted = 1")


@mistake
def split_in_a_line(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "flat_index", "+ sum(")


@mistake
def split_in_a_dictionary(hand: Hand, notebook: Notebook) -> None:
    hand.cursor(notebook, "view_or_copy", '"x.float()"')
    hand.menu("Edit", "Split Cell")


@mistake
def split_at_its_start(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "windows", "def windows")


@mistake
def split_twice(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "windows", "raise ValueError")
    source = cell_of(notebook, "windows")["source"].partition("raise ValueError")[2]
    hand.keys("Control+Home", *["ArrowDown"] * source.partition("def diagonal_blocks")[0].count("\n"), "Home")
    hand.keys("Control+Shift+Minus")


@mistake
def split_and_tried(hand: Hand, notebook: Notebook) -> None:
    hand.split(notebook, "windows", "def diagonal_blocks")
    hand.keys("Escape", "a", "Enter")
    hand.type("print(windows(torch.arange(6.0), 2))")


# --- copied, moved ----------------------------------------------------------------------------------------------------


@mistake
def copied(hand: Hand, notebook: Notebook) -> None:
    """By the button in the cell's corner."""
    at = place(notebook, "windows")
    hand.command(at)
    hand.cell(at).hover()
    hand.cell(at).locator('.jp-cell-toolbar [data-command="notebook:duplicate-below"]').first.click()


@mistake
def copy_answered(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "windows")
    hand.command(at)
    hand.keys("c", "v")
    hand.replace(at, stub(notebook, "windows"))


@mistake
def second_attempt_below(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "is_contiguous")
    hand.command(at)
    hand.keys("c", "v")
    hand.replace(at, "def is_contiguous(shape, stride):\n    return stride[-1] == 1")


@mistake
def copy_for_trying(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "windows")
    hand.command(at)
    hand.menu("Edit", "Copy Cell")
    hand.menu("Edit", "Paste Cell Below")
    hand.replace(at + 1, "%timeit windows(torch.arange(1000.0), 10)\nwindows(None, 3)")


@mistake
def everything_twice(hand: Hand, notebook: Notebook) -> None:
    hand.command(len(notebook["cells"]) - 1)
    hand.keys("Control+a", "c", "v")


@mistake
def cut_and_pasted(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows"))
    hand.keys("x", "ArrowUp", "ArrowUp", "v")


@mistake
def test_copied(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows__test"))
    hand.keys("c", "v")


@mistake
def moved_up(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows"))
    hand.keys("Control+Shift+ArrowUp")


@mistake
def dragged_below_its_test(hand: Hand, notebook: Notebook) -> None:
    """By the mouse, held on the cell's prompt."""
    at = place(notebook, "windows")
    hand.command(at)
    hand.cell(at + 2)
    cells = hand.panel.locator(".jp-Notebook .jp-Cell")
    start = cells.nth(at).locator(".jp-InputArea-prompt").first.bounding_box()
    target = cells.nth(at + 2).bounding_box()
    assert start and target
    hand.page.mouse.move(start["x"] + 20, start["y"] + 10)
    hand.page.mouse.down()
    hand.page.mouse.move(start["x"] + 25, start["y"] + 40, steps=5)
    hand.page.mouse.move(target["x"] + 60, target["y"] + 6, steps=10)
    time.sleep(0.3)
    hand.page.mouse.up()


# --- converted, merged ------------------------------------------------------------------------------------------------


@mistake
def to_markdown(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows"))
    hand.keys("m")


@mistake
def to_raw(hand: Hand, notebook: Notebook) -> None:
    """By the list in the notebook's toolbar."""
    hand.command(place(notebook, "windows"))
    hand.panel.locator(".jp-Notebook-toolbarCellTypeDropdown select").first.select_option("raw")


@mistake
def merged_with_text(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows"))
    hand.keys("Control+Backspace")


@mistake
def merged_into_text(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows") - 1)
    hand.keys("Shift+M")


@mistake
def merged_with_an_import(hand: Hand, notebook: Notebook) -> None:
    hand.command(place(notebook, "windows"))
    hand.keys("a", "Enter")
    hand.type("import math")
    hand.keys("Escape", "Shift+ArrowDown")
    hand.menu("Edit", "Merge Selected Cells")


# --- gone, or elsewhere -----------------------------------------------------------------------------------------------


@mistake
def emptied(hand: Hand, notebook: Notebook) -> None:
    hand.select(place(notebook, "windows"))
    hand.keys("Control+a", "Delete")


@mistake
def answer_below(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "windows")
    hand.replace(at, stub(notebook, "windows"))
    hand.keys("b", "Enter")
    hand.type(cell_of(notebook, "windows")["source"])


@mistake
def answer_below_the_tests(hand: Hand, notebook: Notebook) -> None:
    hand.replace(place(notebook, "windows"), stub(notebook, "windows"))
    hand.command(len(notebook["cells"]) - 1)
    hand.keys("b", "Enter")
    hand.type(cell_of(notebook, "windows")["source"])


@mistake
def text_cut_and_pasted(hand: Hand, notebook: Notebook) -> None:
    hand.select(place(notebook, "windows"))
    hand.keys("Control+a", "Control+x", "Escape", "b", "Enter", "Control+v")


@mistake
def half_in_another_cell(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "windows")
    first, _, second = cell_of(notebook, "windows")["source"].partition("def diagonal_blocks")
    given = stub(notebook, "windows").partition("def diagonal_blocks")[2]
    hand.replace(at, first + "def diagonal_blocks" + given)
    hand.keys("b", "Enter")
    hand.type("def diagonal_blocks" + second)


@mistake
def left_the_raise(hand: Hand, notebook: Notebook) -> None:
    line = "raise NotImplementedError()  # your answer"
    for grade_id, indent in (("view_or_copy", ""), ("is_contiguous", "    ")):
        hand.replace(place(notebook, grade_id), cell_of(notebook, grade_id)["source"] + f"\n{indent}{line}")


@mistake
def swapped(hand: Hand, notebook: Notebook) -> None:
    hand.replace(place(notebook, "windows"), cell_of(notebook, "is_contiguous")["source"])
    hand.replace(place(notebook, "is_contiguous"), cell_of(notebook, "windows")["source"])


@mistake
def tried_and_failed(hand: Hand, notebook: Notebook) -> None:
    at = place(notebook, "windows")
    hand.command(len(notebook["cells"]) - 1)
    hand.keys("b", "Enter")
    hand.type("print(windows(nothing_of_this_name))")
    hand.command(at)
    hand.cell(at).hover()
    hand.cell(at).locator('.jp-cell-toolbar [data-command="notebook:insert-cell-below"]').first.click()
    hand.select(at + 1)
    hand.type("print(windows(nothing_of_this_name))")


# --- what JupyterLab refuses: the notebook stays as it was --------------------------------------------------------------

REFUSED: dict[str, Callable[[Hand, Notebook], None]] = {
    "delete an exercise": lambda hand, n: (hand.command(place(n, "windows")), hand.keys("d", "d")),
    "delete a test": lambda hand, n: (hand.command(place(n, "windows__test")), hand.keys("d", "d")),
    "merge an exercise with its test": lambda hand, n: (
        hand.command(place(n, "windows")),
        hand.keys("Shift+M"),
    ),
    "merge everything": lambda hand, n: (hand.command(1), hand.keys("Control+a", "Shift+M")),
    "split a test": lambda hand, n: (
        hand.select(place(n, "windows__test")),
        hand.keys("Control+End", "ArrowUp", "Control+Shift+Minus"),
    ),
    "type into a test": lambda hand, n: (hand.select(place(n, "windows__test")), hand.type("x = 1\n")),
    "convert a test": lambda hand, n: (
        hand.command(place(n, "windows__test")),
        hand.keys("m"),
        hand.page.locator(".jp-Dialog .jp-mod-accept").click(),
    ),
}


# --- running ----------------------------------------------------------------------------------------------------------


def answered() -> Notebook:
    """The released notebook, answered, and shortened so that it opens quickly: setup, some experiments, exercises."""
    notebook = plain(
        json.loads((ROOT / "notebooks" / LESSON / f"{LESSON}.ipynb").read_text(encoding="utf-8"))
    )
    for grade_id, source in answers(ROOT, LESSON).items():
        cell_of(notebook, grade_id)["source"] = source
    cells = notebook["cells"]
    exercise = [bool(c["metadata"].get("nbgrader", {}).get("solution")) for c in cells]
    notebook["cells"] = [
        cell
        for i, cell in enumerate(cells)
        if "nbgrader" in cell["metadata"] or i < 6 or exercise[min(i + 1, len(cells) - 1)]
    ]
    return notebook


def essence(notebook: Notebook, known: set[str]) -> list[Any]:
    """What a notebook says, new ids and outputs apart."""
    return [
        (c["cell_type"], c["source"], c["metadata"], c["id"] if c["id"] in known else "new")
        for c in notebook["cells"]
    ]


@contextlib.contextmanager
def jupyterlab(folder: Path) -> Iterator[tuple[str, str]]:
    """A JupyterLab on an empty folder: its address and token."""
    token, home = secrets.token_hex(16), folder.with_name("home")
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    folder.mkdir()
    home.mkdir()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += [
        f"--ServerApp.port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    command += ["--LabApp.expose_app_in_browser=True"]
    with folder.with_name("lab.log").open("w") as log:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"HOME": str(home)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        for _ in range(300):
            assert running.poll() is None, folder.with_name("lab.log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}", token
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(30)


def compare(name: str, got: Notebook, wanted: Notebook, known: set[str]) -> bool:
    ours, theirs = essence(wanted, known), essence(got, known)
    if ours == theirs:
        print(f"same      {name}", flush=True)
        return True
    print(f"DIFFERS   {name}: {len(theirs)} cells saved, the corpus writes {len(ours)}")
    for at, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        for what, here, there in zip(("type", "text", "metadata", "id"), one, other, strict=True):
            if here != there:
                print(
                    f"          cell {at}, {what}: {here!r:.300}\n            the corpus: {there!r:.300}",
                    flush=True,
                )
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(MISTAKES)}, refused")
    parser.add_argument("--keep", type=Path, help="a folder for the notebooks that JupyterLab saved")
    options = parser.parse_args()
    same = True
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary) / "course"
        url, token = stack.enter_context(jupyterlab(folder))
        chromium = stack.enter_context(sync_playwright()).chromium
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = chromium.launch(executable_path=found, headless=True, args=CHROMIUM_FLAGS)
        stack.callback(browser.close)
        rights = ["clipboard-read", "clipboard-write"]
        context = browser.new_context(
            viewport={"width": 1400, "height": 1000}, locale="en-GB", permissions=rights
        )
        page: Page = context.new_page()
        page.set_default_timeout(30_000)
        hand = Hand(page, url, token, folder)
        hand.boot()
        todo = {n: (MISTAKES[n], n) for n in MISTAKES if not options.names or n in options.names}
        if not options.names or "refused" in options.names:
            todo |= {n: (made, "") for n, made in REFUSED.items()}
        for name, (made, case) in todo.items():
            notebook = answered()
            known = {c["id"] for c in notebook["cells"]}
            path = f"{name}/{LESSON}.ipynb"
            try:
                hand.begin(notebook, path)
                made(hand, notebook)
                got = hand.end(path)
                if case:
                    aside = Path(temporary) / "corpus" / case
                    aside.mkdir(parents=True)
                    HONEST[case].write(notebook, aside, LESSON)
                    wanted = plain(json.loads((aside / f"{LESSON}.ipynb").read_text(encoding="utf-8")))
                else:
                    wanted = notebook
                same &= compare(name, got, wanted, known)
                if options.keep:
                    saved(got, options.keep / f"{name}.ipynb")
                hand.clear()
            except Exception as problem:  # the next one may succeed all the same
                print(f"FAILED    {name}: {type(problem).__name__}: {str(problem)[:500]}", flush=True)
                hand.shot(f"mistake-{name}")
                same = False
                hand.boot()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
