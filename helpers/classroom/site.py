"""The course as a site to read and search, before anything is installed: every lesson as it ran, without answers.

python -m helpers.classroom.site --to _site      what `make site TO=_site` runs

Sphinx and MyST-NB make it (the extra `site`), by docs/conf.py. No lesson runs and nothing is fetched; the pages need no
network either. The tools' pages are their docstrings.
"""

import base64
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell

from helpers.classroom import build, moving
from helpers.classroom import master as masters
from helpers.classroom.markdown import to_html
from helpers.classroom.master import BadMaster, Master
from helpers.classroom.settings import ROOT, parser
from helpers.start import ROADS
from helpers.text.terminal import lenient

#: of the course's texts: those that are pages of the site too
GUIDES = (
    "docs/start.md",
    "docs/any-script.md",
    "docs/claims.md",
    "docs/teaching.md",
    "docs/instructors.md",
    "docs/jupyterhub.md",
    "docs/recording.md",
    "docs/adding-a-source.md",
    "docs/architecture.md",
    "CONTRIBUTING.md",
)
LEARNERS = 3
"""The first of them are for whoever learns."""
DOCS = ROOT / "docs"
#: for a lesson that should not open with the first picture outside of a result: how the description of its own begins
OPENS = {
    "03_gpu_queue": "Trace A",
    "10_mixed_precision": "The bits of 257",
    "13_quantization": "Where the values lie",
}
#: the tools that are anybody's, each with a page that autodoc makes of its docstrings
TOOLS = (
    "helpers",
    "helpers.trace",
    "helpers.memory",
    "helpers.compiling",
    "helpers.ranks",
    "helpers.kernels",
)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?(?:\s+\"[^\"]*\")?\)")
_FORMULA = re.compile(r"\$\$.+?\$\$", re.DOTALL)


def settings(**told: str) -> dict[str, str]:
    """Where the course can be found: docs/site/settings.toml, or what was told. ValueError for what is no address."""
    found: dict[str, str] = tomllib.loads((DOCS / "site" / "settings.toml").read_text(encoding="utf-8"))
    found |= {name: value for name, value in told.items() if value}
    for name in ("repository", "hub", "address"):
        if found[name] and not re.fullmatch(r"https?://[^\s\"'<>]+", found[name]):
            raise ValueError(f"{name}: {found[name]!r} is no address; it begins with https://")
    return found


