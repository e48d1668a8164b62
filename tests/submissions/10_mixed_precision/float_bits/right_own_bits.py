def decode(bits, exponent, mantissa):
    """Scaled so that float64's own fields can be put together: shift the fraction, move the bias."""
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    e, m = (bits >> mantissa) % (top + 1), bits % (1 << mantissa)
    normal = ((e + 1023 - bias) << 52) | (m << (52 - mantissa))
    value = torch.where(e == 0, m.double() * 2.0 ** (1 - bias - mantissa), normal.view(torch.float64))
    value = torch.where(e == top, torch.where(m == 0, math.inf, math.nan), value)
    return torch.where(bits >> (exponent + mantissa) > 0, -value, value)


def encode(x, exponent, mantissa):
    """Adding and subtracting 1.5 · 2^52 steps rounds to a whole number of steps, halves to even."""
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    wide = x.abs().double()
    e = ((wide.view(torch.int64) >> 52) - 1023).clamp(1 - bias, 128)
    step = ((e - mantissa + 1023) << 52).view(torch.float64)
    whole = wide.nan_to_num(0.0, 2.0**129).clamp(max=2.0**129) / step
    whole = ((whole + 2.0**52) - 2.0**52).long()
    bits = (whole + ((e + bias - 1) << mantissa)).clamp(max=top)
    bits = torch.where(torch.signbit(x), bits + (1 << (exponent + mantissa)), bits)
    return torch.where(x.isnan(), top + (1 << (mantissa - 1)), bits)
