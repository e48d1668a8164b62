"""Lesson 09's claims on trial: by what its cells measured, and a function for each whose experiment stands in none of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from helpers import simulate
from helpers.lesson.claim import Claim
from helpers.lessons.saving_memory import experiments
from helpers.memory.estimating import Estimate

MIB = 2**20


def on_trial(by_rows: Mapping[int, Estimate], off: Mapping[str, float]) -> list[Claim]:
    """All claims of the lesson. by_rows: rows → the step of section 1; off: pieces → how far gradients are off, section 2."""
    phases = experiments.phases(by_rows)
    small, large = phases["peak with 16 rows"], phases["peak with 8,192 rows"]
    right = (
        max(off["pieces of 64"], off["pieces of 100, padded; sum of losses ÷ all targets that count"]) < 1e-9
    )
    sgd, adam = map(experiments.times_as_far, (torch.optim.SGD, torch.optim.Adam))
    return [
        Claim(
            "09-peak",
            "book-notes",
            "memory usually peaks in backward, in one of its operators",
            f"8 blocks with AdamW: in {large} with 8,192 rows, in {small} with 16",
            "confirmed"
            if small == large == "backward"
            else "partly: holds when activations outweigh gradients and the optimizer's temporaries",
            "1 · When does a step need the most memory?",
        ),
        Claim(
            "09-learning-rate",
            "five-strategies",
            "with accumulation, scale the learning rate in proportion to the batch",
            f"accumulated and whole gradients {'agree to 1e-9' if right else 'differ'}: the step is the same. Without the "
            f"division by 8, SGD's step is {sgd:.1f} times as long, Adam's {adam:.1f} times",
            "partly: holds when the whole batch grew, the optimizer is SGD, and the noise of the gradients limits the step (lesson 06); "
            "accumulation itself asks for nothing"
            if right
            else "confirmed",
            "2 · The batch in pieces",
        ),
        batchnorm(off["pieces of 64, the model has BatchNorm"]),
        checkpoint_compute(),
        book_checkpoint(),
        book_offload(),
        host_memory(),
        memory_first(),
    ]


def batchnorm(off: float) -> Claim:
    """BatchNorm's running averages after a step of 8 pieces: as they come, and held back until the end, as the source asks.

    off: how far the gradients of a model with BatchNorm are off.
    """
    x, _, _ = experiments.labelled_rows(512)
    whole, each, held = (nn.BatchNorm1d(32).double() for _ in range(3))
    momentum, held.momentum = held.momentum, 0.0  # such a layer normalises, and its averages stay
    whole(x)
    means = []
    for part in x.split(64):
        each(part)
        held(part)
        means.append(part.mean(0))
    updates = each.num_batches_tracked
    assert whole.running_mean is not None and each.running_mean is not None and held.running_mean is not None
    assert updates is not None and momentum is not None
    held.running_mean.lerp_(torch.stack(means).mean(0), momentum)
    mean = whole.running_mean
    as_whole = [torch.allclose(each.running_mean, mean), torch.allclose(held.running_mean, mean)]
    return Claim(
        "09-batchnorm",
        "five-strategies",
        "BatchNorm: update its statistics after a complete cycle of accumulation",
        f"as it is, {int(updates)} updates in a step of 8 pieces; running mean as after the whole batch: {'yes' if as_whole[0] else 'no'}, "
        f"updated once at the end {'yes' if as_whole[1] else 'no'}. Gradients of the pieces as of the whole batch: "
        f"{'yes' if off < 1e-9 else 'no'}",
        "partly: the averages for evaluation are then those of the whole batch, if the layer's momentum is 0 for the pieces, and the "
        "averages are updated by hand at the end; each piece is still normalised by itself, and the gradients are others"
        if as_whole == [False, True] and off > 1e-9
        else "refuted",
        "2 · The batch in pieces",
    )


def checkpoint_compute() -> Claim:
    """What checkpoints add to the FLOPs of forward and backward."""
    more = experiments.parts()
    shares = "; ".join(f"{name} {full:+.0%} and {early:+.0%}" for name, (full, early) in more.items())
    plain, again = (_on_a_card(way)["peak"] / MIB for way in ("plain", "checkpoints"))
    return Claim(
        "09-checkpoint-compute",
        "five-strategies",
        "checkpointing adds 20 % compute",
        f"more FLOPs, all of forward again and as torch does it: {shares}. Peak of the 8 blocks in Further: {plain:,.0f} → {again:,.0f} MiB",
        "partly: memory is saved; 20 % (here: between 15 and 25) is added when torch may skip the last matmul of each block, and all of forward "
        "again is a third more"
        if again < plain
        and 0.15 < more["a transformer's block"][1] < 0.25
        and more["the lesson's Block"][0] > 0.3
        else "refuted",
        "3 · Compute it again",
    )


def _book_script(order: tuple[str, str], clones: bool) -> dict[str, float]:
    """The script of the book's chapter 7, with the peak reset between its two ways. Peaks in MiB without workspaces.

    It runs both ways in one process, and with `clones` keeps a copy of all gradients from each.
    """
    gpu, peaks, kept = simulate("H100"), {}, []
    with gpu:
        with torch.device(gpu.device):
            parts = [nn.Linear(1000, 40000), nn.ReLU(), nn.Linear(40000, 1000), nn.ReLU(), nn.Linear(1000, 5), nn.ReLU()]  # fmt: skip
            net, x = nn.Sequential(*parts), torch.randn(10, 1000, requires_grad=True)
        for way in order:
            gpu.reset_peak_memory_stats()
            out = net(x) if way == "plain" else checkpoint_sequential(parts, 2, x, use_reentrant=False)
            net.zero_grad()
            out.sum().backward()
            peaks[way] = gpu.max_memory_allocated() / MIB - 2 * 32
            if clones:
                kept.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    return peaks


def book_checkpoint() -> Claim:
    """The book's comparison, in both orders, with and without the clones that it keeps."""
    runs = {
        (order[0], clones): _book_script(order, clones)
        for order in (("checkpoint", "plain"), ("plain", "checkpoint"))
        for clones in (True, False)
    }
    gap = {how: peaks["plain"] - peaks["checkpoint"] for how, peaks in runs.items()}
    published = gap["checkpoint", True]
    told = {
        "as published": ("checkpoint", True),
        "in the other order": ("plain", True),
        "no clones kept": ("checkpoint", False),
    }
    word = {"checkpoint": "with", "plain": "without"}
    return Claim(
        "09-book-checkpoint",
        "book-code",
        "peak of allocated memory with checkpoints 628.6 MB, without them 936.2",
        "in MiB, which the script writes MB, less the matrix library's workspaces: "
        + "; ".join(
            f"{what} {', then '.join(f'{word[way]} {peak:,.0f}' for way, peak in runs[how].items())}"
            for what, how in told.items()
        ),
        "partly: holds in the script's own order; in the other the way with checkpoints takes as much more, since the difference is a clone of all "
        "gradients, which the way that runs second finds there"
        if published > 0 > gap["plain", True] and abs(gap["checkpoint", False]) < 0.1 * published
        else "confirmed",
        "Sources on trial",
    )


