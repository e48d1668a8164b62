"""Several processes from one notebook, what they send to each other, and what that costs at any size.

    from helpers import ranks

    def job(width):                          # a function of the notebook; torch.distributed is ready in it
        x = torch.full((width,), dist.get_rank())
        with ranks.sent() as record:
            dist.all_reduce(x)
        return x, record

    ranks.run_ranks(job, 2, 1024)            # [(tensor, record), (tensor, record)]: one result a rank

    with ranks.fake(1024):                   # rank 0 of 1,024, and nobody there: calls and bytes are counted
        with ranks.sent() as record:
            step(model, batch)

    ranks.wire_bytes("all_reduce", payload, 1024)                   # what each rank puts on its link
    ranks.seconds("all_reduce", payload, 1024, "InfiniBand NDR")    # the α–β model's time

Names load on first use: the process from which ranks are forked must have run nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .costs import ALGORITHMS as ALGORITHMS
    from .costs import bus_factor as bus_factor
    from .costs import seconds as seconds
    from .costs import wire_bytes as wire_bytes
    from .errors import CannotCarry as CannotCarry
    from .errors import RankError as RankError
    from .faking import fake as fake
    from .links import LINKS as LINKS
    from .links import Link as Link
    from .records import Call as Call
    from .records import Record as Record
    from .running import prepare as prepare
    from .running import run_ranks as run_ranks
    from .sending import sent as sent

_EXPORTS = {
    "run_ranks": "running", "prepare": "running", "RankError": "errors", "CannotCarry": "errors",
    "sent": "sending", "Record": "records", "Call": "records", "fake": "faking",
    "wire_bytes": "costs", "seconds": "costs", "bus_factor": "costs", "ALGORITHMS": "costs",
    "LINKS": "links", "Link": "links",
}  # fmt: skip

__all__ = [
    "ALGORITHMS", "CannotCarry", "Call", "LINKS", "Link", "RankError", "Record", "bus_factor", "fake", "prepare",
    "run_ranks", "seconds", "sent", "wire_bytes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
