def decode(bits, exponent, mantissa):
    """torch.ldexp, and one branch for each line of the table."""
    bias, ones = 2 ** (exponent - 1) - 1, 2**exponent - 1
    sign, e, m = bits // 2 ** (exponent + mantissa), bits // 2**mantissa % 2**exponent, bits % 2**mantissa
    fraction = m.double() / 2**mantissa
    two = torch.tensor(2.0, dtype=torch.float64)
    value = torch.pow(two, (e - bias).double()) * (1 + fraction)
    value[e == 0] = 0.0
    value = value + torch.where(e == 0, fraction * 2.0 ** (1 - bias), 0.0)
    value = value.masked_fill(e == ones, math.inf).masked_fill((e == ones) & (m > 0), math.nan)
    return torch.where(sign == 1, -value, value)


def encode(x, exponent, mantissa):
    """Round to a multiple first; then take the fields of what came out."""
    bias, ones = 2 ** (exponent - 1) - 1, 2**exponent - 1
    v = torch.nan_to_num(x.double(), 0.0, 2.0**200, -(2.0**200)).abs()
    e = torch.frexp(v)[1].double() - 1
    e = torch.where(v == 0, -1e9, e).clamp(min=1 - bias)
    ulp = torch.pow(2.0, e - mantissa)
    v = torch.round(v / ulp) * ulp
    e = torch.frexp(v)[1].double() - 1
    e = torch.where(v == 0, -1e9, e).clamp(min=1 - bias)
    m = v / torch.pow(2.0, e - mantissa)
    field = torch.where(m < 2**mantissa, 0.0, e + bias)
    m = torch.where(m < 2**mantissa, m, m - 2**mantissa)
    over = field >= ones
    bits = torch.where(over, float(ones * 2**mantissa), field * 2**mantissa + m)
    bits = bits + torch.signbit(x) * 2.0 ** (exponent + mantissa)
    return torch.where(x.isnan(), ones * 2.0**mantissa + 2.0 ** (mantissa - 1), bits).long()
