def robust_step(weight, x, y, keep, lr, max_norm):
    share = keep.to(x.dtype)
    clean = torch.where(keep[:, None], x, torch.zeros_like(x))
    target = torch.where(keep, y, torch.zeros_like(y))
    error = torch.mv(clean, weight).sub_(target)
    grad = torch.mv(clean.t(), error).mul_(2).div_(torch.clamp(share.sum(), min=1))
    norm = torch.linalg.vector_norm(grad)
    factor = torch.minimum(max_norm / norm, torch.ones_like(norm))
    weight.add_(torch.where(torch.isfinite(norm), grad * factor, torch.zeros_like(grad)), alpha=-lr)
