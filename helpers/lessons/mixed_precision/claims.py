"""Lesson 10's claims on trial: by what its cells measured; half by name, and how much faster Tensor Cores are on paper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.lesson.claim import Claim
from helpers.lessons.mixed_precision.experiments import Matmuls, Peaks, Sweep, peak, resnet_seconds
from helpers.simulator.devices import DEVICES


def on_trial(peaks: Peaks, sweep: Sweep, matmuls: Matmuls) -> list[Claim]:
    """All claims that the lesson's cells test. peaks: of section 2; sweep: factor → runs, of section 3; matmuls: of section 4."""
    return [
        _speed(),
        _memory(peaks),
        _scaling(sweep),
        _forward_large(sweep),
        _multiples(matmuls),
        _accuracy(sweep),
    ]


def _speed() -> Claim:
    # README and configs.yml of PyTorch/Classification/ConvNets in NVIDIA DeepLearningExamples (2021): images per second
    slow, fast, changed = 938, 2470, "fp16, channels last"
    gains = {images: resnet_seconds(images) / resnet_seconds(images, torch.float16) for images in (8, 256)}
    simulated = ", ".join(f"{gain:.2f} times with {images} images" for images, gain in gains.items())
    return Claim(
        "10-speed", "five-strategies", "mixed precision trains ResNet-50 1.8 to 2.5 times as fast on an A100",
        f"simulated, autocast to fp16 against PyTorch's defaults, which allow TF32 in convolutions: {simulated}; published, with {changed}: "
        f"{fast / slow:.2f} times against TF32",
        "untested: it takes a run on an A100, and the source names neither its batch nor what it compares with",
        "Sources on trial",
    )  # fmt: skip


def _memory(peaks: Peaks) -> Claim:
    few = peak("ResNet-50, 8 images", torch.float16) / peak("ResNet-50, 8 images") - 1
    saved = {8: -few, 64: -peaks.change["ResNet-50, 64 images"]}
    more = peak("ResNet-50, 96 images", torch.float16) / peaks.fp32["ResNet-50, 64 images"]
    return Claim(
        "10-memory", "five-strategies", "it saves 35 to 40 % of the memory of ResNet-50, so that the batch may be 1.5 times as large",
        f"simulated peak of ResNet-50: {', '.join(f'{part:.0%} less with {n} images' for n, part in saved.items())}; 96 images with autocast "
        f"take {more:.0%} of what 64 take without",
        "refuted" if max(saved.values()) < 0.35 or more > 1 else "confirmed" if min(saved.values()) >= 0.35
        else "partly: holds when the batch is large, and then it saves more; with few images weights take their share",
        "2 · What autocast casts, and Sources on trial",
    )  # fmt: skip


def _losing(sweep: Sweep) -> list[str]:
    """The factors with which more than 1 % of the gradients vanish in fp16."""
    return [f for f, runs in sweep.items() if runs["fp16"].zero > 0.01]


def _scaling(sweep: Sweep) -> Claim:
    losing, (first, *_, last) = _losing(sweep), sweep
    helped = max(runs["fp16, scaled"].zero for runs in sweep.values()) < 0.01
    shares = [
        f"factor {f}: ≈ {100 * sweep[f]['fp16'].zero:.1f} % and ≈ {100 * sweep[f]['fp16, scaled'].zero:.1f} %"
        for f in (first, last)
    ]
    return Claim(
        "10-scaling", "five-strategies", "scaling the loss keeps gradients from vanishing in fp16",
        f"gradients that are zero without and with scaling: {', '.join(shares)}",
        f"confirmed: here from a factor of {losing[0]} down; above that hardly any vanish" if helped and losing else "refuted",
        "3 · Gradients that vanish",
    )  # fmt: skip


def _median(values: Tensor) -> float:
    """The median magnitude, as a power of two."""
    return values.abs().median().log2().item()


def _forward_large(sweep: Sweep) -> Claim:
    losing, (first, *_, last) = _losing(sweep), sweep
    apart = {
        factor: [_median(values) for values in (runs["fp32"].outputs, runs["fp32"].gradients)]
        for factor, runs in sweep.items()
    }
    kept = [f for f in sweep if f not in losing]
    return Claim(
        "10-forward-large", "book-notes", "forward tensors are large and gradients small, so fp16 must balance the two",
        "medians, as powers of two, forward and back: "
        + ", ".join(f"factor {f}: ≈ {apart[f][0]:.0f} and ≈ {apart[f][1]:.0f}" for f in (first, last)),
        "refuted" if not losing or any(back > forward for forward, back in apart.values()) else "confirmed" if not kept
        else f"partly: gradients are always the smaller, but down to a factor of {kept[-1]} fp16 holds nearly all of both",
        "3 · Gradients that vanish",
    )  # fmt: skip


