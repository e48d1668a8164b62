# every step has a name and lives on: 17 bytes per number alive at once: earns 0
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
    scale[scale == 0] = 1
    zero = None if symmetric else (bottom - low / scale).round()
    divided = x / scale
    as_integer = divided.round()
    moved = as_integer if symmetric else as_integer + zero
    clamped = moved.clamp(bottom, top)
    q = clamped.to(torch.int8)
    return q, scale, None if symmetric else zero.to(torch.int8)


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
