"""PyTorch's own tuning guide: some of its claims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from helpers import compiling, count, simulate
from helpers.lessons.operators_and_autograd.graph import graph_of
from helpers.lessons.sources_on_trial.listing import Listed, Outcome, tried

SIMULATED = "simulated (H100)"


def no_grad() -> Outcome:
    net, x = (
        nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)]),
        torch.rand(32, 64),
    )
    plain, without = count(net, x), count(torch.no_grad()(net), x)
    nodes = [len(graph_of(run.result)) if run.result.requires_grad else 0 for run in (plain, without)]
    return (
        f"forward: {plain.saved_bytes:,} bytes kept for backward, with no_grad {without.saved_bytes:,}; peak {plain.peak_live_bytes:,} → "
        f"{without.peak_live_bytes:,} bytes; operators {plain.operators} → {without.operators}, nodes of the graph {nodes[0]} → {nodes[1]}",
        "refuted" if without.peak_live_bytes >= plain.peak_live_bytes
        else "confirmed" if without.operators < plain.operators
        else "partly: less memory, yes; faster where the CPU decides, which makes no graph; as many operators run, and a GPU has as much to do"
        if nodes[1] < nodes[0]
        else "partly: less memory, and as much to do",
    )  # fmt: skip


def bias_before_norm() -> Outcome:
    torch.manual_seed(0)
    with_bias = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    without = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    without.load_state_dict({k: v for k, v in with_bias.state_dict().items() if k != "0.bias"})
    x = torch.rand(16, 3, 8, 8)
    trains = (with_bias(x) - without(x)).abs().max().item() < 1e-5
    fresh = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    saved = fresh(x)
    with torch.no_grad():
        fresh[0].bias.zero_()  # type: ignore[operator, union-attr]
    frozen = (fresh(x) - saved).abs().max().item() < 1e-5
    return (
        f"the same result without the bias: in training {'yes' if trains else 'no'}, with running averages that did not see it "
        f"{'yes' if frozen else 'no'}",
        "partly: holds when BatchNorm trains, or was trained so; not for averages that were made with a bias"
        if trains and not frozen
        else "confirmed" if trains else "refuted",
    )  # fmt: skip


def grad_is_none() -> Outcome:
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters())

    def operators(**options: bool) -> int:
        net(torch.rand(2, 8)).sum().backward()
        return count(optimizer.zero_grad, **options).operators

    today = operators()
    left = "None" if net.weight.grad is None else "zeros"
    zeros = operators(set_to_none=False)
    return (
        f"operators of optimizer.zero_grad(): {today}, and .grad is then {left}; with set_to_none=False: {zeros}",
        "refuted: today's zero_grad() sets None by itself" if today == 0 < zeros else "confirmed",
    )


def gelu_in_one() -> Outcome:
    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1.0 + torch.erf(x / 1.41421))

    x = torch.rand(256)
    eager, kernels = count(gelu, x).operators, compiling.kernels(gelu, x).count
    return (
        f"{eager} operators, {kernels} kernel when compiled",
        "confirmed" if kernels == 1 < eager else "refuted",
    )


def on_the_device() -> Outcome:
    copies = []
    for way in ("torch.rand(n).to(gpu)", "torch.rand(n, device=gpu)"):
        with simulate("H100") as gpu:
            n = 1_000_000
            x = torch.rand(n).to(gpu.device) if ".to" in way else torch.rand(n, device=gpu.device)
            copied = sum(k.bytes for k in gpu.kernels if k.kind == "copy h2d")
            copies.append((way, copied, x.shape))
    (_, moved, _), (_, made, _) = copies
    return (
        f"1,000,000 numbers: {moved:,} bytes copied over the bus; made on the GPU {made:,}",
        "confirmed" if made == 0 < moved else "refuted",
    )


def synchronizing() -> Outcome:
    waits = {}
    with simulate("H100") as gpu:
        x, page = torch.ones(8, device=gpu.device), torch.ones(8)
        lines = {
            "print(x)": lambda: str(x), "x.item()": lambda: x[0].item(), "page.cuda()": lambda: page.to(gpu.device), "x.cpu()": lambda: x.cpu(),
            "x.nonzero()": lambda: x.nonzero(), "if (x != 0).all()": lambda: bool((x != 0).all()), "x + 1": lambda: x + 1,
        }  # fmt: skip
        for name, line in lines.items():
            before = gpu.syncs
            line()
            waits[name] = gpu.syncs - before
    named = [n for name, n in waits.items() if name != "x + 1"]
    return (
        "waits for the card: "
        + ", ".join(f"`{name}` {n}" for name, n in waits.items())
        + " (the last is the control)",
        "confirmed" if all(named) and not waits["x + 1"] else "partly: not all of them do",
    )


def longest_first() -> Outcome:
    reserved = {}
    for name, lengths in {"as they come": (200, 500, 900, 1400), "the longest first": (1400, 200, 500, 900, 1400)}.items():  # fmt: skip
        with simulate("H100") as gpu:
            net = nn.Sequential(*[nn.Linear(512, 512, device=gpu.device) for _ in range(8)])
            for n in lengths:
                net(torch.rand(16 * n, 512, device=gpu.device)).sum().backward()
                net.zero_grad()
            reserved[name] = gpu.memory_reserved()
    (come, first), mib = reserved.values(), 2**20
    return (
        f"batches that grow: {come / mib:,.0f} MiB reserved at the end as they come, {first / mib:,.0f} when the longest went first",
        "confirmed" if first < come else "refuted",
    )


def autotuner() -> Outcome:
    return (
        "PyTorch's page on reproducibility (docs.pytorch.org/docs/stable/notes/randomness.html): cuDNN “can run multiple convolution algorithms, "
        "benchmarking them to find the fastest one”, but “due to benchmarking noise and different hardware, the benchmark may select different "
        "algorithms on subsequent runs, even on the same machine”",
        "partly: it takes what was fastest in its short benchmark, of which noise is a part; cuDNN was not run",
    )


def _same(section: str, sentence: str, trial: Callable[[], Outcome], evidence: str = "live (CPU)") -> Listed:
    """A claim whose source is in English already."""
    return tried(section, sentence, sentence, trial, evidence=evidence)


CLAIMS = (
    _same("General · Disable gradient calculation", "torch.no_grad() … accelerates execution and reduces the amount of required memory", no_grad),
    _same("General · Disable bias", "If a nn.Conv2d layer is directly followed by a nn.BatchNorm2d layer, then the bias in the convolution is not needed", bias_before_norm),
    _same("General · Use parameter.grad = None", "Instead of calling … optimizer.zero_grad() … param.grad = None … reduces the number of memory operations", grad_is_none),
    _same("General · Fuse operations", "Pointwise operations … can be combined into a single kernel … @torch.compile def gelu(x)", gelu_in_one),
    _same("GPU · Enable cuDNN auto-tuner", "[cuDNN's] autotuner runs a short benchmark and selects the kernel with the best performance", autotuner, "published"),
    _same("GPU · Avoid unnecessary synchronization", "operations which require synchronizations: print(cuda_tensor), cuda_tensor.item(), memory copies: tensor.cuda(), cuda_tensor.cpu() …, cuda_tensor.nonzero(), python control flow which depends on results of operations performed on CUDA tensors e.g. if (cuda_tensor != 0).all()", synchronizing, SIMULATED),
    _same("GPU · Create tensors directly on the target device", "Instead of calling torch.rand(size).cuda() … produce the output directly on the target device", on_the_device, SIMULATED),
    _same("GPU · Preallocate memory", "execute a forward and a backward pass with a batch of maximum sequence length, which preallocates buffers that are reused", longest_first, SIMULATED),
)  # fmt: skip
