# the maximum still waits for the minimum: earns 0
import torch.nn.functional as F


def prepare(x):
    x = x - x.min()
    y = F.silu(x / x.max()) * 2
    return y + y.roll(-1, 1)
