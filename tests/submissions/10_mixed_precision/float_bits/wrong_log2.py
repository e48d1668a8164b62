# the exponent by log2 in float32, which rounds just below powers of two: earns 1
def decode(bits, exponent, mantissa):
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    e, m = (bits >> mantissa) & top, bits & (2**mantissa - 1)
    size = (m + (e > 0) * 2**mantissa).double() * torch.exp2((e.clamp(min=1) - bias - mantissa).double())
    size = torch.where(e == top, torch.where(m == 0, math.inf, math.nan), size)
    return torch.where(bits >> (exponent + mantissa) == 1, -size, size)


def encode(x, exponent, mantissa):
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    size = x.double().abs().clamp(max=2.0**128)
    q = torch.log2(x.abs().clamp(2.0 ** (1 - bias), 3e38)).floor().long() - mantissa
    steps = torch.round(size * torch.exp2(-q.double())).nan_to_num().long()
    bits = (steps + ((q + mantissa + bias - 1) << mantissa)).clamp(max=top)
    bits = bits + (torch.signbit(x).long() << (exponent + mantissa))
    return torch.where(x.isnan(), top + 2 ** (mantissa - 1), bits)
