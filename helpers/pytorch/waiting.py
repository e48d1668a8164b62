"""What makes the host wait for the GPU: one list for whoever counts operators, simulates a GPU or reads a trace.

Three layers see the same wait, each by a name of its own: the program's call, the aten operator, CUDA's call.

    program                                aten operator                   CUDA's call
    gpu.synchronize()                      none                            cudaDeviceSynchronize
    stream.synchronize()                   none                            cudaStreamSynchronize
    event.synchronize()                    none                            cudaEventSynchronize
    .item(), bool(), float(), int()        aten._local_scalar_dense        cudaMemcpyAsync, cudaStreamSynchronize
    linalg.inv(), svd(), …                 `FACTORISATIONS`                cudaMemcpyAsync, cudaStreamSynchronize
    x[mask], nonzero(), unique(), …        tagged as data-dependent        cudaMemcpyAsync, cudaStreamSynchronize
    .cpu(), copy_() to the host            aten._to_copy, aten.copy_       cudaMemcpyAsync, cudaStreamSynchronize

Only names and arguments are looked at, so nothing here imports torch.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence
from typing import Any

WAITS_IN = {
    "synchronize": "cudaDeviceSynchronize",
    "stream.synchronize": "cudaStreamSynchronize",
    "event.synchronize": "cudaEventSynchronize",
    "print": "cudaStreamSynchronize",
}
"""A call outside of operators → CUDA's call in which the host waits. (print reads a tensor's numbers.)"""
OPERATORS_WAIT_IN = "cudaStreamSynchronize"
"""CUDA's call in which the host waits for an operator's answer, after the copy that brings it."""

# CUDA runtime API: these return when the device has caught up ("CUDA Runtime API", sections Stream, Event and
# Device Management). cudaMemcpy is the blocking copy. hip…: the same on AMD, cu…: the driver's own names.
_CALLS = re.compile(
    r"(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize\b|(cuda|hip)Memcpy(2D|3D)?$|hipMemcpyWithStream$"
)

SELECTS = frozenset({"aten.index", "aten._unsafe_index"})
WRITES = frozenset({"aten.index_put", "aten.index_put_", "aten._index_put_impl_"})
INDEXING = SELECTS | WRITES


# Factorisations of matrices ask the device whether they went well: "When inputs are on a CUDA device, this function
# synchronizes that device with the CPU" (torch.linalg's documentation). inv, solve, cholesky and lu_factor ask by an
# operator of its own, and inv_ex and its like by none unless check_errors=True.
FACTORISATIONS = frozenset(
    f"aten.{name}" for name in (
        "_linalg_check_errors", "_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "linalg_pinv",
    )
)  # fmt: skip


def call_waits(name: str) -> bool:
    """Whether this call of CUDA's runtime or driver makes the host wait for the device, whatever it is given.

    A cudaMemcpyAsync from or to pageable memory waits too; that only shows at its copy (`Trace.waiting`).
    """
    return bool(_CALLS.match(name))


def operator_waits(name: str, data_dependent: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Must the host know what this operator computes (a value, or its result's size) before it goes on?

    name: of the aten operator; data_dependent: whether torch tags it with data_dependent_output or
    dynamic_output_shape. The arguments decide where the tags cannot.
    """
    if name in FACTORISATIONS or kwargs.get("check_errors"):
        return True
    match name:
        case "aten.repeat_interleave":
            return kwargs.get("output_size") is None
        case "aten._to_copy":
            target = kwargs.get("device") or args[0].device
            return _to_host(args[0].device, target, kwargs.get("non_blocking"))
        case "aten.copy_":
            return _to_host(args[1].device, args[0].device, any(args[2:3]))
    return counts_a_mask(name, args) if name in INDEXING else data_dependent


def counts_a_mask(name: str, args: Sequence[Any], number_on_device: bool = False) -> bool:
    """Whether an operator of `INDEXING` has to count the True in a mask, which the host waits for.

    One number under one mask alone is masked_fill_, which need not. A number that is on the device (number_on_device)
    does not go that way: its mask becomes indices, by nonzero() (ATen/native/TensorAdvancedIndexingUtils.h,
    canDispatchToMaskedFill; a Python number is a CPU tensor there: python_variable_indexing.cpp, THPVariable_setitem).
    """
    indices = [index for index in args[1] if index is not None]
    masks = [index for index in indices if str(index.dtype) in ("torch.bool", "torch.uint8")]
    if not masks or name in SELECTS:
        return bool(masks)
    fills = len(indices) == 1 and args[2].numel() == 1 and not any(args[3:4])
    return not fills or number_on_device


def _to_host(source: Any, target: Any, non_blocking: Any) -> bool:
    kind = str(getattr(target, "type", target)).partition(":")[0]
    return source.type not in ("cpu", "meta") and kind == "cpu" and not non_blocking


def lists_in(index: Any) -> list[Any]:
    """The Python lists and NumPy arrays in x[index]: each becomes a tensor on x's device by a blocking copy.

    (torch/csrc/autograd/python_variable_indexing.cpp, sequenceToVariable; a list that holds more than numbers is read as
    a tuple: treatSequenceAsTuple.)
    """
    parts = [index]
    if isinstance(index, tuple) or (isinstance(index, list) and not all(map(_number, index))):
        parts = list(index)
    return [part for part in parts if isinstance(part, (list, range)) or type(part).__name__ == "ndarray"]


def _number(item: Any) -> bool:
    return isinstance(item, numbers.Number)  # NumPy's are registered there
