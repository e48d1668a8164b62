"""The documents whose claims the course tests: their titles, in English too, authors, and addresses where known."""

import tomllib
from functools import cache
from pathlib import Path

_LISTED = Path(__file__).with_suffix(".toml")


@cache
def every() -> dict[str, dict[str, str]]:
    """key → title, english, author, and url where one is known. Read when first asked for: most lessons name none."""
    return dict(sorted(tomllib.loads(_LISTED.read_text(encoding="utf-8")).items()))


def linked(key: str) -> str:
    """The title in English, as a Markdown link where an address is known. KeyError for a source that is not there."""
    about = every()[key]
    return f"[{about['english']}]({about['url']})" if "url" in about else about["english"]


def signed(key: str) -> str:
    """Title, with its link, and author."""
    return f"{linked(key)} ({every()[key]['author']})"
