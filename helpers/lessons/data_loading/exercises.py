"""Tests of lesson 04: what a data set reads, what a batch allocates, who gets which sample."""

import copy
import functools
import io
import math
import pickle
import random
import sys
import tempfile
import traceback
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils.data import DataLoader

from helpers import check
from helpers.check.compare import difference
from helpers.check.judges import each
from helpers.check.results import plain
from helpers.pytorch import private_torch

Tensors = list[torch.Tensor]
#: lengths of documents, and a number
Files = Sequence[tuple[Sequence[int], int]]
#: real workers, which are forked: only then do they know a notebook's class
_WORKERS: dict[str, Any] = {"timeout": 60, "multiprocessing_context": "fork"}
_CAN_FORK = sys.platform == "linux"


def _all_from(loader: Any) -> list[Any]:
    """Its samples. Where it fails, its workers end now: what the exception holds of it, only the garbage collector would
    find, which ends the queues first, so that torch waits five seconds for each worker in vain."""
    try:
        return [sample for batch in loader for sample in batch]
    except Exception as odd:
        traceback.clear_frames(odd.__traceback__)
        raise


# --- 4.3 Documents ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """A packed file of documents of these lengths, and calls: i stands for d[i], a list for d.__getitems__(list).

    more: so many tokens more has the first document, which no array holds and no call asks for.
    """

    lengths: Sequence[int]
    calls: Sequence[int | list[int]]
    more: int = 0


def _packed_file(lengths: Sequence[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, where each document ends)."""
    ends = np.cumsum(np.array(lengths, np.int64))
    return np.random.default_rng(seed).integers(0, 60_000, sum(lengths)).astype(np.uint16), ends


class _Map:
    """A packed file as a map, which counts how often it is opened and what is read of it."""

    def __init__(self, tokens: np.ndarray, before: int = 0) -> None:
        """before: so many tokens stand before these."""
        self.dtype, self.shape, self._before = tokens.dtype, (before + len(tokens),), before
        self._tokens, self._pages = tokens, list[np.ndarray]()
        self._opened = self._reads = self._bytes = 0

    def _open(self) -> "_Map":
        self._opened += 1
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> np.ndarray:
        if isinstance(which, slice):  # a file's first part may be a part that no array holds
            start, stop, step = which.indices(len(self))
            which = slice(max(0, start - self._before), max(0, stop - self._before), step)
        elif self._before:
            which = np.asarray(which) - self._before
        page = self._tokens[which].copy()
        self._pages.append(page)
        self._reads += page.nbytes > 0
        self._bytes += page.nbytes
        return page[:]  # a view, as of a real map

    def _forget(self) -> None:
        """What still lies in the map is lost."""
        for page in self._pages:
            page[:] = 0


