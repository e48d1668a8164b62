def quantize(x, bits=8, dim=None, symmetric=True):
    if bits not in range(2, 9):
        raise ValueError("bits: 2 to 8")
    if dim is None:
        low, high = torch.aminmax(x)
    else:
        flat = x.movedim(dim, 0).reshape(x.shape[dim], -1)
        low, high = torch.aminmax(flat, dim=1)
        shape = [1] * x.dim()
        shape[dim] = -1
        low, high = low.reshape(shape), high.reshape(shape)
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale = torch.where((low == 0) & (high == 0), 1.0, torch.maximum(low.abs(), high.abs()) / top)
        return torch.clamp(torch.round(x / scale), -top, top).to(torch.int8), scale, None
    low, high = torch.clamp(low, max=0), torch.clamp(high, min=0)
    scale = torch.where(low == high, 1.0, (high - low) / (2**bits - 1))
    bottom = -(2 ** (bits - 1))
    zero = torch.round(bottom - low / scale)
    q = torch.clamp(torch.round(x / scale) + zero, bottom, -bottom - 1)
    return q.to(torch.int8), scale, zero.to(torch.int8)


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
