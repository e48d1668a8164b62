"""Tests of lesson 05: what a simulated GPU saw of prefetching loops, racy programs and pipelines."""

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from helpers import check, simulate
from helpers.check.judges import each
from helpers.check.results import plain
from helpers.check.sealed import sealed
from helpers.simulator.sources import Sources

#: a GPU that is warm: no costs of setting up
_WARM: dict[str, Any] = {"context_s": 0.0, "library_s": 0.0, "kernel_load_s": 0.0}
#: so slow that small tensors with true numbers take as long as large ones without
_SLOW: dict[str, Any] = {"flop_share": 2.5e-6, "bandwidth_share": 1e-4}
_MARGIN_S = 60e-6


def _gpu(card: str, **options: Any) -> Any:
    """A warm simulated GPU that keeps faults for the judge; "values" is a slow H100, on which tensors have numbers."""
    if card == "values":
        return simulate("H100", strict=False, **_WARM, **_SLOW, **{"values": True} | options)
    return simulate(card, strict=False, **_WARM)


def _sent(gpu: Any, kind: str, first: int = 0) -> int:
    """Bytes of the copies of a kind ("copy h2d"), from this kernel on, whether they have arrived or not."""
    return sum(k.bytes for k in gpu.kernels[first:] if k.kind == kind)


def _arrived(gpu: Any, kind: str) -> int:
    """Bytes of the copies of a kind that are over by now, on the host's clock."""
    return sum(k.bytes for k in gpu.kernels if k.kind == kind and k.end_ns <= gpu.clock_ns())


@cache
def _seconds(
    card: str, page: tuple[int, int], widths: tuple[int, ...], summed: bool = False
) -> tuple[float, float, float]:
    """Of a page's copy, of its products with matrices so wide (and a sum of the last), and of the copy back."""
    with (gpu := _gpu(card, values=False)):
        x = torch.empty(page, pin_memory=True).to(gpu.device)
        for width in widths:
            x = x @ torch.empty(x.shape[1], width, device=gpu.device)
        if summed:
            x.sum()
        torch.empty(x.shape, pin_memory=True).copy_(x, non_blocking=True)
    copy, *work, back = (k.duration_s for k in gpu.kernels)
    return copy, sum(work), back


def _check(
    name: str, cases: tuple[Any, ...], drive: Any, look: str, *wrongs: Callable[..., str | None]
) -> None:
    """Each of `wrongs` judges a case and what its drive told; a fault that the GPU saw comes before that.

    Small cases with numbers go first: an answer that works on the host fails there, before it multiplies large matrices.
    """

    def judged(wrong: Callable[..., str | None], report: check.Report) -> str | None:
        faults = report.value["faults"]
        return str(faults[0]) if faults else wrong(report.case, report.value)

    verify = each(*(partial(judged, wrong) for wrong in wrongs), told=True)
    for small in (True, False):
        if some := [case for case in cases if (case.card == "values") is small]:
            once = "" if small else "no numbers, only times, and it takes seconds"
            check.function(name, some, drive=drive, verify=verify, look=look, once=once)


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


# --- 5.1 prefetch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batches:
    """n batches, batch i of (rows + i, width), and what their consumer does.

    dtype: float32, or what the consumer has to convert first. rows: or the rows of each, and n is their number. item: it waits for the GPU in each step. own_stream: it works on
    a stream of its own. quick: time counts, and memory; else only that batches are right, on two streams in turn.
    """

    card: str
    rows: int | tuple[int, ...]
    width: int
    n: int = 0
    item: bool = False
    own_stream: bool = False
    pinned: bool = True
    quick: bool = True
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        of = f"{self.card}, {len(self.sizes())} {'pinned' if self.pinned else 'pageable'} batches of {self.rows} × {self.width}"
        return of + (", .item() in each step" if self.item else "")

    def sizes(self) -> list[int]:
        """Rows of each batch."""
        return [self.rows + i for i in range(self.n)] if isinstance(self.rows, int) else list(self.rows)


