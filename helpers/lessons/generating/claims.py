"""Lesson 20's claims on trial."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch.profiler import profile

from helpers.lesson.claim import Claim
from helpers.lessons.generating import on_card
from helpers.lessons.generating.batching import lengths, reserved
from helpers.lessons.generating.experiments import recorded_gains
from helpers.simulator.devices import device


def on_trial() -> list[Claim]:
    """All claims of the lesson."""
    return [bandwidth(), static_cache(), no_sync(), exact(), blocks()]


def bandwidth() -> Claim:
    """How much of a token's traffic is weights, and how near the card's peak it goes."""
    cost = on_card.cost("7B", card="A100", graph=True)
    share = on_card.weights("7B") / cost.bytes
    used = on_card.weights("7B") / cost.seconds / device("A100").memory_bytes_per_s
    numbers, rate, peak = 6.74e9, 107.0, 2e12  # as the post counts: Llama-2 7B, two bytes a number, "2 TB/s"
    return Claim(
        "20-bandwidth",
        "gpt-fast",
        "one sequence at a time, reading the weights is the limit: 107.0 tokens a second are 72 % of an A100's bandwidth",
        f"the post: 6.74 billion numbers × 2 bytes × 107 ÷ 2 TB/s = {2 * numbers * rate / peak:.0%}. A model of 7B, simulated A100, one graph a "
        f"token: weights are {share:.0%} of the bytes; {1 / cost.seconds:.0f} tokens a second, {used:.0%} of the data sheet's bandwidth",
        "refuted" if share < 0.9
        else "partly: reading weights is the limit; the rate could only be simulated, and is within a tenth" if abs(1 / cost.seconds / rate - 1) < 0.1
        else "partly: reading weights is the limit; the rate could only be simulated, and is another",
        "1 · One token",
    )  # fmt: skip


def static_cache() -> Claim:
    """A token at the start and at the end of a text: with a cache that grows, in eager steps, as the source begins; and as it ends."""
    at = [(name, place) for name in ("GPT-2", "7B") for place in (31, 1023)]
    before = {where: on_card.cost(*where[:1], place=where[1], way="growing", card="A100") for where in at}
    after = {where: on_card.cost(*where[:1], place=where[1], card="A100", graph=True) for where in at}
    gains = {where: before[where].seconds / after[where].seconds for where in at}
    reached = [where for where in at if gains[where] > 4]
    fewer = all(after[where].launches < before[where].launches for where in at)
    said = "; ".join(
        f"{name} {before[name, 31].launches} → {after[name, 31].launches} launches, "
        f"{gains[name, 31]:.1f} and {gains[name, 1023]:.1f} times as fast"
        for name in ("GPT-2", "7B")
    )
    real = recorded_gains()  # of the graph alone: both are static
    shown = ", ".join(f"{name} {real[name, 1]:.1f}" for name in ("GPT-2", "7B"))
    most = [name for name in ("GPT-2", "7B") if real[name, 1] > 4]
    return Claim(
        "20-static-cache",
        "gpt-fast",
        "torch.compile and a static cache reduce the CPU's overhead: more than 4 times as many tokens a second (25.5 → 107.0)",
        f"simulated A100, a cache that grows, in eager steps → a static cache and one graph, at token 32 and at 1,024: {said}. Recorded H100, "
        f"a static cache, eager → one graph: {shown} times as fast",
        "refuted" if not fewer and not reached and not most
        else "confirmed" if fewer and len(reached) == len(at)
        else "partly: the launches go. What that gains depends on the CPU: the post's machine cannot be compared with the recorded one" if most == ["GPT-2"] and not reached
        else f"partly: more than 4 times for {len(reached)} of {len(at)} simulated and {len(most)} of 2 recorded",
        "3 · A loop without a wait",
    )  # fmt: skip


def asked_inside(draw: Callable[[], object]) -> tuple[int, int]:
    """How often draw() asks the device for a number, by torch.profiler: outside of `_assert_async`, and inside of it.

    On a CUDA GPU `_assert_async` is a kernel, and nobody waits for it (aten/src/ATen/native/cuda/TensorCompare.cu).
    """
    with profile() as seen:
        draw()
    plain = inside = 0
    for event in seen.events() or ():
        if event.name == "aten::_local_scalar_dense":
            parents, parent = [], event.cpu_parent
            while parent is not None:
                parents.append(parent.name)
                parent = parent.cpu_parent
            inside += "aten::_assert_async" in parents
            plain += "aten::_assert_async" not in parents
    return plain, inside


def no_sync() -> Claim:
    """Whether torch.multinomial asks for a number, and the draw by exponentials does not."""
    shares = torch.rand(1, 100).softmax(-1)
    plain, inside = asked_inside(lambda: torch.multinomial(shares, 1))
    own = sum(asked_inside(lambda: (shares / torch.empty_like(shares).exponential_(1)).argmax(-1)))
    return Claim(
        "20-no-sync",
        "gpt-fast",
        "torch.multinomial makes the CPU wait; argmax(shares ÷ exponential noise) draws a token without a wait",
        f"questions for a number: torch.multinomial {plain}, and {inside} in `_assert_async`, which is a kernel on a CUDA "
        f"GPU; argmax {own}",
        "refuted"
        if own
        else "partly: argmax draws without a wait; in this PyTorch torch.multinomial does not wait on a CUDA GPU either"
        if not plain
        else "confirmed",
        "Sampling without a wait",
    )


def exact() -> Claim:
    """The rule of acceptance, added up for every token."""
    large, small = ([Fraction(n, 12) for n in numbers] for numbers in ((6, 3, 2, 1), (3, 3, 1, 5)))
    kept = [min(p, q) for p, q in zip(large, small, strict=True)]
    rest = [p - k for p, k in zip(large, kept, strict=True)]
    drawn = [k + (1 - sum(kept)) * r / sum(rest) for k, r in zip(kept, rest, strict=True)]
    off = max(abs(d - p) for d, p in zip(drawn, large, strict=True))
    return Claim(
        "20-exact",
        "gpt-fast",
        "speculative decoding gives results that are mathematically identical to the large model's",
        f"four tokens, all ways to draw added up as fractions: the shares are off by {off}",
        "confirmed: the same distribution, that is; one draw may give another token"
        if off == 0
        else "refuted",
        "Guess, then check",
    )


def blocks() -> Claim:
    """What of a cache holds no token, by how long texts get: room for 1,024 places at once, and blocks of 16."""
    whole, paged, means = list[float](), list[float](), list[float]()
    for mean in (64, 128, 256):  # that which is drawn from; those that are drawn have another
        tokens = lengths(64, mean=mean)
        means.append(sum(tokens) / len(tokens))
        used = reserved(tokens, 1, 1024)
        whole.append(1 - used / reserved(tokens, 1024, 1024))
        paged.append(1 - used / reserved(tokens, 16, 1024))
    said = [", ".join(f"{share:.0%}" for share in shares) for shares in (whole, paged)]
    return Claim(
        "20-blocks",
        "vllm",
        "systems before it waste 60 to 80 % of the cache's memory; in blocks under 4 % are wasted",
        f"texts of {means[0]:.0f}, {means[1]:.0f} and {means[2]:.0f} tokens on average, at most 1,024, over all their steps: room for all "
        f"places at once wastes {said[0]}; blocks of 16 waste {said[1]}",
        "partly: holds for longer texts; with short ones both waste more"
        if min(whole) > 0.6 and min(paged) < 0.04 < max(paged)
        else "confirmed"
        if min(whole) > 0.6 and max(paged) < 0.04
        else "refuted",
        "A cache in blocks",
    )
