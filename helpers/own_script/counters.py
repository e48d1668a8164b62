"""From a counter to the lines that raise it: of any callable, on a simulated card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from helpers import memory
from helpers.counters import count
from helpers.counters.watch import running as counting
from helpers.own_script.host_time import MEASURED
from helpers.own_script.places import NOWHERE, Place, running
from helpers.own_script.running import Run, on
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

#: counter → what it is, and how an amount of it is said
COUNTERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "operators": ("operators that the host ran", lambda n: f"{n:,.0f}"),
    "launches": ("kernels and copies put into a queue", lambda n: f"{n:,.0f}"),
    "syncs": ("times that the host waited for the device", lambda n: f"{n:,.0f}"),
    "wait_s": ("time of the host in those waits", format_seconds),
    "step_s": ("time of the host, waits included", format_seconds),
    "python_s": ("time of the host in Python and the loader, measured here", format_seconds),
    "busy_s": ("time of its kernels on the device", format_seconds),
    "flops": ("FLOPs of its kernels", lambda n: f"{n:,.0f}"),
    "copied_bytes": ("bytes copied between host and device", lambda n: size_text(round(n))),
    "saved_bytes": ("bytes saved for a backward pass", lambda n: size_text(round(n))),
    "peak_bytes": ("bytes of the GPU's memory at the peak", lambda n: size_text(round(n))),
}


def where(
    job: Callable[[], Any], counter: str, *, card: str = "H100", most: int = 10, factor: float = 0.0
) -> Table:
    """The lines that raise a counter most in one call of ``job``, and how much of it each is.

    counter: a name of `COUNTERS`. card: a name of `helpers.simulator.DEVICES`; "cuda" is that card within. factor: seconds of
    the card's host for one second of Python here; 0 leaves that out, and the table is the same on every machine. A backward
    pass belongs to the lines whose forward pass made it. ValueError for no counter; what ``job`` raises.

    >>> import torch
    >>> def job():
    ...     x = torch.ones(64, 64, device="cuda")
    ...     return (x @ x).sum().item()
    >>> where(job, "syncs").rows[0][-1]
    '1 (100%)'
    """
    if counter not in COUNTERS:
        raise ValueError(f"no counter {counter!r}: there are {', '.join(COUNTERS)}")
    saved: dict[Place, float] = defaultdict(float)
    with on(card, factor=factor) as run, _saving(saved) if counter == "saved_bytes" else nullcontext():
        job()
        snapshot = memory.read(run.gpu) if counter == "peak_bytes" else None
    amounts = saved or (_at_peak(snapshot, run) if snapshot is not None else by_line(run, counter))
    whole, (heading, said) = sum(amounts.values()), COUNTERS[counter]
    largest = sorted(amounts.items(), key=lambda item: -item[1])
    rows = [
        (str(place), f"`{place.text}`", place.function, f"{said(amount)} ({amount / whole:.0%})")
        for place, amount in largest[:most]
        if amount
    ]
    left = sum(amount for _, amount in largest[most:])
    caption = f"in other lines: {said(left)}" if left else ""
    return table(rows, ["line", "code", "in", heading], evidence=run.gpu.evidence, caption=caption)


def by_line(run: Run, counter: str) -> dict[Place, float]:
    """How much of a counter each line has, over all that ran."""
    amounts: dict[Place, float] = defaultdict(float)
    for number, record in enumerate(run.gpu.host):
        waits = record.kind in ("sync", "queue full")
        measured = record.kind == "work" and record.name in MEASURED
        amounts[run.marks.of(number).place] += {
            "operators": record.kind == "operator",
            "syncs": record.kind == "sync",
            "wait_s": record.duration_s * waits,
            "step_s": record.duration_s,
            "python_s": record.duration_s * measured,
        }.get(counter, 0.0)
    for kernel in run.gpu.kernels:
        copies = kernel.kind.startswith("copy")
        amounts[run.marks.of(kernel.call).place] += {
            "launches": 1,
            "busy_s": kernel.duration_s * (not copies),
            "flops": kernel.flops,
            "copied_bytes": kernel.bytes * copies,
        }.get(counter, 0.0)
    return amounts


@contextmanager
def _saving(lines: dict[Place, float]) -> Iterator[None]:
    """Within this block the bytes that autograd keeps are added up by the line that runs."""

    def saved(nbytes: int) -> None:
        lines[running() or NOWHERE] += nbytes

    with count(), mock.patch.object(counting.watches[-1].ledger, "saved", saved):
        yield


def _at_peak(snapshot: memory.Snapshot, run: Run) -> dict[Place, float]:
    """The bytes that each line's blocks had when most was allocated."""
    files = {Path(file).name: file for file in run.marks.files}  # a snapshot has a file's name alone
    history, amounts = memory.history(snapshot), defaultdict[Place, float](float)
    for block in history.heap(int(history.allocated.argmax())).live.values():
        frame = next((f for f in block.frames if f.user and f.file in files), None)
        amounts[Place(files[frame.file], frame.line, frame.function) if frame else NOWHERE] += block.size
    return amounts
