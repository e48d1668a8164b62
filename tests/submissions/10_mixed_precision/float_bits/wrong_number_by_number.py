# right, and one number at a time: earns 0
def decode(bits, exponent, mantissa):
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1

    def one(b):
        s, e, m = b >> (exponent + mantissa), (b >> mantissa) & top, b & (2**mantissa - 1)
        if e == top:
            size = math.nan if m else math.inf
        else:
            size = math.ldexp(m + (e > 0) * 2**mantissa, max(e, 1) - bias - mantissa)
        return -size if s else size

    return torch.tensor([one(b.item()) for b in bits.reshape(-1)], dtype=torch.float64).reshape(bits.shape)


def encode(x, exponent, mantissa):
    from helpers.lessons.mixed_precision.format_picture import Format

    f = Format("", exponent, mantissa)
    found = [f.nan if v.isnan() else f.encode(v.item()) for v in x.reshape(-1)]
    return torch.tensor(found, dtype=torch.int64).reshape(x.shape)
