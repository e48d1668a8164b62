"""Lesson 10: half by name, and how much faster Tensor Cores are on paper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from helpers.lesson.claim import Claim
from helpers.lessons.mixed_precision.experiments import peak
from helpers.simulator.devices import DEVICES


#: id, source, claim, measured, verdict, experiment
class _Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fc1, self.fc2 = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc2(torch.relu(self.fc1(torch.relu(self.stem(x)))))
        return out


def outcome(code: Callable[[], object]) -> str:
    """What a call raises, in one line; or "runs"."""
    try:
        code()
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
    return "runs"


def halved_by_name() -> dict[str, str]:
    """A net whose layers named "fc" have weights in fp16: what happens in four ways to train it."""
    torch.manual_seed(0)
    net, x, y = _Named(), torch.randn(32, 16), torch.randint(0, 10, (32,))
    for name, p in net.named_parameters():
        if "fc" in name:
            p.data = p.data.half()
    scaler, adam = torch.amp.GradScaler("cpu"), torch.optim.Adam(net.parameters())

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.cross_entropy(net(x), y)

    found = {
        "`net(x)`": outcome(lambda: net(x)),
        "with autocast, scaled, `backward()`": outcome(lambda: scaler.scale(loss()).backward()),
        "`scaler.step(optimizer)`": outcome(lambda: scaler.step(adam)),
    }
    net.zero_grad()
    loss().backward()
    adam.step()
    broken = any(p.isnan().any().item() for p in net.parameters())
    return found | {"without the scaler: Adam's step": f"runs; NaN in {'some' if broken else 'no'} weights"}


def half_by_name() -> Claim:
    """The claim "10-half-by-name"."""
    found = halved_by_name()
    forward, step = found["`net(x)`"], found["`scaler.step(optimizer)`"]
    return Claim(
        "10-half-by-name",
        "compile-300",
        "set the weights of chosen layers to half by name, then train",
        f"forward: {forward.partition(':')[0]}; with autocast, the scaler's step: {step.partition(':')[0]}",
        "refuted" if "Error" in forward and "Error" in step else "confirmed",
        "3 · Gradients that vanish",
    )


def tensor_cores() -> Claim:
    """The claim "10-tensor-cores": peak rates of the makers' data sheets, which a matmul only approaches."""
    ratios = {
        name: (
            device.peak_flops["fp16"] / device.peak_flops["fp32"],
            device.peak_flops["fp16"] / device.peak_flops["tf32"],
        )
        for name, device in DEVICES.items()
        if "tf32" in device.peak_flops
    }
    told = [f"{name} {a:.1f} against fp32, {b:.1f} against TF32" for name, (a, b) in ratios.items()]
    inside = all(2 <= a <= 8 for a, _ in ratios.values())
    return Claim(
        "10-tensor-cores",
        "five-strategies",
        "Tensor Cores compute 2 to 8 times as fast in FP16 as in FP32",
        f"data sheets, peak FLOP/s in fp16: {'; '.join(told)}",
        "confirmed for peaks"
        if inside
        else "partly: it depends on the card and on what FP32 means; against TF32 it is about 2, against fp32 without "
        f"Tensor Cores up to {max(a for a, _ in ratios.values()):.0f}",
        "Speeds that others measured",
    )


def larger_batch() -> Claim:
    """The claim "10-batch": 1.5 times as many images, in the memory that fp32 takes."""
    plain, half = peak("ResNet-50, 64 images"), peak("ResNet-50, 96 images", torch.float16)
    return Claim(
        "10-batch",
        "five-strategies",
        "what mixed precision saves lets the batch grow by 1.5",
        f"simulated peak of ResNet-50: 64 images in fp32 {plain / 2**30:.2f} GiB, 96 images with autocast {half / 2**30:.2f} GiB",
        "confirmed for ResNet-50's memory, simulated" if half <= plain else "refuted",
        "2 · What autocast casts",
    )
