"""Tests of lesson 01: cells and indices, contiguous or not, views of windows and blocks, one copy."""

import itertools
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from helpers import check, count
from helpers.check.compare import difference

#: inputs of one call → what it returns, or the class of the error that it raises
Wanted = Mapping[tuple[Any, ...], Any]
#: shape, stride
Layout = tuple[tuple[int, ...], tuple[int, ...]]
#: shape, stride, offset
View = tuple[tuple[int, ...], tuple[int, ...], int]

_INTEGERS_ONLY = {"operators": 0}
_NO_MEMORY = {"new_storages": 0, "bytes_allocated": 0}
_LAST_LINE = "the docstring, its last line"
_MOST_LINES = 10_000
#: sizes beyond are those that no search comes through
_HUGE = 10**20
#: cells of each random view that are asked for; most views end before
_CELLS = 60


# --- functions of integers: 1.3 and 1.4 ---------------------------------------------------------------------------


def _each(answer: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    return [answer(*inputs) for inputs in calls]


def _check_integers(name: str, wanted: Wanted, many: Wanted, look: str, note: str = "") -> None:
    """Call by call, and then all of `many` in one request: each call as wanted, with no operator, or refused."""

    def each_as_wanted(reports: list[check.Report]) -> str | None:
        for (inputs, want), got in zip(many.items(), reports[0].value, strict=True):
            if odd := difference(got, want, at=f"the result for {inputs}"):
                return odd
        return None

    if wanted:
        errors = [want if isinstance(want, type) else None for want in wanted.values()]
        cases = [check.case(*i, raises=error) for i, error in zip(wanted, errors, strict=True)]
        check.function(name, cases, [*wanted.values()], budget=_INTEGERS_ONLY, look=look, note=note)
    if many:
        calls = [check.case([*many])]
        check.function(name, calls, drive=_each, budget=_INTEGERS_ONLY, verify=each_as_wanted, look=look)


@cache
def random_views(seed: int, many: int) -> tuple[View, ...]:
    """Shape, stride and offset of views of contiguous tensors: sliced, permuted, expanded, selected."""
    r = random.Random(seed)
    views: list[View] = []
    while len(views) < many:
        t = torch.empty([r.randint(1, 4) for _ in range(r.randint(1, 4))])
        t = t[tuple(slice(r.randint(0, 1), None, r.randint(1, 2)) for _ in t.shape)]
        t = t.permute(r.sample(range(t.dim()), t.dim()))
        if r.random() < 0.3:
            t = t.unsqueeze(0).expand(r.randint(1, 3), *t.shape)
        if t.dim() > 1 and t.shape[0] and r.random() < 0.3:
            t = t[r.randrange(t.shape[0])]
        views.append((tuple(t.shape), t.stride(), int(t.storage_offset())))
    return tuple(views)


@cache
def _walk(view: View) -> list[tuple[tuple[int, ...], int]]:
    """Each index of the view with its cell, as torch walks: the last index fastest."""
    cells = torch.arange(400).as_strided(*view).reshape(-1).tolist()
    return list(zip(itertools.product(*map(range, view[0])), cells, strict=True))


def check_flat_index(wanted: Wanted = {}, views: Sequence[View] = ()) -> None:  # noqa: B006 - only read
    """wanted: (index, stride, offset) → cell. views: each of their elements is asked for, too."""
    many = {(index, view[1], view[2]): cell for view in views for index, cell in _walk(view)}
    _check_integers("flat_index", wanted, many, f"Round 1, the formula; for errors {_LAST_LINE}")


def _within_lines(answer: Callable[..., Any], *inputs: Any) -> Any:
    """The answer; TimeoutError once 10,000 lines of Python have run for it."""
    lines, tracer = 0, sys.gettrace()

    def watch(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += 1
        if lines > _MOST_LINES:
            raise TimeoutError(f"{_MOST_LINES:,} lines of Python ran without an answer")
        return watch

    sys.settrace(watch)
    try:
        return answer(*inputs)
    finally:
        sys.settrace(tracer)


def check_unflatten(wanted: Wanted = {}, views: Sequence[View] = ()) -> None:  # noqa: B006 - only read
    """wanted: (cell, shape, stride, offset) → index, or None. views: their first 60 cells are asked for, too."""
    many: dict[tuple[Any, ...], Any] = {}
    for view in views:
        many |= {(cell, *view): None for cell in range(_CELLS)}
        # several elements may share a cell: the first one, so it is written last
        many |= {(cell, *view): index for index, cell in reversed(_walk(view)) if cell < _CELLS}
    name, huge = "unflatten", {i: want for i, want in wanted.items() if max(i[1], default=0) > _HUGE}
    indices = {i: want for i, want in wanted.items() if i not in huge and want is not None}
    nothing = {i: None for i, want in wanted.items() if i not in huge and want is None}
    _check_integers(name, indices, many, "Round 1, the formula, read backwards")
    look = "Round 1, the figure: which cells does the walk leave out, and where does it end?"
    _check_integers(name, nothing, {}, look, note="no element of that tensor lies in that cell")
    if huge:
        cases = [check.case(*inputs) for inputs in huge]
        look = f"{_LAST_LINE}: compute the index, do not search for it"
        check.function(name, cases, [*huge.values()], drive=_within_lines, look=look)


@cache
def random_layouts(seed: int, many: int) -> tuple[Layout, ...]:
    """Contiguous shapes and strides, half of them changed in one place, sizes of 0 and 1 among them."""
    r = random.Random(seed)
    layouts = []
    for _ in range(many):
        small, dims = (0, 1, 1, 2, 2, 3, 4, 5), range(r.randint(0, 5))
        shape = [r.choice(small) if r.random() < 0.6 else r.randint(2, 6) for _ in dims]
        stride, step = [0] * len(shape), 1
        for d in reversed(range(len(shape))):
            stride[d], step = step, step * shape[d]
        change = r.random()
        if shape and change < 0.3:
            stride[r.randrange(len(shape))] = r.randint(0, 30)
        elif shape and change < 0.5:
            order = r.sample(range(len(shape)), len(shape))
            shape, stride = [shape[d] for d in order], [stride[d] for d in order]
        elif shape and change < 0.6:
            stride = [s * 2 for s in stride]
        elif shape and change < 0.7:
            stride = [r.randint(0, 50) if n == 1 else s for n, s in zip(shape, stride, strict=True)]
        layouts.append((tuple(shape), tuple(stride)))
    return tuple(layouts)


@cache
def _large_layouts(like: tuple[Layout, ...]) -> dict[Layout, bool]:
    """Layouts → whether contiguous, with sizes that no library can number, nor smaller ones stand for; a few for each seed's `like`."""
    r, layouts = random.Random(repr(like)), dict[Layout, bool]()
    for _ in range(60):
        shape = [r.choice((1, r.randint(2, 9), r.randint(10**9, 10**12))) for _ in range(r.randint(2, 5))]
        large = r.randrange(len(shape) - 1)
        shape[large : large + 2] = [r.randint(10**11, 10**12) for _ in range(2)]
        stride = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        if right := r.random() < 0.5:
            stride = [r.randint(0, 10**12) if n == 1 else s for n, s in zip(shape, stride, strict=True)]
        else:
            stride[large] += r.choice((-1, 1))
        layouts[tuple(shape), tuple(stride)] = right
    return layouts


@cache
def _torch_decides(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    return torch.empty_strided(shape, stride, device="meta").is_contiguous()


def check_is_contiguous(
    *layouts: Layout, wanted: Sequence[bool] | None = None, many: Sequence[Layout] = (), note: str = ""
) -> None:
    """layouts: asked for one by one, and `many` in one request. wanted: of the layouts, if torch cannot decide."""
    answers = [_torch_decides(*layout) for layout in layouts] if wanted is None else wanted
    one_by_one = dict(zip(layouts, answers, strict=True))
    in_bulk = {layout: _torch_decides(*layout) for layout in many} | (
        _large_layouts(tuple(many)) if many else {}
    )
    look = "When may neighbours merge? Its two exceptions, and when a tensor is contiguous"
    _check_integers("is_contiguous", one_by_one, in_bulk, look, note)


# --- 1.5 windows --------------------------------------------------------------------------------------------------


def _write_last(view_of: Callable[..., Tensor], x: Tensor, *sizes: int, **named: int) -> Tensor:
    """What x holds after a write into the last element of the view."""
    view = view_of(x, *sizes, **named)
    view[(-1,) * view.dim()] = -7
    return x


def _check_view(name: str, cases: Sequence[check.Case], expect: Callable[..., Tensor], look: str) -> None:
    """The same numbers in the input's own memory, so that what is written into the view arrives there."""

    def written(x: Tensor, *sizes: int, **named: int) -> Tensor:
        place = expect(torch.arange(x.numel()).view(x.shape), *sizes, **named).flatten()[-1]
        x[tuple(int(i) for i in torch.unravel_index(place, x.shape))] = -7
        return x.clone()  # an expanded row is written as one

    look = f"{look}; for errors {_LAST_LINE}"
    check.function(name, cases, expect, match=check.Match(view_of=0), budget=_NO_MEMORY, look=look)
    if good := [case for case in cases if case.raises is None]:
        known: dict[str, Any] = {"match": check.Match(unchanged=False), "budget": _NO_MEMORY}
        known["note"] = "a number written into the last element of the result must arrive in x: it is a view"
        check.function(name, good, written, drive=_write_last, **known)


def check_windows(*cases: check.Case) -> None:
    """Cases: x, size, step."""

    def stacked(x: Tensor, size: int, step: int = 1) -> Tensor:
        return torch.stack([x[i : i + size] for i in range(0, len(x) - size + 1, step)])

    _check_view("windows", cases, stacked, look="More elements than memory, as_strided: rows that overlap")


def check_diagonal_blocks(*cases: check.Case) -> None:
    """Cases: x, size."""

    def stacked(x: Tensor, size: int) -> Tensor:
        return torch.stack([x[i : i + size, i : i + size] for i in range(0, len(x), size)])

    look = "Round 1, the figure: what one step costs in each dimension"
    _check_view("diagonal_blocks", cases, stacked, look)


# --- 1.1 view_or_copy ---------------------------------------------------------------------------------------------


def check_answers(*lines: str) -> None:
    """The lines of the learner's table that are judged: each is run, and its storages are counted."""
    x = torch.arange(24.0).reshape(4, 6)
    wanted = {line: "copy" if count(eval, line, {"x": x}).new_storages else "view" for line in lines}
    check.value("answers", wanted, look="the rules of rounds 1, 2 and 3")


# --- 1.2 one_copy -------------------------------------------------------------------------------------------------


def film(*shape: int, seed: int = 0) -> Tensor:
    """A video of random numbers, uint8."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def _in_four_copies(video: Tensor, every: int, top: int, left: int, size: int) -> Tensor:
    frames = video[::every].float().permute(0, 3, 1, 2)
    return frames[:, :, top : top + size, left : left + size].contiguous()


def _one_copy(video: Tensor, every: int, top: int, left: int, size: int) -> dict[str, int]:
    needed = 4 * -(-len(video) // every) * video.shape[3] * size * size
    return {"copies": 1, "new_storages": 1, "bytes_allocated": needed, "peak_live_bytes": needed, "syncs": 0}


def _one_new_pass(reports: list[check.Report]) -> str | None:
    """A new storage, and one operator that goes over the numbers: who multiplies into a buffer of his own copies too."""
    if any(report.counts["new_storages"] == 0 for report in reports):
        return "values are right, but torch made no storage for them: whose memory is it?"
    for report in reports:
        operators = report.counts["by_operator"]
        if lists := [name for name in operators if "_foreach_" in name or "_fused_" in name]:
            return f"values are right, but {lists[0]} goes over each tensor of its lists, and is counted as one operator: write the result with one operator on a tensor"
        empty = sum(n for name, n in operators.items() if "empty" in name)
        if (passes := report.counts["operators"] - report.counts["views"] - empty) > 1:
            by = ", ".join(f"{name} ×{n}" for name, n in operators.items())
            return f"values are right, but {passes} operators went over the numbers; wanted 1.\n  operators: {by}"
    return None


def _device_of_result(clip: Callable[..., Tensor], *inputs: Any) -> str:
    """Where the result lies, or what stood in the way."""
    try:
        return clip(*inputs).device.type
    except (RuntimeError, TypeError) as error:
        if type(error) is NotImplementedError and not error.args:
            raise  # it is not begun
        return f"nowhere: {error}"


def check_clip(*cases: check.Case) -> None:
    """Cases: video, every, top, left, size. Of a video on "meta" only the result's device is looked at."""
    good = [case for case in cases if case.raises is None]
    on_meta = [case for case in good if case.args[0].is_meta]
    if on_cpu := [case for case in good if not case.args[0].is_meta]:
        look = "the table above: which operators copy; hint 2: what becomes of strides"
        known: dict[str, Any] = {"match": check.Match(contiguous=True), "verify": _one_new_pass, "look": look}
        check.function("clip", on_cpu, _in_four_copies, budget=_one_copy, **known)
    if on_meta:
        want, look = ["meta"] * len(on_meta), "the docstring: on video's device"
        note = (
            'this video is on another device than the CPU ("meta": torch\'s device with shapes and without numbers); '
            "torch.empty and its like make a tensor on the CPU, unless they are told device=video.device"
        )
        check.function("clip", on_meta, want, drive=_device_of_result, look=look, note=note)
    if refused := [case for case in cases if case.raises is not None]:
        check.function("clip", refused, look=_LAST_LINE, note="this crop does not fit into a frame")
