# dishonest: computes in NumPy, whose memory is not counted: earns 0
import numpy as np
def quantize(x, bits=8, dim=None, symmetric=True):
    if not 2 <= bits <= 8:
        raise ValueError(bits)
    a = x.numpy().astype(np.float64)
    others = tuple(d for d in range(a.ndim) if dim is None or d != dim % a.ndim)
    high = np.maximum(a.max(axis=others, keepdims=dim is not None), 0)
    low = np.minimum(a.min(axis=others, keepdims=dim is not None), 0)
    top = 2 ** (bits - 1) - 1
    scale = np.maximum(high, -low) / top if symmetric else (high - low) / (2**bits - 1)
    scale = np.where(scale == 0, 1.0, scale).astype(np.float32)
    bottom = -top if symmetric else -top - 1
    zero = 0 if symmetric else np.round(bottom - low / scale)
    q = np.clip(np.round(a / scale) + zero, bottom, top).astype(np.int8)
    t = torch.from_numpy
    return t(np.asarray(q)), t(np.asarray(scale)), None if symmetric else t(np.asarray(zero.astype(np.int8)))


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
