"""How Sphinx makes the course's site of what `python -m helpers.classroom.site` lays out."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).parent
#: docs/site/settings.toml, and what `make site` was told: where the course can be found
SETTINGS: dict[str, str] = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
REPOSITORY = SETTINGS["repository"].rstrip("/").removesuffix(".git")

project = "PyTorch Performance, Measured"
author = "the authors of PyTorch Performance, Measured"
html_title = project
html_baseurl = SETTINGS["address"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
#: results are made by functions: how their classes are called is nobody's business
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
default_role = "code"
#: what is copied is the code, without prompts
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div.cell_input div.highlight pre, div:not(.output) > div.highlight pre"
html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_logo = "_static/icon.svg"
#: notebooks/*.ipynb: the learners' notebooks, for who wants to take one along
html_extra_path = ["_extra"]
html_css_files = ["site.css"]
html_theme_options = {
    "logo": {"text": project, "alt_text": "to the first page"},
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],
    "navbar_start": [],
    "navbar_center": [],
    "navbar_end": [],
    # pygments styles whose colours keep 4.5 : 1 to their ground
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "extra_footer": "Under the MIT licence. Built by Sphinx; no page asks the network for anything.",
}
html_context = {"default_mode": "auto"}
html_show_copyright = False
html_copy_source = False
#: the search reads each page that it found for a line to show: from a file, a browser may not
html_js_files = [
    (None, {"body": 'if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false'}),
    ("predict.js", {"defer": "defer"}),
    ("moving.js", {"defer": "defer"}),
]
html_last_updated_fmt = None
#: the notebooks come with what they showed; nothing runs here
nb_execution_mode = "off"
nb_merge_streams = True
#: the first of these that an output has
nb_mime_priority_overrides = [
    ("html", "application/vnd.pytorch-performance.kept+json", None),
    ("html", "application/vnd.pytorch-performance.verdicts+json", None),
]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header"]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("html-page-context", lead_to_notebooks, priority=502)  # the theme makes its buttons at 501
    app.connect("html-page-context", describe, priority=503)


def lead_to_notebooks(
    app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The theme's download button leads to a page's source, which is not on the site: a lesson's leads to the notebook
    that learners get, other pages keep only what prints them. Before it, where a lesson can be opened and run."""
    folder, _, name = pagename.partition("/")
    for group in context["header_buttons"]:
        buttons = group.get("buttons", [])
        for button in [b for b in buttons if b["label"] == "download-source-button"]:
            if folder == "lessons":
                button |= {
                    "url": context["pathto"](f"notebooks/{name}.ipynb", 1),
                    "tooltip": "Download this lesson's notebook",
                    "label": "download-notebook-button",
                }
            else:
                buttons.remove(button)
    places = launches(f"notebooks/{name}/{name}.ipynb" if folder == "lessons" else "notebooks/start.ipynb")
    links = [_button(url, f"Open in {where}", "fas fa-rocket", where) for where, url in places.items()]
    if links:
        about = {"tooltip": "Run it", "icon": "fas fa-rocket", "label": "launch-buttons"}
        context["header_buttons"].insert(0, {"type": "group", "buttons": links, **about})
    if REPOSITORY:
        source = _button(REPOSITORY, "The course's source", "fas fa-code", "source")
        context["header_buttons"].append(
            source | {"text": ""}
        )  # beside the other icons there is no room for words


def _button(url: str, tooltip: str, icon: str, label: str) -> dict[str, str]:
    about = {"url": url, "tooltip": tooltip, "text": tooltip, "icon": icon}
    return {"type": "link", "label": f"{label.lower()}-button", **about}


def launches(notebook: str) -> dict[str, str]:
    """Where a notebook of the repository can be opened: place → address. None without the repository's address."""
    if not REPOSITORY:
        return {}
    branch, lab = SETTINGS["branch"], quote(f"lab/tree/{notebook}", safe="")
    where = REPOSITORY.removeprefix("https://github.com/")
    on_github = where != REPOSITORY
    source = f"gh/{where}" if on_github else f"git/{quote(REPOSITORY, safe='')}"
    found = {"Binder": f"https://mybinder.org/v2/{source}/{quote(branch, safe='')}?urlpath={lab}"}
    if on_github:
        found["Colab"] = f"https://colab.research.google.com/github/{where}/blob/{branch}/{notebook}"
    if SETTINGS["hub"]:
        place = quote(f"lab/tree/{REPOSITORY.rpartition('/')[2]}/{notebook}", safe="")
        pull = f"repo={quote(REPOSITORY, safe='')}&branch={quote(branch)}&urlpath={place}"
        found["our JupyterHub"] = f"{SETTINGS['hub'].rstrip('/')}/hub/user-redirect/git-pull?{pull}"
    return found


def describe(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """What a search engine and a preview of a link show: the page's title, its first sentences, a picture."""
    if doctree is None:
        return
    from docutils import nodes

    said = next((p.astext() for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 60), project)
    words = " ".join(said.split())
    words = words if len(words) <= 200 else words[:200].rpartition(" ")[0] + " …"
    tags = {
        "og:title": context["title"],
        "og:description": words,
        "og:type": "website",
        "og:site_name": project,
    }
    if html_baseurl:
        tags["og:image"] = html_baseurl.rstrip("/") + "/_static/card.png"
        tags["og:url"] = html_baseurl.rstrip("/") + f"/{pagename}.html"
    lines = [
        f'<meta name="description" content="{escape(words)}">',
        f'<meta name="author" content="{author}">',
    ]
    lines += [
        f'<meta property="{name}" content="{escape(re.sub("<[^>]*>", "", text))}">'
        for name, text in tags.items()
    ]
    lines.append(
        f'<meta name="twitter:card" content="{"summary_large_image" if html_baseurl else "summary"}">'
    )
    context["metatags"] = context.get("metatags", "") + "\n" + "\n".join(lines)


_BESIDE_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
_STARS = re.compile(r"\*|_(?!\w)|\|")


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The tools' docstrings are plain text, to be read in an editor: what reST would take for its own marks is escaped, an
    indented block is code, and what a line begins with a name and a colon for is a paragraph."""
    made: list[str] = []
    for block in "\n".join(lines).strip("\n").split("\n\n"):
        text = block.split("\n")
        if text[0].startswith(">>>"):
            made += [*text, ""]
        elif text[0].startswith(" "):
            made += [".. code-block:: python", "", *(f"   {line}" for line in text), ""]
        else:
            paragraphs = re.sub(r"\n(?=[\w, ]+: )", "\n\n", re.sub(r"\n +", " ", block))
            parts = _BESIDE_CODE.split(paragraphs)
            parts[::2] = [_STARS.sub(r"\\\g<0>", part) for part in parts[::2]]
            made += ["".join(parts), ""]
    lines[:] = "\n".join(made).split("\n")
