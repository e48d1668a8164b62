"""The performance guide: what it claims, section by section."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import cache, partial

import torch
from torch import nn
from torch.nn import functional as F

from helpers import compiling, count, simulate
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.simulator.devices import DEVICES
from helpers.simulator.stretch import stretch


def finds_what_to_fuse() -> Outcome:
    def three(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2).sin()

    pointwise, net = compiling.kernels(three, torch.rand(64)), nn.Linear(8, 8)
    with torch.no_grad():
        product = compiling.kernels(lambda x: torch.relu(net(x)).sin(), torch.rand(4, 8))
    return (
        f"3 pointwise operators: {pointwise.count} kernel, {pointwise.loops} walk through memory; a linear layer and 2 pointwise operators: "
        f"{product.count}, {len(product.extern)} of them a library's",
        "confirmed: on this CPU a product stays a kernel of its own"
        if pointwise.count == 1 and product.count < 3
        else "refuted",
    )


def from_two() -> Outcome:
    return (
        "PyTorch's release notes (github.com/pytorch/pytorch/releases/tag/v2.0.0) name torch.compile the main API of PyTorch 2.0, of March 2023",
        "confirmed",
    )


def _lookup(x: torch.Tensor) -> torch.Tensor:
    return {"up": torch.relu, "down": torch.neg}["down"](x)


def _formatted(x: torch.Tensor) -> torch.Tensor:
    scale = float(f"{2.5:.0f}")
    return x * scale


def _options(x: torch.Tensor, **options: float) -> torch.Tensor:
    return x * options.get("scale", 2.0)


def _branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return -x


def _loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x.sin()
    return x


def broader() -> Outcome:
    programs = {
        "a loop": _loop, "a branch": _branch, "a dictionary of functions": _lookup, "a formatted number": _formatted, "**options": _options,
    }  # fmt: skip
    x, taken = torch.rand(3), dict[str, list[str]]()
    for way in ("jit.script", "torch.compile"):
        taken[way] = []
        for name, program in programs.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    fn = (
                        torch.jit.script(program)
                        if way == "jit.script"
                        else torch.compile(program, backend="eager")
                    )
                    right = torch.equal(fn(x), program(x))
                except Exception:
                    right = False
            taken[way] += [name] if right else []
    by_script, compiled = taken.values()
    return (
        f"of {len(programs)} functions, unchanged, torch.jit.script takes {len(by_script)} ({', '.join(by_script)}), torch.compile {len(compiled)}",
        "partly: broader, and less intrusive, yes; that its gains are steadier was not tried, which takes clocks on a GPU"
        if set(by_script) < set(compiled)
        else "refuted",
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


def _zeros(scale: float) -> float:
    """Share of a net's gradients that are zero with autocast to float16 and a loss so small. scale: of the loss, undone later."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(64, 32)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(x).square().mean() * 1e-6
    (loss * scale).backward()
    gradients = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    return (gradients == 0).float().mean().item()


def keeps_and_uses() -> Outcome:
    measured, switches = by_operator()
    lost, kept_by_scaler = _zeros(1.0) > 0.5, _zeros(2.0**16) < 0.05
    return (
        f"on a simulated H100 {measured}. A net whose gradients are small, on this CPU: most of them zero as printed: "
        f"{'yes' if lost else 'no'}, with the loss scaled: {'no' if kept_by_scaler else 'yes'}",
        "partly: it switches, operator by operator; accuracy also takes a GradScaler, which the listing does not have, where gradients are small"
        if switches == "confirmed" and lost and kept_by_scaler
        else switches,
    )


def compatible_types() -> Outcome:
    types = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8"}
    cards = {name: of.peak_flops for name, of in DEVICES.items()}
    lacks = {name: [t for k, t in types.items() if not rates.get(k)] for name, rates in cards.items()}
    missing = [f"{name} has no {' and no '.join(some)}" for name, some in lacks.items() if some]
    more = {"tf32": "TF32", "fp8": "FP8", "fp64_tensor": "FP64"}
    others = [f"{t} on {sum(bool(rates.get(k)) for rates in cards.values())}" for k, t in more.items()]
    return (
        f"data sheets of {len(cards)} cards, Tensor Cores: {len(cards) - len(missing)} have all three; {'; '.join(missing)}. Others: "
        f"{', '.join(others)}",
        "partly: FP16 on every card, the other two not on the older ones; and these three are not all"
        if missing
        else "confirmed",
    )


