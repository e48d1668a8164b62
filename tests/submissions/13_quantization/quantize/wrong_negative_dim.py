# d != dim is true for every d if dim is negative: one scale for all: earns 0
def quantize(x, bits=8, dim=None, symmetric=True):
    if not 2 <= bits <= 8:
        raise ValueError("bits is from 2 to 8")
    others = tuple(d for d in range(x.dim()) if d != dim)
    keep = dim is not None
    top = 2 ** (bits - 1) - 1
    high = (x.amax(others, keepdim=keep) if others else x).clamp(min=0)
    low = (x.amin(others, keepdim=keep) if others else x).clamp(max=0)
    bottom = -top if symmetric else -top - 1
    scale = torch.maximum(high, -low) / top if symmetric else (high - low) / (2**bits - 1)
    scale[scale == 0] = 1
    zero = None if symmetric else (bottom - low / scale).round()
    q = (x / scale).round_()
    if zero is not None:
        q += zero
    return q.clamp_(bottom, top).to(torch.int8), scale, None if zero is None else zero.to(torch.int8)


def dequantize(q, scale, zero=None):
    return (q.float() if zero is None else q.float() - zero.float()) * scale
