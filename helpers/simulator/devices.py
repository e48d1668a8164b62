"""The table of GPUs: what their makers publish (cards.csv), what share of it kernels reach, and what is assumed about the host.

The shares, efficiencies.json, are fitted by `python -m helpers.calibration.fit --fit` on measurements
of real cards, and say which. A card that is not in them, or a kind of arithmetic that was not measured on it,
takes the family's median over the measured cards; a family that was never measured takes the two round
shares of `Assumptions`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from helpers.text.tables import BESIDE, read_rows

EFFICIENCIES = Path(__file__).with_name("efficiencies.json")

#: a family of operators without measurements takes the shares of this one
STANDS_IN = {
    "factorisation": "matmul", "linear": "matmul", "bmm": "matmul", "grouped": "convolution", "depthwise": "convolution",
    "convolution backward": "convolution", "batch norm": "normalisation", "batch norm backward": "normalisation",
    "cudnn attention": "attention", "efficient attention": "attention",
    "optimizer": "elementwise", "copy": "elementwise", "gather": "elementwise", "reduction": "normalisation",
}  # fmt: skip
#: a card of which nothing is fitted, made of the same chip as one of which much is
SAME_CHIP = {"H200": "H100"}


@dataclass(frozen=True)
class Efficiency:
    """Shares of the published FLOP/s and bytes/s that large kernels reach; ramp_s: seconds lost beside that."""

    flop_share: float
    bandwidth_share: float
    ramp_s: float = 0.0


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet says. Round numbers of the right order, until recordings of this course replace them.

    Shares are of the published peak; times are seconds of host (Python and driver) or of device. The two
    shares stand in where nobody has measured a kernel's family; set either, and they hold for
    every kernel.
    """

    flop_share: float = 0.70  # of peak FLOP/s, large dense kernels
    bandwidth_share: float = 0.80  # of peak bytes/s, device memory and PCIe
    kernel_floor_s: float = 2e-6  # shortest kernel: start, drain, nothing to do
    launch_latency_s: float = 2e-6  # from the host's call to the earliest start on an idle device
    operator_s: float = 6e-6  # host: one operator through Python, dispatcher and cudaLaunchKernel
    launch_s: float = 2.5e-6  # host: one more cudaLaunchKernel inside the same operator
    view_s: float = 1e-6  # host: an operator that launches nothing
    event_s: float = 1e-6  # host: record, query or wait
    graph_launch_s: float = 10e-6  # host: graph.replay(), whatever the graph holds
    graph_node_s: float = 1.5e-6  # host: to instantiate one node of a graph, when its capture ends
    # host: cudaMalloc or cudaFree of one segment, once a program has given some back. The medians of 28 and of 17 calls in a
    # Kineto trace of an A100 are 0.36 and 0.32 ms (Holistic Trace Analysis at f4d0062,
    # tests/data/cupti_profiler); in others of its traces some milliseconds
    segment_s: float = 0.3e-3
    sync_s: float = 4e-6  # host: to notice that the device is done, and return
    copy_floor_s: float = 2e-6  # shortest copy
    pageable_bytes_per_s: float = 8e9  # host thread staging ordinary memory for the copy engine
    # First uses. CUDA makes its context at the first call; it loads each kernel's code at its first launch
    # (CUDA_MODULE_LOADING=LAZY, the default since CUDA 11.7); cuBLAS and cuDNN set
    # themselves up.
    context_s: float = 0.2
    library_s: float = 30e-3
    kernel_load_s: float = 0.5e-3
    # Launches that may wait in one stream before the next one blocks the host. CUDA does not document the
    # depth; people who counted found about a thousand a stream (forums.developer.nvidia.com/t/68937).
    queue_depth: int = 1024
    # cudaMemcpyAsync from pageable memory returns at once up to 64 KB (CUDA Runtime API, "API synchronization
    # behavior"); above that the host stages the bytes and waits.
    staged_at_once_bytes: int = 64 * 1024


