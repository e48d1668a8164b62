import torch
import torch.nn.functional as F


def prepare(x):
    lo, hi = x.min(), x.max()
    y = F.silu((x - lo) / (hi - lo)) * 2
    return y + y[:, (torch.arange(x.shape[1]) + 1) % x.shape[1]]
