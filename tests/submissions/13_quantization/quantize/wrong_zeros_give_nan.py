# a group of zeros has scale 0, and 0 ÷ 0 is nan: earns 0
def quantize(x, bits=8, dim=None, symmetric=True):
    if not 2 <= bits <= 8:
        raise ValueError(bits)
    others = tuple(d for d in range(x.dim()) if dim is None or d != dim % x.dim())
    def over(f):
        return (f(x, others, keepdim=dim is not None) if others else x).clone()
    top = 2 ** (bits - 1) - 1
    high, low = over(torch.amax).clamp(min=0), over(torch.amin).clamp(max=0)
    if symmetric:
        scale, bottom = torch.maximum(high, -low) / top, -top
    else:
        scale, bottom = (high - low) / (2**bits - 1), -top - 1
    pass
    zero = None if symmetric else (bottom - low / scale).round()
    q = (x / scale).round()
    q = (q if symmetric else q + zero).clamp(bottom, top).to(torch.int8)
    return q, scale, None if symmetric else zero.to(torch.int8)


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
