"""Lesson 01: views and copies as tables, operators on a transposed tensor, numbers far apart, frames from pandas."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from helpers import count
from helpers.counters import Counts
from helpers.text.tables import Table, table

CPU = "live (CPU)"

# --- views and copies ---------------------------------------------------------------------------------------------


def layout(tensor: Tensor) -> str:
    """Stride and offset, as they are asked for: "(6, 1), offset 0"."""
    return f"{tensor.stride()}, offset {tensor.storage_offset()}"


def view_or_copy(counts: Counts) -> str:
    """Whether what was counted made new storage."""
    return "view" if counts.new_storages == 0 else "copy"


def lines(counted: Mapping[str, Counts], names: Mapping[str, Any]) -> Table:
    """Line → the bytes that it allocates, and what happens to it with `view` in place of `reshape`."""
    rows = [(code, c.bytes_allocated, _as_view(code, names)) for code, c in counted.items()]
    return table(rows, ["line", "new bytes", "view(…) in place of reshape(…)"], evidence=CPU)


def _as_view(code: str, names: Mapping[str, Any]) -> str:
    if "reshape" not in code:
        return "—"
    try:
        eval(code.replace("reshape", "view"), dict(names))
    except RuntimeError as error:
        return f"raises {type(error).__name__}"
    return "gives it"


def reads(counted: Mapping[str, Counts], names: Mapping[str, Any]) -> Table:
    """Index → what reading through it costs, and which operator writes through it."""
    rows = [(code, c.bytes_allocated, _writer(code, names)) for code, c in counted.items()]
    columns = ["index", "read: new bytes", "written by"]
    caption = "bytes include the index, where a list had to become a tensor first"
    return table(rows, columns, evidence=CPU, caption=caption)


def _writer(code: str, names: Mapping[str, Any]) -> str:
    """The operator that writes 0 through the index of `code`."""
    write = count(exec, f"{code} = 0.0", {**names, "x": torch.ones(4, 6)})
    return list(write.by_operator)[-1]


def changes(code: str, **names: Any) -> str:
    """Whether the line changes a fresh 4 × 6 matrix x."""
    x = torch.arange(24.0).reshape(4, 6)
    exec(code, {"x": x, **names})
    return "x stays" if torch.equal(x, torch.arange(24.0).reshape(4, 6)) else "x changes"


#: what makes new storage in `clip_in_four_copies`, and where it comes from
_CAME_FROM = {
    "aten.arange": "the list of frame numbers",
    "aten.index": "video[…], an advanced index",
    "aten._to_copy": ".float()",
    "aten.clone": ".contiguous()",
}


def allocations(run: Counts) -> Table:
    """What made new storage, and how much."""
    rows = [(operator, _CAME_FROM.get(operator, ""), size) for operator, size in run.allocations]
    caption = f"{run.copies} copies, {run.bytes_allocated:,} bytes; the result has {run.result.nbytes:,}"
    return table(rows, ["new storage made by", "which comes from", "bytes"], evidence=CPU, caption=caption)


# --- what stands under Further ------------------------------------------------------------------------------------


def slices(matrix: Tensor) -> Sequence[Tensor]:
    """All pieces matrix[a:b, c:d:step] of at least 2 rows and 2 columns, step 1 or 2; each layout once."""
    rows, columns = matrix.shape
    pieces = [
        matrix[a:b, c:d:step]
        for a, b in combinations(range(rows + 1), 2)
        for c, d in combinations(range(columns + 1), 2)
        for step in (1, 2)
    ]
    layouts = {(piece.shape, piece.stride(), piece.storage_offset()): piece for piece in pieces}
    return [piece for piece in layouts.values() if min(piece.shape) > 1]


def tried(*codes: str, **names: Any) -> Table:
    """Each line with what it gives, or what it raises in short."""
    rows = []
    for code in codes:
        try:
            rows.append((code, str(eval(code, dict(names)).tolist())))
        except RuntimeError as error:
            rows.append((code, "raises: … " + str(error).split(", and ")[-1]))
    return table(rows, ["line", "gives"], evidence=CPU)


def written(*codes: str) -> Table:
    """Each line, which writes into the same expanded tensor, with what the tensor is then, or what is raised."""
    stretched, rows = torch.zeros(3, 1).expand(3, 4), []
    for code in codes:
        try:
            exec(code, {"stretched": stretched})
            rows.append((code, f"goes through; now {stretched.tolist()}"))
        except RuntimeError as error:
            rows.append((code, "raises: " + str(error).split(": ")[1].split(".")[0]))
    return table(rows, ["line", "what happens"], evidence=CPU)


def kept_alive(counted: Mapping[str, Counts]) -> Table:
    """Line → the bytes of the result's elements, and those that the line keeps alive."""
    rows = [(code, tuple(c.result.shape), c.result.nbytes, c.live_bytes) for code, c in counted.items()]
    columns = ["returned", "shape", "bytes of its elements", "bytes kept alive"]
    return table(rows, columns, evidence=CPU)


