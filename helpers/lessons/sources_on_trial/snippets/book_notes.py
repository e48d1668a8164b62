"""The code that the book's notes name: no listing, seven names and calls in their sentences."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from helpers.lessons.sources_on_trial.snippets.running import (
    CPU,
    SIMULATED,
    Snippet,
    captured,
    counted,
    problem_of,
    snippet,
)
from helpers.pytorch import private_torch
from helpers.simulator import simulate


def _two_streams(wait: str) -> str:
    """Two batches, each copied and used in a stream of its own; `wait` stands between the second's copy and its use."""
    with simulate("H100") as gpu:
        running_stream, submit_stream = gpu.Stream(), gpu.Stream()
        weight = torch.rand(64, 64, device=gpu.device)
        gpu.synchronize()
        for stream in (running_stream, submit_stream):
            with gpu.stream(stream):
                batch = torch.rand(64, 64).pin_memory().to(gpu.device, non_blocking=True)
                if stream is submit_stream:
                    exec(wait, {"running_stream": running_stream, "submit_stream": submit_stream})
                weight += batch
        gpu.synchronize()
        return f"2 streams update one tensor, {len(gpu.races)} races"


def wait_written() -> str:
    return _two_streams("sumbit_stream.wait_stream(running_stream)")


def wait_should() -> str:
    return _two_streams("submit_stream.wait_stream(running_stream)")


def _step(**how: Any) -> int:
    """Kernels of one step of SGD with momentum on eight parameters."""
    with simulate("H100") as gpu:
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))).to(gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **how)
        model(torch.rand(4, 16, device=gpu.device)).sum().backward()
        gpu.synchronize()
        before = len(gpu.kernels)
        optimizer.step()
        gpu.synchronize()
        return len(gpu.kernels) - before


def implementations_written() -> str:
    return counted(_step(**{"for-each": True}), "kernel")


def implementations_should() -> str:
    ways: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}, {"fused": True}]
    told = ", ".join(f"{next(iter(how))}={next(iter(how.values()))}: {_step(**how)}" for how in ways)
    return f"kernels of a first step of SGD on 8 parameters: {told}"


def _split(conf: str) -> str:
    with simulate("H100", alloc_conf=conf) as gpu:
        big = torch.empty(256 << 20, dtype=torch.uint8, device=gpu.device)
        del big
        small = torch.empty(64 << 20, dtype=torch.uint8, device=gpu.device)
        return f"64 MiB after 256 MiB were freed: {gpu.memory_reserved() >> 20} MiB reserved for {small.nbytes >> 20}"


def split_written() -> str:
    return _split("max_split_size_mb")


def split_should() -> str:
    return _split("max_split_size_mb:128") + "; without the setting: " + _split("").partition(": ")[2]


def _hooked(*arguments: Any) -> None:
    with simulate("H100").world(2) as gpu:
        model = DistributedDataParallel(nn.Linear(16, 16, device=gpu.device))
        model.register_comm_hook(*arguments)
        model(torch.rand(4, 16, device=gpu.device)).sum().backward()
        gpu.synchronize()


def hook_written() -> str:
    _hooked()
    return "registered"


def hook_should() -> str:
    calls: list[int] = []

    def reduced(bucket: Any) -> Any:
        calls.append(bucket.buffer().numel())
        work: Any = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    _hooked(None, lambda state, bucket: reduced(bucket))
    return f"the hook was called {counted(len(calls), 'time')}, with {calls} numbers"


def amp_written() -> str:
    scaler = torch.cuda.amp.GradScaler()
    with torch.autocast():  # type: ignore[call-arg]
        loss = nn.Linear(4, 4)(torch.rand(2, 4)).sum()
    scaler.scale(loss).backward()
    return "scaled"


def amp_should() -> str:
    with simulate("H100") as gpu:
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            made = nn.Linear(4, 4, device=gpu.device)(torch.rand(2, 4, device=gpu.device))
        scaler.scale(made.sum()).backward()
        return f"the result is {str(made.dtype).removeprefix('torch.')}"


def _reads(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.sum().item() > 0 else x.cos()


def _chooses(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.sum() > 0, x.sin(), x.cos())


def fullgraph_written() -> str:
    return captured(lambda: torch.compile(_chooses, fullgraph=True)(torch.rand(4)))


def fullgraph_should() -> str:
    said = problem_of(lambda: torch.compile(_reads, fullgraph=True, backend="eager")(torch.rand(4)))
    return f"the same; where Python asks for a tensor's value it raises {said.partition(':')[0]}"


def _sizes(dynamic: bool | None) -> str:
    def three() -> None:
        fn = torch.compile(_chooses, dynamic=dynamic)
        for n in (4, 8, 12):
            fn(torch.rand(n))

    return "3 sizes: " + captured(three)


def dynamic_written() -> str:
    return _sizes(True)


def dynamic_should() -> str:
    return f"the same; dynamic not given: {_sizes(None)}"


def _mode(name: str) -> str:
    torch.compile(_chooses, mode=name)
    options = private_torch.list_mode_options(name)
    return "sets " + ", ".join(f"{key}={value}" for key, value in options.items())


def mode_written() -> str:
    return _mode("r educe-overhead")


def mode_should() -> str:
    return _mode("reduce-overhead")


SNIPPETS: list[Snippet] = [
    snippet(
        "book-notes/wait-stream",
        "data",
        "sumbit_stream.wait_stream(running_stream)",
        wait_written,
        wait_should,
        SIMULATED,
    ),
    snippet(
        "book-notes/implementations",
        "optimizers",
        "for-loop, for-each, fused",
        implementations_written,
        implementations_should,
        SIMULATED,
    ),
    snippet(
        "book-notes/max-split-size", "memory", "max_split_size_mb", split_written, split_should, SIMULATED
    ),
    snippet(
        "book-notes/comm-hook", "distributed", "register_comm_hook()", hook_written, hook_should, SIMULATED
    ),
    snippet(
        "book-notes/amp",
        "mixed precision",
        "torch.autocast, torch.cuda.amp.GradScaler",
        amp_written,
        amp_should,
        CPU,
        SIMULATED,
    ),
    snippet("book-notes/fullgraph", "graphs", "fullgraph", fullgraph_written, fullgraph_should, CPU),
    snippet("book-notes/dynamic", "graphs", "dynamic=True", dynamic_written, dynamic_should, CPU),
    snippet("book-notes/mode", "graphs", "r educe-overhead", mode_written, mode_should, CPU),
]
