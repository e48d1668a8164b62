"""The notes on the book: what they claim, heading by heading."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

from helpers import compiling, count, simulate
from helpers.lessons.data_loading.experiments import mean_step
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried
from helpers.lessons.sources_on_trial.sources.guide import by_operator
from helpers.pytorch import private_torch
from helpers.simulator.stretch import stretch


def one_tensor() -> Outcome:
    sample = {"picture": torch.rand(3, 4, 4), "label": 1, "name": "a"}
    batch = default_collate([sample, sample])
    kinds = ", ".join(f"{k}: {type(v).__name__}" for k, v in batch.items())
    more = isinstance(batch, dict) and isinstance(batch["name"], list)
    verdict = "partly: a sample may be any nest of numbers, tensors and text" if more else "confirmed"
    return f"a batch of samples that are dicts: {kinds}", verdict


_YES = {True: "yes", False: "no"}


def _gradients_take(rows: int, width: int, pieces: int) -> float:
    """Seconds of forward and backward over so many rows on a simulated H100, in pieces."""
    gpu = simulate("H100")
    with gpu:
        layers = nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        net, x = nn.Sequential(*layers).to(gpu.device), torch.empty(rows, width, device=gpu.device)

        def gradients() -> None:
            for part in x.split(rows // pieces):
                net(part).square().sum().backward()

        gradients()
        return stretch(gpu, gradients).seconds


def accumulation_costs() -> Outcome:
    times = {
        size: [_gradients_take(*size, pieces) for pieces in (1, 8)] for size in ((512, 32), (65_536, 2048))
    }
    cost = [pieces / whole for whole, pieces in times.values()]
    return (
        "gradients of a batch at once and in 8 pieces: "
        + "; ".join(
            f"{rows:,} × {width:,}: {whole * 1e3:.2f} and {pieces * 1e3:.2f} ms"
            for (rows, width), (whole, pieces) in times.items()
        ),
        "refuted" if max(cost) <= 1
        else "partly: holds when launches or small kernels decide" if min(cost) <= 1
        else "confirmed: much where launches or small kernels decide, little where the pieces are large" if min(cost) < 1.1 < max(cost)
        else "confirmed",
    )  # fmt: skip


def harmless() -> Outcome:
    torch.manual_seed(0)
    x = torch.rand(8, 16, dtype=torch.float64)

    def gradient(way: str, norm: bool = False) -> torch.Tensor:
        torch.manual_seed(0)
        layers = nn.Linear(16, 32), nn.BatchNorm1d(32) if norm else nn.GELU(), nn.Linear(32, 4)
        net = nn.Sequential(*layers).double()
        for part in x.split(2) if way == "pieces" else [x]:
            with torch.autograd.graph.save_on_cpu() if way == "host" else nullcontext():
                out = checkpoint(net, part, use_reentrant=False) if way == "recomputed" else net(part)
            out.square().sum().backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    plain = gradient("")
    same = {
        "recomputed": torch.equal(gradient("recomputed"), plain),
        "kept on the host": torch.equal(gradient("host"), plain),
        "the batch in pieces": torch.allclose(gradient("pieces"), plain),
        "the same with BatchNorm": torch.allclose(gradient("pieces", True), gradient("", True)),
    }
    return (
        f"gradients as those of a plain step, activations {', '.join(f'{way}: {_YES[yes]}' for way, yes in same.items())}",
        "confirmed" if all(same.values())
        else "partly: recomputing and moving change nothing; the batch in pieces does where a layer mixes its rows" if any(same.values())
        else "refuted",
    )  # fmt: skip


def _two_steps(as_view: bool = False, hook: Any = None) -> tuple[int, int, int]:
    """DDP in one process: bytes of its buckets, of them those that lie in the gradients' own memory, and all-reduces of a step.

    hook: in place of DDP's own communication; None: it is left alone.
    """
    with tempfile.TemporaryDirectory() as place:
        dist.init_process_group("gloo", store=dist.FileStore(f"{place}/store", 1), rank=0, world_size=1)
        try:
            net = DistributedDataParallel(
                nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)), gradient_as_bucket_view=as_view
            )
            nbytes_at: dict[int, int] = {}

            def noted(state: Any, bucket: Any) -> Any:
                storage = bucket.buffer().untyped_storage()
                nbytes_at[storage.data_ptr()] = storage.nbytes()
                return hook(state, bucket)

            if hook is not None:
                net.register_comm_hook(None, lambda state, bucket: noted(state, bucket))
            for _ in range(2):
                net.zero_grad(set_to_none=False)
                nbytes_at.clear()
                with profile(activities=[ProfilerActivity.CPU]) as prof:
                    net(torch.rand(4, 64)).sum().backward()
            grads = {p.grad.untyped_storage().data_ptr() for p in net.parameters() if p.grad is not None}
            sent = sum("all_reduce" in event.name for event in prof.events())
            return sum(nbytes_at.values()), sum(n for at, n in nbytes_at.items() if at in grads), sent
        finally:
            dist.destroy_process_group()


def buckets_take_memory() -> Outcome:
    (plain, _, _), (viewed, shared, _) = _two_steps(False, noop_hook), _two_steps(True, noop_hook)
    return (
        f"buckets beside the gradients: {plain:,} bytes; with gradient_as_bucket_view=True: {viewed - shared:,}",
        "partly: holds by default; gradient_as_bucket_view=True lets gradients lie in the buckets"
        if shared == viewed
        else "confirmed",
    )


def hook_measures() -> Outcome:
    (_, _, own), (seen, _, without) = _two_steps(), _two_steps(hook=noop_hook)
    return (
        f"all-reduces of a step: {own}; with noop_hook, which sends nothing and was given buckets of {seen:,} bytes, {without}",
        "partly: the function takes the place of the communication, and is given all that would be sent; what its data are more exact than, the source does not say"
        if without < own and seen
        else "refuted",
    )


def splits_both() -> Outcome:
    def mlp(width: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 32))

    x, whole = torch.rand(64, 32, requires_grad=True), mlp(128)
    parts: dict[str, list[nn.Module]] = {
        "all of it": [whole],
        "by columns and rows": [mlp(64)] * 2,
        "by layers": [whole[:2], whole[2:]],
    }
    holds = {}
    for way, nets in parts.items():
        held, y = [], x
        for net in nets:
            weights = sum(p.nbytes for p in net.parameters())
            counted = count(net, y)
            held.append((weights, counted.saved_bytes))
            y = counted.result.detach().requires_grad_() if way == "by layers" else x
        holds[way] = max(weights for weights, _ in held), max(saved for _, saved in held)
    (weights, saved), *split = holds.values()
    return (
        "an MLP, bytes of weights and saved for backward on the GPU that holds most: "
        + ", ".join(f"{way} {w:,} and {s:,}" for way, (w, s) in holds.items()),
        "confirmed: not in equal parts"
        if all(w < weights and s < saved for w, s in split)
        else "refuted"
        if all(w >= weights or s >= saved for w, s in split)
        else "partly: one way of splitting does it",
    )


def _bits(dtype: torch.dtype) -> tuple[int, int]:
    """Bits of exponent and of mantissa."""
    about = torch.finfo(dtype)
    mantissa = -round(torch.log2(torch.tensor(about.eps)).item())
    return about.bits - 1 - mantissa, mantissa


def two_parts() -> Outcome:
    formats = [
        f"{str(d).removeprefix('torch.')}: {_bits(d)[0]} and {_bits(d)[1]} bits, largest {torch.finfo(d).max:.2g}, next to 1 "
        f"{torch.finfo(d).eps:.1g} away"
        for d in (torch.float16, torch.bfloat16, torch.float32)
    ]
    (low, fine), (wide, coarse) = _bits(torch.float16), _bits(torch.bfloat16)
    follows = (
        wide > low and torch.finfo(torch.bfloat16).max > torch.finfo(torch.float16).max and coarse < fine
    )
    return f"exponent and mantissa: {'; '.join(formats)}", "confirmed" if follows else "refuted"


def _branch(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.sum() > 0 else x.cos()


def tracing() -> Outcome:
    def one_way(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if len(x) > 2 else x.cos()

    seen = make_fx(one_way)(torch.ones(3)).code
    return (
        f"of a function with two branches the trace has sin: {'sin' in seen}, cos: {'cos' in seen}",
        "confirmed; what did not run is not in it" if "sin" in seen and "cos" not in seen else "refuted",
    )


def from_source() -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = str(torch.jit.script(_branch).graph)
    both = "sin" in graph and "cos" in graph
    deprecated = any("deprecated" in str(w.message) for w in caught)
    return (
        f"torch.jit.script, without a call: an if in the graph: {'prim::If' in graph}, both branches: {both}",
        ("confirmed" if both else "refuted") + ("; torch.jit.script is deprecated" if deprecated else ""),
    )


def _graphs(dynamic: bool | None) -> int:
    """How many graphs are captured for inputs of three sizes."""
    torch.compiler.reset()
    with compiling.watch("eager") as watched:
        fn = torch.compile(lambda x: torch.where(x.sum() > 0, x.sin(), x.cos()), dynamic=dynamic)
        for n in (4, 8, 12):
            fn(torch.rand(n))
    return len(watched.graphs)


def dynamic_sizes() -> Outcome:
    asked, default = _graphs(True), _graphs(None)
    return (
        f"graphs for 3 sizes: {asked}; with dynamic not given: {default}",
        "confirmed" if asked == 1 else "refuted",
    )


def overlapped() -> Outcome:
    alone, beside = 30 + 10, mean_step([30] * 101, 10, 1)
    four = mean_step([30] * 101, 10, 4)
    return (
        f"loads of 30 ms, steps of 10: one after the other {alone} ms a step, with one worker beside it {beside:.0f}, with four {four:.0f}",
        "confirmed: until the slower of the two is all that is left" if four < beside < alone else "refuted",
    )


def _largest(std: float, learning_rate: float, classes: int = 10) -> tuple[list[float], bool]:
    """The largest number of each of 100 steps of a small net, forward or in its gradients; and whether float16 would hold them all.

    std: of the weights at the beginning, as a multiple of the usual one.
    """
    torch.manual_seed(0)
    net = nn.Sequential(
        *(part for n in range(4) for part in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, classes)
    )
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(std)
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
    x, y, largest = torch.randn(256, 64), torch.randint(classes, (256,)), []
    for _ in range(100):
        seen, h = [], x
        for part in net:
            h = part(h)
            seen.append(h.abs().max().item())
        optimizer.zero_grad()
        F.cross_entropy(h, y).backward()
        seen += [p.grad.abs().max().item() for p in net.parameters() if p.grad is not None]
        optimizer.step()
        largest.append(max(seen))
    return largest, max(largest) <= torch.finfo(torch.float16).max


def overflows_early() -> Outcome:
    runs = {(std, rate): _largest(std, rate) for std in (1.0, 4.0, 40.0) for rate in (1e-2, 1e-6)}
    over = [where for where, (_, held) in runs.items() if not held]
    early = [where for where in over if max(runs[where][0]) == max(runs[where][0][:10])]
    return (
        f"{len(runs)} trainings of a small net, with usual and larger weights: numbers too large for float16 in {len(over)}, in {len(early)} of "
        "them first in the first ten of 100 steps",
        "refuted" if not over
        else "partly: holds when the weights begin much larger than usual, or the learning rate makes them grow; not with the usual ones"
        if len(over) < len(runs) else "confirmed",
    )  # fmt: skip


def by_cpython() -> Outcome:
    seen = []

    def hook(before: Any, after: Any) -> None:
        calls = [name for name in after.co_names if name.startswith("__compiled_fn")]
        seen.append((before.co_name, len(calls)))

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2)

    torch.compiler.reset()
    handle = private_torch.register_bytecode_hook(hook)
    try:
        fn = torch.compile(doubled, backend="eager")
        before_call = len(seen)
        fn(torch.rand(3))
    finally:
        handle.remove()
    return (
        f"functions whose bytecode is rewritten before the first call: {before_call}, by it: {len(seen)}; calls of a compiled graph in the new "
        f"bytecode: {sum(n for _, n in seen)}",
        "confirmed" if before_call == 0 and any(name == "doubled" and n for name, n in seen) else "refuted",
    )


def core_api() -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        there = [hasattr(torch, "autocast"), hasattr(torch.cuda.amp, "GradScaler")]
        if all(there):
            torch.autocast("cpu")
            torch.cuda.amp.GradScaler(enabled=False)
    deprecated = [
        str(w.message).partition(" is deprecated")[0] for w in caught if w.category is FutureWarning
    ]
    word = "confirmed" if all(there) else "refuted"
    return (
        f"{sum(there)} of 2 are there; deprecated: {', '.join(deprecated) or 'neither'}",
        word + ("; today's name of the second is torch.amp.GradScaler" if deprecated else ""),
    )


_CUDA_GUIDE = "NVIDIA's CUDA C++ Programming Guide (docs.nvidia.com/cuda/cuda-c-programming-guide)"


def cores_and_caches() -> Outcome:
    return (
        "NVIDIA's GPU Performance Background (docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background): GPUs “consist of a number of Streaming "
        "Multiprocessors (SMs), on-chip L2 cache, and high-bandwidth DRAM. Arithmetic and other instructions are executed by the SMs; data and code are "
        "accessed from DRAM via the L2 cache”; a function “is limited by one of the following three factors; memory bandwidth, math bandwidth and latency”",
        "partly: so for the cores and the memory; all data come through the L2 cache too, which the sentence leaves out, and latency is a limit of its own",
    )


def warp_scheduler() -> Outcome:
    return (
        f"{_CUDA_GUIDE}, Hardware Multithreading: “at every instruction issue time, a warp scheduler selects a warp that has threads ready to execute "
        "its next instruction … and issues the instruction to those threads”; Thread Hierarchy: “threads within a block can cooperate by sharing data "
        "through some shared memory and by synchronizing their execution”",
        "partly: the schedule is its work; communication is not",
    )


def independent_tasks() -> Outcome:
    return (
        f"{_CUDA_GUIDE}, A Scalable Programming Model: its abstractions “guide the programmer to partition the problem into coarse sub-problems that can "
        "be solved independently in parallel by blocks of threads, and each sub-problem into finer pieces that can be solved cooperatively in parallel "
        "by all threads within the block”",
        "confirmed: for blocks of threads; those of one block work together",
    )


CLAIMS = (
    kept("basics", "在实际的应用中，我们一般会先优化显存然后再优化训练速度", "in practice one optimizes memory first and speed afterwards", "09-memory-first", evidence="simulated (H100)"),
    tried("basics", "在数据加载的过程中，可以通过将加载任务和模型计算容易进行重叠来进行优化，比如预加载技术", "loading gets faster by overlapping it with the model's computing, as by loading ahead", overlapped, evidence="arithmetic"),
    kept("basics", "随机读写模式的效率以硬盘的 IOPS 来衡量；而连续读写模式则是以 MB/s 来进行衡量", "random reads are measured in IOPS, sequential ones in MB/s", "04-iops", evidence="arithmetic · published"),
    tried("basics", "在 GPU 中，张量计算核心，标量计算核心决定了 GPU 的整体计算效率; L1 缓存，显存决定了 GPU 存取数据的效率", "Tensor Cores and scalar cores decide how fast a GPU computes; L1 cache and memory, how fast it is fed", cores_and_caches, evidence="published"),
    tried("basics", "线程束调度器和 CUDA 编程模型中的线程束概念直接对应，负责线程间的通信和调度", "the warp scheduler belongs to the warps of CUDA's model, and is responsible for communication between threads and their schedule", warp_scheduler, evidence="published"),
    tried("basics", "CUDA 编程模型的核心是要求程序员将算法的实现代码，拆分成多个可以独立执行的软件任务", "the core of CUDA's model is that the programmer cuts an algorithm into tasks that can run independently", independent_tasks, evidence="published"),
    kept("tensors", "张量和张量的存储是两个不同层级的概念，张量可以理解为对其底层数据存储的一种特定的访问和解释方式，诸如 shape, stride, offset 等额外属性来帮助对底层数据的访问", "tensor and storage are two levels: a tensor reads its storage by shape, stride and offset", "01-two-levels", evidence="live (CPU)"),
    kept("tensors", "可能会导致算法的内存访问模式不理想，可能降低整体的计算效率", "a non-contiguous tensor may be read in a bad order and lower performance", "01-noncontiguous-slow"),
    kept("tensors", "许多 PyTorch 算法在设计时就预设了张量在内存中是连续存储的，如果遇到不连续的张量，可能会抛出错误提示", "many algorithms take contiguous storage for granted; with a non-contiguous tensor they may raise an error", "01-noncontiguous-raises", evidence="live (CPU)"),
    kept("tensors", "如果遇到不连续的张量，可能会 … 甚至得到错误的结果", "with a non-contiguous tensor they may even give wrong results", "01-noncontiguous-wrong", evidence="live (CPU)"),
    kept("tensors", "基于高级索引的读取操作会尝尽新的内存存储，比如使用布尔或者整数张量作为索引", "reading through advanced indexing makes new storage, as with boolean or integer tensors", "01-advanced-index", evidence="live (CPU)"),
    kept("tensors", "算子调用的开销恰恰是最主要的性能杀手之一", "the overhead of calling operators is one of the main performance killers", "02-overhead", evidence="simulated (H100)"),
    kept("tensors", "计算图是一个有向无环图，其中的节点代表各种算子操作，比如加法，乘法或者更复杂的操作入卷积等；而边则代表数据（指张量数据）的流动", "the graph is directed and has no cycle; its nodes are operators, and its edges the flow of data", "02-dag", evidence="live (CPU)"),
    kept("tensors", "对于同一个张量的梯度是累加而不是覆写的，而且这里累加的是具体数值而非符号表达式，这一点至关重要，它使得自动微分系统能够自然地兼容程序中出现的逻辑判断，如分支，循环和递归等", "gradients accumulate, and as numbers, so that branches, loops and recursion are no problem", "02-accumulate", evidence="live (CPU)"),
    kept("workflow", "如果 GPU 队列整体都非常稀疏，那么性能瓶颈在 CPU 上", "if the GPU queue is sparse all along, the bottleneck is on the CPU", "03-sparse-cpu", evidence="simulated (H100)"),
    kept("workflow", "如果任务队列密集，而没有显著空白区域，说明 GPU 满载，那么性能瓶颈在 GPU 算子", "if the queue is dense, without marked gaps, the GPU is full, and the bottleneck is its operators", "03-dense-gpu", evidence="simulated (H100)"),
    kept("workflow", "如果任务队列密集，同时存在 GPU 空闲区域，则需要放大空闲区域进行进一步观察", "if the queue is dense and there are gaps, zoom in on the gaps", "03-gaps-zoom", evidence="simulated (H100)"),
    kept("workflow", "查看空闲前后 GPU 任务以及 CPU 任务详情，并以此推断导致 GPU 队列阻塞的原因", "look at what GPU and CPU do before and after a gap, and infer from it what blocked the queue", "03-before-and-after", evidence="simulated (H100)"),
    kept("workflow", "一般只有在优化 CUDA 算子时才会考虑使用 Nsight Compute 用于定位算子内部的性能瓶颈", "in training one usually thinks of Nsight Compute only to optimise CUDA operators", "03-nsight-compute"),
    kept("data", "对于其他无直接接口的库如 Pandas 等，建议先转换为 Numpy ndarray 再导入到 PyTorch", "objects of libraries such as pandas should be converted to NumPy arrays first", "01-pandas-numpy", evidence="live (CPU)"),
    tried("data", "Dataset … 输出的是单个张量; Dataloader … 输出的结果是一批张量", "a Dataset gives a single tensor, a DataLoader a batch of tensors", one_tensor),
    kept("data", "读者可能会担心非阻塞模式会导致 GPU 数据错误，但 GPU 内部有自己的任务队列 CUDA  stream 系统", "one may fear that non_blocking corrupts data, but the GPU has its own queue", "05-non-blocking-safe", evidence="simulated (H100)"),
    tried("data", "在没有特别指定 CUDA 计算流的情况下，所有任务默认进入同一个队列，并且会按照任务提交的顺序串行执行", "without a stream named, all work enters one queue and runs in the order of submission", "streams_and_double_buffering.in_order", evidence="simulated (H100) · published"),
    kept("data", "也是为什么引入了 `sumbit_stream.wait_stream(running_stream)` 来进行 GPU 队列见间的同步和等待", "`submit_stream.wait_stream(running_stream)` lets the queues wait for one another, so that only copies overlap", "05-wait-stream", evidence="simulated (H100)"),
    kept("data", "这个方法主要加快数据的拷贝速度", "double buffering mainly speeds up copying", "05-speeds-the-copy", evidence="recorded (H100)"),
    kept("data", "因此在数据量较小，数据传输用时短的场景中，效果可能不明显", "where there is little data, and copies are short, its effect may not show", "05-small-data", evidence="simulated (H100)"),
    kept("optimizers", "BatchSize 是通过增加计算并行度的方式来提高算子计算效率", "a larger batch makes operators more efficient, through parallelism", "06-batch", evidence="simulated (H100)"),
    kept("optimizers", "PyTorch 针对每种优化器，提供了三种不同的梯度更新实现，`for-loop`, `for-each`, `fused`", "PyTorch has three implementations of every optimizer: for-loop, for-each, fused", "06-three-for-each", evidence="live (CPU)"),
    kept("optimizers", "对于性能和显存的侧重不同", "the three weigh speed and memory differently", "06-trade-off", evidence="simulated (H100)"),
    kept("memory", "不会只申请张量所需要的大小的缓存，而是一次性的申请一块儿更大的显存空间", "PyTorch does not ask for what a tensor needs only, but for a larger piece of memory at a time, which it manages", "08-larger", evidence="simulated (H100)"),
    kept("memory", "会有显存碎片化的问题，实用的解决方法是设置 `max_split_size_mb`", "it has a problem of fragmentation, for which the practical remedy is max_split_size_mb", "08-max-split", evidence="simulated (H100)"),
    kept("memory", "NCCL 库会自己管理进程间通信所占用的显存", "NCCL itself manages the memory of communication between processes", "08-nccl", evidence="published"),
    tried("memory", "优化这部分显存对于模型训练收敛性能影响风险较低", "saving dynamic memory hardly risks convergence", harmless),
    kept("memory", "训练过程中显存占用的峰值通常书现在反向传播过程的某个反向算子的计算中", "memory usually peaks in backward, in one of its operators", "09-peak", evidence="arithmetic"),
    kept("memory", "通过自动微分生成的反向算子通常不是原位的，这是因为在反向传播过程中使用原位操作容易导致数值错误", "the operators of backward are usually not in place, since that easily gives wrong numbers", "02-in-place", evidence="live (CPU)"),
    tried("memory", "可以通过牺牲一些训练速度来增加 BatchSize，即使用跨批次梯度累加", "accumulating gradients makes the batch larger and gives up some speed", accumulation_costs, evidence="simulated (H100)"),
    kept("memory", "将数据默认存放在内存里，而只在有需要时才临时加载到显存中。这本质上是牺牲了内存和性能来换取显存", "data in the host's memory, loaded when needed: host memory and performance are given up for GPU memory", "09-host-memory", evidence="simulated (H100)"),
    kept("memory", "循环垃圾回收机制实现了检测循环依赖的算法，能够打破循环依赖对引用计数造成的破坏；除了循环依赖以外，全局作用域中的张量也是导致显存资源不能被释放的重要原因", "the cycle collector breaks cycles; tensors in global scope are another important reason why memory stays", "08-cycles", evidence="live (CPU)"),
    kept("distributed", "分组传输: … 每组内的梯度计算完成后只需执行一次通信操作，从而大幅降低了通信次数", "DDP sends gradients in groups, one operation a group, and so far fewer of them", "14-buckets", evidence="simulated (H100)"),
    kept("distributed", "重叠计算和通信: 梯度计算较早完成的组会优先启动通信操作，这一过程与后续层的梯度计算重叠，从而大幅减少了由通信引起的延迟", "DDP sends groups that are complete early while other gradients are computed, which greatly shortens the delay by communication", "14-buckets", evidence="simulated (H100)"),
    kept("distributed", "降低通信量: 通过梯度压缩技术减少传输数据量，例如量化、稀疏化或低秩近似，从而降低通信成本", "compressing gradients (quantized, sparse, low rank) lowers what is sent, and so its cost", "14-compression", evidence="live (CPU) · arithmetic"),
    kept("distributed", "拓扑感知策略: 根据计算节点的网络拓扑结构设计更高效的通信操作", "collectives that follow the network's topology are more efficient", "14-topology", evidence="simulated (H100)"),
    kept("distributed", "随着节点数量的增加，节点间的通信量和通信次数通常也会相应增加，这导致通信延迟逐渐增大; 其次，随着节点数量的增加，系统中任何不稳定的组件的负面影响也会相应放大", "with more nodes usually more is sent, and more often, so that latency grows, and unstable parts weigh more", "14-nodes", evidence="simulated (H100) · arithmetic"),
    tried("distributed", "分组传输技术本质上就是一种用显存来换取性能的优化方法", "groups pay for speed with memory", buckets_take_memory),
    tried("distributed", "使用 … `register_comm_hook()` 接口，通过这个接口，我们可以将 DDP 中默认的节点通信函数替换为自定义函数，从而获取更精确的通信开销数据", "register_comm_hook() puts a function of one's own in place of DDP's communication, and so gives more exact data on what that costs", hook_measures),
    kept("distributed", "将静态显存分块存储在不同的GPU上，本质上是将持续占用显存的静态数据转变为动态的“按需分配”，从而有效降低单GPU显存占用的峰值", "static memory cut over the GPUs is gathered on demand, and the peak of each is lower", "15-memory"),
    tried("distributed", "每张卡负责处理模型的一部分，这样静态显存和动态显存都会被切分，这类方法被称为模型并行", "with a part of the model on each GPU, static and dynamic memory are both cut: model parallelism", splits_both),
    kept("distributed", "一些大规模的矩阵乘法操作可能会超出单个GPU的显存容量，这时流水线并行就无法解决问题", "some large matrix products may exceed the memory of one GPU, and then a pipeline cannot help", "16-one-layer", evidence="simulated (H100) · arithmetic"),
    kept("distributed", "在参数矩阵 $W$ 非常大甚至超出单张卡的显存容量时，我们可以把它在特定维度上切分到多张卡上，并通过all-gather集合通信汇集结果，保证最终结果在数学计算上等价于单卡计算结果", "a product that is too large is cut over the GPUs, and an all-gather puts together what one GPU would compute", "16-gather", evidence="live (CPU)"),
    kept("distributed", "受限的网络带宽会严重阻碍张量并行训练的效率。因此，张量并行通常只在配备了NVLink的单机多卡范围中使用", "limited network bandwidth severely hinders the efficiency of tensor parallelism, so that it is usually used only within one machine with NVLink", "16-one-machine", evidence="simulated (H100)"),
    tried("mixed precision", "数值范围主要由指数部分决定, 而精度主要由尾数的位数决定", "the exponent mainly makes the range, the mantissa's bits the precision", two_parts, evidence="arithmetic"),
    tried("mixed precision", "训练初期数值波动往往较大，这容易导致使用 float16 时发生数据溢出", "early in training numbers vary most, so that float16 easily overflows", overflows_early),
    kept("mixed precision", "前向张量的数值通常较大，而反向梯度的数值较小。在更换为 float16 后会加剧数值溢出的风险，因此我们需要平衡前向张量和反向梯度的数值范围", "forward tensors are usually large and gradients small, so that with float16 the two must be balanced", "10-forward-large", evidence="live (CPU)"),
    tried("mixed precision", "我们希望能够自动判断哪些算子适合使用 float16 加速，并自动对这些算子的输入输出张量进行类型转换", "one wants it to be decided automatically which operators take float16, and their tensors to be converted", by_operator, evidence="simulated (H100)"),
    tried("mixed precision", "PyTorch 提供的核心 API: `torch.autocast` 和 `torch.cuda.amp.GradScaler`", "PyTorch's core API: torch.autocast and torch.cuda.amp.GradScaler", core_api),
    kept("graphs", "启用 fullgraph 模式获取完整的计算图", "fullgraph=True gives the whole graph", "11-fullgraph", evidence="live (CPU)"),
    tried("graphs", "支持动态形状输入的编译 (dynamic=True)", "dynamic=True compiles for inputs of changing size", dynamic_sizes),
    kept("graphs", "用户可通过激活r educe-overhead 模式来启用 CUDA graph 功能", "the mode reduce-overhead switches CUDA graphs on", "07-reduce-overhead", evidence="live (CPU)"),
    tried("graphs", "跟踪（tracing）方法本质上是在模型执行过程中动态捕捉计算图，也就是通过监视 PyTorch 操作的执行", "tracing captures the graph by watching the operators that run", tracing),
    tried("graphs", "基于源码分析 … 不需要实际运行模型，而是直接解析代码中的静态结构", "source analysis captures it without a run", from_source),
    tried("graphs", "通过CPython提供了内部接口，torch.compile 和 Torch Pynamo 技术在 Python 运行时捕获 PyTorch 的张量操作 … 取代原来Python解释器中的函数调用", "through an interface of CPython, torch.compile captures operators at run time, and its code takes the place of the calls", by_cpython),
    kept("other", "accelerator的基本思路与DDP一样，但是增加了更多的优化", "the basic idea of Accelerate is that of DDP, with more optimizations", "14-accelerate", evidence="live (CPU)"),
    kept("other", "始终从小处开始（start small）", "always start small", "00-start-small", evidence="simulated (H100)"),
)  # fmt: skip
