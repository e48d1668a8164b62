# clips the caller's x in place: earns 0
def centre(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    norm = x.norm()
    x.mul_((limit / norm).clamp(max=1))
    kept = x.abs() > 0.5 * limit / len(x)
    mean = torch.where(kept, x, 0).sum() / kept.sum()
    return x - mean, norm, kept.sum()
