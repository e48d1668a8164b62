"""What lesson 19 shows: attention's bytes by length, a running softmax, kernels that a call gets, masks and their blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import helpers.lessons.attention.recorded  # noqa: F401 - its experiments are known by their names
from helpers import count, plots, recordings, simulate
from helpers.counters.counts import Counts
from helpers.lesson.predictions import about as about
from helpers.lessons.attention import masks
from helpers.lessons.attention.masks import uneven
from helpers.plots.picture import Picture
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

MIB = 2**20
LIVE, ON_H100 = "live (CPU)", "simulated (H100)"
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


# --- 1 · the score matrix ------------------------------------------------------------------------------------------


def step(way: Attention, n: int) -> Counts:
    """Forward and backward of one way, for two heads of 64 features and n tokens."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, n, 64, requires_grad=True) for _ in range(3)]
    return count(lambda: way(*inputs).sum().backward())


def when_n_doubles(steps: Mapping[str, Sequence[Counts]]) -> dict[str, Any]:
    """By what the peak grows from the last length but one to the last; FLOPs of SDPA against the formula."""
    peaks = {name: [c.peak_live_bytes for c in counts] for name, counts in steps.items()}
    plain, fused = steps["written out"][-1].flops, steps["SDPA"][-1].flops
    return {
        "n doubles, written out: peak ×": round(peaks["written out"][-1] / peaks["written out"][-2]),
        "n doubles, SDPA: peak ×": round(peaks["SDPA"][-1] / peaks["SDPA"][-2]),
        "FLOPs of SDPA": "fewer" if fused < plain else "more" if fused > plain else "as many",
    }


def peaks(steps: Mapping[str, Sequence[Counts]], lengths: Sequence[int]) -> Picture:
    series = {name: (lengths, [c.peak_live_bytes / MIB for c in counts]) for name, counts in steps.items()}
    return plots.curves(
        {"": series},
        evidence=LIVE,
        title="Peak of one attention, forward and backward",
        xlabel="tokens, n",
        ylabel="MiB",
        log="xy",
        ticks={n: f"{n:,}" for n in lengths},
    )


@dataclass(frozen=True)
class Forward:
    """One forward pass on the simulated card: (kernel, seconds), the peak above its inputs in MiB, and the bytes moved."""

    way: str
    tokens: int
    kernels: list[tuple[str, float]]
    more: float
    moved: int

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.kernels)


def on_h100(ways: Mapping[str, Attention], lengths: Sequence[int]) -> list[Forward]:
    """Forward of each way in bfloat16, 8 × 16 heads of 64 features."""
    runs = []
    for n in lengths:
        for name, way in ways.items():
            with simulate("H100") as gpu, torch.no_grad():
                q, k, v = (
                    torch.randn(8, 16, n, 64, device=gpu.device, dtype=torch.bfloat16) for _ in range(3)
                )
                way(q, k, v)  # the matrix library's workspace is there from now on
                run = stretch(gpu, partial(way, q, k, v))
            parts = [(short(kernel.name), kernel.duration_s) for kernel in run.kernels]
            runs.append(Forward(name, n, parts, run.temporary / MIB, run.bytes))
    return runs


def of_h100(way: Attention) -> dict[str, str]:
    """How often the n² numbers are written or read, by the bytes of this way's kernels; its recorded time against SDPA's."""
    n = 4096
    (run,) = on_h100({"": way}, [n])
    times = recorded_times("written out", "SDPA")
    return {
        "written or read: times": f"{round(run.moved / (8 * 16 * n * n * 2))}",
        "the formula's time ÷ SDPA's": "7 or more"
        if times > 6.5
        else "about 3"
        if times > 2
        else "about 1.2",
    }


def with_your_attention(ways: Mapping[str, Attention], yours: Callable[..., Tensor]) -> list[Forward]:
    """4,096 tokens by each way, and by the learner's own function, 256 keys a block, last. Empty where that is not right yet."""
    q, k, v = (torch.randn(1, 1, 8, 4) for _ in range(3))
    try:
        right = torch.allclose(
            yours(q, k, v, 3), torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-5
        )
        why = "its result is another"
    except Exception as error:  # an answer may raise anything
        right, why = False, f"{type(error).__name__}: {error}"
    if right:
        return on_h100({**ways, "yours, 256 keys a block": lambda q, k, v: yours(q, k, v, 256)}, [4096])
    print(f"Your blockwise_attention is not right yet ({why}). Write it above, then run this cell again.")
    return []


