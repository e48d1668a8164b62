"""Models of the usual kinds, in plain PyTorch, with random weights: GPT-2, OPT, BERT, ResNet, RegNet, MobileNet, ConvNeXt,
VGG and ViT.

They are measured and simulated, never trained to an end. eager=True writes attention out operator by operator
("filled": with its mask put in by masked_fill, "bare": without one), and gelu_parts=True gelu, as the models did that others measured
(`simulator.cost.measured`); otherwise they are one operator each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Size:
    """width: features; layers; heads; vocabulary: tokens; context: the longest sequence."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    vocabulary: int = 50257
    context: int = 1024


def _gelu_in_parts(x: Tensor) -> Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    """Self-attention. fused_qkv: one product for queries, keys and values (GPT-2), else three (BERT)."""

    mask: Tensor | None

    def __init__(self, size: Size, causal: bool, eager: bool | str, fused_qkv: bool, dropout: float) -> None:
        super().__init__()
        self.size, self.causal, self.eager, self.p = size, causal, eager, dropout
        parts = [3 * size.width] if fused_qkv else [size.width] * 3
        self.qkv = nn.ModuleList(nn.Linear(size.width, width) for width in parts)
        self.out = nn.Linear(size.width, size.width)
        mask = torch.ones(size.context, size.context, dtype=torch.bool).tril() if causal else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        joined = [part(x) for part in self.qkv]
        parts = joined[0].chunk(3, dim=2) if len(joined) == 1 else joined
        q, k, v = (t.view(batch, length, self.size.heads, -1).transpose(1, 2) for t in parts)
        if self.eager:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            if self.mask is not None and self.eager == "filled":
                scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
            elif self.eager == "added":
                least = torch.finfo(scores.dtype).min
                scores = scores + torch.zeros(batch, 1, length, length, device=x.device, dtype=scores.dtype)
                scores = torch.max(scores, torch.full((), least, device=x.device, dtype=scores.dtype))
            elif self.mask is not None:
                lowest = torch.full((), torch.finfo(scores.dtype).min, device=x.device, dtype=scores.dtype)
                scores = torch.where(self.mask[:length, :length], scores, lowest)
            elif self.eager != "bare":  # the additive mask of padding, here with nothing to mask
                scores = scores + torch.zeros(batch, 1, 1, length, device=x.device, dtype=scores.dtype)
            shares = F.dropout(F.softmax(scores, dim=-1), self.p, self.training)
            y = shares @ v
        else:
            p = self.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.causal)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, -1))


class Block(nn.Module):
    """One transformer layer: normalisation before (GPT-2) or after (BERT) each half."""

    activation: Any

    def __init__(
        self,
        size: Size,
        causal: bool,
        eager: bool | str,
        before: bool,
        dropout: float,
        gelu_parts: bool = False,
    ) -> None:
        super().__init__()
        self.before, self.p = before, dropout
        self.activation = _gelu_in_parts if gelu_parts else F.gelu
        self.attention = Attention(size, causal, eager, before, dropout)
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.wide, self.narrow = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + F.dropout(self.attention(self.norm_1(x)), self.p, self.training)
            return x + self._mlp(self.norm_2(x))
        x = self.norm_1(x + F.dropout(self.attention(x), self.p, self.training))
        return self.norm_2(x + self._mlp(x))

    def _mlp(self, x: Tensor) -> Tensor:
        return F.dropout(self.narrow(self.activation(self.wide(x))), self.p, self.training)


class GPT2(nn.Module):
    """GPT-2: 124 million parameters at the default size. forward(tokens [B, T]) → logits [B, T, vocabulary]."""

    SMALL, LARGE = Size(), Size(1280, 36, 20)

    def __init__(
        self, size: Size = SMALL, eager: bool | str = False, dropout: float = 0.0, gelu_parts: bool = False
    ) -> None:
        super().__init__()
        self.p = dropout
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(
            Block(size, True, eager, True, dropout, gelu_parts) for _ in range(size.layers)
        )
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.tokens(tokens) + self.places(places), self.p, self.training)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class OPT(GPT2):
    """OPT as Hugging Face writes it out: as GPT-2, with relu and three products for queries, keys and values; its mask is
    added, and what is below the least number is cut. 1.3 billion parameters at the default size."""

    SIZE = Size(2048, 24, 32, 50272, 2048)

    def __init__(self, size: Size = SIZE, dropout: float = 0.0) -> None:
        super().__init__(size, eager="added", dropout=dropout)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.activation = F.relu
            block.attention = Attention(size, True, "added", False, dropout)


