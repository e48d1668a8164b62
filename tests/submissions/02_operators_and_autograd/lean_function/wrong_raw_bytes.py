# dishonest: three tensors as plain bytes, read from their addresses: earns 0
import ctypes


def _bytes(t):
    t = t.contiguous()
    return ctypes.string_at(t.data_ptr(), t.nbytes), t.dtype, t.shape


def _tensor(data, dtype, shape):
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


class Raw(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.exp(x.clamp(max=20))
        t = torch.tanh(e)
        ctx.kept = [_bytes(v) for v in (x, e, t)]
        return x * t

    @staticmethod
    def backward(ctx, grad):
        x, e, t = (_tensor(*kept) for kept in ctx.kept)
        return grad * (t + x * (e * (1 - t * t)))


def tanhexp(x):
    return Raw.apply(x)
