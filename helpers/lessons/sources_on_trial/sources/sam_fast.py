"""segment-anything-fast: an image model made eight times as fast, rung by rung (Team PyTorch, 2023)."""

import warnings
from functools import cache

import torch

from helpers import simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested
from helpers.models import ViT

ON_A100 = "simulated (A100)"


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


@cache
def _largest_batch(pixels: int, eager: bool) -> int:
    """How many images of pixels × pixels a ViT-B can take at once, in bfloat16, on the simulated A100: by the bytes of one more."""
    gpu, peaks = simulate("A100"), []
    with gpu, torch.no_grad():
        with torch.device(gpu.device):
            model = ViT(eager="bare" if eager else False).to(torch.bfloat16)
            places = torch.zeros(1, 1 + (pixels // 16) ** 2, 768, dtype=torch.bfloat16)
            model.places = torch.nn.Parameter(places)
        for n in (2, 4):
            gpu.reset_peak_memory_stats()
            model(torch.zeros(n, 3, pixels, pixels, dtype=torch.bfloat16, device=gpu.device))
            peaks.append(gpu.max_memory_allocated())
    an_image = (peaks[1] - peaks[0]) / 2
    return int((gpu.card.memory_bytes - peaks[0]) / an_image) + 2


def sdpa() -> Outcome:
    batches = {pixels: [_largest_batch(pixels, eager) for eager in (True, False)] for pixels in (224, 1024)}
    times = {pixels: fused / written for pixels, (written, fused) in batches.items()}
    told = "; ".join(f"of {p:,} × {p:,}: {a:,} and {b:,}" for p, (a, b) in batches.items())
    return (
        f"ViT-B in bfloat16, the most images that fit on the card with attention written out and with SDPA, {told}. SAM's are of 1,024 × 1,024, and "
        "most of its layers look at a window only",
        "confirmed: the more, the larger the image"
        if times[1024] > 1.5
        else "partly: a little larger"
        if times[1024] > 1
        else "refuted",
    )


def nested() -> Outcome:
    data = {
        "sequences of 3, 9 and 30": [torch.rand(n, 16) for n in (3, 9, 30)],
        "images of 8 × 12 and 10 × 6": [torch.rand(3, h, w) for h, w in ((8, 12), (10, 6))],
    }
    holds = dict[tuple[str, str], bool]()
    for layout in (torch.jagged, torch.strided):
        for name, parts in data.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the strided layout is a prototype
                try:
                    doubled = torch.nested.nested_tensor(parts, layout=layout) * 2
                    right = all(torch.equal(a, 2 * b) for a, b in zip(doubled.unbind(), parts, strict=True))
                except RuntimeError:
                    right = False
            holds[str(layout).removeprefix("torch."), name] = right
    told = "; ".join(
        f"{layout}, {name}: {'right' if right else 'refused'}" for (layout, name), right in holds.items()
    )
    return (
        f"two times a nested tensor, by its layout: {told}",
        "confirmed" if all(holds.values())
        else "partly: the jagged layout, which the post uses, lets one dimension differ; images differ in two, and take the strided layout"
        if holds["strided", "images of 8 × 12 and 10 × 6"]
        else "partly: not images of different sizes" if any(holds.values())
        else "refuted",
    )  # fmt: skip


CLAIMS = (
    tried("Bfloat16 (+ GPU syncs)", "These are both allocated and processed on the CPU. However, once these variables are used to index in rel_pos_resized, the index operation automatically moves these variables to the GPU. This copy over causes the GPU sync we've observed above.", "index variables that lie on the CPU are moved to the GPU by the index operation, and this copy makes the CPU wait", index_from_the_host, evidence=ON_A100),
    untested("Bfloat16 (+ GPU syncs)", "Taken the GPU sync and bfloat16 optimizations together, we have now pushed SAM performance by up to 3x", "without these waits and in bfloat16 SAM is up to 3 times as fast", "it takes SAM itself on an A100, with images of 1,024 pixels and the waits that it had. What bfloat16 alone wins in products, lesson 10 simulates"),
    untested("Torch.compile", "Fusing together sequences of operations such as nn.LayerNorm or nn.GELU into a single GPU kernel that is called", "torch.compile joins sequences of operations, such as those of nn.LayerNorm or nn.GELU, into a single GPU kernel", "it takes a GPU, for which other kernels are written than for a CPU; those for a CPU, lesson 11 counts. The post's gain is in a picture"),
    tried("SDPA", "Using PyTorch’s native scaled_dot_product_attention, we can significantly increase the batch size.", "with SDPA the batch can be much larger", sdpa, evidence=ON_A100),
    untested("Triton", "If instead of allocating this large attn tensor, we thread into SDPA the two smaller rel_h and rel_w tensors, and only construct attn as needed, we’d anticipate significant performance gain.", "a kernel that takes two small tensors of positions, and makes the large bias of attention from them only where it is needed, should gain much", "the kernel is the post's own, and to time it takes a GPU; what it gained is in a picture"),
    tried("NestedTensor", "Nested Tensor: Batch together non-uniformly sized data into a single Tensor, such as images of different sizes.", "a nested tensor puts data of different sizes into one tensor, such as images of different sizes", nested),
    untested("int8", "While it’s common to see some accuracy regression when quantizing models at inference time, SAM has been particularly robust to lower precision inference with minimal loss of accuracy.", "quantizing often costs some accuracy at inference, but SAM loses very little of it", "the loss is that of SAM's trained weights, which are not here. What int8 products win in time, lesson 13 simulates"),
    untested("Semi-structured sparsity", "With 2:4 sparsity, we observe peak performance on SAM with vit_b and batch size 32", "with two of four weights at zero SAM runs fastest, with its ViT-B encoder and batches of 32", "it takes a GPU with sparse Tensor Cores, which are not simulated; how fast, the post says in a picture"),
)  # fmt: skip
