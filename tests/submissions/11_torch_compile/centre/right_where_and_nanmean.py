import math

import torch


def centre(x, limit):
    norm = x.square().sum().sqrt()
    x = torch.where(norm > limit, x * (limit / norm), x)
    kept = x.abs() > 0.5 * limit / len(x)
    return x - x.masked_fill(~kept, math.nan).nanmean(), norm, torch.count_nonzero(kept)
