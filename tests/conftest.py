"""Which tests share a worker process when several run at once (`make test` starts two)."""

import re

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file's tests stay together, for their fixtures' sake; those of the lessons, which take longest, one lesson's."""
    for item in items:
        file = item.path.stem
        lesson = re.search(r"[\[/](\d\d)[-_]", item.nodeid.removeprefix(item.path.name))
        split = file in {"test_submissions", "test_references"} and lesson
        item.add_marker(pytest.mark.xdist_group(f"{file}-{lesson[1]}" if split and lesson else file))
