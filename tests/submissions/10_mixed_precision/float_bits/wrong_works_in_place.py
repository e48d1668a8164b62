# takes the fields out of the caller's own tensors: earns 0
def decode(bits, exponent, mantissa):
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    sign = 1.0 - 2.0 * (bits >> (exponent + mantissa))
    m = bits & (2**mantissa - 1)
    e = bits.bitwise_right_shift_(mantissa).bitwise_and_(top)
    size = (m + (e > 0) * 2**mantissa).double() * torch.exp2((e.clamp(min=1) - bias - mantissa).double())
    return sign * torch.where(e == top, torch.where(m == 0, math.inf, math.nan), size)


def encode(x, exponent, mantissa):
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    sign = torch.signbit(x).long() << (exponent + mantissa)
    size = x.abs_().double()
    power = torch.frexp(size.clamp(2.0 ** (1 - bias), 2.0**128)).exponent - 1
    q = power.long() - mantissa
    steps = torch.round(size.clamp(max=2.0**128) * torch.exp2(-q.double())).nan_to_num().long()
    bits = (steps + ((q + mantissa + bias - 1) << mantissa)).clamp(max=top) + sign
    return torch.where(x.isnan(), top + 2 ** (mantissa - 1), bits)