def _accuracy(sweep: Sweep) -> Claim:
    runs = next(iter(sweep.values()))
    off = [abs(runs[run].losses[-1] / runs["fp32"].losses[-1] - 1) for run in ("bf16", "fp16, scaled")]
    return Claim(
        "10-accuracy", "five-strategies", "the top-1 accuracy on ImageNet changes by less than 0.2 %",
        f"another net, of three layers, loss after 60 steps, bf16 and scaled fp16 against fp32: off by ≈ {100 * off[0]:.1f} % and ≈ {100 * off[1]:.1f} %",
        "untested: it takes trainings of ResNet-50 on ImageNet",
        "3 · Gradients that vanish",
    )  # fmt: skip


def _multiples(matmuls: Matmuls) -> Claim:
    fit, miss = (matmuls.reached(some) / 1e12 for some in (matmuls.fitting, matmuls.missing))
    return Claim(
        "10-multiples", "guide", "Tensor Cores want dimensions in multiples of 8 (fp16) or 16 (INT8)",
        "NVIDIA's guide (docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication): since cuBLAS 11 Tensor Cores take any "
        "sizes, and are most efficient with multiples of 8 in FP16 and of 16 in INT8, which are 16 bytes. Published TF32 matmuls of 1.5 to 4.5 GFLOP, "
        f"where 16 bytes are 4 numbers: {fit:.0f} TFLOP/s in multiples of 4, {miss:.0f} otherwise",
        f"partly: holds for their full use; other sizes run on Tensor Cores too, in TF32 at {matmuls.share:.2f} of the rate"
        if fit > 1.5 * miss else "refuted",
        "4 · Shapes that fit",
    )  # fmt: skip


class _Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fc1, self.fc2 = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(torch.relu(self.fc1(torch.relu(self.stem(x)))))
        return out


def _outcome(code: Callable[[], object]) -> str:
    """The kind of error that a call raises; or "runs"."""
    try:
        code()
    except Exception as problem:
        return type(problem).__name__
    return "runs"


def half_by_name() -> Claim:
    """The claim "10-half-by-name": a net whose layers named "fc" have weights in fp16."""
    torch.manual_seed(0)
    net, x, y = _Named(), torch.randn(32, 16), torch.randint(0, 10, (32,))
    for name, p in net.named_parameters():
        if "fc" in name:
            p.data = p.data.half()
    scaler, adam = torch.amp.GradScaler("cpu"), torch.optim.Adam(net.parameters())

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.cross_entropy(net(x), y)

    forward = _outcome(lambda: net(x))
    scaler.scale(loss()).backward()
    step = _outcome(lambda: scaler.step(adam))
    return Claim(
        "10-half-by-name",
        "compile-300",
        "set the weights of chosen layers to half by name, then train",
        f"forward: {forward}; with autocast, the scaler's step: {step}",
        "refuted" if "Error" in forward and "Error" in step else "confirmed",
        "3 · Gradients that vanish",
    )


def tensor_cores() -> Claim:
    """The claim "10-tensor-cores": peak rates of the makers' data sheets, which a matmul only approaches."""
    peaks = {name: device.peak_flops for name, device in DEVICES.items()}
    ratios = {name: of["fp16"] / of["fp32"] for name, of in peaks.items()}
    against_tf32 = {name: of["fp16"] / of["tf32"] for name, of in peaks.items() if "tf32" in of}
    quotients = [
        f"{name} {ratio:.1f}" + (f" and {against_tf32[name]:.1f}" if name in against_tf32 else "")
        for name, ratio in ratios.items()
    ]
    inside = [name for name, ratio in ratios.items() if 2 <= round(ratio, 1) <= 8]
    return Claim(
        "10-tensor-cores",
        "five-strategies",
        "Tensor Cores compute 2 to 8 times as fast in FP16 as in FP32",
        f"data sheets, peak FLOP/s in fp16 against fp32, and against TF32 where a card has it: {'; '.join(quotients)}",
        "confirmed"
        if len(inside) == len(ratios)
        else f"partly: holds for {', '.join(inside)}; on the others fp32 without Tensor Cores is up to {max(ratios.values()):.0f} times "
        "slower",
        "2 · What autocast casts",
    )
