"""The performance guide: what it claims, section by section."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from helpers import compiling, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.simulator.devices import DEVICES


def finds_what_to_fuse() -> Outcome:
    def three(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2).sin()

    pointwise, net = compiling.kernels(three, torch.rand(64)), nn.Linear(8, 8)
    with torch.no_grad():
        product = compiling.kernels(lambda x: torch.relu(net(x)).sin(), torch.rand(4, 8))
    return (
        f"3 pointwise operators: {pointwise.count} kernel; a linear layer and 2 pointwise operators: {product.count}, "
        f"{len(product.extern)} of them a library's",
        "partly: holds when operators are pointwise; on this CPU the product stays a kernel of its own"
        if pointwise.count == 1 < product.count
        else "confirmed",
    )


def by_operator() -> Outcome:
    with simulate("H100") as gpu, torch.autocast("cuda"):
        x = torch.rand(16, 16, device=gpu.device)
        results = {
            "x @ x": x @ x, "F.linear(x, x)": F.linear(x, x), "softmax": x.softmax(0), "exp": x.exp(), "sum": x.sum(), "relu": x.relu(),
        }  # fmt: skip
    dtypes = {name: str(y.dtype).removeprefix("torch.") for name, y in results.items()}
    both = {"float16", "float32"} <= set(dtypes.values())
    return ", ".join(f"{n}: {t}" for n, t in dtypes.items()), "confirmed" if both else "refuted"


def compatible_types() -> Outcome:
    rates = DEVICES["H100"].peak_flops
    faster = [name for name, rate in rates.items() if rate > 1.5 * rates["fp32"]]
    others = [name for name in faster if name not in ("fp16", "bf16", "int8")]
    return (
        f"data sheet of the H100: more than 1.5 times the fp32 rate in {', '.join(faster)}",
        f"partly: these three are on it, and so are {' and '.join(others)}" if others else "confirmed",
    )


def not_by_default() -> Outcome:
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    return (
        f"float32_matmul_precision is {products!r}, cudnn.allow_tf32 is {convolutions}",
        "partly: holds for float32 products; float32 convolutions may use TF32 without being asked"
        if products == "highest" and convolutions
        else "confirmed" if products == "highest" else "refuted",
    )  # fmt: skip


def two_classes() -> Outcome:
    names = [c.__name__ for c in (nn.DataParallel, nn.parallel.DistributedDataParallel)]
    two = len({*names}) == 2
    verdict = "refuted: DDP is the second; the first is another, older class" if two else "confirmed"
    return f"torch has {' and '.join(names)}", verdict


CLAIMS = (
    tried("1", finds_what_to_fuse, "torch.compile finds by itself what can be fused, and launches fewer kernels"),
    kept("1", "02-fusion"),
    untested("1", "torch.compile gives steadier and broader gains than jit.script", "torch.jit.script is deprecated in the torch of this course"),
    kept("2", "07-communication"),
    kept("2", "07-structure"),
    kept("2", "07-several-times"),
    tried("3", by_operator, "autocast switches between FP16 and FP32, operator by operator", evidence="simulated (H100)"),
    kept("4", "10-multiples"),
    kept("4", "13-multiples-of-16"),
    tried("4", compatible_types, "the types that Tensor Cores take are FP16, BF16 and INT8", evidence="published"),
    untested("4", "the kernel size of a convolution decides whether Tensor Cores are used", "cuDNN chooses the algorithm on a GPU, and there is none here"),
    tried("4", not_by_default, "PyTorch does not use Tensor Cores by default"),
    kept("5", "12-binding-rank"),
    untested("5", "binding a process to cores saves context switches", "their number depends on what else runs on the machine"),
    untested("5", "binding a process to cores raises the cache hit rate", "it takes the processor's own counters, which few machines open"),
    kept("5", "12-binding-numa"),
    kept("5", "12-set-num-threads"),
    tried("6", two_classes, "DDP stands for Data Parallel"),
    kept("6", "15-memory"),
    kept("6", "15-scaling"),
    kept("6", "15-strategy"),
    kept("8", "00-measure-optimise-measure"),
    kept("8", "00-simple-time"),
    kept("conclusion", "00-measure-optimise-measure", "no single optimisation fits every model"),
    kept("below the text, an advertisement", "13-int4-lossless"),
)  # fmt: skip
