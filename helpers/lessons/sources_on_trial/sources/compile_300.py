"""The article on torch.compile: what it claims, section by section."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from helpers import compiling, count, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.pytorch import private_torch
from helpers.simulator.stretch import stretch

_INDUCTOR = "PyTorch's page on it (docs.pytorch.org/docs/stable/torch.compiler): TorchInductor uses Triton for GPUs of NVIDIA, AMD and Intel"


def _chain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2).sin()


def graph_then_code() -> Outcome:
    with compiling.watch("eager") as watched:
        torch.compile(_chain)(torch.rand(4))
    written, lies = compiling.kernels(_chain, torch.rand(4)), _between_convolutions()
    return (
        f"captured: {len(watched.graphs)} graph of {watched.operators} operators; written for this CPU: {written.count} kernel. Between two convolutions a "
        f"picture lies in {lies[0]} in eager mode, in {lies[1]} compiled",
        "confirmed" if written.count < watched.operators and lies[0] != lies[1]
        else "partly: it fuses; the layout stays" if written.count < watched.operators
        else "refuted",
    )  # fmt: skip


def _double(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


def _compilations() -> list[int]:
    """How many graphs there are after torch.compile(…), a call, the same call, a call with another size, a third size."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    fn, counts = torch.compile(_double, backend=backend), [len(graphs)]
    for n in (8, 8, 16, 24):
        fn(torch.rand(n))
        counts.append(len(graphs))
    return counts


def before_training() -> Outcome:
    counts = _compilations()
    return (
        f"compilations after torch.compile(…): {counts[0]}; after the first call: {counts[1]}; after another size: {counts[3]}",
        "partly: it adapts while it runs; nothing is compiled before the first call"
        if counts[0] == 0 < counts[1] < counts[3]
        else "refuted"
        if counts[0] == 0
        else "confirmed",
    )


def _planned() -> list[bool]:
    """Whether torch.jit.script has an optimised plan to run: after no call, a first and a second one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted, has = torch.jit.script(_double), list[bool]()
    for _ in range(3):
        try:
            scripted.get_debug_state()  # type: ignore[attr-defined]
            has.append(True)
        except RuntimeError:  # it asserts that there is one
            has.append(False)
        scripted(torch.rand(8))
    return has


def steady_latency() -> Outcome:
    counts, has = _compilations(), _planned()
    return (
        f"torch.jit.script has an optimised plan after {has.index(True) if any(has) else 'more than 2'} calls. torch.compile, compilations so far, call "
        f"by call: {', '.join(map(str, counts[1:]))} (the third call has a new size)",
        "partly: both compile in their first calls; torch.compile is steady once all sizes were seen, since a new one may compile again"
        if not has[0] and counts[1] == counts[2] < counts[3]
        else "refuted" if counts[1] < counts[2]
        else "confirmed",
    )  # fmt: skip


def _result(flat: Callable[[torch.Tensor], torch.Tensor], side: int) -> str:
    """What a network for pictures of 3 × 32 × 32 makes of one picture of 3 × side × side. flat: how it gets its rows."""
    pooled = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))(
        torch.rand(1, 3, side, side)
    )
    try:
        return str(tuple(nn.Linear(16 * 16 * 16, 10)(flat(pooled)).shape))
    except RuntimeError as problem:
        return f"RuntimeError: {problem}"


def flattening() -> Outcome:
    written = [_result(lambda x: x.view(-1, 16 * 16 * 16), side) for side in (32, 64)]
    should = [_result(lambda x: x.flatten(1), side) for side in (32, 64)]
    ways = {"as written": written, "with `flatten(1)`": should}
    try:
        in_training = f"{F.cross_entropy(torch.rand(4, 10), torch.zeros(1, dtype=torch.long)):.1f}"
    except ValueError as problem:
        in_training = f"ValueError: {problem}"
    return (
        "; ".join(
            f"{way}: one picture of 32×32: {small}; of 64×64: {large}" for way, (small, large) in ways.items()
        )
        + f". The loss of 4 rows and 1 label: {in_training}",
        "confirmed: for pictures of the size that the source fixes; a larger one becomes several rows, which only a loss notices"
        if written[0] == "(1, 10)"
        else "refuted",
    )


def amp_names() -> Outcome:
    with warnings.catch_warnings(record=True) as caught, simulate("H100") as gpu:
        warnings.simplefilter("always")
        model = nn.Linear(16, 4, device=gpu.device)
        optimizer, scaler = torch.optim.SGD(model.parameters()), torch.cuda.amp.GradScaler()
        for _ in range(2):
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                output = model(torch.rand(8, 16).to(gpu.device))
            scaler.scale(output.sum()).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
    messages = {str(w.message).partition(" is deprecated")[0] for w in caught if w.category is FutureWarning}
    deprecated = sorted(name for name in messages if "torch.cuda.amp" in name)
    return (
        f"2 steps run, the model's result is {str(output.dtype).removeprefix('torch.')}; deprecated: {', '.join(deprecated) or 'nothing'}",
        "confirmed; both names are deprecated" if len(deprecated) == 2 else "confirmed",
    )


def max_autotune() -> Outcome:
    modes = ("max-autotune", "max-autotune-no-cudagraphs")
    options = [", ".join(f"{k}={v}" for k, v in private_torch.list_mode_options(m).items()) for m in modes]
    return (
        f"sets {options[0]}; {modes[1]}: sets {options[1]}",
        "confirmed; it switches CUDA graphs on as well"
        if "max_autotune=True" in options[0] and "cudagraphs=True" in options[0]
        else "refuted",
    )


def _scripted(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> int:
    """The operators that torch.jit.script runs, when it has optimised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(fn)
    for _ in range(3):  # a script is optimised in its second run
        scripted(x)
    return count(scripted, x).operators


