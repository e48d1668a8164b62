"""The course's site, as `make site` makes it: every page is there, leads on, needs no network, and gives no answer away."""

import importlib
import importlib.util
import json
import random
import re
import shutil
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from helpers.classroom import build, moving
from helpers.classroom import master as masters
from helpers.classroom.site import TOOLS, make, set_up_cell, settings
from tests.browser import axe
from tests.browser.driver import SHOTS

#: lessons with a picture that moves, and one without
LOOKED_AT = (
    "01_storage_and_stride",
    "03_gpu_queue",
    "08_memory_pools",
    "14_data_parallel",
    "16_model_parallel",
    "17_capstone",
)


#: as .github/workflows/site.yml says it: pages have all their buttons
REPOSITORY = "https://github.com/somebody/course"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site") / "the site"
    assert make(to, repository=REPOSITORY) == 0, "Sphinx warned: its words are above"
    return to


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)  # a busy machine is no finding
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
        if tag == "img" and "alt" not in about:  # alt="": the words beside it say all
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
        assert text.count("<img") >= 3, f"{master.name}: no pictures"
        assert text.index('class="opens"') < text.index("<strong>Time</strong>"), (
            f"{master.name} opens with no picture"
        )
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
    cut = "[...document.querySelectorAll('.cell_output pre')].filter(p => p.scrollWidth > p.clientWidth + 1).map(p => p.textContent)"
    assert page.evaluate(cut) == [], "what a cell printed is cut at the right edge"


