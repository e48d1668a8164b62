"""Lesson 07's claims on trial: communication and speed as its sections measured them, structure, and reduce-overhead."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.lesson.claim import Claim
from helpers.lessons.cuda_graphs import experiments


def on_trial(loops: Mapping[str, experiments.Loop], gain: Mapping[int, float]) -> list[Claim]:
    """All claims of the lesson. loops: eager and replayed, of section 1; gain: eager ÷ replayed for each batch, of section 3."""
    eager, replayed = loops["eager"], loops["replayed"]
    return [
        Claim(
            "07-communication",
            "guide",
            "CUDA graphs reduce the overhead of communication between CPU and GPU",
            f"launches of a step {eager.launches} → {replayed.launches}; bytes copied to the GPU "
            f"{eager.copied:,} → {replayed.copied:,}",
            "partly: holds when communication means launches; as many bytes are copied as before"
            if replayed.launches < eager.launches and eager.copied == replayed.copied
            else "refuted",
            "1 · One launch for a whole step",
        ),
        Claim(
            "07-several-times",
            "guide",
            "several times faster for models of many small operators",
            ", ".join(f"batch {b:,}: {gain[b]:.1f} times" for b in (64, 256, 1024, 4096)),
            "confirmed: where launches take longer than kernels; else the gain is 1"
            if gain[64] > 2 > 1.1 > gain[4096]
            else "refuted",
            "3 · When does it help?",
        ),
        structure(),
        reduce_overhead(),
    ]


def structure() -> Claim:
    """Three training loops whose structure stays the same, each with a mistake, and a correct one."""
    eager = experiments.training_run(graphed=False)
    wrong = [mistake for mistake in experiments.MISTAKES if experiments.training_run(mistake) != eager]
    return Claim(
        "07-structure",
        "guide",
        "made for a model whose structure stays the same from step to step",
        f"of {len(experiments.MISTAKES)} programs with a fixed structure, but an address or a number that changes, {len(wrong)} "
        "were wrong, without an error; the correct one equals eager to the bit: "
        + ("yes" if experiments.training_run() == eager else "no"),
        "partly: holds when addresses and CPU numbers stay the same too; structure alone is not enough"
        if wrong
        else "confirmed",
        "Three mistakes in a training loop",
    )


def reduce_overhead() -> Claim:
    """The mode's options, and what it does on this CPU."""
    options, skipped = experiments.reduce_overhead()
    return Claim(
        "07-reduce-overhead",
        "book-notes",
        "the mode reduce-overhead switches CUDA graphs on",
        f"options of the mode: {options}; not run on a GPU. What cannot be captured is skipped without a message, as here for this CPU: {skipped}",
        "confirmed: it sets the option; what cannot be captured runs without a graph"
        if "triton.cudagraphs = True" in options
        else "refuted: it does not set the option",
        "Graphs that others make",
    )