def lay_out(lessons: list[Master], to: Path, about: Mapping[str, str]) -> None:
    """Write what Sphinx reads: the first page, lessons with their outputs, tools, guides. to: an empty folder.

    about: where the course can be found, as `settings` returns it. Raises :class:`BadMaster` where a reference is not built.
    """
    names = {master.name for master in lessons}
    for folder in ("lessons", "tools", "_extra/notebooks", "_static/moving", "_static/opening"):
        (to / folder).mkdir(parents=True)
    pictures = {"queue"}
    moving.write("queue", to / "_static" / "moving" / "queue.js")
    for master in lessons:
        page = _lesson(master, names, to)
        (to / "lessons" / f"{master.name}.ipynb").write_text(json.dumps(page), encoding="utf-8")
        book = json.loads(build.release_path(master.name).read_text(encoding="utf-8"))
        book["cells"][:0] = [set_up_cell(about)] if about["repository"] else []
        (to / "_extra" / "notebooks" / f"{master.name}.ipynb").write_text(json.dumps(book), encoding="utf-8")
        code = "\n".join("".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code")
        for call, name in moving.CALLS.items():
            if call in code and name not in pictures:
                pictures.add(name)
                holds = next((c.source for c in master.cells if "PROGRAM = " in c.source), "")
                moving.write(name, to / "_static" / "moving" / f"{name}.js", holds)
    for guide in GUIDES:
        text = _relinked(ROOT / guide, names, to)
        if about["repository"]:
            text = text.replace("<this course>", about["repository"])
        (to / Path(guide).name.lower()).write_text(text, encoding="utf-8")
    for tool in TOOLS:
        (to / "tools" / f"{tool}.md").write_text(_tool(tool), encoding="utf-8")
    guides = [Path(g).stem.lower() for g in GUIDES]
    tree = [
        "",
        _toctree("Begin", guides[:LEARNERS]),
        _toctree("Lessons", [f"lessons/{m.name}" for m in lessons]),
        _toctree("Tools", [f"tools/{tool}" for tool in TOOLS]),
        _toctree("For instructors and contributors", guides[LEARNERS:]),
    ]
    (to / "index.md").write_text(_landing(lessons, about) + "\n".join(tree), encoding="utf-8")
    shutil.copy(DOCS / "conf.py", to)
    (to / "settings.json").write_text(json.dumps(dict(about)), encoding="utf-8")
    for file in (DOCS / "site").iterdir():
        if file.suffix in (".css", ".js", ".svg"):
            shutil.copy(file, to / "_static")
    _card(to / "_static" / "card.png")


def _landing(lessons: list[Master], about: Mapping[str, str]) -> str:
    """The first page, with a picture of each lesson, and how to get the course as far as that is known."""
    if about["repository"]:
        folder = about["repository"].rstrip("/").rpartition("/")[2].removesuffix(".git")
        learn = (
            f"Begin with [lesson 00](lessons/00_measure_first.ipynb), one hour.\n\n```\ngit clone {about['repository']}\ncd {folder}\nmake lab\n```\n\n"
            "This opens the course in JupyterLab. Nothing to install: the rocket above opens it in the browser. "
            "[All ways to start](start.md)."
        )
    else:
        learn = (
            "Begin here, now: [lesson 00](lessons/00_measure_first.ipynb), one hour. To solve its exercises, run `make lab` in the "
            "course's folder. (Whoever published this page has not said where to download it.) [All ways to start](start.md)."
        )
    cards = []
    for master in lessons:
        entry = build.index_entry(master)
        cards.append(
            f'<a href="lessons/{master.name}.html"><img src="_static/opening/{master.name}-small.png" alt="" loading="lazy" width="480" height="200">'
            f"<b>{escape(entry['title'])}</b><span>{escape(entry['question'])} {entry['minutes']} min.</span></a>"
        )
    gallery = '<div class="gallery">\n' + "\n".join(cards) + "\n</div>"
    text = (DOCS / "landing.md").read_text(encoding="utf-8")
    pages = {master.name[:2]: f"lessons/{master.name}.ipynb" for master in lessons}
    day = ", ".join(f"[{n}]({pages[n]})" for n in ROADS["a day"][0] if n in pages)
    for mark, words in {"learn": learn, "gallery": gallery, "day": day}.items():
        text = text.replace(f"{{{{{mark}}}}}", words)
    return f'{text}\n\n<script defer src="_static/moving/queue.js"></script>\n'


def set_up_cell(about: Mapping[str, str]) -> dict[str, Any]:
    """The cell that sets a lesson up where the course is not installed; docs/start.md has it for whoever pastes it."""
    text = (DOCS / "start.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n(# Sets .*?)```", text, re.DOTALL)
    assert source, "docs/start.md has the cell"
    code = source[1].strip().replace("<this course>", about["repository"])
    return dict(new_code_cell(code, id="set-up"))


def _card(to: Path) -> None:
    """What a preview of a link shows: the title over three bars, as the icon has them. 1200 × 630 pixels."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from helpers.plots import style

    fig = Figure(figsize=(12, 6.3), dpi=100, facecolor=style.INK)
    for y, wide, colour in ((0.33, 0.84, style.ORANGE), (0.22, 0.47, style.SKY), (0.11, 0.22, "#2fbf8f")):
        fig.add_artist(Rectangle((0.08, y), wide, 0.07, color=colour))
    fig.text(0.08, 0.72, "PyTorch Performance, Measured", color="white", fontsize=43, weight="bold")
    fig.text(0.08, 0.57, "Predict, measure, then read why. No GPU needed.", color="white", fontsize=27)
    fig.savefig(to)


def _tool(name: str) -> str:
    """A page that has autodoc show a tool's docstrings: its own, then those of all that it offers."""
    first = "The first example makes the names that those below use. Each of them runs in a test."
    return f"# {name}\n\n{first}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _lesson(master: Master, names: set[str], to: Path) -> dict[str, Any]:
    """The notebook that learners get, with the outputs of the reference run where they give no answer away.

    Questions come without the code that asks them, results are marked to be folded, and widgets are pictures that move.
    """
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
            # what one has solved is nobody's on a page
            if not (marks.get("solution") or marks.get("grade") or "lesson.progress()" in source):
                plain["outputs"] = [_explained(output) for output in shown[cell["id"]]["outputs"]]
            tags = ["hide-input"] if about.get("jupyter", {}).get("source_hidden") else []
            if "lesson.predict(" in source and plain["outputs"]:
                tags = ["hide-input", "predict"]
            elif _RESULT.search(source) and plain["outputs"]:
                tags.append("result")
            alts = [
                o["metadata"].get("image/png", {}).get("alt", "") for o in plain["outputs"] if "metadata" in o
            ]
            plain["metadata"] = {"tags": tags, "mystnb": {"image": {"alt": "; ".join(filter(None, alts))}}}
            if "predict" in tags:
                plain["metadata"]["mystnb"]["code_prompt_show"] = "The code that asks"
            if plain["outputs"]:
                plain["outputs"] += [_moves(name) for call, name in moving.CALLS.items() if call in source]
        cells.append(plain)
    _open_with_picture(master.name, cells, to)
    return book | {"cells": cells}


_RESULT = re.compile(r"\.against(_ratios)?\(")
_OFF = re.compile(r"whole steps are off by up to \d+%")


def _explained(output: dict[str, Any]) -> dict[str, Any]:
    """How far simulated steps are off stands in many labels: there it leads to what that means."""
    data = output.get("data", {})
    if "text/html" not in data:
        return output
    to = r'<a href="../start.html#what-the-labels-mean">\g<0></a>'
    return output | {"data": data | {"text/html": _OFF.sub(to, "".join(data["text/html"]))}}


def _moves(name: str) -> dict[str, Any]:
    """The output that a browser draws a movable picture in."""
    scripts = ["stride", f"moving/{name}"] if name == "stride" else [f"moving/{name}"]
    html = f'<div class="moving" data-name="{name}"></div>'
    html += "".join(f'<script defer src="../_static/{script}.js"></script>' for script in scripts)
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": html, "text/plain": ""}}


def _open_with_picture(name: str, cells: list[dict[str, Any]], to: Path) -> None:
    """Put a picture of the lesson's under its question, small: the first that is no result, where there is one."""
    found = [
        (output, output["metadata"].get("image/png", {}).get("alt", ""), "result" in cell["metadata"]["tags"])
        for cell in cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    if not found:
        return
    chosen = next((f for f in found if name in OPENS and f[1].startswith(OPENS[name])), None)
    output, alt, _ = chosen or next((f for f in found if not f[2]), found[0])
    png, folder = base64.b64decode(output["data"]["image/png"]), to / "_static" / "opening"
    _smaller(png, folder / f"{name}.png")
    _without_text(png, folder / f"{name}-small.png")
    figure = (
        f'<figure class="opens">\n<img src="../_static/opening/{name}.png" alt="{escape(alt)}">\n<figcaption>From this lesson. At its end '
        'you can read it.</figcaption>\n</figure>\n<p class="ran">This page shows the lesson as it ran when it was built. Nothing is '
        "live here: what is labelled <em>live (CPU)</em> was measured then.</p>"
    )
    title, mark, rest = cells[0]["source"].partition("\n## ")
    question, end, text = rest.partition("\n")
    cells[0]["source"] = f"{title}{mark}{question}{end}\n{figure}\n{text}"


def _smaller(png: bytes, to: Path) -> None:
    """A picture at most 760 pixels wide, in 64 colours."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        plain = picture.convert("RGB")
        plain.thumbnail((760, 760), Image.Resampling.LANCZOS)
        plain.quantize(64).save(to, optimize=True)


def _without_text(png: bytes, to: Path) -> None:
    """A thumbnail, 480 × 200: bars, blocks and lines in colour. Its text could not be read at this size, so it is left out."""
    from PIL import Image, ImageChops, ImageFilter

    with Image.open(io.BytesIO(png)) as picture:
        plain = picture.convert("RGB")
    plain = plain.crop((0, plain.height // 7, plain.width, plain.height))  # below the title
    red, green, blue = plain.split()
    light = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    dark = ImageChops.darker(ImageChops.darker(red, green), blue)
    grey = ImageChops.subtract(light, dark).point(lambda colour: 255 if colour < 40 else 0)
    thin = [ImageFilter.MaxFilter(7), ImageFilter.MinFilter(7)]
    for first, then in (thin, thin[::-1]):  # dark strokes on light, light ones on dark
        plain.paste(plain.filter(first).filter(then), mask=grey)
    white = Image.new("RGB", plain.size, "white")
    drawn = ImageChops.difference(plain, white).convert("L").point(lambda far: 255 if far > 40 else 0)
    plain = plain.crop(drawn.getbbox())
    plain.thumbnail((460, 184), Image.Resampling.LANCZOS)
    small = Image.new("RGB", (480, 200), "white")
    small.paste(plain, ((480 - plain.width) // 2, (200 - plain.height) // 2))
    small.quantize(64).save(to, optimize=True)


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


def _relinked(file: Path, names: set[str], to: Path) -> str:
    def asset(path: str) -> str:
        shutil.copy(file.parent / path, to / Path(path).name)
        return Path(path).name

    return _LINK.sub(_within(names, "", asset), file.read_text(encoding="utf-8"))


def make(to: Path, lessons: list[Master] | None = None, **told: str) -> int:
    """Build the site into a folder, which must be empty, new, or an earlier site. Returns Sphinx's exit status.

    told: what docs/site/settings.toml leaves empty (repository, branch, hub, address). A warning (a link that leads nowhere, a page in no list) is an error.
    """
    from sphinx.cmd.build import build_main

    if to.exists() and any(to.iterdir()) and not (to / "searchindex.js").exists():
        raise ValueError(f"{to} is neither empty nor a site that was made here: choose another folder")
    chosen = lessons or [masters.read(path) for path in build.find([])]
    with tempfile.TemporaryDirectory() as place:
        lay_out(chosen, Path(place) / "source", settings(**told))
        if to.exists():
            shutil.rmtree(to)
        folders = [f"{place}/doctrees", f"{place}/source", str(to)]
        os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # no date in the pages
        status = int(build_main(["-q", "-W", "--keep-going", "-b", "html", "-d", *folders]))
        if not status:
            _lighten(to)
        return status


#: what the theme has every page load for a search as one types, which is off: the page of the search loads it by itself
_SEARCHES = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
LARGE = 40_000
"""Bytes of a picture from which it is worth making smaller."""


def _lighten(site: Path) -> None:
    """Take away what no page needs: maps for debugging; 1.5 MB of script for icons, which site.css has from a font; two
    more fonts; the words of all pages, but where one searches. Large pictures keep 256 colours, none far from its own."""
    from PIL import Image

    for file in site.rglob("*.map"):
        file.unlink()
    (site / "_static" / "scripts" / "fontawesome.js").write_text("", encoding="utf-8")
    for font in ("brands", "regular"):
        (site / "_static" / "vendor" / "fontawesome" / "webfonts" / f"fa-{font}-400.woff2").write_bytes(b"")
    for page in site.rglob("*.html"):
        if page.name != "search.html":
            page.write_text(_SEARCHES.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
    for file in (f for f in (site / "_images").glob("*.png") if f.stat().st_size > LARGE):
        with Image.open(file) as picture:
            plain = picture.convert("RGB")
        plain.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file)


def main() -> int:
    lenient()
    asks = parser("site", __doc__)
    asks.add_argument("--to", type=Path, default=Path("_site"), help="the folder (default: _site)")
    for name, about in (
        ("repository", "the address that git clone takes"), ("branch", "its branch"),
        ("hub", "a JupyterHub for the class"), ("address", "where the site will stand"),
    ):  # fmt: skip
        asks.add_argument(f"--{name}", default="", help=f"{about} (default: docs/site/settings.toml)")
    told, began = vars(asks.parse_args()), time.monotonic()
    to = told.pop("to")
    try:
        status = make(to, **told)
    except (ValueError, BadMaster) as problem:
        print(f"make site: {problem}", file=sys.stderr)
        return 2
    if not status:
        pages = sum(1 for _ in to.rglob("*.html"))
        print(f"{pages} pages in {time.monotonic() - began:.0f} s: open {to}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
