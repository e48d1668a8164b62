"""Masks as rules, as FlexAttention's `mask_mod` has them, and the blocks of scores that PyTorch says they keep."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: batch, head, places of queries, places of keys → whether the query may look at the key
Rule = Callable[[Any, Any, Tensor, Tensor], Tensor]
NOTHING, PART, WHOLE = 0, 1, 2


def everything(b: Any, h: Any, i: Tensor, j: Tensor) -> Tensor:
    return (i >= 0) & (j >= 0)


def causal(b: Any, h: Any, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def window(width: int) -> Rule:
    """Causal, and at most `width` keys, the query's own among them."""
    return lambda b, h, i, j: (i >= j) & (i - j < width)


def prefix(length: int) -> Rule:
    """The first `length` keys for everybody; causal behind them."""
    return lambda b, h, i, j: (j < length) | (i >= j)


def documents(lengths: Sequence[int]) -> Rule:
    """Documents one after the other in a row, causal in each."""
    of = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return lambda b, h, i, j: (of[i] == of[j]) & (i >= j)


def block_mask(rule: Rule, n: int, block: int) -> Any:
    """PyTorch's BlockMask of n × n scores."""
    from torch.nn.attention.flex_attention import create_block_mask  # slow to import, and few need it

    return create_block_mask(rule, None, None, n, n, device="cpu", BLOCK_SIZE=block)


def kinds(mask: Any) -> list[list[int]]:
    """Of each block of a BlockMask without batch and heads: NOTHING, PART or WHOLE of it is kept."""
    rows, columns = mask.kv_indices.shape[-2:]
    table = [[NOTHING] * columns for _ in range(rows)]
    for kind, numbers, places in (
        (PART, mask.kv_num_blocks, mask.kv_indices),
        (WHOLE, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        for row in range(rows) if numbers is not None else ():
            for column in places[0, 0, row, : numbers[0, 0, row]].tolist():
                table[row][column] = kind
    return table


def computed(mask: Any) -> int:
    """Blocks that a kernel has to compute."""
    return sum(kind != NOTHING for row in kinds(mask) for kind in row)


def nbytes(mask: Any) -> int:
    """Bytes of a BlockMask's tables."""
    return sum(part.nbytes for part in mask.as_tuple() if isinstance(part, Tensor))


def uneven(n: int, length: int, seed: int) -> tuple[int, ...]:
    """Lengths of n documents, most of them short."""
    draw = random.Random(seed)
    return tuple(max(1, int(length * draw.random() ** 2)) for _ in range(n))
