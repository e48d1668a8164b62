"""Tests of lesson 19: attention in blocks, blocks that a mask leaves, a loss in chunks, sequences in one row."""

from typing import Any

import torch
from torch import Tensor

from helpers import check
from helpers.check.judges import each, own_work

# --- 19.1 blockwise_attention -------------------------------------------------------------------------------------


def three(
    *batch: int, n: int, m: int, d: int, e: int | None = None, seed: int = 0, shift: float = 0.0, rising: float = 0.0,
    shared: bool = False, dtype: str = "float64",
) -> list[Tensor]:  # fmt: skip
    """q (…, n, d), k (…, m, d), v (…, m, e). shift: about what every score is; rising: what the last key's has more than
    the first's. shared: keys and values are a view, the same for all of the last batch dimension."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    q, k, v = normal(*batch, n, d), normal(*batch, m, d), normal(*batch, m, e or d)
    if shift or rising:  # one direction that every query has, and in which keys differ
        q[..., 0] = d**0.5
        k[..., 0] = shift + torch.linspace(0, rising, m, dtype=torch.float64)
    if shared:
        k, v = (t[..., :1, :, :].expand(*batch, *t.shape[-2:]) for t in (k, v))
    return [t.to(getattr(torch, dtype)) for t in (q, k, v)]


def _attended(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> dict[str, int]:
    """What the docstring says: bytes of scores for one block of keys and of the result, FLOPs of kept pairs."""
    n, m, e = q.shape[-2], k.shape[-2], v.shape[-1]
    rows = q[..., 0].numel()
    pairs = rows * m
    if causal:
        pairs = q[..., 0, 0].numel() * sum(min(block, m - at) * (n - at) for at in range(0, m, block))
    size = q.element_size()
    return {
        "peak_live_bytes": 4 * size * rows * (min(block, m) + e + 2),
        "flops": 2 * pairs * (q.shape[-1] + e),
    }


def check_blockwise_attention(*cases: check.Case, budget: bool = True) -> None:
    """cases: q, k, v, block, causal. budget: peak bytes and FLOPs count as well."""
    double = cases[0].args[0].dtype == torch.float64
    known: dict[str, Any] = {
        "match": check.Match(rtol=1e-9, atol=1e-11) if double else check.Match(rtol=1e-4, atol=1e-5),
        "budget": _in_blocks if budget else None,
        "verify": each(own_work("dot_product")),
        "look": "2 · Softmax in blocks, once",
        "note": "Too many bytes? Then scores of more than one block are alive. Too many FLOPs? Then a score is computed twice, "
        "or one that nobody may see.",
    }
    check.function("blockwise_attention", cases, _attended, **known)
