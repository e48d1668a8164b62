"""The labels that say where numbers come from."""

import re
from datetime import UTC, datetime

_EVIDENCE = re.compile(
    r"live \((CPU|GPU)\)|recorded \([^()]+, (\d{4}-\d\d[^()]*|no date)\)|simulated \([^()]+\)|arithmetic|published"
)


def check_evidence(label: str) -> str:
    """`label` if it is one of the course's evidence labels, or several with " · " between; else ValueError that lists them."""
    if not isinstance(label, str) or not all(map(_EVIDENCE.fullmatch, label.split(" · "))):
        raise ValueError(
            f"evidence={label!r}: a picture says where its numbers came from; write 'live (CPU)', "
            "'live (GPU)', 'recorded (H100, 2026-01)', 'simulated (H100)', 'published' or 'arithmetic'"
        )
    return label


#: moments before CUDA's profilers existed, or far ahead, are no date: an event's clock may begin anywhere
_FIRST, _LAST = 1_325_376_000, 4_102_444_800


def recorded(card: str, began: float | None) -> str:
    """The label of a file that was made elsewhere, or on another day. began: seconds since 1970, as its events say.

    The file's own date is not asked: a copy has another.
    """
    known = began is not None and _FIRST < began < _LAST
    month = f"{datetime.fromtimestamp(began, UTC):%Y-%m}" if began is not None and known else "no date"
    return f"recorded ({re.sub('[()]', '', card).strip() or 'GPU not named'}, {month})"
