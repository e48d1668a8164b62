"""Lesson 07's claims about a structure that stays the same, and about the mode reduce-overhead."""

from __future__ import annotations

from helpers.lesson.claim import Claim
from helpers.lessons.cuda_graphs import experiments


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
        "partly: holds when shapes, addresses and CPU numbers stay the same too; structure alone is not enough"
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
        f"options of the mode: {options}; compiled for this CPU: {skipped} skipped, no message",
        "partly: holds when the device is a GPU and the graph can be captured; on a CPU it is skipped silently"
        if "triton.cudagraphs = True" in options and skipped
        else "untested: this version names the option otherwise",
        "Graphs that others make",
    )