@cache
def _of_the_peak(channels: int, size: int) -> float:
    """The share of a simulated H100's peak that a convolution in FP16 reaches: 32 pictures of 56 × 56, channels last."""
    with simulate("H100") as gpu, torch.no_grad():
        with torch.device(gpu.device):
            x = torch.empty(32, channels, 56, 56).half().to(memory_format=torch.channels_last)
            net = nn.Conv2d(channels, channels, size, padding="same", bias=False).half()
        net.to(memory_format=torch.channels_last)(x)  # type: ignore[call-overload]
        gpu.synchronize()
        kernel = gpu.kernels[-1]
        return kernel.flops / kernel.duration_s / gpu.card.peak_flops["fp16"]


def kernel_sizes() -> Outcome:
    shares = {channels: [_of_the_peak(channels, size) for size in (1, 3, 5)] for channels in (64, 256)}
    told = "; ".join(
        f"{channels} channels {', '.join(f'{share:.0%}' for share in of)}" for channels, of in shares.items()
    )
    helps = [of[1] > 1.1 * of[0] for of in shares.values()], [of[2] > 1.1 * of[1] for of in shares.values()]
    return (
        f"of the card's FP16 peak with kernels of 1 × 1, 3 × 3 and 5 × 5: {told}. NVIDIA's guide (docs.nvidia.com/deeplearning/performance/"
        "dl-performance-convolutional): its QuickStart Checklist asks for channels “divisible by 8 (for FP16)”, and for no size of kernel",
        "confirmed" if all(helps[1])
        else "partly: a 1 × 1 kernel computes so little for each byte that memory is the limit; from 3 × 3 on the size makes no difference"
        if all(helps[0]) and not any(helps[1])
        else "partly: with some numbers of channels" if any(helps[0])
        else "refuted",
    )  # fmt: skip


def not_forced() -> Outcome:
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    return (
        f"by default float32_matmul_precision is {products!r}, cudnn.allow_tf32 is {convolutions}",
        "partly: products in float32 do without Tensor Cores until they are allowed TF32; convolutions in float32 may use it unasked. "
        "The reason in PyTorch's documentation is precision"
        if products == "highest" and convolutions
        else "confirmed" if products == "highest" else "refuted",
    )  # fmt: skip


#: what a process does that computes for 0.15 s of its own time; it says how often it was switched out, and on how many cores it ran
_BUSY = """
import ctypes, os, resource, sys, time
os.sched_setaffinity(0, {int(core) for core in sys.argv[1:]})
here, cores = ctypes.CDLL(None).sched_getcpu, set()
while time.process_time() < 0.15:
    for _ in range(1000):
        pass
    cores.add(here())
print(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, len(cores))
"""


def _switched(ways: Sequence[Sequence[int]], rivals: Sequence[int]) -> list[tuple[int, int]]:
    """How often each of some busy processes was switched out though it had work, and on how many cores it ran.

    ways: the cores that each may use. rivals: cores on each of which another process computes all the while.
    """

    def start(code: str, *cores: int) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code, *map(str, cores)], stdout=subprocess.PIPE, encoding="utf-8")  # fmt: skip

    beside = [start(_BUSY.replace("0.15", "60"), core) for core in rivals]
    try:
        said = [process.communicate()[0].split() for process in [start(_BUSY, *cores) for cores in ways]]
    finally:
        for process in beside:
            process.kill()
            process.communicate()
    return [(int(switches), int(cores)) for switches, cores in said]


