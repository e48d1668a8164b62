"""Tests of lesson 21: kernels by what they load and store, and one of them as an operator of PyTorch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from helpers import check, kernels
from helpers.check.compare import difference
from helpers.check.judges import each
from helpers.pytorch import private_torch

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
#: rtol and atol of a result
CLOSE = {"float32": (2e-5, 1e-6), "float16": (2e-3, 1e-4), "bfloat16": (1.6e-2, 1e-3)}
#: what only makes a tensor, or another look at one, and what launching a kernel asks for
_NO_WORK = frozenset(
    """empty empty_like empty_strided new_empty set_ view reshape _unsafe_view transpose t permute unsqueeze squeeze expand
    slice select as_strided unflatten flatten zeros zeros_like new_zeros zero_ fill_ full full_like new_full copy_
    resize_ _reshape_alias unbind""".split()
)


def _close(got: Any, want: Tensor, dtype: str, at: str, scale: float = 1.0) -> str | None:
    """What is wrong with a result. scale: of its numbers, where sums cancel and a relative tolerance says little."""
    rtol, atol = CLOSE[dtype]
    atol *= scale
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


def _why(got: dict[str, Any], value: Any) -> str:
    """What to say where a value is wrong, of what may be the reason."""
    if not got["host"]:
        if isinstance(value, Tensor) and value.isnan().any():
            return " (NaN: numbers overflow, or masked lanes of a load without `other` went into a sum: they hold NaN)"
        return ""
    return f" (outside of your kernels {', '.join(got['host'])} ran: there PyTorch finds no numbers, only kernels do)"


#: a kernel's source → what Triton's compiler says against it
_refusals: dict[str, str] = {}


def _refused(seen: kernels.Watch) -> str:
    """What Triton's compiler says against a kernel that was launched; "" where it takes all. Each is asked about once."""
    programs = [launch.program() for launch in seen.launches if launch.program is not None]
    new = [
        each for i, each in enumerate(programs) if each.source not in _refusals and each not in programs[:i]
    ]
    with suppress(RuntimeError):  # here is none for an H100
        for asked, said in zip(new, kernels.compile_all(new, whole=False) if new else [], strict=True):
            _refusals[asked.source] = said.refused and f"{said.name}: {said.refused}"
    return next((text for each in programs if (text := _refusals.get(each.source))), "")


def _not_for_a_gpu(got: dict[str, Any]) -> str | None:
    if not got["refused"]:
        return None
    return f"values right, but Triton's compiler refuses {got['refused']}. (The interpreter runs a kernel as Python, and lets it pass.)"


def _run(answer: Callable[..., Any], count: Any, given: Iterable[Tensor], *numbers: Any) -> dict[str, Any]:
    """What an answer gave for tensors whose numbers only kernels see, and what its kernels and PyTorch's operators did."""
    kernels.load()
    with kernels.Memory() as memory:
        return _counted(answer, count, memory, map(memory.put, given), *numbers)


def _counted(
    answer: Callable[..., Any], count: Any, memory: kernels.Memory, given: Iterable[Tensor], *numbers: Any
) -> dict[str, Any]:
    """The same within a memory, in which the tensors are already."""
    with kernels.watch() as seen:
        counts = count(answer, *given, *numbers)
    value = counts.result
    return {
        "value": _read(memory, value) if isinstance(value, tuple | list) else _read(memory, [value])[0],
        "contiguous": isinstance(value, Tensor) and value.is_contiguous(),
        "loads": seen.loads,
        "stores": seen.stores,
        "lanes": seen.lanes,
        "raced": seen.raced,
        "refused": _refused(seen),
        "host": _host(counts.by_operator),
    }


def _read(memory: kernels.Memory, values: Iterable[Any]) -> list[Any]:
    """The numbers of those that are tensors."""
    return [memory.get(value) if isinstance(value, Tensor) else value for value in values]


def _other_result(got: dict[str, Any], want: Tensor, dtype: str, scale: float = 1.0) -> str | None:
    """What is wrong with a result: its numbers, how they lie, or that no GPU would have made them."""
    if text := _close(got["value"], want, dtype, "the result", scale):
        return text + _why(got, got["value"])
    return _not_for_a_gpu(got) if got["contiguous"] else "the result does not lie row by row in memory"


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
    return _run(softmax, count, [Rows(**case).x()])


def _wrong_softmax(case: Rows, got: dict[str, Any]) -> str | None:
    x = case.x()
    if text := _other_result(got, x.float().softmax(-1).to(x.dtype), case.dtype):
        return text
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


