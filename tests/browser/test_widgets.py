"""The lessons' widgets in a real browser: every control of the allocator stepper and the explorers."""

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.browser.conftest import Server
from tests.browser.driver import Lab

Notebook = dict[str, Any]
Shown = tuple[Lab, dict[str, int]]


def widget_cell(notebook: Notebook, shown: str) -> int:
    """The first cell that shows ``shown``, or what that function makes: its last statement begins with it."""
    for place, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip():
            *_, last = ast.parse("".join(cell["source"])).body or [ast.Pass()]
            if ast.unparse(last).partition("(")[0] == shown:
                return place
    raise LookupError(f"no cell shows {shown}")


def needed(notebook: Notebook, place: int) -> list[int]:
    """The code cells before ``place`` that make what it uses, and what those use; and ``place`` itself."""
    found, wanted = [], set[str]()
    for at in range(place, -1, -1):
        cell = notebook["cells"][at]
        if cell["cell_type"] != "code" or {"test", "hidden"} & set(cell["metadata"].get("tags", [])):
            continue
        tree = ast.parse("".join(cell["source"]))
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        made |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
        made |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        made |= {
            (alias.asname or alias.name).partition(".")[0]
            for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names
        }  # fmt: skip
        if at == place or made & wanted:
            found.append(at)
            wanted |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - made
    return found[::-1]


class Widget:
    """The widget in one cell's output."""

    def __init__(self, lab: Lab, place: int) -> None:
        self.lab, self.cell = lab, lab.cell(place)
        self.box = self.cell.locator(".jp-OutputArea-output", has=lab.page.locator(".jupyter-widgets")).first
        self.picture, self.text = self.box.locator("img"), self.box.locator("code")
        expect(self.picture).to_be_visible()

    def button(self, label: str) -> Locator:
        return self.box.get_by_role("button", name=label, exact=True)

    def moved(self, act: Any, name: str) -> str:
        """Do something to a control: the picture must be another, whole one. The text below it."""
        before, said = self.picture.get_attribute("src") or "", self.text.inner_text()
        act()
        expect(self.picture, f"{name} changes nothing").not_to_have_attribute("src", before, timeout=15_000)
        expect(self.text, f"{name} leaves the text as it was").not_to_have_text(said)
        self.lab.wait_until_idle(20)
        expect(self.picture).to_have_js_property("complete", True)
        assert self.picture.evaluate("image => image.naturalWidth") > 500, f"{name} draws a broken picture"
        wrong = ".jp-mod-error, [data-mime-type$=stderr], [data-mime-type$='jupyter.error']"
        assert self.cell.locator(wrong).count() == 0, f"{name} raises: {self.cell.inner_text()}"
        return self.text.inner_text()

    def press(self, label: str) -> str:
        return self.moved(self.button(label).click, label)


#: the widgets, in the order of their tests: (lesson, what shows it)
SHOWN = (
    ("08_memory_pools", "widgets.allocator_stepper"),
    ("14_data_parallel", "explorer"),
    ("16_model_parallel", "pipeline_explorer"),
    ("19_attention", "mask_explorer"),
    ("20_generating", "batching.batching_explorer"),
    ("21_a_kernel_of_your_own", "traffic_explorer"),
)


@pytest.fixture(scope="module")
def shown(context: BrowserContext, server: Server) -> Iterator[Shown]:
    """One notebook of what each widget needs of its lesson, as it is given, that was run: each one's place in it."""
    cells: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for lesson, name in SHOWN:
        notebook = json.loads((server.course / "notebooks" / lesson / f"{lesson}.ipynb").read_text())
        own = needed(notebook, widget_cell(notebook, name))
        assert len(own) <= 8, "a widget's cell uses little of its lesson"
        cells += [
            notebook["cells"][place] | {"id": f"{lesson}-{place}", "outputs": [], "execution_count": None}
            for place in own
        ]
        places[name] = len(cells) - 1
    path = "notebooks/08_memory_pools/08_memory_pools.answers-widget.ipynb"
    (server.course / path).write_text(json.dumps(notebook | {"cells": cells}))
    page = context.new_page()
    page.set_default_timeout(30_000)
    lab = Lab(page, server.url, server.token, server.course)
    lab.open(path)
    lab.run_all(60)
    wrong = [lab.output(place) for place in range(len(cells)) if "Traceback" in lab.output(place)]
    assert not wrong, wrong[0]
    yield lab, places
    page.close()


