"""How the tests share a few worker processes (`make test` starts them), and what they share in one."""

import atexit
import gc
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

import helpers.classroom  # noqa: F401 - before nbformat, which is then imported faster

#: no test, nor what it starts, writes into the progress of the learner whose machine this is
_STATE = tempfile.TemporaryDirectory(prefix="course-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

#: the files whose tests are each about a lesson, named first in brackets
BY_LESSON = ("test_grading.py", "test_references.py", "test_submissions.py")
#: … of which one shares a sandbox among all lessons
ONE_SANDBOX = "test_grading.py"
#: what takes longest comes first, or one worker would be left alone with it at the end
LONGEST_FIRST = (
    "test_submissions.py::test_answer[17",  # trainings: as long as those of five other lessons
    "test_class.py",
    "test_grading.py",
    "test_references.py",
    "test_lint.py",
    "browser/",
    "test_submissions.py",
    "test_sandbox.py",
    "test_bundle.py",
    "test_variants.py",
    "test_ranks.py",
)


#: files that share one JupyterLab and one Chromium
ONE_LAB = ("test_learner.py", "test_report_page.py", "test_widgets.py")


class _Groups(LoadScopeScheduling):
    """One file's tests stay together, for their fixtures' sake; of the lessons' tests, one lesson's."""

    def _split_scope(self, nodeid: str) -> str:
        if _file(nodeid).endswith(ONE_LAB):
            return "one lab"
        if _file(nodeid).endswith(ONE_SANDBOX):
            return ONE_SANDBOX
        return f"{_file(nodeid)}::{_lesson(nodeid)}"


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _lesson(nodeid: str) -> str:
    """The lesson that a test is about: "07", or "" if it is about none."""
    named = re.search(r"\[(\d\d)(?:_|\b)", nodeid) if _file(nodeid).endswith(BY_LESSON) else None
    return named[1] if named else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Groups:
    return _Groups(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lesson", default="", help="only the tests of one lesson, e.g. 07, and lint")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wanted := config.getoption("--lesson"):
        kept = [i for i in items if _lesson(i.nodeid) == wanted or _file(i.nodeid).endswith("test_lint.py")]
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        if not any(_lesson(i.nodeid) for i in kept):
            raise pytest.UsageError(f"no lesson {wanted!r}: say its two digits, as in LESSON=07")
        items[:] = kept
    place = {name: i for i, name in enumerate(LONGEST_FIRST)}

    def order(item: pytest.Item) -> tuple[int, str]:
        first = min([i for name, i in place.items() if name in item.nodeid], default=len(place))
        # the last digit first: lessons that stand together wait alike (for ranks), and all workers would wait at once
        return first, _lesson(item.nodeid)[::-1]

    items.sort(key=order)


class _Minutes:
    """Once a minute a line that says which files' tests have begun since the last one: dots alone do not."""

    def __init__(self, terminal: Any, every_s: float = 60.0) -> None:
        self.terminal, self.every_s = terminal, every_s
        self.began = self.told = time.monotonic()
        self.files: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        lesson = _lesson(nodeid)
        self.files[Path(_file(nodeid)).stem + (f" {lesson}" if lesson else "")] = None
        if (now := time.monotonic()) - self.told >= self.every_s:
            self.terminal.ensure_newline()
            self.terminal.write_line(f"{(now - self.began) / 60:.0f} min: {', '.join(self.files)}")
            self.told, self.files = now, {}


@pytest.hookimpl(trylast=True)  # after the terminal's own
def pytest_configure(config: pytest.Config) -> None:
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(_Minutes(terminal))


_module = ""
atexit.register(gc.unfreeze)  # Triton complains, at the end, of each of its objects that is still frozen


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What earlier files have imported and made is no garbage: a collection that passes over it takes a tenth of the time."""
    global _module
    if (now := _file(item.nodeid)) != _module:
        _module = now
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def runner() -> Iterator[Any]:
    """Grades answers; one for all files, since starting it takes some seconds."""
    from helpers.classroom.runner import Runner  # needs Jupyter's packages, which the core's tests do without

    with Runner() as running:
        yield running


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the time went: by file, since single tests are short and many."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_file(report.nodeid)] += report.duration
    terminalreporter.section("slowest files")
    for name, spent in seconds.most_common(10):
        terminalreporter.write_line(f"{spent:7.0f} s  {name}")