def _consume(prefetch: Callable[..., Iterator[Tensor]], **fields: Any) -> dict[str, Any]:
    """Use each batch in one product and drop it; say what came when, from where, and what it cost."""
    case = Batches(**fields)
    gpu, values = _gpu(case.card), case.card == "values"
    taken, ahead, alive, shapes, given, sums = 0, 0, 0, [], [], []

    def batches() -> Iterator[Tensor]:
        nonlocal taken
        for i, rows in enumerate(case.sizes()):
            taken += 1
            # told apart by their rows
            batch = torch.empty(rows, case.width, dtype=case.dtype, pin_memory=case.pinned)
            yield batch.fill_(i + 1.0) if values else batch

    with gpu:
        w = torch.ones(case.width, case.width, device=gpu.device)
        stream = gpu.Stream() if case.own_stream else gpu.current_stream()
        gpu.synchronize()
        first, start, streams = len(gpu.kernels), gpu.clock_ns(), [stream, gpu.Stream()]
        with gpu.stream(stream):
            given_out = iter(prefetch(sealed(gpu), batches()))
            for step in range(len(case.sizes()) + 1):
                with gpu.stream(gpu.current_stream() if case.quick else streams[step % 2]):
                    if (x := plain(next(given_out, None))) is None:
                        break
                    shapes.append([x.device == gpu.device and x.dtype == case.dtype, *x.shape])
                    ahead = max(ahead, taken - len(shapes))
                    given.append(weakref.ref(x.untyped_storage()))
                    alive = max(alive, len({id(s) for ref in given if (s := ref()) is not None}))
                    y = x.float() @ w
                    if values:
                        sums.append(y.sum())
                    if case.item:
                        y[0, 0].item()
                    del x, y
        gpu.synchronize()
        end = max([k.end_ns for k in gpu.kernels], default=start)
        return {
            "seconds": (end - start) / 1e9,
            "shapes": shapes,
            "ahead": ahead,
            "alive": alive,
            "streams": sorted({k.stream for k in gpu.kernels[first:] if k.kind == "kernel"}),
            "sent": _sent(gpu, "copy h2d", first),
            "faults": list(gpu.faults),
            "own": stream.stream_id,
            "sums": [float(total) for total in sums],
        }


def _wrong_batches(asked: Batches, got: dict[str, Any]) -> str | None:
    sizes = asked.sizes()
    if got["shapes"] != [[True, r, asked.width] for r in sizes]:
        what = "(on the device and in its dtype, rows, columns)"
        return f"wanted each batch once, in order, on gpu.device; got {what} {got['shapes'][:5]}"
    sums = [float(r * asked.width**2 * (i + 1)) for i, r in enumerate(sizes)]
    if asked.card == "values" and got["sums"] != sums:
        return f"the sums of x @ w were {got['sums']}: not each batch's own numbers"
    return None


def _slow_batches(asked: Batches, got: dict[str, Any]) -> str | None:
    if not asked.quick:
        return None
    if got["streams"] != [got["own"]]:
        return f"the consumer worked on stream {got['own']}, and its kernels ran on {got['streams']}: is your `with gpu.stream(...)` still open at the yield?"
    if got["sent"] != sum(4 * r * asked.width for r in asked.sizes()):
        return f"{got['sent']:,} bytes were copied to the device; wanted each batch's, once"
    if got["ahead"] > 2:
        return f"{got['ahead']} batches were taken before they were needed; at most 2, or memory fills up"
    if got["alive"] > 2:
        return f"{got['alive']} of the yielded tensors were alive at once; the consumer uses one and drops it"
    largest = asked.sizes()[-1] + 1, asked.width
    copy, work, _ = _seconds(asked.card, largest, (asked.width,), summed=asked.card == "values")
    return _over_limit(got["seconds"], asked.n, copy, work, "Which copies does each of your waits cover?")


def check_prefetch(*cases: Batches) -> None:
    look = 'too slow: the last loop of "Two queues"; a race: section 3'
    _check("prefetch", cases, _consume, look, _wrong_batches, _slow_batches)


# --- 5.2 ring, 5.3 squares, norms ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squares:
    """n float32 tensors of d × d, the i-th full of i + 1 where there are numbers."""

    card: str
    d: int
    n: int

    def __str__(self) -> str:
        return f"{self.n} tensors of {self.d} × {self.d}"

    def sums(self) -> list[float]:
        """Of all elements of x @ x, for each."""
        return [float(self.d**3 * (i + 1) ** 2) for i in range(self.n)]


def _sum_pages(answer: Callable[..., Tensor], card: str, d: int, n: int) -> dict[str, Any]:
    """One call on pinned pages, while the GPU still writes memory that was dropped: time, memory, work and result.

    At once a second call follows, of which only the faults are looked at.
    """
    gpu, values = _gpu(card), card == "values"
    with gpu:
        pages = [torch.empty(d, d, pin_memory=True) for _ in range(n)]
        if values:
            pages = [page.fill_(i + 1.0) for i, page in enumerate(pages)]
        (torch.ones(8, 8, device=gpu.device) @ torch.ones(8, 8, device=gpu.device)).sum()
        gpu.synchronize()
        gone = [torch.zeros(d, d, device=gpu.device) for _ in range(2)]
        held, first, start = gpu.memory_reserved(), len(gpu.kernels), gpu.clock_ns()
        del gone  # dropped while the GPU still writes it
        with Sources(dict(enumerate(pages))) as sources:
            out = plain(answer(shown := sealed(gpu), pages))
        arrived, products = sources.of(out), [of for of in sources.products if of.name == "aten.mm"]
        ran = gpu.kernels[first:]
        got = {
            "seconds": (max([k.end_ns for k in ran], default=start) - start) / 1e9,
            "grown": gpu.max_memory_reserved() - held,
            "sent": sum(k.bytes for k in ran if k.kind == "copy h2d"),
            "products": sum(k.name == "aten.mm" for k in ran),
            "of pages": [sorted(product.of & {*range(n)}) for product in products],
            "lost": [i for i, product in enumerate(products) if product not in arrived],
        }
        answer(shown, pages)  # the first call's products may still run
        gpu.synchronize()
        result = [out.device == gpu.device, *(out.tolist() if values else out.shape)]
        return got | {"faults": list(gpu.faults), "result": result}


