"""The code of "Five strategies": five listings (one of them makes two calls on trial), a setting and a class in its sentences."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from helpers.lessons.data_loading.claims import _image_folder
from helpers.lessons.sources_on_trial.snippets.running import CPU, SIMULATED, Snippet, counted, snippet
from helpers.simulator import simulate


def _amp(make: Callable[[], Any], autocast: Callable[[], Any]) -> str:
    data = TensorDataset(torch.rand(16, 1024), torch.randint(10, (16,)))
    with simulate("H100") as gpu:
        model = nn.Linear(1024, 10).to(gpu.device)
        optimizer, scaler = torch.optim.Adam(model.parameters()), make()
        for x, y in DataLoader(data, batch_size=8):
            x, y = x.to(gpu.device), y.to(gpu.device)
            optimizer.zero_grad()
            with autocast():
                made = model(x)
                loss = nn.CrossEntropyLoss()(made, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return f"2 steps, the model's result is {str(made.dtype).removeprefix('torch.')}"


def amp_written() -> str:
    return _amp(torch.cuda.amp.GradScaler, torch.cuda.amp.autocast)


def amp_should() -> str:
    return _amp(lambda: torch.amp.GradScaler("cuda"), lambda: torch.autocast("cuda", dtype=torch.float16))


def _profiled(steps: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
            schedule=torch.profiler.schedule(wait=2, warmup=1, active=3),
            on_trace_ready=torch.profiler.tensorboard_trace_handler(folder),
            with_stack=True,
            profile_memory=True,
        ) as prof:
            for _ in range(steps):
                torch.ones(4).sum()
                prof.step()
        files = [path for path in Path(folder).iterdir() if path.name.endswith(".pt.trace.json")]
        return f"{counted(steps, 'call')} of prof.step(), {counted(len(files), 'trace')} written"


def profiler_written() -> str:
    return _profiled(0)


def profiler_should() -> str:
    return _profiled(6)


def _accumulated(last_too: bool) -> str:
    """Ten micro-batches in groups of four."""
    data = TensorDataset(torch.rand(20, 8), torch.randint(4, (20,)))
    with simulate("H100") as gpu:
        model, criterion = nn.Linear(8, 4).to(gpu.device), nn.CrossEntropyLoss()
        optimizer, loader, group = (
            torch.optim.SGD(model.parameters(), lr=0.1),
            DataLoader(data, batch_size=2),
            4,
        )
        steps = waiting = 0
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            size = min(group, len(loader) - i // group * group) if last_too else group
            (criterion(model(x.to(gpu.device)), y.to(gpu.device)) / size).backward()
            waiting += 1
            if (i + 1) % group == 0 or (last_too and i + 1 == len(loader)):
                optimizer.step()
                optimizer.zero_grad()
                steps, waiting = steps + 1, 0
        left = sum(p.grad is not None for p in model.parameters())
        return (
            f"{counted(len(loader), 'micro-batch')}, {counted(steps, 'step')} of the optimizer; {waiting} left over at the "
            f"end, in the .grad of {left} parameters"
        )


def accumulation_written() -> str:
    return _accumulated(False)


def accumulation_should() -> str:
    return _accumulated(True)


def ddp_written() -> str:
    kept = {name: os.environ.pop(name) for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ}
    try:
        dist.init_process_group("nccl", rank=0, world_size=2)
    finally:
        os.environ.update(kept)
    return "a group of 2"


def ddp_should() -> str:
    local_rank = 0  # int(os.environ["LOCAL_RANK"]), by torchrun
    with simulate("H100").world(2) as gpu:  # its address set, a process group made
        model = DistributedDataParallel(nn.Linear(16, 16).to(gpu.device))
        model(torch.rand(4, 16, device=gpu.device)).sum().backward()
        gpu.synchronize()
        sent = [c for c in gpu.collectives if "reduce" in c.kind]
        return f"process {local_rank} of {dist.get_world_size()}, with its address and its GPU set: {counted(len(sent), 'all-reduce')} in a step"


def _workers(gpus: int, each: int) -> str:
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=2, num_workers=each * gpus)
    return f"with {gpus} GPUs {counted(loader.num_workers, 'worker')}"


def workers_written() -> str:
    return _workers(0, 4) + ": the process that trains loads"


def workers_should() -> str:
    load_ms, step_ms = 30, 10
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=2, num_workers=-(-load_ms // step_ms))
    return (
        f"loads of {load_ms} ms, steps of {step_ms} ms: {counted(loader.num_workers, 'worker')} for each GPU"
    )


def image_folder_written() -> str:
    options: dict[str, Any] = {"num_workers": 16, "pin_memory": True, "persistent_workers": True}
    inspect.signature(_image_folder).bind(root="data", transform=None, **options)
    return "a data set"


def image_folder_should() -> str:
    bound = inspect.signature(_image_folder).bind(root="data", transform=None)
    return (
        f"accepts {', '.join(bound.arguments)}; num_workers, pin_memory, persistent_workers are DataLoader's"
    )


def loader_written() -> str:
    loader = DataLoader(TensorDataset(torch.rand(8, 2)), batch_size=256, shuffle=True, prefetch_factor=4)
    return counted(len(loader), "batch")


def loader_should() -> str:
    data = TensorDataset(torch.rand(8, 2))
    loader = DataLoader(
        data, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True, prefetch_factor=4
    )
    found = f"{counted(len(list(loader)), 'batch')} from {counted(loader.num_workers, 'worker')}"
    del loader
    return found


def fused_adam_written() -> str:
    torch.optim.FusedAdam  # type: ignore[attr-defined]  # noqa: B018
    return "a class"


def fused_adam_should() -> str:
    with simulate("H100") as gpu:
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))).to(gpu.device)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        optimizer_kernels = []
        for _ in range(2):
            model(torch.rand(4, 16, device=gpu.device)).sum().backward()
            before = len(gpu.kernels)
            optimizer.step()
            gpu.synchronize()
            optimizer_kernels.append(len(gpu.kernels) - before)
        return f"Adam(fused=True): {counted(optimizer_kernels[1], 'kernel')} in its second step, for 8 parameters"


def _one(name: str, *rest: Any, **how: Any) -> Snippet:
    return snippet(f"five-strategies/{name}", *rest, **how)


SIGNATURE = "against torchvision's documented signature"
SNIPPETS: list[Snippet] = [
    _one("amp", "1.2", "torch.cuda.amp.GradScaler(), torch.cuda.amp.autocast()", amp_written, amp_should, SIMULATED),
    _one("profiler", "2.1", "tensorboard_trace_handler, schedule(wait=2, warmup=1, active=3)", profiler_written, profiler_should, CPU),
    _one("accumulation", "3.1", "if (i+1) % accumulation_steps == 0", accumulation_written, accumulation_should, SIMULATED),
    _one("ddp", "4.2", 'init_process_group("nccl", rank=…, world_size=…); DDP(model.cuda(), …)', ddp_written, ddp_should, CPU, where_should=SIMULATED),
    _one("workers", "5.1", "num_workers=4*num_gpus", workers_written, workers_should, CPU),
    _one("image-folder", "5.2", "ImageFolder(…, num_workers=16, …)", image_folder_written, image_folder_should, SIGNATURE),
    _one("loader", "5.2", "DataLoader(…, prefetch_factor=4)", loader_written, loader_should, CPU),
    _one("fused-adam", "7", "FusedAdam", fused_adam_written, fused_adam_should, CPU, where_should=SIMULATED),
]  # fmt: skip
