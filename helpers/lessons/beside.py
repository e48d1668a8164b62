"""Every recorded experiment beside its simulation: how far off the simulator is.

python -m helpers.lessons.beside           the table
python -m helpers.lessons.beside --page    write it into docs/recording.md, after new recordings or a change of the simulator: two minutes
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
HEAD = "| experiment | card | what | values | simulated ÷ recorded: median | least | most |\n|---|---|---|---|---|---|---|"
CARDS = ("H100", "H200")
#: what a table's column is called → what is compared
_TIMES, _BYTES = ("seconds", "us", "_s", "_us"), ("bytes", "reserved", "allocated")
#: columns that are results, and not compared
_SEEN = ("kernels", "first", "same", "refused", "segments")


def names(card: str) -> list[str]:
    """The experiments that are recorded on that card, in order. The calibration's compare operators by themselves; the capstone's
    ladders, which take half a minute each to simulate, are kept for one card."""
    left_out = ("calibration/",) if card == CARDS[0] else ("calibration/", "17/")
    known = [name for name in record.load_all() if not name.startswith(left_out)]
    return [name for name in known if (r := recordings.load(name, device=card)) and card in r.device]


def row(name: str, card: str = CARDS[0]) -> str:
    """Lines of the table: of one experiment's times, and of its bytes."""
    real = recordings.show(name, simulated=card, prefer="recorded")
    simulated = _kept(name) or recordings.show(name, simulated=card, prefer="simulated")
    lines = []
    for what, pairs in _pairs(real, simulated).items():
        ratios = [after / before for before, after in pairs]
        spread = " | ".join(
            f"{value:.2f}" if value >= 0.01 else f"{value:.4f}"
            for value in (median(ratios), min(ratios), max(ratios))
        )
        lines.append(f"| `{name}` | {card} | {what} | {len(ratios)} | {spread} |")
    return "\n".join(lines) or f"| `{name}` | {card} | names of kernels alone | 0 | — | — | — |"


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
    return "\n".join([HEAD, *(row(name, card) for card in CARDS for name in names(card))])


def steps() -> str:
    """Whole training steps: what they took, what their kernels took, and what these take simulated."""
    lines = [
        "| a training step | card | recorded, ms | of it kernels | simulated kernels | simulated ÷ recorded kernels |",
        "|---|---|---|---|---|---|",
    ]
    for card in CARDS:
        real, simulated = (
            recordings.show("calibration/steps", simulated=card, prefer=way).table or []
            for way in ("recorded", "simulated")
        )
        for whole in (r for r in real if not r["op"]):
            of = whole["step"]
            ours, theirs = (
                sum(r["us"] for r in rows if r["step"] == of and r["op"]) / 1e3 for rows in (real, simulated)
            )
            times = f"{whole['us'] / 1e3:.1f} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.2f}"
            lines.append(f"| {of} | {card} | {times} |")
    return "\n".join(lines)


def launches() -> str:
    """What the CPU takes for a call on tiny tensors, as recorded; a simulated one takes the same for each kernel."""
    made: dict[str, list[str]] = {}
    for r in recordings.show("calibration/launches", simulated=CARDS[0], prefer="recorded").table or []:
        made.setdefault(r["call"], []).append(f"{r['us']:.1f}")
    rows = [f"| `{call}` | {' | '.join(['—'] * (len(us) < 2) + us)} |" for call, us in made.items()]
    return "\n".join(["| a call, µs | without autograd | with |", "|---|---|---|", *rows])


def main() -> None:
    lenient()
    made = "\n\n".join([table(), steps(), launches()])
    if "--page" in sys.argv[1:]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
        after = rest.partition(MARK)[2]
        PAGE.write_text(f"{before}{MARK}\n\n{made}\n\n{MARK}{after}", encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
