"""No script of a submission runs: in the page that a learner gets back, and in the formgrader.

One submission tries every way that the audit and we could think of. Two things stop it, and each is tested alone: what
grading stores, in a page without a policy; and the policy, in a page into which the same was put afterwards.
"""

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell
from nbgrader.server_extensions.formgrader import handlers
from playwright.sync_api import Browser, Page, Route
from traitlets.config import Config

from helpers.classroom import feedback
from helpers.classroom.sanitise import harmless
from tests.small_course import HIDDEN, LESSON, POINTS, VISIBLE, Course, graded

ROOT = Path(__file__).resolve().parents[2]
#: what each of them runs, if it runs: a flag, a dialog, and a request to the network
RUN = "window.ran=1;alert(1);new Image().src='http://evil.test/ran'"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{RUN}\"><script>{RUN}</script><circle r='9'/></svg>"
TAGS = [
    f"<script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    SVG,
    '<iframe srcdoc="<script>parent.ran=1;alert(1)</script>"></iframe>',
    f'<a class="bait" href="javascript:{RUN}">javascript</a>',
    f'<a class="bait" href="&#106;ava&#x09;script:{RUN}">entities</a>',
    f'<a class="bait" href="data:text/html;base64,{base64.b64encode(f"<script>{RUN}</script>".encode()).decode()}">data</a>',
    '<meta http-equiv="refresh" content="0;url=http://evil.test/refresh">',
    '<base href="http://evil.test/">',
    f'<form id="form" action="http://evil.test/form"><button class="bait" formaction="javascript:{RUN}">go</button></form>',
    '<link rel="stylesheet" href="http://evil.test/style.css"><style>@import "http://evil.test/import.css";</style>',
    f'<object data="data:text/html,<script>{RUN}</script>"></object><embed src="http://evil.test/embed">',
    f"<details open ontoggle=\"{RUN}\">x</details><video src=x onerror=\"{RUN}\"></video><input autofocus onfocus=\"{RUN}\">",
    f"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror={RUN}&gt;\">",
    f"<noscript><p title=\"</noscript><img src=x onerror={RUN}>\">",
    '<img src="http://evil.test/pixel.png">',
    "<div id=submission_id></div><a id=formgrader></a>",
]  # fmt: skip
MARKDOWN = [
    f"[link](javascript:{RUN.replace(' ', '%20')})",
    f'![picture](x"onerror="{RUN.replace(" ", "/")})',
    "![attached](attachment:a.svg)",
    f"$\\href{{javascript:{RUN}}}{{x}}$ and $$\\unicode{{<img src=x onerror={RUN}>}}$$",
    f'```mermaid\n<img src=x onerror="{RUN}">\n```',
    f"~~~~~~\n<script>{RUN}</script>",
    f"\u202e<\u200bscript>{RUN}</script> ＜script＞{RUN}＜/script＞",
]


def poisoned() -> NotebookNode:
    """A graded notebook in which every place that a student controls holds what would run."""
    nb = graded({"windows__test": VISIBLE, "windows__hidden": HIDDEN})
    answer = next(c for c in nb.cells if c.id == "windows")
    answer.source = f"# \u202e{TAGS[0]}\n" + "\n".join(f"# {tag}" for tag in TAGS)
    answer.outputs = [new_output("stream", text=tag + "\n") for tag in TAGS]
    answer.outputs.append(new_output("error", ename=TAGS[1], evalue=TAGS[1], traceback=TAGS))
    for mime in (
        "text/html",
        "text/markdown",
        "image/svg+xml",
        "application/javascript",
        "text/latex",
        "text/vnd.mermaid",
    ):
        answer.outputs += [new_output("display_data", {mime: RUN if "java" in mime else tag}) for tag in TAGS]
    attack = f"1 onload={RUN}"
    answer.outputs += [
        new_output("display_data", {"image/png": f'x" onerror="{RUN}', "text/plain": TAGS[0]}),
        new_output(
            "display_data", {"image/png": base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()},
            metadata={"image/png": {"width": attack, "height": attack}},
        ),
        new_output("display_data", {"text/html": TAGS[0]}, metadata={"text/html": {"isolated": True}}),
        new_output("display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": f"</script>{TAGS[0]}"}}),
    ]  # fmt: skip
    attachments = {"a.svg": {f'image/svg+xml" onerror="{RUN}': base64.b64encode(SVG.encode()).decode()}}
    for text in (*TAGS, *MARKDOWN):
        nb.cells.append(new_markdown_cell(text, attachments=attachments))
        nb.cells.append(new_raw_cell(text, metadata={"raw_mimetype": "text/html", "format": "text/html"}))
    evil = f'"><script>{RUN}</script>'
    nb.cells.append(
        new_code_cell(
            "1", metadata={"tags": [evil], "nbgrader": {"grade": True, "solution": True, "grade_id": evil}}
        )
    )
    nb.cells.append(new_code_cell("1", metadata={"magics_language": evil}))
    nb.cells[-1]["id"] = evil
    nb.metadata |= {"title": f"</title>{TAGS[0]}", "language_info": {"name": evil, "pygments_lexer": evil}}
    nb.metadata["widgets"] = {
        "application/vnd.jupyter.widget-state+json": {"state": {"x": f"</script>{TAGS[0]}"}}
    }
    return nb