def fewer_switches() -> Outcome:
    if sys.platform != "linux":
        return "", "untested: only Linux binds a process to a core when asked"
    mine = sorted(os.sched_getaffinity(0))[:2]
    first, last = mine[0], mine[-1]
    ways = {
        "free": [mine, mine],
        "bound each to a core of its own": [[first], [last]],
        "bound to one core": [[first]] * 2,
    }
    found = {way: _switched(cores, mine) for way, cores in ways.items()}
    often = {way: min(switches for switches, _ in of) > 5 for way, of in found.items()}
    stays = all(cores == 1 for way, of in found.items() if way != "free" for _, cores in of)
    return (
        "two processes that compute for 0.15 s, with another one that computes on each core: switched out more than 5 times each, "
        + ", ".join(f"{way}: {'yes' if many else 'no'}" for way, many in often.items())
        + f"; bound, each ran on one core only: {'yes' if stays else 'no'}",
        "confirmed" if often["free"] and not often["bound each to a core of its own"]
        else "partly: a bound process comes back to the core where its data may still lie in the cache; how often it is switched out follows from what "
        "else wants that core, and binding keeps nothing else away" if stays
        else "refuted",
    )  # fmt: skip


def two_classes() -> Outcome:
    data_parallel, ddp = nn.DataParallel, nn.parallel.DistributedDataParallel
    related = issubclass(ddp, data_parallel) or issubclass(data_parallel, ddp)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fsdp = importlib.import_module("torch.distributed.fsdp").fully_shard
    return (
        f"torch has {data_parallel.__name__}, {ddp.__name__} ({'related' if related else 'not related'}) and {fsdp.__name__} beside them; "
        f"warnings that one is out of date: {len(caught)}",
        "confirmed" if related
        else "partly: FSDP came in addition, and where the model fits, DDP takes less time (lesson 15); DDP is DistributedDataParallel, and Data "
        "Parallel another class",
    )  # fmt: skip


def ideas_elsewhere() -> Outcome:
    """The three ideas of the list, on a classifier's layer, which is none of the models of PyTorch's blog."""

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v

    moved, kernels = [], []
    for attention in (by_hand, F.scaled_dot_product_attention):
        with simulate("H100") as gpu:
            q = torch.empty(2, 4, 512, 16, device=gpu.device)
            ran = stretch(gpu, partial(attention, q, q, q))
            kernels.append(len(ran.kernels))
            moved.append(ran.bytes)
    x, w = torch.rand(2, 16, 64), torch.rand(192, 64)
    apart = count(lambda: [F.linear(x, part) for part in w.chunk(3)]).by_operator["aten.mm"]
    together = count(lambda: F.linear(x, w).chunk(3, -1)).by_operator["aten.mm"]
    wins = [kernels[1] < kernels[0], moved[1] < moved[0], together < apart]
    return (
        f"attention of 512 tokens by hand and in blocks: {kernels[0]} kernels and {kernels[1]}, {moved[0]:,} bytes read and written and "
        f"{moved[1]:,}; products of queries, keys and values apart {apart}, merged {together}",
        "confirmed: one example of each"
        if all(wins)
        else "partly: not all of them"
        if any(wins)
        else "refuted",
    )


