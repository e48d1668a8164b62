# the sum of those kept is divided by all of them: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    x = x * (limit / norm).clamp(max=1)
    kept = x.abs() > 0.5 * limit / len(x)
    return x - torch.where(kept, x, 0).mean(), norm, kept.sum()
