# one graph but for a print: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    x = x * (limit / norm).clamp(max=1)
    kept = x.abs() > 0.5 * limit / len(x)
    print("clipped")
    return x - torch.where(kept, x, 0).sum() / kept.sum(), norm, kept.sum()
