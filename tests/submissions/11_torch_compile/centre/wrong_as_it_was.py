# the function as it was, with its numbers returned: every break is still there: earns 0
import torch


def centre(x, limit):
    norm = x.norm()
    if norm > limit:
        x = x * (limit / norm)
    kept = x[x.abs() > 0.5 * limit / len(x)]
    return x - kept.mean(), norm, torch.tensor(len(kept))
