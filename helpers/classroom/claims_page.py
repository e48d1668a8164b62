"""docs/claims.md: every claim with its verdict, verdict by verdict, from what lesson 18's executed notebook carries."""

import html
import re
from pathlib import Path

from helpers.classroom.collecting import tables
from helpers.lesson import VERDICTS_MIME, sources
from helpers.lesson.claim import RULES
from helpers.lessons.sources_on_trial.verdicts import HERE, Verdict
from helpers.text.tables import breakable

#: the title of each lesson's page, by its folder
Titles = dict[str, str]

HEAD = """# Every claim, and its verdict

What the sources say, what was measured, and what came of it. The build writes this page from the runs of the lessons:
nothing in it is typed. [{title}]({path}) counts the claims by source and by subject, and
[adding-a-source.md](adding-a-source.md) says how a source comes in.

A claim is one sentence of a source, in English and, below it, as the source has it. A sentence that a source says twice
stands here once. It was tried with the PyTorch of this course: a sentence that was true when it was written may be refuted
today.

| verdict | when it is given | claims |
| --- | --- | --- |
{rules}

| source | title and author |
| --- | --- |
{sources}

The number near the end of a row leads to the lesson that tried the claim; behind it stands where in the lesson.
"""


def rows(notebook: Path) -> list[Verdict]:
    """The claims in a notebook's outputs; [] where it carries none."""
    return [Verdict(**row) for table in tables(notebook)[:1] for row in table[VERDICTS_MIME]["claims"]]


def page(claims: list[Verdict], titles: Titles) -> str:
    """The page's text. titles: folder of a lesson → its title."""
    by_word = {word: [c for c in claims if c.word == word] for word in RULES}
    rules = [f"| [{word}](#{word}) | {RULES[word]} | {len(some)} |" for word, some in by_word.items()]
    about = [f"| {key} | {sources.signed(key)}: {of['title']} |" for key, of in sources.every().items()]
    text = [
        HEAD.format(
            title=titles.get(HERE, HERE),
            path=_address(HERE),
            rules="\n".join(rules),
            sources="\n".join(about),
        )
    ]
    for word, some in by_word.items():
        if some:
            text.append(f"\n## {word.capitalize()}\n\n{RULES[word]}\n")
        for source in dict.fromkeys(c.source for c in some):
            shown = [[_claimed(c), _judged(c, titles)] for c in some if c.source == source]
            text.append(
                f"\n### {word.capitalize()}: {source}\n\n{_table(['claim', 'what came of it'], shown)}\n"
            )
    return "\n".join(text)


def _claimed(claim: Verdict) -> str:
    says = "" if claim.says == claim.claim else f"<br><sub>{_plain(claim.says)}</sub>"
    return f"{_plain(claim.claim)} ({_plain(claim.section)}){says}"


def _judged(claim: Verdict, titles: Titles) -> str:
    parts = [f"**{claim.word}**{_plain(claim.verdict[len(claim.word) :])}"]
    if claim.measured:
        parts.append(f"Found: {_plain(claim.measured)}. *{claim.evidence}*")
    links = ", ".join(
        f'[{name[:2]}]({_address(name)} "{titles.get(name, name)}")'
        for name in (claim.lesson, *claim.also)
        if name
    )
    if links:
        parts.append(f"{links}: {_plain(claim.experiment)}")
    return "<br>".join(parts)


def _address(lesson: str) -> str:
    return f"../notebooks/{lesson}/{lesson}.ipynb"


def _table(columns: list[str], cells: list[list[str]]) -> str:
    """cells: Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *cells])


def _plain(text: str) -> str:
    """Text as Markdown in one line of a table: bars, underlines and stars are no marks, and long names may be broken."""
    parts = html.escape(text.replace("\n", " "), quote=False).split("`")
    safe = [breakable(re.sub(r"([_*|])", r"\\\1", part)) for part in parts]
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(safe))