def sanitised(course: Course) -> NotebookNode:
    nb = harmless(poisoned(), course.root / "solutions" / LESSON / f"{LESSON}.ipynb")
    nbformat.validate(nb)
    return nb


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    made = Course(tmp_path_factory.mktemp("course"))
    scores = POINTS | {"windows__test": 0.0, "windows__hidden": 0.0}
    made.add("mallory", sanitised(made), scores, first_name=TAGS[1], last_name=TAGS[0])
    raw = poisoned()
    raw.cells[-1]["id"] = "x"  # nbconvert refuses the other
    raw.cells.pop(-2)  # and so does nbgrader's page: the gradebook does not know this cell
    made.add('"><img src=x onerror=alert(1)>', raw, scores)
    return made


class Watched:
    """A browser page that remembers what a page tried."""

    def __init__(self, browser: Browser, width: int = 1280) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900})
        self.tried: list[str] = []
        self.page.on(
            "dialog", lambda dialog: (self.tried.append(f"dialog {dialog.message}"), dialog.dismiss())
        )
        # what the policy stops does not come this far
        self.page.route(
            "**://evil.test/**", lambda route: (self.tried.append(route.request.url), route.abort())
        )
        self.page.on("popup", lambda popup: self.tried.append(f"window {popup.url}"))

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.page.wait_for_timeout(500)  # for what runs later: timers, refreshes, pictures that do not load

    def bite(self) -> None:
        """Click on everything that waits for a click."""
        for bait in self.page.locator(".bait, a:text('link')").all():
            bait.evaluate("element => element.click()")
        self.page.wait_for_timeout(500)

    def assert_nothing_ran(self, address: str) -> None:
        assert self.tried == []
        assert self.page.evaluate("window.ran") is None
        assert re.split("[?#]", self.page.url)[0] == address


def test_the_payloads_do_run_where_nothing_stops_them(course: Course, browser: Browser) -> None:
    for number, tag in enumerate(TAGS[:4]):
        watched = Watched(browser)
        path = course.root / f"open{number}.html"
        path.write_text(f"<!doctype html><meta charset=utf-8>{tag}", encoding="utf-8")
        watched.open(path.as_uri())
        assert watched.tried and watched.page.evaluate("window.ran") == 1, tag


def test_feedback_page(course: Course, browser: Browser) -> None:
    address = course.feedback("mallory").as_uri()
    for width in (1280, 800):
        watched = Watched(browser, width)
        watched.open(address)
        watched.bite()
        watched.assert_nothing_ran(address)
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert (
            page.locator("script, iframe, object, embed, form, base, link, svg, [onerror], [onload]").count()
            == 0
        )
        assert page.locator("meta[http-equiv]").count() == 1
        text = page.inner_text("body")
        assert "5 of 10 points" in text and "1.3 the same numbers, a different walk" in text
        assert "\u202e" not in text and "<script>" in text, "what a student typed is shown as it is"
        page.close()


