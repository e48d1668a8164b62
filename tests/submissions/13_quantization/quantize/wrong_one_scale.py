# ignores dim: one scale for all, repeated: earns 0
def quantize(x, bits=8, dim=None, symmetric=True):
    if not 2 <= bits <= 8:
        raise ValueError(bits)
    top = 2 ** (bits - 1) - 1
    shape = [] if dim is None else [n if d == dim % x.dim() else 1 for d, n in enumerate(x.shape)]
    if symmetric:
        scale = (x.abs().max() / top).clamp(min=1e-12).expand(shape).clone()
        return (x / scale).round().clamp(-top, top).to(torch.int8), scale, None
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = ((high - low) / (2**bits - 1)).clamp(min=1e-12).expand(shape).clone()
    zero = (-top - 1 - low / scale).round()
    return ((x / scale).round() + zero).clamp(-top - 1, top).to(torch.int8), scale, zero.to(torch.int8)


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
