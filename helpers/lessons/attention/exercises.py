"""Tests of lesson 19: attention in blocks, a mask as a rule, calls that get a fused kernel, blocks that a mask keeps, a loss in
chunks, sequences in one row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from helpers import check, count
from helpers.check.compare import difference
from helpers.check.judges import each, own_work
from helpers.check.reference import reference
from helpers.check.results import plain
from helpers.lessons.attention import masks
from helpers.lessons.attention.masks import uneven as uneven
from helpers.pytorch.dispatch_mode import Unseen

# --- 19.1 blockwise_attention -------------------------------------------------------------------------------------


def three(
    *batch: int, n: int, m: int, d: int, e: int | None = None, seed: int = 0, shift: float = 0.0, rising: float = 0.0,
    shared: bool = False, dtype: str = "float64",
) -> list[Tensor]:  # fmt: skip
    """q (…, n, d), k (…, m, d), v (…, m, e). shift: about what every score is; rising: what the last key's has more than
    the first's. shared: keys and values are a view, the same for all of the last batch dimension."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    q, k, v = normal(*batch, n, d), normal(*batch, m, d), normal(*batch, m, e or d)
    if shift or rising:  # one direction that every query has, and in which keys differ
        q[..., 0] = d**0.5
        k[..., 0] = shift + torch.linspace(0, rising, m, dtype=torch.float64)
    if shared:
        k, v = (t[..., :1, :, :].expand(*batch, *t.shape[-2:]) for t in (k, v))
    return [t.to(getattr(torch, dtype)) for t in (q, k, v)]


