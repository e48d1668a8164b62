"""docs/claims.md: every claim with its verdict, source by source, from what the last lesson's executed notebook carries."""

import html
import re
from pathlib import Path

from helpers.classroom.collecting import tables
from helpers.lesson import VERDICTS_MIME, sources
from helpers.lessons.sources_on_trial.verdicts import HERE, Verdict
from helpers.text.tables import breakable

#: the title of each lesson's page, by its folder
Titles = dict[str, str]

HEAD = """# Every claim, and its verdict

What the sources say, what was measured, and what came of it. The build writes this page from the runs of the lessons:
nothing in it is typed. The last lesson, [{title}]({path}), counts them by source and by subject, and
[adding-a-source.md](adding-a-source.md) says how a source comes in. Find a claim by its source, by the lesson that tried it,
or by a word, with the browser's search.
"""


def rows(notebook: Path) -> list[Verdict]:
    """The claims in a notebook's outputs; [] where it carries none."""
    return [Verdict(**row) for table in tables(notebook)[:1] for row in table[VERDICTS_MIME]["claims"]]


def page(claims: list[Verdict], titles: Titles) -> str:
    """The page's text. titles: folder of a lesson → its title."""
    text = [HEAD.format(title=titles.get(HERE, HERE), path=_address(HERE))]
    for source, about in sources.every().items():
        text.append(f"\n## {source}\n\n{sources.signed(source)}. Its title: {about['title']}\n")
        shown = []
        for c in claims:
            if c.source == source:
                measured = _plain(c.measured) + (f"<br>*{c.evidence}*" if c.evidence else "")
                shown.append([_plain(c.section), _plain(c.claim), measured, _judged(c, titles)])
        text.append(_table(["section", "claim", "measured, *evidence*", "verdict, where"], shown))
    return "\n".join(text) + "\n"


def _judged(claim: Verdict, titles: Titles) -> str:
    verdict = f"**{claim.word}**{_plain(claim.verdict[len(claim.word) :])}"
    if not claim.lesson:
        return verdict
    lesson = f"[{titles.get(claim.lesson, claim.lesson)}]({_address(claim.lesson)})"
    return f"{verdict}<br>{lesson}, {_plain(claim.experiment)}"


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
