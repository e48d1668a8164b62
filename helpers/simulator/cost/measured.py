"""Times that were measured on real cards, of single operators and of whole steps, and what they are here.

Single operators are what the shares are fitted to. A row: source, card, set ("fit" or "held-out"), operator, arithmetic, shapes, microseconds. measured.csv holds
public measurements of others (docs/recording.md says which, and under which licence); recordings of this
course bring tables of the same form.

Whole steps (measured_steps.csv) enter no fit. NeuSight's are the mean of the five fastest of 25 runs, forward (and
backward, for training) of Hugging Face's GPT-2 large and BERT large in fp32 with attention written out
(neusight/Tracing/trace.py: inference of BERT is a classifier's, without the language-model head). Its runs empty
PyTorch's cache before each measurement, so that small batches measure cudaMalloc: the largest batch of each is
taken. The lecture's are the milliseconds a step, optimizer included, of "Let's reproduce GPT-2 (124M)" by
A. Karpathy (the chapters' titles).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from helpers import private_torch
from helpers.simulator.cost import roofline
from helpers.simulator.cost.roofline import Work
from helpers.simulator.devices import DEVICES, Device
from helpers.simulator.gpu import SimGPU
from helpers.tables import read_rows

PUBLIC = Path(__file__).with_name("measured.csv")
STEPS = Path(__file__).with_name("measured_steps.csv")
COLUMNS = ("source", "card", "set", "op", "dtype", "shapes", "us")

_A100 = DEVICES["A100"]
#: the cards that were measured: the table's own and their variants, which differ in memory (data sheets)
CARDS: dict[str, Device] = DEVICES | {
    "A100-SXM-80GB": _A100,
    "A100-SXM-40GB": replace(_A100, memory_bytes_per_s=1.555e12, memory_bytes=40 * 10**9),
    "A100-PCIE-40GB": replace(_A100, memory_bytes_per_s=1.555e12, memory_bytes=40 * 10**9),
    "A100-PCIE-80GB": replace(_A100, memory_bytes_per_s=1.935e12),
}

T = torch.Tensor
_OPS: dict[str, Callable[..., Any]] = {
    **{n: getattr(torch, n) for n in ("mm", "bmm", "addmm", "add", "sub", "mul", "div", "pow")},
    **{n: getattr(torch, n) for n in ("tanh", "sigmoid", "neg", "log2", "relu", "sum", "mean", "clone")},
    **{n: getattr(F, n) for n in ("linear", "gelu")},
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "add_number": lambda x: x + 0.5,
    "mul_number": lambda x: x * 0.5,
    "div_number": lambda x: x / 0.5,
    "pow_number": lambda x: x**0.5,
    "copy_": lambda x, y: x.copy_(y),
    "fill_": lambda x: x.fill_(1),
    **{n: getattr(torch.ops.aten, n) for n in ("tanh_backward", "sigmoid_backward")},
    "native_layer_norm_backward": lambda g, x, m, r, w, b: torch.ops.aten.native_layer_norm_backward(
        g, x, w.shape, m, r, w, b, [True, True, True]
    ),
    "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "embedding": lambda table, rows: F.embedding(rows.long(), table),
}
_KINDS = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64_tensor"}


@dataclass(frozen=True)
class Measurement:
    """One operator's median time on one card. held_out: kept away from the fit."""

    source: str
    card: str
    held_out: bool
    op: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    seconds: float

    @property
    def device(self) -> Device:
        return CARDS[self.card]


def parse(row: Mapping[str, Any], where: str = "") -> Measurement:
    """A row as a Measurement. ValueError, with the place, for what cannot be one."""
    missing = [c for c in COLUMNS if row.get(c) in (None, "")]
    if missing:
        raise ValueError(f"{where}: no {', '.join(missing)}")
    if row["card"] not in CARDS:
        raise ValueError(f"{where}: no card {row['card']!r} in the table; there are {', '.join(CARDS)}")
    op = str(row["op"])
    if op.partition("/")[0] not in {*_OPS, "conv2d"}:
        raise ValueError(f"{where}: no operator {op!r}")
    if row["dtype"] not in {*_KINDS, "int32", "int64"}:
        raise ValueError(f"{where}: no arithmetic {row['dtype']!r}")
    if row["set"] not in ("fit", "held-out"):
        raise ValueError(f"{where}: set is 'fit' or 'held-out', not {row['set']!r}")
    try:
        shapes = tuple(tuple(int(n) for n in shape.split("x")) for shape in str(row["shapes"]).split())
        seconds = float(row["us"]) / 1e6
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None
    if not (seconds > 0 and math.isfinite(seconds)) or any(n < 1 for shape in shapes for n in shape):
        given = f"{row['us']} and {row['shapes']}"
        raise ValueError(f"{where}: times and sizes are positive numbers, not {given}")
    held_out = row["set"] == "held-out"
    return Measurement(row["source"], row["card"], held_out, op, row["dtype"], shapes, seconds)


