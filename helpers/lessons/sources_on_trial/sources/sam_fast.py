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
    tried("Bfloat16 (+ GPU syncs)", "both allocated and processed on the CPU … the index operation automatically moves these variables to the GPU. This copy over causes the GPU sync", "index variables that lie on the CPU are moved to the GPU by the index operation, and this copy makes the CPU wait", index_from_the_host, evidence=ON_A100),
    tried("Bfloat16 (+ GPU syncs)", "the GPU sync and bfloat16 optimizations together … pushed SAM performance by up to 3x", "without these waits and in bfloat16 it is up to 3 times as fast", bf16, evidence=ON_A100),
    untested("Torch.compile", "Fusing together sequences of operations … into a single GPU kernel … We launch a single CUDA graph", "compiled, sequences of operations of the encoder become single kernels, launched as one CUDA graph", "lesson 11 counts a compiled layer's kernels; the post's gain is in a picture"),
    tried("SDPA", "Using … scaled_dot_product_attention, we can significantly increase the batch size", "with SDPA the batch can be much larger", sdpa, evidence=ON_A100),
    untested("Triton", "instead of allocating this large attn tensor, we thread into SDPA the two smaller … tensors … significant performance gain", "a kernel of one's own that adds two small tensors of positions inside attention, in place of a bias of more than 3 GiB, gains much", "lesson 21 writes kernels; this one needs a GPU"),
    tried("NestedTensor", "Batch together non-uniformly sized data into a single Tensor", "NestedTensor puts data of different sizes into one batch (here: and saves the work on padding)", nested),
    untested("int8", "GPU quantization: Accelerate models with reduced precision operations … no loss of accuracy", "quantized products make it faster without a loss of accuracy", "the loss is that of trained weights"),
    untested("Semi-structured sparsity", "Semi-Structured (2:4) Sparsity: A GPU optimized sparse memory format", "two of four weights at zero make it faster", "sparse Tensor Cores are not simulated"),
)  # fmt: skip
