"""The course's site, as `make site` makes it: every page is there, leads on, needs no network, and gives no answer away."""

import importlib
import json
import re
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.site import TOOLS, make
from tests.browser.driver import SHOTS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site") / "the site"
    assert make(to) == 0, "Sphinx warned: its words are above"
    return to


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on(
        "request",
        lambda asked: asked.url.startswith("http") and pytest.fail(f"asks the network: {asked.url}"),
    )
    yield page
    page.close()


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.without_alt: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = {name: value or "" for name, value in attrs}
        self.ids.add(about.get("id", ""))
        if tag in ("a", "link") and "href" in about:
            self.links.append(about["href"])
        if tag in ("img", "script") and "src" in about:
            self.links.append(about["src"])
        if tag == "img" and not about.get("alt"):
            self.without_alt.append(about.get("src", "")[:80])


def test_every_link_leads_somewhere_and_every_picture_is_described(site: Path) -> None:
    pages = {
        path: Links(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if "_static" not in path.parts
    }
    lost = []
    for path, found in pages.items():
        for link in found.links:
            if re.match(r"https?://[^/\s]+\.[^/\s]+|mailto:|data:|javascript:|#$", link):
                continue
            place, _, part = unquote(link).partition("#")
            to = (path.parent / place.partition("?")[0]).resolve() if place else path
            if not to.is_file() or (part and to in pages and part not in pages[to].ids):
                lost.append(f"{path.relative_to(site)}: {link}")
        assert not found.without_alt, (
            f"{path.relative_to(site)}: without an alternative text: {found.without_alt}"
        )
    assert not lost, "\n".join(lost[:20])


def test_lessons_are_all_there_with_their_pictures_and_without_answers(site: Path) -> None:
    for path in build.find([]):
        master = masters.read(path)
        text = (site / "lessons" / f"{master.name}.html").read_text(encoding="utf-8")
        assert text.count("<img") >= 2, f"{master.name}: no pictures"
        plain = re.sub(r"<[^>]*>", "", text)
        assert "your answer" in plain and "BEGIN SOLUTION" not in plain and "HIDDEN TESTS" not in plain
        released = (build.NOTEBOOKS / master.name / f"{master.name}.ipynb").read_text(encoding="utf-8")
        for cell in (c for c in master.cells if c.kind == "exercise"):
            answer = "".join(re.findall(r"(?s)### BEGIN SOLUTION(.*?)### END SOLUTION", cell.source))
            own = [line.strip() for line in answer.splitlines() if len(line.strip()) > 60]
            own = [
                line for line in own if json.dumps(line)[1:-1] not in released
            ]  # some is given: a rewrite's before
            assert not [line for line in own if escape(line) in plain], f"{master.name}, {cell.exercise}"


@pytest.mark.parametrize("name", TOOLS)
def test_every_function_and_class_of_a_tool_has_its_place_on_its_page(site: Path, name: str) -> None:
    text, tool = (site / "tools" / f"{name}.html").read_text(encoding="utf-8"), importlib.import_module(name)
    for public in tool.__all__:
        if callable(getattr(tool, public)):
            assert f'id="{name}.{public}"' in text, public
    plain = re.sub(r"<[^>]*>", "", text)
    assert "from helpers import" in plain and "\n.. " not in plain and "system-message" not in text


def test_it_is_read_and_searched(site: Path, page: Page) -> None:
    SHOTS.mkdir(exist_ok=True)
    page.goto((site / "index.html").as_uri())
    page.screenshot(path=SHOTS / "site-1-index.png")
    page.get_by_role("link", name="01 · Storage and stride").first.click()
    expect(page.get_by_role("heading", name="01 · Storage and stride")).to_be_visible()
    broken = page.evaluate(
        "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src.slice(-60))"
    )
    assert broken == []
    page.screenshot(path=SHOTS / "site-2-lesson.png")
    page.set_viewport_size({"width": 1024, "height": 900})
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, "the page scrolls sideways at 1024 pixels"
    said: list[str] = []
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    page.goto((site / "search.html").as_uri() + "?q=contiguous")
    expect(page.locator("#search-results li").first).to_be_visible(timeout=20_000)
    expect(page.locator("#search-results")).to_contain_text("Storage and stride")
    assert not said, f"the search says to the console: {said}"
    page.screenshot(path=SHOTS / "site-3-search.png")


@pytest.mark.parametrize(
    "name", ["index", "instructors", "lessons/03_gpu_queue", "lessons/13_quantization", "tools/helpers.ranks"]
)
def test_a_page_is_no_wider_than_a_phone(site: Path, page: Page, name: str) -> None:
    """Of those with the longest names in code, and with a formula."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("name", ["index", "lessons/03_gpu_queue", "lessons/08_memory_pools"])
def test_pictures_keep_their_shape(site: Path, page: Page, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    shapes = page.evaluate(
        """Promise.all([...document.querySelectorAll('article img')].map(i => i.decode().then(() =>
            [i.clientWidth, i.clientHeight, i.naturalWidth, i.naturalHeight])))"""
    )
    assert len(shapes) >= 2
    for wide, high, own_width, own_height in shapes:
        assert 0 < wide <= width and abs(wide * own_height / own_width - high) <= 1, (
            f"{own_width} × {own_height} pixels are shown as {wide} × {high}"
        )
    page.locator("article img").first.scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / f"site-4-{Path(name).name}-{width}.png")


def test_a_lessons_button_gives_the_learners_notebook(site: Path, page: Page) -> None:
    page.goto((site / "lessons" / "03_gpu_queue.html").as_uri())
    page.get_by_role("button", name="Download this page").click()
    button = page.locator(".btn-download-notebook-button")
    expect(button).to_be_visible()
    page.screenshot(path=SHOTS / "site-5-download.png")
    link = button.get_attribute("href") or ""
    given = (site / "lessons" / link).resolve()
    assert given.read_bytes() == (build.NOTEBOOKS / "03_gpu_queue" / given.name).read_bytes()
    page.goto((site / "instructors.html").as_uri())
    page.get_by_role("button", name="Download this page").click()
    expect(page.locator(".btn-download-pdf-button")).to_be_visible()
    assert not page.locator("a[href*='_sources/']").count()


def test_a_folder_of_somebody_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="neither empty nor a site"):
        make(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
