"""A class on a JupyterHub in a real browser: released, fetched, solved, handed in, collected, graded, given back.

The hub is the one that docs/jupyterhub.md sets up, with one exception: its users are names without a system account,
so that the test needs no rights; what separates system users is tested in tests/test_exchange.py.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.classroom import build, bundle
from helpers.classroom import master as masters
from helpers.classroom.settings import ROOT
from tests.browser.driver import Lab, answers, exercises, place_of

LESSON = "01_storage_and_stride"
NOTEBOOK = f"{LESSON}/{LESSON}.ipynb"
PASSWORD = "only on this machine's loopback"
#: what is other than in docs/jupyterhub.md: names without accounts, any free ports, and perhaps root, as in a container
TRIAL = """
import os
load_subconfig("jupyterhub_config.py")
c = get_config()
c.JupyterHub.bind_url, c.JupyterHub.hub_bind_url, c.ConfigurableHTTPProxy.api_url = {urls}
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = {password!r}
c.Authenticator.allowed_users |= {{"ada", "bob"}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = os.path.abspath("home/{{username}}")
c.Spawner.args = ["--allow-root"]
real = c.Spawner.pre_spawn_hook
def prepare(spawner):
    real(spawner)
    spawner.environment["JUPYTER_CONFIG_PATH"] += os.pathsep + os.path.abspath("trial")
c.Spawner.pre_spawn_hook = prepare
"""
#: who a student is, nbgrader asks the system
NAMES = """
import os
c = get_config()
c.ExchangeCollect.check_owner = False
if (name := os.environ["JUPYTERHUB_USER"]) in ("ada", "bob"):
    c.CourseDirectory.student_id = name
"""


@dataclass(frozen=True)
class Hub:
    """A running JupyterHub: where, and the folder that holds course/, student/, exchange/ and home/."""

    url: str
    place: Path
    log: Path

    @property
    def instructor(self) -> str:
        return (self.place / "course").owner()


def free_ports(count: int) -> list[int]:
    trials = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [trial.getsockname()[1] for trial in trials]
    for trial in trials:
        trial.close()
    return ports


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    place = tmp_path_factory.mktemp("hub")
    course, log = place / "course", place / "hub.log"
    leave = shutil.ignore_patterns(
        "*.pyc.*", "*.answers-*", "class_seed.txt"
    )  # the first: being written just now
    for name in ("helpers", "etc", f"solutions/{LESSON}", f"notebooks/{LESSON}"):
        shutil.copytree(ROOT / name, course / name, ignore=leave)
    shutil.copy(ROOT / "nbgrader_config.py", course)
    bundle.write_folder(
        bundle.contents([masters.read(path) for path in build.find([LESSON])]), place / "student"
    )
    for name in ("exchange", "home", "trial"):
        (place / name).mkdir()
    (place / "exchange").chmod(0o1777)
    shutil.copy(ROOT / "etc" / "hub" / "jupyterhub_config.py", place)
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(3)]
    (place / "trial.py").write_text(TRIAL.format(urls=urls, password=PASSWORD))
    (place / "trial" / "nbgrader_config.py").write_text(NAMES)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "JUPYTER", "MAKE"))}
    with log.open("w") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", "trial.py"],
            cwd=place,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while "JupyterHub is now running" not in log.read_text():
            assert running.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        with urlopen(f"{urls[0]}/hub/api") as answer:
            assert answer.status == 200
        yield Hub(urls[0], place, log)
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(60)  # it ends everybody's server first
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            pytest.fail(f"the hub did not end when asked to:\n{log.read_text()}")


class Person:
    """One user's hands, in a browser of their own."""

    def __init__(self, browser: Browser, hub: Hub, name: str) -> None:
        self.hub, self.name, self.url = hub, name, f"{hub.url}/user/{name}"
        self.page: Page = browser.new_context(
            viewport={"width": 1400, "height": 900}, locale="en-GB"
        ).new_page()
        self.page.set_default_timeout(60_000)
        self.lab = Lab(self.page, self.url, "", hub.place / "home" / name)

    def log_in(self, to: str = "") -> None:
        """to: the page of the person's server to begin with; "": as the hub has it."""
        spawn = f"/hub/spawn/{self.name}?{urlencode({'next': f'/user/{self.name}/{to}'})}"
        self.page.goto(f"{self.hub.url}/hub/login" + (f"?{urlencode({'next': spawn})}" if to else ""))
        self.page.fill("#username_input", self.name)
        self.page.fill("#password_input", PASSWORD)
        self.page.click("#login_submit", no_wait_after=True)

    def wait_for_lab(self) -> None:
        self.page.wait_for_url(f"{self.url}/lab**", timeout=90_000)
        self.page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=90_000)

    def assignments(self) -> None:
        self.lab.menu("Nbgrader", "Assignment List")
        self.page.locator(".btn-primary").first.wait_for()

    def formgrader(self, button: str) -> str:
        """Press a lesson's button in the formgrader; what the dialog says."""
        if "/formgrader" not in self.page.url:
            self.page.goto(f"{self.url}/formgrader")
        self.page.locator(f"tr:has-text('{LESSON}') .{button} a").click()
        dialog = self.page.locator(".modal-dialog")
        dialog.wait_for(timeout=60_000)
        said = dialog.inner_text()
        dialog.get_by_role("button", name="OK").click()
        dialog.wait_for(state="detached")
        return said

    def solve(self, exercise: str) -> None:
        course = self.hub.place / "course"
        self.lab.open(NOTEBOOK)
        given = self.lab.save(NOTEBOOK)
        cell = place_of(given, exercise)
        for place, about in enumerate(given["cells"][:cell]):
            if "setup" in about["metadata"].get("tags", []):
                self.lab.run(place)
        self.lab.write(cell, answers(course, LESSON)[exercise])
        assert self.lab.run(cell) == ""
        assert self.lab.run(place_of(given, f"{exercise}__test")).startswith("✓")
        self.lab.save(NOTEBOOK)


