"""Lesson 17's claims on trial: the headlines of two sources, beside what a script with known faults gave."""

from __future__ import annotations

from helpers.capstone.scores import Score

Row = tuple[str, str, str, str, str, str]
HERE = "5 · The ladder"


def headlines(before: Score, after: Score) -> list[Row]:
    """before, after: the capstone's script as it was, and with the repairs that are written."""
    times, less = before.step_s / after.step_s, 1 - after.peak_bytes / before.peak_bytes
    ours = f"the capstone's script, with the lesson's own repairs: {times:.1f} times as fast, {less:.0%} less memory"
    return [
        _judged("17-bert", "five-strategies", "BERT-base: from 12 to 3.2 hours an epoch, from 22 to 14 GB", 12 / 3.2, 1 - 14 / 22, times, less, ours),
        _judged("17-compile", "compile-300", "steps from 800 to 200 ms, memory from 12 to 6 GB", 800 / 200, 1 - 6 / 12, times, less, ours),
    ]  # fmt: skip


def _judged(
    name: str, source: str, claim: str, said: float, said_less: float, times: float, less: float, ours: str
) -> Row:
    """said, said_less: the source's; times, less: ours, of another script."""
    measured = f"arithmetic: {said:.2f} times as fast, {said_less:.0%} less; {ours}"
    reached = times >= said and less >= said_less
    verdict = (
        "untested: its script is not given; such factors are within reach where the script is slow enough"
        if reached
        else "untested: its script is not given; the factor follows from how slow that was"
    )
    return name, source, claim, measured, verdict, HERE
