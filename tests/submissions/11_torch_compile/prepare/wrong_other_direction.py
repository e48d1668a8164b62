# three nests, but the neighbour on the other side: earns 0
import torch.nn.functional as F


def prepare(x):
    lo, hi = x.aminmax()
    y = F.silu((x - lo) / (hi - lo)) * 2
    return y + y.roll(1, 1)
