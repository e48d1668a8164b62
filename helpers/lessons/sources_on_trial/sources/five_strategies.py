"""The article on five strategies: what it claims, section by section."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, TensorDataset

from helpers import simulate
from helpers.lessons.mixed_precision.experiments import peak
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.lessons.sources_on_trial.sources.guide import by_operator
from helpers.simulator.devices import DEVICES


def _moved(dtype: torch.dtype) -> float:
    """How far a weight of 1 goes in 1,000 steps of 0.0001."""
    weight = torch.ones((), dtype=dtype)
    for _ in range(1000):
        weight -= 1e-4
    return 1 - weight.item()


def full_precision_update() -> Outcome:
    with simulate("A100") as gpu:
        net = nn.Linear(16, 4, device=gpu.device)
        optimizer = torch.optim.Adam(net.parameters())
        with torch.autocast("cuda"):
            out = net(torch.rand(8, 16, device=gpu.device))
        out.float().sum().backward()
        optimizer.step()
    state = optimizer.state[net.weight]["exp_avg"]
    named = {"result": out, "weight": net.weight, "gradient": net.weight.grad, "optimizer's mean": state}
    dtypes = {name: str(t.dtype).removeprefix("torch.") for name, t in named.items() if t is not None}
    kept_full = all(dtypes[name] == "float32" for name in dtypes if name != "result")
    full, half = _moved(torch.float32), _moved(torch.float16)
    return (
        f"{', '.join(f'{n}: {t}' for n, t in dtypes.items())}. A weight of 1, after 1,000 updates of 0.0001: {full:.3f} less in FP32, "
        f"{half:.3f} less in FP16",
        "confirmed" if kept_full and full > 0.09 and half < 0.01 else "partly: in FP32, yes" if kept_full else "refuted",
    )  # fmt: skip


def _two_epochs(last_too: bool, clears: bool) -> tuple[int, int, int]:
    """Two epochs of ten micro-batches, in groups of four: steps of the first, how many micro-batches wait in .grad at its
    end, and how many the second epoch's first step is made of.

    last_too: a step also for what is left. clears: each epoch begins with zero_grad(), the listing's line before the loop.
    """
    net, loader = nn.Linear(8, 1), DataLoader(TensorDataset(torch.rand(20, 8)), batch_size=2)
    optimizer = torch.optim.SGD(net.parameters())
    made: list[list[int]] = []  # of each epoch: the micro-batches of its steps
    waits: list[int] = []
    for _ in range(2):
        made.append([])
        if clears:
            optimizer.zero_grad()
        for i, (x,) in enumerate(loader):
            net(x).mean().backward()  # adds 1 to the gradient of the bias
            if (i + 1) % 4 == 0 or (last_too and i + 1 == len(loader)):
                assert net.bias.grad is not None
                made[-1].append(round(net.bias.grad.item()))
                optimizer.step()
                optimizer.zero_grad()
        waits.append(0 if net.bias.grad is None else round(net.bias.grad.item()))
    return len(made[0]), waits[0], made[1][0]


def end_of_an_epoch() -> Outcome:
    (steps, waiting, whole), (*_, loop) = _two_epochs(False, clears=True), _two_epochs(False, clears=False)
    all_steps, left, _ = _two_epochs(True, clears=True)
    return (
        f"10 micro-batches, as printed: {steps} steps of the optimizer, {waiting} micro-batches left over in .grad; the first step of a "
        f"second epoch is made of {whole} if all of the listing runs again, of {loop} if only its loop does. With a step for the rest: "
        f"{all_steps} steps, {left} left over",
        "partly: holds when the number of micro-batches divides; else the last ones of an epoch make no step: they are dropped"
        + (
            ", or carried into the next epoch if zero_grad() before the loop runs once only"
            if loop > whole
            else ""
        )
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
    started = {
        epochs: [len(set().union(*_processes(epochs, persistent_workers=stay))) for stay in (False, True)]
        for epochs in (1, 3)
    }
    saves = [epochs for epochs, (ends, stays) in started.items() if stays < ends]
    return (
        "processes started for 2 workers, without persistent_workers and with it: "
        + ", ".join(f"{epochs} epoch{'s' * (epochs > 1)} {a} and {b}" for epochs, (a, b) in started.items()),
        "refuted" if not saves else "confirmed" if len(saves) == len(started)
        else "partly: holds when a loader is gone through more than once; in a single epoch it changes nothing",
    )  # fmt: skip


def two_passes() -> Outcome:
    net, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.rand(8, 16)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        net(x).square().mean().backward()
    marked = [e for e in prof.events() if e.name.startswith("autograd::engine::evaluate_function")]
    nodes = {e.name.rpartition(" ")[2] for e in marked}
    timed = sum(e.time_range.elapsed_us() for e in marked) > 0
    return (
        f"a profile of forward and backward: {len(marked)} events are marked as nodes of backward, {', '.join(sorted(nodes)[:3])} among them; "
        f"their times add up to backward's own: {'yes' if timed else 'no'}",
        "confirmed" if {"AddmmBackward0", "GeluBackward0"} <= nodes and timed else "refuted",
    )


#: the page that says what the profiler's views show
_README = "github.com/pytorch/kineto, tb_plugin/README.md"


def slow_kernels() -> Outcome:
    return (
        f"its TensorBoard plug-in's page ({_README}): the Kernel View has the time of each kernel, and, “to investigate efficiency for each "
        "kernel”, its blocks per SM and its estimated achieved occupancy",
        "partly: it shows two signs of a kernel that does not fill the GPU; how near a kernel comes to the card's peak it does not say",
    )


def utilization() -> Outcome:
    return (
        f"its TensorBoard plug-in's page ({_README}): the Overall View has GPU Utilization, Est. SM Efficiency and Est. Achieved Occupancy; of "
        "memory, the Memory View has how much is allocated and reserved",
        "partly: of computing, by the time that kernels run and by estimates; of the bandwidth, only that of copies (Kineto's CuptiActivity.h)",
    )


def tensorboard() -> Outcome:
    return (
        f"its TensorBoard plug-in's page ({_README}): the Trace View “shows timeline”; the Operator View has “all call stacks of this operator”, a row "
        "an operator; the Memory View has a curve of what is allocated and reserved, and tables. No view is called a tree or a heat map",
        "partly: a timeline, yes; call stacks are listed operator by operator, not as a tree, and memory is a curve and tables, not a heat map",
    )


def fragmentation() -> Outcome:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        torch.rand(256, 256) @ torch.rand(256, 256)
    with tempfile.TemporaryDirectory() as place:
        prof.export_chrome_trace(f"{place}/trace.json")
        events = json.loads(Path(place, "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    fields = next(event["args"] for event in events if event.get("name") == "[memory]")
    named = [name for name in ("Total Allocated", "Total Reserved") if name in fields]
    return (
        f"an event [memory] of a trace with profile_memory=True carries {' and '.join(named) or 'no totals'}; the plug-in's page ({_README}) "
        "has a curve of each",
        "partly: what is reserved beyond what is allocated is a sign of it; which blocks lie where, only a memory snapshot says (lesson 08)"
        if len(named) == 2
        else "refuted",
    )


def large_batch() -> Outcome:
    torch.manual_seed(0)
    x, y = torch.randn(64, 16).double(), torch.randint(4, (64,))

    def same(norm: nn.Module, rows: int = 16) -> bool:
        net = nn.Sequential(nn.Linear(16, 32), norm, nn.GELU(), nn.Linear(32, 4)).double()
        gradients = []
        for size in (64, rows):
            net.zero_grad()
            pieces = list(zip(x.split(size), y.split(size), strict=True))
            for a, b in pieces:
                (F.cross_entropy(net(a), b) / len(pieces)).backward()
            gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
        return torch.allclose(gradients[0], gradients[1], rtol=1e-9)

    found = [same(nn.LayerNorm(32)), same(nn.LayerNorm(32), 24), same(nn.BatchNorm1d(32))]
    without, uneven, with_norm = found
    said = ["yes" if alike else "no" for alike in found]
    return (
        f"gradients of 4 equal pieces as of the whole batch: {said[0]}; of pieces of 24, 24 and 16 rows: {said[1]}; of 4 equal ones with "
        f"BatchNorm in the model: {said[2]}",
        "partly: holds when the pieces are equal and no layer mixes the rows of a batch, as BatchNorm does, which the source names further down"
        if without and not uneven and not with_norm
        else "confirmed"
        if without
        else "refuted",
    )


#: images, of which the simulated memory follows for any number
_SIZES = (8, 64)


def four_to_eight() -> Outcome:
    few, many = (peak(f"ResNet-50, {n} images") for n in _SIZES)
    an_image = (many - few) / (_SIZES[1] - _SIZES[0])
    beside = few - _SIZES[0] * an_image
    steps = {}
    for card in ("T4", "L4", "A100"):
        fits = int((DEVICES[card].memory_bytes * 0.9 - beside) / an_image)
        for batch in (256, 1024, 4096):
            steps[card, batch] = math.ceil(batch / fits)
    usual = [where for where, n in steps.items() if 4 <= n <= 8]
    return (
        "ResNet-50 in fp32, its simulated memory by the number of images; steps that a batch takes with nine tenths of a card: "
        + "; ".join(
            f"{card}: {', '.join(f'{steps[card, batch]} for {batch:,}' for batch in (256, 1024, 4096))}" for card in ("T4", "L4", "A100")
        ),
        f"partly: it follows from memory, model and batch; {len(usual)} of these {len(steps)} need 4 to 8" if 0 < len(usual) < len(steps)
        else "confirmed" if usual else "refuted",
    )  # fmt: skip


CLAIMS = (
    tried("1", "现代GPU的Tensor Core架构对FP16运算有特殊优化，相比传统FP32可实现2-8倍的算力提升", "Tensor Cores of modern GPUs compute 2 to 8 times as fast in FP16 as in traditional FP32", "mixed_precision.tensor_cores", evidence="published"),
    tried("1.1", "前向传播：自动选择FP16或FP32运算", "forward: FP16 or FP32 is chosen automatically", by_operator, evidence="simulated (H100)"),
    kept("1.1", "反向传播：缩放损失值防止梯度消失", "backward: scaling the loss keeps gradients from vanishing", "10-scaling", evidence="live (CPU)"),
    tried("1.1", "参数更新：使用FP32保证更新稳定性", "update: FP32 is used, which keeps updates stable", full_precision_update, evidence="simulated (A100) · live (CPU)"),
    kept("1.3", "速度提升：1.8-2.5倍（NVIDIA A100）", "ResNet-50 trains 1.8 to 2.5 times as fast (A100)", "10-speed", evidence="published · simulated (A100)"),
    kept("1.3", "显存节省：35-40%（batch size可增大1.5倍）", "ResNet-50: 35 to 40 % of memory is saved, so that the batch may be 1.5 times as large", "10-memory", evidence="simulated (A100)"),
    kept("1.3", "精度影响：ImageNet验证集top-1准确率波动<0.2%", "ResNet-50: the top-1 accuracy on ImageNet's validation set moves by less than 0.2 %", "10-accuracy", evidence="live (CPU)"),
    kept("2.1", "schedule=torch.profiler.schedule(wait=2, warmup=1, active=3)", "`schedule(wait=2, warmup=1, active=3)`, as printed", "03-schedule-recipe", evidence="live (CPU)"),
    tried("2.2", "时间分布：区分前向/反向传播耗时", "the profiler tells the times of forward and backward apart", two_passes),
    tried("2.2", "CUDA内核：识别低效的kernel调用", "CUDA kernels: the profiler finds inefficient kernel calls", slow_kernels, evidence="published"),
    tried("2.2", "内存分配：检测不必要的显存碎片", "the profiler detects needless fragmentation of GPU memory", fragmentation, evidence="live (CPU) · published"),
    tried("2.2", "设备利用率：监控GPU计算/内存带宽使用率", "the profiler watches how much of the GPU's compute and memory bandwidth is used", utilization, evidence="published"),
    tried("2.3", "通过TensorBoard集成可生成：操作时间线视图、调用栈树状图、显存分配热力图", "TensorBoard shows a timeline of operators, a tree of call stacks and a heat map of memory", tensorboard, evidence="published"),
    tried("3", "当硬件显存不足时，梯度累积技术通过分批计算梯度实现大batch效果", "where memory is short, gradients that are accumulated over parts have the effect of a large batch", large_batch),
    tried("3.1", "if (i+1) % accumulation_steps == 0: optimizer.step(); optimizer.zero_grad()", "a step after every four micro-batches, as printed", end_of_an_epoch),
    tried("3.2", "累积步数：根据显存容量选择，通常4-8步", "accumulate as many steps as memory asks for, usually 4 to 8", four_to_eight, evidence="simulated (A100)"),
    kept("3.2", "学习率调整：需与batch size同比例放大", "the learning rate must grow in proportion to the batch size", "06-learning-rate", "09-learning-rate", evidence="live (CPU)"),
    kept("3.2", "BN层处理：需在完整累积周期后更新统计量", "BatchNorm: update its statistics after a complete cycle of accumulation", "09-batchnorm", evidence="live (CPU)"),
    kept("4.1", "通信方式 单进程多线程 多进程通信", "DataParallel: one process, many threads; DistributedDataParallel: many processes", "14-ddp-table", evidence="live (CPU)"),
    tried("4.1", "启动方式 简单 需启动脚本", "DataParallel starts simply, DistributedDataParallel needs a launch script", "data_parallel.start_script"),
    kept("4.1", "扩展性 8卡以下 支持千卡集群", "DataParallel scales to fewer than 8 cards, DistributedDataParallel to clusters of a thousand", "14-eight-cards", evidence="simulated (H100) · arithmetic"),
    kept("4.2", 'dist.init_process_group("nccl", rank=rank, world_size=world_size); model = DDP(model.cuda(), device_ids=[local_rank])', "init_process_group, then DDP: best practice, as printed", "14-listing", evidence="live (CPU)"),
    tried("5.1", "多线程加载", "`num_workers` loads with many threads", threads),
    kept("5.1", "设置num_workers=4*num_gpus", "set `num_workers = 4 * num_gpus`", "04-four-per-gpu", evidence="arithmetic"),
    kept("5.1", "内存映射：使用mmap模式读取大文件", "read large files through a memory map", "04-mmap", evidence="live (CPU)"),
    kept("5.1", "预取机制：prefetch_factor参数控制预加载批次", "`prefetch_factor` controls how many batches are loaded ahead", "04-prefetch", evidence="live (CPU) · arithmetic"),
    kept("5.1", "共享内存：多进程间通过torch.multiprocessing共享数据", "processes share data through torch.multiprocessing, in shared memory", "04-shared-memory", evidence="live (CPU)"),
    kept("5.2", "dataset = ImageFolder(…, num_workers=16, pin_memory=True, persistent_workers=True); loader = DataLoader(dataset, batch_size=256, shuffle=True, prefetch_factor=4)", "ImageFolder(…, num_workers=16, pin_memory=True, persistent_workers=True), then DataLoader(…, prefetch_factor=4), as printed", "04-imagefolder"),
    kept("5.2", "# 关键优化参数 … pin_memory=True", "`pin_memory=True` is a key parameter", "05-pin-memory"),
    tried("5.2", "# 关键优化参数 … persistent_workers=True", "`persistent_workers=True` is a key parameter", persistent),
    kept("6", "训练速度：从12小时/epoch降至3.2小时", "BERT-base pre-training, all of it together: from 12 hours an epoch to 3.2", "17-bert", evidence="simulated (V100) · arithmetic"),
    kept("6", "显存占用：从22GB降至14GB（V100 GPU）", "BERT-base pre-training, all of it together: from 22 GB of memory to 14 (V100)", "17-bert-memory", evidence="simulated (V100)"),
    untested("6", "收敛效果：GLUE基准测试分数波动<0.5%", "BERT-base pre-training: the GLUE score moves by less than 0.5 %", "it takes a pre-training of BERT"),
    kept("7", "算子融合：使用FusedAdam等优化器减少kernel启动次数", "optimizers such as FusedAdam launch fewer kernels", "06-fused-launches", evidence="simulated (H100)"),
    kept("7", "梯度检查点：以时间换空间的技术，节省显存但增加20%计算量", "checkpoints save memory and add 20 % of computing", "09-checkpoint-compute", evidence="live (CPU) · simulated (H100)"),
    kept("7", "混合并行：结合数据并行与模型并行处理超大规模模型", "data and model parallelism combined handle very large models", "16-mixed", evidence="arithmetic"),
    kept("7", "量化训练：使用INT8精度进一步加速推理阶段", "quantized training: INT8 makes inference faster still", "13-faster-inference"),
    kept("conclusion", "建议从单个优化点开始逐步验证效果", "begin with a single optimisation, and verify step by step", "00-one-at-a-time", evidence="simulated (H100)"),
)  # fmt: skip
