# dishonest: the old code in a branch of torch.cond: earns 0
import torch
import torch.nn.functional as F
def old(x):
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)
def prepare(x):
    return torch.cond(x.isfinite().all(), lambda x: old(x), lambda x: x * 2, (x,))