#: what may become of an operator's result on a tensor that is not contiguous
KINDS = ("same", "same, extra copy", "raised", "other numbers")


def outcomes(families: Mapping[str, Mapping[str, str]]) -> Table:
    """Family of operators → operator → its outcome, one of `KINDS`, counted."""
    rows = [
        (family, len(of_family), *(list(of_family.values()).count(kind) for kind in KINDS))
        for family, of_family in families.items()
    ]
    return table(rows, ["operators", "tried", *KINDS], evidence=CPU)


def named(families: Mapping[str, Mapping[str, str]]) -> Table:
    """The operators of each outcome but the first, by name."""
    rows = [
        (kind, "  ".join(code for family in families.values() for code, k in family.items() if k == kind))
        for kind in KINDS[1:]
    ]
    return table(rows, ["outcome", "operators"], evidence=CPU)


def lines_touched(numbers: int, step: int) -> int:
    """64-byte lines of memory in which so many float32 numbers lie, `step` cells apart."""
    return numbers * min(step, 16) // 16


def format_of(code: str, **names: Any) -> str:
    """What a line gives: "view", "new, channels_last", "new, contiguous", or "raises"."""
    try:
        c = count(eval, code, dict(names))
    except RuntimeError:
        return "raises"
    if c.new_storages == 0:
        return "view"
    kept = c.result.dim() == 4 and c.result.is_contiguous(memory_format=torch.channels_last)
    return "new, channels_last" if kept else "new, contiguous"


def roads() -> Table:
    """Part of a frame → how its numbers came into torch by each of two roads."""
    rows = [(name, *came) for name, came in travelled().items()]
    columns = ["part of a frame", "torch.tensor(part)", "torch.from_numpy(part.to_numpy())"]
    return table(rows, columns, evidence=CPU)


def travelled() -> dict[str, tuple[str, str]]:
    """Part of a frame → how its numbers came into torch straight, and by way of NumPy."""
    return {
        name: (_came(part, torch.tensor), _came(part, lambda part: torch.from_numpy(part.to_numpy())))
        for name, part in _parts_of_frames().items()
    }


def _came(part: Any, make: Callable[[Any], Tensor]) -> str:
    """How the numbers of a part of a frame came into torch, or what was raised."""
    try:
        tensor = make(part)
    except Exception as error:
        return f"raises {type(error).__name__}"
    # to_numpy gives the frame's own memory, if it can: then a second call gives the same address again
    how = "shared" if tensor.data_ptr() == part.to_numpy().ctypes.data else "copied"
    return f"{how}: {str(tensor.dtype)[6:]}, stride {tensor.stride()}"


def _parts_of_frames() -> dict[str, Any]:
    """Columns and frames of pandas, by what is special about them."""
    import warnings

    import numpy as np
    import pandas as pd

    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    column = pd.Series(np.arange(5, dtype=np.float32))
    return {
        "float32 column": column,
        "the same after a filter": column[column > 1],
        "Int64 (nullable), full": pd.Series([1, 2, 3], dtype="Int64"),
        "Int64 (nullable), with a gap": pd.Series([1, None, 3], dtype="Int64"),
        "frame of two float32 columns": pd.DataFrame({"a": column, "b": column * 2}),
        "frame of float32 and int64": pd.DataFrame({"a": column, "k": np.arange(5)}),
        "text column": pd.Series(["a", "b"]),
        "date column": pd.Series(pd.date_range("2024-01-01", periods=5)),
    }
