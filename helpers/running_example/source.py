"""The plain script to read: folded, since it is longer than a screen."""

from __future__ import annotations

import html
import inspect

from helpers.running_example import plain


class Source:
    """Shows as a line that unfolds into the script's text."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def __repr__(self) -> str:
        return f"{self.name}, {len(self.text.splitlines())} lines, which unfold in a notebook"

    def _repr_html_(self) -> str:
        lines = len(self.text.splitlines())
        head = f"<summary><b>{html.escape(self.name)}</b>, {lines} lines: click to read them</summary>"
        return f"<details>{head}<pre>{html.escape(self.text)}</pre></details>"


def source() -> Source:
    """The plain script."""
    return Source(inspect.getsource(plain), "plain.py")