def scope() -> Outcome:
    def whole(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2).sin() + 1).cos()

    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).sin()
        if y.sum() > 0:  # Python has to know it
            return (y + 1).cos()
        return y

    x = torch.rand(64)
    operators, script = count(whole, x).operators, _scripted(whole, x)
    kernels = [compiling.kernels(fn, x).count for fn in (whole, breaks)]
    return (
        f"a chain of {operators} pointwise operators, on this CPU: scripted {script} operators, compiled {kernels[0]} kernel; with a branch on "
        f"its data in the middle, compiled {kernels[1]} kernels",
        "refuted" if kernels[0] >= script
        else "partly: holds when there is no graph break; at one the graph is cut, and each part is optimised by itself"
        if kernels[1] > kernels[0]
        else "confirmed",
    )  # fmt: skip


def for_the_hardware() -> Outcome:
    x = torch.rand(64)
    eager, by_script, written = count(_chain, x).operators, _scripted(_chain, x), compiling.kernels(_chain, x)
    return (
        f"on this CPU: eager {eager} operators, torch.jit.script {by_script}, PyTorch's ready-made ones; torch.compile {written.count} kernel, in "
        f"C++ for a CPU. {_INDUCTOR}",
        "confirmed" if written.count < by_script == eager else "refuted",
    )


def chosen_by_itself() -> Outcome:
    wanted = ("max_autotune", "triton.cudagraphs")
    default = private_torch.list_mode_options().get("default", {})
    asked = private_torch.list_mode_options()["max-autotune"]
    return (
        f"set without a mode: {', '.join(n for n in wanted if default.get(n)) or 'neither'} of {' and '.join(wanted)}; by "
        f'mode="max-autotune": {", ".join(n for n in wanted if asked.get(n))}',
        "partly: no option is needed; what tunes longest, and CUDA graphs, are on only where they are asked for"
        if not any(default.get(n) for n in wanted)
        else "confirmed",
    )


