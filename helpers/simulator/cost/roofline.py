"""How long a kernel takes: the roofline over meta tensors.

    time = max(FLOPs / (share · peak FLOP/s), bytes / (share · peak bytes/s)) + ramp, at least the floor

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
FLOPs of matmuls, convolutions and attention come from torch.utils.flop_counter's registry (a multiply-add
is 2); everything else counts one FLOP an element. Bytes: every input read once, every output written once,
no cache between kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from helpers.simulator.accesses import place
from helpers.simulator.devices import Device
from helpers.simulator.machine import Load, Machine
from helpers.tensors import tensors

#: family → a pattern of aten operator names, without leading and trailing underscores; the first that matches
FAMILIES: dict[str, str] = {
    "attention": r"scaled_dot_product|flash_attention|efficient_attention",
    "optimizer": r"^(foreach|fused)_",
    "convolution": r"convolution|^conv\dd",
    "matmul": r"mm$|^linear|^addmv|^mv$|^dot$",
    "normalisation": r"norm|softmax",
    "gather": r"embedding|^index|^gather|^scatter|^take|masked_select|nonzero",
    "reduction": r"^(sum|mean|a?max|a?min|argmax|argmin|var|std|nll_loss|logsumexp|cumsum|prod|any|all)",
    "copy": r"copy|clone|^cat$|^stack|^fill|^zero",
}
# Operators that only make or re-label memory.
_NO_KERNEL = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
    *("_unsafe_view", "_reshape_alias", "lift", "lift_fresh", "set_", "resize_", "resize_as_", "alias"),
    *("is_same_size", "is_pinned", "record_stream", "sym_size", "sym_stride", "sym_numel", "stride", "size"),
}
# In-place operators that write their first argument without reading it.
_WRITE_ONLY = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
# Operators that read only the rows they pick: as many bytes as they write, and not the whole table.
_GATHER = {"embedding", "gather", "index", "index_select", "take", "masked_select", "nll_loss_forward"}
# Operators that ask their input for nothing but its shape, and inputs of others that are saved and not read:
# nll_loss_backward fills and scatters (aten/src/ATen/native/cuda/Loss.cu).
_SHAPE_ONLY = {"new_zeros", "new_ones", "new_full"}
_UNREAD = {"nll_loss_backward": (1,), "nll_loss2d_backward": (1,)}
_CONVOLUTION = {"convolution", "_convolution", "cudnn_convolution", "convolution_backward"}
# Products of int8 matrices that flop_counter has no formula for; the inner dimension is their first input's last.
_INT8_PRODUCTS = {"_int_mm", "_weight_int8pack_mm"}
_KINDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.int8: "int8", torch.float64: "fp64_tensor"}


@dataclass(frozen=True)
class Work:
    """What one kernel has to do. flops: operations; bytes: read plus written; kind: which peak applies;
    family: which share of that peak such kernels reach."""

    flops: int
    bytes: int
    kind: str
    family: str = "elementwise"

    def part(self, share: float) -> Work:
        """That share of it."""
        return replace(self, flops=round(self.flops * share), bytes=round(self.bytes * share))


def launches_kernel(func: Any, out: Any) -> bool:
    """Whether CUDA would launch something: not for views, bare allocations and questions about shapes."""
    if func.is_view or torch.Tag.inplace_view in func.tags or _name(func) in _NO_KERNEL:
        return False
    # An operator without a tensor result may still write one of its arguments (torch._foreach_add_).
    return any(t.is_meta for t in tensors(out)) or bool(_written(func))


def library(func: Any) -> str | None:
    """The library whose handle and workspace are made at the first such operator; None for plain kernels."""
    if _name(func) in _CONVOLUTION:
        return "cuDNN"
    return "cuBLAS" if "mm" in _name(func) and func._overloadpacket in flop_registry else None


def work(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """FLOPs and bytes of one dispatched operator."""
    name = _name(func)
    results = [t for t in tensors(out) if t.is_meta]
    inputs = [t for t in tensors([args, kwargs]) if t.is_meta]
    written = sum(_bytes(t) for t in results)
    if not results:  # in place on lists
        places = [i for i in _written(func) if i < len(args)]
        if name.startswith("_fused_") and kwargs.get("grad_scale") is None:
            places.remove(1)  # gradients are written only when unscaled: native/cuda/fused_adam_utils.cuh
        results = [t for i in places for t in tensors(args[i]) if t.is_meta]
        written = sum(_bytes(t) for t in results)
    if name in _WRITE_ONLY:
        inputs = inputs[1:]
    if name in _GATHER:
        read = written + _read(inputs[1:])
    elif name.endswith("_like") or name in _SHAPE_ONLY:
        read = 0
    else:
        read = _read([t for i, t in enumerate(inputs) if i not in _UNREAD.get(name, ())])
    if func._overloadpacket in flop_registry:
        flops = int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=out))
        kind = _library_kind(name, next((t.dtype for t in inputs), torch.float32))
    elif name in _INT8_PRODUCTS:
        flops = 2 * results[0].numel() * inputs[0].shape[-1]
        kind = _library_kind(name, inputs[0].dtype)
    else:
        flops = max(sum(t.numel() for t in results), sum(t.numel() for t in inputs[:1]))
        kind = "fp64" if any(t.dtype == torch.float64 for t in results) else "fp32"
    return Work(flops, read + written, kind, family(name))


def seconds(todo: Work, card: Device, sms: float = 1.0, bandwidth: float = 1.0) -> float:
    """Roofline time of the kernel on that card, in seconds. sms, bandwidth: the shares that others leave to it."""
    reached = card.reached(todo.family, todo.kind)
    peak = card.peak_flops.get(todo.kind, card.peak_flops["fp32"])
    compute = todo.flops / (reached.flop_share * peak * sms)
    memory = todo.bytes / (reached.bandwidth_share * card.memory_bytes_per_s * bandwidth)
    return with_ramp(max(compute, memory), reached.ramp_s, card.assumptions.kernel_floor_s)


@lru_cache(maxsize=4096)
def family(operator: str) -> str:
    """The family of an aten operator's name, e.g. "addmm" → "matmul"; "elementwise" for all the rest."""
    name = operator.strip("_")
    if name in ("index_add", "max_pool2d_with_indices", "threshold_backward"):
        return "elementwise"
    return next((f for f, pattern in FAMILIES.items() if re.search(pattern, name)), "elementwise")