def test_the_allocator_stepper_of_lesson_08_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["widgets.allocator_stepper"])
    lab.shot("20-stepper-first", widget.box)
    first = widget.text.inner_text()
    assert widget.press("step ▶") != first
    assert widget.press("◀ back") == first
    start = widget.press("|◀ start")
    assert start.startswith("step 0 of")
    lab.shot("21-stepper-start", widget.box)
    end = widget.press("end ▶|")
    handle = widget.box.locator(".noUi-handle")
    handle.focus()
    assert widget.moved(lambda: lab.page.keyboard.press("ArrowLeft"), "the slider") not in (start, end)
    assert widget.moved(lambda: lab.page.keyboard.press("ArrowRight"), "the slider") == end


def choose(widget: Widget, label: str, option: str) -> str:
    """Take an option of the drop-down of that label."""
    menu = widget.box.locator(".widget-dropdown", has_text=label).locator("select")
    return widget.moved(lambda: menu.select_option(option), label)


def slide(widget: Widget, label: str, key: str) -> str:
    """Press a key on the slider of that label."""
    handle = widget.box.locator(".widget-slider, .widget-hslider", has_text=label).locator(".noUi-handle")
    handle.focus()
    return widget.moved(lambda: widget.lab.page.keyboard.press(key), label)


def test_the_bucket_explorer_of_lesson_14_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["explorer"])
    lab.shot("30-buckets-first", widget.box)
    first = widget.text.inner_text()
    assert slide(widget, "bucket, MiB", "ArrowRight") != first
    assert slide(widget, "bucket, MiB", "ArrowLeft") == first
    assert slide(widget, "ranks", "ArrowRight") != first
    assert slide(widget, "ranks", "ArrowLeft") == first
    slow = choose(widget, "between nodes", "Ethernet 100G")
    lab.shot("31-buckets-slow-between", widget.box)
    assert choose(widget, "inside a node of 8", "PCIe 4.0 x16") != slow
    lab.shot("32-buckets-slow-inside", widget.box)


def test_the_pipeline_explorer_of_lesson_16_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["pipeline_explorer"])
    lab.shot("40-pipeline-first", widget.box)
    first = widget.text.inner_text()
    assert first.startswith("1F1B: 4 ranks, 8 micro-batches")
    assert choose(widget, "schedule", "GPipe").startswith("GPipe: 4 ranks")
    lab.shot("41-pipeline-gpipe", widget.box)
    assert choose(widget, "schedule", "Interleaved 1F1B").startswith("Interleaved 1F1B: 4 ranks")
    for label in ("stages a rank", "message, in forwards", "micro-batches", "ranks"):
        before = widget.text.inner_text()
        assert slide(widget, label, "ArrowRight") != before
    lab.shot("42-pipeline-does-not-go", widget.box)  # 5 ranks, 9 micro-batches: says so
    assert "micro-batches" in widget.text.inner_text()


def test_the_mask_explorer_of_lesson_19_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["mask_explorer"])
    lab.shot("50-masks-first", widget.box)
    first = widget.text.inner_text()
    assert slide(widget, "documents", "ArrowRight") != first
    assert slide(widget, "documents", "ArrowLeft") == first
    assert choose(widget, "rule", "causal") != first
    assert choose(widget, "block", "4") != first
    lab.shot("51-masks-causal", widget.box)


def test_the_batching_explorer_of_lesson_20_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["batching.batching_explorer"])
    lab.shot("60-batching-first", widget.box)
    first = widget.text.inner_text()
    assert first.startswith("static: 12 requests, 6 slots")
    assert choose(widget, "batching", "continuous").startswith("continuous: 12 requests, 6 slots")
    for label in ("slots", "requests", "other lengths"):
        before = widget.text.inner_text()
        assert slide(widget, label, "ArrowRight") != before
    lab.shot("61-batching-continuous", widget.box)


def test_the_traffic_explorer_of_lesson_21_moves(shown: Shown) -> None:
    lab, places = shown
    widget = Widget(lab, places["traffic_explorer"])
    lab.shot("70-traffic-first", widget.box)
    first = widget.text.inner_text()
    for label in ("k (inner)", "rows of a tile", "columns of a tile"):
        assert slide(widget, label, "ArrowRight") != first
        assert slide(widget, label, "ArrowLeft") == first
    lab.shot("71-traffic-again", widget.box)