def of_yours(runs: Sequence[Forward]) -> dict[str, str]:
    """Where the last of three ways stands between the others, the formula and SDPA: its peak, and its time."""
    plain, fused, yours = runs

    def place(of: Callable[[Forward], float], more: str) -> str:
        if of(yours) < 1.25 * of(fused):
            return "about SDPA's"
        return "between the two" if of(yours) < of(plain) else more

    return {
        "your peak of memory": place(lambda run: run.more, "more than the formula's"),
        "your time": place(lambda run: run.seconds, "longer than the formula's"),
    }


def costs(runs: Sequence[Forward]) -> Table:
    rows = [
        (
            run.way,
            f"{run.more:,.0f}",
            format_seconds(run.seconds),
            f"{len(run.kernels)}",
            size_text(run.moved),
        )
        for run in runs
    ]
    columns = ["attention", "peak above the inputs, MiB", "time of the kernels", "kernels", "moved"]
    caption = "forward, 4,096 tokens, 8 × 16 heads of 64 features, bfloat16"
    return table(rows, columns, evidence=ON_H100, caption=caption)


def recorded_ways() -> Table:
    """Forward over 4,096 tokens on a recorded card, each backend by its name: time and peak."""
    recording = recordings.show("19/ways", prefer="recorded")
    rows = [
        (
            "SDPA, which took cuDNN" if row["way"] == "SDPA" and _is_cudnn(row["kernels"]) else row["way"],
            f"≈ {format_seconds(row['us'] / 1e6)}",
            f"{row['peak_bytes'] / MIB:,.0f}",
        )
        for row in recording.table or ()
        if row["way"] not in ("math", "cuDNN") and row["tokens"] == 4096
    ]
    columns = ["attention", "forward", "peak above the inputs, MiB"]
    caption = "4,096 tokens, 8 × 16 heads of 64 features, bfloat16"
    return table(rows, columns, evidence=recording.evidence, caption=caption)


def recorded_times(way: str, other: str, tokens: int = 4096) -> float:
    """How many times as long as another one a way took on the recorded card, forward."""
    return recorded_s(way, tokens) / recorded_s(other, tokens)


def recorded_s(way: str, tokens: int = 4096) -> float:
    """Seconds of a way on the recorded card, forward."""
    rows = recordings.show("19/ways", prefer="recorded").table or []
    return next(float(row["us"]) / 1e6 for row in rows if (row["way"], row["tokens"]) == (way, tokens))


def of_memory_speed() -> float:
    """What share of 3.35 TB/s the formula's six passes over the n² numbers reached on the recorded card."""
    return 6 * 8 * 16 * 4096**2 * 2 / 3.35e12 / recorded_s("written out")


def _is_cudnn(kernels: Sequence[str]) -> bool:
    return any(name.startswith("cudnn") for name in kernels)


def recorded_backends() -> dict[str, str]:
    """call → the backend that it got on a recorded card, by the names of its kernels."""
    kinds = {"cudnn": "cuDNN", "pytorch_flash": "flash", "fmha_cutlass": "efficient", "softmax": "math"}
    return {
        row["call"]: next(
            word for part, word in kinds.items() if any(part in kernel for kernel in row["kernels"])
        )
        for row in recordings.show("19/backends", prefer="recorded").table or ()
    }


def recorded_block_times() -> dict[str, float]:
    """way → seconds of attention over 8,192 tokens on the recorded card."""
    return {
        row["way"]: row["us"] / 1e6 for row in recordings.show("19/blocks", prefer="recorded").table or ()
    }


def recorded_blocks() -> Table:
    """The same as a table, with the peak: SDPA, and FlexAttention with three block masks."""
    recording = recordings.show("19/blocks", prefer="recorded")
    rows = [
        (
            row["way"].replace("documents", "documents of 1,024 tokens"),
            f"≈ {format_seconds(row['us'] / 1e6)}",
            f"{row['peak_bytes'] / MIB:,.0f}",
        )
        for row in recording.table or ()
    ]
    columns = ["attention", "forward", "peak above the inputs, MiB"]
    return table(
        rows, columns, evidence=recording.evidence, caption="8,192 tokens, 16 heads of 64 features, bfloat16"
    )


def short(name: str) -> str:
    """An operator's name without what all of them share."""
    return name.removeprefix("aten.").removeprefix("_scaled_dot_product_").lstrip("_")


# --- 2 · a running softmax -----------------------------------------------------------------------------------------


