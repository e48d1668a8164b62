"""GPT-2 as it generates: one forward that may go through a cache in each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from helpers.models import GPT2

#: a layer's cache: add(places [n], k, v [batch, heads, n, features]) → the keys and the values to look at
Cache = Any


def next_logits(
    model: GPT2,
    tokens: Tensor,
    places: Tensor,
    caches: Sequence[Cache] = (),
    length: int | None = None,
) -> Tensor:
    """What the model says of the token after the last one: [batch, vocabulary].

    tokens: [batch, n]. places: [n], where they stand. caches: one a layer; without any, the tokens are all there are.
    length: how many places a cache has, where it has all of them from the beginning: those behind a token are masked.
    """
    x = model.tokens(tokens) + model.places(places)
    mask = None if length is None else torch.arange(length, device=places.device) <= places[:, None]
    layers: Any = model.blocks
    for i, block in enumerate(layers):
        attention = block.attention
        batch, n, width = x.shape
        joined = attention.qkv[0](block.norm_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, n, attention.size.heads, -1).transpose(1, 2) for t in joined)
        if caches:
            k, v = caches[i].add(places, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and n > 1)
        x = x + attention.out(mixed.transpose(1, 2).reshape(batch, n, width))
        x = x + block.narrow(F.gelu(block.wide(block.norm_2(x))))
    return model.head(model.norm(x[:, -1]))


class Growing:
    """Keys and values of all tokens so far; each call makes new tensors that are longer."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def add(self, places: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=2)
        self.values = v if self.values is None else torch.cat([self.values, v], dim=2)
        return self.keys, self.values


class Fixed:
    """Room for `length` places, taken once and written in place."""

    def __init__(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        self.keys = torch.zeros(*shape, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def add(self, places: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[:, :, places] = k
        self.values[:, :, places] = v
        return self.keys, self.values
