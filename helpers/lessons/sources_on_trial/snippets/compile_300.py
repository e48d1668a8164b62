"""The code of "torch.compile in practice" up to its section 4: compiling, its options, mixed precision, memory."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from helpers import compiling
from helpers.lessons.sources_on_trial.snippets.running import (
    CPU,
    SIMULATED,
    NotRun,
    Pictures,
    Snippet,
    captured,
    counted,
    problem_of,
    snippet,
)
from helpers.pytorch import private_torch
from helpers.simulator import SimGPU, simulate


def _dynamo() -> Any:
    """The module whose names the snippets themselves use; a second or two to import."""
    return importlib.import_module("torch._dynamo")


def _double(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


def three_steps_written() -> str:
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    improved: Any = _dynamo().optimize(traced)
    torch.compile(improved)(torch.rand(2, 4))
    return "compiled"


def three_steps_should() -> str:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return captured(lambda: torch.compile(model)(torch.rand(2, 4)))


def fusion_before_written() -> str:
    x = F.relu(F.conv2d(torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)))
    F.batch_norm(x)  # type: ignore[call-arg]
    return "3 operators"


def fusion_before_should() -> str:
    def three(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.conv2d(x, weight))
        return F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        three(torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3))
    names = {"aten::conv2d", "aten::relu", "aten::batch_norm"}
    return counted(sum(event.name in names for event in prof.events() or ()), "operator")


def _layers() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4))


def fusion_after_written() -> str:
    def two_steps() -> None:
        for _ in range(2):
            torch.compile(_layers())(torch.rand(2, 3, 8, 8))

    return "2 steps: new weights in each, " + captured(two_steps)


def fusion_after_should() -> str:
    def two_steps() -> None:
        layers = torch.compile(_layers())
        for _ in range(2):
            layers(torch.rand(2, 3, 8, 8))

    return "2 steps: " + captured(two_steps)


def _with_options(**options: Any) -> str:
    torch.compile(_double, **options)(torch.rand(3))
    return "compiled"


def layout_written() -> str:
    return _with_options(backend="inductor", options={"memory_format": torch.channels_last})


def layout_should() -> str:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)
    y = torch.compile(model, backend="aot_eager")(x)
    return f"the result is channels_last: {y.is_contiguous(memory_format=torch.channels_last)}"


def tensorrt_dynamic_written() -> str:
    return _with_options(backend="tensorrt", options={"dynamic": True})


def _two_sizes(mark: bool) -> str:
    """Of 16 up: for smaller batches PyTorch may choose another convolution on a CPU, and guards on that."""

    def both() -> None:
        model = torch.compile(nn.Conv2d(3, 4, 3), dynamic=None if mark else True)
        for n in (16, 64):
            x = torch.rand(n, 3, 12, 12)  # no other size is 16: equal sizes may be taken for one
            if mark:
                _dynamo().mark_dynamic(x, 0, min=16, max=64)
            model(x)

    return f"{'mark_dynamic(x, 0, min=16, max=64)' if mark else 'dynamic=True'}, batches of 16 and 64: {captured(both)}"


def dynamic_should() -> str:
    return _two_sizes(False)


def install() -> str:
    raise NotRun("it would install packages; no version stands in the line")


def install_should() -> str:
    raise NotRun("it would install packages; `torch==` and a version belong into the line")


#: Inductor as on a machine without a C++ compiler, whatever it has in its caches
_NO_COMPILER = {"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}


def check_written() -> str:
    with private_torch.inductor_config.patch(_NO_COMPILER):
        there = torch.compile is not None
    return f"torch.compile available: {there}, also where Inductor finds no C++ compiler"


def check_should() -> str:
    def fresh(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 17 + 3)

    with private_torch.inductor_config.patch(_NO_COMPILER):
        return f"a compiled call there raises {problem_of(lambda: torch.compile(fresh)(torch.rand(7)))}"


def _rows(model: nn.Module) -> str:
    def of(side: int) -> str:
        shapes: list[tuple[int, ...]] = []
        said = problem_of(lambda: shapes.append(tuple(model(torch.rand(1, 3, side, side)).shape)))
        return f"{side}×{side}: {shapes[0] if shapes else said}"

    return f"one picture of {of(32)}; of {of(64)}"


def network_written() -> str:
    return _rows(Pictures(lambda x: x.view(-1, 16 * 16 * 16)))


def network_should() -> str:
    return _rows(Pictures())


def _compiled_network(calls: int) -> str:
    def run() -> None:
        model, x = torch.compile(Pictures()), torch.randn(1, 3, 32, 32)
        for _ in range(calls):
            model(x)

    return f"{counted(calls, 'call')}: {captured(run)}"


def compile_written() -> str:
    return _compiled_network(0)


def compile_should() -> str:
    return _compiled_network(1)


def _train(read_each: bool) -> str:
    """Four steps on random pictures; the loss is read in each, or once at the end."""
    data = torch.utils.data.TensorDataset(torch.randn(32, 3, 32, 32), torch.randint(10, (32,)))
    with simulate("H100") as gpu:
        model, criterion = Pictures().to(gpu.device), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        total: Any = 0.0 if read_each else torch.zeros((), device=gpu.device)
        before = gpu.syncs
        for x, y in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):
            if read_each:
                x, y = x.to(gpu.device), y.to(gpu.device)
            else:
                x, y = (part.pin_memory().to(gpu.device, non_blocking=True) for part in (x, y))
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() if read_each else loss.detach()
        float(total)
        return f"random pictures in CIFAR10's place, not compiled: in 4 steps the host waits {counted(gpu.syncs - before, 'time')}"


def train_written() -> str:
    return _train(True)


def train_should() -> str:
    return _train(False)


def inductor_written() -> str:
    return _kernels_of(lambda: torch.compile(_double, backend="inductor"))


def _kernels_of(make: Any) -> str:
    with compiling.watch("inductor") as w:
        make()(torch.rand(3))
    return f"{counted(len(w.graphs), 'graph')} of {counted(w.operators, 'operator')}; its code is written and not built here"


def inductor_should() -> str:
    return _kernels_of(lambda: torch.compile(_double))


def tensorrt_written() -> str:
    return _with_options(backend="tensorrt")


def tensorrt_should() -> str:
    raise NotRun("needs NVIDIA's TensorRT; the package torch_tensorrt registers a backend of that name")


def _mode(name: str) -> str:
    torch.compile(_double, mode=name)
    options = private_torch.list_mode_options(name)
    return "sets " + ", ".join(f"{key}={value}" for key, value in options.items())


def autotune_written() -> str:
    return _mode("max-autotune")


def autotune_should() -> str:
    return _mode("max-autotune-no-cudagraphs")


def overhead_written() -> str:
    return _mode("reduce-overhead") + " (the source: the mode that takes less time to compile)"


def overhead_should() -> str:
    def block_by_block() -> None:
        x, blocks = torch.rand(2, 4), [torch.compile(nn.Linear(4, 4)) for _ in range(3)]
        for block in blocks:
            x = block(x)

    return f"mode not given sets nothing; three equal blocks, compiled one by one: {captured(block_by_block)}"


def _amp(scaler: Any, autocast: Any) -> str:
    with simulate("H100") as gpu:
        model, criterion = nn.Linear(16, 4, device=gpu.device), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        scale = scaler()
        for _ in range(2):
            x, y = torch.rand(8, 16).to(gpu.device), torch.randint(4, (8,)).to(gpu.device)
            optimizer.zero_grad()
            with autocast():
                made = model(x)
                loss = criterion(made, y)
            scale.scale(loss).backward()
            scale.step(optimizer)
            scale.update()
    return f"2 steps, the model's result is {str(made.dtype).removeprefix('torch.')}"


def amp_written() -> str:
    return _amp(torch.cuda.amp.GradScaler, torch.cuda.amp.autocast)


def amp_should() -> str:
    return _amp(lambda: torch.amp.GradScaler("cuda"), lambda: torch.autocast("cuda", dtype=torch.float16))


def half_written() -> str:
    model = Pictures()
    for name, parameter in model.named_parameters():
        if "fc" in name:
            parameter.data = parameter.data.half()
    torch.compile(model, backend="eager")(torch.rand(1, 3, 32, 32))
    return "a result"


def half_should() -> str:
    model = Pictures()
    fast = torch.compile(model, backend="eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = fast(torch.rand(1, 3, 32, 32))
    kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters()}
    return f"the result is {str(y.dtype).removeprefix('torch.')}, parameters stay {', '.join(kinds)}"


def pool_written() -> str:
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.PoolAllocator)  # type: ignore[attr-defined]
    return "set"


def _gpu_memory(gpu: SimGPU) -> str:
    return f"{gpu.memory_reserved() >> 20} MiB reserved"


def pool_should() -> str:
    with simulate("H100") as gpu:
        for _ in range(3):
            torch.empty(64 << 20, dtype=torch.uint8, device=gpu.device)
        return f"nothing is set; 3 tensors of 64 MiB, one after another: {_gpu_memory(gpu)}"


def fraction_written() -> str:
    with simulate("H100") as gpu:
        gpu.set_per_process_memory_fraction(0.8)
        return f"{_gpu_memory(gpu)}: it is a limit"


def fraction_should() -> str:
    with simulate("H100") as gpu:
        torch.empty(512 << 20, dtype=torch.uint8, device=gpu.device)
        return f"one tensor of 512 MiB, made and dropped: {_gpu_memory(gpu)}"


def size_written() -> str:
    torch.randn((-1, 3, 32, 32))
    return "a tensor"


def shapes_written() -> str:
    shapes = {"min_shape": (1, 3, 32, 32), "opt_shape": (8, 3, 32, 32), "max_shape": (64, 3, 32, 32)}
    return _with_options(backend="tensorrt", options=shapes)


def shapes_should() -> str:
    return _two_sizes(True)


def _one(name: str, *rest: Any, **how: Any) -> Snippet:
    return snippet(f"compile-300/{name}", *rest, **how)


SNIPPETS: list[Snippet] = [
    _one("three-steps", "2.1", "symbolic_trace → _dynamo.optimize → torch.compile", three_steps_written, three_steps_should, CPU),
    _one("fusion-before", "2.2.1", "conv2d, relu, batch_norm(x)", fusion_before_written, fusion_before_should, CPU),
    _one("fusion-after", "2.2.1", "x = torch.compile(nn.Sequential(…))(input)", fusion_after_written, fusion_after_should, CPU),
    _one("layout", "2.2.2", 'options={"memory_format": torch.channels_last}', layout_written, layout_should, CPU),
    _one("tensorrt-dynamic", "2.2.3", 'backend="tensorrt", options={"dynamic": True}', tensorrt_dynamic_written, dynamic_should, CPU),
    _one("install", "3.1.1", "pip install torch torchvision torchaudio", install, install_should),
    _one("check", "3.1.2", "torch.compile is not None", check_written, check_should, CPU),
    _one("network", "3.2.1", "x.view(-1, 16 * 16 * 16)", network_written, network_should, CPU),
    _one("compile", "3.2.2", "compiled_model = torch.compile(model)", compile_written, compile_should, CPU),
    _one("train", "3.2.3", "a training loop with loss.item()", train_written, train_should, SIMULATED),
    _one("backend-inductor", "3.3.1", 'backend="inductor"', inductor_written, inductor_should, CPU),
    _one("backend-tensorrt", "3.3.1", 'backend="tensorrt"', tensorrt_written, tensorrt_should, CPU, where_should=""),
    _one("max-autotune", "3.3.2", 'mode="max-autotune"', autotune_written, autotune_should, CPU),
    _one("reduce-overhead", "3.3.2", 'mode="reduce-overhead"', overhead_written, overhead_should, CPU),
    _one("amp", "4.1.1", "torch.cuda.amp.GradScaler(), autocast()", amp_written, amp_should, SIMULATED),
    _one("half-layers", "4.1.2", "param.data = param.data.half()", half_written, half_should, CPU),
    _one("pool-allocator", "4.2.1", "change_current_allocator(torch.cuda.memory.PoolAllocator)", pool_written, pool_should, CPU, where_should=SIMULATED),
    _one("memory-fraction", "4.2.2", "torch.cuda.set_per_process_memory_fraction(0.8)", fraction_written, fraction_should, SIMULATED),
    _one("negative-size", "4.3.1", "torch.randn((-1, 3, 32, 32)), dynamic=True", size_written, dynamic_should, CPU),
    _one("shapes", "4.3.2", 'backend="tensorrt", options={"min_shape": …}', shapes_written, shapes_should, CPU),
]  # fmt: skip