@cache
def _between_convolutions() -> tuple[str, str]:
    """How a picture lies that a second convolution gets, eager and compiled, where the first gets it as usual (NCHW)."""
    net = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3)).eval()
    x, lies = torch.rand(2, 8, 16, 16), []
    with torch.no_grad():
        lies.append("NHWC" if net[0](x).is_contiguous(memory_format=torch.channels_last) else "NCHW")
        kernels = compiling.kernels(net, x)
    relaid = "(2, 16, 14, 14), (3136, 1, 224, 16)"  # the first one's result, channels last
    return lies[0], "NHWC" if relaid in kernels.code else "NCHW"


def layout() -> Outcome:
    lies = _between_convolutions()
    return (
        f"two convolutions of a picture in NCHW: between them it lies in {lies[0]} in eager mode, in {lies[1]} compiled for this CPU",
        "partly: for a convolution of oneDNN, Inductor takes NHWC without trying which is best; hits of the cache were not counted"
        if lies == ("NCHW", "NHWC")
        else "refuted",
    )


def _busy(kernels: int, size: int, graphed: bool = False) -> float:
    """Share of the time that a simulated H100 computes, in four rounds of so many pointwise kernels. graphed: replayed."""
    gpu = simulate("H100")
    with gpu:
        x = torch.empty(size, device=gpu.device)

        def eager() -> None:
            for _ in range(kernels):
                torch.relu(x)

        eager()
        step: Callable[[], None] = eager
        if graphed:
            graph = gpu.CUDAGraph()
            with gpu.graph(graph):
                eager()
            step = graph.replay
            step()

        def four() -> None:
            for _ in range(4):
                step()

        ran = stretch(gpu, four)
        return ran.busy_s / ran.seconds


def utilization() -> Outcome:
    shares = {
        size: (_busy(60, size), _busy(10, size), _busy(10, size, True)) for size in (2**12, 2**20, 2**24)
    }
    by_fusing = [size for size, (eager, fused, _) in shares.items() if fused > 1.8 * eager]
    by_graphs = [size for size, (eager, _, graphed) in shares.items() if graphed > 1.8 * eager]
    return (
        "60 pointwise operators, 10 kernels in their place, and these as one CUDA graph, the GPU computes: "
        + "; ".join(
            f"{size:,} numbers {eager:.0%}, {fused:.0%} and {graphed:.0%} of the time"
            for size, (eager, fused, graphed) in shares.items()
        ),
        "confirmed" if len(by_fusing) == len(shares)
        else "refuted" if not by_fusing and not by_graphs
        else "partly: holds when kernels are short and a mode switches CUDA graphs on; fusing alone leaves it as it is, since one launch less is "
        "one kernel less",
    )  # fmt: skip


def counted_in_the_graph() -> Outcome:
    x = torch.rand(64)
    with compiling.watch("eager") as watched:
        fn = torch.compile(_chain)
        for _ in range(5):
            fn(x)
    ran, kernels = 5 * count(_chain, x).operators, compiling.kernels(_chain, x).count
    return (
        f"five calls: {watched.operators} operators in the FX graph, {ran} run in eager mode; compiled, {5 * kernels} kernels run",
        "partly: the graph has the operators of one call, before they are fused; how often they run, a profiler says"
        if watched.operators < ran
        else "confirmed",
    )


def known_backends() -> Outcome:
    names = torch.compiler.list_backends(exclude_tags=())
    there = {name: name in names for name in ("openxla", "tensorrt")}
    return (
        "backends that torch registers by itself: "
        + ", ".join(f"{name} {'yes' if known else 'no'}" for name, known in there.items()),
        "confirmed"
        if all(there.values())
        else "partly: XLA has its name in torch, and needs the package torch_xla; TensorRT is a package of NVIDIA's"
        if any(there.values())
        else "refuted",
    )