def test_what_is_stored_is_harmless_in_a_page_without_a_policy(course: Course, browser: Browser) -> None:
    """nbgrader's own template for the formgrader, as it is where the policy is not installed."""
    settings = Config(
        HTMLExporter={"template_name": "formgrade", "extra_template_basedirs": [handlers.template_path]}
    )
    about = {
        "assignment_id": "a",
        "notebook_id": "n",
        "submission_id": "s",
        "index": 0,
        "total": 1,
        "base_url": "",
    }
    html, _ = HTMLExporter(config=settings).from_notebook_node(sanitised(course), resources=about)
    path = course.root / "page.html"
    path.write_text(html, encoding="utf-8")
    watched = Watched(browser)
    watched.page.route(lambda url: "cdnjs" in url, lambda route: route.abort())
    watched.open(path.as_uri())
    watched.bite()
    watched.assert_nothing_ran(path.as_uri())


def test_feedback_has_its_own_policy(
    course: Course, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy alone: a page whose template forgot to escape."""
    monkeypatch.setattr(feedback, "visible", str)
    page = (course.feedback("mallory")).read_text(encoding="utf-8")
    path = course.root / "forgot.html"
    path.write_text(page.replace("<main>", "<main>" + "".join(TAGS[:5] + TAGS[8:12])), encoding="utf-8")
    watched = Watched(browser)
    watched.open(path.as_uri())
    watched.bite()
    watched.assert_nothing_ran(path.as_uri())


@pytest.fixture(scope="module")
def jupyter(course: Course) -> Iterator[str]:
    """A Jupyter server with the course's configuration, in the course's folder; its address."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    home = course.root / "home"
    home.mkdir()
    env = os.environ | {
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(str(ROOT / "etc" / part) for part in ("teacher", "jupyter")),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    log = course.root / "jupyter.log"
    with log.open("w") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--ServerApp.port={port}",
             "--ServerApp.port_retries=0", "--IdentityProvider.token=abc", f"--ServerApp.root_dir={course.root}"],
            cwd=course.root, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert running.poll() is None, log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5)
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(timeout=30)


def test_formgrader(course: Course, jupyter: str, browser: Browser) -> None:
    """nbgrader's pages do their work under the policy; nothing runs, not even of what is put into a page afterwards."""
    watched = Watched(browser)
    page, complaints = watched.page, []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    watched.open(f"{jupyter}/formgrader/manage_assignments?token=abc")
    for path in (
        "manage_assignments", f"manage_submissions/{LESSON}", "manage_students", f"gradebook/{LESSON}/{LESSON}",
        "manage_students/%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
    ):  # fmt: skip
        watched.open(f"{jupyter}/formgrader/{path}")
        page.locator("#main-table tr").first.wait_for()
        watched.assert_nothing_ran(f"{jupyter}/formgrader/{path}")
        assert complaints == [], path

    with course.gradebook() as book:
        ids = [s.id for s in book.notebook_submissions(LESSON, LESSON)]
    for submission in ids:
        address = f"{jupyter}/formgrader/submissions/{submission}/"
        watched.open(address)
        page.wait_for_function("formgrader.loaded && formgrader.grades.loaded")
        watched.bite()
        watched.assert_nothing_ran(address)
        assert page.locator("input.score").count() == len(POINTS)
        page.locator("span.glyphicon-eye-open").click()  # a handler of nbgrader's own
        assert page.locator("a.name-shown").is_visible()
    assert page.locator("math").count() == 1, "formulas need no network; those of a student stay text"

    def poison(route: Route) -> None:
        came = route.fetch()
        tags = "".join(tag for tag in TAGS if "refresh" not in tag)  # a policy cannot stop that one
        route.fulfill(response=came, body=came.text().replace("<body>", f"<body>{tags}", 1))

    page.route(address, poison)
    watched.open(address)
    assert page.locator("a.bait").count() == 3
    watched.bite()
    watched.assert_nothing_ran(address)


def test_a_handed_in_page_is_a_strangers(course: Course, jupyter: str) -> None:
    (course.root / "autograded" / "mallory" / LESSON / "page.html").write_text(TAGS[0])
    with course.gradebook() as book:
        submission = book.find_submission_notebook(LESSON, LESSON, "mallory").id
    request = urllib.request.Request(
        f"{jupyter}/formgrader/submissions/{submission}/page.html", headers={"Authorization": "token abc"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
