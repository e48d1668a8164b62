"""Claims on trial in lesson 06. Those measured in the lesson itself are handed their measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.lesson.claim import Claim
from helpers.lessons.optimizers import experiments
from helpers.simulator.stretch import Stretch

_SECTIONS = "1 · Three ways to the same numbers", "2 · Launches or bytes?"


def on_trial(
    steps: Mapping[str, Stretch], sizes: Sequence[int], times_as_fast: Mapping[str, float]
) -> list[Claim]:
    """Every claim of the lesson.

    steps: way → one step over parameters of these sizes. times_as_fast: fused against the for-loop, with one parameter
    and with many, under those names.
    """
    kernels = {way: len(step.kernels) for way, step in steps.items()}
    return [
        three_for_each(),
        trade_off(steps, sizes, times_as_fast),
        fused_launches(kernels, len(sizes)),
        batch(),
        learning_rate(),
    ]


def three_for_each() -> Claim:
    """The optimizers whose signatures have the options."""
    everything, foreach, fused = (experiments.optimizers_with(option) for option in ("", "foreach", "fused"))
    all_three = [name for name in fused if name in foreach]
    return Claim(
        "06-three-for-each",
        "book-notes",
        "every optimizer has three implementations",
        f"of {len(everything)} optimizers in torch.optim {len(foreach)} take foreach=, {len(fused)} fused=",
        "confirmed"
        if len(everything) == len(all_three)
        else f"partly: holds for {', '.join(all_three)}; the others have no fused one"
        if all_three
        else "refuted",
        _SECTIONS[0],
    )


def trade_off(
    steps: Mapping[str, Stretch], sizes: Sequence[int], times_as_fast: Mapping[str, float]
) -> Claim:
    """Kernels, temporaries and time of the three ways."""
    kernels = {way: len(step.kernels) for way, step in steps.items()}
    temporary = {way: step.temporary / 4 / sum(sizes) for way, step in steps.items()}
    fused_wins = kernels["fused"] < kernels["foreach"] and temporary["fused"] < temporary["for-loop"]
    fast = ", ".join(f"{ratio:.1f} times as fast with {name}" for name, ratio in times_as_fast.items())
    return Claim(
        "06-trade-off",
        "book-notes",
        "the three trade speed against memory",
        f"{len(sizes)} parameters: kernels {' / '.join(str(n) for n in kernels.values())}, temporaries "
        f"{' / '.join(f'{t:.2f}' for t in temporary.values())} copies of the weights; fused against the for-loop: {fast}",
        "partly: holds when for-loop and foreach are compared over many parameters; fused has the fewest kernels, the fewest bytes "
        "and no temporaries"
        if fused_wins
        else "confirmed",
        " and ".join(_SECTIONS),
    )


def fused_launches(kernels: Mapping[str, int], parameters: int) -> Claim:
    """kernels: way → how many a step launches."""
    return Claim(
        "06-fused-launches",
        "five-strategies",
        "FusedAdam reduces kernel launches",
        f"AdamW with torch's own fused=True, not Apex's FusedAdam: {kernels['for-loop']} → {kernels['fused']} for {parameters} parameters "
        f"(foreach: {kernels['foreach']})",
        "confirmed: so it is for torch's fused AdamW; Apex's FusedAdam was not run"
        if kernels["fused"] < kernels["foreach"]
        else "refuted",
        _SECTIONS[0],
    )


def batch() -> Claim:
    """Samples a second of a training step from batch 1 to 65,536."""
    rate = {b: b / experiments.training_step(b).seconds for b in (1, 1024, 16384, 65536)}
    rises, flat = rate[1024] / rate[1], rate[65536] / rate[16384]
    return Claim(
        "06-batch",
        "book-notes",
        "batch size raises the efficiency of operators through parallelism",
        f"samples per second: {rises:,.0f} times from batch 1 to 1,024, {flat:.2f} times from 16,384 to 65,536",
        "partly: holds up to some thousand samples, but less and less once the kernels take longer than the launches; "
        "then time grows with the batch"
        if rises > 10 and flat < 1.2
        else "confirmed",
        "What a larger batch buys",
    )


def learning_rate() -> Claim:
    """The powers of the batch that the best learning rates follow from 8 to 128."""
    sgd, adam = experiments.exponent("SGD"), experiments.exponent("Adam")
    return Claim(
        "06-learning-rate",
        "five-strategies",
        "scale the learning rate in proportion to the batch",
        f"best rate ∝ batch to the power {sgd:.2f} (SGD), {adam:.2f} (Adam), from 8 to 128",
        "partly: holds when the optimizer is SGD and noise rules; for Adam nearer to the square root"
        if sgd > 0.8 > 0.7 > adam
        else "untested: this run did not tell the two apart",
        "What a larger batch asks of the learning rate",
    )
