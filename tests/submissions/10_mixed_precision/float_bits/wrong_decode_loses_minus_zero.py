# decode makes 0 of -0: earns 0
def decode(bits, exponent, mantissa):
    bias = 2 ** (exponent - 1) - 1
    m = bits & (2**mantissa - 1)
    e = (bits >> mantissa) & (2**exponent - 1)
    s = bits >> (exponent + mantissa)
    value = torch.ldexp((m + (e > 0) * 2**mantissa).double(), e.clamp(min=1) - bias - mantissa)
    special = torch.where(m == 0, math.inf, math.nan).double()
    value = torch.where(e == 2**exponent - 1, special, value)
    return torch.where((s == 1) & (value != 0), -value, value)


def encode(x, exponent, mantissa):
    bias = 2 ** (exponent - 1) - 1
    a = x.double().abs()
    top = (2**exponent - 1) << mantissa
    finite = torch.where(torch.isfinite(a), a, 0.0)
    _, e = torch.frexp(finite)
    e = torch.where(finite == 0, -10000, e)
    q = (e.long() - 1 - mantissa).clamp(min=1 - bias - mantissa)
    code = torch.ldexp(finite, -q).round().long() + ((q + mantissa + bias - 1) << mantissa)
    code = code.clamp(max=top)
    code = torch.where(torch.isinf(a), top, code)
    code = code + torch.where(torch.signbit(x), 1 << (exponent + mantissa), 0)
    return torch.where(torch.isnan(x), top + (1 << (mantissa - 1)), code)