class Bert(nn.Module):
    """BERT with its language-model head: 110 million parameters at BASE. Shapes as in GPT2.

    headless=True: no head; forward gives the features [B, T, width], as a classifier's encoder does.
    """

    BASE = Size(768, 12, 12, 30522, 512)
    LARGE = Size(1024, 24, 16, 30522, 512)

    def __init__(
        self, size: Size = BASE, eager: bool = False, dropout: float = 0.0, headless: bool = False
    ) -> None:
        super().__init__()
        self.p, self.headless = dropout, headless
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.kinds = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width)
        self.blocks = nn.ModuleList(Block(size, False, eager, False, dropout) for _ in range(size.layers))
        self.transform, self.last_norm = nn.Linear(size.width, size.width), nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.kinds(torch.zeros_like(tokens)) + self.places(places)
        x = F.dropout(self.norm(x), self.p, self.training)
        for block in self.blocks:
            x = block(x)
        return x if self.headless else self.head(self.last_norm(F.gelu(self.transform(x))))


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with a short cut. outputs: channels, four times the inner ones by default; basic: two
    3×3 instead; groups: of the 3×3."""

    def __init__(
        self, inputs: int, inner: int, stride: int, outputs: int = 0, groups: int = 1, basic: bool = False
    ) -> None:
        super().__init__()
        outputs = outputs or (inner if basic else 4 * inner)
        sizes = [(inputs, inner, 1, 1, 1), (inner, inner, 3, stride, groups), (inner, outputs, 1, 1, 1)]
        if basic:
            sizes = [(inputs, inner, 3, stride, 1), (inner, outputs, 3, 1, 1)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, k, stride=s, padding=k // 2, groups=g, bias=False) for a, b, k, s, g in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, *_ in sizes)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            across = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.short = nn.Sequential(across, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolution(y))
            if i < len(self.norms) - 1:
                y = F.relu(y, inplace=True)
        return F.relu(y + self.short(x), inplace=True)


class ResNet(nn.Module):
    """ResNet-50 by default. forward(images [B, 3, H, W]) → logits [B, classes].

    basic: blocks of ResNet-18 and -34; wide: times as many inner channels; groups: of the 3×3 convolutions.
    """

    def __init__(
        self, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000, basic: bool = False, wide: int = 1, groups: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            outputs = 64 * 2**stage * (1 if basic else 4)
            for i in range(depth):
                stride = 2 if stage and i == 0 else 1
                blocks.append(Bottleneck(channels, 64 * 2**stage * wide, stride, outputs, groups, basic))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class RegNet(nn.Module):
    """RegNetX-1.6GF by default. depths, widths: blocks and channels of each stage; per_group: channels a group of the 3×3
    convolutions. Shapes as in ResNet."""

    def __init__(
        self, depths: tuple[int, ...] = (2, 4, 10, 2), widths: tuple[int, ...] = (72, 168, 408, 912),
        per_group: int = 24, classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True)]
        channels = 32
        for depth, width in zip(depths, widths, strict=True):
            for i in range(depth):
                layers.append(
                    Bottleneck(channels, width, 1 if i else 2, width, width // min(per_group, width))
                )
                channels = width
        self.features, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


class Inverted(nn.Module):
    """MobileNetV2's block: channels widened by a 1×1 convolution, one 3×3 each, narrowed again."""

    def __init__(self, inputs: int, outputs: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = inputs * wider
        layers: list[nn.Module] = []
        if wider > 1:
            layers = [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(True)]
        layers += [
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(True),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        ]  # fmt: skip
        self.layers, self.short = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + x if self.short else self.layers(x)


class MobileNet(nn.Module):
    """MobileNetV2; wide: times as many channels. Shapes as in ResNet."""

    def __init__(self, wide: float = 1.0, classes: int = 1000) -> None:
        super().__init__()

        def rounded(channels: float) -> int:
            whole = max(8, int(channels + 4) // 8 * 8)
            return whole + 8 if whole < 0.9 * channels else whole

        channels, last = rounded(32 * wide), max(1280, rounded(1280 * wide))
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU6(True),
        ]  # fmt: skip
        stages = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for wider, width, depth, stride in stages:
            for i in range(depth):
                layers.append(Inverted(channels, rounded(width * wide), 1 if i else stride, wider))
                channels = rounded(width * wide)
        layers += [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(True)]
        self.features, self.head = nn.Sequential(*layers), nn.Linear(last, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


class _OverChannels(nn.LayerNorm):
    """A LayerNorm of images, over their channels."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(F.gelu(self.wide(y))).permute(0, 3, 1, 2)
        return y * self.scale.view(1, -1, 1, 1) + x


class ConvNeXt(nn.Module):
    """ConvNeXt-T by default. Shapes as in ResNet."""

    def __init__(self, depths: tuple[int, ...] = (3, 3, 9, 3), width: int = 96, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), _OverChannels(width)]
        for stage, depth in enumerate(depths):
            if stage:
                layers += [_OverChannels(width), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [_ConvNeXtBlock(width) for _ in range(depth)]
        self.features, self.norm, self.head = (
            nn.Sequential(*layers),
            nn.LayerNorm(width),
            nn.Linear(width, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.features(images).mean((2, 3))))


class VGG(nn.Module):
    """3×3 convolutions, `depths` of them before each pooling (VGG-16 by default); its first linear layers as
    convolutions, as timm has them. Shapes as in ResNet."""

    def __init__(self, depths: tuple[int, ...] = (2, 2, 3, 3, 3), classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for stage, depth in enumerate(depths):
            for _ in range(depth):
                inner = min(512, 64 * 2**stage)
                layers += [nn.Conv2d(channels, inner, 3, padding=1), nn.ReLU(True)]
                channels = inner
            layers.append(nn.MaxPool2d(2))
        for inner, kernel in ((4096, 7), (4096, 1)):
            layers += [nn.Conv2d(channels, inner, kernel), nn.ReLU(True)]
            channels = inner
        self.features, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


class ViT(nn.Module):
    """A Vision Transformer on patches of 16 × 16. Shapes as in ResNet."""

    def __init__(
        self,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        classes: int = 1000,
        eager: bool | str = False,
    ) -> None:
        super().__init__()
        size = Size(width, layers, heads)
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first, self.places = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, 197, width)),
        )
        self.blocks = nn.Sequential(*(Block(size, False, eager, True, 0.0) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])
