"""PyTorch's own tuning guide: eight of its claims."""

from __future__ import annotations

import torch
from torch import nn

from helpers import compiling, count, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested

SIMULATED = "simulated (H100)"


def no_grad() -> Outcome:
    net, x = (
        nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)]),
        torch.rand(32, 64),
    )
    plain, without = count(net, x), count(torch.no_grad()(net), x)
    return (
        f"forward: {plain.saved_bytes:,} bytes kept for backward, with no_grad {without.saved_bytes:,}; peak {plain.peak_live_bytes:,} → "
        f"{without.peak_live_bytes:,} bytes; operators {plain.operators} → {without.operators}",
        "confirmed for memory; as many operators run" if without.peak_live_bytes < plain.peak_live_bytes else "refuted",
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
        "refuted for today's torch: zero_grad() sets None by itself" if today == 0 < zeros else "confirmed",
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
    x, page = torch.ones(8), torch.ones(8).numpy()
    lines = {
        "print(x)": lambda: str(x), "x.item()": lambda: x[0].item(), "x.cpu()": lambda: x.cpu(), "x.nonzero()": lambda: x.nonzero(),
        "if (x != 0).all()": lambda: bool((x != 0).all()), "torch.from_numpy(page)": lambda: torch.from_numpy(page),
    }  # fmt: skip
    waits = {name: count(line).syncs for name, line in lines.items()}
    named = [n for name, n in waits.items() if "page" not in name]
    return (
        "waits for a GPU: "
        + ", ".join(f"`{name}` {n}" for name, n in waits.items())
        + " (the last is the control)",
        "confirmed" if all(named) and not waits["torch.from_numpy(page)"] else "partly",
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


CLAIMS = (
    tried("General · Disable gradient calculation", no_grad, "torch.no_grad() saves memory where no gradient is needed"),
    untested("General · Disable gradient calculation", "torch.no_grad() saves time, too", "it is microseconds of the CPU an operator, which only a clock could show"),
    tried("General · Disable bias", bias_before_norm, "a convolution right before a batch norm needs no bias"),
    tried("General · Use parameter.grad = None", grad_is_none, "set .grad to None instead of calling zero_grad(): fewer operations"),
    tried("General · Fuse operations", gelu_in_one, "torch.compile makes one kernel of a GELU's pointwise operators"),
    untested("GPU · Enable cuDNN auto-tuner", "cudnn.benchmark = True picks the fastest convolution", "cuDNN tries its algorithms on a GPU, and there is none here"),
    tried("GPU · Avoid unnecessary synchronization", synchronizing, "print, item, copies to the CPU, nonzero and if on a tensor make the CPU wait"),
    tried("GPU · Create tensors directly on the target device", on_the_device, "torch.rand(n, device=…) in place of torch.rand(n).cuda()", evidence=SIMULATED),
    tried("GPU · Preallocate memory", longest_first, "a first pass with the longest input keeps memory from fragmenting", evidence=SIMULATED),
)  # fmt: skip
