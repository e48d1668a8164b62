"""docs/claims.md: every claim with its verdict, source by source, from what the last lesson's executed notebook carries."""

import json
from pathlib import Path
from typing import Any

from helpers.lesson import SOURCES, VERDICTS_MIME
from helpers.trials.verdicts import HERE, WORDS, Verdict

#: the title of each lesson's page, by its folder
Titles = dict[str, str]

HEAD = """# Every claim, and its verdict

What the sources say, what was measured, and what came of it. The build writes this page from the runs of the lessons:
nothing in it is typed. The last lesson, [{title}]({path}), is about it, and [adding-a-source.md](adding-a-source.md)
says how a source comes in.
"""


def rows(notebook: Path) -> list[Verdict]:
    """The claims in a notebook's outputs; [] where it carries none."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        for output in cell.get("outputs", ()):
            if told := output.get("data", {}).get(VERDICTS_MIME):
                return [Verdict(**row) for row in told["claims"]]
    return []


def page(claims: list[Verdict], titles: Titles) -> str:
    """The page's text. titles: folder of a lesson → its title."""
    text = [HEAD.format(title=titles.get(HERE, HERE), path=_address(HERE))]
    counted = [[sum(c.source == s and c.word == w for c in claims) for w in WORDS] for s in SOURCES]
    total = [sum(column) for column in zip(*counted, strict=True)]
    text.append(_table(["source", *WORDS], [[_title(s), *map(str, n)] for s, n in zip(SOURCES, counted, strict=True)] + [["all", *map(str, total)]]))  # fmt: skip
    for source in SOURCES:
        text.append(
            f"\n## {SOURCES[source]['english']}\n\n{SOURCES[source]['title']}, {SOURCES[source]['author']}\n"
        )
        shown = [
            [c.section, c.claim, c.measured, _bold(c), c.evidence or "—", _where(c, titles)]
            for c in claims
            if c.source == source
        ]
        text.append(_table(["section", "claim", "measured", "verdict", "evidence", "where"], shown))
    return "\n".join(text) + "\n"


def _title(source: str) -> str:
    about = SOURCES[source]
    title = f"[{about['english']}]({about['url']})" if "url" in about else about["english"]
    return f"{title} ({about['author']})"


def _bold(claim: Verdict) -> str:
    return f"**{claim.word}**{claim.verdict[len(claim.word) :]}"


def _where(claim: Verdict, titles: Titles) -> str:
    if not claim.lesson:
        return "—"
    return f"[{titles.get(claim.lesson, claim.lesson)}]({_address(claim.lesson)}), {claim.experiment}"


def _address(lesson: str) -> str:
    return f"../notebooks/{lesson}/{lesson}.ipynb"


def _table(columns: list[str], cells: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """In one line of a table: bars, underlines and stars outside of code are no marks."""
    if text == "---":
        return text
    parts = text.replace("\n", " ").replace("|", "\\|").split("`")
    plain = [
        p if i % 2 or p.startswith(("[", "**")) else p.replace("<", "&lt;").replace("_", "\\_")
        for i, p in enumerate(parts)
    ]
    return "`".join(plain)
