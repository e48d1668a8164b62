# divided by the maximum, not by the range: right only where the minimum is 0: earns 0
import torch.nn.functional as F


def prepare(x):
    lo, hi = x.aminmax()
    y = F.silu((x - lo) / hi) * 2
    return y + y.roll(-1, 1)
