"""How Sphinx makes the course's site of what `python -m helpers.classroom.site` lays out."""

import re
from typing import Any

project = "PyTorch Performance, Measured"
author = copyright = project
html_title = project
extensions = ["myst_nb", "sphinx.ext.autodoc"]
#: results are made by functions: how their classes are called is nobody's business
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
default_role = "code"
html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
#: notebooks/*.ipynb: the learners' notebooks, for who wants to take one along
html_extra_path = ["_extra"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],
    "navbar_start": [],
    "navbar_center": [],
    "navbar_end": [],
}
html_context = {"default_mode": "auto"}
html_show_copyright = False
html_copy_source = False
#: the search reads each page that it found for a line to show: from a file, a browser may not
html_js_files = [
    (None, {"body": 'if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false'})
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


def lead_to_notebooks(
    app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The theme's download button leads to a page's source, which is not on the site: a lesson's leads to the notebook
    that learners get, other pages keep only what prints them."""
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
