"""Lesson 17's claims on trial: the headlines of two sources, on models of known size."""

from __future__ import annotations

from functools import cache

import torch

from helpers import simulate
from helpers.lesson.claim import Claim
from helpers.lessons.capstone.reference_repair import shown
from helpers.lessons.capstone.reference_repair.models import OPTIONS, TASKS, Net, Way, rungs_of
from helpers.plots.ladders import Rung
from helpers.text.seconds import format_seconds

HERE = "Further: two models of a known size"
GB = 1e9


def on_trial(bert: list[Rung], gpt2: list[Rung]) -> list[Claim]:
    """bert, gpt2: what each rung of the reference ladders came to, the plain step first."""
    return [_hours(), _on_the_v100(), _compiled_time(bert, gpt2), _compiled_memory(bert, gpt2)]


# --- BERT-base on a V100 ------------------------------------------------------------------------------------------


@cache
def on_v100() -> dict[str, tuple[float, int]]:
    """A warm step of BERT-base on a simulated V100: way → seconds, most bytes that the allocator had from the device.

    The card has no bf16 and no TF32 on its Tensor Cores: autocast to fp16, with a scaler.
    """
    plain, repaired = Way(), next(rung.way for rung in rungs_of(TASKS["bert"]) if rung.says == "fused AdamW")
    return {
        "plain fp32": _step(plain, False),
        "autocast to fp16": _step(plain, True),
        "four repairs (up to fused AdamW)": _step(repaired, True),
    }


def _step(way: Way, half: bool) -> tuple[float, int]:
    gpu, task = simulate("V100"), TASKS["bert"]
    with gpu:
        torch.manual_seed(0)
        with torch.device(gpu.device):
            net = Net(task, way)
        adamw, batches, start = torch.optim.AdamW(net.parameters(), **OPTIONS[way.adamw]), task.batches(), 0.0
        scaler = torch.amp.GradScaler("cuda", enabled=half)
        for step in range(2):
            if step:  # the first one makes the optimizer's state
                gpu.synchronize()
                gpu.reset_peak_memory_stats()
                start = gpu.clock()
            inputs, targets = way.send(next(batches), gpu)
            with torch.autocast("cuda", torch.float16, enabled=half):
                loss, _ = net(inputs, targets)
            adamw.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(adamw)
            way.clip(net)
            scaler.step(adamw)
            scaler.update()
        gpu.synchronize()
        return gpu.clock() - start, gpu.max_memory_reserved()


def _hours() -> Claim:
    (plain, _), *others = on_v100().values()
    ways, promised = list(on_v100())[1:], 12 / 3.2
    times = {way: plain / seconds for way, (seconds, _) in zip(ways, others, strict=True)}
    kept = [way for way, ratio in times.items() if ratio >= promised]
    return Claim(
        "17-bert", "five-strategies",
        "BERT-base pre-training: from 12 hours an epoch to 3.2",
        f"{promised:.2f} times. Simulated, a training step of a model of that size with a classifier: "
        + ", ".join(f"{way} {ratio:.1f} times as fast" for way, ratio in times.items()),
        "confirmed" if len(kept) == len(times) else "refuted" if not kept
        else f"partly: holds with {kept[0]} in one GPU's step, as simulated; the source's script, batch, data and number of GPUs are not given",
        HERE,
    )  # fmt: skip


def _on_the_v100() -> Claim:
    (_, plain), *others = on_v100().values()
    memory = {way: nbytes for way, (_, nbytes) in zip(list(on_v100())[1:], others, strict=True)}
    kept = [way for way, nbytes in memory.items() if nbytes <= plain * 14 / 22]
    return Claim(
        "17-bert-memory", "five-strategies",
        "BERT-base pre-training: from 22 GB to 14 (V100)",
        f"simulated, 32 texts of 512 tokens: plain fp32 {plain / GB:.1f} GB, "
        + ", ".join(f"{way} {nbytes / GB:.1f}" for way, nbytes in memory.items()),
        "confirmed" if len(kept) == len(memory) else "refuted" if not kept
        else f"partly: holds with {kept[0]}, as simulated; the source's script and batch are not given",
        HERE,
    )  # fmt: skip


# --- torch.compile alone ------------------------------------------------------------------------------------------


def _compiled(ladder: list[Rung]) -> tuple[Rung, Rung]:
    """The rungs before and behind torch.compile."""
    at = next(i for i, rung in enumerate(ladder) if rung.name == "compiled")
    return ladder[at - 1], ladder[at]


def _one_kernel(operators: int) -> float:
    """How many times as fast one kernel is as so many pointwise operators, on 16 MiB and a simulated H100."""
    gpu = simulate("H100")
    with gpu:
        x = torch.empty(2**22, device=gpu.device)
        torch.relu(x)
        lasted = []
        for n in (operators, 1):
            gpu.synchronize()
            start, y = gpu.clock(), x
            for _ in range(n):
                y = torch.relu(y)
            gpu.synchronize()
            lasted.append(gpu.clock() - start)
    return lasted[0] / lasted[1]


def _of(ladder: str) -> str:
    """ "BERT-base, recorded": a ladder's model, and where its figures come from."""
    model = {"bert": "BERT-base", "gpt2": "GPT-2"}[ladder]
    return f"{model}, {shown.evidence(ladder).partition(' ')[0]}"


def _compiled_time(bert: list[Rung], gpt2: list[Rung]) -> Claim:
    promised, chain = 800 / 200, 12
    ratios = {_of(name): times(*_compiled(ladder)) for name, ladder in (("bert", bert), ("gpt2", gpt2))}
    before, after = _compiled(gpt2)
    ratios[f"{chain} pointwise operators as one kernel, simulated"] = _one_kernel(chain)
    kept = [name for name, ratio in ratios.items() if ratio >= promised]
    return Claim(
        "17-compile", "compile-300", "torch.compile: a step takes 200 ms instead of 800 (400 %)",
        "torch.compile alone: " + "; ".join(f"{name}: {ratio:.2f} times as fast" for name, ratio in ratios.items())
        + f" (GPT-2: {format_seconds(before.seconds)} to {format_seconds(after.seconds)})",
        "refuted" if not kept else "confirmed" if len(kept) == len(ratios)
        else f"partly: of these three, only {' and '.join(name.rpartition(',')[0] for name in kept)} become 4 times as fast",
        HERE,
    )  # fmt: skip


def _compiled_memory(bert: list[Rung], gpt2: list[Rung]) -> Claim:
    shares = {_of(name): share(*_compiled(ladder)) for name, ladder in (("bert", bert), ("gpt2", gpt2))}
    kept = [name.partition(",")[0] for name, part in shares.items() if part <= 6 / 12]
    best, stay = min(shares, key=shares.__getitem__), "weights, gradients and optimizer states are not fewer"
    return Claim(
        "17-compile-memory", "compile-300", "torch.compile: 6 GB of GPU memory instead of 12 (50 %)",
        "torch.compile alone: " + "; ".join(f"{name}: {part:.0%} of the memory" for name, part in shares.items()),
        "confirmed" if len(kept) == len(shares) else f"partly: holds on {' and '.join(kept)}; {stay}" if kept
        else f"partly: {1 - shares[best]:.0%} less on {best.partition(',')[0]}, and not 50 %; {stay}" if shares[best] < 0.75
        else "refuted",
        HERE,
    )  # fmt: skip


def times(first: Rung, rung: Rung) -> float:
    """How many times as fast."""
    return first.seconds / rung.seconds


def share(first: Rung, rung: Rung) -> float:
    """Of the first one's memory."""
    return rung.nbytes / first.nbytes
