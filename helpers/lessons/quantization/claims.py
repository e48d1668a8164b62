"""Lesson 13's claims on trial: sizes for int8 products, faster inference, int4 without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from helpers.lesson.claim import Claim
from helpers.lessons.quantization.experiments import Gains, Spirals, over_4096

#: M, K and N of products
_SHAPES = [(1, 64, 64), (16, 64, 64), (17, 64, 64), (17, 8, 24), (33, 100, 12), (64, 65, 20)]


def of_nets(gain: Gains, recorded: Gains, spirals: Spirals) -> list[Claim]:
    """Faster inference, and int4 without loss. gain, recorded: simulated and on the H100."""
    exact = spirals.exact()
    unrounded = spirals.right(exact)
    # bits → right answers lost, in percentage points: rounded after the training, and trained with the rounding
    after = {bits: unrounded - spirals.right(exact, bits) for bits in (8, 4)}
    nets = {bits: spirals.trained(exact, 80, 0.003, bits) for bits in (8, 4)}
    aware = {bits: unrounded - spirals.right(net, bits) for bits, net in nets.items()}
    return [_faster_inference(gain, recorded, after[8], aware[8]), _int4(after[4], aware[4])]


def multiples_of_16(on_gpu: Sequence[Mapping[str, Any]]) -> Claim:
    """on_gpu: what on_real_gpu() gave."""
    right = {shape: _is_right(*shape) for shape in _SHAPES}
    odd = [shape for shape in _SHAPES if any(n % 16 for n in shape)]
    slower, sixteen = (over_4096(on_gpu, size) for size in (4104, 4112))
    return Claim(
        "13-multiples-of-16",
        "guide",
        "to make full use of Tensor Cores, make matrix sizes multiples of 16 for INT8",
        f"CPU: {sum(right[shape] for shape in odd)} of {len(odd)} products with other sizes right; on the GPU 4,104, a multiple of 8 alone, "
        f"is taken, and takes ≈ {slower:.1f} times as long as 4,096; 4,112, a multiple of 16 and not of 32, ≈ {sixteen:.1f} times",
        "partly: multiples of 8 are taken too, and hardly slower"
        if slower < 1.1
        else "partly: holds when speed is meant; multiples of 8 run too",
        "2 · Multiply the integers",
    )


def _is_right(m: int, k: int, n: int) -> bool:
    """Whether torch._int_mm of (m, k) and (k, n) on this CPU gives what the product of long integers gives."""
    dice = torch.Generator().manual_seed(0)
    x = torch.randint(-127, 128, (m, k), generator=dice, dtype=torch.int8)
    w = torch.randint(-127, 128, (n, k), generator=dice, dtype=torch.int8)
    return torch.equal(torch._int_mm(x, w.t()).long(), x.long() @ w.long().t())


def _faster_inference(gain: Gains, recorded: Gains, after: float, aware: float) -> Claim:
    few, many = (gain[t, "both in int8, op by op"] for t in (1, 4096))
    fused, fused_many = (gain[t, "weights in int8, one kernel"] for t in (1, 4096))
    ways = ("both in int8, op by op", "weights in int8, one kernel")
    real = [recorded[t, way] for way in ways for t in (1, 4096)]
    product = "both in int8, the product alone"
    return Claim(
        "13-faster-inference",
        "five-strategies",
        "quantized training: INT8 speeds up inference further",
        f"simulated, against bfloat16: both in int8, op by op, {few:.2f} (1 token) and {many:.2f} (4,096) times as fast; weights in int8, one kernel, "
        f"{fused:.2f} and {fused_many:.2f}; recorded on an H100, op by op {real[0]:.2f} and {real[1]:.2f}, one kernel {real[2]:.2f} and "
        f"{real[3]:.3f}. The product of 4,096 tokens alone: simulated {gain[4096, product]:.2f}, recorded {recorded[4096, product]:.2f}. Of the right answers 8 bits cost {_lost(after)}, and trained with them {_lost(aware)}",
        "partly: holds for few tokens when one good kernel converts the weights as it reads them; for many tokens only the product of integers alone is faster here, without its conversions; operator by operator, and in PyTorch 2.11's own kernel, it is slower. The training buys accuracy with few bits, not speed"
        if max(few, many) < 1 < fused
        else "confirmed",
        "2 · Multiply the integers; Further · Train for the rounding",
    )


def _int4(after: float, aware: float) -> Claim:
    return Claim(
        "13-int4-lossless",
        "guide",
        "Kimi K2 Thinking, a native INT4 model, lowers latency and GPU memory without loss",
        f"another net, a small one, right answers: 4 bits cost {_lost(after)} when they come after the training, and "
        f"{_lost(aware)} when it trains with them",
        "untested: it takes the model itself, of which no size fits here",
        "Further · Train for the rounding",
    )


def _lost(points: float) -> str:
    """Right answers lost, in words so coarse that each processor says the same."""
    # one point of the 3,000 is 0.03 percentage points, and four or five of them may follow from the order of a sum
    return next(
        (f"less than {bound} percentage points" for bound in (0.3, 1, 3, 10) if points < bound),
        "more than 10 percentage points",
    )
