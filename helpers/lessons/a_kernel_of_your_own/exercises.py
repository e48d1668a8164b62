"""Tests of lesson 21: kernels by what they load and store, and one of them as an operator of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from helpers import check, kernels
from helpers.check.compare import difference
from helpers.check.judges import each

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
#: rtol and atol of a result
CLOSE = {"float32": (2e-5, 1e-6), "float16": (2e-3, 1e-4), "bfloat16": (1.6e-2, 1e-3)}
#: what only makes a tensor, or another look at one, and what launching a kernel asks for
_NO_WORK = frozenset(
    """empty empty_like empty_strided new_empty set_ view reshape _unsafe_view transpose t permute unsqueeze squeeze expand
    slice select as_strided unflatten flatten zeros zeros_like new_zeros zero_ fill_ full full_like new_full copy_
    resize_ _reshape_alias unbind""".split()
)


def _close(got: Any, want: Tensor, dtype: str, at: str) -> str | None:
    rtol, atol = CLOSE[dtype]
    if isinstance(got, Tensor) and got.shape == want.shape and got.dtype == want.dtype:
        got, want = got.float(), want.float()
    return difference(got, want, rtol, atol, at)


def _layout(x: Tensor, layout: str) -> Tensor:
    """The same numbers, (rows, columns), in another order in memory."""
    rows, columns = x.shape
    if layout == "columns":  # column by column
        return x.t().contiguous().t()
    if layout == "sliced":  # each row lies in a longer one, and begins within it
        room = torch.empty(rows, columns + 5, dtype=x.dtype).fill_(float("nan"))
        room[:, 3 : 3 + columns] = x
        return room[:, 3 : 3 + columns]
    if layout == "every second":
        room = torch.empty(rows, 2 * columns, dtype=x.dtype).fill_(float("nan"))
        room[:, ::2] = x
        return room[:, ::2]
    if layout == "one row":  # a stride of 0
        return x[:1].clone().expand(rows, columns)
    return x


def _numbers(rows: int, columns: int, seed: int = 0, shift: float = 0.0, scale: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(1000 * rows + columns + seed)
    return torch.randn(rows, columns, generator=g) * scale + shift


def _host(by_operator: dict[str, int]) -> list[str]:
    """Operators of PyTorch that computed something."""
    return [name for name in by_operator if name.removeprefix("aten.") not in _NO_WORK]


def _outside(got: dict[str, Any]) -> str:
    """What to say where values are wrong and PyTorch computed."""
    if not got["host"]:
        return ""
    return f" (outside of your kernels {', '.join(got['host'])} ran: there PyTorch finds no numbers, only kernels do)"


# --- 21.1 softmax -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The case: a matrix. layout: how its numbers lie in memory; shift, scale: of its numbers."""

    rows: int
    columns: int
    dtype: str = "float32"
    layout: str = "row by row"
    shift: float = 0.0
    scale: float = 1.0

    def __str__(self) -> str:
        lies = "" if self.layout == "row by row" else f", in memory {self.layout}"
        about = f", numbers around {self.shift:g}" if self.shift else ""
        return f"x ({self.rows}, {self.columns}) {self.dtype}{lies}{about}"

    def x(self) -> Tensor:
        x = _numbers(self.rows, self.columns, shift=self.shift, scale=self.scale)
        return _layout(x.to(DTYPES[self.dtype]), self.layout)


def _drive_softmax(softmax: Callable[[Tensor], Tensor], count: Any, **case: Any) -> dict[str, Any]:
    kernels.load()
    x = Rows(**case).x()
    with kernels.Memory() as memory, kernels.watch() as seen:
        counts = count(softmax, memory.put(x))
    y = counts.result
    return {
        "y": memory.get(y) if isinstance(y, Tensor) else y,
        "contiguous": isinstance(y, Tensor) and y.is_contiguous(),
        "loads": seen.loads,
        "stores": seen.stores,
        "host": _host(counts.by_operator),
    }


def _wrong_softmax(case: Rows, got: dict[str, Any]) -> str | None:
    x = case.x()
    want = x.float().softmax(-1).to(x.dtype)
    if text := _close(got["y"], want, case.dtype, "the result"):
        return text + _outside(got)
    if not got["contiguous"]:
        return "the result does not lie row by row in memory"
    many = case.rows * case.columns
    if got["loads"] != many or got["stores"] != many:
        return (
            f"its kernels loaded {got['loads']:,} elements and stored {got['stores']:,}; wanted {case.rows} × {case.columns} = "
            f"{many:,} of both: each number is read once and written once"
        )
    return None


def check_softmax(*cases: Rows) -> None:
    verify = each(lambda report: _wrong_softmax(report.case, report.value), told=True)
    check.function("softmax", cases, drive=_drive_softmax, verify=verify, look="2 · What a kernel costs")
