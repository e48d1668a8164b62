"""Every recorded experiment beside its simulation: how far off the simulator is.

python -m helpers.lessons.beside           the table
python -m helpers.lessons.beside --page    write it into docs/recording.md, after new recordings or a change of the simulator: a minute
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from helpers import recordings, trace
from helpers.lessons import record
from helpers.text.terminal import lenient

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"
MARK = "<!-- made by python -m helpers.lessons.beside --page -->"
HEAD = (
    "| experiment | what | values | simulated ÷ recorded: median | least | most |\n|---|---|---|---|---|---|"
)
CARD = "H100"
#: what a table's column is called → what is compared
_TIMES, _BYTES = ("seconds", "us", "_s", "_us"), ("bytes", "reserved", "allocated")
#: columns that are results, and not compared
_SEEN = ("kernels", "first", "same", "refused", "segments")


def names() -> list[str]:
    """The experiments that are recorded on that card, in order. The calibration's compare operators by themselves."""
    found = (name for name in record.load_all() if recordings.load(name, device=CARD) is not None)
    return [name for name in found if not name.startswith("calibration/")]


def row(name: str) -> str:
    """Lines of the table: of one experiment's times, and of its bytes."""
    recording = recordings.load(name, device=CARD)
    assert recording is not None, name
    real = recordings.show(name, simulated=CARD, prefer="recorded")
    simulated = _kept(name) or recordings.show(name, simulated=CARD, prefer="simulated")
    lines = []
    for what, pairs in _pairs(real, simulated).items():
        ratios = [after / before for before, after in pairs]
        spread = " | ".join(
            f"{value:.2f}" if value >= 0.01 else f"{value:.4f}"
            for value in (median(ratios), min(ratios), max(ratios))
        )
        lines.append(f"| `{name}` | {what} | {len(ratios)} | {spread} |")
    return "\n".join(lines) or f"| `{name}` | names of kernels alone | 0 | — | — | — |"


def _kept(name: str) -> recordings.Result | None:
    """The capstone's ladders are simulated beforehand: each takes half a minute."""
    from helpers.lessons.capstone.reference_repair import shown

    rows = shown.kept().get(name.removeprefix("17/"))
    return recordings.Result(name, shown.SIMULATED, table=rows) if rows else None


def _pairs(real: recordings.Result, simulated: recordings.Result) -> dict[str, list[tuple[float, float]]]:
    """What is compared → (recorded, simulated), zeros left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    values = (dict(_values(result)) for result in (real, simulated))
    ours, theirs = values
    for (at, what), value in ours.items():
        if value and theirs.get((at, what)):
            found.setdefault(what.partition(":")[0], []).append((value, theirs[at, what]))
    return found


def _values(result: recordings.Result) -> Iterator[tuple[tuple[str, str], float]]:
    """(of which row, what) → value. A row is told by its columns that hold no result: a recording has rows that no simulation has."""
    for entry in result.table or []:
        told = sorted((column, str(value)) for column, value in entry.items() if not _what(column))
        row = repr([(column, value) for column, value in told if column not in _SEEN])
        for column, value in entry.items():
            if _what(column):
                yield (row, f"{_what(column)}:{column}"), value
    if result.trace is not None:
        idle = trace.idle(result.trace)
        yield ("", "length of the trace"), idle.span
        yield ("", "share of it that the GPU computes"), idle.busy


def _what(column: str) -> str:
    return "time" if column.endswith(_TIMES) else "bytes" if column.endswith(_BYTES) else ""


def table() -> str:
    return "\n".join([HEAD, *map(row, names())])


def main() -> None:
    lenient()
    made = table()
    if "--page" in sys.argv[1:]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
        after = rest.partition(MARK)[2]
        PAGE.write_text(f"{before}{MARK}\n\n{made}\n\n{MARK}{after}", encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
