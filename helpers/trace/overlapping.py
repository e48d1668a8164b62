"""How much of the copying and communicating is hidden behind computing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from helpers.seconds import format_seconds

from . import spans
from .columns import Trace, Work


@dataclass(frozen=True, repr=False)
class Overlap:
    """Seconds. Each family is the time in which at least one piece of it runs, however many do.

    compute: kernels; memory: copies inside the device and fills; copy: between host and device, or devices;
    communication: collectives. exposed_…: while it runs and neither kernels nor memory work do. busy: anything
    runs. span: from the first start to the last end.
    """

    span: float
    busy: float
    compute: float
    memory: float
    copy: float
    communication: float
    copy_and_compute: float
    communication_and_compute: float
    copy_and_communication: float
    exposed_copy: float
    exposed_communication: float
    evidence: str

    @property
    def idle(self) -> float:
        """Nothing runs at all, copies included (HTA's "idle time")."""
        return self.span - self.busy

    @property
    def hidden_copy(self) -> float:
        """Share of the copying that runs beside kernels; 0 where nothing is copied."""
        return self.copy_and_compute / self.copy if self.copy else 0.0

    @property
    def hidden_communication(self) -> float:
        """Share of the communication that runs beside kernels; 0 where there is none."""
        return self.communication_and_compute / self.communication if self.communication else 0.0

    def as_dict(self) -> dict[str, float]:
        return {key: value for key, value in asdict(self).items() if key != "evidence"}

    def __repr__(self) -> str:
        about = "≈ " if self.evidence.startswith("live") else ""
        rows = [
            f"  {key:<26} {about}{format_seconds(value)}" for key, value in self.as_dict().items() if value
        ]
        return "\n".join([f"overlap [{self.evidence}]", *rows])


def window_of(t: Trace, work: Work, start_s: float | None, end_s: float | None, what: str) -> tuple[int, int]:
    """Nanoseconds of the window: by default from the first start of device work to its last end."""
    begin = round(start_s * 1e9) if start_s is not None else int(work.start_ns[0])
    end = round(end_s * 1e9) if end_s is not None else int(work.end_ns.max())
    if not begin < end:
        raise ValueError(
            f"{what}: the window from {begin / 1e9} s to {end / 1e9} s is empty; the GPU works from "
            f"{work.start_ns[0] / 1e9} s to {work.end_ns.max() / 1e9} s"
        )
    return begin, end


def covered(work: Work, begin: int, end: int, *families: str) -> spans.Spans:
    """When work of these families runs, between two moments."""
    chosen = work.of(*families)
    return spans.clip(spans.union(work.start_ns[chosen], work.end_ns[chosen]), begin, end)


def overlap(t: Trace, start_s: float | None = None, end_s: float | None = None) -> Overlap:
    """Seconds of computing, copying and communicating, and of what runs at the same time.

    start_s, end_s: a window (None: from the first device work to the last). ValueError without GPU work.
    """
    work = t.need_gpu("overlap")
    begin, end = window_of(t, work, start_s, end_s, "overlap")
    compute, memory, copy, communication = (
        covered(work, begin, end, family) for family in ("compute", "memory", "copy", "communication")
    )
    away = spans.complement(covered(work, begin, end, "compute", "memory"), begin, end)
    busy = covered(work, begin, end, "compute", "memory", "copy", "communication")

    def seconds(*of: spans.Spans) -> float:
        found = of[0]
        for other in of[1:]:
            found = spans.intersection(found, other)
        return spans.length(found) / 1e9

    return Overlap(
        span=(end - begin) / 1e9, busy=seconds(busy), compute=seconds(compute), memory=seconds(memory),
        copy=seconds(copy), communication=seconds(communication),
        copy_and_compute=seconds(copy, compute),
        communication_and_compute=seconds(communication, compute),
        copy_and_communication=seconds(copy, communication),
        exposed_copy=seconds(copy, away), exposed_communication=seconds(communication, away),
        evidence=t.evidence,
    )  # fmt: skip
