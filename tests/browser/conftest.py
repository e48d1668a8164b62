"""JupyterLab as ``make lab`` serves it, on a copy of the course, and a Chromium to use it with."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Request, expect, sync_playwright

from tests.browser.driver import CHROMIUM_FLAGS, Lab

ROOT = Path(__file__).resolve().parents[2]
#: what is expected is waited for, as long as a busy machine may take
expect.set_options(timeout=30_000)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a Chromium these tests are skipped, unless REQUIRE_BROWSER=1, which is how CI never skips."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.slow)
    if here and not any(map(shutil.which, BROWSERS)) and os.environ.get("REQUIRE_BROWSER") != "1":
        notice = pytest.mark.skip(
            reason="no Chromium here: the browser tests did not run (apt install chromium)"
        )
        for item in here:
            item.add_marker(notice)


@dataclass(frozen=True)
class Server:
    """A running `make lab`: where, with which token, on which copy of the course, and all that it has printed."""

    url: str
    token: str
    start: str
    course: Path
    log: Path


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`make lab PORT=…` with an empty HOME, on a copy of the course in a folder whose name has a space."""
    place = tmp_path_factory.mktemp("lab")
    course, home, log = place / "the course", place / "home", place / "lab.log"
    home.mkdir()
    # what is compiled comes along, or a dozen processes would each compile it; not what is being written ("*.pyc.*")
    leave = shutil.ignore_patterns(
        ".git", ".venv", "*_cache", "*.pyc.*", "*.egg-info", ".shots", "gradebook.db*", "*.answers-*"
    )
    shutil.copytree(ROOT, course, ignore=leave)
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    quiet = {"DISPLAY", "WAYLAND_DISPLAY", "JUPYTER_CONFIG_PATH", "JUPYTER_TOKEN"}
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in quiet and not k.startswith(("PYTEST", "MAKE", "MFLAGS"))
    }
    env |= {"HOME": str(home), "PYTHONPATH": str(course)}  # the copy's helpers, not those installed
    # SETUP=true: this environment is the one that the tests run in, so there is nothing to install
    command = ["make", "lab", f"PORT={port}", f"VENV={sys.prefix}", "SETUP=true"]
    with log.open("w") as out:
        running = subprocess.Popen(
            command,
            cwd=course,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        address = re.compile(rf"(http://127\.0\.0\.1:{port})(/\S*)\?token=(\w+)")
        deadline = time.monotonic() + 90
        while not (found := address.search(log.read_text())):
            assert running.poll() is None and time.monotonic() < deadline, (
                f"make lab printed no address:\n{log.read_text()}"
            )
            time.sleep(0.2)
        yield Server(url=found[1], token=found[3], start=found[2], course=course, log=log)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)  # as Ctrl-C does
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            pytest.fail(f"make lab did not end at Ctrl-C:\n{log.read_text()}")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "no Chromium, and REQUIRE_BROWSER=1 says that these tests must run (apt install chromium)"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, headless=True, args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser: JupyterLab's scripts, some megabytes, are read once for all pages."""
    opened = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="en-GB")
    yield opened
    opened.close()


@pytest.fixture
def lab(context: BrowserContext, server: Server, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A fresh page. A failing test leaves a picture of it; no page may ask for anything outside this machine."""
    outside: list[str] = []

    def look(asked: Request) -> None:
        if not asked.url.startswith((server.url, "data:", "blob:")):
            outside.append(asked.url)

    context.on("request", look)
    page = context.new_page()
    page.set_default_timeout(30_000)
    using = Lab(page, server.url, server.token, server.course)
    failed_before = request.session.testsfailed
    yield using
    if request.session.testsfailed > failed_before:
        using.shot(f"failed-{request.node.name}")
    page.close()
    context.remove_listener("request", look)
    assert not outside, f"the page asked for {outside} outside this machine"
