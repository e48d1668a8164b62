"""Claims on trial in lesson 01, with the experiments behind them."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from helpers import count
from helpers.lesson.claim import Claim
from helpers.lessons.storage_and_stride import experiments

#: operators of everyday work, picked by hand: family → lines in x
OPERATORS = {
    "elementwise": "x + 1 | x * x | x.exp() | x.float() | F.gelu(x) | torch.where(x > 0.5, x, -x)",
    "reductions": "x.sum(0) | x.mean(1) | x.std(0) | x.amax(1) | x.argmax(0) | x.logsumexp(1) | x.cumsum(0)",
    "order": "x.sort(1).values | x.topk(3).values | x.unique() | x.quantile(0.5)",
    "matrices": "x @ w | x.t() @ x | F.linear(x, w.t()) | torch.linalg.qr(x).R | torch.cdist(x, x + 1)",
    "sequences": "F.softmax(x, 1) | F.layer_norm(x, (48,)) | F.cross_entropy(x, y) | F.embedding(y, x)",
    "images": "F.group_norm(x, 4) | F.conv1d(x[None], conv) | F.max_pool1d(x[None], 2) | F.pad(x, (1, 1))",
    "moving": "x.clone() | x.flip(0) | x.roll(1, 0) | torch.cat([x, x]) | x.gather(1, y[:, None]) | x[x > 0.5]",
    "shape": "x.reshape(-1) | x.flatten() | x.unflatten(1, (6, 8)) | x.unfold(0, 4, 4)",
    "shape only": "x.view(-1) | x.view(torch.complex128) | x.as_strided((6,), (1,))",
}

_FURTHER = "Further · Is a non-contiguous tensor dangerous, or slow?"


def run(code: str, x: Tensor) -> tuple[Tensor, int]:
    """The result of a line in x, and the copies made; the profiler also sees those inside an operator, `count` does not."""
    g = torch.Generator().manual_seed(0)
    names = {"torch": torch, "F": F, "y": torch.randint(0, 48, (64,), generator=g), "x": x}
    names |= {
        "w": torch.rand(48, 16, generator=g).double(),
        "conv": torch.rand(2, 64, 3, generator=g).double(),
    }
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        result = eval(code, names)
    return result, sum(event.name == "aten::copy_" for event in seen.events())


@cache
def stored() -> Tensor:
    """(48, 64), float64; the experiments walk its transpose."""
    return torch.rand(48, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def outcome(code: str) -> str:
    """What becomes of a line on `x.t()`, beside the same on a contiguous copy."""
    want, copies = run(code, stored().t().contiguous())
    try:
        got, more = run(code, stored().t())
    except RuntimeError:
        return "raised"
    if got.shape != want.shape or not torch.allclose(got, want):
        return "other numbers"
    return "same, extra copy" if more > copies else "same"


@cache
def outcomes() -> dict[str, dict[str, str]]:
    """Family → line → its outcome on a tensor that is not contiguous."""
    return {family: {code: outcome(code) for code in line.split(" | ")} for family, line in OPERATORS.items()}


def softmax_copies() -> tuple[int, int]:
    """Copies of ten softmaxes over a transposed tensor: as it is, and after one `contiguous()`."""
    _, each_time = run("[F.softmax(x, 1) for _ in range(10)]", stored().t())
    _, before = run("(c := x.contiguous(), [F.softmax(y, 1) for y in [c] * 10])", stored().t())
    return each_time, before


def on_trial() -> list[Claim]:
    """Every claim of the lesson."""
    return [
        two_levels(),
        noncontiguous_raises(),
        noncontiguous_wrong(),
        noncontiguous_slow(),
        advanced_index(),
        pandas_numpy(),
    ]


def _listed(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _of(kind: str) -> tuple[list[str], int]:
    """The lines of an outcome, and how many were tried in all."""
    kinds = {code: k for family in outcomes().values() for code, k in family.items()}
    return [code for code, k in kinds.items() if k == kind], len(kinds)


def two_levels() -> Claim:
    """A write through one of five tensors over one storage."""
    lines = ("y.t()", "y[:, 1]", "y[1:, ::2]", "y[2].view(2, 3)")
    y = torch.arange(24.0).reshape(4, 6)
    views = count(lambda: [eval(line, {"y": y}) for line in lines])
    tensors = [y, *views.result]
    before = [t.clone() for t in tensors]
    y[:, 1].mul_(-1)
    showed = sum(not torch.equal(t, old) for t, old in zip(tensors, before, strict=True))
    storages = len({t.untyped_storage().data_ptr() for t in tensors})
    measured = (
        f"counted: {len(tensors)} tensors over {storages} storage, {views.bytes_allocated} bytes allocated; a write "
        f"through one of them showed in {showed}"
    )
    verdict = "confirmed" if storages == 1 and views.bytes_allocated == 0 else "refuted"
    claim = "tensor and storage are two levels: a tensor reads its storage by shape, stride and offset"
    return Claim("01-two-levels", "book-notes", claim, measured, verdict, "Round 1")


def noncontiguous_raises() -> Claim:
    raised, tried = _of("raised")
    only_view = (
        ", from `view` in all its forms, which may not copy"
        if all(".view(" in code for code in raised)
        else ""
    )
    same = len(_of("same")[0]) + len(_of("same, extra copy")[0])
    measured = f"{len(raised)} of {tried} hand-picked operators raised: {_listed(raised)}; {same} gave the same numbers as on contiguous storage"
    verdict = (
        "refuted"
        if not raised
        else "confirmed"
        if len(raised) > tried / 4
        else f"partly: an error may come{only_view}; few of the operators tried raise one"
    )
    claim = "many algorithms take contiguous storage for granted; a non-contiguous tensor may raise an error"
    return Claim("01-noncontiguous-raises", "book-notes", claim, measured, verdict, _FURTHER)


def noncontiguous_wrong() -> Claim:
    other, tried = _of("other numbers")
    measured = f"{len(other)} of {tried} hand-picked operators gave other numbers: {_listed(other)}"
    only_raw = other and all("as_strided" in code for code in other)
    verdict = (
        "refuted"
        if not other
        else "confirmed: but only by code that goes by the storage and ignores the tensor's strides"
        if only_raw
        else "confirmed"
    )
    claim = "a non-contiguous tensor may even give wrong results"
    return Claim("01-noncontiguous-wrong", "book-notes", claim, measured, verdict, _FURTHER)


def noncontiguous_slow() -> Claim:
    extra, tried = _of("same, extra copy")
    times = experiments.lines_touched(2**19, 16) // experiments.lines_touched(2**19, 1)
    measured = (
        f"counted: {len(extra)} of {tried} hand-picked operators made an extra copy; arithmetic: numbers 16 cells apart "
        f"touch {times} times the memory lines"
    )
    confirmed = "confirmed: where the kernel wants rows and copies, or the numbers lie far apart"
    verdict = confirmed if extra else "refuted"
    claim = "a non-contiguous tensor may be read in a bad order and lower performance"
    return Claim("01-noncontiguous-slow", "book-notes", claim, measured, verdict, _FURTHER)


def advanced_index() -> Claim:
    """Eight kinds of index that are more than integers and slices."""
    kinds = ("x[[0, 2]]", "x[pick]", "x[mask]", "x[0:3:2, [1]]", "x[one]", "x[byte]", "x[yes]", "x[True]")
    names = {
        "x": torch.arange(24.0).reshape(4, 6),
        "pick": torch.tensor([0, 2]),
        "one": torch.tensor(1),
        "byte": torch.tensor(1, dtype=torch.uint8),
        "mask": torch.tensor([True, False, True, False]),
        "yes": torch.tensor(True),
    }
    shares = [code for code in kinds if not count(eval, code, names).new_storages]
    measured = f"{len(kinds) - len(shares)} of {len(kinds)} kinds of index did; not: {_listed(shares)}"
    number = "confirmed; an integer tensor without dimensions (not uint8) is read as a number: basic indexing, and a view"
    claim = "reading through advanced indexing makes new storage, as with boolean or integer tensors"
    verdict = number if shares == ["x[one]"] else "partly: not with all of them" if shares else "confirmed"
    return Claim("01-advanced-index", "book-notes", claim, measured, verdict, "Round 3")


def pandas_numpy() -> Claim:
    """Eight parts of frames, straight into torch and by way of NumPy."""
    travelled = experiments.travelled()
    raised = {name: by_numpy for name, (direct, by_numpy) in travelled.items() if "raises" in direct}
    rescued = [name for name, by_numpy in raised.items() if "raises" not in by_numpy]
    lost = [name for name, by_numpy in raised.items() if "raises" in by_numpy]
    shared = [name for name, (_, by_numpy) in travelled.items() if by_numpy.startswith("shared")]
    measured = (
        f"of {len(travelled)} parts of frames, {len(rescued)} raised without NumPy and came in with it; {len(shared)} "
        f"shared memory; {len(lost)} raised on both roads ({', '.join(lost)})"
    )
    partly = "partly: holds when the part holds numbers; text and dates raise either way"
    claim = "pandas objects should be converted to a NumPy array first"
    verdict = partly if rescued and lost else "confirmed"
    return Claim("01-pandas-numpy", "book-notes", claim, measured, verdict, "Further · From pandas")
