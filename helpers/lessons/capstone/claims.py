"""Lesson 17's claims on trial: the headlines of two sources, beside the reference ladders of models of known size."""

from __future__ import annotations

from helpers.lesson.claim import Claim
from helpers.plots.ladders import Rung
from helpers.text.seconds import format_seconds

HERE = "Further: two models of a known size"


def on_trial(bert: list[Rung], gpt2: list[Rung]) -> list[Claim]:
    """bert, gpt2: what each rung of the reference ladders came to, the plain step first."""
    return [_all_together(bert), _compile_alone(gpt2)]


def _all_together(ladder: list[Rung]) -> Claim:
    promised, left = 12 / 3.2, 14 / 22
    fits = [rung for rung in ladder if times(ladder[0], rung) >= promised and share(ladder[0], rung) <= left]
    last = ladder[-1]
    measured = f"BERT-base, simulated, all rungs: {times(ladder[0], last):.1f} times as fast with {share(ladder[0], last):.0%} of the memory"
    if fits:
        measured += f"; the first rung that keeps both promises: {fits[0].name}, {times(ladder[0], fits[0]):.1f} times"
    return Claim(
        "17-bert", "five-strategies", f"all of it together takes BERT-base from 12 to 3.2 h an epoch and from 22 to 14 GB: {promised:.2f} times as fast with {left:.0%} of the memory",
        measured,
        "partly: holds when the plain step computes in float32 by hand, on a GPU with Tensor Cores; the source's script, batch and number of GPUs are not given"
        if fits
        else "refuted on this ladder: no rung keeps both promises",
        HERE,
    )  # fmt: skip


def _compile_alone(ladder: list[Rung]) -> Claim:
    promised, left = 800 / 200, 6 / 12
    at = next(i for i, rung in enumerate(ladder) if rung.name == "compiled")
    before, after = ladder[at - 1], ladder[at]
    alone, memory = times(before, after), share(before, after)
    measured = (
        f"GPT-2, simulated, torch.compile on the repaired step: {alone:.2f} times as fast "
        f"({format_seconds(before.seconds)} to {format_seconds(after.seconds)}) with {memory:.0%} of the memory; "
        f"with all rungs before it {times(ladder[0], after):.1f} times with {share(ladder[0], after):.0%}"
    )
    kept = {"the time": alone >= promised, "the memory": memory <= left}
    verdict = (
        "confirmed"
        if all(kept.values())
        else f"partly: {max(kept, key=kept.__getitem__)} is as promised, {min(kept, key=kept.__getitem__)} is not; the source's model is not given"
        if any(kept.values())
        else "refuted for this model: most of a step are products, which torch.compile does not make faster"
    )
    return Claim(
        "17-compile", "compile-300", f"torch.compile takes a step from 800 to 200 ms and from 12 to 6 GB: {promised:.0f} times as fast with {left:.0%} of the memory",
        measured, verdict, HERE,
    )  # fmt: skip


def times(first: Rung, rung: Rung) -> float:
    """How many times as fast."""
    return first.seconds / rung.seconds


def share(first: Rung, rung: Rung) -> float:
    """Of the first one's memory."""
    return rung.nbytes / first.nbytes
