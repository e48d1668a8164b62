# the factor's quotient has 1e-6 below, as clip_grad_norm_ has: earns 1
# where limit and norm are themselves about 1e-6 or smaller ("limit: > 0").
def centre(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    norm = x.norm()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    x = x * factor
    kept = x.abs() > 0.5 * limit / len(x)
    count = kept.sum()
    mean = torch.where(kept, x, 0).sum() / count
    return x - mean, norm, count
