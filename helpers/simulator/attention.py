"""Which attention kernel CUDA would take; on meta tensors PyTorch would take the slow path of single operators.

The choice follows aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash for 16-bit tensors of four
dimensions with heads of up to 256 and no mask; the memory-efficient kernel for 32 bit and for masks; single
operators ("math") for the rest. torch.nn.attention.sdpa_kernel's choices are kept.
"""

from __future__ import annotations

from typing import Any

import torch

from helpers.simulator.autocast import lower_precision

__all__ = ["attention", "plain_attention"]

aten = torch.ops.aten
plain_attention = torch.nn.functional.scaled_dot_product_attention
_HALVES = (torch.float16, torch.bfloat16)


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    capability: tuple[int, int] = (9, 0),
) -> Any:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention, by the kernel that CUDA would take.

    query: (batch, heads, length, head size); key and value: (batch, heads, other length, head size).
    capability: the card's; below 8.0 there is no flash attention, and no fused kernel for bfloat16.
    """
    if query.is_meta:
        query, key, value, attn_mask = lower_precision(query, key, value, attn_mask)
        alike = query.dtype == key.dtype == value.dtype and query.shape[-1] == value.shape[-1]
        fused = query.dim() == 4 and alike and not (is_causal and attn_mask is not None)
        recent = capability >= (8, 0)
        if fused and attn_mask is None and _flash(query, recent and torch.backends.cuda.flash_sdp_enabled()):
            if enable_gqa:
                key, value = _every_head(query, key), _every_head(query, value)
            flash = aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
        takes = (torch.float32, torch.float16, *([torch.bfloat16] if recent else []))
        if (
            fused
            and not enable_gqa
            and query.dtype in takes
            and torch.backends.cuda.mem_efficient_sdp_enabled()
        ):
            bias = None if attn_mask is None else _bias(query, key, attn_mask)
            needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            efficient = aten._scaled_dot_product_efficient_attention
            return efficient(query, key, value, bias, needs_grad, dropout_p, is_causal, scale=scale)[0]
    plain = plain_attention
    return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


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
