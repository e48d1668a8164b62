"""Which tests share a worker process when several run at once (`make test` starts two)."""

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class _Groups(LoadScopeScheduling):
    """One file's tests stay together, for their fixtures' sake; of the lessons' tests, which take longest, one lesson's."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        lesson = re.search(r"\[(\d\d)\b|\[(\d\d)_", nodeid)
        if lesson and file.endswith(("test_submissions.py", "test_references.py")):
            return f"{file}::{lesson[1] or lesson[2]}"
        return file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Groups:
    return _Groups(config, log)
