"""Markdown to HTML that needs no network and no script: formulas become MathML, which browsers draw by themselves."""

import html

from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath


class _Renderer(IPythonRenderer):
    def block_math(self, body: str) -> str:
        return _formula(body, "block")

    def inline_math(self, body: str) -> str:
        return _formula(body, "inline")

    def latex_environment(self, name: str, body: str) -> str:
        return _formula(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")

    def _embed_image_or_attachment(self, src: str) -> str:
        return src  # nbconvert's ends the page where an attachment is missing; the course has none

    def block_mermaidjs(self, code: str) -> str:
        return f"<pre>{html.escape(code)}</pre>"


def to_html(source: str, trusted: bool) -> str:
    """HTML of Markdown. trusted: tags and links in it stay as they are (the course's own text); else they are text."""
    renderer = _Renderer(
        escape=not trusted, allow_harmful_protocols=trusted, exclude_anchor_links=True, attachments={}
    )
    return str(MarkdownWithMath(renderer=renderer).render(source))


def _formula(tex: str, display: str) -> str:
    try:
        return str(convert(tex, display=display))
    except Exception:  # what the converter does not know is shown as it was typed
        return f"<code>{html.escape(tex)}</code>"
