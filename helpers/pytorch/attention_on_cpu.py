"""Attention's fused kernels of CUDA on a CPU: the same results, by the CPU's own fused kernel. Nothing is dropped out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_ROW = 32  # the memory-efficient kernel keeps the sums of its rows in lengths of a multiple of this


def _fused(kernel: Any) -> Callable[..., Any]:
    """One of attention's fused kernels, forward or backward, by the CPU's own; it drops nothing out."""
    schema = kernel.default._schema
    names, results = [argument.name for argument in schema.arguments], len(schema.returns)

    def on_cpu(*args: Any, scale: Any = None) -> Any:
        given = dict(zip(names, args, strict=False))
        tensors = given["query"], given["key"], given["value"]
        long, causal = tensors[0].shape[2], given.get("is_causal", False)
        named = {"attn_mask": given.get("attn_bias"), "scale": scale}
        if "out" in given:
            sums = given["logsumexp"].flatten(2)[..., :long].contiguous()
            backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
            found = backward(args[0], *tensors, given["out"], sums, 0.0, causal, **named)
        else:
            forward = aten._scaled_dot_product_flash_attention_for_cpu
            out, sums = forward(*tensors, 0.0, causal, **named)
            if kernel is aten._scaled_dot_product_cudnn_attention:
                sums = sums.unsqueeze(-1)
            elif kernel is aten._scaled_dot_product_efficient_attention:
                rows = -(-long // _ROW) * _ROW if given["compute_log_sumexp"] else 0
                sums = aten.constant_pad_nd(sums, (0, rows - long))
            found = out, sums
        return *found, *[None] * (results - len(found))

    return on_cpu


#: by operator: the same on a CPU, for what of its arguments is known
ATTENTION: dict[Any, Callable[..., Any]] = {
    kernel: _fused(kernel)
    for which in ("flash", "cudnn", "efficient")
    for kernel in (
        getattr(aten, f"_scaled_dot_product_{which}_attention"),
        getattr(aten, f"_scaled_dot_product_{which}_attention_backward"),
    )
}