def _pickled(dataset: Any, **apart: Any) -> tuple[int, Callable[[], Any]]:
    """(bytes of the pickle, what loads it again); what is `apart`, its class and its recipe, goes in by name only."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> str | None:
            return next((name for name, kept in apart.items() if thing is kept), None)

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: str) -> Any:
            return apart[name]

    file = io.BytesIO()
    Pickler(file).dump(dataset)
    return file.tell(), lambda: Unpickler(io.BytesIO(file.getvalue())).load()


def _use(Documents: Any, **fields: Any) -> list[dict[str, Any]]:
    """What each call returns and reads: as made, after it was pickled, and what came out of the pickle."""
    asked = Packed(**fields)
    tokens, ends = _packed_file(asked.lengths)
    file, ends, calls = _Map(tokens, asked.more), ends + asked.more, []
    recipe = file._open
    dataset = Documents(recipe, ends)
    sent, load = _pickled(dataset, recipe=recipe, kind=Documents)  # also before its first use
    opened, reads = file._opened, 0
    for stage in range(3):
        at_first = {"early": file._reads > reads, "len": len(dataset), "sent": sent}
        for call in asked.calls:
            reads_before, bytes_before = file._reads, file._bytes
            got = plain(dataset.__getitems__(list(call)) if isinstance(call, list) else [dataset[call]])
            now = {
                "opened": file._opened - opened,
                "reads": file._reads - reads_before,
                "bytes": file._bytes - bytes_before,
            }
            file._forget()
            values = {"dtypes": [str(d.dtype) for d in got], "tokens": [d.tolist() for d in got]}
            alive = [weakref.ref(d.untyped_storage()) for d in got]
            del got
            calls.append(at_first | now | values | {"kept": any(storage() is not None for storage in alive)})
        reads = file._reads
        sent, load = _pickled(dataset, recipe=recipe, kind=Documents)
        if stage == 1:
            dataset, opened = load(), file._opened
    return calls


def _wrong_reads(report: check.Report) -> str | None:
    calls = zip([*report.case.calls] * 3, report.value, strict=True)
    return next((text for call in calls if (text := _wrong_read(report.case, *call))), None)


def _wrong_read(asked: Packed, call: int | list[int], got: dict[str, Any]) -> str | None:
    tokens, ends = _packed_file(asked.lengths)
    which = call if isinstance(call, list) else [call]
    name = f"__getitems__({which})" if isinstance(call, list) else f"[{call}]"
    if got["sent"] > (most := ends.nbytes + 1000):
        what = "the map" if got["sent"] > ends.nbytes + tokens.nbytes else "a second array beside ends"
        return f"pickled it has {got['sent']:,} bytes; wanted at most {most:,}: is {what} in it?"
    if got["len"] != len(ends):
        return f"len() is {got['len']}, wanted {len(ends)}"
    if set(got["dtypes"]) != {"torch.uint16"}:
        return f"{name} returned {', '.join(sorted(set(got['dtypes'])))}; wanted tensors of torch.uint16"
    parts = np.split(tokens, ends[:-1])
    want = [parts[i].tolist() for i in which]
    if got["tokens"] != want:
        sizes = [len(t) for t in got["tokens"]], [len(t) for t in want]
        if sizes[0] == sizes[1] and not any(map(any, got["tokens"])):
            return f"{name}: the tensors lie in the map, and changed with it; return copies"
        return f"{name}: not the tokens of these documents (lengths {sizes[0]}, wanted {sizes[1]})"
    if got["early"]:
        return "it reads when it is made; wanted: nothing before the first sample"
    size, read = 2 * sum(map(len, want)), got["bytes"]
    if read != size:
        why = "what else did you slice?" if read > size else "was something kept from before?"
        return f"values are right, but {name} read {read:,} bytes of the map to return {size:,}: {why}"
    runs = sum(k == 0 or i != which[k - 1] + 1 for k, i in enumerate(which))
    if got["reads"] > runs:
        return f"values are right, but {name} took {got['reads']} reads; wanted at most {runs}: one a run"
    if got["kept"]:
        return f"values are right, but after {name} the data set keeps the documents that it has returned"
    if got["opened"] == 0:
        return "the map was opened when the data set was made (or before it was pickled); wanted: at the first read"
    if got["opened"] != 1:
        return (
            f"the map was opened {got['opened']} times in one process; wanted once, at the first read (and a "
            "data set that is pickled goes on with its map: __getstate__ changes nothing in it)"
        )
    return None


def _from_a_file(Documents: Any, lengths: Sequence[int], workers: int) -> tuple[list[Any], list[Any]]:
    """Two epochs over a real file, with real worker processes where a notebook's class can reach them."""
    tokens, ends = _packed_file(lengths, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tokens.bin"
        tokens.tofile(path)
        dataset = Documents(functools.partial(np.memmap, path, dtype=np.uint16, mode="r"), ends)
        many = {"num_workers": workers, **_WORKERS} if workers and _CAN_FORK else {}
        loader: Any = DataLoader(dataset, batch_size=4, collate_fn=list, **many)
        first = [document.clone() for document in _all_from(loader)]
        single = [dataset[i] for i in reversed(range(len(dataset)))]
        if sys.platform != "win32":
            np.memmap(path, np.uint16, "r+")[:] = 0  # what still lies in the map is lost
        del dataset, loader
        return first, [document.clone() for document in single[::-1]]


def _cut(lengths: Sequence[int], workers: int) -> tuple[Tensors, Tensors]:
    tokens, ends = _packed_file(lengths, 2)
    parts = [torch.from_numpy(part) for part in np.split(tokens, ends[:-1])]
    return parts, parts


def _one_document(Documents: Any, lengths: Sequence[int], i: int) -> Any:
    tokens, ends = _packed_file(lengths, 3)
    return Documents(lambda: tokens, ends)[i].tolist()


def check_Documents(*cases: Packed, files: Files = (), outside: Files = ()) -> None:
    """cases: each call is counted. files: (lengths, workers), real ones. outside: (lengths, i that is no document)."""
    look = "What does a memory map read?"
    note = "Each call is counted alone: as made, after it was pickled, and what came out of the pickle."
    if cases:
        check.function("Documents", cases, drive=_use, verify=each(_wrong_reads), look=look, note=note)
    if files:
        note = "a real file and, where they can be forked, real workers"
        real = [check.case(*file) for file in files]
        check.function("Documents", real, _cut, drive=_from_a_file, look=look, note=note)
    look = "the docstring: IndexError unless 0 ≤ i < n"
    if outside:
        none = [check.case(*file, raises=IndexError) for file in outside]
        check.function("Documents", none, drive=_one_document, look=look)


# --- 4.4 pad_batch ------------------------------------------------------------------------------------------------


def ragged(lengths: Sequence[int], seed: int = 0, dtype: torch.dtype = torch.uint16) -> Tensors:
    """Documents of these lengths, of random tokens from all that the dtype can hold."""
    g, of = torch.Generator().manual_seed(seed), torch.iinfo(dtype)
    return [torch.randint(of.min, of.max, (n,), generator=g).to(dtype) for n in lengths]


def _padded(documents: Tensors, pad: int = 0, multiple: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch, by way of Python's lists."""
    longest = -(-max(len(d) for d in documents) // multiple) * multiple
    rows = [[*d.tolist(), *[pad] * (longest - len(d))] for d in documents]
    tokens = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), longest)
    return tokens, torch.tensor([len(d) for d in documents])


def _batches(pad_batch: Callable[..., Any], documents: Tensors, count: Any, **options: int) -> Any:
    """Two batches, the documents afterwards, and what the larger of them took: torch's bytes, Python's and NumPy's."""
    batches, at_once, torchs, pythons = [], [], [], []
    for given in (documents, documents[::-1]):
        tracemalloc.start()
        try:
            with count() as run:
                batches.append(plain(pad_batch(given, **options)))
            pythons.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        torchs.append(run.bytes_allocated)
        at_once.append([t.clone() for t in batches[-1]])
    contiguous = all(tokens.is_contiguous() for tokens, _ in batches)
    costs = {"torch": max(torchs), "python": max(pythons), "contiguous": contiguous}
    return costs | {"batches": batches, "at once": at_once, "documents": documents}


def _wrong_batches(report: check.Report) -> str | None:
    given, run = report.args[0], report.value
    want = [_padded(documents, **report.kwargs) for documents in (given, given[::-1])]
    for got, right in zip(run["at once"], want, strict=True):
        for what, a, b in zip(("tokens", "lengths"), got, right, strict=True):
            if odd := difference(a, b, at=f"the tensor of {what}"):
                return odd
    same = [d.tolist() for d in run["documents"]] == [d.tolist() for d in given]
    return None if same else "it changed the documents that it was given"


def _wasteful(report: check.Report) -> str | None:
    run = report.value
    tokens, lengths = run["at once"][0]
    limit = 8 * tokens.numel() + 8 * lengths.numel()
    if not torch.equal(tokens, run["batches"][0][0]) or not torch.equal(lengths, run["batches"][0][1]):
        return "the first of two batches changed when the second was made: each has its own memory"
    if not run["contiguous"]:
        return "the tokens are not contiguous"
    if run["torch"] + run["python"] > limit + 65_536:
        return (
            f"values are right, but it allocated {run['torch']:,} bytes in torch, and held {run['python']:,} in NumPy and "
            f"Python; wanted at most {limit:,} (and 64 KiB): the batch and its lengths, once. d.long(), pad and stack each make a tensor"
        )
    return None


def check_pad_batch(*cases: check.Case, costs: bool = True) -> None:
    """Each case is two batches, of the documents and of the same in reverse. costs: what they allocate counts, too."""
    judge = each(_wrong_batches, _wasteful) if costs else each(_wrong_batches)
    check.function(
        "pad_batch", cases, drive=_batches, verify=judge, look="What does it cost to put a batch together?"
    )


# --- 4.2 Shared ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epochs:
    """What is shared out: samples among `world` ranks of `workers` each (0: the main process), in these epochs.

    real: by DataLoaders with real worker processes, where there can be. first: the value of sample 0.
    """

    samples: int
    world: int
    workers: int
    epochs: Sequence[int] = (0,)
    real: bool = False
    seed: int = 3
    first: int = 1000

    def __str__(self) -> str:
        return f"{self.samples} samples, {self.world} rank(s) of {self.workers} workers"


class _Source:
    """Samples first, first + 1, …; counts how many are read, by all copies together."""

    def __init__(self, samples: int, first: int) -> None:
        self._samples, self._first, self._taken = samples, first, 0

    def __deepcopy__(self, memo: Any) -> "_Source":
        return self

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self._samples:
            raise IndexError(i)
        self._taken += 1
        return self._first + i


def _random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), pickle.dumps(np.random.get_state())


