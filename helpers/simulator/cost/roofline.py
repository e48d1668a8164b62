"""How long a kernel takes: the roofline over meta tensors.

    time = max(FLOPs / (share · peak FLOP/s), bytes / (share · peak bytes/s)) + ramp, at least the floor

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
FLOPs of matmuls, convolutions and attention come from torch.utils.flop_counter's registry (a multiply-add
is 2) and from `helpers.pytorch.flops`, which has what it lacks, factorisations roughly; everything else counts one FLOP an element. Bytes:
every input read once, every output written once, no cache between kernels (of sorts too, which go over theirs more often).
Tensor Cores take rows of whole 16 bytes: what is not, costs them more (`_effort`). Fused attention with is_causal leaves
out what the mask throws away, block by block (`_causal`). Convolutions of 16-bit numbers are
done with the channels last, so that other layouts are turned before and after (`_convolution`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

import torch

from helpers.pytorch.flops import factorisation
from helpers.pytorch.flops import formula as formula_of
from helpers.pytorch.tensors import channels_last, tensors
from helpers.simulator.accesses import place
from helpers.simulator.devices import Device
from helpers.simulator.machine import Load, Machine

#: family → a pattern of aten operator names, without leading and trailing underscores; the first that matches
FAMILIES: dict[str, str] = {
    "factorisation": r"^linalg_(?!.*norm)|^cholesky|^geqrf|^ormqr|^orgqr|^triangular_solve|^lu_",
    "cudnn attention": r"cudnn_attention",
    "efficient attention": r"efficient_attention",
    "attention": r"scaled_dot_product|flash_attention",
    "optimizer": r"^(foreach|fused)_(?!rms)",
    "convolution backward": r"convolution_backward",
    "convolution": r"convolution|^conv\dd",
    "matmul": r"mm$|^linear|^addmv|^mv$|^dot$",
    "batch norm backward": r"batch_norm.*backward",
    "batch norm": r"batch_norm",
    "normalisation": r"norm|softmax",
    "gather": r"embedding|^index|^gather|^scatter|^take|masked_select|nonzero",
    "reduction": r"^(sum|mean|a?max|a?min|argmax|argmin|var|std|nll_loss|logsumexp|cumsum|prod|any|all)",
    "copy": r"copy|clone|^cat$|^stack|^fill|^zero",
}
#: families bound by arithmetic; the others move bytes
ARITHMETIC = (
    "matmul", "linear", "bmm", "convolution", "convolution backward", "grouped", "depthwise", "attention", "cudnn attention",
    "efficient attention",
)  # fmt: skip
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
# In-place operators that write only the places they are given: the source read and written once, and not the whole tensor.
_AT_PLACES = {"index_copy_", "index_put_", "_index_put_impl_"}
# Operators that ask their input for nothing but its shape, and inputs of others that are saved and not read:
# nll_loss_backward fills and scatters (aten/src/ATen/native/cuda/Loss.cu).
_SHAPE_ONLY = {"new_zeros", "new_ones", "new_full"}
_UNREAD = {"nll_loss_backward": (1,), "nll_loss2d_backward": (1,)}
_CONVOLUTION = {"convolution", "_convolution", "cudnn_convolution", "convolution_backward"}
# Of these the H100's own rows tell two speeds: with the channels last, about that of other normalisations; else half of it and
# less. (Why was not measured; x has to be read once more when its mean is known.)
_BATCH_NORMS = ("batch norm", "batch norm backward")
# Products of int8 matrices, which cuBLASLt does and not cuBLAS.
_INT8_PRODUCTS = {"_int_mm", "_weight_int8pack_mm"}
_KINDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.int8: "int8", torch.float64: "fp64_tensor"}


class Work(NamedTuple):
    """What one kernel has to do. flops: operations; bytes: read plus written; kind: which peak applies;
    family: which share of that peak such kernels reach; effort: FLOPs that the kernel does for each that was asked for;
    serial: steps in it that can only follow each other, each at least a kernel's floor; name: of the kernel, if not
    its operator's."""

    flops: int
    bytes: int
    kind: str
    family: str = "elementwise"
    effort: float = 1.0
    serial: int = 0
    name: str = ""

    def part(self, share: float) -> Work:
        """That share of it."""
        return self._replace(flops=round(self.flops * share), bytes=round(self.bytes * share))


