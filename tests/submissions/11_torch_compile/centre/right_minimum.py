import torch


def centre(x, limit):
    norm = torch.linalg.vector_norm(x)
    x = x * torch.minimum(torch.ones_like(norm), limit / norm)
    kept = (x.abs() > 0.5 * limit / x.shape[0]).to(x.dtype)
    return x - (x * kept).sum() / kept.sum(), norm, kept.sum().to(torch.int64)
