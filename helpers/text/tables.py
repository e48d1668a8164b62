"""Tables that say where their numbers come from: aligned text for terminals and tests, HTML for notebooks."""

import csv
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: a wall-clock number ("≈ 12.3 µs") takes this many characters, so that columns do not move from run to run
CLOCK_WIDTH = 12

#: evidence → what stands beside its times: how far off they may be. Filled by who knows it (simulator.devices)
BESIDE: dict[str, str] = {}
_LINK = re.compile(r"\[([^\]]+)\]\((https://[^\s)]+)\)")
_LONG = re.compile(r"[^\s<>]{16,}")
_TIME = re.compile(r"(?<![^\W\d_])(ns|µs|ms)\b|\d s\b")


@dataclass(frozen=True)
class Table:
    """Rows of cells with a header, an evidence label and an optional caption."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    evidence: str
    caption: str = ""

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*shown, f"[{self.label}]" + (f" {self.caption}" if self.caption else "")])

    @property
    def label(self) -> str:
        """The evidence, and in a table with times how far off such times may be."""
        beside = BESIDE.get(self.evidence)
        timed = beside and any(_TIME.search(text) for line in (self.columns, *self.rows) for text in line)
        return f"{self.evidence}; {beside}" if timed else self.evidence

    def _repr_html_(self) -> str:
        left = 'style="text-align:left;vertical-align:top"'
        # a column without a name has no header: a screen reader would say one and then nothing
        head = "".join(
            f"<th {left}>{html.escape(c)}</th>" if c else f"<td {left}></td>" for c in self.columns
        )
        rows = ["".join(f"<td {left}>{breakable(cell_html(c))}</td>" for c in row) for row in self.rows]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = f" · {html.escape(self.caption)}" if self.caption else ""
        note = f"<b>{html.escape(self.label)}</b>{caption}"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{note}</small>"

    def show(self) -> None:
        """Display in a notebook, print elsewhere; for tables in the middle of a cell."""
        try:
            from IPython.display import display
        except ImportError:
            print(self)
        else:
            display(self)


class ShownAsTable:
    """Shows as what its ``table()`` gives."""

    def table(self) -> Table:
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def cell_html(text: str) -> str:
    """As HTML, escaped; what stands between back-ticks as code, and ``[words](https://…)`` as a link."""
    parts = html.escape(text).split("`")
    if len(parts) % 2 == 0:  # an odd number of back-ticks is left as it is
        return "`".join(parts)
    return "".join(
        f"<code>{part}</code>" if i % 2 else _LINK.sub(r'<a href="\2">\1</a>', part)
        for i, part in enumerate(parts)
    )


def breakable(text: str) -> str:
    """HTML whose long names may go on in a new line after ``_`` and the like: a table is as wide as its longest word."""

    def broken(word: re.Match[str]) -> str:
        return word[0] if "://" in word[0] else re.sub(r"(?<=[_.(,=])(?=[^\W\d])", "<wbr>", word[0])

    return _LONG.sub(broken, text)


def table(
    rows: Sequence[Any], columns: Sequence[str] | None = None, *, evidence: str, caption: str = ""
) -> Table:
    """A table from dicts (columns from the first one's keys) or from sequences with ``columns``.

    evidence: where the numbers come from, e.g. ``"live (CPU)"``, ``"simulated (H100)"``, ``"arithmetic"``.
    """
    if not evidence:
        raise ValueError("a table needs its evidence label, e.g. evidence='live (CPU)'")
    if columns is None:
        if not rows or not isinstance(rows[0], Mapping):
            raise ValueError("table() wants rows of dicts, or columns=[...] for rows of values")
        columns = list(rows[0])
    plain = [[row[c] for c in columns] if isinstance(row, Mapping) else list(row) for row in rows]
    for row in plain:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} cells, the table {len(columns)} columns: {row}")
    return Table(tuple(columns), tuple(tuple(_cell(v) for v in row) for row in plain), evidence, caption)


def number_text(number: float) -> str:
    """A count, or a mean of counts with one decimal."""
    return f"{number:,.1f}".removesuffix(".0")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text.ljust(CLOCK_WIDTH) if text.startswith("≈") else text


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file, by column; lines that begin with # are its comments."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
