"""The table of GPUs: what their makers publish, and what this course assumes about the host beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

__all__ = ["DEVICES", "Assumptions", "Device", "device"]


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet says. UNCALIBRATED: round numbers of the right order, until recordings replace them.

    Shares are of the published peak; times are seconds of host (Python and driver) or of device.
    """

    flop_share: float = 0.70  # of peak FLOP/s, large dense kernels
    bandwidth_share: float = 0.80  # of peak bytes/s, device memory and PCIe
    kernel_floor_s: float = 2e-6  # shortest kernel: start, drain, nothing to do
    launch_latency_s: float = 2e-6  # from the host's call to the earliest start on an idle device
    operator_s: float = 6e-6  # host: one operator through Python, dispatcher and cudaLaunchKernel
    view_s: float = 1e-6  # host: an operator that launches nothing
    event_s: float = 1e-6  # host: record, query or wait
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


# Dense Tensor Core rates: where a data sheet prints them "with sparsity", half of the printed figure.
_H100 = Device(
    name="H100",
    peak_flops={
        "fp64": 34e12,
        "fp64_tensor": 67e12,
        "fp32": 67e12,
        "tf32": 494.7e12,
        "fp16": 989.4e12,
        "bf16": 989.4e12,
        "fp8": 1978.9e12,
        "int8": 1978.9e12,
    },
    memory_bytes_per_s=3.35e12,
    memory_bytes=80 * 10**9,
    pcie_bytes_per_s=64e9,
    source="NVIDIA, H100 Tensor Core GPU data sheet (SXM5, 80 GB, PCIe Gen5 x16), and NVIDIA H100 "
    "Tensor Core GPU Architecture white paper",
)
_A100 = Device(
    name="A100",
    peak_flops={
        "fp64": 9.7e12,
        "fp64_tensor": 19.5e12,
        "fp32": 19.5e12,
        "tf32": 156e12,
        "fp16": 312e12,
        "bf16": 312e12,
        "int8": 624e12,
    },
    memory_bytes_per_s=2.039e12,
    memory_bytes=80 * 10**9,
    pcie_bytes_per_s=32e9,
    source="NVIDIA, A100 Tensor Core GPU data sheet (SXM, 80 GB, PCIe Gen4 x16)",
)
# A real T4 (70 W) throttles below these clocks under sustained load; that is not simulated.
_T4 = Device(
    name="T4",
    peak_flops={"fp64": 0.254e12, "fp32": 8.1e12, "fp16": 65e12, "int8": 130e12},
    memory_bytes_per_s=320e9,
    memory_bytes=16 * 10**9,
    pcie_bytes_per_s=16e9,
    source="NVIDIA, T4 Tensor Core GPU data sheet (16 GB, PCIe Gen3 x16); fp64, 1/32 of fp32, from the "
    "NVIDIA Turing GPU Architecture white paper",
)

DEVICES: dict[str, Device] = {d.name: d for d in (_H100, _A100, _T4)}


def device(name: str | Device, **assumptions: Any) -> Device:
    """The table's entry (or your own), with some assumptions replaced. ValueError for an unknown name."""
    if isinstance(name, str):
        if name not in DEVICES:
            raise ValueError(
                f"no GPU named {name!r}: there are {', '.join(DEVICES)}, or pass a Device of your own"
            )
        name = DEVICES[name]
    unknown = set(assumptions) - {f.name for f in fields(Assumptions)}
    if unknown:
        raise ValueError(f"no assumption named {', '.join(sorted(unknown))}: see devices.Assumptions")
    return replace(name, assumptions=replace(name.assumptions, **assumptions)) if assumptions else name
