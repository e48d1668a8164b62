"""The course as a site to read and search, before anything is installed: every lesson as it ran, without answers.

python -m helpers.classroom.site --to _site      what `make site TO=_site` runs

Sphinx and MyST-NB make it (the extra `site`), by docs/conf.py. No lesson runs and nothing is fetched; the pages need no
network either. The tools' pages are their docstrings.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.markdown import to_html
from helpers.classroom.master import BadMaster, Master
from helpers.classroom.settings import ROOT
from helpers.text.terminal import lenient

#: of the course's texts: those that are pages of the site too
GUIDES = (
    "docs/instructors.md",
    "docs/jupyterhub.md",
    "docs/recording.md",
    "docs/claims.md",
    "docs/adding-a-source.md",
    "docs/any-script.md",
    "docs/architecture.md",
    "CONTRIBUTING.md",
)
#: the tools that are anybody's, each with a page that autodoc makes of its docstrings
TOOLS = ("helpers", "helpers.trace", "helpers.memory", "helpers.compiling", "helpers.ranks")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FORMULA = re.compile(r"\$\$.+?\$\$", re.DOTALL)


def lay_out(lessons: list[Master], to: Path) -> None:
    """Write what Sphinx reads: README as the first page, lessons with their outputs, tools, guides. to: an empty folder.

    Raises :class:`BadMaster` where a reference is not built.
    """
    names = {master.name for master in lessons}
    (to / "lessons").mkdir(parents=True)
    (to / "_extra" / "notebooks").mkdir(parents=True)
    for master in lessons:
        page = _lesson(master, names)
        (to / "lessons" / f"{master.name}.ipynb").write_text(json.dumps(page), encoding="utf-8")
        shutil.copy(build.release_path(master.name), to / "_extra" / "notebooks")
    for guide in GUIDES:
        text = _relinked(ROOT / guide, names, to, "")
        (to / Path(guide).name.lower()).write_text(text, encoding="utf-8")
    (to / "tools").mkdir()
    for tool in TOOLS:
        (to / "tools" / f"{tool}.md").write_text(_tool(tool), encoding="utf-8")
    tree = ["", _toctree("Lessons", [f"lessons/{m.name}" for m in lessons])]
    tree += [_toctree("Tools", [f"tools/{tool}" for tool in TOOLS])]
    tree += [_toctree("For instructors and contributors", [Path(g).stem.lower() for g in GUIDES])]
    (to / "index.md").write_text(
        _relinked(ROOT / "README.md", names, to, "") + "\n".join(tree), encoding="utf-8"
    )
    shutil.copy(ROOT / "docs" / "conf.py", to)
    (to / "_static").mkdir()
    shutil.copy(ROOT / "docs" / "site.css", to / "_static")


def _tool(name: str) -> str:
    """A page that has autodoc show a tool's docstrings: its own, then those of all that it offers."""
    first = "The first example makes the names that those below use. Each of them runs in a test."
    return f"# {name}\n\n{first}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _lesson(master: Master, names: set[str]) -> dict[str, Any]:
    """The notebook that learners get, with the outputs of the reference run where they give no answer away."""
    released, ran = build.release_path(master.name), build.reference_path(master)
    if not released.exists() or not ran.exists():
        raise BadMaster(f"{master.name} is not built: run `make build LESSON={master.name[:2]}` first")
    book = json.loads(released.read_text(encoding="utf-8"))
    shown = {cell["id"]: cell for cell in json.loads(ran.read_text(encoding="utf-8"))["cells"]}
    cells = []
    for cell in book["cells"]:
        about, source = cell["metadata"], "".join(cell["source"])
        plain: dict[str, Any] = {
            "id": cell["id"],
            "cell_type": cell["cell_type"],
            "source": source,
            "metadata": {},
        }
        if cell["cell_type"] == "markdown":
            plain["source"] = _FORMULA.sub(lambda f: to_html(f[0], trusted=True), source)
            plain["source"] = _LINK.sub(_within(names, "../", lambda path: ""), plain["source"])
        else:
            plain |= {"execution_count": None, "outputs": []}
            marks = about.get("nbgrader", {})
            if not (marks.get("solution") or marks.get("grade")):
                plain["outputs"] = shown[cell["id"]]["outputs"]
            tags = ["hide-input"] if about.get("jupyter", {}).get("source_hidden") else []
            alts = [
                o["metadata"].get("image/png", {}).get("alt", "") for o in plain["outputs"] if "metadata" in o
            ]
            plain["metadata"] = {"tags": tags, "mystnb": {"image": {"alt": "; ".join(filter(None, alts))}}}
        cells.append(plain)
    return book | {"cells": cells}


def _within(names: set[str], up: str, asset: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
    """Links to lessons and guides lead to their pages; what is not on the site keeps its words. up: to the site's root."""

    def link(found: re.Match[str]) -> str:
        image, words, path, part = found[1], found[2], found[3], found[4] or ""
        if image:
            return f"![{words}]({asset(path)})"
        if Path(path).suffix == ".ipynb" and Path(path).stem in names:
            return f"[{words}]({up}lessons/{Path(path).name}{part})"
        if Path(path).name.lower() in {Path(g).name.lower() for g in GUIDES}:
            return f"[{words}]({up}{Path(path).name.lower()}{part})"
        if Path(path).name == "README.md":
            return f"[{words}]({up}index.md{part})"
        return words

    return link


def _relinked(file: Path, names: set[str], to: Path, up: str) -> str:
    def asset(path: str) -> str:
        shutil.copy(file.parent / path, to / Path(path).name)
        return Path(path).name

    return _LINK.sub(_within(names, up, asset), file.read_text(encoding="utf-8"))


def make(to: Path, lessons: list[Master] | None = None) -> int:
    """Build the site into a folder, which must be empty, new, or an earlier site. Returns Sphinx's exit status.

    A warning (a link that leads nowhere, a page in no list) is an error.
    """
    from sphinx.cmd.build import build_main

    if to.exists() and any(to.iterdir()) and not (to / "searchindex.js").exists():
        raise ValueError(f"{to} is neither empty nor a site that was made here: choose another folder")
    chosen = lessons or [masters.read(path) for path in build.find([])]
    with tempfile.TemporaryDirectory() as place:
        lay_out(chosen, Path(place) / "source")
        if to.exists():
            shutil.rmtree(to)
        folders = [f"{place}/doctrees", f"{place}/source", str(to)]
        os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # no date in the pages
        return int(build_main(["-q", "-W", "--keep-going", "-b", "html", "-d", *folders]))


def main() -> int:
    lenient()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=Path("_site"), help="the folder (default: _site)")
    to, began = parser.parse_args().to, time.monotonic()
    try:
        status = make(to)
    except (ValueError, BadMaster) as problem:
        print(f"make site: {problem}", file=sys.stderr)
        return 2
    if not status:
        pages = sum(1 for _ in to.rglob("*.html"))
        print(f"{pages} pages in {time.monotonic() - began:.0f} s: open {to}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
