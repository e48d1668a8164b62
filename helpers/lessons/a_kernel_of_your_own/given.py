"""Kernels that the lesson hands out: a sigmoid and its backward, for exercise 21.2. Loads Triton when imported."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.kernels.on_cpu import tl, triton


@triton.jit
def sigmoid_kernel(x, out, row_step, column_step, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    numbers = tl.load(x + row * row_step + at * column_step, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, 1 / (1 + tl.exp(-numbers)), mask=at < columns)


@triton.jit
def slope_kernel(dy, y, dx, row_step, column_step, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    steps = tl.load(dy + row * row_step + at * column_step, mask=at < columns, other=0.0).to(tl.float32)
    result = tl.load(y + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(dx + row * columns + at, steps * result * (1 - result), mask=at < columns)


def forward(x: Tensor) -> Tensor:
    """The sigmoid of x, by one launch. x: (rows, columns), any strides → a contiguous tensor."""
    rows, columns = x.shape
    y = torch.empty(rows, columns, dtype=x.dtype)
    sigmoid_kernel[(rows,)](x, y, *x.stride(), columns, BLOCK=triton.next_power_of_2(columns))
    return y


def backward(dy: Tensor, y: Tensor) -> Tensor:
    """The gradient of x from that of y, by one launch. dy: any strides; y: what `forward` gave → a contiguous tensor."""
    rows, columns = y.shape
    dx = torch.empty(rows, columns, dtype=y.dtype)
    slope_kernel[(rows,)](dy, y, dx, *dy.stride(), columns, BLOCK=triton.next_power_of_2(columns))
    return dx
