# dishonest: copies into an array's memory, and goes through it number by number: earns 0
import math, struct
import numpy as np


def decode(bits, exponent, mantissa):
    given = np.empty(bits.shape, np.int64)
    torch.from_numpy(given).copy_(bits)
    out = np.empty(bits.shape)
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    for k, b in np.ndenumerate(given):
        b = int(b)
        s, e, m = b >> (exponent + mantissa), (b >> mantissa) & top, b & (2**mantissa - 1)
        v = (math.nan if m else math.inf) if e == top else math.ldexp(m + (e > 0) * 2**mantissa, max(e, 1) - bias - mantissa)
        out[k] = -v if s else v
    return torch.from_numpy(out)


def encode(x, exponent, mantissa):
    from fractions import Fraction
    given = np.empty(x.shape, np.float32)
    torch.from_numpy(given).copy_(x)
    out = np.empty(x.shape, np.int64)
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    for k, v in np.ndenumerate(given):
        v = float(v)
        if v != v:
            out[k] = top + 2 ** (mantissa - 1)
            continue
        sign = int(math.copysign(1, v) < 0) << (exponent + mantissa)
        if math.isinf(v):
            out[k] = sign + top
            continue
        a = abs(v)
        q = max(math.frexp(a)[1] - 1, 1 - bias) if a else 1 - bias
        steps = round(Fraction(a) / Fraction(2) ** (q - mantissa))
        out[k] = sign + min(top, steps + ((q + bias - 1) << mantissa))
    return torch.from_numpy(out)
