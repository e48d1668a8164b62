"""The memory that a fully sharded model needs at its worst moment, by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence


def worst_moment(blocks: Sequence[int], let_go: Sequence[bool], n: int) -> tuple[int, str, int]:
    """(bytes, "forward" or "backward", block) of the worst moment on one of ``n`` ranks.

    blocks: bytes of each block's weights. let_go: whether a block's weights are let go after its forward. The next block
    is gathered while one computes; gradients have their weights' bytes.
    """
    b, moments = [*blocks, 0], []
    for i in range(len(blocks)):
        kept = sum(c for c, gone in zip(blocks[:i], let_go[:i], strict=True) if not gone)
        before = b[i - 1] if i else 0
        ahead = before if i and let_go[i - 1] else 0
        moments.append((kept + 2 * b[i] + before, "forward", i))
        moments.append((kept + ahead + 2 * b[i] + b[i + 1] + sum(b[i + 1 :]) // n, "backward", i))
    return max(moments)