def _wrong_sums(asked: Squares, got: dict[str, Any], most_pages: float = math.inf) -> str | None:
    if got["result"] != [True, *(asked.sums() if asked.card == "values" else [asked.n])]:
        return f"wanted the sum of x @ x for each, in order, on gpu.device; got {got['result']}"
    if (got["sent"], got["products"]) != (4 * asked.d**2 * asked.n, asked.n):
        return f"{got['sent']:,} bytes copied to the device and {got['products']} products x @ x computed there; wanted each page copied and each product computed, once"
    if sorted(got["of pages"]) != [[i] for i in range(asked.n)]:
        return f"the products were of these pages: {got['of pages']}; wanted each of its own page. What is in the buffer when it is multiplied?"
    if got["lost"]:
        return f"of the products {got['lost']} nothing arrives in the result"
    page = 4 * asked.d**2
    if asked.card != "values" and got["grown"] > most_pages * page + 2**22:
        return f"reserved memory grew by {got['grown'] / page:.1f} pages; wanted at most {most_pages}"
    copy, work, _ = _seconds(asked.card, (asked.d, asked.d), (asked.d,), summed=True)
    late = _over_limit(got["seconds"], asked.n, copy, work, "Something waits for more than it needs.")
    return late and f"no race, but it {late}"


def check_squares(*cases: Squares) -> None:
    _check("squares", cases, _sum_pages, "every use of x, and who gets its memory next", _wrong_sums)


def check_ring(*cases: Squares) -> None:
    look = "what comes before the copy into a buffer: the last use of the same one"
    _check("ring", cases, _sum_pages, look, partial(_wrong_sums, most_pages=5))


def _sum_chunks(norms: Callable[..., list[float]], card: str, d: int, n: int) -> dict[str, Any]:
    """One call on chunks on the GPU: how often the host waited, and what had arrived when it returned."""
    gpu = _gpu(card)
    with gpu:
        chunks = [torch.full((d, d), i + 1.0, device=gpu.device) for i in range(n)]
        gpu.synchronize()
        waits = gpu.syncs
        return {
            "numbers": list(norms(sealed(gpu), chunks)),
            "waits": gpu.syncs - waits,
            "products": sum(k.name == "aten.mm" for k in gpu.kernels),
            "arrived": _arrived(gpu, "copy d2h"),
            "faults": list(gpu.faults),
            "kept": card != "values" or all(bool((x == i + 1.0).all()) for i, x in enumerate(chunks)),
        }


def _wrong_norms(asked: Squares, got: dict[str, Any]) -> str | None:
    n, values = asked.n, asked.card == "values"
    if not got["kept"]:
        return "a chunk has other numbers than before: chunks are the caller's, and stay as they are"
    if kinds := {type(v).__name__ for v in got["numbers"]} - {"float"}:
        return f"wanted Python numbers (float), got {', '.join(kinds)}"
    if len(got["numbers"]) != n or values and got["numbers"] != asked.sums():
        return f"wanted {asked.sums() if values else n}, got {got['numbers']}"
    if got["waits"] > 2:
        return f"the host waited for the GPU {got['waits']} times; wanted at most 2"
    if (got["products"], got["arrived"]) != (n, 4 * n):
        return f"{got['products']} products, {got['arrived']} bytes at the host when it returned; wanted {n} and {4 * n}"
    return None


def check_norms(*cases: Squares) -> None:
    _check("norms", cases, _sum_chunks, "the host is in no queue", _wrong_norms)


# --- 5.4 pipeline -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stages:
    """n batches: pages and results of these shapes, so many products between, and the host's seconds for each.

    own_stream: the caller works on a stream of its own.
    """

    card: str
    page: tuple[int, int]
    result: tuple[int, int]
    products: int
    decode_s: float
    save_s: float
    n: int
    own_stream: bool = False

    def __str__(self) -> str:
        return f"{self.n} batches, page {list(self.page)}, result {list(self.result)}"


