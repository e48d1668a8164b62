"""Which kernels CUDA would take: for operators on lists of tensors (torch._foreach_*, _fused_*), attention, and what is
one kernel there and several elsewhere.

For attention the choice follows aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: on compute capability 9 and 10
cuDNN's for 16-bit tensors of four dimensions with heads of up to 128 (cuDNN after 9.15); flash for such of up to 256 without a
mask; the memory-efficient kernel for 32 bit and for masks; single operators ("math") for the rest.
torch.nn.attention.sdpa_kernel's choices are kept. On meta tensors PyTorch would take the slow path of single operators, and
on the CPU's, of `simulate(..., values=True)`, its own kernel.

CUDA packs a list into as few launches as a kernel's arguments can describe (multi_tensor_apply in PyTorch's
aten/src/ATen/native/cuda/MultiTensorApply.cuh, which torch installs under torch/include): tensors are cut into
chunks of 65,536 elements, one block each, and a launch ends when its table of tensors or of blocks is full.
The tables are those of torch 2.13 built with CUDA 13 (32 KB of arguments); `SMALL` is what builds with an earlier
CUDA have (4 KB), and torch 2.11 whatever it is built with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers.pytorch import private_torch
from helpers.simulator.operators.autocast import full_precision, lower_precision

_CHUNK = 65_536  # elements
aten = torch.ops.aten


@dataclass(frozen=True)
class Limits:
    """What one launch can describe. tensors: by number of lists (depth 1…5); norms: of the norm's second kernel."""

    tensors: tuple[int, ...]
    with_scalars: tuple[int, ...]
    blocks: int
    norms: int  # MAX_TENSORS_PER_KERNEL in ForeachReduceOp


LARGE = Limits((770, 448, 336, 252, 210), (672, 448, 336, 252, 210), 2240, 3200)
SMALL = Limits((110, 64, 48, 36, 30), (96, 64, 48, 36, 30), 320, 400)

# Operators on lists that have no Meta kernel: they only write their arguments, so nothing has to be computed.
_NO_META = {"_fused_sgd_", "_fused_adagrad_"}


def only_writes(func: Any, args: Sequence[Any]) -> bool:
    """Whether calling it on these meta tensors would change nothing, so that the call can be left out.

    In place, and lists that fit each other: PyTorch would go through the list in Python, tensor by tensor.
    """
    if not is_list_operator(func) or not _is_tensors(args[0] if args else None) or not args[0][0].is_meta:
        return False
    if _name(func) in _NO_META:
        return True
    if not _name(func).endswith("_"):
        return False
    shapes = [t.shape for t in args[0]]
    lists = [a for a in args[1:] if _is_tensors(a) and (a[0].dim() or not shapes[0])]
    return all(t.is_meta for ts in lists for t in ts) and all([t.shape for t in ts] == shapes for ts in lists)


@cache
def is_list_operator(func: Any) -> bool:
    name = _name(func)
    return name.startswith(("_foreach_", "_fused_", "_amp_foreach_")) and not name.startswith("_fused_rms")


