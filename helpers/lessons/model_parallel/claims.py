"""Lesson 16's claims on trial: a product that is cut, where it stops paying, a pipeline, both together."""

from __future__ import annotations

import math

from helpers.lesson.claim import Claim
from helpers.lessons.model_parallel import experiments
from helpers.lessons.model_parallel.experiments import Step


def on_trial(gathered: Step, paired: Step) -> list[Claim]:
    """All of the lesson's claims. gathered, paired: steps of the MLP split in two ways."""
    return [gather(gathered, paired), one_machine(), one_layer(), mixed()]


def gather(gathered: Step, paired: Step) -> Claim:
    """Bytes of a step, with a gather after each product and without."""
    sent = [step[1].wire_bytes() for step in (gathered, paired)]
    equal = gathered[0]
    return Claim(
        "16-gather",
        "book-notes",
        "a product that is too large is cut over the GPUs, and an all-gather puts the result together",
        f"an MLP's step so: {'right' if equal else 'not right'}, {sent[0]:,.0f} bytes on the wire; columns then rows, one all-reduce each "
        f"way: {sent[1]:,.0f}",
        "confirmed: and two products in a row need nothing between them" if equal else "refuted",
        "1 · Split a matrix product",
    )


def one_machine() -> Claim:
    """How many times as fast as one GPU are one node of 8, and 16 GPUs in two nodes, by two networks, or on one NVLink."""
    node, across, thin = (
        experiments.gain(network, n)
        for network, n in ((experiments.ON_NDR, 8), (experiments.ON_NDR, 16), (experiments.ON_100G, 16))
    )
    inside = experiments.gain(experiments.ON_NDR, 16, 16)
    return Claim(
        "16-one-machine",
        "book-notes",
        "limited network bandwidth severely hinders the efficiency of tensor parallelism, so that it is usually used only within one machine with NVLink",
        f"times as fast as one GPU (width 8,192): a node of 8: {node:.1f}; 16 GPUs in two such nodes: {across:.1f} with 400 Gbit/s a GPU, "
        f"{thin:.1f} with 100; 16 on one NVLink: {inside:.1f}. Two copies, each on its node, would do up to {2 * node:.0f} times the work",
        "partly: holds as a rule, for a second node adds less than half at 400 Gbit/s a GPU and costs time at 100; not by the link alone, for 16 GPUs "
        "on one NVLink are hardly faster"
        if thin < node and across < 1.5 * node and inside < 1.2 * across
        else "confirmed" if across < 1.5 * node
        else "refuted",
        "Further · Which link can bear it?",
    )  # fmt: skip


def one_layer() -> Claim:
    """A step of AdamW on a card of 3 GiB: two matrices that a pipeline can part, one that it cannot, and the same cut in eight."""
    width = 8192
    fits = {
        "two of 8,192 × 16,384 on one card": experiments.step_fits([(width, 2 * width), (2 * width, width)]),
        "a stage of a pipeline, with one of them": experiments.step_fits([(width, 2 * width)]),
        "a stage with one of 8,192 × 32,768": experiments.step_fits([(width, 4 * width)]),
        "the same cut in eight by columns": experiments.step_fits([(width, 4 * width // 8)]),
    }
    # at 16 bytes a parameter
    widest = [math.isqrt(int(80e9 * tp / (16 * 4))) for tp in (1, 8)]
    parted, alone = list(fits.values())[1:3]
    return Claim(
        "16-one-layer",
        "book-notes",
        "a pipeline cannot help when one layer, as a large matrix product, does not fit on a GPU",
        "a step on a simulated card of 3 GiB: " + ", ".join(f"{what}: {'fits' if fit else 'out of memory'}" for what, fit in fits.items())
        + f". Of 80 GB a matrix of 4 h² and its states takes all at h = {widest[0]:,}, cut in eight at {widest[1]:,}",
        "confirmed; cut as tensor parallelism does it, the matrix fits"
        if list(fits.values()) == [False, True, False, True]
        else "refuted" if parted and alone else "partly: holds for some sizes",
        "Sources on trial",
    )  # fmt: skip


def mixed() -> Claim:
    """GB of 39 billion parameters on one GPU, and by data and model parallelism on 64."""
    alone = 16 * 12 * 48 * 8192**2
    # with sequence parallelism; tp 8 · pp 4: 4 micro-batches of one sequence alive on the first stage, of 12 layers each
    split = alone / 32 + 4 * 34 * 2048 * 8192 * 12 / 8
    sharded = alone / 64 + 34 * 2048 * 8192 * 48 + 48 * 8192**2  # and two whole layers
    return Claim(
        "16-mixed",
        "five-strategies",
        "data and model parallelism combined handle very large models",
        f"39 B parameters: weights and states {alone / 1e9:,.0f} GB, of 80 GB a GPU, so a whole copy does not fit; "
        f"on 64 GPUs as dp 2 · pp 4 · tp 8 a GPU holds {split / 1e9:,.0f} GB; sharded over all 64, with one sequence, {sharded / 1e9:,.0f} GB",
        "confirmed; sharding the states (lesson 15) makes it fit, too"
        if split < 80e9 < alone
        else "partly: it fits, and so it does without model parallelism"
        if split < 80e9
        else "refuted",
        "3 · Lay it over the machine",
    )
