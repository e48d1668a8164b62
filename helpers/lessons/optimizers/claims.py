"""Lesson 06's claims about the batch and the learning rate."""

from __future__ import annotations

from helpers.lesson.claim import Claim
from helpers.lessons.optimizers import experiments


def batch() -> Claim:
    """Samples a second of a training step from batch 1 to 65,536."""
    rate = {b: b / experiments.training_step(b).seconds for b in (1, 1024, 16384, 65536)}
    rises, flat = rate[1024] / rate[1], rate[65536] / rate[16384]
    return Claim(
        "06-batch",
        "book-notes",
        "batch size raises the efficiency of operators through parallelism",
        f"samples per second: {rises:,.0f} times from batch 1 to 1,024, {flat:.2f} times from 16,384 to 65,536",
        "partly: holds when the kernels take less time than the launches, and a little beyond; then time grows with the batch"
        if rises > 10 and flat < 1.2
        else "confirmed",
        "What a larger batch buys",
    )


def learning_rate() -> Claim:
    """The best learning rate at batches 8 and 128."""
    sgd, adam = experiments.exponent("SGD"), experiments.exponent("Adam")
    return Claim(
        "06-learning-rate",
        "five-strategies",
        "scale the learning rate in proportion to the batch",
        f"best rate ∝ batch to the power ≈ {sgd:.1f} (SGD), ≈ {adam:.1f} (Adam), from 8 to 128",
        "partly: holds when the optimizer is SGD and noise rules; for Adam nearer to the square root"
        if sgd > 0.8 > 0.7 > adam
        else "untested: this run did not tell the two apart",
        "What a larger batch asks of the learning rate",
    )
