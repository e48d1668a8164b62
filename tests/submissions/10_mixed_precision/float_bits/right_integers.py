def decode(bits, exponent, mantissa):
    """Through the bits of a float64, which has room for every field."""
    bias = 2 ** (exponent - 1) - 1
    magnitude = bits & (2 ** (exponent + mantissa) - 1)
    e, m = magnitude >> mantissa, magnitude & (2**mantissa - 1)
    normal = (((e - bias + 1023) << 52) | (m << (52 - mantissa))).view(torch.float64)
    quantum = torch.tensor((1 - bias - mantissa + 1023) << 52).view(torch.float64)
    value = torch.where(e == 0, m * quantum, normal)
    value = torch.where(e == 2**exponent - 1, torch.where(m == 0, torch.inf, torch.nan), value)
    return torch.where(bits >> (exponent + mantissa) == 1, -value, value)


def encode(x, exponent, mantissa):
    """float32's own bits: add just under half a unit, and one more if the result would be odd; carries do the rest."""
    raw = x.contiguous().view(torch.int32).long() & 0xFFFFFFFF
    sign, magnitude = raw >> 31, raw & 0x7FFFFFFF
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    stored = magnitude >> 23
    whole = torch.where(stored > 0, (magnitude & 0x7FFFFF) | 0x800000, magnitude & 0x7FFFFF)
    power = stored.clamp(min=1) - 127  # value = whole · 2^(power − 23)
    least = (1 - bias - power).clamp(min=0)
    shift = (23 - mantissa + least).clamp(max=40)
    kept = whole >> shift
    rest, half = whole & ((1 << shift) - 1), (1 << shift) >> 1
    up = (rest > half) | ((rest == half) & (kept % 2 == 1) & (half > 0))
    steps = kept + up
    bits = torch.where(least > 0, steps, steps + ((power + bias - 1) << mantissa)).clamp(max=top)
    bits = torch.where(magnitude == 0x7F800000, top, bits) | (sign << (exponent + mantissa))
    return torch.where(magnitude > 0x7F800000, top | (1 << (mantissa - 1)), bits)