# --- 21.3 attend_window -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """The case: a cache of keys and values, `filled` of its `places` for each text. scale: of the query's numbers."""

    filled: tuple[int, ...]
    sinks: int
    window: int
    places: int = 64
    d: int = 16
    scale: float = 1.0

    def __str__(self) -> str:
        return f"filled {self.filled} of {self.places} places, sinks={self.sinks}, window={self.window}, d={self.d}"

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and filled. What is not filled holds NaN."""
        texts = len(self.filled)
        q = _numbers(texts, self.d, 6, scale=self.scale).view(texts, 1, 1, self.d)
        k, v = (_numbers(texts * self.places, self.d, seed).view(texts, 1, -1, self.d) for seed in (7, 8))
        for text, many in enumerate(self.filled):
            k[text, :, many:] = v[text, :, many:] = float("nan")
        return q, k, v, torch.tensor(self.filled)

    def counted(self) -> list[list[int]]:
        """For each text the places that count."""
        return [
            [place for place in range(many) if place < self.sinks or place >= many - self.window]
            for many in self.filled
        ]

    def wanted(self) -> Tensor:
        q, k, v, _ = (t.double() for t in self.tensors())
        rows = []
        for text, places in enumerate(self.counted()):
            keys, values = k[text, 0, places], v[text, 0, places]
            rows.append((keys @ q[text, 0, 0] / self.d**0.5).softmax(0) @ values)
        return torch.stack(rows)[:, None, None].float()


#: places more than count that the blocks of a text may hold: in blocks of 16, 15 behind the sinks and on each side of the window
SPARE = 45


def _drive_attend_window(attend_window: Callable[..., Tensor], count: Any, **case: Any) -> dict[str, Any]:
    of = Texts(**case)
    return _run(attend_window, count, of.tensors(), of.sinks, of.window)


def _wrong_attend_window(case: Texts, got: dict[str, Any]) -> str | None:
    if text := _other_result(got, case.wanted(), "float32", 4.0):
        unfilled = isinstance(got["value"], Tensor) and got["value"].isnan().any() and not got["host"]
        return text + (" (what is not filled holds NaN too)" if unfilled else "")
    texts, places = len(case.filled), sum(map(len, case.counted()))
    loads, stores = texts * (1 + case.d) + 2 * case.d * places, texts * case.d
    if got["loads"] > loads:
        return (
            f"its kernels loaded {got['loads']:,} elements; wanted at most {loads:,}: {places:,} places count, with {case.d} numbers "
            "of k and of v each"
        )
    if got["stores"] > stores:
        return f"its kernels stored {got['stores']:,} elements; wanted at most {stores:,}"
    entered = (got["lanes"] - texts * (1 + case.d)) / (2 * case.d)
    if entered > places + SPARE * texts:
        return (
            f"the blocks that it loads of k and of v hold {entered:,.0f} places each, masked ones too, and {places:,} count; wanted at "
            f"most {SPARE} more than count for each text: enter no block in which nothing counts"
        )
    return None


def check_attend_window(*cases: Texts) -> None:
    verify = each(lambda report: _wrong_attend_window(report.case, report.value), told=True)
    check.function(
        "attend_window", cases, drive=_drive_attend_window, verify=verify, look="Further: Attention in blocks"
    )


# --- 21.4 matmul --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """The case: a (m, k) times b (k, n), in tiles. a_lies, b_lies: how the numbers lie in memory."""

    m: int
    k: int
    n: int
    rows: int = 16
    columns: int = 16
    inner: int = 16
    dtype: str = "float32"
    a_lies: str = "row by row"
    b_lies: str = "row by row"
    shift: float = 0.0

    def __str__(self) -> str:
        tiles = f"rows={self.rows}, columns={self.columns}, inner={self.inner}"
        lies = [
            f"{name} {lies}"
            for name, lies in (("a", self.a_lies), ("b", self.b_lies))
            if lies != "row by row"
        ]
        where = f", in memory {' and '.join(lies)}" if lies else ""
        return f"a ({self.m}, {self.k}) @ b ({self.k}, {self.n}) {self.dtype}{where}, {tiles}"

    def operands(self) -> tuple[Tensor, Tensor]:
        a = _numbers(self.m, self.k, 1, self.shift).to(DTYPES[self.dtype])
        b = _numbers(self.k, self.n, 2, self.shift).to(DTYPES[self.dtype])
        return _layout(a, self.a_lies), _layout(b, self.b_lies)


def _drive_matmul(matmul: Callable[..., Tensor], count: Any, **case: Any) -> dict[str, Any]:
    of = Product(**case)
    return _run(matmul, count, of.operands(), of.rows, of.columns, of.inner)


def _wrong_matmul(case: Product, got: dict[str, Any]) -> str | None:
    a, b = case.operands()
    if text := _other_result(got, (a.double() @ b.double()).to(a.dtype), case.dtype):
        return text
    across, down = -(-case.n // case.columns), -(-case.m // case.rows)
    loads, stores = case.m * case.k * across + case.k * case.n * down, case.m * case.n
    if got["loads"] != loads:
        return (
            f"loaded {got['loads']:,} elements; wanted {loads:,}: a's {case.m * case.k:,} once for each of {across} columns of "
            f"tiles, b's {case.k * case.n:,} once for each of {down} rows of tiles"
        )
    if got["stores"] != stores:
        return f"stored {got['stores']:,} elements; wanted {stores:,}, each of the result once"
    return None


def check_matmul(*cases: Product) -> None:
    verify = each(lambda report: _wrong_matmul(report.case, report.value), told=True)
    check.function("matmul", cases, drive=_drive_matmul, verify=verify, look="Further: Reuse")


# --- 21.2 operator ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    """The case: an x that the operator is used on, compiled or not. layout: as x lies in memory; twice: in one function."""

    rows: int
    columns: int
    dtype: str = "float32"
    layout: str = "row by row"
    twice: bool = False

    def __str__(self) -> str:
        lies = "" if self.layout == "row by row" else f", in memory {self.layout}"
        return f"x ({self.rows}, {self.columns}) {self.dtype}{lies}{', used twice' if self.twice else ''}"

    def x(self) -> Tensor:
        return _layout(_numbers(self.rows, self.columns).to(DTYPES[self.dtype]), self.layout)


#: operators that were made in this process: each gets a name of its own
_made = [0]


def _drive_operator(operator: Callable[..., Any], **case: Any) -> dict[str, Any]:
    from helpers import compiling
    from helpers.lessons.a_kernel_of_your_own import given

    of, came = Used(**case), dict[str, tuple[int, ...]]()
    _made[0] += 1

    def forward(x: torch.Tensor) -> torch.Tensor:
        came["x"] = x.stride()
        return given.forward(x)

    def backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        came["dy"] = dy.stride()
        return given.backward(dy, y)

    op = operator(f"lesson21::sigmoid_{_made[0]}", forward, backward)
    if not isinstance(op, torch.library.CustomOpDef):
        return {"kind": type(op).__name__}
    operator(f"lesson21::other_{_made[0]}", given.forward, _other_backward)  # the first one keeps its own
    got: dict[str, Any] = {"fake": _fake_gradient(op, of)}
    x = of.x().requires_grad_()
    op(x).sum().backward()  # the gradient of y is one number, expanded
    got["came"], got["strides"] = dict(came), {"x": x.stride(), "dy": (0, 0)}
    factor = torch.arange(1.0, of.columns + 1).to(DTYPES[of.dtype])

    def model(x: Tensor) -> Tensor:
        y = op(x) * factor
        return (op(y) if of.twice else y).sum()

    for way in ("plain", "compiled"):
        x, kept = of.x().requires_grad_(), list[int]()

        def pack(t: Tensor) -> Tensor:
            kept.append(t.untyped_storage().nbytes() if isinstance(t, Tensor) else 0)  # noqa: B023 - called in this turn
            return t

        with compiling.watch("aot_eager") as w, kernels.watch() as seen:
            run = torch.compile(model, fullgraph=True) if way == "compiled" else model
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                total = run(x)
            first = len(seen.launches)
            total.backward()
        got[way] = {
            "total": total.detach(),
            "grad": x.grad,
            "forward": first,
            "backward": len(seen.launches) - first,
            "elements": seen.loads + seen.stores,
            "graphs": w.counts()["graphs"],
            "breaks": w.counts()["graph_breaks"],
        }
        if way == "plain":
            x = of.x().requires_grad_()
            kept.clear()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                op(x)
            got["saved"] = sum(kept)
            leaf = of.x().requires_grad_()  # which the graph holds in any case, and not what is made from it
            x = leaf.clone()
            memory, y = weakref.ref(x.untyped_storage()), op(x)
            del x
            gc.collect()  # a launch leaves circles
            got["keeps x"] = memory() is not None and y.requires_grad
    told = torch.library.opcheck(op, (of.x().requires_grad_(),), raise_exception=False)
    got["opcheck"] = {name: str(said).strip().splitlines()[0][:200] for name, said in told.items()}
    return got


def _other_backward(dy: Tensor, y: Tensor) -> Tensor:
    raise AssertionError("the backward of an operator that was made later ran: each needs a name of its own")


def _fake_gradient(op: Any, of: Used) -> str:
    """What is wrong with the gradient that the fakes give, where that of y lies column by column, or is one number expanded."""
    with private_torch.FakeTensorMode() as mode:
        x = mode.from_tensor(of.x()).requires_grad_()
        for dy in (
            torch.empty(of.columns, of.rows, dtype=x.dtype).t(),
            torch.empty(1, dtype=x.dtype).expand(x.shape),
        ):
            (dx,) = torch.autograd.grad(op(x), x, dy)
            if dx.shape != x.shape or not dx.is_contiguous():
                return f"the fake of backward gives strides {dx.stride()} for dy with strides {dy.stride()}; the kernel's result is contiguous"
    return ""


def _wrong_operator(case: Used, got: dict[str, Any]) -> str | None:
    if "kind" in got:
        return f"returned a {got['kind']}; wanted the operator that torch.library.custom_op makes"
    x = case.x().float().requires_grad_()
    y = x.sigmoid() * torch.arange(1.0, case.columns + 1)
    total = (y.sigmoid() if case.twice else y).sum()
    total.backward()
    assert x.grad is not None
    many, times = case.rows * case.columns, 2 if case.twice else 1
    for way in ("plain", "compiled"):
        did = got[way]
        rtol, atol = CLOSE[case.dtype]
        if not isinstance(did["grad"], Tensor):
            return f"{way}: x got no gradient"
        for name, value, want in (
            ("the result", did["total"], total.detach()),
            ("x.grad", did["grad"], x.grad),
        ):
            if text := difference(value.float(), want.float(), 4 * rtol, 4 * atol, name):
                return f"{way}: {text}"
        if (did["forward"], did["backward"]) != (times, times):
            return (
                f"{way}: {did['forward']} launches forward and {did['backward']} backward; wanted {times} and {times}: what "
                "`forward` and `backward` launch, once for each use"
            )
        if did["elements"] != 5 * many * times:
            return f"{way}: the kernels moved {did['elements']:,} elements; wanted {5 * many * times:,}"
    graphs, breaks = got["compiled"]["graphs"], got["compiled"]["breaks"]
    if graphs != 1 or breaks:
        return f"compiled: {graphs} graphs and {breaks} breaks, wanted 1 and 0"
    size = DTYPES[case.dtype].itemsize
    if got["saved"] != many * size:
        return f"it keeps {got['saved']:,} bytes for backward; wanted {many * size:,}: the result, and not x"
    if got["keeps x"]:
        return (
            "x lives on from forward to backward, where nobody else holds it: what hangs on ctx is kept as well as what is saved, and so "
            "is what a list or a variable around the functions holds; wanted: y alone, by ctx.save_for_backward"
        )
    if got["fake"]:
        return str(got["fake"])
    for name, strides in got["strides"].items():
        if got["came"].get(name) != strides:
            return f"{name} has strides {strides}, and came to the function with {got['came'].get(name)}: hand it on unchanged"
    for name, said in got["opcheck"].items():
        if said != "SUCCESS":
            return f"torch.library.opcheck, {name}: {said}"
    return None


def check_operator(*cases: Used) -> None:
    verify = each(lambda report: _wrong_operator(report.case, report.value), told=True)
    check.function(
        "operator",
        cases,
        drive=_drive_operator,
        verify=verify,
        look="4 · An operator of PyTorch",
        counters=False,
        once="it is compiled, which takes seconds",
    )


# --- 21.5 rms_norm ------------------------------------------------------------------------------------------------

_NORM = "Further: A norm with its backward"


@dataclass(frozen=True)
class Normed:
    """The case: rows to norm, with weights. layout: as x lies in memory, and dy too, if it has no layout of its own; scale:
    of x.
    """

    rows: int
    columns: int
    dtype: str = "float32"
    layout: str = "row by row"
    scale: float = 1.0
    eps: float = 1e-6
    dy: str = ""

    def __str__(self) -> str:
        lies = "" if self.layout == "row by row" else f", in memory {self.layout}"
        lies += f", dy {self.dy}" if self.dy else ""
        return f"x ({self.rows}, {self.columns}) {self.dtype}{lies}, eps {self.eps:g}"

    def tensors(self, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """x, weight and the gradient of y."""
        dtype = DTYPES[self.dtype]
        x = _numbers(self.rows, self.columns, 3 + seed, scale=self.scale).to(dtype)
        dy = _numbers(self.rows, self.columns, 4 + seed).to(dtype)
        weight = _numbers(1, self.columns, 5 + seed, shift=1.0)[0].to(dtype)
        return _layout(x, self.layout), weight, _layout(dy, self.dy or self.layout)

    def wanted(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y, rstd, dx, dweight, computed in float64 by autograd."""
        x, weight, dy = (t.double() for t in self.tensors())
        x.requires_grad_(), weight.requires_grad_()
        rstd = (x.square().mean(-1) + self.eps).rsqrt()
        y = x * rstd[:, None] * weight
        dx, dweight = torch.autograd.grad(y, (x, weight), dy)
        dtype = DTYPES[self.dtype]
        return y.detach().to(dtype), rstd.detach().float(), dx.to(dtype), dweight.float()


