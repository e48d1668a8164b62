# how many were kept is a float: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    x = x * (limit / norm).clamp(max=1)
    kept = (x.abs() > 0.5 * limit / len(x)).float()
    return x - (x * kept).sum() / kept.sum(), norm, kept.sum()
