"""A page to hand on as one file: the course's one look for it, light and dark, and a policy that lets nothing be fetched or run."""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from helpers.text.tables import Table

#: nothing is fetched, nothing runs, nothing is sent; the one style is the page's own
POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
#: of a bar's parts, in their order: each is told apart from its neighbours in light and dark
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#A0568C", "#8A6D00", "#6b7280")


def page(title: str, body: str, mark: str = "") -> str:
    """The page's HTML. body: HTML. mark: one more element of its head."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{mark}
<meta http-equiv="Content-Security-Policy" content="{POLICY.format(style=f"sha256-{digest}")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def shown(table: Table, name: str) -> str:
    """A table in the page's own style, as its policy lets no other in. name: what it is, for who cannot see it; a wide one is
    moved with the keyboard too."""
    text = re.sub(r' style="[^"]*"', "", table._repr_html_())
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{text}</div>'


def bar(parts: Sequence[tuple[str, float, str]], name: str) -> str:
    """Shares of a whole as one bar, and below it what each is. parts: a name, its share (0 … 1), and what stands beside it."""
    pieces, keys, at = [], [], 0.0
    for (what, share, beside), colour in zip(parts, COLOURS * len(parts), strict=False):
        pieces.append(f'<rect x="{100 * at:.2f}%" width="{100 * share:.2f}%" height="100%" fill="{colour}"/>')
        swatch = f'<svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2" fill="{colour}"/></svg>'
        keys.append(f"<li>{swatch} {escape(what)} <b>{share:.0%}</b> <small>{escape(beside)}</small></li>")
        at += share
    said = ", ".join(f"{what} {share:.0%}" for what, share, _ in parts)
    drawn = f'<svg class="bar" width="100%" height="24" role="img" aria-label="{escape(f"{name}: {said}")}">'
    return f'{drawn}{"".join(pieces)}</svg><ul class="keys">{"".join(keys)}</ul>'