def _drive_norm(rms_norm: Callable[..., Any], count: Any, **case: Any) -> dict[str, Any]:
    of = Normed(**case)
    return _run(rms_norm, count, of.tensors()[:2], of.eps)


def _drive_norm_backward(rms_norm_backward: Callable[..., Any], count: Any, **case: Any) -> dict[str, Any]:
    kernels.load()
    of = Normed(**case)
    with kernels.Memory() as memory:

        def given(seed: int) -> list[Tensor]:
            x, weight, dy = of.tensors(seed)
            rstd = (x.float().square().mean(-1) + of.eps).rsqrt()
            return [memory.put(t) for t in (dy, x, weight, rstd)]

        # nothing of a call before, whose numbers are others, may be in what comes next
        earlier = rms_norm_backward(*given(10))
        earlier = list(earlier) if isinstance(earlier, tuple | list) else []
        before = _read(memory, earlier)
        got = _counted(rms_norm_backward, count, memory, given(0))
        return got | {"earlier": list(zip(before, _read(memory, earlier), strict=True))}


def _wrong_norm(case: Normed, got: dict[str, Any], backward: bool) -> str | None:
    names, wanted = (("dx", "dweight"), case.wanted()[2:]) if backward else (("y", "rstd"), case.wanted()[:2])
    values = got["value"] if isinstance(got["value"], list) else [got["value"]]
    if len(values) != 2:
        return f"returned {len(values)} values, wanted {' and '.join(names)}"
    for name, value, want in zip(names, values, wanted, strict=True):
        if not isinstance(value, Tensor) or value.dtype != want.dtype or value.shape != want.shape:
            is_now = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
            return f"{name} is {is_now}, wanted {want.dtype} {tuple(want.shape)}"
        dtype, scale = (
            "float32" if name in ("rstd", "dweight") else case.dtype,
            max(1.0, float(want.abs().max())),
        )
        if text := _close(value, want, dtype, name, scale):
            return text + _why(got, value)
    if got["raced"]:
        return (
            f"right here, where programs run one after another; {got['raced']} elements are stored by more than one program of a "
            "launch, and on a GPU chance decides which comes last: tl.atomic_add, or a part for each program"
        )
    for name, (first, now) in zip(names, got.get("earlier", ()), strict=False):
        if not isinstance(first, Tensor) or not torch.equal(first, now):
            return f"{name} of one call is changed by the next call"
    if text := _not_for_a_gpu(got):
        return text
    many = case.rows * case.columns
    loads, stores = (
        (4 * many + case.rows, 2 * many + case.columns) if backward else (2 * many, many + case.rows)
    )
    for what, moved, budget in (("loaded", got["loads"], loads), ("stored", got["stores"], stores)):
        if moved > budget:
            return f"{what} {moved:,} elements; wanted at most {budget:,}"
    return None


def check_rms_norm(*cases: Normed) -> None:
    verify = each(lambda report: _wrong_norm(report.case, report.value, False), told=True)
    check.function("rms_norm", cases, drive=_drive_norm, verify=verify, look=_NORM)


def check_rms_norm_backward(*cases: Normed) -> None:
    verify = each(lambda report: _wrong_norm(report.case, report.value, True), told=True)
    check.function("rms_norm_backward", cases, drive=_drive_norm_backward, verify=verify, look=_NORM)
