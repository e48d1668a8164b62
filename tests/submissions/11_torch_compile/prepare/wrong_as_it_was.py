# the function as it was: earns 0
import torch
import torch.nn.functional as F


def prepare(x):
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)
