"""The notes on the book: what they claim, heading by heading."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

from helpers import compiling, count
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested


def one_tensor() -> Outcome:
    sample = {"picture": torch.rand(3, 4, 4), "label": 1, "name": "a"}
    batch = default_collate([sample, sample])
    kinds = ", ".join(f"{k}: {type(v).__name__}" for k, v in batch.items())
    more = isinstance(batch, dict) and isinstance(batch["name"], list)
    verdict = "partly: a sample may be any nest of numbers, tensors and text" if more else "confirmed"
    return f"a batch of samples that are dicts: {kinds}", verdict


def accumulation_costs() -> Outcome:
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    x, y = torch.rand(64, 32), torch.zeros(64, dtype=torch.long)

    def gradients(rows: int) -> None:
        net.zero_grad()
        for a, b in zip(x.split(rows), y.split(rows), strict=True):
            F.cross_entropy(net(a), b, reduction="sum").backward()

    whole, pieces = (count(gradients, rows) for rows in (64, 8))
    return (
        f"64 rows at once: {whole.operators} operators, {whole.flops:,} FLOPs; in 8 pieces: {pieces.operators} operators, "
        f"{pieces.flops:,} FLOPs",
        "partly: holds when launches or small kernels decide; the arithmetic is the same"
        if pieces.flops == whole.flops
        else "confirmed",
    )


def harmless() -> Outcome:
    net, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.rand(8, 16)

    def gradient(again: bool) -> torch.Tensor:
        net.zero_grad()
        (checkpoint(net, x, use_reentrant=False) if again else net(x)).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    same = torch.equal(gradient(False), gradient(True))
    return (
        f"gradients with a checkpoint and without are equal to the bit: {'yes' if same else 'no'}",
        "confirmed for recomputing; a smaller batch is another matter" if same else "refuted",
    )


def _buckets(as_view: bool) -> tuple[int, int]:
    """Bytes of the buckets of DDP, and of them those that lie in the gradients' own memory, after a second step."""
    with tempfile.TemporaryDirectory() as place:
        dist.init_process_group("gloo", store=dist.FileStore(f"{place}/store", 1), rank=0, world_size=1)
        try:
            net = DistributedDataParallel(
                nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)), gradient_as_bucket_view=as_view
            )
            nbytes_at: dict[int, int] = {}

            def sent(bucket: Any) -> Any:
                storage = bucket.buffer().untyped_storage()
                nbytes_at[storage.data_ptr()] = storage.nbytes()
                done: Any = torch.futures.Future()
                done.set_result(bucket.buffer())
                return done

            net.register_comm_hook(None, lambda state, bucket: sent(bucket))
            for _ in range(2):
                net.zero_grad(set_to_none=False)
                nbytes_at.clear()
                net(torch.rand(4, 64)).sum().backward()
            grads = {p.grad.untyped_storage().data_ptr() for p in net.parameters() if p.grad is not None}
            return sum(nbytes_at.values()), sum(n for at, n in nbytes_at.items() if at in grads)
        finally:
            dist.destroy_process_group()


def buckets_take_memory() -> Outcome:
    (plain, _), (viewed, shared) = _buckets(False), _buckets(True)
    return (
        f"buckets beside the gradients: {plain:,} bytes; with gradient_as_bucket_view=True: {viewed - shared:,}",
        "partly: holds by default; gradient_as_bucket_view=True lets gradients lie in the buckets"
        if shared == viewed
        else "confirmed",
    )


def hook_measures() -> Outcome:
    seen, _ = _buckets(False)
    return (
        f"the hook was given buckets of {seen:,} bytes together, all of the gradients",
        "confirmed: it is called with every bucket, and can time it" if seen else "refuted",
    )