def _seed_globally(number: int) -> None:
    for seeded in (torch.manual_seed, random.seed, np.random.seed):
        seeded(number)


def _drawn() -> tuple[float, ...]:
    """A number from each global generator."""
    return torch.rand(()).item(), random.random(), np.random.random()


def _share_out(Shared: Any, **fields: Any) -> list[dict[str, Any]]:
    """What each process yields and reads: with stand-ins for the workers, or with real ones in a DataLoader."""
    asked = Epochs(**fields)
    source, shares, workers = _Source(asked.samples, asked.first), [], asked.workers
    processes: dict[tuple[int, int], Any] = {}
    for epoch in asked.epochs:
        for rank in range(asked.world):
            dataset = Shared(source, rank, asked.world, seed=asked.seed)
            dataset.set_epoch(epoch)
            if asked.real and _CAN_FORK:
                loader: Any = DataLoader(dataset, batch_size=4, num_workers=workers, **_WORKERS)
                got = [int(v) for v in _all_from(loader)]
                shares.append({"epoch": epoch, "got": got, "reads": len(got), "again": True, "same": True})
                continue
            for w in range(max(1, workers)):
                # the copy that its process was sent, from epoch to epoch
                mine = processes.setdefault((rank, w), copy.deepcopy(dataset))
                mine.set_epoch(epoch)
                _seed_globally(own := 100 * rank + w + len(shares))  # workers have their own
                if workers:
                    info = SimpleNamespace(id=w, num_workers=workers, seed=w, dataset=mine)
                    private_torch.worker._worker_info = info  # type: ignore[assignment]
                got, drawn, taken = [], [], source._taken
                try:  # each rank is a program of its own, and in each Python salts the hash of a text anew
                    with patch(
                        "builtins.hash", lambda of, r=rank, h=hash: h((r, of) if isinstance(of, str) else of)
                    ):
                        for sample in mine:  # a training draws numbers of its own between two samples
                            got.append(sample)
                            drawn.append(_drawn())
                        reads, after = source._taken - taken, _random_states()
                        again = [*zip(mine, mine)] == [(v, v) for v in got]  # noqa: B905 - by two iterators at once
                finally:
                    private_torch.worker._worker_info = None
                same = _random_states() == after
                _seed_globally(own)
                same &= drawn == [_drawn() for _ in got] and _random_states() == after
                got = [int(v) for v in got]
                shares.append({"epoch": epoch, "got": got, "reads": reads, "again": again, "same": same})
    return shares


