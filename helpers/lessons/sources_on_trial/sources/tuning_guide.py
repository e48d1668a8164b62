"""PyTorch's own tuning guide: some of its claims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

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


def _trained(norm: bool, bias: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What a small net gives in its last training step, and in eval() afterwards. bias: whether its convolution is built with one."""
    torch.manual_seed(0)
    conv, last = nn.Conv2d(3, 8, 3), nn.Linear(8 * 6 * 6, 4)
    if not bias:
        conv.bias = None
    between = nn.BatchNorm2d(8) if norm else nn.Identity()
    net = nn.Sequential(conv, between, nn.ReLU(), nn.Flatten(), last).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    x, y = torch.rand(16, 3, 8, 8).double(), torch.randint(4, (16,))
    for _ in range(200):  # enough of them for the running averages, which begin at 0
        optimizer.zero_grad()
        out = net(x)
        F.cross_entropy(out, y).backward()
        optimizer.step()
    return out.detach(), net.eval()(x).detach()


def bias_before_norm() -> Outcome:
    same = {
        norm: [torch.allclose(*pair, atol=1e-6) for pair in zip(_trained(norm, True), _trained(norm, False), strict=True)]
        for norm in (True, False)
    }  # fmt: skip
    said = {norm: ["no", "yes"][training] + " and " + ["no", "yes"][later] for norm, (training, later) in same.items()}  # fmt: skip
    return (
        "two nets, built with the bias and with bias=False, the same in all else, after 200 steps: equal results in training and in "
        f"eval(): {said[True]}; without the norm (control): {said[False]}",
        "confirmed" if all(same[True]) and not any(same[False])
        else "partly: in training, not with the running averages" if same[True][0] and not any(same[False])
        else "refuted",
    )  # fmt: skip


def grad_is_none() -> Outcome:
    def nones(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for p in net.parameters():
            p.grad = None

    def zeros(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for p in net.parameters():
            assert p.grad is not None
            p.grad.zero_()

    def operators(clear: Callable[[nn.Module, torch.optim.Optimizer], None], layers: int) -> int:
        net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(layers)]), torch.rand(2, 8)
        optimizer = torch.optim.SGD(net.parameters())
        net(x).sum().backward()
        cleared = count(clear, net, optimizer).operators
        return cleared + count(net(x).sum().backward).operators

    ways = {
        "zero_grad(set_to_none=False)": lambda net, optimizer: optimizer.zero_grad(set_to_none=False),
        "a loop that writes zeros (control)": zeros,
        "a loop that sets None": nones,
        "zero_grad() of today": lambda net, optimizer: optimizer.zero_grad(),
    }
    found = {way: [operators(clear, layers) for layers in (1, 8)] for way, clear in ways.items()}
    zeroed, control, none, today = found.values()
    fewer = all(n < min(z, c) for n, z, c in zip(none, zeroed, control, strict=True))
    return (
        "operators of clearing the gradients and of the next backward, nets of 1 and 8 layers: "
        + "; ".join(f"{way} {one} and {eight}" for way, (one, eight) in found.items()),
        "refuted" if not fewer
        else "partly: None takes fewer than zeros; since PyTorch 2.0 zero_grad() sets None by itself" if none == today
        else "confirmed",
    )  # fmt: skip


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
        "confirmed: by PyTorch's documentation; cuDNN was not run",
    )


def _same(section: str, sentence: str, trial: Callable[[], Outcome], evidence: str = "live (CPU)") -> Listed:
    """A claim whose source is in English already."""
    return tried(section, sentence, sentence, trial, evidence=evidence)


CLAIMS = (
    _same("General · Disable gradient calculation", "torch.no_grad() … accelerates execution and reduces the amount of required memory", no_grad),
    _same("General · Disable bias", "If a nn.Conv2d layer is directly followed by a nn.BatchNorm2d layer, then the bias in the convolution is not needed, instead use nn.Conv2d(..., bias=False, ....)", bias_before_norm),
    _same("General · Use parameter.grad = None", "Instead of calling … optimizer.zero_grad() to zero out gradients … param.grad = None … does not zero the memory … backward pass uses assignment instead of addition … reduces the number of memory operations … Alternatively, starting from PyTorch 1.7, call … zero_grad(set_to_none=True)", grad_is_none),
    _same("General · Fuse operations", "Pointwise operations … can be combined into a single kernel … @torch.compile def gelu(x)", gelu_in_one),
    _same("GPU · Enable cuDNN auto-tuner", "[cuDNN's] autotuner runs a short benchmark and selects the kernel with the best performance on a given hardware for a given input size … the auto-tuner decisions may be non-deterministic; different algorithm may be selected for different runs", autotuner, "published"),
    _same("GPU · Avoid unnecessary synchronization", "operations which require synchronizations, for example: print(cuda_tensor), cuda_tensor.item(), memory copies: tensor.cuda(), cuda_tensor.cpu() …, cuda_tensor.nonzero(), python control flow which depends on results of operations performed on CUDA tensors e.g. if (cuda_tensor != 0).all()", synchronizing, SIMULATED),
    _same("GPU · Create tensors directly on the target device", "Instead of calling torch.rand(size).cuda() … produce the output directly on the target device", on_the_device, SIMULATED),
    _same("GPU · Preallocate memory", "generate a … batch of inputs with maximum sequence length … execute a forward and a backward pass with the generated batch, do not execute an optimizer … this step preallocates buffers of maximum size, which can be reused in subsequent training iterations", longest_first, SIMULATED),
)  # fmt: skip