@pytest.mark.parametrize("name", ["start", "lessons/03_gpu_queue", "lessons/09_saving_memory"])
def test_pictures_keep_their_shape(site: Path, page: Page, name: str) -> None:
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    # a wider window lets the contents slide in, and while they do the picture is wider
    page.add_style_tag(content="* { transition: none !important; }")
    for width in (390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        shapes = page.evaluate(
            """Promise.all([...document.querySelectorAll('article img')].map(i => i.decode().then(() =>
                [i.clientWidth, i.clientHeight, i.naturalWidth, i.naturalHeight])))"""
        )
        assert shapes
        for wide, high, own_width, own_height in shapes:
            assert 0 < wide <= max(width, 640) and abs(wide * own_height / own_width - high) <= 1, (
                f"{width}: {own_width} × {own_height} pixels are shown as {wide} × {high}"
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
    learners = json.loads((build.NOTEBOOKS / "03_gpu_queue" / given.name).read_text(encoding="utf-8"))
    learners["cells"].insert(0, set_up_cell(settings(repository=REPOSITORY)))
    assert json.loads(given.read_text(encoding="utf-8")) == learners
    page.goto((site / "instructors.html").as_uri())
    page.get_by_role("button", name="Download this page").click()
    expect(page.locator(".btn-download-pdf-button")).to_be_visible()
    assert not page.locator("a[href*='_sources/']").count()


@pytest.mark.parametrize("name", ["index", "start", "teaching", "claims", "lessons/01_storage_and_stride"])
def test_nobody_is_shut_out(site: Path, page: Page, name: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert axe.findings(page) == []
    if name != "claims":  # a table of what the others have too
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert axe.findings(page, rules=axe.COLOURS) == []


def test_pages_are_light_and_there_at_once(site: Path, page: Page) -> None:
    """A lesson with all that it loads is under 1.5 MB, and the page's thread has it, from a disk, in under a second.

    Of its own processor time, up to where all pictures are decoded: a clock would say how busy this machine is.
    """
    loaded: list[Path] = []

    def note(asked: Request) -> None:
        loaded.append(Path(unquote(asked.url.removeprefix("file://").partition("?")[0])))

    page.on("request", note)
    chromium = page.context.new_cdp_session(page)
    chromium.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = chromium.send("Performance.getMetrics")["metrics"]
        return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

    for path in [site / "index.html", *sorted((site / "lessons").glob("*.html"))]:
        loaded.clear()
        page.goto("about:blank")
        before = busy()
        page.goto(path.as_uri())
        page.evaluate(
            "Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode(); }))"
        )
        seconds = busy() - before
        size = sum(file.stat().st_size for file in set(loaded) if file.is_file())
        most = 1_500_000 if path.parent.name == "lessons" else 2_000_000
        assert size < most, f"{path.name}: {size / 1e6:.2f} MB"
        assert 0 < seconds < 1, f"{path.name}: {seconds:.2f} s of the page's thread"


def test_a_result_is_folded_until_one_has_thought(site: Path, page: Page) -> None:
    page.goto((site / "lessons" / "03_gpu_queue.html").as_uri())
    fold = page.locator("details.result").first
    picture = fold.locator("img").first
    expect(picture).not_to_be_visible()
    questions = page.locator(".tag_predict").first.get_by_role("radiogroup")
    for i, answer in enumerate(("1", "2", "2", "2")):  # the last of them is wrong
        expect(picture).not_to_be_visible()
        questions.nth(i).get_by_role("radio", name=answer, exact=True).check(force=True)
    expect(picture).to_be_visible()
    expect(fold.locator("summary").first).to_have_text("3 of 4 predicted right")
    expect(fold.locator("table").first).to_contain_text("2 ✗")
    page.screenshot(path=SHOTS / "site-6-predicted.png")


def test_every_prediction_can_be_right(site: Path, page: Page) -> None:
    """What is right is one of the buttons: words are compared as the notebook compares them."""
    for path in sorted((site / "lessons").glob("*.html")):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        wrong = page.evaluate("""() => {
            const wrong = [], word = (t) => t.trim().toLowerCase().replaceAll("×", "x").replace(/(\\d),(?=\\d{3})/g, "$1");
            for (const fold of document.querySelectorAll(".tag_result details.result")) {
                const result = fold.querySelector("table");
                const asks = [...document.querySelectorAll(".tag_predict")].filter(
                    (p) => p.compareDocumentPosition(fold) & Node.DOCUMENT_POSITION_FOLLOWING).pop();
                if (!result || !asks || ![...result.tHead.rows[0].cells].some((c) => c.textContent === "you said")) continue;
                for (const row of result.tBodies[0].rows) {
                    const group = [...asks.querySelectorAll("[role=radiogroup]")].find(
                        (g) => g.getAttribute("aria-label") === row.cells[0].textContent);
                    const offered = group ? [...group.querySelectorAll("span")].map((s) => word(s.textContent)) : [];
                    const right = word(row.cells[1].textContent);
                    if (!offered.some((o) => o === right || +o === +right)) wrong.push([row.cells[0].textContent, right, offered]);
                }
            }
            return wrong;
        }""")
        assert wrong == [], f"{path.name}: {wrong[:3]}"
        folded = "p => /^(Exercise \\d|Move it)/.test(p.textContent.trim()) && p.closest('details.result')"
        hidden = page.evaluate(
            f"[...document.querySelectorAll('article p')].filter({folded}).map(p => p.textContent)"
        )
        assert hidden == [], f"{path.name}: folded away with a result: {hidden[:2]}"


@pytest.mark.parametrize("name", LOOKED_AT)
def test_pictures_move_without_a_kernel(site: Path, page: Page, name: str) -> None:
    page.goto((site / ("index.html" if name == "03_gpu_queue" else f"lessons/{name}.html")).as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    place = page.locator(".moving").first
    facts, drawn = place.locator(".facts"), place.locator("svg")
    expect(drawn).to_be_visible()
    if name != "03_gpu_queue":  # it says what the widget said when the lesson ran
        book = json.loads((build.ROOT / "solutions" / name / f"{name}.ipynb").read_text(encoding="utf-8"))
        said = re.sub(r"\s+", " ", " ".join(
            "".join(o["data"].get("text/plain", "")) for c in book["cells"] for o in c.get("outputs", ()) if "data" in o
        ))  # fmt: skip
        if name != "17_capstone":
            assert re.sub(r"\s+", " ", facts.inner_text()) in said
    before = facts.inner_text(), drawn.inner_html()
    control = place.locator("input").first
    if control.get_attribute("type") == "range":
        control.focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
    else:
        place.locator("input:not(:checked)").first.check(force=True)
    assert (facts.inner_text(), drawn.inner_html()) != before
    place.scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / f"site-7-{name}.png")


def test_the_stride_explorer_says_what_the_widget_says(site: Path, page: Page) -> None:
    from helpers.lessons.storage_and_stride.explorer import LONGEST, PRESETS, SIZE, Settings

    draw = random.Random(0)
    trials = [
        Settings(
            draw.randint(1, 5), draw.randint(1, LONGEST), draw.randint(-1, 6), draw.randint(-1, 6),
            draw.randint(0, SIZE - 1) // 2, draw.choice((1, 2)),
        )
        for _ in range(200)
    ]  # fmt: skip
    page.goto((site / "lessons" / "01_storage_and_stride.html").as_uri())
    for layout in [*PRESETS.values(), *trials]:
        said = page.evaluate("([s, n]) => Moving.strideFacts(s, n).said", [vars(layout), SIZE])
        assert said == layout.facts


def test_where_the_course_lives_is_one_setting(tmp_path: Path) -> None:
    assert not settings()["repository"] and _conf(tmp_path, settings()).launches("notebooks/a/a.ipynb") == {}
    with pytest.raises(ValueError, match="no address"):
        settings(repository='"><script>')
    told = settings(repository=REPOSITORY)
    assert f"git+{REPOSITORY}" in set_up_cell(told)["source"]
    where = _conf(tmp_path, told).launches("notebooks/a/a.ipynb")
    assert (
        where["Colab"]
        == "https://colab.research.google.com/github/somebody/course/blob/main/notebooks/a/a.ipynb"
    )
    assert (
        where["Binder"]
        == "https://mybinder.org/v2/gh/somebody/course/main?urlpath=lab%2Ftree%2Fnotebooks%2Fa%2Fa.ipynb"
    )
    assert "our JupyterHub" not in where
    hub = _conf(tmp_path, settings(repository=REPOSITORY, hub="https://hub.example.edu/")).launches(
        "notebooks/a/a.ipynb"
    )
    assert hub["our JupyterHub"] == (
        "https://hub.example.edu/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgithub.com%2Fsomebody%2Fcourse"
        "&branch=main&urlpath=lab%2Ftree%2Fcourse%2Fnotebooks%2Fa%2Fa.ipynb"
    )


def _conf(place: Path, about: dict[str, str]) -> Any:
    """docs/conf.py, as Sphinx reads it with these settings beside it."""
    (place / "settings.json").write_text(json.dumps(about))
    there = importlib.util.spec_from_file_location(
        "conf", shutil.copy(build.ROOT / "docs" / "conf.py", place)
    )
    assert there and there.loader
    conf = importlib.util.module_from_spec(there)
    there.loader.exec_module(conf)
    return conf


def test_links_to_the_site_have_a_preview(site: Path) -> None:
    text = (site / "lessons" / "03_gpu_queue.html").read_text(encoding="utf-8")
    assert '<meta name="description" content="The CPU puts work into a queue' in text
    assert 'property="og:title"' in text and 'rel="icon"' in text
    assert (site / "_static" / "card.png").stat().st_size < 60_000


def test_every_call_of_a_widget_has_its_picture(site: Path) -> None:
    for call, name in moving.CALLS.items():
        used = [p for p in build.find([]) if call in p.read_text(encoding="utf-8")]
        assert used, f"no lesson calls {call}"
        assert (site / "_static" / "moving" / f"{name}.js").stat().st_size < 200_000
        for path in used:
            assert f'data-name="{name}"' in (site / "lessons" / f"{path.stem}.html").read_text(
                encoding="utf-8"
            )


def test_a_folder_of_somebody_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="neither empty nor a site"):
        make(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
