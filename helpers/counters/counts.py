"""What a run did, as plain numbers."""

from dataclasses import dataclass, field, fields
from textwrap import wrap
from typing import Any

from helpers.text.sizes import size_text

#: letters of a line, which a cell of JupyterLab shows whole
LINE = 110
#: keeps a name and its number on one line
_TIMES = "\N{NO-BREAK SPACE}×"
_READ = "aten._local_scalar_dense"
_MEANING = {
    "operators": "dispatched, views and backward included", "views": "of them: other looks at the same bytes",
    "copies": "of them: elements put elsewhere, unchanged", "new_storages": "blocks of memory made",
    "bytes_allocated": "of all blocks made", "peak_live_bytes": "the most at once, of those made here",
    "live_bytes": "still there at the end, of those made here", "saved_bytes": "kept for backward, parameters left out",
    "syncs": "times that the CPU would wait for a GPU", "flops": "of products, convolutions and attention",
}  # fmt: skip


@dataclass(repr=False, slots=True)
class Counts:
    """What a run did. ``*bytes`` are bytes, the rest numbers of things. Equal when all counters are equal.

    >>> count(lambda: x.t().contiguous()).by_operator
    {'aten.t': 1, 'aten.clone': 1}
    """

    result: Any = field(default=None, compare=False)
    """What ``fn`` returned (None in the ``with`` form)."""

    operators: int = 0
    """aten operators dispatched, views and backward included. ``detach``, ``alias`` and ``lift_fresh`` are
    left out: they start no kernel and make nothing, and autograd calls them of its own accord."""

    by_operator: dict[str, int] = field(default_factory=dict)
    """``"aten.add"`` → times, in order of first use. Overloads share a name; ``aten.add_`` is another."""

    views: int = 0
    """Operators whose results are only other looks at an input's storage."""

    copies: int = 0
    """Operators of :data:`helpers.counters.COPIES`: elements put elsewhere, unchanged."""

    new_storages: int = 0
    """Storages made."""

    bytes_allocated: int = 0
    """Bytes of all storages made, of each block that a storage took later (``resize_``, ``out=``), and of memory of Python's or
    NumPy's that operators write into."""

    peak_live_bytes: int = 0
    """Most bytes alive at once, of those allocated in the run."""

    live_bytes: int = 0
    """Bytes still alive at the end, of those allocated in the run. The result is one of the living."""

    saved_bytes: int = 0
    """Bytes of the storages that autograd kept for backward, summed over the run: each storage once and
    whole, whether made in the run or before it; nn.Parameters left out."""

    syncs: int = 0
    """Times the CPU would wait for the GPU, were the tensors there."""

    sync_by: dict[str, int] = field(default_factory=dict)
    """``"aten._local_scalar_dense"`` (.item(), bool(), float(), int()) or ``"Tensor.tolist"`` → times."""

    flops: int = 0
    """Floating-point operations of matmuls, convolutions and attention: torch.utils.flop_counter's formulas,
    and ours for what it counts as 0: the CPU's flash attention, products by other names, fused layers, linalg."""

    allocations: list[tuple[str, int]] = field(default_factory=list)
    """(operator, bytes) of each allocation, in order."""

    def as_dict(self) -> dict[str, Any]:
        """All counters as plain data, without ``result``; later changes here do not show there."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "result"}
        return {k: value if isinstance(value, int) else type(value)(value) for k, value in values.items()}

    def __str__(self) -> str:
        numbers = {name: value for name, value in self.as_dict().items() if isinstance(value, int)}
        lines = [
            f"{name:<16}{value:>15,}  {size_text(value) if 'bytes' in name else '':>8}  {_MEANING[name]}"
            for name, value in numbers.items()
        ]
        for title, table in (("operators", self.by_operator), ("syncs", self.sync_by)):
            if table:
                lines += wrap(f"{title}: {_ranked(table)}", LINE, subsequent_indent="  ")
        if calm := self.by_operator.get(_READ, 0) - self.sync_by.get(_READ, 0):
            lines.append(f"{_READ} ×{calm} of these read a number that is on the CPU anyway: no sync")
        return "\n".join(lines).replace(_TIMES, " ×")

    __repr__ = __str__


def _ranked(table: dict[str, int], most: int = 16) -> str:
    """Names with their numbers, the largest first."""
    ranked = sorted(table.items(), key=lambda each: -each[1])
    more = f", and {len(ranked) - most} more" if len(ranked) > most else ""
    return ", ".join(f"{name}{_TIMES}{n}" for name, n in ranked[:most]) + more
