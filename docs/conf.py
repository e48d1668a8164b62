"""How Sphinx makes the course's site of what `python -m helpers.classroom.site` lays out."""

from typing import Any

project = "PyTorch Performance, Measured"
author = copyright = project
html_title = project
extensions = ["myst_nb"]
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