def more_hardware() -> Outcome:
    written = compiling.kernels(_chain, torch.rand(64))
    return (
        f"3 operators for this CPU: {written.count} kernel in C++. {_INDUCTOR}",
        "confirmed: CPUs by this run, AMD's GPUs by PyTorch's page" if written.count == 1 else "refuted",
    )


def pruned() -> Outcome:
    net, x = nn.Linear(64, 64), torch.rand(8, 64)
    dense = count(net, x).flops
    prune.l1_unstructured(net, "weight", amount=0.9)  # type: ignore[no-untyped-call]
    prune.remove(net, "weight")  # type: ignore[no-untyped-call]
    zeros = (net.weight == 0).float().mean().item()
    with torch.no_grad():
        kernels = compiling.kernels(net, x)
    small = nn.Linear(64, 16)  # a quarter of the rows, as when whole channels are pruned and taken out
    scattered, rows = count(net, x).flops, count(small, x).flops
    return (
        f"{zeros:.0%} of the weights of a linear layer are zero: FLOPs {dense:,} → {scattered:,}, compiled, {len(kernels.extern)} library call, "
        f"the dense product; three quarters of its rows taken out: {rows:,}",
        "partly: quantizing makes products of few tokens faster (lesson 13), and so do rows that are taken out; weights that are only zero are "
        "multiplied as all others"
        if rows < scattered == dense
        else "confirmed" if scattered < dense else "refuted",
    )  # fmt: skip


def timeline() -> Outcome:
    return (
        "NVIDIA's page on it (docs.nvidia.com/cuda/nsight-systems): “a system-wide visualization of an applications performance. Developers can optimize "
        "bottlenecks … For further optimizations to compute kernels developers should use Nsight Compute”",
        "partly: it shows what runs when, and so which kernels or gaps take the time; why a kernel takes it, Nsight Compute says",
    )


def version() -> Outcome:
    return (
        "PyTorch's release notes (github.com/pytorch/pytorch/releases/tag/v2.0.0) name torch.compile the main API of PyTorch 2.0, of March 2023",
        "refuted: it came with 2.0; 2.2 improved it",
    )