def _layers_on_card(layers: int, grad: bool, before: bool = False) -> tuple[int, int]:
    """Layers of weights on the card at the end of forward, and at the peak; each fetched from the host and dropped.

    before: all are moved to the card first, as in the script.
    """
    gpu, width = simulate("H100"), 5000
    host = [torch.zeros(width, width, requires_grad=grad) for _ in range(layers)]
    with gpu:
        x = torch.randn(10, width, device=gpu.device)
        torch.mm(x, x.t())  # the matrix library's workspace is there from now on
        held = gpu.memory_allocated()
        gpu.reset_peak_memory_stats()
        if before:
            host = [w.to(gpu.device) for w in host]
        for w in host:
            here = w.to(gpu.device)
            x = torch.relu(x @ here.t())
            del here
        layer = host[0].nbytes
        return round((gpu.memory_allocated() - held) / layer), round(
            (gpu.max_memory_allocated() - held) / layer
        )


def book_offload() -> Claim:
    """The book's layers that are moved in and out: what of them is on the card, for training and for inference."""
    left = {(n, grad): _layers_on_card(n, grad) for n in (2, 4) for grad in (True, False)}
    layer_gib = 4 * 50_000**2 / 2**30
    _, printed = _layers_on_card(2, True, before=True)
    return Claim(
        "09-book-offload",
        "book-code",
        "layers moved to the GPU and back by turns: peak of GPU memory in forward 9.33 GB",
        f'its .to("cuda") before forward holds {printed} layers on the card: {printed * layer_gib:.2f} GiB. Without it: after '
        f"forward for training {left[2, True][0]} of 2 and {left[4, True][0]} of 4 layers are on the card; if weights "
        f"need no gradient the peak is {left[4, False][1]}",
        "refuted: as the script stands; a script without that line would hold one layer, if nothing is saved for backward"
        if printed * layer_gib > 1.5 * 9.33
        else "confirmed",
        "Sources on trial",
    )


@cache
def _on_a_card(way: str) -> dict[str, float]:
    """What a step takes that is "plain", has "checkpoints", or keeps what it saves on the host ("save_on_cpu")."""

    def step(net: nn.Module, x: torch.Tensor, way: str) -> None:
        with torch.autograd.graph.save_on_cpu() if way == "save_on_cpu" else nullcontext():
            for block in net.children():
                x = checkpoint(block, x, use_reentrant=False) if way == "checkpoints" else block(x)
            loss = experiments.squares(x)
        del x
        loss.backward()

    return experiments.on_a_card(step, way)


def host_memory() -> Claim:
    """What it costs to keep saved tensors in the host's memory."""
    plain, moved = _on_a_card("plain"), _on_a_card("save_on_cpu")
    times, peaks = moved["seconds"] / plain["seconds"], (plain["peak"] / MIB, moved["peak"] / MIB)
    return Claim(
        "09-host-memory",
        "book-notes",
        "keep data in the host's memory and load it when needed: host memory and performance are given up for GPU memory",
        f"8 blocks, activations on the host: the peak goes from {peaks[0]:,.0f} to {peaks[1]:,.0f} MiB, {moved['d2h'] / MIB:,.0f} MiB go to the host, "
        f"the step takes {times:.1f} times as long",
        "confirmed" if times > 1 and peaks[1] < peaks[0] else "refuted",
        "Further: Put it elsewhere",
    )


def memory_first() -> Claim:
    """What the order "memory first, then speed" costs where a step fits already."""
    plain, again = (_on_a_card(way)["seconds"] for way in ("plain", "checkpoints"))
    return Claim(
        "09-memory-first",
        "book-notes",
        "in practice one optimizes memory first and speed afterwards",
        f"of a step that fits already, checkpoints take {again / plain:.2f} times as long",
        "partly: holds when the step, or the batch that keeps the card busy, does not fit; else saved memory is paid in time"
        if again > plain
        else "confirmed",
        "Sources on trial",
    )