CLAIMS = (
    tried("1", "PyTorch 2.0引入了torch.compile这一革命性特性", "PyTorch 2.0 introduced torch.compile", from_two, evidence="published"),
    tried("1", "通过追踪模型执行过程，识别可以融合的操作序列，减少内核启动次数和内存访问", "torch.compile follows the run, finds operators that can be fused, and so launches fewer kernels with less memory access", finds_what_to_fuse, also=("02-fusion",)),
    tried("1", "相比手动优化，它能提供更稳定和全面的性能提升，且对用户代码的侵入性更小", "compared with jit.script by hand, torch.compile's gains are steadier and broader, and it intrudes less on one's code", broader),
    kept("2", "它能显著减少CPU与GPU之间的通信开销", "CUDA graphs greatly reduce the overhead of communication between CPU and GPU", "07-communication", evidence="simulated (H100)"),
    kept("2", "当模型结构在多次迭代中保持不变时，CUDA图可以将整个计算流程\"录制\"下来，后续执行时只需触发整个图", "where the model's structure stays the same from step to step, a CUDA graph records all of it, and later one only starts the graph", "07-structure", evidence="simulated (H100)"),
    kept("2", "这种优化在小型操作密集型的模型中效果尤为显著，有时能带来数倍的性能提升", "it shows most in models of many small operators, sometimes several times as fast", "07-several-times", evidence="simulated (H100)"),
    tried("3", "通过智能地在FP16和FP32之间切换计算，既能保持模型精度又能利用Tensor Core的加速能力 … with torch.autocast(device_type='cuda'):", "autocast, as printed, switches between FP16 and FP32, keeps the model's accuracy, and uses Tensor Cores", keeps_and_uses, evidence="simulated (H100) · live (CPU)"),
    kept("4", "确保矩阵维度是8的倍数(对于FP16)或16的倍数(对于INT8)", "to make full use of Tensor Cores, make matrix dimensions multiples of 8 (FP16) or 16 (INT8)", "10-multiples", "13-multiples-of-16", evidence="published"),
    tried("4", "使用兼容的数据类型(FP16, BF16, INT8)", "to make full use of Tensor Cores, use compatible types (FP16, BF16, INT8)", compatible_types, evidence="published"),
    tried("4", "在卷积操作中使用适当的kernel大小", "to make full use of Tensor Cores, use convolution kernels of a suitable size", kernel_sizes, evidence="simulated (H100) · published"),
    tried("4", "PyTorch默认不会强制使用Tensor Core，因为不是所有操作都支持", "by default PyTorch does not force the use of Tensor Cores, since not all operators support them", not_forced),
    kept("5", "核心绑定(core pinning)是最重要的优化手段之一", "core binding is among the most important optimisations on a CPU", "12-binding-rank", evidence="arithmetic · published"),
    tried("5", "减少上下文切换开销", "binding a process to cores reduces the overhead of context switches", fewer_switches),
    untested("5", "提高缓存命中率", "binding a process to cores raises the cache hit rate", "it takes the processor's own counters of hits, which PyTorch does not read"),
    kept("5", "避免跨NUMA节点的内存访问", "binding a process to cores avoids memory accesses across NUMA nodes", "12-binding-numa", evidence="live (CPU) · arithmetic"),
    kept("5", "PyTorch提供了torch.set_num_threads()等API来控制线程使用，结合操作系统的taskset或numactl工具可以实现更精细的控制", "torch.set_num_threads() controls the use of threads, and with taskset or numactl it is controlled more finely", "12-set-num-threads", evidence="live (CPU)"),
    tried("6", "现代PyTorch分布式训练已经从传统的DDP(Data Parallel)发展到更先进的FSDP(Fully Sharded Data Parallel)", "distributed training has gone from the traditional DDP (Data Parallel) to the more advanced FSDP (Fully Sharded Data Parallel)", two_classes),
    kept("6", "更高效的内存使用", "FSDP uses memory more efficiently", "15-memory"),
    kept("6", "支持超大模型训练", "FSDP makes training of very large models possible", "15-memory"),
    kept("6", "更好的多节点扩展性", "FSDP scales better to several nodes", "15-scaling", evidence="simulated (H100)"),
    kept("6", "使用FSDP时，需要注意分片策略的选择，平衡通信开销和内存节省", "with FSDP choose the sharding strategy by balancing communication and memory", "15-strategy", evidence="simulated (H100)"),
    tried("7", "其中的优化思路可以推广到其他场景: 内核融合的特殊处理; 内存访问模式的优化; 计算图的重构技巧", "the ideas of PyTorch's cases for generative models carry over: special fusions, patterns of memory access, restructured graphs", ideas_elsewhere, evidence="live (CPU) · simulated (H100)"),
    kept("8", "简单的time测量：快速定位瓶颈", "a simple `time` measurement locates the bottleneck quickly", "00-simple-time", evidence="simulated (H100)"),
    kept("8", "先测量，再优化，然后再测量验证效果", "measure first, optimise, then measure again", "00-measure-optimise-measure", evidence="simulated (H100)"),
    kept("conclusion", "没有放之四海而皆准的优化方案", "no optimisation fits everywhere", "00-measure-optimise-measure", evidence="simulated (H100)"),
    kept("below the text, an advertisement", "K2 Thinking 是原生 INT4 量化模型 … 实现了推理延迟和 GPU 内存占用的无损降低", "K2 Thinking, a native INT4 model, lowers latency and GPU memory without loss", "13-int4-lossless", evidence="live (CPU)"),
)  # fmt: skip