def read(path: Path) -> list[Measurement]:
    """Every row of a CSV file with the columns `COLUMNS`. ValueError with the line for a bad one."""
    return [parse(row, f"{path.name}, row {i}") for i, row in enumerate(read_rows(path), 1)]


def public() -> list[Measurement]:
    """The public measurements that ship with the course."""
    return read(PUBLIC)


class _Works(private_torch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Work] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "aten" and roofline.launches_kernel(func, out):
            self.found.append(roofline.work(func, args, kwargs, out))
        return out


def work_of(one: Measurement) -> Work:
    """What that operator had to do, as the simulator's cost model counts it (kernels summed)."""
    dtype = torch.float32 if one.dtype == "tf32" else getattr(torch, one.dtype)
    inputs = [torch.empty(shape, dtype=dtype, device="meta") for shape in one.shapes]
    name, *rest = one.op.split("/")
    with torch.no_grad(), _Works() as works:
        if name == "conv2d":
            F.conv2d(inputs[0], inputs[1], stride=int(rest[0]), padding=int(rest[1]))
        else:
            _OPS[name](*inputs)
    return _joined(works.found, _KINDS.get(one.dtype))


def _joined(works: Iterable[Work], kind: str | None) -> Work:
    works = list(works)
    main = max(works, key=lambda w: w.flops)
    # Which of fp32 and TF32 a product took depends on settings of the process that measured it.
    library = main.family in ("matmul", "convolution", "attention")
    flops, nbytes = sum(w.flops for w in works), sum(w.bytes for w in works)
    return replace(main, flops=flops, bytes=nbytes, kind=kind if kind and library else main.kind)


def steps() -> list[dict[str, Any]]:
    """Every measured step beside its simulation: card, what, measured_ms, simulated_ms, error."""
    found = []
    for row in read_rows(STEPS):
        size = int(row["batch"]), int(row["length"])
        ms = 1e3 * simulate_step(row["card"], row["model"], row["mode"], *size, row["precision"])
        measured = float(row["ms"])
        what = f"{row['model']}, {row['mode']}, {row['precision']}, {row['batch']} × {row['length']}"
        step = {"source": row["source"], "card": row["card"], "what": what, "measured_ms": measured}
        found.append(step | {"simulated_ms": round(ms, 1), "error": round(ms / measured - 1, 4)})
    return found


def simulate_step(card: str, model: str, mode: str, batch: int, length: int, precision: str) -> float:
    """Seconds on the simulated card, warmed up, with everything done at the end.

    mode: "inference" is a forward pass, "training" forward and backward, "step" with loss and AdamW as well.
    """
    from helpers.recordings.models import GPT2, Bert

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    gpu = SimGPU(CARDS[card])
    try:
        with gpu, torch.device("meta"):
            dropout = 0.0 if model == "gpt2-124m" else 0.1
            if model == "bert-large":
                headless = mode == "inference"
                net: torch.nn.Module = Bert(Bert.LARGE, True, dropout, headless)
            elif model == "gpt2-large":
                net = GPT2(GPT2.LARGE, eager=True, dropout=dropout, gelu_parts=True)
            else:
                net = GPT2(eager=True)
            net.train(mode != "inference")
            optimizer = torch.optim.AdamW(net.parameters()) if mode == "step" else None
            tokens = torch.zeros(batch, length, dtype=torch.int64)
            times = []
            for _ in range(2):
                gpu.synchronize()
                start = gpu.clock()
                _once(net, tokens, mode, optimizer, precision == "bf16")
                gpu.synchronize()
                times.append(gpu.clock() - start)
    finally:
        torch.set_float32_matmul_precision(before)
    return times[-1]


def _once(
    net: torch.nn.Module, tokens: torch.Tensor, mode: str, optimizer: torch.optim.Optimizer | None, bf16: bool
) -> None:
    if mode == "inference":
        with torch.no_grad():
            net(tokens)
        return
    with torch.autocast("cuda", torch.bfloat16) if bf16 else nullcontext():
        logits = net(tokens)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
