"""What axe-core finds in a page that shuts somebody out: the one place that runs it.

assert axe.findings(page) == []
assert axe.findings(lab.page, axe.JUPYTERLAB) == []
"""

from collections.abc import Mapping, Sequence

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

#: what axe-core 4.12 finds in JupyterLab 4.6 itself, with no output of ours: rule → what is told of, by its HTML
JUPYTERLAB = {
    "aria-allowed-attr": "<jp-button ",  # its toolbars' buttons say aria-pressed, which a custom element must not
    "aria-input-field-name": 'class="cm-content',  # a code cell's editor has no name
    "aria-required-children": "jp-WindowedPanel-viewport",  # its list of cells is a feed, whose children are no articles
    "button-name": "jp-collapseHeadingButton",  # the arrow that folds a heading
}


#: of the rules, those that can be broken in the dark only
COLOURS = ("color-contrast", "link-in-text-block")


def findings(
    page: Page,
    theirs: Mapping[str, str] | None = None,
    least: str = "serious",
    rules: Sequence[str] | None = None,
) -> list[str]:
    """What is found of this impact or worse ("minor", "moderate", "serious", "critical"): rule and element, a line each.

    theirs: rule → a part of the HTML of elements that others made and that are passed over. rules: only these.
    """
    impacts = ["minor", "moderate", "serious", "critical"]
    page.evaluate(AXE_SCRIPT)
    # a colour on its way to another one would be found too faint: on a busy machine it is on its way for long
    page.evaluate("document.getAnimations().forEach(a => { try { a.finish(); } catch { a.cancel(); } })")
    options: dict[str, object] = {"resultTypes": ["violations"], "elementRef": False}
    if rules is not None:
        options["runOnly"] = list(rules)
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]}"
        for rule in found
        if impacts.index(rule["impact"]) >= impacts.index(least)
        for node in rule["nodes"]
        if not (theirs and theirs.get(rule["id"], "\0") in node["html"])
    ]
