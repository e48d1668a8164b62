"""segment-anything-fast: an image model made eight times as fast, rung by rung (Team PyTorch, 2023)."""

from functools import cache

import torch

from helpers import count, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested
from helpers.models import ViT

ON_A100 = "simulated (A100)"


@cache
def _encoder(dtype: torch.dtype, eager: bool) -> tuple[float, int]:
    """Seconds and peak bytes of one pass of a ViT-B over 8 images, on the simulated A100."""
    gpu = simulate("A100")
    with gpu, torch.no_grad():
        with torch.device(gpu.device):
            model, images = (
                ViT(eager="bare" if eager else False).to(dtype),
                torch.zeros(8, 3, 224, 224, dtype=dtype),
            )
        model(images)
        gpu.synchronize()
        gpu.reset_peak_memory_stats()
        began, held = gpu.clock(), gpu.memory_allocated()
        model(images)
        gpu.synchronize()
        return gpu.clock() - began, gpu.max_memory_allocated() - held


def index_from_the_host() -> Outcome:
    gpu = simulate("A100")
    with gpu:
        table, rows = torch.ones(64, 8, device=gpu.device), torch.arange(4)
        there = rows.to(gpu.device)
        waits = []
        for index in (rows, there):
            gpu.synchronize()
            before = gpu.syncs
            table[index]
            waits.append(gpu.syncs - before)
    return (
        f"waits of `table[rows]`: {waits[0]} with rows on the CPU, {waits[1]} with rows on the card (control)",
        "confirmed" if waits[0] > waits[1] == 0 else "refuted",
    )


def bf16() -> Outcome:
    gain = _encoder(torch.float32, True)[0] / _encoder(torch.bfloat16, True)[0]
    return (
        f"ViT-B, 8 images, attention written out: bfloat16 {gain:.1f} times as fast as float32",
        "confirmed" if 2 < gain < 4.5 else "partly: faster, by another factor" if gain > 1.2 else "refuted",
    )


def sdpa() -> Outcome:
    (slow, large), (fast, small) = _encoder(torch.bfloat16, True), _encoder(torch.bfloat16, False)
    return (
        f"ViT-B, 8 images, bfloat16: SDPA takes {fast / slow:.2f} of the time and {small / large:.2f} of the activations' peak",
        "confirmed" if small < large and fast < slow else "refuted",
    )


def nested() -> Outcome:
    lengths, w = (3, 9, 30, 6), torch.ones(16, 16)
    parts = [torch.ones(n, 16) for n in lengths]
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    flops = {
        "padded": count(lambda: padded @ w).flops,
        "packed": count(lambda: torch.cat(parts) @ w).flops,
    }
    return (
        f"a product for sequences of {', '.join(map(str, lengths))}: {flops['padded']:,} FLOPs padded, {flops['packed']:,} side by side",
        "confirmed" if flops["packed"] < flops["padded"] else "refuted",
    )


CLAIMS = (
    tried("Bfloat16 (+ GPU syncs)", index_from_the_host, "an index tensor that lies on the CPU makes the CPU wait", evidence=ON_A100),
    tried("Bfloat16 (+ GPU syncs)", bf16, "bfloat16 and no syncs: up to 3 times as fast", evidence=ON_A100),
    untested("Torch.compile", "compiled, the encoder's elementwise kernels are fused into few, launched as one CUDA graph", "lesson 11 counts a compiled layer's kernels; the post's gain is in a picture"),
    tried("SDPA", sdpa, "fused attention leaves room for a larger batch", evidence=ON_A100),
    untested("Triton", "an own kernel adds the relative positions inside attention, without a bias of 3 GiB", "lesson 21 writes kernels; this one needs a GPU"),
    tried("NestedTensor", nested, "sequences of different lengths side by side, without padding, are less work"),
    untested("int8", "dynamic int8 products make it faster at hardly any loss", "the loss is that of trained weights"),
    untested("Semi-structured sparsity", "2 of 4 weights at zero: the last part to 8 times", "sparse Tensor Cores are not simulated"),
)  # fmt: skip