def splits_both() -> Outcome:
    def mlp(width: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 32))

    x = torch.rand(64, 32, requires_grad=True)
    weights, saved = [], []
    for width in (128, 64):
        net = mlp(width)
        weights.append(sum(p.nbytes for p in net.parameters()))
        saved.append(count(net, x).saved_bytes)
    return (
        f"an MLP over 2 GPUs, by columns and rows: weights {weights[0]:,} → {weights[1]:,} bytes each, saved for backward "
        f"{saved[0]:,} → {saved[1]:,}",
        "partly: holds for the inner activations; each GPU keeps the whole input"
        if saved[1] > saved[0] / 2
        else "confirmed",
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
        "confirmed, and what did not run is not in it" if "sin" in seen and "cos" not in seen else "refuted",
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


CLAIMS = (
    kept("basics", "09-memory-first"),
    kept("basics", "04-iops"),
    untested("basics", "Tensor Cores and scalar cores decide how fast a GPU computes; cache and memory, how fast it is fed", "it says how the hardware is made, and no run shows that"),
    untested("basics", "the warp scheduler is responsible for communication between threads", "it says how the hardware is made; NVIDIA's manuals give that part to shared memory"),
    kept("tensors", "01-two-levels"),
    kept("tensors", "01-noncontiguous-slow"),
    kept("tensors", "01-noncontiguous-raises"),
    kept("tensors", "01-noncontiguous-wrong"),
    kept("tensors", "01-advanced-index"),
    kept("tensors", "02-overhead"),
    kept("tensors", "02-dag"),
    kept("tensors", "02-accumulate"),
    kept("workflow", "03-sparse-cpu"),
    kept("workflow", "03-dense-gpu"),
    kept("workflow", "03-gaps-zoom"),
    kept("workflow", "03-before-and-after"),
    kept("workflow", "03-nsight-compute"),
    kept("data", "01-pandas-numpy"),
    tried("data", one_tensor, "a Dataset gives a single tensor, a DataLoader a batch of them"),
    kept("data", "05-one-queue"),
    kept("data", "05-non-blocking-safe"),
    kept("data", "05-wait-stream"),
    kept("data", "05-speeds-the-copy"),
    kept("data", "05-small-data"),
    kept("optimizers", "06-batch"),
    kept("optimizers", "06-three-for-each"),
    kept("optimizers", "06-trade-off"),
    kept("memory", "08-larger"),
    kept("memory", "08-max-split"),
    kept("memory", "08-nccl"),
    tried("memory", harmless, "saving dynamic memory hardly touches convergence"),
    kept("memory", "09-peak"),
    kept("memory", "02-in-place"),
    tried("memory", accumulation_costs, "accumulating gradients gives up some speed"),
    kept("memory", "09-host-memory"),
    kept("memory", "08-cycles"),
    kept("distributed", "14-buckets"),
    kept("distributed", "14-compression"),
    kept("distributed", "14-topology"),
    kept("distributed", "14-nodes"),
    tried("distributed", buckets_take_memory, "buckets pay for speed with memory"),
    tried("distributed", hook_measures, "register_comm_hook() lets one measure the communication"),
    kept("distributed", "15-memory", "static memory cut over the GPUs is gathered on demand, and the peak of each is lower"),
    tried("distributed", splits_both, "model parallelism cuts static and dynamic memory"),
    kept("distributed", "16-one-layer"),
    kept("distributed", "16-gather"),
    kept("distributed", "16-one-machine"),
    tried("mixed precision", two_parts, "the exponent makes the range, the mantissa the precision", evidence="arithmetic"),
    untested("mixed precision", "early in training numbers vary most, so fp16 overflows there", "it depends on the net and how it was initialised; a small net says little about a large one"),
    kept("mixed precision", "10-forward-large"),
    kept("graphs", "11-fullgraph"),
    tried("graphs", dynamic_sizes, "dynamic=True compiles for inputs of changing size"),
    kept("graphs", "07-reduce-overhead"),
    tried("graphs", tracing, "tracing captures the graph by watching the operators that run"),
    tried("graphs", from_source, "source analysis captures it without a run"),
    untested("graphs", "torch.compile captures operators through an interface of CPython, at run time", "it is a statement about PyTorch's code, which its source confirms; no measurement does"),
    kept("other", "14-accelerate"),
    kept("other", "00-start-small"),
)  # fmt: skip
