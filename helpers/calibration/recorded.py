"""The calibration set: operators by family and size, timed with events.

The rows are those of `helpers.calibration.measured`: source, card, set, op, dtype, shapes, us. Two thirds of the
sizes are for the fit and one third is held out, by their place in the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from helpers.recordings.common import timed
from helpers.recordings.manifest import short_name
from helpers.recordings.registry import experiment

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# Sizes from launch-bound to saturated; the awkward ones are there because models have them.
_MATMULS = [
    *((n, n, n) for n in (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)),
    *((16384, 768, k) for k in (768, 2304, 3072)),
    *((4096, 3072, 768), (8192, 50257, 768), (64, 4096, 4096), (1000, 1000, 1000), (4096, 64, 4096)),
]
_BATCHED = [(96, 512, 64, 512), (192, 1024, 64, 1024), (192, 1024, 1024, 64), (512, 128, 64, 128), (16, 2048, 128, 2048), (32, 512, 512, 512)]  # fmt: skip
_ATTENTION = [(16, 12, 1024, 64), (8, 12, 512, 64), (4, 16, 2048, 128), (32, 16, 512, 64), (2, 32, 4096, 128), (8, 25, 1024, 64)]  # fmt: skip
_ROWS = [(512, 768), (2048, 768), (4096, 1024), (8192, 1024), (16384, 768), (16384, 3072), (32768, 4096), (65536, 1024), (1000, 1001)]  # fmt: skip
_CONVOLUTIONS = [  # batch, channels in, channels out, side, kernel, stride
    *((64, 64, 64, 56, 3, 1), (64, 64, 256, 56, 1, 1), (64, 128, 128, 28, 3, 1), (64, 512, 128, 28, 1, 1)),
    *((64, 256, 256, 14, 3, 1), (64, 1024, 256, 14, 1, 1), (64, 512, 512, 7, 3, 1), (64, 3, 64, 224, 7, 2)),
    *((16, 320, 320, 64, 3, 1), (16, 128, 256, 28, 3, 2), (32, 96, 192, 32, 5, 1), (64, 256, 512, 28, 1, 2)),
]


def _cases() -> list[tuple[str, str, tuple[tuple[int, ...], ...]]]:
    """(operator, arithmetic, shapes), family by family, sizes in order."""
    cases: list[tuple[str, str, tuple[tuple[int, ...], ...]]] = []
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        cases += [("mm", dtype, ((m, k), (k, n))) for m, n, k in _MATMULS]
        cases += [("bmm", dtype, ((b, m, k), (b, k, n))) for b, m, k, n in _BATCHED]
    for dtype in ("float16", "bfloat16"):
        cases += [("attention", dtype, (shape,) * 3) for shape in _ATTENTION]
    for dtype in ("float32", "float16"):
        for op in ("layer_norm", "softmax", "gelu", "sum", "clone"):
            cases += [(op, dtype, (shape,)) for shape in _ROWS]
        cases += [("add", dtype, (shape, shape)) for shape in _ROWS]
        cases += [("embedding", dtype, ((50257, width), (rows,))) for rows, width in _ROWS]
        cases += [
            (f"conv2d/{stride}/{kernel // 2}", dtype, ((b, i, side, side), (o, i, kernel, kernel)))
            for b, i, o, side, kernel, stride in _CONVOLUTIONS
        ]
    return cases


def _card(name: str) -> str:
    """The card as `simulator.cost.measured.CARDS` names it: A100s differ in memory and in form."""
    if "A100" not in name:
        return short_name(name)
    return f"A100-{'PCIE' if 'PCI' in name.upper() else 'SXM'}-{'40' if '40GB' in name else '80'}GB"


def _work(gpu: Any, op: str, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> Callable[[], Any]:
    kind = _DTYPES.get(dtype, torch.float32)
    if op == "embedding":
        table = torch.randn(shapes[0], dtype=kind, device=gpu.device)
        rows = torch.randint(shapes[0][0], shapes[1], device=gpu.device)
        return lambda: F.embedding(rows, table)
    x, *rest = (torch.randn(shape, dtype=kind, device=gpu.device) for shape in shapes)
    name, *sizes = op.split("/")
    calls: dict[str, Callable[[], Any]] = {
        "mm": lambda: torch.mm(x, rest[0]),
        "bmm": lambda: torch.bmm(x, rest[0]),
        "attention": lambda: F.scaled_dot_product_attention(x, rest[0], rest[1], is_causal=True),
        "layer_norm": lambda: F.layer_norm(x, x.shape[-1:]),
        "softmax": lambda: torch.softmax(x, -1),
        "gelu": lambda: F.gelu(x),
        "sum": lambda: x.sum(),
        "clone": lambda: x.clone(),
        "add": lambda: torch.add(x, rest[0]),
        "conv2d": lambda: F.conv2d(x, rest[0], stride=int(sizes[0]), padding=int(sizes[1])),
    }
    return calls[name]


@experiment("calibration/operators", seconds=120)
def operators(gpu: Any) -> dict[str, Any]:
    """Median microseconds of every case."""
    card, rows = {"source": f"recorded {gpu.name}", "card": _card(gpu.name)}, []
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # a row says float32 and means it
    try:
        with torch.no_grad():
            for place, (op, dtype, shapes) in enumerate(_cases()):
                torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
                us = timed(gpu, _work(gpu, op, dtype, shapes), repeats=10, samples=3)
                sizes = " ".join("x".join(map(str, shape)) for shape in shapes)
                of = {
                    "set": "held-out" if place % 3 == 2 else "fit",
                    "op": op,
                    "dtype": dtype,
                    "shapes": sizes,
                }
                rows.append(card | of | {"us": round(us, 2)})
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn
    return {"table": rows}
