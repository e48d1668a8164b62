# right, but dequantize returns the same tensor for all of a shape: earns 0
def quantize(x, bits=8, dim=None, symmetric=True):
    if bits < 2 or bits > 8:
        raise ValueError(bits)
    n = 2 ** (bits - 1)
    axes = [i for i in range(x.ndim) if dim is not None and i != dim % x.ndim]
    if dim is None:
        high, low = x.max(), x.min()
    else:
        high, low = x, x
        for i in axes:
            high, low = high.amax(i, keepdim=True), low.amin(i, keepdim=True)
    high, low = high.clamp_min(0), low.clamp_max(0)
    if symmetric:
        span, steps, bottom = torch.max(high, -low), n - 1, 1 - n
    else:
        span, steps, bottom = high - low, 2 * n - 1, -n
    scale = span / steps
    scale = scale + (scale == 0).float()
    work = x.div(scale).round_()
    zero = None
    if not symmetric:
        zero = bottom - (low / scale).round()
        work.add_(zero)
        zero = zero.to(torch.int8)
    return work.clamp_(bottom, n - 1).to(torch.int8), scale, zero


def dequantize(q, scale, zero=None):
    back = q.to(torch.int16)
    if zero is not None:
        back = back - zero.to(torch.int16)
    room = results.setdefault(back.shape, torch.empty(back.shape))
    return torch.mul(back, scale, out=room)


results = {}