def _shared_out(reports: list[check.Report], shuffled: bool) -> str | None:
    seed_of: dict[tuple[int, ...], int] = {}
    for report in reports:
        asked = report.case
        by_epoch = {e: [t for t in report.value if t["epoch"] == e] for e in asked.epochs}
        for epoch, those in by_epoch.items():
            if text := _not_once(asked, those[: len(those) // asked.epochs.count(epoch)]):
                return f"{asked}: {text}"
        if shuffled and (text := _not_shuffled(asked, by_epoch)):
            return f"{asked}: {text}"
        order = tuple(v for t in report.value for v in t["got"])
        if shuffled and len(order) > 12 and seed_of.setdefault(order, asked.seed) != asked.seed:
            return f"{asked}: the same order for two seeds; it depends on seed and epoch"
    return None


def _not_once(asked: Epochs, shares: list[dict[str, Any]]) -> str | None:
    """What is wrong with all processes' shares of one epoch, if it is not each sample once, and so again."""
    if not all(t["again"] for t in shares):
        epoch = shares[0]["epoch"]
        return f"iterated again in epoch {epoch}, by two iterators at once, it gives them other samples or another order"
    everything = [v for t in shares for v in t["got"]]
    wanted = set(range(asked.first, asked.first + asked.samples))
    if sorted(everything) == sorted(wanted):
        return None
    different = set(everything)
    never = len(wanted - different)
    return f"{len(everything)} samples came, {len(everything) - len(different)} too many, {never} never"


def _not_shuffled(asked: Epochs, by_epoch: dict[int, list[dict[str, Any]]]) -> str | None:
    orders, shares_of = {}, {}
    for epoch, those in by_epoch.items():
        times = asked.epochs.count(epoch)
        first = those[: len(those) // times]
        if [t["got"] for t in first] * times != [t["got"] for t in those]:
            return f"epoch {epoch} came in another order the second time"
        if text := _in_steps(asked.samples, [t["got"] for t in first]) or _wrong_share(those):
            return text
        orders[epoch] = tuple(v for t in first for v in t["got"])
        shares_of[epoch] = tuple(frozenset(t["got"]) for t in first)
    if asked.samples <= 12:
        return None
    if any(list(order) == sorted(order) for order in orders.values()):
        return "the order is not shuffled"
    if len(set(orders.values())) < len(orders):
        return "two epochs have the same order"
    if any(_alike(a, b) for a, b in combinations(shares_of.values(), 2)) and len(first) > 1:
        return "in two epochs each process has nearly the same samples; wanted: shuffled, then shared out"
    if len(first) > 1:  # a real loader's workers come as one
        if any(all(max(s) - min(s) < len(s) for s in shares) for shares in shares_of.values()):
            return "each share is a run of neighbours, shuffled inside; wanted: shuffled, then shared out"
    return None


def _alike(shares: Sequence[frozenset[int]], others: Sequence[frozenset[int]]) -> bool:
    """Whether each share has three quarters of its samples in another epoch too."""
    return all(len(a & b) > 0.75 * len(a) for a, b in zip(shares, others, strict=True) if a)


def by_chance(samples: int, steps: int, same: int) -> float:
    """At most so likely are `same` of the steps of a fair shuffle alike, of all `steps` inside of its shares.

    A step is the difference of two neighbours. There are 2 · (samples − 1) differences, and C(steps, same) choices of the
    places. Then samples − same pieces hang together; their order says which numbers each has: those of one remainder come one
    after the other. So (samples − same)! of all samples! orders have this difference at these places.
    """
    orders = 2 * (samples - 1) * math.comb(steps, same) * math.factorial(samples - same)
    return orders / math.factorial(samples)


def _in_steps(samples: int, shares: list[list[int]]) -> str | None:
    """A fair shuffle fails here once in 10⁸ epochs at most; one of 12 samples or fewer never, as nothing is so unlikely."""
    by_share = [Counter(b - a for a, b in zip(got, got[1:], strict=False)) for got in shares]
    together = sum(by_share, Counter[int]())
    step, same = max(together.items(), key=lambda item: item[1], default=(0, 0))
    if not same or by_chance(samples, together.total(), same) > 1e-8:
        return None
    got = shares[max(range(len(shares)), key=lambda i: by_share[i][step])]
    return f"not shuffled: samples come in steps of the same size, {got[:6]} …"


def _wrong_share(shares: list[dict[str, Any]]) -> str | None:
    sizes = [len(t["got"]) for t in shares]
    if max(sizes) - min(sizes) > 1:
        return f"shares of {min(sizes)} to {max(sizes)} samples; wanted a difference of at most 1"
    for t in shares:
        if t["reads"] != len(t["got"]):
            return f"a process read {t['reads']} samples to yield {len(t['got'])}"
        if not t["same"]:
            return "after a sample, or at the end, a global generator (torch, random, NumPy) is not as the training left it"
    return None


def check_Shared(*cases: Epochs, shuffled: bool = True) -> None:
    """shuffled: the order, the reads and the generators count too, else only that each sample comes once."""
    judge, look = functools.partial(_shared_out, shuffled=shuffled), "2 · What does a worker get?"
    note = "cases that are real run real worker processes, the others stand-ins with a seed of their own; each rank has its own hash() of texts"
    check.function("Shared", cases, drive=_share_out, verify=judge, look=look, note=note)


# --- 4.1 choose_workers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stages:
    """Arguments of choose_workers, what it should return for them, and why."""

    inputs: tuple[int, ...]
    workers: int
    step_us: float
    limit: str
    why: str = ""


def random_stages(seed: int, n: int) -> list[tuple[int, ...]]:
    """Arguments of choose_workers. The cores are powers of 2: no float of the model is rounded."""
    r = random.Random(seed)
    return [
        (
            r.choice([0, 7_000, 30_000, 90_000, r.randrange(1, 200_000)]),
            r.choice([0, 3_000, 24_000, r.randrange(1, 200_000)]),
            r.choice([1_000, 5_000, 10_000, r.randrange(500, 50_000)]),
            2 ** r.randrange(6),
            38_535_168,
            r.choice([64 * 2**20, 2**30, 2**33, 2**36]),
            r.choice([1, 2, 4]),
        )
        for _ in range(n)
    ]


def _explained(reports: list[check.Report], cases: Sequence[Stages]) -> str | None:
    for report, stages in zip(reports, cases, strict=True):
        want = {"workers": stages.workers, "step_us": stages.step_us, "limit": stages.limit}
        got, t = report.value, stages.step_us
        same = isinstance(got, dict) and got.keys() == want.keys() and isinstance(got["step_us"], int | float)
        # nan is near nothing: so it is asked whether it is near, not whether it is far
        if not same or not abs(got["step_us"] - t) <= 1e-9 * t or got | {"step_us": t} != want:
            why = f": {stages.why}" if stages.why else ""
            names = ("wait_us", "cpu_us", "step_us", "cores", "batch_bytes", "shared_bytes", "prefetch")
            inputs = ", ".join(f"{n}={v}" for n, v in zip(names, stages.inputs, strict=False))
            return f"for {inputs} it returned {got}; wanted {want}{why}"
    return None


def check_choose_workers(*cases: Stages) -> None:
    judge = functools.partial(_explained, cases=cases)
    inputs = [check.case(*stages.inputs) for stages in cases]
    check.function("choose_workers", inputs, verify=judge, look="1 · Does the model wait?")