def _run_stages(pipeline: Callable[..., None], **fields: Any) -> dict[str, Any]:
    """One call, while the GPU still writes memory that was dropped: what was decoded, computed and saved, and when."""
    case = Stages(**fields)
    gpu, values = _gpu(case.card), case.card == "values"
    decoded, computed, saved, numbers, early = [], [], [], [], []
    with gpu:
        pages = [torch.empty(case.page, pin_memory=True) for _ in range(2)]
        results = [torch.empty(case.result, pin_memory=True) for _ in range(2)]
        inner = case.result[1]
        first = torch.ones(case.page[1], inner, device=gpu.device)
        more = torch.ones(inner, inner, device=gpu.device)
        outside = gpu.Stream() if case.own_stream else gpu.current_stream()

        def decode(i: int, where: Tensor) -> None:
            if _arrived(gpu, "copy h2d") < (i - 1) * pages[0].nbytes:
                early.append(f"decode({i})")
            if not any(where is p for p in pages):
                raise ValueError("decode was given something else than one of the two pages")
            decoded.append(i)
            gpu.host_work(case.decode_s)
            (where if values else where[-1]).fill_(i + 1.0)

        def compute(x: Tensor) -> Tensor:
            computed.append([*x.shape, x.device == gpu.device, gpu.current_stream() == outside])
            x = x @ first
            for _ in range(case.products - 1):
                x = x @ more
            return x

        def save(i: int, where: Tensor) -> None:
            if _arrived(gpu, "copy d2h") < (i + 1) * results[0].nbytes:
                early.append(f"save({i})")
            if not any(where is p for p in results):
                raise ValueError("save was given something else than one of the two results")
            saved.append(i)
            page = where if values else where[-1]
            numbers.append([float(page.min()), float(page.max())])
            gpu.host_work(case.save_s)

        gpu.synchronize()
        shapes = (case.page, case.page, case.result, case.result)
        gone = [torch.zeros(shape, device=gpu.device) for shape in shapes]
        start = gpu.clock_ns()
        del gone  # dropped while the GPU still writes it
        with gpu.stream(outside):
            pipeline(sealed(gpu), pages, results, decode, compute, save, case.n)
        end = max([gpu.clock_ns(), *(k.end_ns for k in gpu.kernels)])
        return {
            "seconds": (end - start) / 1e9,
            "faults": list(gpu.faults),
            "decoded": decoded,
            "saved": saved,
            "copies": [_sent(gpu, "copy h2d"), _sent(gpu, "copy d2h")],
            "computed": computed,
            "early": early,
            "numbers": numbers if values else None,  # else the memory is as it was found
        }


def _wrong_stages(asked: Stages, got: dict[str, Any]) -> str | None:
    n, page, result = asked.n, asked.page, asked.result
    if got["early"]:
        return f"at {got['early'][0]} the copies to or from its page were not over"
    for name in ("decoded", "saved"):
        if got[name] != list(range(n)):
            return f"{name} {got[name]}; wanted 0 to {n - 1}, each once, in order"
    if got["computed"] != [[*page, True, True]] * n:
        return f"compute was called with (shape, on the device, in the caller's stream) {got['computed'][:3]}"
    each = page[1] * result[1] ** (asked.products - 1)
    if asked.card == "values" and got["numbers"] != [[float((i + 1) * each)] * 2 for i in range(n)]:
        return f"save found {got['numbers']} (least, largest) in its pages: not each batch's own result"
    whole = [4 * n * shape[0] * shape[1] for shape in (page, result)]
    if got["copies"] != whole:
        return f"{got['copies'][0]:,} bytes copied in and {got['copies'][1]:,} out; wanted {whole[0]:,} and {whole[1]:,}: each page and each result, once"
    copy, work, back = _seconds(asked.card, page, (result[1],) * asked.products)
    parts = {"D + S": asked.decode_s + asked.save_s, "C": copy, "K": work, "B": back}
    limit = n * (max(parts.values()) + 100e-6) + 2 * sum(parts.values())
    if got["seconds"] <= limit:
        return None
    known = ", ".join(f"{name} {s * 1e3:.2f}" for name, s in parts.items())
    why = "Which stages never run beside each other? Who waits for whom?"
    if got["seconds"] > 0.9 * n * sum(parts.values()):
        why = "That is the sum: nothing overlaps."
    return f"took {got['seconds'] * 1e3:.2f} ms, wanted at most {limit * 1e3:.2f} ms (in ms: {known}). {why}"


def check_pipeline(*cases: Stages) -> None:
    look = "before the host touches a page, which event must have passed? An event for each page; and never wait for "
    look += "the batch that was launched last"
    _check("pipeline", cases, _run_stages, look, _wrong_stages)