CLAIMS = (
    untested("1.1", "某计算机视觉模型在 A100 GPU 上训练，单步迭代耗时达 800ms，GPU 利用率不足 45%", "a vision model trained on an A100: a step takes 800 ms, the GPU is used by less than 45 %", "the model, its batch and its code are not given"),
    untested("1.1", "自然语言处理 Transformer 模型训练时，显存占用超过 12GB，导致频繁出现 OOM（Out Of Memory）错误", "a Transformer for language takes more than 12 GB in training, and often runs out of memory", "the model, its batch and its card are not given"),
    untested("1.1", "从训练到推理环境迁移，需手动进行算子融合、模型量化等优化，耗时长达数天", "to move from training to inference one fuses operators and quantizes by hand, which takes days", "it takes people and their model, and neither is named"),
    tried("1.2", "PyTorch 2.2 引入的 Torch.compile 优化器", "torch.compile, introduced by PyTorch 2.2", version, evidence="published"),
    kept("1.2", "单步迭代时间 800ms 200ms 400%", "with torch.compile a step takes 200 ms instead of 800: 400 %", "17-compile", evidence="simulated (H100)"),
    tried("1.2", "GPU 利用率 45% 90% 100%", "with torch.compile the GPU is used by 90 % instead of 45: 100 %", utilization, evidence="simulated (H100)"),
    kept("1.2, 8.1", "显存占用 12GB 6GB 50%", "with torch.compile GPU memory is 6 GB instead of 12: 50 %", "17-compile-memory", evidence="simulated (H100)"),
    kept("1.2, 8.1", "训练总时长 72 小时 24 小时 300%", "with torch.compile the whole training takes 24 hours instead of 72: 300 %", "11-300-percent", "00-300-percent-faster"),
    kept("1.2", "提升效果 400% 100% 50% 300%", "the improvement, a column: 400 % (800 → 200 ms), 100 % (45 → 90 %), 50 % (12 → 6 GB), 300 % (72 → 24 h)", "00-percent-table", evidence="arithmetic"),
    tried("2.1", "Torch.compile 采用多级编译架构，将 PyTorch 模型转换为高效的可执行代码：前端分析：捕获 PyTorch 模型的计算图，生成 FX 中间表示 … 中间优化：对 FX IR 进行算子融合、内存布局调整等优化 … 后端生成：根据硬件特性（如 GPU、CPU）生成对应的高效机器码", "torch.compile makes a model into efficient code in stages: it captures an FX graph; optimises it, as by fusing operators and by another memory layout; and writes code for the hardware", graph_then_code),
    tried("2.1", "traced_model = torch.fx.symbolic_trace(model); optimized_ir = torch._dynamo.optimize(traced_model); compiled_model = torch.compile(optimized_ir)", "symbolic_trace, then _dynamo.optimize(traced), then torch.compile", "torch_compile.three_steps"),
    tried("2.2.1", "将多个连续的算子（如卷积、激活函数、批归一化）融合为单个核函数，减少内存访问次数和计算开销", "operators in a row, such as convolution, activation and batch norm, become one kernel, with less memory access and computing", "torch_compile.one_kernel"),
    tried("2.2.2", "根据硬件特性自动选择最优内存布局（如 NHWC、NCHW），提升缓存命中率", "the best memory layout for the hardware (such as NHWC or NCHW) is chosen by itself, which raises the cache's hit rate", layout),
    kept("2.2.2", '# 自动选择NHWC布局 … options={"memory_format": torch.channels_last}', 'options={"memory_format": torch.channels_last} chooses the NHWC layout by itself', "12-memory-format", evidence="live (CPU)"),
    kept("2.2.3", '# 支持动态形状输入 … backend="tensorrt", options={"dynamic": True}', 'backend="tensorrt", options={"dynamic": True} takes inputs of dynamic shape', "11-options-dynamic", evidence="live (CPU) · published"),
    tried("2.3", "优化范围 局部算子优化 全局计算图级优化", "scope: a traditional JIT optimises operators locally, torch.compile the whole graph", scope),
    tried("2.3", "编译时机 运行时即时编译 训练前提前编译或运行时自适应编译", "time: a traditional JIT compiles while running, torch.compile ahead of training or while running, as it adapts", before_training),
    tried("2.3", "硬件适配 通用硬件优化 针对特定硬件深度优化", "hardware: a traditional JIT optimises for any, torch.compile deeply for the one at hand", for_the_hardware, evidence="live (CPU) · published"),
    tried("2.3", "性能稳定性 首次运行延迟高 稳定的低延迟表现", "stability: a traditional JIT is slow in its first run, torch.compile has a steady low latency", steady_latency),
    tried("2.3", "易用性 需要手动配置优化选项 自动选择最优编译策略", "ease: a traditional JIT's options are set by hand, torch.compile chooses the best strategy by itself", chosen_by_itself),
    tried("3.1.2", "# 验证安装 … print(f\"Torch.compile可用: {torch.compile is not None}\")", "`torch.compile is not None` verifies that torch.compile can be used", "torch_compile.is_there"),
    tried("3.2.1", "x = x.view(-1, 16 * 16 * 16)", "`x.view(-1, 16 * 16 * 16)`, for the network's pictures of 32 × 32", flattening),
    tried("3.3.1", '# 使用TensorRT后端 compiled_model = torch.compile(model, backend="tensorrt")', 'torch.compile(model, backend="tensorrt") uses TensorRT', "torch_compile.tensorrt", evidence="live (CPU) · published"),
    tried("3.3.2", '# 最大自动调优模式 compiled_model = torch.compile(model, mode="max-autotune")', 'mode="max-autotune" is the mode of the most automatic tuning', max_autotune),
    kept("3.3.2", '# 减少编译时间模式 compiled_model = torch.compile(model, mode="reduce-overhead")', 'mode="reduce-overhead" is the mode that reduces compile time', "11-reduce-overhead", evidence="live (CPU)"),
    tried("4.1.1", "# 启用自动混合精度 import torch.cuda.amp as amp", "torch.cuda.amp's autocast() and GradScaler() switch automatic mixed precision on, as printed", amp_names, evidence="simulated (H100)"),
    tried("4.1.2", '# 手动设置模型部分层为FP16 … if "fc" in name: param.data = param.data.half()', "set some layers of a model to FP16 by hand, by their names", "mixed_precision.half_by_name"),
    kept("4.2.1", "# 启用内存池复用 torch.cuda.memory.change_current_allocator(torch.cuda.memory.PoolAllocator)", "change_current_allocator(torch.cuda.memory.PoolAllocator) switches the reuse of a memory pool on", "08-pool-allocator", evidence="live (CPU)"),
    kept("4.2.2", "# 预分配固定大小的内存 torch.cuda.set_per_process_memory_fraction(0.8)", "set_per_process_memory_fraction(0.8) allocates memory of a fixed size in advance", "08-fraction", evidence="simulated (H100)"),
    tried("4.3.1", "# 定义动态形状输入 dynamic_input = torch.randn((-1, 3, 32, 32)).cuda()", "torch.randn((-1, 3, 32, 32)) defines an input of dynamic shape", "torch_compile.negative_size"),
    tried("4.3.2", '# 优化动态维度卷积计算 … backend="tensorrt", options={"min_shape": …, "opt_shape": …, "max_shape": …}', 'backend="tensorrt" with min_shape, opt_shape and max_shape optimises convolutions of dynamic size', "torch_compile.shape_options", evidence="live (CPU) · published"),
    tried("5.2.2", "# 编译Stable Diffusion模型 compiled_pipe = torch.compile(pipe)", "torch.compile(pipe) compiles the Stable Diffusion model", "torch_compile.pipe"),
    kept("6.1.1", "GPU 利用率：使用torch.cuda.utilization()获取 GPU 使用率", "`torch.cuda.utilization()` gives the use of the GPU", "03-utilization", evidence="simulated (H100)"),
    kept("6.1.1", "显存占用：通过torch.cuda.memory_allocated()torch.cuda.memory_reserved()监控显存使用情况", "watch the use of GPU memory with memory_allocated() and memory_reserved()", "08-monitor", evidence="simulated (H100)"),
    kept("6.1.1", "CUDA 内核执行时间：利用torch.cuda.Event记录内核执行时间", "`torch.cuda.Event` records the time that kernels run", "00-event-kernel-time", evidence="simulated (H100)"),
    tried("6.1.2", "算子执行次数：分析 FX 计算图中各算子的调用频率", "how often operators run: see how often the FX graph calls them", counted_in_the_graph),
    kept("6.2.1", 'print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))', '`key_averages().table(sort_by="cuda_time_total")`, as printed', "03-cuda-time-total", evidence="live (CPU)"),
    tried("6.2.2", "可视化 GPU 执行流程，定位计算瓶颈", "Nsight Systems shows what the GPU runs, and where computing has its bottleneck", timeline, evidence="published"),
    kept("6.2.2", "分析显存访问模式，优化内存布局", "Nsight Systems analyses memory access patterns, to improve the layout", "03-nsys-memory", evidence="published"),
    tried("7.1.1", "扩展对 AMD GPU、Intel CPU 等硬件的优化支持", "to come: more hardware, such as AMD GPUs and Intel CPUs", more_hardware, evidence="live (CPU) · published"),
    tried("7.1.3", "深度集成 TensorRT、XLA 等优化框架", "to come: TensorRT, XLA and other frameworks, deeply integrated", known_backends),
    tried("7.1.3", "结合模型量化、剪枝技术实现更高性能", "to come: with quantization and pruning it is faster still", pruned),
)  # fmt: skip
