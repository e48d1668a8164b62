"""A decoding step of GPT-2 whose mask is made once, before the layers: each of them hands the same numbers to attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from helpers.lessons.generating.decoding import Fixed
from helpers.models import GPT2, Size


def next_logits(model: GPT2, tokens: Tensor, places: Tensor, cache: Any, mask: Tensor) -> Tensor:
    """What the model says of the token after the last one: [batch, vocabulary].

    tokens: [batch, n]. places: [n], where they stand. cache: add(layer, places, k, v) → all keys and values of a layer. mask: of
    attention, for every layer, as scaled_dot_product_attention takes it.
    """
    x = model.tokens(tokens) + model.places(places)
    layers: Any = model.blocks
    for layer, block in enumerate(layers):
        attention = block.attention
        batch, n, width = x.shape
        joined = attention.qkv[0](block.norm_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, n, attention.size.heads, -1).transpose(1, 2) for t in joined)
        keys, values = cache.add(layer, places, k, v)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + attention.out(mixed.transpose(1, 2).reshape(batch, n, width))
        x = x + block.narrow(F.gelu(block.wide(block.norm_2(x))))
    return model.head(model.norm(x[:, -1]))


class Rooms:
    """Room for `length` places in every layer, and the mask of a step in the numbers that attention adds."""

    def __init__(self, size: Size, batch: int, length: int, device: Any = None, dtype: Any = None) -> None:
        shape = (batch, size.heads, length, size.width // size.heads)
        self.layers = [Fixed(shape, device, dtype) for _ in range(size.layers)]
        self.length, self.dtype = length, dtype or torch.get_default_dtype()

    def mask(self, places: Tensor) -> Tensor:
        """[n, length]: 0 where a token may look, -inf elsewhere."""
        seen = torch.arange(self.length, device=places.device) <= places[:, None]
        return torch.zeros_like(seen, dtype=self.dtype).masked_fill_(~seen, float("-inf"))

    def add(self, layer: int, places: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.layers[layer].add(places, k, v)


class Decoder:
    """GPT-2 in bfloat16 on `device`, with room for its whole context: decoder(token [batch, 1], place [1]) → logits."""

    def __init__(self, device: Any, batch: int = 1) -> None:
        size = Size()
        with torch.device(device):
            self.model = GPT2(size).to(torch.bfloat16)
        self.cache = Rooms(size, batch, size.context, device, torch.bfloat16)

    def __call__(self, token: Tensor, place: Tensor) -> Tensor:
        return next_logits(self.model, token, place, self.cache, self.cache.mask(place))