def of_running(rows: Sequence[Sequence[Any]], naive: str) -> dict[str, str]:
    """rows: block, maximum, factor, sum. naive: the sum of exp(score) itself."""
    shrinks = any(0 < factor < 1 for _, _, factor, _ in rows)
    return {
        "sum of exp(score), scores up to 90, float32": naive if naive in ("inf", "nan") else "right",
        "a larger maximum comes: the old sum is": "multiplied" if shrinks else "kept",
    }


def running(rows: Sequence[Sequence[Any]]) -> Table:
    shown = [
        (", ".join(f"{x:g}" for x in block), f"{most:g}", f"{factor:.3g}", f"{total:.4f}")
        for block, most, factor, total in rows
    ]
    columns = ["block of scores", "running maximum", "old sum times", "running sum"]
    return table(shown, columns, evidence=LIVE)


# --- 3 · which kernel ----------------------------------------------------------------------------------------------


def kernels_of(call: Attention, n: int) -> list[str]:
    """The operators of a call that are attention's, on the CPU, in bfloat16."""
    torch.manual_seed(0)
    operators = count(call, *(torch.randn(2, 4, n, 64).bfloat16() for _ in range(3))).by_operator
    return [short(name) for name in operators if "attention" in name or "bmm" in name or "softmax" in name]


def _is_math(operators: Sequence[str]) -> bool:
    return any("softmax" in name for name in operators)


def fused_on(kernels: Mapping[str, list[str]]) -> dict[str, str]:
    """Where each call gets a fused kernel: on the CPU, on the recorded H100."""
    on_gpu, said = recorded_backends(), {}
    for name, operators in kernels.items():
        here, there = not _is_math(operators), on_gpu[name] != "math"
        said[name] = (
            ("on both" if there else "on the CPU only")
            if here
            else ("on the GPU only" if there else "on neither")
        )
    return said


def backends(kernels: Mapping[str, list[str]]) -> Table:
    on_gpu = recorded_backends()
    rows = [
        (name, "math" if _is_math(operators) else operators[0].partition("_")[0], on_gpu[name])
        for name, operators in kernels.items()
    ]
    evidence = f"{LIVE} · {recordings.show('19/backends', prefer='recorded').evidence}"
    caption = "forward; of q, k and v no gradient is wanted"
    return table(rows, ["call", "the backend on this CPU", "on an H100"], evidence=evidence, caption=caption)


def reason(said: Sequence[Any]) -> str:
    """The last of some warnings, without where in PyTorch's sources it was raised."""
    text = re.split(r"\s*\(Triggered|\. ", str(said[-1].message))[0] if said else ""
    return f"{text}." if text and not text.endswith(":") else NO_REASON


NO_REASON = "(PyTorch gives no reason.)"


def gives_a_reason(text: str) -> bool:
    return bool(text) and text != NO_REASON


# --- 4 · masks and blocks ------------------------------------------------------------------------------------------


