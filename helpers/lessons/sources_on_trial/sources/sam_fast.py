"""segment-anything-fast: an image model made eight times as fast, rung by rung (Team PyTorch, 2023)."""

import warnings
from functools import cache

import torch
from torch.nn import functional as F

import helpers.lessons.torch_compile.recorded  # noqa: F401 - its experiments are known by their names
from helpers import recordings, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested
from helpers.simulator.stretch import stretch

ON_A100, ON_H100 = "simulated (A100)", "recorded (H100, 2026-11-26)"


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
def _global_layer(way: str) -> tuple[float, int]:
    """Seconds, and bytes at the peak, of attention in one of SAM's layers that see all 64 × 64 places: ViT-B, 8 images, simulated A100.

    way: "written out" or "SDPA", with the bias of the places made first from two small tensors; or "no bias": SDPA alone.
    """
    with simulate("A100") as gpu, torch.no_grad():
        with torch.device(gpu.device):
            q, k, v = (torch.zeros(8, 12, 4096, 64, dtype=torch.bfloat16) for _ in range(3))
            rel_h, rel_w = (torch.zeros(8, 12, 4096, *of, dtype=torch.bfloat16) for of in ((64, 1), (1, 64)))

        def layer() -> torch.Tensor:
            if way == "no bias":
                return F.scaled_dot_product_attention(q, k, v)
            bias = (rel_h + rel_w).flatten(3)
            if way == "SDPA":
                return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            return (q / 8 @ k.transpose(-1, -2) + bias).softmax(-1) @ v

        layer()
        ran = stretch(gpu, layer)
        return ran.seconds, ran.temporary


_LAYER = "attention of a global layer of SAM's ViT-B, 8 images, bfloat16"


def sdpa() -> Outcome:
    (_, written), (_, fused) = _global_layer("written out"), _global_layer("SDPA")
    return (
        f"{_LAYER}, with its bias of positions: written out it adds {written / 2**30:.1f} GiB, with SDPA {fused / 2**30:.1f}, most of it the bias",
        f"confirmed: as far as such a layer is the limit, {written / fused:.1f} times as large"
        if written > 1.5 * fused
        else "partly: a little larger" if written > fused
        else "refuted",
    )  # fmt: skip


def joined() -> Outcome:
    recording = recordings.show("11/fused", prefer="recorded")
    rows = [row for row in recording.table or () if "GELU" in row["what"]]
    eager, fast = (next(row for row in rows if row["way"] == way) for way in ("eager", "compiled"))
    return (
        f"a layer norm and a GELU behind it: {eager['kernels']} kernels and {eager['us']:.0f} µs eager, {fast['kernels']} and {fast['us']:.0f} µs compiled: `{fast['first']}`",
        "confirmed" if fast["kernels"] == 1 < eager["kernels"] else "refuted",
    )


def bias_as_needed() -> Outcome:
    (made, much), (without, little) = _global_layer("SDPA"), _global_layer("no bias")
    return (
        f"{_LAYER}: {made * 1e3:.1f} ms and {much / 2**30:.1f} GiB with the bias made first, {without * 1e3:.1f} ms and {little / 2**30:.1f} GiB with none",
        f"partly: the bias costs {1 - without / made:.0%} of the layer's time, which such a kernel can win at most; the kernel itself, the post's own, "
        "takes a GPU, and its gain in all of SAM is in a picture"
        if made > 1.1 * without
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
    tried("Bfloat16 Half precision (+GPU syncs and batching)", "These are both allocated and processed on the CPU. However, once these variables are used to index in rel_pos_resized, the index operation automatically moves these variables to the GPU. This copy over causes the GPU sync we've observed above.", "index variables that lie on the CPU are moved to the GPU by the index operation, and this copy makes the CPU wait", index_from_the_host, evidence=ON_A100),
    untested("Bfloat16 Half precision (+GPU syncs and batching)", "Taken the GPU sync and bfloat16 optimizations together, we have now pushed SAM performance by up to 3x", "without these waits and in bfloat16 SAM is up to 3 times as fast", "it takes SAM itself on an A100, with images of 1,024 pixels and the waits that it had. What bfloat16 alone wins in products, lesson 10 simulates"),
    tried("Torch.compile", "Fusing together sequences of operations such as nn.LayerNorm or nn.GELU into a single GPU kernel that is called", "torch.compile joins sequences of operations, such as those of nn.LayerNorm or nn.GELU, into a single GPU kernel", joined, evidence=ON_H100),
    tried("SDPA", "Using PyTorch’s native scaled_dot_product_attention, we can significantly increase the batch size.", "with SDPA the batch can be much larger", sdpa, evidence=ON_A100),
    tried("Triton", "If instead of allocating this large attn tensor, we thread into SDPA the two smaller rel_h and rel_w tensors, and only construct attn as needed, we’d anticipate significant performance gain.", "a kernel that takes two small tensors of positions, and makes the large bias of attention from them only where it is needed, should gain much", bias_as_needed, evidence=ON_A100),
    tried("introduction", "Nested Tensor: Batch together non-uniformly sized data into a single Tensor, such as images of different sizes.", "a nested tensor puts data of different sizes into one tensor, such as images of different sizes", nested),
    untested("int8", "While it’s common to see some accuracy regression when quantizing models at inference time, SAM has been particularly robust to lower precision inference with minimal loss of accuracy.", "quantizing often costs some accuracy at inference, but SAM loses very little of it", "the loss is that of SAM's trained weights, which are not here. What int8 products win in time, lesson 13 simulates"),
    untested("Semi-structured sparsity", "With 2:4 sparsity, we observe peak performance on SAM with vit_b and batch size 32", "with two of four weights at zero SAM runs fastest, with its ViT-B encoder and batches of 32", "it takes a GPU with sparse Tensor Cores, which are not simulated; how fast, the post says in a picture"),
)  # fmt: skip
