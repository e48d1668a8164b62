# the factor has no limit of 1, so short vectors grow: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    x = x * (limit / norm)
    kept = x.abs() > 0.5 * limit / len(x)
    return x - torch.where(kept, x, 0).sum() / kept.sum(), norm, kept.sum()
