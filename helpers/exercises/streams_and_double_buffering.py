"""Tests of lesson 05: what a simulated GPU saw of prefetching loops, racy programs and pipelines."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from helpers import check, simulate
from helpers.check.sealed import sealed

#: a GPU that is warm: no costs of setting up
_WARM: dict[str, Any] = {"context_s": 0.0, "library_s": 0.0, "kernel_load_s": 0.0}
#: so slow that small tensors with true numbers take as long as large ones without
_SLOW: dict[str, Any] = {"flop_share": 2.5e-6, "bandwidth_share": 1e-4}
_MARGIN_S = 60e-6


def _gpu(card: str, **options: Any) -> Any:
    """A warm simulated GPU; "values" is a slow H100 on which tensors have numbers."""
    slow: dict[str, Any] = _SLOW if card == "values" else {}
    return simulate("H100" if card == "values" else card, **_WARM, **slow, **options)


# --- 5.1 prefetch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batches:
    """n batches, batch i of (rows + i, width) float32, and what their consumer does.

    item: it waits for the GPU in each step. own_stream: it works on a stream of its own.
    """

    card: str
    rows: int
    width: int
    n: int
    item: bool = False
    own_stream: bool = False
    pinned: bool = True

    def __str__(self) -> str:
        of = f"{self.card}, {self.n} {'pinned' if self.pinned else 'pageable'} batches of {self.rows} × {self.width}"
        return of + (", .item() in each step" if self.item else "")


def _consume(
    prefetch: Callable[..., Iterator[torch.Tensor]],
    card: str,
    rows: int,
    width: int,
    n: int,
    item: bool,
    own_stream: bool,
    pinned: bool,
) -> dict[str, Any]:
    """Use each batch in one product and drop it; say what came when, from where, and what it cost."""
    values = card == "values"
    gpu = _gpu(card, strict=False, values=values)
    taken, ahead, alive, shapes, given, sums = 0, 0, 0, [], [], []

    def batches() -> Iterator[torch.Tensor]:
        nonlocal taken
        for i in range(n):
            taken += 1
            batch = torch.empty(rows + i, width, pin_memory=pinned)  # told apart by their rows
            yield batch.fill_(i + 1.0) if values else batch

    with gpu:
        w = torch.ones(width, width, device=gpu.device)
        stream = gpu.Stream() if own_stream else gpu.current_stream()
        gpu.synchronize()
        first, start = len(gpu.kernels), gpu.clock_ns()
        with gpu.stream(stream):
            for x in prefetch(sealed(gpu), batches()):
                shapes.append([x.device == gpu.device, *x.shape])
                ahead = max(ahead, taken - len(shapes))
                given.append(weakref.ref(x.untyped_storage()))
                alive = max(alive, len({id(s) for one in given if (s := one()) is not None}))
                y = x @ w
                if values:
                    sums.append(y.sum())
                if item:
                    y[0, 0].item()
                del x, y
        gpu.synchronize()
        end = max([k.end_ns for k in gpu.kernels], default=start)
        return {
            "seconds": (end - start) / 1e9,
            "shapes": shapes,
            "sums": [float(one) for one in sums],
            "ahead": ahead,
            "alive": alive,
            "streams": sorted({k.stream for k in gpu.kernels[first:] if k.kind == "kernel"}),
            "sent": sum(k.bytes for k in gpu.kernels if k.kind == "copy h2d"),
            "faults": list(gpu.faults),
            "own": stream.stream_id,
        }


def _prefetched(reports: list[check.Report]) -> str | None:
    for report in reports:
        asked, got = report.case, report.value
        if text := _wrong_batches(asked, got) or (_too_slow(asked, got) if asked.pinned else None):
            return f"{asked}: {text}"
    return None


def _wrong_batches(asked: Batches, got: dict[str, Any]) -> str | None:
    rows = [asked.rows + i for i in range(asked.n)]
    if got["shapes"] != [[True, r, asked.width] for r in rows]:
        return f"wanted each batch once, in order, on gpu.device; got (on the device, rows, columns) {got['shapes'][:5]}"
    if got["faults"]:
        return str(got["faults"][0])
    if got["streams"] != [got["own"]]:
        return f"the consumer worked on stream {got['own']}, and its kernels ran on {got['streams']}: is your `with gpu.stream(...)` still open at the yield?"
    if got["sent"] != sum(4 * r * asked.width for r in rows):
        return f"{got['sent']:,} bytes were copied to the device; wanted each batch's, once"
    if got["ahead"] > 2:
        return f"{got['ahead']} batches were taken before they were needed; at most 2, or memory fills up"
    if got["alive"] > 2:
        return f"{got['alive']} of the yielded tensors were alive at once; the consumer uses one and drops it"
    if asked.card == "values" and got["sums"] != [
        float(r * asked.width**2 * (i + 1)) for i, r in enumerate(rows)
    ]:
        return f"the sums of x @ w were {got['sums']}: not each batch's own numbers"
    return None


def _too_slow(asked: Batches, got: dict[str, Any]) -> str | None:
    with (gpu := _gpu(asked.card)):
        x = torch.empty(asked.rows + asked.n, asked.width, pin_memory=True).to(gpu.device)
        y = x @ torch.empty(asked.width, asked.width, device=gpu.device)
        if asked.card == "values":
            y.sum()
    copy, *work = (k.duration_s for k in gpu.kernels)
    return _over_limit(
        got["seconds"], asked.n, copy, sum(work), "Which copies does each of your waits cover?"
    )


def _over_limit(seconds: float, n: int, copy: float, work: float, otherwise: str) -> str | None:
    """What is wrong with n steps that copy for `copy` seconds and compute for `work`, if they overlap too little."""
    limit = copy + n * (max(copy, work) + _MARGIN_S)
    if seconds <= limit:
        return None
    why = "That is the sum: nothing overlaps." if seconds > 0.95 * n * (copy + work) else otherwise
    return (
        f"took {seconds * 1e3:.2f} ms, wanted at most {limit * 1e3:.2f} ms "
        f"(C {copy * 1e3:.2f} ms, K {work * 1e3:.2f} ms). {why}"
    )


def check_prefetch(*cases: Batches) -> None:
    check.function(
        "prefetch",
        cases,
        drive=_consume,
        budget={},  # nothing out of the simulator's sight
        verify=_prefetched,
        look='too slow: the fifth loop of "Two queues"; a race: section 3',
    )