def launches(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, limits: Limits = LARGE
) -> list[float]:
    """The kernels of one operator on lists: the share of its elements that each works on, in order.

    Tensors of one list that differ in type, or lists that differ in shape or stride, take the slow route: a
    kernel for each tensor (can_use_fast_route in aten/src/ATen/native/ForeachUtils.h).
    """
    name = _name(func)
    lists = [a for a in [*args, *kwargs.values()] if _is_tensors(a)]
    if name.startswith("_fused_"):
        lists = [ts for ts in lists if ts[0].dim() or not lists[0][0].dim()]  # the step counters ride along
    elif isinstance(out, (list, tuple)) and _is_tensors(out) and name != "_foreach_norm":
        lists.append(out)
    if not lists or not lists[0]:
        return []
    sizes = [t.numel() for t in lists[0]]
    total = sum(sizes) or 1
    if not name.startswith(("_fused_", "_amp_")) and not _fast(lists):
        return [size / total for size in sizes if size]
    scalars = "ScalarList" in func._overloadname
    places = (limits.with_scalars if scalars else limits.tensors)[min(len(lists), 5) - 1]
    shares = [done / total for done in _pack(sizes, places, limits.blocks)]
    if name in ("_foreach_norm", "_foreach_max"):
        # Partial results are zeroed before, and joined by a kernel behind (ForeachReduceOp.cu).
        return [0.0, *shares, *[0.0] * -(-len(sizes) // limits.norms)]
    return shares


def _pack(sizes: Sequence[int], places: int, blocks: int) -> list[int]:
    """multi_tensor_apply's loop: elements that go into each launch."""
    filled: list[int] = []
    taken = used = done = 0
    for size in sizes:
        if not size:
            continue
        taken += 1
        chunks = -(-size // _CHUNK)
        for chunk in range(chunks):
            used += 1
            last = chunk == chunks - 1
            done += size - chunk * _CHUNK if last else _CHUNK
            if used == blocks or (last and taken == places):
                filled.append(done)
                taken, used, done = 0 if last else 1, 0, 0
    return [*filled, done] if used else filled


def _fast(lists: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether the lists can share a kernel."""
    first = lists[0]
    for tensors in lists:
        if len(tensors) != len(first) or any(t.dtype is not tensors[0].dtype for t in tensors):
            return False
        if tensors is not first and any(
            a.shape != b.shape or a.stride() != b.stride() for a, b in zip(first, tensors, strict=True)
        ):
            return False
    return True


def _is_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], torch.Tensor)


@cache
def _name(func: Any) -> str:
    return str(func._schema.name).partition("::")[2]


def optimizers(device: torch.device) -> ExitStack:
    """Until the stack is closed, optimizers treat tensors on that device as they treat CUDA's.

    foreach by default, fused and capturable on request. torch.optim asks lists of device types; each of its
    modules holds its own name for the function that gives them.
    """
    stack = ExitStack()
    names = [f"_get_{what}_supported_devices" for what in ("foreach_kernels", "fused_kernels", "capturable")]
    for module in [
        m for name, m in list(sys.modules.items()) if name.startswith(("torch.optim", "torch.utils._f"))
    ]:
        for name in names:
            asked = getattr(module, name, None)
            if asked is not None:
                stack.enter_context(mock.patch.object(module, name, _also(asked, device.type)))
    return stack


def _also(asked: Any, device: str) -> Any:
    return lambda *args, **kwargs: [*asked(*args, **kwargs), device]


# ------------------------------------------------------------------------------------------ attention

plain_attention = torch.nn.functional.scaled_dot_product_attention
_HALVES = (torch.float16, torch.bfloat16)


def attention(
    on_gpu: Callable[[torch.Tensor], bool], query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    capability: tuple[int, int] = (9, 0),
) -> Any:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention, by the kernel that CUDA would take.

    query: (batch, heads, length, head size); key and value: (batch, heads, other length, head size).
    on_gpu: whose tensors are the simulated card's. capability: the card's; below 8.0 there is no flash attention, and no
    fused kernel for bfloat16.
    """
    ours = on_gpu(query) and _runs(query, value)
    if ours:
        query, key, value, attn_mask = lower_precision(query, key, value, attn_mask)
        alike = query.dtype == key.dtype == value.dtype and query.shape[-1] == key.shape[-1]
        fused = query.dim() == 4 and alike and not (is_causal and attn_mask is not None)
        recent, backends = capability >= (8, 0), torch.backends.cuda
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if fused and _cudnn(query, key, value, attn_mask, dropout_p, capability):
            bias = None if attn_mask is None else _bias(query, key, attn_mask)
            if enable_gqa:
                key, value = _every_head(query, key), _every_head(query, value)
            cudnn = aten._scaled_dot_product_cudnn_attention
            return cudnn(query, key, value, bias, needs_grad, dropout_p, is_causal, scale=scale)[0]
        # the memory-efficient kernel takes values of another width, flash does not
        as_wide = query.shape[-1] == value.shape[-1]
        if fused and as_wide and attn_mask is None and _flash(query, recent and backends.flash_sdp_enabled()):
            if enable_gqa:
                key, value = _every_head(query, key), _every_head(query, value)
            flash = aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
        takes = query.dtype in (torch.float32, torch.float16) or (recent and query.dtype == torch.bfloat16)
        if fused and takes and not enable_gqa and backends.mem_efficient_sdp_enabled():
            bias = None if attn_mask is None else _bias(query, key, attn_mask)
            efficient = aten._scaled_dot_product_efficient_attention
            return efficient(query, key, value, bias, needs_grad, dropout_p, is_causal, scale=scale)[0]
    plain = plain_attention
    # with true values the CPU's own kernel would run here
    by_operators = sdpa_kernel(SDPBackend.MATH) if ours and not query.is_meta else nullcontext()
    with by_operators:
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _runs(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the card's kernel can be run for these: with true values, where the CPU's own may stand for it
    (`attention_on_cpu`)."""
    autocast = torch.is_autocast_enabled("cpu")  # which casts what is called by its own name
    return query.is_meta or (query.shape[-1] == value.shape[-1] and not autocast)


def prefers_cudnn(capability: tuple[int, int]) -> bool:
    """Whether SDPA asks cuDNN first (sdp_utils.cpp, check_prefer_cudnn_attention; cuDNN after 9.15)."""
    return capability[0] in (9, 10)


def _cudnn(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, capability: tuple[int, int]
) -> bool:
    """Asked first where it is the fastest, and elsewhere only where nothing else may run."""
    backends = torch.backends.cuda
    others = (
        backends.flash_sdp_enabled() or backends.mem_efficient_sdp_enabled() or backends.math_sdp_enabled()
    )
    first = prefers_cudnn(capability)
    widths = query.shape[-1], value.shape[-1]
    return bool(
        backends.cudnn_sdp_enabled()
        and (first or (capability >= (8, 0) and not others))
        and query.dtype in _HALVES
        and all(width <= 128 and width % 8 == 0 for width in widths)
        and 0 not in query.shape + key.shape
        and key.shape[2] > 1
        and not (dropout_p and query.shape[2] == 1)
        and not (mask is not None and mask.requires_grad)
        and not (
            torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled()
        )
    )


def _flash(query: Any, enabled: bool) -> bool:
    return bool(enabled and query.dtype in _HALVES and query.shape[-1] <= 256)


def _every_head(query: Any, shared: Any) -> Any:
    """Grouped heads, as many as the query has. (The kernel reads each once; a view with stride 0 would not do.)"""
    return shared.repeat_interleave(query.shape[1] // shared.shape[1], 1)


def _bias(query: Any, key: Any, mask: Any) -> Any:
    """A mask as numbers to add, of the full shape without copying. A mask of bools becomes 0 and -inf."""
    if mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        mask = torch.where(mask, zero, torch.full_like(zero, float("-inf")))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


# ---------------------------------------------------------------- one kernel on CUDA, several elsewhere

plain_dropout, plain_rms_norm = torch.dropout, torch.rms_norm
_libraries: list[torch.library.Library] = []  # registrations last as long as these live


def dropout(on_gpu: Callable[[torch.Tensor], bool], input: Any, p: float, train: bool) -> Any:
    """torch.dropout: one kernel, native_dropout, with a mask of bools (aten/src/ATen/native/Dropout.cpp,
    is_fused_kernel_acceptable). Elsewhere it is three, with a mask in the input's type."""
    if train and 0 < p < 1 and input.numel() and on_gpu(input):
        return aten.native_dropout(input, p, True)[0]
    return plain_dropout(input, p, train)


def rms_norm(
    on_gpu: Callable[[torch.Tensor], bool], input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None,
) -> Any:  # fmt: skip
    """torch.rms_norm: one kernel, _fused_rms_norm, unless input and weight differ in type, of which PyTorch warns
    (aten/src/ATen/native/layer_norm.cpp, rms_norm_symint). Elsewhere it is eight."""
    shape = list(normalized_shape)
    if (
        on_gpu(input)
        and list(input.shape[-len(shape) :]) == shape
        and hasattr(aten, "_fused_rms_norm_backward")
    ):
        input, weight = full_precision(input, weight)
        if weight is None or weight.dtype == input.dtype:
            _backward_with_values()
            return _RMSNorm.apply(input, weight, shape, eps)[0]  # type: ignore[no-untyped-call]
    return plain_rms_norm(input, shape, weight, eps)


class _RMSNorm(torch.autograd.Function):
    """The operator and its derivative. (A CPU build takes the operator apart above autograd.)"""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Any, weight: Any, shape: list[int], eps: float | None) -> Any:
        with private_torch.below_autograd():
            return aten._fused_rms_norm(input, shape, weight, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, weight, ctx.shape, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input, weight, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:
        if grad is None:
            return None, None, None, None
        input, weight, over = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1]]
        found = aten._fused_rms_norm_backward(grad, input, ctx.shape, over, weight, wanted)
        return *(g if w else None for g, w in zip(found, wanted, strict=True)), None, None


@cache
def _backward_with_values() -> None:
    """The derivative has no kernel in a CPU build, which simulate(..., values=True) would run."""
    name, op = "aten::_fused_rms_norm_backward", aten._fused_rms_norm_backward.default
    if not private_torch.has_kernel(name, "CPU"):
        _libraries.append(torch.library.Library("aten", "IMPL"))
        _libraries[-1].impl("_fused_rms_norm_backward", private_torch.decompositions[op], "CPU")
