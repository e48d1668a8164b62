"""What connects GPUs: bandwidth in each direction, and what a message costs whatever its size; each with its
source.

Bandwidths are the published rates, before any protocol takes its part: NCCL itself reckons with less (its
src/graph/topo.h: 20.6 of 25 GB/s for an NVLink 4, 40.1 of 50 for an NVLink 5, 12 of 12.5 for 100 Gbit/s).

Latencies are what NCCL reckoned a step of its ring to cost with full-size messages ("Ring/Simple" in hwLat of
its src/graph/tuning.cc of 2020: NVLink 3.4 µs, PCI 5.7 µs, network 9.6 µs, which since 2.18 is 14 µs). It tells
neither generations nor kinds of network apart, so nor does this table; for small messages NCCL has faster ways
(0.5, 1.0 and 2.7 µs) at a third of the bandwidth or less.
"""

from dataclasses import dataclass
from pathlib import Path

from helpers.text.tables import read_rows


@dataclass(frozen=True)
class Link:
    """bytes_per_s: in one direction. latency_s: a message's, whatever its size; its source may be "assumed: …".

    >>> ranks.LINKS["NVLink 4"].bytes_per_s
    450000000000.0
    """

    name: str
    bytes_per_s: float
    latency_s: float
    source: str = ""
    latency_source: str = ""


def _link(row: dict[str, str]) -> Link:
    numbers = {column: float(row[column]) for column in ("bytes_per_s", "latency_s")}
    return Link(**row | numbers)  # type: ignore[arg-type]


#: name → :class:`Link`
LINKS: dict[str, Link] = {row["name"]: _link(row) for row in read_rows(Path(__file__).with_name("links.csv"))}
