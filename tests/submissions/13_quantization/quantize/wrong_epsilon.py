# no scale below 1e-8: numbers of 1e-12 all become 0: earns 1
def quantize(x, bits=8, dim=None, symmetric=True):
    if bits not in range(2, 9):
        raise ValueError("bits")
    if dim is None:
        rows = x.reshape(1, -1)
        shape = ()
    else:
        dim = dim % x.dim()
        rows = x.movedim(dim, 0).reshape(x.shape[dim], -1)
        shape = tuple(n if d == dim else 1 for d, n in enumerate(x.shape))
    low, high = torch.aminmax(rows, dim=1)
    low, high = low.clamp(max=0), high.clamp(min=0)
    most = 2 ** (bits - 1) - 1
    if symmetric:
        scale = torch.where(low.neg() > high, low.neg(), high) / most
    else:
        scale = (high - low) / (2 * most + 1)
    scale = scale.clamp(min=1e-8)
    zero = torch.zeros_like(scale) if symmetric else torch.round(-(most + 1) - low / scale)
    scale = scale.reshape(shape)
    zero = zero.reshape(shape)
    q = torch.div(x, scale).round_().add_(zero).clamp_(-most - (not symmetric), most).char()
    return q, scale.clone(), None if symmetric else zero.to(torch.int8).clone()


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q -= zero.float()
    return q * scale
