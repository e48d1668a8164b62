"""The labels that say where numbers come from."""

import re

_EVIDENCE = re.compile(
    r"live \((CPU|GPU)\)|recorded \([^()]+, \d{4}-\d\d[^()]*\)|simulated \([^()]+\)|arithmetic|published"
)


def check_evidence(label: str) -> str:
    """`label` if it is one of the course's evidence labels, else ValueError that lists them."""
    if not isinstance(label, str) or not _EVIDENCE.fullmatch(label):
        raise ValueError(
            f"evidence={label!r}: a picture says where its numbers came from; write 'live (CPU)', "
            "'live (GPU)', 'recorded (H100, 2026-01)', 'simulated (H100)', 'published' or 'arithmetic'"
        )
    return label
