"""diffusion-fast: Stable Diffusion XL three times as fast, rung by rung (Paul and von Platen, 2024)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from helpers import simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested

ON_A100 = "simulated (A100)"
_NOT_RUN = "which was not run"
#: the post's seconds for an image, rung by rung
PUBLISHED = {
    "float32": 7.36,
    "bfloat16": 4.63,
    "SDPA": 3.31,
    "compiled": 2.54,
    "fused projections": 2.52,
    "int8": 2.43,
}


@contextmanager
def _tf32() -> Iterator[None]:
    """float32 products may use TF32, as in the post."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def _layer(dtype: torch.dtype, fused: bool, joined: bool = False) -> tuple[float, int]:
    """Seconds and launches of attention over 4,096 places of a picture, 10 heads of 64, on the simulated A100."""
    gpu = simulate("A100")
    with gpu, torch.no_grad(), _tf32():
        with torch.device(gpu.device):
            x = torch.zeros(2, 4096, 640, dtype=dtype)
            parts = [nn.Linear(640, 1920)] if joined else [nn.Linear(640, 640) for _ in range(3)]
            for part in parts:
                part.to(dtype)

        def layer() -> torch.Tensor:
            made = [part(x) for part in parts]
            q, k, v = (
                t.view(2, 4096, 10, 64).transpose(1, 2) for t in (made[0].chunk(3, -1) if joined else made)
            )
            if fused:
                return F.scaled_dot_product_attention(q, k, v)
            return (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v

        layer()
        gpu.synchronize()
        began, launches = gpu.clock(), gpu.launches
        layer()
        launches = gpu.launches - launches
        gpu.synchronize()
        return gpu.clock() - began, launches


def bf16() -> Outcome:
    gain = _layer(torch.float32, False)[0] / _layer(torch.bfloat16, False)[0]
    published = PUBLISHED["float32"] / PUBLISHED["bfloat16"]
    return (
        f"one attention layer of 4,096 places, written out: {gain:.1f} times as fast; the post for the whole image {published:.1f}",
        f"partly: faster, as one layer shows; the seconds are those of the whole network, {_NOT_RUN}"
        if gain > 1.1
        else "refuted",
    )


def sdpa() -> Outcome:
    gain = _layer(torch.bfloat16, False)[0] / _layer(torch.bfloat16, True)[0]
    published = PUBLISHED["bfloat16"] / PUBLISHED["SDPA"]
    return (
        f"the same layer in bfloat16 with SDPA: {gain:.1f} times as fast; the post for the whole image {published:.1f}",
        f"partly: faster, as one layer shows; the seconds are those of the whole network, {_NOT_RUN}"
        if gain > 1.1
        else "refuted",
    )


def joined_projections() -> Outcome:
    (apart, three), (together, one) = _layer(torch.bfloat16, True), _layer(torch.bfloat16, True, True)
    return (
        f"one of the three, on the same layer: one product in place of three: {three} and {one} launches, {apart / together:.2f} times as fast; the "
        f"post for all three and the whole image {PUBLISHED['compiled'] / PUBLISHED['fused projections']:.2f}",
        f"partly: a little faster, by this one of the three; the seconds are those of the whole network, {_NOT_RUN}"
        if one < three and apart > together
        else "refuted",
    )


def sigmas_on_the_cpu() -> Outcome:
    waits = {}
    with simulate("A100") as gpu:
        sigmas = torch.linspace(1, 0, 30, device=gpu.device)
        steps = {
            "read as numbers": lambda: [float(sigmas[i]) for i in range(5)],
            "left as tensors": lambda: [sigmas[i] * 2 for i in range(5)],
        }
        for name, step in steps.items():
            before = gpu.syncs
            step()
            waits[name] = gpu.syncs - before
    return (
        "five steps that index the noise levels on the card: "
        + ", ".join(f"{name} {n} waits" for name, n in waits.items()),
        "partly: indexing by a number does not wait; reading the element does"
        if waits["left as tensors"] == 0 < waits["read as numbers"]
        else "confirmed",
    )


CLAIMS = (
    tried("Reduced precision", "By using a reduced precision, we’re able to cut down the inference latency from 7.36 seconds to 4.63 seconds", "bfloat16 in place of float32 cuts an image's time from 7.36 to 4.63 seconds", bf16, evidence=ON_A100),
    tried("SDPA", "SDPA gives a nice boost from 4.63 seconds to 3.31 seconds", "SDPA cuts it from 4.63 to 3.31 seconds", sdpa, evidence=ON_A100),
    untested("Compiling", "Using SDPA attention and compiling both the UNet and VAE reduces the latency from 3.31 seconds to 2.54 seconds.", "SDPA and compiling UNet and VAE cut it from 3.31 to 2.54 seconds", "the whole network on a GPU would be needed; lesson 11 compiles a small UNet"),
    tried("Getting rid of GPU syncs", "If the sigmas array is placed on the GPU, indexing causes a communication sync between the CPU and GPU", "with the noise levels on the GPU, indexing them makes CPU and GPU wait", sigmas_on_the_cpu, evidence=ON_A100),
    tried("Using combined projections for attention ops", "These additional techniques improved the inference latency from 2.54 seconds to 2.52 seconds.", "without graph breaks and waits, and with one product for q, k and v, it goes from 2.54 to 2.52 seconds", joined_projections, evidence=ON_A100),
    untested("Dynamic int8", "Applying quantization this way improved the latency from 2.52 seconds to 2.43 seconds", "int8 products for some layers cut it from 2.52 to 2.43 seconds", "which layers gain follows from their sizes and from a GPU's int8 kernels"),
)  # fmt: skip