def test_a_lesson_goes_round(browser: Browser, hub: Hub) -> None:
    instructor, ada, bob = everybody = [Person(browser, hub, n) for n in (hub.instructor, "ada", "bob")]
    for person in everybody:  # their servers start at the same time
        person.log_in("formgrader" if person is instructor else "")
    instructor.page.wait_for_url(f"{instructor.url}/formgrader**", timeout=90_000)
    assert "Successfully released" in instructor.formgrader("release")

    for student in (ada, bob):
        student.wait_for_lab()
        student.assignments()
        student.page.get_by_role("button", name="Fetch").click()
        student.page.get_by_role("button", name="Submit").wait_for()
    ada.lab.shot("hub-1-fetched")
    given = json.loads((ada.lab.course / NOTEBOOK).read_text())
    first = exercises(given)[0]
    ada.solve(first)
    ada.lab.shot("hub-2-solved")
    for student in (ada, bob):  # bob hands in what he was given
        student.assignments()
        student.page.get_by_role("button", name="Submit").click()
        expect(student.page.locator("#submitted_assignments_list")).to_contain_text(LESSON)
    ada.lab.shot("hub-3-handed-in")

    assert "Successfully collected" in instructor.formgrader("collect")
    course = hub.place / "course"
    graded = subprocess.run(
        [sys.executable, "-m", "helpers.classroom.grade", LESSON[:2], "--jobs", "1"],
        cwd=course,
        env=os.environ | {"PYTHONPATH": str(course), "EXCHANGE": str(hub.place / "exchange")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert graded.returncode == 0 and "2 submissions, 2 of them graded" in graded.stdout, graded.stderr
    instructor.page.reload()
    assert "Successfully released feedback" in instructor.formgrader("release-feedback")
    instructor.lab.shot("hub-4-formgrader")

    reference = json.loads((course / "solutions" / LESSON / f"{LESSON}.ipynb").read_text())
    marked = [c["metadata"]["nbgrader"] for c in reference["cells"] if "nbgrader" in c["metadata"]]
    points = {about["grade_id"]: about.get("points", 0) for about in marked}
    solved = sum(worth for name, worth in points.items() if name.startswith(f"{first}__"))
    for student, earned in ((ada, solved), (bob, 0)):
        student.page.get_by_role("button", name="Fetch Feedback").click()
        student.page.get_by_text("(view feedback)").click()
        student.page.locator(".jp-DirListing-item", has_text=f"{LESSON}.html").dblclick()
        page = student.page.frame_locator(".jp-HTMLViewer iframe").locator("body")
        expect(page).to_contain_text(f"Feedback for {student.name}")
        expect(page).to_contain_text(f"{earned:g} of {sum(points.values()):g} points")
        student.lab.shot(f"hub-5-{student.name}-feedback")
    assert "Traceback" not in (log := hub.log.read_text()), log