@dataclass(frozen=True)
class Device:
    """One GPU. peak_flops: kind of arithmetic → FLOP/s, dense (no structured sparsity). Bandwidths: bytes/s.

    Kinds: "fp64", "fp32" without Tensor Cores; "fp64_tensor", "tf32", "fp16", "bf16", "int8", "fp8" with
    them; a kind that the card lacks is absent and runs at fp32's rate.
    """

    name: str
    peak_flops: dict[str, float]
    memory_bytes_per_s: float
    memory_bytes: int
    pcie_bytes_per_s: float  # one direction
    source: str
    assumptions: Assumptions = field(default_factory=Assumptions)
    calibrated: bool = True  # False: the assumptions' two shares hold for every kernel
    capability: tuple[int, int] = (8, 0)  # compute capability, which attention kernels and bf16 depend on

    def reached(self, family: str = "elementwise", kind: str = "fp32") -> Efficiency:
        """The shares of the published peaks that one family's kernels reach (families: `cost.roofline`).

        Shares that the card's own assumptions state come first.
        """
        a, standard = self.assumptions, Assumptions
        stated = (a.flop_share, a.bandwidth_share) != (standard.flop_share, standard.bandwidth_share)
        if stated or not self.calibrated:
            return Efficiency(a.flop_share, a.bandwidth_share)
        return _look_up(self.name, family, kind)


@lru_cache(maxsize=1024)
def _look_up(card: str, family: str, kind: str) -> Efficiency:
    return stands_for(_shares(), (card, SAME_CHIP.get(card, card), "any"), family, kind)


def stands_for(
    known: Mapping[tuple[str, str, str], Efficiency], cards: Sequence[str], family: str, kind: str
) -> Efficiency:
    """Of these shares by card, family and kind: the first card's that has the family, or the one that stands in for it, in
    that kind, or the one next to it; the two round shares where none has."""
    kinds = [kind, "fp16", "any"] if kind in ("bf16", "int8", "fp8") else [kind, "any"]
    places = itertools.product((family, STANDS_IN.get(family, family)), cards, kinds)
    shares = (known[card, kin, k] for kin, card, k in places if (card, kin, k) in known)
    return next(shares, Efficiency(Assumptions.flop_share, Assumptions.bandwidth_share))


@lru_cache(maxsize=1)
def _shares() -> dict[tuple[str, str, str], Efficiency]:
    shares_of = {}
    for row in efficiencies()["shares"]:
        shares = row["flop_share"], row["bandwidth_share"], row["ramp_us"] / 1e6
        shares_of[row["card"], row["family"], row["kind"]] = Efficiency(*shares)
    return shares_of


@lru_cache(maxsize=1)
def efficiencies() -> dict[str, Any]:
    """The table of shares as it is kept: {"basis": where it comes from, "shares": [...], "steps": [...]}."""
    table: dict[str, Any] = json.loads(EFFICIENCIES.read_text(encoding="utf-8"))
    return table


def forget_efficiencies() -> None:
    """Read the table anew at its next use."""
    for cached in (efficiencies, _shares, _look_up):
        cached.cache_clear()


def steps_off_by() -> float:
    """How far the worst of the simulated steps is from its measurement, fitted or not: 0.2 is a fifth."""
    return max((abs(step["error"]) for step in efficiencies()["steps"]), default=1.0)


def _device(row: dict[str, str]) -> Device:
    """One line of cards.csv."""
    kinds = "fp64 fp64_tensor fp32 tf32 fp16 bf16 fp8 int8".split()
    major, minor = map(int, row["capability"].split("."))
    return Device(
        row["name"], {kind: float(row[kind]) for kind in kinds if row[kind]}, float(row["memory_bytes_per_s"]),
        int(row["memory_bytes"]), float(row["pcie_bytes_per_s"]), row["source"], capability=(major, minor),
    )  # fmt: skip


#: the cards of cards.csv, where the sources stand too
DEVICES: dict[str, Device] = {
    row["name"]: _device(row) for row in read_rows(Path(__file__).with_name("cards.csv"))
}

BESIDE |= {f"simulated ({name})": f"whole steps are off by up to {steps_off_by():.0%}" for name in DEVICES}


def device(name: str | Device, **assumptions: Any) -> Device:
    """The table's entry (or your own), with some assumptions replaced. ValueError for an unknown name."""
    if isinstance(name, str):
        if name not in DEVICES:
            known = ", ".join(DEVICES)
            raise ValueError(f"no GPU named {name!r}: there are {known}, or pass a Device of your own")
        name = DEVICES[name]
    unknown = set(assumptions) - {f.name for f in fields(Assumptions)}
    if unknown:
        raise ValueError(f"no assumption named {', '.join(sorted(unknown))}: see devices.Assumptions")
    if not assumptions:
        return name
    stated = {"flop_share", "bandwidth_share"} & set(assumptions)
    changed = replace(name.assumptions, **assumptions)
    return replace(name, assumptions=changed, calibrated=name.calibrated and not stated)