def _attended(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> dict[str, int]:
    """What the docstring says: bytes of four blocks of scores, four results and one copy of the queries; FLOPs of kept pairs."""
    n, m, e = q.shape[-2], k.shape[-2], v.shape[-1]
    rows = q[..., 0].numel()
    pairs = rows * m
    if causal:
        pairs = q[..., 0, 0].numel() * sum(min(block, m - at) * (n - at) for at in range(0, m, block))
    size = q.element_size()
    return {
        "peak_live_bytes": size * rows * (4 * (min(block, m) + e + 2) + q.shape[-1]) + 4096,
        "flops": 2 * pairs * (q.shape[-1] + e),
    }


def check_blockwise_attention(*cases: check.Case, budget: bool = True) -> None:
    """cases: q, k, v, block, causal. budget: peak bytes and FLOPs count as well."""
    double = cases[0].args[0].dtype == torch.float64
    known: dict[str, Any] = {
        "match": check.Match(rtol=1e-9, atol=1e-11) if double else check.Match(rtol=1e-4, atol=1e-5),
        "budget": _in_blocks if budget else None,
        "verify": each(own_work("dot_product")),
        "look": "2 · A softmax that never sees its whole row",
    }
    if budget:
        known["note"] = (
            "Too many bytes? Then scores of more than one block of keys are alive, or copies of all keys and values. Too many "
            "FLOPs? Then a score is computed twice, or one that nobody may see."
        )
    check.function("blockwise_attention", cases, _attended, **known)


# --- 19.2 visible -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Rows:
    """A batch of rows, by the number of each token's document; a window and sinks; and the blocks that are looked at."""

    documents: tuple[tuple[int, ...], ...]
    window: int
    sinks: int = 0
    block: int = 4
    dtype: str = "int64"

    def __repr__(self) -> str:
        # documents 0 0 0 1 1 as 0 ×3, 1 ×2
        rows = (", ".join(f"{name} ×{len([*same])}" for name, same in groupby(row)) for row in self.documents)
        return f"documents [{'] ['.join(rows)}], window={self.window}, sinks={self.sinks}"


def in_a_row(*lengths: int, first: int = 0) -> tuple[int, ...]:
    """The document of each token, where documents of these lengths stand one after the other; the first one's number."""
    return tuple(first + number for number, n in enumerate(lengths) for _ in range(n))


def _positions(documents: Sequence[int]) -> list[int]:
    return [list(documents[:place]).count(number) for place, number in enumerate(documents)]


def _ask(
    visible: Callable[..., Any], documents: tuple[tuple[int, ...], ...], window: int, sinks: int, block: int, dtype: str, count: Any
) -> dict[str, Any]:  # fmt: skip
    from torch.nn.attention.flex_attention import create_block_mask  # slow to import, and few need it

    kind = getattr(torch, dtype)
    document = torch.tensor(documents, dtype=kind)
    position = torch.tensor([_positions(numbers) for numbers in documents], dtype=kind)
    batch, n = document.shape
    last, none = torch.tensor(n - 1), torch.tensor(0)
    rules: list[Any] = []

    def make_and_ask_once() -> Any:
        rules.append(visible(document, position, window, sinks))
        return plain(rules[0](none, none, last, last))

    def ask_for_all() -> None:
        i, j = torch.arange(n)[:, None], torch.arange(n)
        pairs = plain(rules[0](torch.arange(batch)[:, None, None], none, i, j))
        few = i.expand(n, n).flatten(), j.expand(n, n).flatten()
        alone = plain(rules[0](torch.tensor(batch - 1), none, *few))  # one dimension
        with Unseen():  # copies, to be looked at later: what is alive then, the rule keeps
            got["bools"] = pairs.dtype == alone.dtype == torch.bool
            got["pairs"] = pairs.expand(batch, n, n).clone()
            got["last row"] = alone.expand(n * n).reshape(n, n).clone()

    one, got = count(make_and_ask_once), dict[str, Any]()
    visible(document.flip(0, 1), position.flip(0, 1), window + 1, sinks + 1)  # a rule that nobody asks
    later = count(ask_for_all)
    again = count(lambda: plain(rules[0](none, none, last, none)))  # by now it has been asked for all pairs
    mask = create_block_mask(rules[0], batch, None, n, n, device="cpu", BLOCK_SIZE=block)
    kept = mask.kv_num_blocks
    if mask.full_kv_num_blocks is not None:
        kept = kept + mask.full_kv_num_blocks
    got["blocks"] = kept[:, 0].sum(-1).tolist()
    return got | {"peak": max(one.peak_live_bytes, again.peak_live_bytes), "left": later.live_bytes}


@reference
def _seen(numbers: tuple[int, ...], window: int, sinks: int) -> list[list[int]]:
    """The keys that each query of a row sees."""
    at, places = _positions(numbers), range(len(numbers))
    return [
        [j for j in places[: i + 1] if numbers[i] == numbers[j] and (i - j < window or at[j] < sinks)]
        for i in places
    ]


def _other_keys(report: check.Report) -> str | None:
    of, got = report.case, report.value
    if not got["bools"]:
        return "the rule's answer is not of bools: compare, and join with & and |"
    for b, numbers in enumerate(of.documents):
        for i, want in enumerate(_seen(numbers, of.window, of.sinks)):
            if (sees := got["pairs"][b, i].nonzero().flatten().tolist()) != want:
                return f"in row {b} query {i} sees the keys {_few(sees)}; wanted {_few(want)}"
    if not torch.equal(got["last row"], got["pairs"][-1]):
        return "asked with i and j of one dimension, the rule says something else than where i is a column and j a row"
    return None


def _few(keys: list[int]) -> str:
    return f"{keys[:8]}"[:-1] + (", …]" if len(keys) > 8 else "]")


def _costly_rule(report: check.Report) -> str | None:
    of, got = report.case, report.value
    batch, n = len(of.documents), len(of.documents[0])
    for b, numbers in enumerate(of.documents):
        rows = enumerate(_seen(numbers, of.window, of.sinks))
        want = len({(i // of.block, j // of.block) for i, keys in rows for j in keys})
        if got["blocks"][b] != want:
            return f"create_block_mask keeps {got['blocks'][b]} blocks of {of.block} × {of.block} in row {b}; wanted {want}"
    most = 64 * batch * n + 4096
    for what, when in (
        ("peak", "were alive while it was made and asked for one pair"),
        ("left", "stay when it has been asked"),
    ):
        if got[what] > most:
            return f"the rule is right, but {got[what]:,} bytes {when}; wanted at most {most:,}: no table of all pairs"
    return None


def check_visible(*cases: Rows) -> None:
    judge = each(_other_keys, _costly_rule, told=True)
    check.function("visible", cases, drive=_ask, verify=judge, look="4 · A mask is a rule, and skips blocks")


# --- 19.3 fused_attention -----------------------------------------------------------------------------------------


def lying(
    *batch: int, n: int, m: int, d: int, e: int, seed: int, layout: str = "rows", masked: bool = False, dtype: str = "float32",
) -> check.Case:  # fmt: skip
    """q (…, n, d), k (…, m, d), v (…, m, e), and a mask of bools that keeps a part if `masked`. layout: how the three lie.

    "rows": contiguous; "heads": heads side by side for each token, as a layer's projection leaves them; "columns": transposed;
    "channels": by torch.channels_last; "shared": all of v's features are one.
    """
    three_of = three(*batch, n=n, m=m, d=d, e=e, seed=seed, dtype=dtype)
    if layout == "heads":
        three_of = [t.transpose(-2, -3).contiguous().transpose(-2, -3) for t in three_of]
    if layout == "columns":
        three_of = [t.mT.contiguous().mT for t in three_of]
    if layout == "channels":
        three_of = [t.contiguous(memory_format=torch.channels_last) for t in three_of]
    if layout == "shared":
        three_of[2] = three_of[2][..., :1].expand(*three_of[2].shape[:-1], e)
    if not masked:
        return check.case(*three_of)
    kept = (torch.arange(n)[:, None] + 2 * torch.arange(m)) % 3 > 0
    kept[:, 0] = True  # nobody is without a key
    return check.case(*three_of, kept)


def _by_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _without_needless_copies(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> dict[str, int]:
    """Twice a tensor that has to be copied; the kernel's result, one number a query, and a copy of the result; the mask as numbers."""
    width, rows = max(q.shape[-1], v.shape[-1]), q[..., 0].numel()
    copied = sum(2 * t[..., 0].numel() * width for t in (q, k, v) if t.shape[-1] < width or t.stride(-1) != 1)
    numbers = copied + rows * (width + 1 + v.shape[-1]) + (2 * mask.numel() if mask is not None else 0) + 8
    return {"peak_live_bytes": q.element_size() * numbers}


def _one_fused(report: check.Report) -> str | None:
    ran = report.counts["by_operator"]
    by_hand = [op for op in ran if any(word in op for word in ("bmm", "matmul", ".mm", "softmax"))]
    fused = sum(times for op, times in ran.items() if "_attention" in op)
    if by_hand:
        return f"values are right, by {', '.join(by_hand)}: no fused kernel took the call"
    return None if fused == 1 else f"values are right, by {fused} calls of a fused kernel; wanted one"


def check_fused_attention(*cases: check.Case) -> None:
    """cases: q, k, v, and perhaps a mask."""
    check.function(
        "fused_attention",
        cases,
        _by_sdpa,
        match=check.Match(rtol=1e-4, atol=1e-5),
        verify=each(_one_fused, told=True),
        budget=_without_needless_copies,
        look="Further: A fused kernel on this CPU",
        note="Too many bytes? Then a tensor is copied that a fused kernel would take as it lies.",
    )


# --- 19.4 kept_blocks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks:
    """A mask over queries × keys, by the name of its rule and what that is given, in blocks of block × block."""

    rule: str
    queries: int
    keys: int
    block: int
    of: tuple[int, ...] = ()


def _every_third_query(b: Any, h: Any, i: Tensor, j: Tensor) -> Tensor:
    return i % 3 == 0  # of shape (queries, 1): no key is looked at


def _key(place: int) -> masks.Rule:
    return lambda b, h, i, j: j == place


def _dots(step: int) -> masks.Rule:
    return lambda b, h, i, j: (7 * i + 5 * j) % step == 0


def _behind(keys: int) -> masks.Rule:
    """Causal, with `keys` keys before the first query."""
    return lambda b, h, i, j: i + keys >= j


def _nothing(b: Any, h: Any, i: Tensor, j: Tensor) -> Tensor:
    return (i < 0) & (j < 0)


_RULES: dict[str, Callable[..., masks.Rule]] = {
    "everything": lambda: masks.everything,
    "causal": lambda: masks.causal,
    "sliding window": masks.window,
    "prefix": masks.prefix,
    "documents": lambda *lengths: masks.documents(lengths),
    "every third query": lambda: _every_third_query,
    "one key": _key,
    "dots": _dots,
    "causal, keys before": _behind,
    "nothing": lambda: _nothing,
}


def _keep(
    kept_blocks: Callable[..., Tensor], rule: str, queries: int, keys: int, block: int, of: tuple[int, ...], count: Any
) -> dict[str, Any]:  # fmt: skip
    asked, allowed = [0], _RULES[rule](*of)

    def listening(b: Any, h: Any, i: Tensor, j: Tensor) -> Tensor:
        # a subclass may say any shape
        asked[0] += torch.broadcast_shapes(plain(i).shape, plain(j).shape).numel()
        if i.numel() and j.numel() and not (0 <= int(i.max()) < queries and 0 <= int(j.max()) < keys):
            raise IndexError(
                f"the rule was asked for a place that is not there: {queries} queries, {keys} keys"
            )
        return allowed(b, h, i, j)

    counts = count(lambda: plain(kept_blocks(listening, queries, keys, block)))
    table = counts.result
    return {"table": table.detach().clone(), "peak": counts.peak_live_bytes, "asked": asked[0]}


@reference
def _kinds(rule: str, of: tuple[int, ...], queries: int, keys: int, block: int) -> list[list[int]]:
    seen = _RULES[rule](*of)(0, 0, torch.arange(queries)[:, None], torch.arange(keys)).expand(queries, keys)
    parts = [[part for part in row.split(block, 1)] for row in seen.split(block)]
    return [[int(part.any()) + int(part.all()) for part in row] for row in parts]


def _wrong_blocks(report: check.Report) -> str | None:
    of, got = report.case, report.value
    want = torch.tensor(_kinds(of.rule, of.of, of.queries, of.keys, of.block))
    if odd := difference(got["table"], want, at="the table"):
        return odd
    if got["asked"] > of.queries * of.keys:
        return f"the rule was asked for {got['asked']:,} pairs; there are {of.queries * of.keys:,}, each asked for once"
    most = 24 * of.block * of.keys + 16 * want.numel() + 8 * (of.queries + of.keys) + 4096
    if got["peak"] > most:
        return f"values are right, but it held {got['peak']:,} bytes at its peak; wanted at most {most:,}: a row of blocks at a time"
    return None


def check_kept_blocks(*cases: Blocks) -> None:
    judge = each(_wrong_blocks, told=True)
    look = "Further: The blocks of a rule"
    check.function("kept_blocks", cases, drive=_keep, verify=judge, look=look)


# --- 19.5 chunked_cross_entropy -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """n tokens of d features, `words` words, `rows` tokens at a time; the first `padded` targets and every ninth do not count.

    factor: of the loss, before backward. hidden, weight: whether it wants a gradient. turned: hidden lies transposed. calls: as
    many losses, added up before one backward. lifted: by about so much all logits of a token are above 0, and those of the next
    below.
    """

    n: int
    d: int
    words: int
    rows: int
    padded: int = 0
    dtype: str = "float64"
    factor: float = 1.0
    hidden: bool = True
    weight: bool = True
    turned: bool = False
    calls: int = 1
    lifted: float = 0.0


def _at_once(hidden: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
    return torch.nn.functional.cross_entropy(hidden @ weight.T, targets)


def _lose(chunked_cross_entropy: Callable[..., Tensor], count: Any, **fields: Any) -> dict[str, Any]:
    of, draw = Losses(**fields), torch.Generator().manual_seed(fields["n"])
    dtype = getattr(torch, of.dtype)

    def leaf(*shape: int, grad: bool) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype).requires_grad_(grad)

    stored = [leaf(*((of.d, of.n) if of.turned else (of.n, of.d)), grad=of.hidden) for _ in range(of.calls)]
    weight = leaf(of.words, of.d, grad=of.weight)
    if of.lifted:  # one direction that every word has: it leaves the softmax as it is
        with torch.no_grad():
            weight[:, 0] = 1
            for h in stored:
                (h.T if of.turned else h)[:, 0] = of.lifted * (1 - 2 * (torch.arange(of.n) % 2))
    targets = torch.randint(of.words, (of.calls, of.n), generator=draw)
    targets[:, : of.padded] = targets[:, 8::9] = -100
    losses: list[Tensor] = []

    def step() -> None:
        parts = [
            plain(chunked_cross_entropy(h.T if of.turned else h, weight, t, of.rows))
            for h, t in zip(stored, targets, strict=True)
        ]
        losses.extend(part.detach().clone() for part in parts)
        total = sum(part * (of.factor + i) for i, part in enumerate(parts))
        if of.hidden or of.weight:
            total.backward()  # type: ignore[union-attr]

    counts = count(step)
    return {
        "losses": losses,
        "gradients": [None if t.grad is None else t.grad.clone() for t in (*stored, weight)],
        "costs": {"peak": counts.peak_live_bytes, "saved": counts.saved_bytes, "flops": counts.flops},
    }


def _wrong_loss(report: check.Report) -> str | None:
    of, got = report.case, report.value
    want = _lose(_at_once, count, **vars(of))
    double = of.dtype == "float64"
    # a slope is as exact as its logits, and hidden times as large as they are in the weight's gradient
    close = {"rtol": 1e-9, "atol": 1e-9 if of.lifted else 1e-12} if double else {"rtol": 1e-3, "atol": 1e-5}
    for what in ("losses", "gradients"):
        if odd := difference(got[what], want[what], **close, at=what):
            return odd
    return None


def _costly_loss(report: check.Report) -> str | None:
    of, got = report.case, report.value["costs"]
    size = 8 if of.dtype == "float64" else 4
    rows, both = min(of.rows, of.n), of.d * (of.words + of.n)
    wanted = of.d * (of.words * of.weight + of.n * of.hidden)
    limits = {
        "peak": size * (4 * rows * of.words + of.calls * (3 * wanted + 8 * of.n)) + 4096,
        "saved": of.calls * (size * both + 16 * of.n) + 4096,
        "flops": of.calls * 2 * of.n * of.d * of.words * (2 + of.hidden + of.weight),
    }
    words = {
        "peak": "it held {:,} bytes at its peak; wanted at most {:,}: are there logits of more than one chunk, more than 4 arrays of "
        "a chunk's size, or a gradient that nobody wants?",
        "saved": "it saved {:,} bytes for backward; wanted at most {:,}: a gradient has the size of its tensor, logits have not",
        "flops": "it did {:,} floating-point operations; wanted at most {:,}: is a gradient made that nobody wants?",
    }
    for name, most in limits.items():
        if got[name] > most:
            return "values are right, but " + words[name].format(got[name], most)
    return None


def check_chunked_cross_entropy(*cases: Losses) -> None:
    judge = each(_wrong_loss, _costly_loss, told=True)
    check.function("chunked_cross_entropy", cases, drive=_lose, verify=judge, look="The loss in chunks")


# --- 19.6 packed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packs:
    """Documents of these lengths, to be put into rows of `length` tokens."""

    lengths: tuple[int, ...]
    length: int


def _texts(lengths: Sequence[int]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(len(lengths))
    return [torch.randint(1, 100, (n,), generator=draw) for n in lengths]


def _pack(
    packed: Callable[..., dict[str, Tensor]], lengths: tuple[int, ...], length: int, count: Any
) -> dict[str, Any]:
    counts = count(lambda: plain(packed(_texts(lengths), length)))
    return {"rows": {name: t.clone() for name, t in counts.result.items()}, "syncs": counts.syncs}


def _wrong_rows(report: check.Report) -> str | None:
    of, rows = report.case, report.value["rows"]
    names = ["tokens", "targets", "positions", "document"]
    if sorted(rows) != sorted(names):
        return f"returned {sorted(rows)}; wanted {sorted(names)}"
    shape = tuple(rows["tokens"].shape)
    for name in names:
        t = rows[name]
        if t.dtype != torch.int64 or t.dim() != 2 or tuple(t.shape) != shape or shape[1] != of.length:
            return f"{name!r} is {t.dtype} of shape {tuple(t.shape)}; all four are int64 of shape (rows, {of.length})"
    want = {name: torch.full(shape, fill) for name, fill in zip(names, (0, -100, 0, -1), strict=True)}
    for i, text in enumerate(_texts(of.lengths)):
        places = (rows["document"] == i).nonzero().tolist()
        if (
            len(places) != len(text)
            or places[0][0] != places[-1][0]
            or places[-1][1] - places[0][1] != len(text) - 1
        ):
            return f"document {i} has {len(text)} tokens and belongs into one row, its tokens side by side; it is at {places[:6]} …"
        row, first = places[0]
        part = row, slice(first, first + len(text))
        want["tokens"][part], want["document"][part] = text, i
        want["positions"][part] = torch.arange(len(text))
        want["targets"][row, first : first + len(text) - 1] = text[1:]
    for name in names:
        if odd := difference(rows[name], want[name], at=repr(name)):
            return odd
    held = (rows["document"] >= 0).sum(1).sort().values.tolist()
    if len(held) > 1 and held[0] + held[1] <= of.length:
        return f"{len(held)} rows, of which two hold {held[0]} and {held[1]} tokens: they would fit into one row of {of.length}"
    if held and not held[0]:
        return "a row holds nothing"
    if report.value["syncs"]:
        return f"made the CPU wait {report.value['syncs']} time(s); wanted 0: len(document) is known without looking into it"
    return None


def check_packed(*cases: Packs) -> None:
    look = "Documents in one row"
    check.function("packed", cases, drive=_pack, verify=each(_wrong_rows, told=True), look=look)
