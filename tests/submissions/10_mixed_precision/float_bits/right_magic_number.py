def decode(bits, exponent, mantissa):
    bias = 2 ** (exponent - 1) - 1
    sign, e, m = bits >> (exponent + mantissa), (bits >> mantissa) % 2**exponent, bits % 2**mantissa
    tiny = torch.ldexp(m.double(), torch.tensor(1 - bias - mantissa))
    large = torch.ldexp(1 + m.double() / 2**mantissa, e - bias)
    value = torch.where(e == 0, tiny, large)
    value[(e == 2**exponent - 1) & (m == 0)] = math.inf
    value[(e == 2**exponent - 1) & (m > 0)] = math.nan
    return torch.where(sign == 1, -value, value)


def encode(x, exponent, mantissa):
    """Adding 1.5 · 2^52 units makes float64 itself round to whole units, ties to even."""
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    size = torch.where(x.isfinite(), x, 0).double().abs()
    power = (size.view(torch.int64) >> 52) - 1023
    power = torch.where(power < 1 - bias, 1 - bias, power)
    unit = ((power - mantissa + 1023) << 52).view(torch.float64)
    magic = unit * 1.5 * 2.0**52
    steps = ((size + magic - magic) / unit).long()
    bits = (((power + bias - 1) << mantissa) + steps).clamp(max=top)
    bits = torch.where(x.isinf(), top, bits)
    bits = bits + torch.signbit(x) * 2 ** (exponent + mantissa)
    return torch.where(x.isnan(), top + 2 ** (mantissa - 1), bits)