class _Operator(NamedTuple):
    """What never changes about one operator, and would cost more to ask for than to keep.

    name: without its namespace and overload; written: positions of the arguments that the schema says are written;
    formula: for its FLOPs, of `helpers.pytorch.flops`.
    """

    name: str
    full_name: str
    family: str
    library: str | None
    written: list[int]
    launches: bool
    formula: Callable[..., int] | None


@cache
def _operator(func: Any) -> _Operator:
    name, formula = str(func._schema.name).partition("::")[2], formula_of(func)
    library = None
    if name in _CONVOLUTION:
        library = "cuDNN"
    elif family(name) == "factorisation":
        library = "cuSOLVER"
    elif "mm" in name and formula is not None and name not in _INT8_PRODUCTS:
        library = "cuBLAS"
    arguments = enumerate(func._schema.arguments)
    return _Operator(
        name,
        str(func._overloadpacket),
        family(name),
        library,
        [i for i, a in arguments if a.alias_info is not None and a.alias_info.is_write],
        not (func.is_view or torch.Tag.inplace_view in func.tags or name in _NO_KERNEL),
        formula,
    )


def launches_kernel(func: Any, out: Any) -> bool:
    """Whether CUDA would launch something: not for views, bare allocations and questions about shapes."""
    op = _operator(func)
    # An operator without a tensor result may still write one of its arguments (torch._foreach_add_).
    return op.launches and (bool(op.written) or any(t.is_meta for t in tensors(out)))


def library(func: Any) -> str | None:
    """The library whose handle and workspace are made at the first such operator; None for plain kernels."""
    return _operator(func).library


