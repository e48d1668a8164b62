"""The article on five strategies: what it claims, section by section."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested


def full_precision_update() -> Outcome:
    net = nn.Linear(16, 4)
    optimizer = torch.optim.Adam(net.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(torch.rand(8, 16))
    out.float().sum().backward()
    optimizer.step()
    state = optimizer.state[net.weight]["exp_avg"]
    named = {"result": out, "weight": net.weight, "gradient": net.weight.grad, "optimizer's mean": state}
    dtypes = {name: str(t.dtype).removeprefix("torch.") for name, t in named.items() if t is not None}
    kept_full = all(dtypes[name] == "float32" for name in dtypes if name != "result")
    return ", ".join(f"{n}: {t}" for n, t in dtypes.items()), "confirmed" if kept_full else "refuted"


def _epoch(last_too: bool) -> tuple[int, int]:
    """Steps of the optimizer in an epoch of ten micro-batches, in groups of four; and how many wait in .grad at its end.

    last_too: a step also for what is left.
    """
    net, loader = nn.Linear(8, 4), DataLoader(TensorDataset(torch.rand(20, 8)), batch_size=2)
    optimizer, steps, waiting = torch.optim.SGD(net.parameters()), 0, 0
    for i, (x,) in enumerate(loader):
        size = min(4, len(loader) - i // 4 * 4) if last_too else 4
        (net(x).square().mean() / size).backward()
        waiting += 1
        if (i + 1) % 4 == 0 or (last_too and i + 1 == len(loader)):
            optimizer.step()
            optimizer.zero_grad()
            steps, waiting = steps + 1, 0
    return steps, waiting if net.weight.grad is not None else 0


def end_of_an_epoch() -> Outcome:
    (steps, waiting), (all_steps, left) = _epoch(False), _epoch(True)
    return (
        f"10 micro-batches, as printed: {steps} steps of the optimizer, {waiting} micro-batches left over in .grad; with a step for "
        f"the rest: {all_steps} steps, {left} left over",
        "partly: holds when the number of micro-batches divides; the last ones of an epoch are carried into the next"
        if waiting > left
        else "confirmed",
    )


class _Processes(Dataset[int]):
    """Eight samples; each is the number of the process that read it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def _processes(epochs: int, **options: bool) -> list[set[int]]:
    """The processes that read the samples, epoch by epoch."""
    loader = DataLoader(_Processes(), batch_size=1, num_workers=2, **options)  # type: ignore[arg-type]
    return [{int(batch) for batch in loader} for _ in range(epochs)]


def threads() -> Outcome:
    (read_by,) = _processes(1)
    here = os.getpid() in read_by
    return (
        f"num_workers=2: samples read by {len(read_by)} other processes, by the own one: {'some' if here else 'none'}",
        "confirmed" if here else "refuted: workers are processes, so Python's lock does not bind them, and batches are passed on",
    )  # fmt: skip


def persistent() -> Outcome:
    ends, stays = (len(set().union(*_processes(3, persistent_workers=p))) for p in (False, True))
    return (
        f"3 epochs with 2 workers: {ends} processes started, with persistent_workers {stays}",
        "confirmed" if stays < ends else "refuted",
    )


CLAIMS = (
    tried("1", "mixed_precision.tensor_cores", evidence="published"),
    kept("1.1", "10-scaling"),
    tried("1.1", full_precision_update, "the parameters are updated in FP32"),
    kept("1.3", "10-speed"),
    kept("1.3", "10-memory"),
    tried("1.3", "mixed_precision.larger_batch", evidence="simulated (H100)"),
    kept("1.3", "10-accuracy"),
    kept("2.1", "03-schedule-recipe"),
    untested("2.2", "the profiler finds fragmentation, and use of the memory's bandwidth", "a trace of the profiler has neither; snapshots show the first (lesson 08), Nsight Compute the second"),
    untested("2.3", "TensorBoard shows a timeline, a tree of stacks and a map of memory", "its plugin for the profiler is no longer maintained"),
    tried("3.1", end_of_an_epoch, "a step after every four micro-batches makes a large batch of them"),
    untested("3.2", "accumulate 4 to 8 steps", "how many are needed follows from your model's memory"),
    kept("3.2", "09-learning-rate"),
    kept("3.2", "09-batchnorm"),
    kept("3.2", "06-learning-rate", "scale the learning rate in proportion to the batch, whether or not it is accumulated"),
    kept("4.1", "14-ddp-table"),
    kept("4.1", "14-eight-cards"),
    kept("4.2", "14-listing"),
    tried("5.1", threads, "`num_workers` loads with many threads"),
    kept("5.1", "04-four-per-gpu"),
    kept("5.1", "04-mmap"),
    kept("5.1", "04-prefetch"),
    kept("5.1", "04-shared-memory"),
    kept("5.2", "05-pin-memory"),
    tried("5.2", persistent, "`persistent_workers=True` is a key to an efficient loader"),
    kept("5.2", "04-imagefolder"),
    kept("6", "00-12h-to-3h"),
    kept("6", "17-bert"),
    untested("6", "the GLUE score moves by less than 0.5 %", "it takes a pre-training of BERT"),
    kept("7", "06-fused-launches"),
    kept("7", "09-checkpoint-compute"),
    kept("7", "16-mixed"),
    kept("7", "13-faster-inference"),
    kept("conclusion", "00-one-at-a-time"),
)  # fmt: skip
