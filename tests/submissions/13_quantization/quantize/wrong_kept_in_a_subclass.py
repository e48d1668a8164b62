# dishonest: stores nothing and hands out the exact numbers through a subclass of Tensor: earns 0
class Exact(torch.Tensor):
    pass
def quantize(x, bits=8, dim=None, symmetric=True):
    if not 2 <= bits <= 8:
        raise ValueError(bits)
    return x.clone().as_subclass(Exact), torch.ones(()), None


def dequantize(q, scale, zero=None):
    q = q.float()
    if zero is not None:
        q = q - zero.float()
    return q * scale