def kernels(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> list[Work]:
    """The kernels of one dispatched operator, in order."""
    op = _operator(func)
    name = op.name
    if name in _CONVOLUTION:
        return _convolution(work(func, args, kwargs, out), func, args, out)
    # a copy, and masked_fill_ on it (aten/src/ATen/native/TensorAdvancedIndexing.cpp)
    if name == "masked_fill":
        todo, result = work(func, args, kwargs, out), _bytes(out)
        copy = Work(out.numel(), _bytes(args[0]) + result, "fp32", "copy", name="aten.clone")
        return [copy, todo._replace(bytes=todo.bytes - _bytes(args[0]) + result)]
    if op.family == "factorisation":
        return [_factorisation(_named(func, args) | kwargs, out)]
    return [work(func, args, kwargs, out)]


def work(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """FLOPs and bytes of one dispatched operator, as a single kernel."""
    op = _operator(func)
    name = op.name
    results = [t for t in tensors(out) if t.is_meta]
    inputs = [t for t in tensors((args, kwargs)) if t.is_meta]
    written = sum(_bytes(t) for t in results)
    if not results:  # in place on lists
        places = [i for i in op.written if i < len(args)]
        if name.startswith("_fused_") and kwargs.get("grad_scale") is None:
            places.remove(1)  # gradients are written only when unscaled: native/cuda/fused_adam_utils.cuh
        results = [t for i in places for t in tensors(args[i]) if t.is_meta]
        written = sum(_bytes(t) for t in results)
    if name in _WRITE_ONLY:
        inputs = inputs[1:]
    if name in _AT_PLACES:
        results = [max(inputs[1:], key=torch.Tensor.numel)]
        written = results[0].numel() * inputs[0].element_size()
        read = _read(inputs[1:])
    elif name in _GATHER:
        read = written + _read(inputs[1:])
    elif name.endswith("_like") or name in _SHAPE_ONLY:
        read = 0
    else:
        unread = _UNREAD.get(name, ())
        read = _read([t for i, t in enumerate(inputs) if i not in unread])
    effort, family = 1.0, op.family
    if op.formula is not None:
        flops = int(op.formula(*args, **kwargs, out_val=out))
        kind = _library_kind(name, next((t.dtype for t in inputs), torch.float32))
        if op.family == "matmul":
            effort = _effort([*inputs, *results], kind)
            if kind == "fp32":
                family = _product(results[0], inputs[-1])
        elif "attention" in family:
            effort = _causal(_named(func, args) | kwargs)
    else:
        if family in _BATCH_NORMS and any(map(channels_last, inputs)):
            family = "normalisation"
        flops = max(sum(t.numel() for t in results), sum(t.numel() for t in inputs[:1]))
        kind = "fp64" if any(t.dtype == torch.float64 for t in results) else "fp32"
    return Work(flops, read + written, kind, family, effort)


def seconds(todo: Work, card: Device, sms: float = 1.0, bandwidth: float = 1.0) -> float:
    """Roofline time of the kernel on that card, in seconds. sms, bandwidth: the shares that others leave to it."""
    reached = card.reached(todo.family, todo.kind)
    peak = card.peak_flops.get(todo.kind, card.peak_flops["fp32"])
    compute = todo.flops * todo.effort / (reached.flop_share * peak * sms)
    memory = todo.bytes / (reached.bandwidth_share * card.memory_bytes_per_s * bandwidth)
    floor = card.assumptions.kernel_floor_s
    return with_ramp(max(compute, memory), reached.ramp_s, floor) + todo.serial * floor


@lru_cache(maxsize=4096)
def family(operator: str) -> str:
    """The family of an aten operator's name, e.g. "addmm" → "matmul"; "elementwise" for all the rest."""
    name = operator.strip("_")
    if name in ("index_add", "max_pool2d_with_indices", "threshold_backward"):
        return "elementwise"
    return next((f for f, pattern in FAMILIES.items() if re.search(pattern, name)), "elementwise")


def with_ramp(busy_s: float, ramp_s: float, floor_s: float) -> float:
    """Busy time and what a kernel loses at its start and end, at least the floor.

    The loss grows with the kernel up to ramp_s, so that a kernel at the floor stays near the floor: there the
    device is mostly free, and other streams' kernels run beside it.
    """
    return max(busy_s + ramp_s * busy_s / (busy_s + max(ramp_s / 10, floor_s)), floor_s)


def launch(machine: Machine, func: Any, works: list[Work], dtype: torch.dtype | None) -> None:
    """One operator on the host, and its kernels on the device."""
    if machine.works is not None:
        machine.works += works
    op = _operator(func)
    machine.launch(op.full_name, [load(machine, one) for one in works], op.library, dtype)


def load(machine: Machine, todo: Work) -> Load:
    """One kernel's work as the machine takes it."""
    card, taken = machine.card, machine.sm_share
    beside = None
    if taken is not None:  # next to a collective, which takes its share of the SMs, and one of the bandwidth
        beside = lambda share: seconds(todo, card, 1 - taken, 1 - share)  # noqa: E731
    return Load(seconds(todo, card), todo.flops, todo.bytes, beside, todo.name)


def _bytes(tensor: torch.Tensor) -> int:
    """Distinct bytes behind a tensor: an expanded dimension (stride 0) is one element long."""
    if tensor.is_contiguous():
        return tensor.nbytes
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
    if dtype == torch.float32 and "attention" in name:
        # Whatever is allowed for products: three products of TF32 parts make one of fp32 (OpMultiplyAddFastF32 in
        # aten/src/ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h)
        return "fp32"
    if dtype == torch.float32:
        # On by default for convolutions, off for matmuls. Both ways of setting it can be read here; the older
        # names raise where a program used the newer ones.
        backends: Any = torch.backends
        of = backends.cudnn.conv if name in _CONVOLUTION else backends.cuda.matmul
        return "tf32" if of.fp32_precision == "tf32" else "fp32"
    if "float8" in str(dtype):
        return "fp8"
    return _KINDS.get(dtype, "fp32")


# ----------------------------------------------------------------------- rows of 16 bytes, and layouts

#: bytes that rows of a product are aligned to → FLOPs that Tensor Cores do for each that counts. 4 and 8: TF32 products of
#: HTA's traces on A100s (measured.csv). 2: GPT-2's product of 8,192 × 768 with 50,257 tokens in fp16 and bf16, recorded on an
#: H100 (`calibration.recorded`: 5.0 ms, where 0.9 would be the share of others); many small ones at once, as of a ViT's 197
#: tokens, lose little (timm's steps on an RTX 3090, measured_steps.csv)
_UNALIGNED, _UNALIGNED_BATCH = {8: 1.8, 4: 1.8, 2: 5.5}, 1.2
_TENSOR_CORES = {"tf32": 4, "fp16": 8, "bf16": 8}  # kind → elements in 16 bytes


def _product(result: torch.Tensor, second: torch.Tensor) -> str:
    """The family of a product in fp32, for which cuBLAS has other kernels by layout: "bmm" of many small ones; "linear"
    where the second matrix is transposed, as in nn.Linear's forward; "matmul"."""
    if result.dim() == 3:
        return "bmm"
    return "linear" if second.dim() == 2 and second.stride(0) == 1 < second.stride(1) else "matmul"


def _effort(matrices: list[torch.Tensor], kind: str) -> float:
    """What a product costs its Tensor Cores beside what it asks for.

    They are fed 16 bytes at a time: "most efficient with multiples of 16 bytes" (NVIDIA, Matrix Multiplication
    Background User's Guide, "Requirements to Use Tensor Cores").
    """
    if kind not in _TENSOR_CORES:
        return 1.0
    rows = [
        max(t.stride()[-2:]) * t.element_size() for t in matrices if t.dim() > 1 and min(t.shape[-2:]) > 1
    ]
    aligned = gcd(16, *rows)
    return _UNALIGNED_BATCH if aligned == 2 and matrices[-1].dim() == 3 else _UNALIGNED.get(aligned, 1.0)


_BLOCK = 128  # queries by keys that a kernel of attention takes at a time (its names on an H100 end in 64x128x64, 128x128x8, …)


def _causal(named: dict[str, Any]) -> float:
    """The share of the blocks on and below the diagonal, which a fused kernel goes through where is_causal is set.

    FLOPs are counted without it, as torch.utils.flop_counter does.
    """
    queries, keys = (named[name].shape[-2] for name in ("query", "key"))
    if not named.get("is_causal") or queries != keys:
        return 1.0
    return 0.5 + 0.5 / max(queries / _BLOCK, 1.0)


def _convolution(todo: Work, func: Any, args: tuple[Any, ...], out: Any) -> list[Work]:
    """The convolution, and where its tensors are not channels_last, the kernels that turn them for it and back.

    cuDNN's 16-bit kernels for Tensor Cores want the channels last, and channels in whole 16 bytes; tensors in another
    layout are transposed, and channels padded (NVIDIA, Convolutional Layers User's Guide, "Tensor Layouts in
    Memory: NCHW vs NHWC" and "Channels In and Out"). Backward is two convolutions: each turns what it reads.
    """
    step, named = _TENSOR_CORES.get(todo.kind), _named(func, args)
    given, weight, groups = named["input"], named["weight"], named.get("groups", 1)
    if groups == given.shape[1] > 1:  # depthwise: nothing for Tensor Cores to do
        return [todo._replace(kind="fp32" if step else todo.kind, family="depthwise")]
    if groups > 1:
        todo = todo._replace(family="grouped")
    if step is None:
        return [todo]
    inner, outer = weight.shape[1], weight.shape[0] // groups  # (where it is transposed, the other way round)
    # A group is a product of its own, and blocks of products are 32 wide at the least.
    least = step if groups == 1 else 32
    padded = [-(-channels // least) * least / channels for channels in (inner, outer)]
    todo = todo._replace(effort=prod(padded) if groups == 1 else max(padded))
    if todo.kind == "tf32" or groups > 1 or any(map(channels_last, (given, weight))):
        return [todo]
    results, grad = [t for t in tensors(out) if t.dim() > 1], named.get("grad_output")
    # Backward reads its gradient twice: for the input's and for the weight's.
    before = [given, weight] if grad is None else [*[grad] * len(results), given, weight]
    turned = [Work(0, 2 * _bytes(t), "fp32", "copy", name="cudnn.nchwToNhwcKernel") for t in before]
    back = [Work(0, 2 * _bytes(t), "fp32", "copy", name="cudnn.nhwcToNchwKernel") for t in results]
    return [*turned, todo, *back]


def _named(func: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments by their names in the schema."""
    return {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}


# --------------------------------------------------------------------------------------- factorisations


def _factorisation(named: dict[str, Any], out: Any) -> Work:
    """linalg.*, through panels of 32 columns that come one after another, three kernels each. Nothing of it was measured."""
    matrix = next(t for t in tensors(list(named.values())))
    n = min((1, *matrix.shape)[-2:])
    flops = factorisation(matrix)
    nbytes = matrix.nbytes + sum(_bytes(t) for t in tensors(out) if t.is_meta)
    wide = matrix.dtype in (torch.float64, torch.complex128)
    return Work(flops, nbytes, "fp64_tensor" if wide else "fp32", "factorisation", serial=3 * -(-n // 32))
