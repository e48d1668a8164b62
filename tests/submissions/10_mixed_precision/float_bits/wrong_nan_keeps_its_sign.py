# the sign is put in last, so that of a negative NaN is set: earns 1
def decode(bits: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    sign = 1.0 - 2.0 * (bits >> (exponent + mantissa))
    e, m = (bits >> mantissa) & top, bits & (2**mantissa - 1)
    size = (m + (e > 0) * 2**mantissa).double() * torch.exp2((e.clamp(min=1) - bias - mantissa).double())
    special = torch.where(m == 0, math.inf, math.nan)
    return sign * torch.where(e == top, special, size)


def encode(x: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    size = x.double().abs()
    power = torch.frexp(size.clamp(2.0 ** (1 - bias), 2.0**128)).exponent - 1
    q = power.long() - mantissa
    steps = torch.round(size.clamp(max=2.0**128) * torch.exp2(-q.double())).nan_to_num().long()
    bits = (steps + ((q + mantissa + bias - 1) << mantissa)).clamp(max=top)
    bits = torch.where(x.isnan(), top + 2 ** (mantissa - 1), bits)
    return bits + (torch.signbit(x).long() << (exponent + mantissa))