def with_ramp(busy_s: float, ramp_s: float, floor_s: float) -> float:
    """Busy time and what a kernel loses at its start and end, at least the floor.

    The loss grows with the kernel up to ramp_s, so that a kernel at the floor stays at the floor: there the
    device is mostly free, and other streams' kernels run beside it.
    """
    return max(busy_s + ramp_s * busy_s / (busy_s + floor_s), floor_s)


def launch(
    machine: Machine, func: Any, todo: Work, dtype: torch.dtype | None, shares: list[float] | None = None
) -> None:
    """One operator on the host, one kernel on the device; for lists of tensors a kernel for each share."""
    parts = [todo if share == 1 else todo.part(share) for share in ([1.0] if shares is None else shares)]
    loads = [_load(machine, part) for part in parts]
    machine.launch(str(func._overloadpacket), loads, library(func), dtype)


def _load(machine: Machine, todo: Work) -> Load:
    card, taken = machine.card, machine.sm_share
    beside = None
    if taken is not None:  # next to a collective, which takes its share of the SMs, and one of the bandwidth
        beside = lambda share: seconds(todo, card, 1 - taken, 1 - share)  # noqa: E731
    return Load(seconds(todo, card), todo.flops, todo.bytes, beside)


@cache
def _name(func: Any) -> str:
    return str(func._schema.name).partition("::")[2]


@cache
def _written(func: Any) -> list[int]:
    """Positions of the arguments that the schema says are written."""
    arguments = enumerate(func._schema.arguments)
    return [i for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]


def _bytes(tensor: torch.Tensor) -> int:
    """Distinct bytes behind a tensor: an expanded dimension (stride 0) is one element long."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count * tensor.element_size()


def _read(inputs: list[torch.Tensor]) -> int:
    """Distinct bytes of these tensors: what two of them share (x + x, x @ x.t()) is read once."""
    sizes = [_bytes(t) for t in inputs]
    if len(inputs) < 2:
        return sum(sizes)
    shared: dict[int, list[int]] = {}
    for i, tensor in enumerate(inputs):
        shared.setdefault(tensor.untyped_storage()._cdata, []).append(i)
    total = 0
    for places in shared.values():
        mine = sum(sizes[i] for i in places)
        total += min(mine, _union([place(inputs[i])[:2] for i in places])) if len(places) > 1 else mine
    return total


def _union(spans: list[tuple[int, int]]) -> int:
    total = end = 0
    for begin, until in sorted(spans):
        total += max(0, until - max(begin, end))
        end = max(end, until)
    return total


def _library_kind(name: str, dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        # On by default for convolutions, off for matmuls. Both ways of setting it can be read here; the older
        # names raise where a program used the newer ones.
        backends: Any = torch.backends
        of = backends.cudnn.conv if name in _CONVOLUTION else backends.cuda.matmul
        return "tf32" if of.fp32_precision == "tf32" else "fp32"
    if "float8" in str(dtype):
        return "fp8"
    return _KINDS.get(dtype, "fp32")
