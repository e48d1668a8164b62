"""What connects GPUs: bandwidth in each direction, and what a message costs whatever its size; each with its
source.

Bandwidths are the published rates, before any protocol takes its part: NCCL itself reckons with less (its
src/graph/topo.h: 20.6 of 25 GB/s for an NVLink 4, 40.1 of 50 for an NVLink 5, 12 of 12.5 for 100 Gbit/s).

Latencies are what NCCL reckons a step of its ring to cost with full-size messages ("Ring/Simple" in hwLat of
its src/graph/tuning.cc: NVLink 3.4 µs, PCI 5.7 µs, network 9.6 µs). It tells neither generations nor kinds of
network apart, so nor does this table; for small messages NCCL has faster ways (0.5, 1.0 and 2.7 µs) at a
third of the bandwidth or less.
"""

from dataclasses import dataclass

_TUNING = "NCCL, src/graph/tuning.cc (commit 01afd20): hwLat, Ring/Simple"
_ASSUMED = "assumed: TCP through the kernel, a round number; no source was found that could be cited"


@dataclass(frozen=True)
class Link:
    """bytes_per_s: in one direction. latency_s: a message's, whatever its size. verified: whether both have a source."""

    name: str
    bytes_per_s: float
    latency_s: float
    source: str
    latency_source: str = _TUNING
    verified: bool = True


_NVLINK = (
    "nvidia.com/en-us/data-center/nvlink (a copy of its text was read): 18 links of 100 GB/s, 1.8 TB/s, twice the "
    "generation before; both directions together, so half of it here"
)
_PCIE = "PCI-SIG: {} GT/s a lane, 16 lanes, 128 of 130 bits are data; protocol headers not counted (read at hpc-notes.pages.dev/reference/pcie)"
_NDR = "400 Gbit/s a port (four lanes of 100), read at yobitel.com/knowledge-base/infiniband-ndr"
_HDR = "200 Gbit/s a port (four lanes of 50), read at alpha-one-index.github.io"
_RATE = "the rate in its name, in bits a second; headers not counted"

#: name → :class:`Link`
LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link("NVLink 5", 900e9, 3.4e-6, _NVLINK),
        Link("NVLink 4", 450e9, 3.4e-6, _NVLINK),
        Link("PCIe 5.0 x16", 32e9 * 16 / 8 * 128 / 130, 5.7e-6, _PCIE.format(32)),
        Link("PCIe 4.0 x16", 16e9 * 16 / 8 * 128 / 130, 5.7e-6, _PCIE.format(16)),
        Link("InfiniBand NDR", 400e9 / 8, 9.6e-6, _NDR),
        Link("InfiniBand HDR", 200e9 / 8, 9.6e-6, _HDR),
        Link("Ethernet 400G", 400e9 / 8, 9.6e-6, _RATE + "; latency as with RDMA (RoCE)"),
        Link("Ethernet 100G", 100e9 / 8, 9.6e-6, _RATE + "; latency as with RDMA (RoCE)"),
        Link("Ethernet 25G", 25e9 / 8, 30e-6, _RATE, _ASSUMED, verified=False),
        Link("Ethernet 10G", 10e9 / 8, 30e-6, _RATE, _ASSUMED, verified=False),
    )
}
