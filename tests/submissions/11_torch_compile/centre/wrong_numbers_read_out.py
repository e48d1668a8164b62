# norm and count come as Python numbers: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    x = x * (limit / norm).clamp(max=1)
    kept = x.abs() > 0.5 * limit / len(x)
    return x - torch.where(kept, x, 0).sum() / kept.sum(), norm.item(), int(kept.sum())