def shares(block_masks: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{_share(mask):.0%}".replace("%", " %") for name, mask in block_masks.items()}


def _share(mask: Any) -> float:
    table_of = masks.kinds(mask)
    return masks.computed(mask) / sum(map(len, table_of))


def of_masks(block_masks: Mapping[str, Any], rules: Mapping[str, masks.Rule]) -> Table:
    rows = []
    for name, mask in block_masks.items():
        n = mask.seq_lengths[0]
        place = torch.arange(n)
        allowed = float(rules[name](0, 0, place[:, None], place).double().mean())
        flat = [kind for row in masks.kinds(mask) for kind in row]
        kept = f"{masks.computed(mask)} of {len(flat)}"
        rows.append((name, f"{allowed:.1%}", kept, f"{flat.count(masks.WHOLE)}"))
    columns = ["rule", "pairs allowed", "blocks computed", "of these whole"]
    return table(rows, columns, evidence=LIVE, caption="1,024 tokens, blocks of 128 × 128")


def with_yours(
    kept_blocks: Callable[..., Tensor], rules: Mapping[str, masks.Rule], block_masks: Mapping[str, Any]
) -> Table | None:
    """The learner's table of blocks beside PyTorch's, for each rule: blocks computed, and the peak of making it."""
    from torch.nn.attention.flex_attention import create_block_mask

    rows = []
    for name, mask in block_masks.items():
        n, block = mask.seq_lengths[0], mask.BLOCK_SIZE[0]
        try:
            yours = count(kept_blocks, rules[name], n, n, block)
            left = int((yours.result > 0).sum())
        except Exception as problem:
            print(
                f"Not yet: kept_blocks raises {type(problem).__name__}. Write it above, then run this cell again."
            )
            return None
        made = count(create_block_mask, rules[name], None, None, n, n, device="cpu", BLOCK_SIZE=block)
        peaks = (f"{size_text(counts.peak_live_bytes)}" for counts in (yours, made))
        rows.append((name, str(left), str(masks.computed(mask)), *peaks))
    columns = [
        "rule",
        "blocks, by kept_blocks",
        "blocks, by PyTorch",
        "peak of kept_blocks",
        "peak of create_block_mask",
    ]
    return table(rows, columns, evidence=LIVE)


def _largest(prof: Any) -> list[tuple[str, int, int]]:
    """(operator, calls, bytes of new memory) of a profile, the largest first."""
    events = [(e.key, e.count, e.self_cpu_memory_usage) for e in prof.key_averages()]
    return sorted((e for e in events if e[2] > 0), key=lambda e: (-e[2], e[0]))


def of_flex(prof: Any, said: Sequence[Any], n: int) -> dict[str, str]:
    """What of the scores is in memory, by what the products made; and how often a warning came.

    said: the warnings of two calls. FlexAttention remembers that it has warned, so a second run of the cell hears nothing.
    """
    from torch.nn.attention import flex_attention

    made = max(size for name, _, size in _largest(prof) if "bmm" in name)
    share = made / (4 * n * n)
    heard = sum("without torch.compile" in str(w.message) for w in said)
    before = "flex_attention_performance" in getattr(flex_attention, "_WARNINGS_SHOWN", ())
    return {
        "scores in memory, without compile": "all" if share >= 1 else "a third" if share > 0.3 else "none",
        "FlexAttention says so": "at each call" if heard > 1 else "once" if heard or before else "not at all",
    }


def largest(prof: Any, same: bool) -> Table:
    rows = [
        (short(name.replace("::", ".")), f"{n}", f"{size / MIB:.2f}") for name, n, size in _largest(prof)[:5]
    ]
    caption = f"the result is {'that' if same else 'not that'} of SDPA with the mask as a tensor"
    return table(rows, ["operator", "calls", "new memory, MiB"], evidence=LIVE, caption=caption)


# --- Further -------------------------------------------------------------------------------------------------------


def loss_step(way: Callable[..., Any]) -> Counts:
    """One loss of 1,024 tokens of width 64 over 8,000 words, with its backward."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(1024, 64, requires_grad=True), torch.randn(8000, 64, requires_grad=True)
    return count(way, hidden, weight, torch.randint(8000, (1024,)))


LOGITS = 4 * 1024 * 8000


def of_losses(losses: Mapping[str, Counts]) -> dict[str, str]:
    whole, chunks = (counts.peak_live_bytes for counts in losses.values())
    share = chunks / whole
    return {
        "at once: logits at the peak": f"{round(whole / LOGITS)} ×",
        "in chunks of 64: peak": "less than a quarter"
        if share < 0.23
        else "a quarter"
        if share < 0.37
        else "a half of that",
    }


def loss_costs(losses: Mapping[str, Counts]) -> Table:
    rows = [
        (name, f"{c.peak_live_bytes / MIB:.1f}", f"{c.flops / 1e9:.2f}", f"{c.operators}")
        for name, c in losses.items()
    ]
    caption = f"1,024 tokens, 8,000 words: the logits are {LOGITS / MIB:.1f} MiB, the weight {4 * 8000 * 64 / MIB:.1f}"
    return table(rows, ["loss", "peak, MiB", "GFLOPs", "operators"], evidence=LIVE, caption=caption)


def lengths_of_texts() -> list[int]:
    """Tokens of sixteen texts, most of them short, the longest of 256."""
    return [*uneven(15, 256, seed=3), 256]


def padding(flops: Mapping[str, int]) -> Table:
    rows = [(name, f"{n:,}") for name, n in flops.items()]
    return table(rows, ["batch", "FLOPs of a linear layer"], evidence=LIVE)


def of_groups(counts: Mapping[str, Counts]) -> dict[str, str]:
    every, repeated, grouped = counts.values()
    return {
        "FLOPs": "as many" if grouped.flops == every.flops else "a quarter",
        "bytes newly allocated, by enable_gqa": "fewer"
        if grouped.bytes_allocated < repeated.bytes_allocated
        else "as many",
    }


def groups(counts: Mapping[str, Counts]) -> Table:
    rows = [(name, f"{c.flops:,}", f"{c.bytes_allocated:,}", f"{c.copies}") for name, c in counts.items()]
    return table(rows, ["attention", "FLOPs", "new bytes", "copies"], evidence=LIVE)
