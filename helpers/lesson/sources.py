"""The documents whose claims the course tests: their titles, in English too, authors, and addresses where known."""

import ast
from functools import cache
from pathlib import Path

_MODULES = Path(__file__).parent / "trials" / "sources"


@cache
def every() -> dict[str, dict[str, str]]:
    """key → title, english, author, and url where one is known. Read when first asked for: most lessons name none."""
    return {m.stem.replace("_", "-"): _about(m) for m in sorted(_MODULES.glob("[a-z]*.py"))}


def linked(key: str) -> str:
    """The title in English, as a Markdown link where an address is known. KeyError for a source that is not there."""
    about = every()[key]
    return f"[{about['english']}]({about['url']})" if "url" in about else about["english"]


def signed(key: str) -> str:
    """Title, with its link, and author."""
    return f"{linked(key)} ({every()[key]['author']})"


def _about(module: Path) -> dict[str, str]:
    """What the module of a source assigns to SOURCE, read off its text: a title is no reason to import its trials."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCE":
            return dict(ast.literal_eval(node.value))
    raise ValueError(f"{module.name}: SOURCE = {{title, english, author, url}} is missing")
