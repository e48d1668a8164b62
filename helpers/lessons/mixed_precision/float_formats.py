"""Floating-point formats as plain data: what a pattern of bits stands for, and which is nearest to a value.

A value is (−1)^s · 2^(e − bias) · (1 + m / 2^M): a sign s, E bits of exponent e, M bits of mantissa m, and
bias = 2^(E−1) − 1. With e = 0 it is (−1)^s · 2^(1 − bias) · m / 2^M (subnormal, and zero); with all bits of e
set it is infinite (m = 0) or no number. That is IEEE 754, and so are bfloat16, TF32 and float8 E5M2. E4M3
breaks the last rule: only all ones are no number, there is no infinity, and 448 is its largest value
(Micikevicius and others, "FP8 formats for deep learning", 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A float format of 1 + exponent + mantissa bits. infinities: False for E4M3, which has none."""

    name: str
    exponent: int
    mantissa: int
    infinities: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def nan(self) -> int:
        """Bits of a positive "not a number", as torch writes it."""
        ones = (1 << self.bits - 1) - 1
        return ones if not self.infinities else ones ^ ((1 << self.mantissa - 1) - 1)

    @property
    def inf(self) -> int | None:
        """Bits of +infinity; None where there is none."""
        return ((1 << self.exponent) - 1) << self.mantissa if self.infinities else None

    @property
    def largest(self) -> float:
        return self.decode(self.nan - 1 if self.inf is None else self.inf - 1)

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, 1 - self.bias)

    @property
    def smallest(self) -> float:
        return math.ldexp(1.0, 1 - self.bias - self.mantissa)

    def decode(self, bits: int) -> float:
        """The value of these bits. ValueError if they are not 0 … 2^bits − 1."""
        if not 0 <= bits < 1 << self.bits:
            most = (1 << self.bits) - 1
            raise ValueError(f"{self.name} has {self.bits} bits: {bits} is not from 0 to {most}")
        top, ones = (1 << self.exponent) - 1, (1 << self.mantissa) - 1
        s, e, m = bits >> self.bits - 1, bits >> self.mantissa & top, bits & ones
        if e == top and (self.infinities or m == ones):
            value = math.inf if self.infinities and m == 0 else math.nan
        else:
            value = math.ldexp(m + (1 << self.mantissa) * (e > 0), max(e, 1) - self.bias - self.mantissa)
        return -value if s else value

    def encode(self, value: float) -> int:
        """Bits of the nearest value; of two equally near, the one whose last bit is 0.

        What rounds beyond the largest is infinite; in E4M3 it is not a number, as the paper has it. (PyTorch's cast
        on the CPU did the same until April 2026, and takes 448 since: github.com/pytorch/pytorch/pull/178817.)
        """
        sign = (math.copysign(1.0, value) < 0) << self.exponent + self.mantissa
        if math.isnan(value):
            return sign | self.nan
        beyond = self.nan if self.inf is None else self.inf
        if math.isinf(value) or value == 0:
            return sign | beyond if value else sign
        _, power = math.frexp(value)  # |value| in [2^(power − 1), 2^power)
        quantum = max(power - 1, 1 - self.bias) - self.mantissa  # exponent of the distance of neighbours
        steps = round(math.ldexp(abs(value), -quantum))  # exact in float64, and round() takes the even one
        bits = steps + ((quantum + self.mantissa + self.bias - 1) << self.mantissa)
        return sign | min(bits, beyond)

    def rounded(self, value: float) -> float:
        return self.decode(self.encode(value))


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("fp32", 8, 23), Format("tf32", 8, 10), Format("bf16", 8, 7), Format("fp16", 5, 10),
        Format("e5m2", 5, 2), Format("e4m3", 4, 3, infinities=False),
    )
}  # fmt: skip
"""fp32, tf32 (19 bits, inside Tensor Cores only), bf16, fp16, and the two float8."""
