"""The lesson's kernels as a GPU compiles them, for the recorder alone: importing this module takes Triton and a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor


@triton.jit
def softmax_kernel(x, out, row_step, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    numbers = tl.load(x + row * row_step + at, mask=mask, other=-float("inf"))
    powers = tl.exp(numbers - tl.max(numbers, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=mask)


def softmax(x: Tensor) -> Tensor:
    """Over the rows of x (float32, contiguous), one program a row."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    block: Any = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, x.stride(0), columns, BLOCK=block, num_warps=8 if columns > 2048 else 4)
    return out


@triton.jit
def matmul_kernel(a, b, c, k, n, SIDE: tl.constexpr, INNER: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    j = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    q = tl.arange(0, INNER)
    sums = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for first in range(0, k, INNER):
        left = tl.load(a + i[:, None] * k + (first + q)[None, :])
        right = tl.load(b + (first + q)[:, None] * n + j[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + i[:, None] * n + j[None, :], sums.to(tl.float16))


def matmul(a: Tensor, b: Tensor, side: int) -> Tensor:
    """a @ b in float16, sums in float32; all sides are multiples of the tile's."""
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    matmul_kernel[(m // side, n // side)](a, b, c, k, n, SIDE=side, INNER=32, num_warps=8 if side > 64 else 4)
    return c


@triton.jit
def dot_kernel(a, b, c, k, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i, j, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    row = tl.load(a + i * k + at, mask=at < k, other=0.0).to(tl.float32)
    column = tl.load(b + at * n + j, mask=at < k, other=0.0).to(tl.float32)
    tl.store(c + i * n + j, tl.sum(row * column, 0).to(tl.float16))


def by_dots(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, a program an element of the result."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    block: Any = triton.next_power_of_2(k)
    dot_kernel[(m, n)](a, b, c, k, n, BLOCK=block)
    return c


@triton.jit
def window_kernel(  # type: ignore[no-untyped-def]
    q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    text, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)[None, :]
    n, query = tl.load(filled + text), tl.load(q + text * D + d)
    top, total, result = -float("inf"), 0.0, tl.zeros((1, D), tl.float32)
    for start in range(0, n, BLOCK):
        if (start < sinks) | (start + BLOCK > n - window):
            place = start + tl.arange(0, BLOCK)[:, None]
            mask = (place < n) & ((place < sinks) | (place >= n - window))
            at = (text * PLACES + place) * D + d
            keys = tl.load(k + at, mask=mask, other=0.0)
            scores = tl.where(mask, tl.sum(keys * query, 1, keep_dims=True) / D**0.5, -float("inf"))
            new = tl.maximum(top, tl.max(scores))
            shrink, powers = tl.exp(top - new), tl.exp(scores - new)
            total = total * shrink + tl.sum(powers)
            values = tl.load(v + at, mask=mask, other=0.0)
            result = result * shrink + tl.sum(powers * values, 0, keep_dims=True)
            top = new
    tl.store(out + text * D + d, result / total)


def attend_window(
    q: Tensor, k: Tensor, v: Tensor, filled: Tensor, sinks: int, window: int, block: int
) -> Tensor:
    """Attention of each query [texts, 1, 1, d] to the first and the last filled places of its cache [texts, 1, places, d], float32."""
    out = torch.empty_like(q)
    size: Any = block
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=k.shape[3], BLOCK=size)
    return out
